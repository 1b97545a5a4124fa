//! The line in the log with which a connection ends: who, over what, how long, how much, and why it ended.
//!
//! Connections of NFS are told at `INFO`: those that carried calls, and those that did not end in order. The rest is
//! told at `DEBUG`: those of MOUNT and the portmapper, which last for one call, and those of programs that only look
//! whether the port is open. Who may connect can make connections end as fast as he likes, so only so many a minute are
//! told at `INFO`, and then how many were not. Clients that are not allowed have no such line at all.

use super::{ports::Spoken, tally::Tally};
use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The span for which ends are counted.
const SPAN: Duration = Duration::from_secs(60);
/// The ends that are told at `INFO` within it: some 200 bytes each, and so 17 MB a day at most.
const ENDS_PER_SPAN: u32 = 60;

/// What all serving threads share.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// When the span began.
    since: Option<Instant>,
    /// How many were told in it.
    told: u32,
    /// How many were not since the last that was.
    untold: u64,
}

/// Why a connection ended.
pub(super) enum Why {
    /// The client ended it.
    Client,
    /// The server stops.
    Stopping,
    /// Something went wrong: what.
    Failed(String),
}

/// A connection that has ended.
pub(super) struct Ended<'a> {
    pub(super) client: SocketAddr,
    pub(super) spoken: Spoken,
    pub(super) lasted: Duration,
    pub(super) tally: &'a Tally,
    pub(super) why: Why,
}

impl Ends {
    /// Tells of a connection's end.
    pub(super) fn tell(&self, ended: &Ended<'_>) {
        let Ended { client, spoken, lasted, tally, why } = ended;
        let [calls, bytes_in, bytes_out] = tally.read();
        let (over, seconds) = (spoken.name(), lasted.as_millis() as f64 / 1e3);
        let text = match why {
            Why::Client => "the client ended it",
            Why::Stopping => "the server stops",
            Why::Failed(text) => text,
        };
        let lasts_for_a_call = matches!(spoken, Spoken::Mount | Spoken::Portmapper | Spoken::Statd);
        let matters = matches!(why, Why::Failed(_)) || calls > 0 && !lasts_for_a_call;
        match matters.then(|| self.count(Instant::now())).flatten() {
            Some(untold) => {
                let untold = (untold > 0).then_some(untold);
                tracing::info!(%client, over, seconds, calls, bytes_in, bytes_out, why = text, untold, "connection ended");
            }
            None => tracing::debug!(%client, over, seconds, calls, bytes_in, bytes_out, why = text, "connection ended"),
        }
    }

    /// Whether an end at this time is told, and how many before it were not.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.since.is_none_or(|since| now.saturating_duration_since(since) >= SPAN) {
            (told.since, told.told) = (Some(now), 0);
        }
        if told.told == ENDS_PER_SPAN {
            told.untold += 1;
            return None;
        }
        told.told += 1;
        Some(std::mem::take(&mut told.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_ends_a_minute_are_told_and_the_others_are_numbered() {
        let ends = Ends::default();
        let now = Instant::now();
        for _ in 0..ENDS_PER_SPAN {
            assert_eq!(ends.count(now), Some(0));
        }
        let just_before = now + (SPAN - Duration::from_nanos(1));
        assert_eq!([ends.count(now), ends.count(just_before)], [None; 2], "one past the limit");
        assert_eq!([ends.count(now + SPAN), ends.count(now + SPAN)], [Some(2), Some(0)]);
    }
}
