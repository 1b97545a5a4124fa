//! A caller's message to the driver of a connection: the peer no longer answers.
//!
//! A caller on a connection may know more than its transport: for example, that a client leaves a call unanswered and
//! sends nothing else either, although the server should have heard from it long ago. The transport alone would wait as
//! long as the peer's system acknowledges what arrives. The first caller that gives up names the reason; the driver
//! ends the connection with it.

use futures_util::task::AtomicWaker;
use std::{
    sync::OnceLock,
    task::{Context, Poll},
};

/// What the callers on a connection share with its driver.
#[derive(Debug, Default)]
pub struct GivingUp {
    why: OnceLock<&'static str>,
    driver: AtomicWaker,
}

impl GivingUp {
    /// Asks the driver to end the connection, and gives the reason. The first reason counts.
    pub fn say(&self, why: &'static str) {
        if self.why.set(why).is_ok() {
            self.driver.wake();
        }
    }

    /// For the driver: ready when it must end the connection.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<&'static str> {
        if self.why.get().is_none() {
            self.driver.register(cx.waker());
        }
        self.why.get().map_or(Poll::Pending, |why| Poll::Ready(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_first_word_wakes_the_driver_and_stays() {
        let (giving_up, woken) = (GivingUp::default(), Arc::new(Woken::default()));
        let waker = woken.clone().into();
        let mut cx = Context::from_waker(&waker);
        assert_eq!(giving_up.poll(&mut cx), Poll::Pending);
        giving_up.say("first");
        giving_up.say("second");
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!([giving_up.poll(&mut cx), giving_up.poll(&mut cx)], [Poll::Ready("first"); 2]);
    }
}
