//! A clock with a thread that waits for its timers.
//!
//! A runtime with a timer of its own tells the kernel how long to wait for the next message, so that the kernel starts
//! a timer before each wait and stops it afterwards. With all timers on another thread, the threads that serve
//! connections wait without a limit.
//!
//! The thread is started with the first clock, and serves all clocks of the process until that ends. It holds a waker
//! for each sleep that was polled and is not over; a sleep that is dropped takes its waker back.

use crate::{BoxFuture, Clock, Timestamp};
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};
use std::{
    collections::BTreeMap,
    future::Future,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The system's clock. Its timers work in every runtime, and need none of the runtime's own.
#[derive(Clone, Debug)]
pub struct ThreadClock {
    origin: Instant,
    ticks: Ticks,
}

/// The system's clock as of its last tick. To read it, the processor's counter need not be read.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    /// What the system's clock said at the origin, or before it, in nanoseconds.
    origin: u64,
    /// How old the time of the last tick can be, in nanoseconds.
    most_age: u64,
}

impl Ticks {
    fn new() -> Self {
        Self {
            origin: nanos(clock_gettime(ClockId::Monotonic)),
            // With ticks of 4 ms, Linux 6.18 told a time that was 3 to 7 ms old.
            most_age: 2 * nanos(clock_getres(ClockId::MonotonicCoarse)),
        }
    }

    /// A time that is not before the present one, unless a tick is late.
    fn later(&self) -> Timestamp {
        let last = nanos(clock_gettime(ClockId::MonotonicCoarse));
        Timestamp::from_nanos(last.saturating_add(self.most_age).saturating_sub(self.origin))
    }
}

/// Nanoseconds: they last for 584 years after the start of the system.
fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

impl ThreadClock {
    /// A clock whose origin is now.
    ///
    /// # Errors
    /// If the thread for timers does not exist yet and cannot be started.
    pub fn new() -> io::Result<Self> {
        TIMERS.start()?;
        let ticks = Ticks::new();
        Ok(Self { origin: Instant::now(), ticks })
    }
}

impl Clock for ThreadClock {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    fn tick(&self) -> Timestamp {
        self.ticks.later()
    }

    fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()> {
        match self.origin.checked_add(when.since(Timestamp::ZERO)) {
            Some(when) => Box::pin(Sleep { when, known: None }),
            None => Box::pin(std::future::pending()),
        }
    }

