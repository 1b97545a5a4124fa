//! A hostile peer against a live server: one rule broken at a time, over plain sockets, with bytes that this test
//! builds itself. The server must answer each broken rule as the specification says, and serve a decent client all the
//! time; afterwards it must hold no more than before, and must have logged nothing.

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
