//! A host's clock: the world's clock plus the sum of its jumps, such as after a suspension.

use crate::lock;
use rpcrdma_env::{BoxFuture, Clock, Timestamp};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

#[derive(Default)]
struct State {
    ahead: Duration,
    /// The sleeping tasks, which have to look at the clock again after a jump.
    sleepers: Vec<Waker>,
}

#[derive(Clone)]
pub(crate) struct HostClock {
    world: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

impl HostClock {
    pub(crate) fn new(world: Arc<dyn Clock>) -> Self {
        Self { world, state: Arc::default() }
    }

    /// Never backwards: that is the contract of [`Clock`].
    pub(crate) fn jump(&self, by: Duration) {
        let sleepers = {
            let mut state = lock(&self.state);
            state.ahead += by;
            std::mem::take(&mut state.sleepers)
        };
        sleepers.into_iter().for_each(Waker::wake);
    }

    fn ahead(&self) -> Duration {
        lock(&self.state).ahead
    }
}

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        self.world.now() + self.ahead()
    }

    fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { clock: self.clone(), when, inner: None })
    }

    fn unix_time(&self) -> Duration {
        self.world.unix_time() + self.ahead()
    }
}

struct Sleep {
    clock: HostClock,
    when: Timestamp,
    /// How far ahead the clock was when this wait began, and the wait.
    inner: Option<(Duration, BoxFuture<'static, ()>)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let ahead = this.clock.ahead();
        let left = this.when.since(this.clock.now());
        if left.is_zero() {
            return Poll::Ready(());
        }
        if this.inner.as_ref().is_none_or(|(then, _)| *then != ahead) {
            this.inner = Some((ahead, this.clock.world.sleep_until(this.clock.world.now() + left)));
        }
        if let Some((_, inner)) = &mut this.inner
            && inner.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(());
        }
        let mut state = lock(&this.clock.state);
        if !state.sleepers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.sleepers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
