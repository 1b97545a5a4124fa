//! A hostile peer against a live server of NFS version 4, over TCP and iWARP: one rule broken at a time, with bytes
//! that this test builds itself. The server must answer each with the status that RFC 8881 section 15 names, and change
//! nothing. An honest client beside it keeps its session, its open and its lock all the time, and all its calls work.
//! Afterwards the server must hold no more than before, and must have logged nothing.

#![allow(dead_code, reason = "the stage is that of the other tests against a live server")]

mod common;

#[path = "hostile_nfs4/callbacks.rs"]
mod callbacks;
#[path = "hostile_nfs4/calls40.rs"]
mod calls40;
#[path = "hostile_nfs4/floods.rs"]
mod floods;
#[path = "hostile_nfs4/honest.rs"]
mod honest;
#[path = "hostile_nfs4/leases.rs"]
mod leases;
#[path = "hostile_nfs4/others.rs"]
mod others;
#[path = "hostile_nfs4/shapes.rs"]
mod shapes;
#[path = "hostile_nfs4/slots.rs"]
mod slots;
#[path = "hostile/stage.rs"]
mod stage;
#[path = "hostile_nfs4/zero.rs"]
mod zero;

use rpcrdma_peers::{peer, rpc};
