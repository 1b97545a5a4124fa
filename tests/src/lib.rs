//! Tests that join the rooms of the workspace. Each file beside this folder is one subject.
