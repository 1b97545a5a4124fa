//! Whether calls wait for a silent server: since when, and when they will fail.
//!
//! A transport's driver updates a [`Silence`] through a [`Listener`]. A program that shows it to a user may read it as
//! often as it likes, from any thread. It owns nothing of the connection, and does not change what the transport does.

use rpcrdma_env::Timestamp;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Calls wait, and nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The time of the last answer, or of the first of the calls if that is later. The answer to a health check does
    /// not count, because no call waited for it.
    pub since: Timestamp,
    /// When the server last answered a health check: it is alive, and slow with what the client asked.
    pub alive: Option<Timestamp>,
    /// When calls fail if nothing comes, as far as can be known now. The last attempt may take a little longer.
    pub until: Timestamp,
}

type Over = Box<dyn FnOnce(bool) + Send>;

#[derive(Default)]
struct State {
    waiting: Option<Waiting>,
    over: Option<Over>,
}

/// What is known of a server's silence.
#[derive(Default)]
pub struct Silence(Mutex<State>);

impl Silence {
    /// Whether calls wait, and since when. Short waits do not count: every call has one.
    pub fn waiting(&self) -> Option<Waiting> {
        self.state().waiting
    }

    /// Calls `over` once, from the driver, when the wait that began at `since` is over: with true if the server has
    /// answered, with false if the calls have failed. Returns false, and does nothing, if it is over already.
    pub fn when_over(&self, since: Timestamp, over: impl FnOnce(bool) + Send + 'static) -> bool {
        let mut state = self.state();
        let is_same = state.waiting.is_some_and(|waiting| waiting.since == since);
        if is_same {
            state.over = Some(Box::new(over));
        }
        is_same
    }

    /// Sets the present state; `heard` if the server has answered since the last time.
    pub fn set(&self, waiting: Option<Waiting>, heard: bool) {
        let over = {
            let mut state = self.state();
            let is_same = state.waiting.map(|waiting| waiting.since) == waiting.map(|waiting| waiting.since);
            state.waiting = waiting;
            if is_same { None } else { state.over.take() }
        };
        if let Some(over) = over {
            over(heard);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Silence").field(&self.waiting()).finish()
    }
}

/// A driver's end of a [`Silence`]. When it is dropped, nothing waits any more.
#[derive(Debug)]
pub struct Listener {
    silence: Arc<Silence>,
    since: Timestamp,
    alive: Option<Timestamp>,
    heard: bool,
}

impl Listener {
    /// Nothing waits, at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self { silence: Arc::default(), since: now, alive: None, heard: false }
    }

    /// The state that others read.
    pub fn silence(&self) -> Arc<Silence> {
        self.silence.clone()
    }

    /// A call waits, and none did until now.
    pub fn asked(&mut self, now: Timestamp) {
        (self.since, self.alive) = (now, None);
    }

    /// Something came from the server.
    pub fn heard(&mut self, now: Timestamp) {
        (self.since, self.alive) = (now, None);
        self.heard = true;
    }

    /// The answer to a health check came from the server, and nothing else.
    pub fn alive(&mut self, now: Timestamp) {
        self.alive = Some(now);
    }

    /// Notes how much came from the server since the last time, in any unit: `all`, of which `alive` answered health
    /// checks.
    pub fn came(&mut self, all: u64, alive: u64, now: Timestamp) {
        if all > alive {
            self.heard(now);
        } else if alive > 0 {
            self.alive(now);
        }
    }

    /// Since when nothing has come.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// The last sign of the server, whatever it was.
    pub fn last(&self) -> Timestamp {
        self.alive.unwrap_or(self.since)
    }

    /// Publishes what has changed. `until` is when the waiting calls fail; `None` if no call waits.
    pub fn tell(&mut self, until: Option<Timestamp>) {
        let (since, alive) = (self.since, self.alive);
        let heard = std::mem::take(&mut self.heard);
        self.silence.set(until.map(|until| Waiting { since, alive, until }), heard);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.tell(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::mpsc::{TryRecvError, channel},
        time::Duration,
    };

    const T: Timestamp = Timestamp::from_nanos(5);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_wait_is_over_once_and_says_how() {
        let mut listener = Listener::new(T);
        let silence = listener.silence();
        assert_eq!(silence.waiting(), None);
        for heard in [true, false] {
            listener.asked(T + SECOND);
            listener.tell(Some(T + 9 * SECOND));
            let waiting = Waiting { since: T + SECOND, alive: None, until: T + 9 * SECOND };
            assert_eq!(silence.waiting(), Some(waiting));
            let (sender, over) = channel();
            let told = sender.clone();
            assert!(!silence.when_over(T, move |heard| told.send(heard).unwrap()), "that wait is over");
            assert!(silence.when_over(T + SECOND, move |heard| sender.send(heard).unwrap()));
            listener.tell(Some(T + 8 * SECOND));
            assert_eq!(over.try_recv(), Err(TryRecvError::Empty), "it is sought for less long, and not over");
            listener.alive(T + 2 * SECOND);
            listener.tell(Some(T + 12 * SECOND));
            assert_eq!(over.try_recv(), Err(TryRecvError::Empty), "a server that is slow is still waited for");
            let alive = Some(T + 2 * SECOND);
            assert_eq!(silence.waiting(), Some(Waiting { alive, until: T + 12 * SECOND, ..waiting }));
            assert_eq!((listener.since(), listener.last()), (T + SECOND, T + 2 * SECOND));
            if heard {
                listener.heard(T + 3 * SECOND);
                assert_eq!(listener.last(), T + 3 * SECOND);
            }
            listener.tell(heard.then_some(T + 9 * SECOND));
            assert_eq!(over.try_recv(), Ok(heard));
            listener.tell(None);
            assert_eq!(over.try_recv(), Err(TryRecvError::Disconnected), "told once");
        }
        listener.tell(Some(T));
        drop(listener);
        assert_eq!(silence.waiting(), None);
    }
}
