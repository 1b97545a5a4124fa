//! RDMA connections whose set-up failed: each is counted by its reason, and one in a while goes to the log.
//!
//! A client can cause failed set-ups as fast as it likes, and could so fill a log. The health checks of a load
//! balancer, which only open and close the port, fail too.

use super::{seldom::Seldom, thread::describe};
use metrics::counter;
use rpcrdma_fabric::AcceptError;
use std::{io, net::SocketAddr, time::Instant};

/// What all serving threads share.
#[derive(Debug, Default)]
pub(super) struct FailedSetups(Seldom);

impl FailedSetups {
    /// A set-up failed.
    // OPS-SETUP-a
    pub(super) fn failed(&self, peer: SocketAddr, error: &AcceptError) {
        let reason = reason(error);
        counter!("rpcrdma_setups_failed_total", "reason" => reason).increment(1);
        let what = describe(error);
        match self.0.tell(Instant::now()) {
            Some(untold) => {
                tracing::warn!(%peer, reason, error = what, untold, "an RDMA connection could not be set up");
            }
            None => tracing::debug!(%peer, reason, error = what, "set-up failed"),
        }
    }
}

/// All values of [`reason`].
pub(super) const REASONS: [&str; 5] = ["violation", "timed_out", "no_memory", "broken", "local"];

/// Why a set-up failed, in a word.
fn reason(error: &AcceptError) -> &'static str {
    match error {
        AcceptError::Violation(_) => "violation",
        AcceptError::TimedOut { .. } => "timed_out",
        AcceptError::Io(error) if error.kind() == io::ErrorKind::OutOfMemory => "no_memory",
        AcceptError::Io(_) => "broken",
        _ => "local",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_word() {
        let io = |kind: io::ErrorKind| AcceptError::Io(kind.into());
        let words = [
            reason(&AcceptError::TimedOut { seconds: 10 }),
            reason(&io(io::ErrorKind::UnexpectedEof)),
            reason(&io(io::ErrorKind::OutOfMemory)),
        ];
        assert_eq!(words, ["timed_out", "broken", "no_memory"]);
    }
}