    fn unix_time(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

static TIMERS: Timers = Timers {
    waiting: Mutex::new(Waiting { sleeps: BTreeMap::new(), last: 0, is_started: false }),
    changed: Condvar::new(),
};

/// What the clocks share with the thread.
struct Timers {
    waiting: Mutex<Waiting>,
    /// The first timer has become another one.
    changed: Condvar,
}

struct Waiting {
    /// By the time and the number of the sleep.
    sleeps: BTreeMap<(Instant, u64), Sleeping>,
    /// The number of the last sleep.
    last: u64,
    is_started: bool,
}

/// A sleep that is not over.
struct Sleeping {
    waker: Waker,
    is_over: Arc<AtomicBool>,
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&'static self) -> io::Result<()> {
        let mut waiting = self.lock();
        if !waiting.is_started {
            let started = thread::Builder::new().name("rpcrdma-timers".into()).spawn(|| self.run());
            started.map_err(|error| io::Error::new(error.kind(), format!("starting a thread for timers: {error}")))?;
            waiting.is_started = true;
        }
        Ok(())
    }

    /// Adds a sleep until this time.
    fn add(&self, when: Instant, waker: Waker) -> Known {
        let is_over = Arc::new(AtomicBool::new(false));
        let sleep = Sleeping { waker: waker.clone(), is_over: is_over.clone() };
        let mut waiting = self.lock();
        waiting.last += 1;
        let number = waiting.last;
        let is_first = waiting.sleeps.first_key_value().is_none_or(|(first, _)| (when, number) < *first);
        waiting.sleeps.insert((when, number), sleep);
        drop(waiting);
        if is_first {
            self.changed.notify_one();
        }
        Known { number, is_over, waker }
    }

    fn run(&self) -> ! {
        let mut waiting = self.lock();
        loop {
            let now = Instant::now();
            match waiting.sleeps.keys().next().map(|(when, _)| when.saturating_duration_since(now)) {
                None => waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(left) if !left.is_zero() => {
                    let waited = self.changed.wait_timeout(waiting, left);
                    waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(_) => {
                    let later = waiting.sleeps.split_off(&(now, u64::MAX));
                    let due = std::mem::replace(&mut waiting.sleeps, later);
                    drop(waiting);
                    for Sleeping { waker, is_over } in due.into_values() {
                        is_over.store(true, Ordering::Release);
                        // A waker that panics must not keep the other tasks asleep. Its panic has been shown.
                        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
                    }
                    waiting = self.lock();
                }
            }
        }
    }
}

/// Waits until a time has come.
struct Sleep {
    when: Instant,
    /// What the thread knows of it, since it was polled first.
    known: Option<Known>,
}

struct Known {
    number: u64,
    is_over: Arc<AtomicBool>,
    waker: Waker,
}

impl Future for Sleep {
    type Output = ();

    /// A connection asks its time-outs again after each message, so this looks at no clock and takes no lock then.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (when, waker) = (self.when, cx.waker());
        let Some(known) = &mut self.known else {
            if Instant::now() >= when {
                return Poll::Ready(());
            }
            self.known = Some(TIMERS.add(when, waker.clone()));
            return Poll::Pending;
        };
        if known.is_over.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if !known.waker.will_wake(waker) {
            known.waker = waker.clone();
            let mut waiting = TIMERS.lock();
            let sleep = waiting.sleeps.get_mut(&(when, known.number));
            let old = sleep.map(|sleep| std::mem::replace(&mut sleep.waker, waker.clone()));
            // The old waker may be the last that holds a task, so it is dropped without the lock.
            drop(waiting);
            if old.is_none() {
                // The sleep ended a moment ago, and the thread wakes the old waker.
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(known) = &self.known {
            // Dropped after the lock is released.
            let _sleep = TIMERS.lock().sleeps.remove(&(self.when, known.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{atomic::AtomicUsize, mpsc},
        task::Wake,
    };

    /// Tells a channel that it was woken.
    struct Told(Mutex<mpsc::Sender<u64>>, u64);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            // The test may have ended.
            let _ = self.0.lock().unwrap().send(self.1);
        }
    }

    const MS: Duration = Duration::from_millis(1);
    /// How long a test waits for something that takes milliseconds.
    const PATIENCE: Duration = Duration::from_secs(5);

    fn polled(sleep: &mut BoxFuture<'static, ()>, waker: &Waker) -> Poll<()> {
        sleep.as_mut().poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn a_tick_is_near_the_present_time_and_mostly_not_before_it() {
        let clock = ThreadClock::new().unwrap();
        let is_later = |_| {
            let (before, tick, after) = (clock.now(), clock.tick(), clock.now());
            assert!(tick.since(after) <= 20 * MS, "{tick:?} is more than two ticks after {after:?}");
            assert!(before.since(tick) < PATIENCE, "{tick:?} is long before {before:?}");
            tick >= before
        };
        // Ticks of a busy machine may come late.
        assert!((0..1000).filter(|at| is_later(*at)).count() > 500);
    }

    #[test]
    fn sleeps_end_in_the_order_of_their_times_and_not_before() {
        let clock = ThreadClock::new().unwrap();
        let (tell, told) = mpsc::channel();
        let begin = clock.now();
        // The later ones first, so that the thread has to wait for another one each time.
        let mut sleeps: Vec<_> = [40, 20, 30, 10].map(|ms| (ms, clock.sleep_until(begin + ms as u32 * MS))).into();
        for (ms, sleep) in &mut sleeps {
            let waker = Waker::from(Arc::new(Told(Mutex::new(tell.clone()), *ms)));
            assert!(polled(sleep, &waker).is_pending());
            // Polled again, it holds one waker and not two.
            assert!(polled(sleep, &waker).is_pending());
        }
        for ms in [10, 20, 30, 40] {
            assert_eq!(told.recv_timeout(PATIENCE), Ok(ms));
            assert!(clock.now().since(begin) >= ms as u32 * MS, "{ms}");
            let (_, sleep) = sleeps.iter_mut().find(|(of, _)| *of == ms).unwrap();
            assert!(polled(sleep, Waker::noop()).is_ready());
        }
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn a_sleep_that_is_dropped_or_over_holds_nothing() {
        let clock = ThreadClock::new().unwrap();
        let alive = Arc::new(Told(Mutex::new(mpsc::channel().0), 0));
        let waker = Waker::from(alive.clone());
        let mut long = clock.sleep_until(clock.now() + 1000 * PATIENCE);
        assert!(polled(&mut long, &waker).is_pending());
        drop(waker);
        assert_eq!(Arc::strong_count(&alive), 3, "the sleep's and the thread's");
        drop(long);
        assert_eq!(Arc::strong_count(&alive), 1);
        let mut past = clock.sleep_until(clock.now());
        assert!(polled(&mut past, &Waker::from(alive.clone())).is_ready());
        assert_eq!(Arc::strong_count(&alive), 1);
        let mut never = clock.sleep_until(Timestamp::from_nanos(u64::MAX));
        assert!(polled(&mut never, Waker::noop()).is_pending());
    }

    #[test]
    fn the_last_waker_counts() {
        let clock = ThreadClock::new().unwrap();
        let (tell, told) = mpsc::channel();
        let waker = |number| Waker::from(Arc::new(Told(Mutex::new(tell.clone()), number)));
        let mut sleep = clock.sleep_until(clock.now() + 20 * MS);
        assert!(polled(&mut sleep, &waker(1)).is_pending() && polled(&mut sleep, &waker(2)).is_pending());
        assert_eq!(told.recv_timeout(PATIENCE), Ok(2));
        assert!(told.try_recv().is_err());
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker of a test");
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_no_other_asleep() {
        let clock = ThreadClock::new().unwrap();
        let (tell, told) = mpsc::channel();
        let when = clock.now() + 5 * MS;
        let (mut first, mut second) = (clock.sleep_until(when), clock.sleep_until(when));
        assert!(polled(&mut first, &Waker::from(Arc::new(Panics))).is_pending());
        assert!(polled(&mut second, &Waker::from(Arc::new(Told(Mutex::new(tell), 7)))).is_pending());
        assert_eq!(told.recv_timeout(PATIENCE), Ok(7));
    }

    #[test]
    fn threads_may_sleep_and_drop_at_the_same_time() {
        let clock = ThreadClock::new().unwrap();
        let ended = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..8u32 {
                let (clock, ended) = (&clock, &ended);
                scope.spawn(move || {
                    let (tell, told) = mpsc::channel();
                    for round in 0..50 {
                        let mut dropped = clock.sleep_until(clock.now() + MS);
                        let mut sleep = clock.sleep_until(clock.now() + (thread + round) % 5 * MS / 2);
                        let waker = Waker::from(Arc::new(Told(Mutex::new(tell.clone()), 0)));
                        let _ = polled(&mut dropped, Waker::noop());
                        if polled(&mut sleep, &waker).is_pending() {
                            told.recv_timeout(PATIENCE).unwrap();
                        }
                        assert!(polled(&mut sleep, &waker).is_ready());
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(ended.into_inner(), 400);
    }
}
