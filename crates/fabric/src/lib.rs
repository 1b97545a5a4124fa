//! The contract of an RDMA provider.
//!
//! A provider is a [`Fabric`]: it [connects](Fabric::connect) and [listens](Fabric::listen) in the manner of a
//! connection manager, with private data in both directions, and hands out [`QueuePair`]s. A queue pair is reliable and
//! connected: Sends arrive in order, each in a receive that was posted for it; RDMA Reads and Writes move bytes to and
//! from memory that the peer has *exposed*. `rpcrdma-iwarp` is such a provider in software, `rpcrdma-sim` another for
//! tests, and `rpcrdma-verbs` drives adapters.
//!
//! # Who owns memory
//!
//! Two things need registration. *Local* use: all memory that a queue pair touches comes from the provider's
//! [pool](Fabric::pool), which is registered once; other buffers work too, but each costs a registration. *Exposure*:
//! lending memory to the peer. Memory for RDMA Read is shared and immutable. Memory for RDMA Write moves into the queue
//! pair and comes back in [`Completion::Fenced`], after which the peer can no longer reach it, so a caller cannot read
//! a result before it is fenced. Everything that was posted or lent comes back, at the latest before
//! [`Completion::Closed`].
//!
//! # How to drive a queue pair
//!
//! One task owns it. The task posts, and calls [`QueuePair::poll`] until that is pending; posted work starts with the
//! next `poll` at the latest, so work that is posted together leaves together. A queue pair starts no thread and no
//! runtime.
//!
//! # Features
//!
//! * `suite` (off by default): a suite of tests that each provider has to pass, to be run by the provider's own tests.

mod capabilities;
mod error;
mod exposure;
pub mod faults;
mod layer;
pub mod pool;
mod provider;
mod queue_pair;
mod receives;
#[cfg(feature = "suite")]
pub mod suite;
pub mod trace;
mod waiting;

pub use capabilities::{Capabilities, Fencing, HandleScope};
pub use error::{
    AcceptError, CloseReason, ConnectError, ListenError, PeerViolation, Refused, RefusedReason, WorkError,
};
pub use exposure::{Access, FenceCause, Lent};
pub use provider::{Connected, ConnectionParams, Fabric, Incoming, Listener, Pending, check_private_data};
pub use queue_pair::{
    Completion, ConnectionInfo, QueuePair, ReadWork, RemoteSegment, SendWork, Token, WorkKind, WriteWork,
};
pub use receives::{ReceivePool, Receives, SharedReceives};
pub use rpcrdma_env::{Allocator, BoxFuture, Buffer};
pub use waiting::within;
