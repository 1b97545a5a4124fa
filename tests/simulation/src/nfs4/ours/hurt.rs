//! The mishaps of a run with clients of ours.

use crate::nfs4::{LEASE, LONGEST_AWAY};
use rpcrdma_env::Random;
use std::time::Duration;

/// What happens to a client or to the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mishap {
    /// The client's connection ends.
    Cut,
    /// The client cannot be reached.
    Away(Duration),
    /// The server is killed, and comes back after a while.
    Restart(Duration),
    /// The client is killed, and begins again after a while.
    Killed(Duration),
}

impl Mishap {
    pub(super) fn draw(random: &dyn Random) -> Self {
        let away = LONGEST_AWAY.mul_f64((1 + random.below(100)) as f64 / 100.0);
        match random.below(9) {
            0..=2 => Self::Cut,
            3 => Self::Away(away),
            // Longer than a lease, and shorter than the transport's patience.
            4 => Self::Away(LEASE + Duration::from_secs(5 + random.below(40))),
            5 => Self::Killed(away),
            _ => Self::Restart(away),
        }
    }
}
