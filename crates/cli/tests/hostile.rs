//! A hostile peer against a live server: one rule broken at a time, over plain sockets, with bytes that this test
//! builds itself. Each rule's answer is the one that its specification names; a decent client beside it is served all
//! the time; afterwards the server holds nothing more than before, and has logged nothing.

mod common;

#[path = "hostile/calls.rs"]
mod calls;
#[path = "hostile/files.rs"]
mod files;
#[path = "hostile/headers2.rs"]
mod headers2;
#[path = "hostile/iwarp.rs"]
mod iwarp;
#[path = "hostile/locks.rs"]
mod locks;
#[path = "hostile/random.rs"]
mod random;
#[path = "hostile/records.rs"]
mod records;
#[path = "hostile/refused.rs"]
mod refused;
#[path = "hostile/setup.rs"]
mod setup;
#[path = "hostile/stage.rs"]
mod stage;
#[path = "hostile/stalls.rs"]
mod stalls;
#[path = "hostile/strangers.rs"]
mod strangers;
#[path = "hostile/transport.rs"]
mod transport;
#[path = "hostile/version2.rs"]
mod version2;

use rpcrdma_peers::{idlers, peer, rpc, wire};
