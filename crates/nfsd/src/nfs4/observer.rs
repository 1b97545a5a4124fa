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

/// Whether an operation is timed. The others only find the session or the file, and take less time than a look at the
/// clock: their time is part of the next operation's.
pub fn is_timed(op: Op) -> bool {
    !matches!(op, Op::Sequence | Op::PutFh | Op::PutRootFh | Op::SaveFh | Op::RestoreFh | Op::GetFh)
}

/// Gets a report of each operation of a COMPOUND when its results are known. The server calls it on the connection's
/// thread: it must neither sleep nor take long. Replies from a slot's memory come from no operation, and are not
/// reported.
pub trait Observer: Send + Sync {
    /// The server has executed an operation with `status`. `op` is `None` for a number that no operation has. `took` is
    /// the time that it took, and `None` for an operation that [is not timed](is_timed) or could not be decoded.
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
