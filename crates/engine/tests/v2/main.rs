//! Version 2: two endpoints back to back, and single rules with a peer that sends hand-made messages.
#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../common/mod.rs"]
mod common;
mod credits;
mod errors;
mod exchange;
mod host_auth;
mod hostile;
mod negotiation;
mod pair;
mod peer;
mod reduction;
mod rules;
#[path = "../world/mod.rs"]
mod world;
