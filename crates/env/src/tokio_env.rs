//! The real environment of a program that runs on tokio.

use crate::{BoxFuture, Clock, Env, OsRandom, ThreadClock, Timestamp};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;

/// tokio's clock: real time, or paused time in a test that pauses it. Its sleeps are timers of the runtime, which cost
/// time at each wait for a message: programs use [`ThreadClock`].
#[derive(Clone, Debug)]
pub struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    /// A clock whose origin is now.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()> {
        let delay = when.since(Timestamp::ZERO);
        match self.origin.checked_add(delay) {
            Some(instant) => Box::pin(tokio::time::sleep_until(instant)),
            None => Box::pin(std::future::pending()),
        }
    }

    fn unix_time(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// The clock with a thread for its timers, and the system's generator.
///
/// # Errors
/// If the system's generator cannot be opened, or if the thread cannot be started.
pub fn tokio_env() -> std::io::Result<Env> {
    Ok(Env { clock: Arc::new(ThreadClock::new()?), random: Arc::new(OsRandom::open()?) })
}
