//! A hostile peer against a live server: one rule broken at a time, over plain sockets, with octets that this test builds
//! itself. Each rule's answer is the one that its specification names; a decent client beside it is served all the time;
//! afterwards the server holds nothing more than before, and has logged nothing.

mod common;

#[path = "hostile/calls.rs"]
mod calls;
#[path = "hostile/files.rs"]
mod files;
#[path = "hostile/headers2.rs"]
mod headers2;
#[path = "hostile/idlers.rs"]
mod idlers;
#[path = "hostile/iwarp.rs"]
mod iwarp;
#[path = "hostile/peer.rs"]
mod peer;
#[path = "hostile/random.rs"]
mod random;
#[path = "hostile/records.rs"]
mod records;
#[path = "hostile/rpc.rs"]
mod rpc;
#[path = "hostile/setup.rs"]
mod setup;
#[path = "hostile/stage.rs"]
mod stage;
#[path = "hostile/stalls.rs"]
mod stalls;
#[path = "hostile/transport.rs"]
mod transport;
#[path = "hostile/version2.rs"]
mod version2;
#[path = "hostile/wire.rs"]
mod wire;
