//! Whether a driver looks for the next message again and again before its thread sleeps.
//!
//! On most machines it takes longer to wake another processor than to answer a call. So looking pays while the next
//! message comes soon, and a sleep would hardly begin before it ends.

use crate::{Clock, Timestamp};
use std::{fmt, str::FromStr, task::Context, time::Duration};

/// When a driver looks for the next message instead of letting its thread sleep until it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BusyPoll {
    /// Never.
    Off,
    /// While it pays, and for 100 microseconds at most: if messages have come soon after there was nothing left to do.
    /// A thread without messages sleeps, and so does one of tokio's runtime of several threads: there each look would
    /// wake another thread, which could take the task over.
    #[default]
    Auto,
    /// For so long after each message.
    For(Duration),
}

/// The longest [`BusyPoll::For`] that a text may name: beyond it, a sleep costs less than looking saves.
const LONGEST: Duration = Duration::from_millis(10);

/// A text that is no [`BusyPoll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBusyPoll;

impl fmt::Display for NoBusyPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected auto, or 0 to {} microseconds", LONGEST.as_micros())
    }
}

impl std::error::Error for NoBusyPoll {}

/// `auto`, or microseconds; 0 is [`BusyPoll::Off`].
///
/// ```
/// use rpcrdma_env::BusyPoll;
/// use std::time::Duration;
/// assert_eq!("auto".parse(), Ok(BusyPoll::Auto));
/// assert_eq!("0".parse(), Ok(BusyPoll::Off));
/// assert_eq!("100".parse(), Ok(BusyPoll::For(Duration::from_micros(100))));
/// ```
impl FromStr for BusyPoll {
    type Err = NoBusyPoll;

    fn from_str(text: &str) -> Result<Self, NoBusyPoll> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match Duration::from_micros(text.parse().map_err(|_| NoBusyPoll)?) {
            Duration::ZERO => Ok(Self::Off),
            time if time <= LONGEST => Ok(Self::For(time)),
            _ => Err(NoBusyPoll),
        }
    }
}

impl fmt::Display for BusyPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("0"),
            Self::Auto => f.write_str("auto"),
            Self::For(time) => write!(f, "{}", time.as_micros()),
        }
    }
}

/// How long [`BusyPoll::Auto`] looks after a message.
const WINDOW: Duration = Duration::from_micros(100);
/// It looks if the mean gap between having nothing left to do and the next message is shorter than this. That is more
/// than the window, as gaps become shorter when an end no longer sleeps.
const SHORT_GAP: Duration = Duration::from_micros(150);
/// A longer gap counts as so long, so that messages after a silence are soon known to be quick.
const LONGEST_GAP: Duration = Duration::from_millis(1);
/// The share of the latest gap in the mean is one of so many.
const MEAN_OF: u32 = 8;
/// After having looked in vain it sleeps in so many pauses, and in twice as many each further time in a row.
const REST: u32 = 16;
/// How often that doubles at most.
const MOST_DOUBLINGS: u32 = 9;
/// How often it looks after a message at most, whatever the clock says: one that is simulated does not move meanwhile.
const MOST_LOOKS: u32 = 4096;

/// If it takes longer until a driver that looks asks again, others have most likely used the time. Its own work between
/// two looks counts as well: then it gives way once without need.
const ALONE: Duration = Duration::from_micros(3);

/// Decides for one connection whether its driver looks again. Without messages, and with [`BusyPoll::Off`], it reads no
/// clock. A driver uses it like this:
///
/// ```
/// use rpcrdma_env::{Clock, Pause, Spin};
/// use std::task::{Context, Poll};
///
/// fn poll(
///     spin: &mut Spin,
///     clock: &dyn Clock,
///     cx: &mut Context<'_>,
///     mut read: impl FnMut() -> Option<u8>,
/// ) -> Poll<u8> {
///     // Here the driver has asked the runtime, which knows of nothing.
///     match spin.pause(clock) {
///         Pause::Look => {
///             if let Some(byte) = read() {
///                 spin.heard(clock);
///                 return Poll::Ready(byte);
///             }
///             Spin::again(cx);
///         }
///         Pause::GiveWay => Spin::again(cx),
///         Pause::Sleep => {}
///     }
///     Poll::Pending
/// }
/// ```
#[derive(Debug)]
pub struct Spin {
    policy: BusyPoll,
    state: State,
    /// When there was nothing left to do, if no message has come since.
    idle_since: Option<Timestamp>,
    mean_gap: Duration,
    /// Pauses that are left of a rest, and how often in a row it has looked in vain.
    rest: u32,
    in_vain: u32,
    /// Whether others on this thread or its processor have used the time when it gave way last.
    gives_way: bool,
    /// Whether the driver's runtime has one thread, once it is known: a driver stays in the runtime that has begun it.
    has_one_thread: Option<bool>,
}

