//! Reports of what the server executes, for the program's metrics.

use rpcrdma_nfs::v4::{Op, Status, callback};
use std::time::Duration;

/// An event of a call of the server to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallbackEvent {
    /// The server has sent it: more than once if a connection has ended meanwhile, or if the client has put it off.
    Sent,
    /// The client has executed it.
    Answered,
    /// The client has answered that it did not execute the call, or the call exceeds the limits of its back channel.
    Refused,
    /// The client has not answered in time, or its session has ended.
    Lost,
    /// There was no connection to the client, or no slot in time.
    NotSent,
}

/// An event of a client that holds delegations and was silent for most of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HealthEvent {
    /// The server has called it, to find out whether it is alive.
    Asked,
    /// It has answered.
    Answered,
    /// It has not answered, and the server has ended the connections over which it calls the client.
    GivenUp,
}

/// Gets a report of each operation of a COMPOUND when its results are known. The server calls it on the connection's
/// thread: it must neither sleep nor take long. Replies from a slot's memory come from no operation, and are not
/// reported.
pub trait Observer: Send + Sync {
    /// The server has executed an operation with `status`, in the time `took`. `op` is `None` for a number that no
    /// operation has. Operations that take next to no time, such as PUTFH, are not timed, and the next one begins with
    /// them.
    fn operation(&self, op: Option<Op>, status: Status, took: Option<Duration>);

    /// An event of a call of the server to a client; `None` for CB_NULL. The default does nothing.
    fn callback(&self, op: Option<callback::Op>, event: CallbackEvent) {
        let _ = (op, event);
    }

    /// An event of a client that was silent. The default does nothing.
    fn health(&self, event: HealthEvent) {
        let _ = event;
    }
}
