//! Whole runs of the transport in a simulated world, each of them a function of its seed.
//!
//! A seed [plans](plan) a server and clients of either version, what their providers can do, how much memory there is,
//! what they do, and what goes wrong. [`run`] lets it happen in two parts. With faults on, connections are cut, hosts
//! restart, clocks jump, registrations fail, Reads are refused, completions come late, memory runs out: nothing unsafe
//! may happen. Then faults are off, and everything must complete. At the end nothing may be left.
//!
//! A part of the seeds stands for runs of NFS version 4 (`nfs4/`) instead: the real server, and lean clients or those
//! of `rpcrdma-nfs-client`, over the same transport. Others are runs of versions 2 and 3 (`files/`), with clients of
//! that crate in both versions and a disk that forgets what was not made durable.
//!
//! What judges stands outside of what is judged: [`watch`] sees all that goes between the transport and its provider,
//! an [allocator](memory) knows each buffer's owner, a [ledger] knows each call, and the simulated network itself ends
//! a connection on which memory is touched that is not lent, or a message finds no receive; which is then found in its
//! log.

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

/// Locks, also after a panic: the panic itself is what is reported.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
