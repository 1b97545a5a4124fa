//! Version 1: two endpoints back to back, and single rules with a peer that sends hand-made messages.
#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../common/mod.rs"]
mod common;
mod pair;
mod reduction;
mod rules;
#[path = "../world/mod.rs"]
mod world;
