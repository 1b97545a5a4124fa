//! How providers wait: with a time limit, or by polling instead of sleeping.

use rpcrdma_env::{Clock, Timestamp};
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

/// Polls a peer's socket or queue for a while instead of sleeping until it has something: on most machines it takes
/// longer to wake another processor than to answer a call.
#[derive(Debug, Default)]
pub struct Spin(State);

#[derive(Debug, Default)]
enum State {
    #[default]
    Off,
    /// A message of the peer has arrived.
    Heard,
    Until(Timestamp),
}

impl Spin {
    /// A message of the peer has arrived: the time starts again.
    pub fn heard(&mut self) {
        self.0 = State::Heard;
    }

    /// Whether to poll once more: until `busy_poll` after the peer's last message. If it is zero, the answer is always
    /// no, and no clock is read.
    pub fn goes_on(&mut self, busy_poll: Duration, clock: &dyn Clock) -> bool {
        match self.0 {
            State::Off => return false,
            _ if busy_poll.is_zero() => self.0 = State::Off,
            State::Heard => self.0 = State::Until(clock.now() + busy_poll),
            State::Until(end) if clock.now() >= end => self.0 = State::Off,
            State::Until(_) => {}
        }
        !matches!(self.0, State::Off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::BoxFuture;
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

    #[test]
    fn spinning_begins_when_the_peer_is_heard_and_ends_in_time() {
        let clock = Hand::default();
        let busy = Duration::from_nanos(100);
        let mut spin = Spin::default();
        assert!(!spin.goes_on(busy, &clock));
        spin.heard();
        assert!(!spin.goes_on(Duration::ZERO, &clock));
        spin.heard();
        assert!(spin.goes_on(busy, &clock));
        clock.0.store(99, Ordering::Relaxed);
        assert!(spin.goes_on(busy, &clock));
        clock.0.store(100, Ordering::Relaxed);
        assert!(!spin.goes_on(busy, &clock) && !spin.goes_on(busy, &clock));
    }
}
