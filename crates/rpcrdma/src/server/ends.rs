//! The log line for the end of a connection: the client, the transport, how long it lasted, how much it carried, and
//! why it ended.
//!
//! The ends of NFS connections go to the log at `INFO` if they carried calls or ended with an error. All others go
//! there at `DEBUG`: connections of MOUNT and the portmapper, which last for one call, and connections of programs that
//! only check that the port is open. A client can make connections end as fast as it likes, so that only some lines a
//! minute are at `INFO`; one more line says how many ends were left out. Clients whose addresses are not allowed cause
//! no such line.

use super::{ports::Spoken, tally::Tally};
use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The span for which ends are counted.
const SPAN: Duration = Duration::from_secs(60);
/// The most ends that are logged at `INFO` in one span. With some 200 bytes a line, this is 17 MB a day at most.
const ENDS_PER_SPAN: u32 = 60;

/// What all serving threads share.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// When the span began.
    since: Option<Instant>,
    /// How many ends were logged in it.
    told: u32,
    /// How many ends were left out since the last logged one.
    untold: u64,
}

/// Why a connection ended.
pub(super) enum Why {
    /// The client ended it.
    Client,
    /// The server stops.
    Stopping,
    /// Something went wrong: this.
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
    /// Logs the end of a connection.
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

    /// Whether the end at this time is logged. If it is, returns how many ends before it were left out.
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
