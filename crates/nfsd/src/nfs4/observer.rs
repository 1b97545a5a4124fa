//! Who is told of what is executed: the program's numbers.

use rpcrdma_nfs::v4::{Op, Status};
use std::time::Duration;

/// Is told of each operation of a COMPOUND when its results are known. It is called on the connection's thread: it neither
/// sleeps nor takes long. Replies that a slot remembers come from no operation, and are not told.
pub trait Observer: Send + Sync {
    /// An operation was answered with `status` after `took`; `None` for a number that no operation has.
    fn operation(&self, op: Option<Op>, status: Status, took: Duration);
}

/// Nobody is told.
pub(crate) struct Unobserved;

impl Observer for Unobserved {
    fn operation(&self, _: Option<Op>, _: Status, _: Duration) {}
}
