//! Whole runs of the transport in a simulated world, each of them a function of its seed.
//!
//! A seed [plans](plan) a server and clients of either version, what their providers can do, how much memory there is,
//! their work, and the faults. [`run`] runs this plan in two parts. With faults on, connections are cut, hosts restart,
//! clocks jump, registrations fail, Reads are refused, completions come late, memory runs out: nothing unsafe may
//! happen. Then faults are off, and everything must complete. At the end nothing may be left.
//!
//! Some seeds are runs of NFS version 4 (`nfs4/`) instead: the real server, and lean clients or the clients of
//! `rpcrdma-nfs-client`, over the same transport. Others are runs of versions 2 and 3 (`files/`), with clients of that
//! crate in both versions and a disk that forgets everything not durable.
//!
//! The judges stand outside of the transport: [`watch`] sees everything between the transport and its provider, an
//! [allocator](memory) knows each buffer's owner, a [ledger] knows each call. The simulated network itself ends a
//! connection if an end touches memory that is not lent, or if a message finds no receive; its log then shows this.

#![allow(unreachable_pub, reason = "the rooms of one program")]

mod caller;
pub mod capture;
mod clock;
mod files;
mod guests;
mod hosts;
pub mod judge;
pub mod ledger;
pub mod memory;
mod nfs4;
pub mod plan;
mod program;
pub mod record;
mod run;
mod scratch;
pub mod tally;
pub mod trust;
pub mod watch;
pub mod wire;
mod work;

pub use plan::Edition;
pub use record::{EventLog, Note};
pub use run::{Outcome, run};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic in another thread: that panic is reported anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
