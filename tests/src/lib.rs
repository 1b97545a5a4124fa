//! Tests that join the crates of the workspace. Each file beside this folder is one subject. They share the code in
//! this folder with the fuzzers in `fuzz/`, which stand outside the workspace.

pub mod fuzz;
