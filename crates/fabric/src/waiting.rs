//! How providers wait: with a time limit.

use rpcrdma_env::Clock;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

/// The result of `future`, or `None` if it takes longer than `limit`.
pub async fn within<T>(clock: &dyn Clock, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut timer = clock.sleep_until(clock.now() + limit);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::{BoxFuture, Timestamp};
    use std::{
        future::{pending, ready},
        sync::atomic::{AtomicU64, Ordering},
        task::{Context, Waker},
    };

    /// A clock that the test moves. Its sleepers check the time whenever they are polled.
    #[derive(Default)]
    struct Hand(std::sync::Arc<AtomicU64>);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
        }

        fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()> {
            let now = self.0.clone();
            Box::pin(poll_fn(move |_| {
                if now.load(Ordering::Relaxed) >= when.as_nanos() { Poll::Ready(()) } else { Poll::Pending }
            }))
        }

        fn unix_time(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn a_limit_is_a_limit() {
        let clock = Hand::default();
        let cx = &mut Context::from_waker(Waker::noop());
        let limit = Duration::from_nanos(10);
        assert_eq!(pin!(within(&clock, limit, ready(7))).poll(cx), Poll::Ready(Some(7)));
        let mut endless = pin!(within(&clock, limit, pending::<()>()));
        clock.0.store(9, Ordering::Relaxed);
        assert!(endless.as_mut().poll(cx).is_pending());
        clock.0.store(19, Ordering::Relaxed);
        assert_eq!(endless.as_mut().poll(cx), Poll::Ready(None));
    }
}
