//! The real environment of a program that runs on tokio.

use crate::{BoxFuture, Clock, Env, OsRandom, Timestamp};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;

/// tokio's clock: real time, or paused time in a test that pauses it.
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

/// tokio's clock and the system's generator.
///
/// # Errors
/// If the system's generator cannot be opened.
pub fn tokio_env() -> std::io::Result<Env> {
    Ok(Env { clock: Arc::new(TokioClock::new()), random: Arc::new(OsRandom::open()?) })
}