/// What a driver does that has nothing left to do until something comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It lets its thread sleep.
    Sleep,
    /// It gives way, and does not look before it runs [again](Spin::again): others use this processor, maybe the peer
    /// for its answer.
    GiveWay,
    /// It looks, and if it finds nothing, it gives way and runs [again](Spin::again).
    Look,
}

#[derive(Debug)]
enum State {
    /// Nothing has come since the driver has stopped looking.
    Quiet,
    /// Something has come.
    Heard,
    /// The driver looks until the `end`, and so often at most. It was asked last at this time.
    Looking { end: Timestamp, left: u32, last: Timestamp },
}

impl Spin {
    /// Looks as `policy` says.
    pub fn new(policy: BusyPoll) -> Self {
        // Some short gaps have to show first that looking pays.
        let mean_gap = 2 * SHORT_GAP;
        Self {
            policy,
            state: State::Quiet,
            idle_since: None,
            mean_gap,
            rest: 0,
            in_vain: 0,
            gives_way: false,
            has_one_thread: None,
        }
    }

    /// Something has come.
    pub fn heard(&mut self, clock: &dyn Clock) {
        if let Some(since) = self.idle_since.take() {
            let gap = clock.now().since(since).min(LONGEST_GAP);
            self.mean_gap = (self.mean_gap * (MEAN_OF - 1) + gap) / MEAN_OF;
            if matches!(self.state, State::Looking { .. }) {
                self.in_vain = 0;
            }
        }
        self.state = State::Heard;
    }

    /// The driver has nothing left to do until something comes: what it does now.
    pub fn pause(&mut self, clock: &dyn Clock) -> Pause {
        match (&mut self.state, self.policy) {
            (State::Quiet, _) | (State::Heard, BusyPoll::Off) => self.quiet(),
            (State::Heard, BusyPoll::For(time)) => self.first(clock.now(), time, u32::MAX),
            (State::Heard, BusyPoll::Auto) => {
                if !*self.has_one_thread.get_or_insert_with(has_one_thread) {
                    return self.quiet();
                }
                let now = clock.now();
                self.idle_since = Some(now);
                if self.pays() { self.first(now, WINDOW, MOST_LOOKS) } else { self.quiet() }
            }
            (State::Looking { end, left, last }, _) => {
                let now = clock.now();
                self.gives_way = now.since(*last) > ALONE;
                if *left == 0 || now >= *end {
                    self.rest = REST << self.in_vain;
                    self.in_vain = (self.in_vain + 1).min(MOST_DOUBLINGS);
                    return self.quiet();
                }
                (*left, *last) = (*left - 1, now);
                Pause::Look
            }
        }
    }

    fn quiet(&mut self) -> Pause {
        self.state = State::Quiet;
        Pause::Sleep
    }

    /// The first of the looks after a message.
    fn first(&mut self, now: Timestamp, time: Duration, left: u32) -> Pause {
        self.state = State::Looking { end: now + time, left, last: now };
        if self.gives_way { Pause::GiveWay } else { Pause::Look }
    }

    /// Lets other work on this processor, and other tasks of this thread, go first; then the task looks again.
    pub fn again(cx: &mut Context<'_>) {
        std::thread::yield_now();
        cx.waker().wake_by_ref();
    }

    /// Whether it pays to look in a pause that begins.
    fn pays(&mut self) -> bool {
        let rests = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        !rests && self.mean_gap < SHORT_GAP
    }
}

