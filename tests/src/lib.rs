//! Tests that join the rooms of the workspace. Each file beside this folder is one subject. What is here they share
//! with the fuzzers in `fuzz/`, which stand outside the workspace.

pub mod fuzz;
