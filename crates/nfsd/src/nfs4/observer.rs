//! Who gets a report of what is executed: the program's numbers.

use rpcrdma_nfs::v4::{Op, Status, callback};
use std::time::Duration;

/// What has happened to a call of the server to a client, by operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallbackEvent {
    /// It was sent: more than once if a connection has ended meanwhile, or the client has put it off.
    Sent,
    /// The client has executed it.
    Answered,
    /// The client has answered that it has not, or its back channel does not take such a call.
    Refused,
    /// The client did not answer in time, or its session has ended.
    Lost,
    /// There was no connection over which the client could be called, or no slot in time.
    NotSent,
}

/// What has happened to a client that holds delegations and was silent for most of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HealthEvent {
    /// It was called, to find out whether it is alive.
    Asked,
    /// It has answered.
    Answered,
    /// It has not, and the connections by which it is called were ended.
    GivenUp,
}

/// Is told of each operation of a COMPOUND when its results are known. It is called on the connection's thread: it
/// neither sleeps nor takes long. Replies that a slot remembers come from no operation, and are not told.
pub trait Observer: Send + Sync {
    /// An operation was answered with `status` after `took`; `None` for a number that no operation has.
    fn operation(&self, op: Option<Op>, status: Status, took: Duration);

    /// Something has happened to a call of the server to a client; `None` for CB_NULL. Nothing is done by default.
    fn callback(&self, op: Option<callback::Op>, event: CallbackEvent) {
        let _ = (op, event);
    }

    /// Something has happened to a client that was silent. Nothing is done by default.
    fn health(&self, event: HealthEvent) {
        let _ = event;
    }
}

/// An observer that ignores everything.
pub(crate) struct Unobserved;

impl Observer for Unobserved {
    fn operation(&self, _: Option<Op>, _: Status, _: Duration) {}
}