/// Whether one thread executes all tasks of this task's runtime, as far as we can know.
fn has_one_thread() -> bool {
    #[cfg(feature = "tokio")]
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        return runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BoxFuture;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock that the test moves.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Hand {
        fn pass(&self, micros: u64) {
            self.0.fetch_add(micros * 1000, Ordering::Relaxed);
        }
    }

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
        }

        fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }

        fn unix_time(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// A driver that looks once in a microsecond.
    struct Driver {
        spin: Spin,
        clock: Hand,
        /// Microseconds in which it looked, and in which it slept.
        looked: u64,
        slept: u64,
    }

    impl Driver {
        fn new(policy: BusyPoll) -> Self {
            Self { spin: Spin::new(policy), clock: Hand::default(), looked: 0, slept: 0 }
        }

        /// The next message comes after `gap` microseconds. Whether the driver was looking.
        fn gets(&mut self, gap: u64) -> bool {
            let mut looks = true;
            for _ in 0..gap {
                looks = looks && self.spin.pause(&self.clock) != Pause::Sleep;
                *if looks { &mut self.looked } else { &mut self.slept } += 1;
                self.clock.pass(1);
            }
            self.spin.heard(&self.clock);
            looks
        }
    }

    #[test]
    fn a_fixed_time_begins_with_each_message() {
        let mut driver = Driver::new(BusyPoll::For(Duration::from_micros(100)));
        assert!(!driver.gets(1), "nothing has come yet");
        for _ in 0..3 {
            assert!(driver.gets(100) && !driver.gets(101));
        }
        let mut never = Driver::new(BusyPoll::Off);
        assert!((0..20).all(|_| !never.gets(1)));
    }

    #[test]
    fn it_gives_way_before_it_looks_while_others_use_its_processor() {
        let (mut spin, clock) = (Spin::new(BusyPoll::For(Duration::from_micros(100))), Hand::default());
        let mut pauses = |others_take: u64| {
            spin.heard(&clock);
            [(); 3].map(|()| {
                let pause = spin.pause(&clock);
                clock.pass(others_take);
                pause
            })
        };
        let (looks, gives_way) = ([Pause::Look; 3], [Pause::GiveWay, Pause::Look, Pause::Look]);
        assert_eq!([pauses(1), pauses(1)], [looks; 2]);
        assert_eq!([pauses(4), pauses(4), pauses(4)], [looks, gives_way, gives_way]);
        assert_eq!([pauses(1), pauses(1)], [gives_way, looks], "it is alone again");
    }

    #[test]
    fn it_looks_for_messages_that_come_soon() {
        let mut driver = Driver::new(BusyPoll::Auto);
        let looked: Vec<bool> = (0..20).map(|_| driver.gets(50)).collect();
        let first = looked.iter().position(|looked| *looked).unwrap();
        assert!((4..10).contains(&first) && looked[first..].iter().all(|looked| *looked), "{looked:?}");
        // After a long silence it goes on.
        assert!(!driver.gets(1_000_000));
        let before = driver.looked;
        assert!((0..100).any(|_| driver.gets(50)));
        assert!(before <= 20 * 50 + 100);
    }

    /// Whatever a peer does, time in which the driver looks in vain is a small part of all.
    #[test]
    fn a_peer_cannot_make_it_look_in_vain_for_long() {
        for gap in [101, 110, 149] {
            let mut driver = Driver::new(BusyPoll::Auto);
            assert!((0..100_000).all(|_| !driver.gets(gap)));
            assert!(driver.looked * 100 < driver.slept, "{gap}: {} {}", driver.looked, driver.slept);
        }
        let mut slow = Driver::new(BusyPoll::Auto);
        // Until the mean says what the gaps are.
        assert!((0..1000).all(|_| !slow.gets(200)));
        assert!(slow.looked <= 100, "{}", slow.looked);
        // One that is quick for as long as that takes, and then is not: it makes it look in vain once in a rest.
        let mut mixed = Driver::new(BusyPoll::Auto);
        let messages = 100_000;
        for message in 0..messages {
            mixed.gets(if message % 10 == 0 { 300 } else { 1 });
        }
        assert!(mixed.looked <= messages + messages / 16 * 100, "{} {}", mixed.looked, mixed.slept);
    }

    #[cfg(feature = "tokio")]
    #[test]
    fn it_does_not_look_where_that_would_wake_another_thread() {
        use tokio::runtime::Builder;
        let looks = |policy| {
            let mut driver = Driver::new(policy);
            (0..20).any(|_| driver.gets(10))
        };
        let several = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        several.block_on(async { assert!(!looks(BusyPoll::Auto) && looks(BusyPoll::For(WINDOW))) });
        let one = Builder::new_current_thread().build().unwrap();
        one.block_on(async { assert!(looks(BusyPoll::Auto) && !looks(BusyPoll::Off)) });
    }

    #[test]
    fn a_clock_that_stands_still_ends_it_as_well() {
        let mut spin = Spin::new(BusyPoll::Auto);
        let clock = Hand::default();
        for _ in 0..20 {
            spin.heard(&clock);
            assert!((0..=MOST_LOOKS + 1).any(|_| spin.pause(&clock) == Pause::Sleep));
            assert_eq!(spin.pause(&clock), Pause::Sleep);
        }
    }

    #[test]
    fn texts() {
        for text in ["auto", "0", "1", "10000"] {
            assert_eq!(text.parse::<BusyPoll>().unwrap().to_string(), text);
        }
        for text in ["10001", "-1", "a", "", "Auto"] {
            assert_eq!(text.parse::<BusyPoll>(), Err(NoBusyPoll), "{text}");
        }
    }
}
