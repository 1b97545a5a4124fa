//! Virtual time: the clock that the simulated programs see.

use crate::{
    executor::lock,
    state::{Due, Shared, TimerKey},
};
use rpcrdma_env::{BoxFuture, Clock, Timestamp};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// The time of day at which every world begins: 2026-01-01 00:00 UTC, in seconds since 1970.
const WORLD_BEGINS_UNIX_SECONDS: u64 = 1_767_225_600;

/// A world's clock.
pub(crate) struct SimClock {
    pub(crate) shared: Arc<Shared>,
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(lock(&self.shared.state).now)
    }

    fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { shared: self.shared.clone(), when: when.as_nanos(), key: None })
    }

    fn unix_time(&self) -> Duration {
        Duration::from_secs(WORLD_BEGINS_UNIX_SECONDS) + Duration::from_nanos(self.now().as_nanos())
    }
}

/// Dropping the value removes its timer, so that an abandoned time-out does not advance the time.
struct Sleep {
    shared: Arc<Shared>,
    when: u64,
    key: Option<TimerKey>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = self.shared.clone();
        let mut state = lock(&shared.state);
        if let Some(key) = self.key.take() {
            state.cancel(key);
        }
        if state.now >= self.when {
            return Poll::Ready(());
        }
        self.key = Some(state.schedule(self.when, Due::Wake(cx.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let cancelled = lock(&self.shared.state).cancel(key);
            drop(cancelled);
        }
    }
}
