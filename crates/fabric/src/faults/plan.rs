//! Where faults happen: by a script, or by a seed.

use crate::WorkError;
use rpcrdma_env::Random;
use std::{sync::Arc, time::Duration};

/// A kind of action of a connection, at which a fault can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Point {
    /// Asking for a connection.
    Connect,
    /// Accepting one.
    Accept,
    /// Posting a receive.
    PostReceive,
    /// Posting a Send.
    PostSend,
    /// Posting a Write.
    PostWrite,
    /// Posting a Read.
    PostRead,
    /// Lending memory.
    Expose,
    /// Ending an exposure.
    Invalidate,
    /// A message has arrived.
    Received,
    /// A Send or Write is done.
    Done,
    /// A Read is done.
    Read,
    /// An exposure has ended.
    Fenced,
}

/// What goes wrong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A post or exposure is refused, as if a limit had been reached; a connection is not made. At other points: as
    /// [`Fault::Cut`].
    Refuse,
    /// The work fails, and the connection with it. At points without work: as [`Fault::Refuse`].
    Fail,
    /// As [`Fault::Fail`], with this error.
    FailAs(&'static WorkError),
    /// The connection breaks at this step, and the step does not happen. The fabric below ends the connection in an
    /// orderly manner: the peer sees a disconnect.
    Cut,
    /// The owner gets a completion, and everything behind it, only after this time. An invalidation begins only then. A
    /// post is not delayed: its caller can do that.
    Delay(Duration),
    /// The owner does not get a completion; at the connection's end it comes back as flushed. An invalidation is not
    /// passed on. A post succeeds.
    Withhold,
    /// One bit is inverted: of a message or a Read that has arrived, or of private data that is sent. At other points:
    /// nothing.
    Corrupt,
}

/// A step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The connection's number on the fabric, counted from 1 in the order in which connections were made.
    pub connection: u64,
    /// The kind of action.
    pub point: Point,
    /// How often the connection has done this, including this step.
    pub nth: u64,
    /// How many steps the connection has taken in all, including this one. Zero during the set-up.
    pub of_all: u64,
}

/// Decides where faults happen.
pub trait Plan: Send + Sync {
    /// The fault at this step, if any. The wrapper asks once about each step.
    fn fault(&self, step: &Step) -> Option<Fault>;
}

/// Faults at steps that the caller knows beforehand.
#[derive(Clone, Debug, Default)]
pub struct Script {
    entries: Vec<(When, Fault)>,
    connection: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum When {
    Nth(Point, u64),
    OfAll(u64),
    Always(Point),
}

impl Script {
    /// A script without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault: the `nth` time, counted from 1, that a connection does this.
    #[must_use]
    pub fn at(mut self, point: Point, nth: u64, fault: Fault) -> Self {
        self.entries.push((When::Nth(point, nth), fault));
        self
    }

    /// Adds a fault: at the `n`th step of a connection, counted from 1, of whatever kind.
    #[must_use]
    pub fn at_step(mut self, n: u64, fault: Fault) -> Self {
        self.entries.push((When::OfAll(n), fault));
        self
    }

    /// Adds a fault: each time that a connection does this.
    #[must_use]
    pub fn always(mut self, point: Point, fault: Fault) -> Self {
        self.entries.push((When::Always(point), fault));
        self
    }

    /// Limits the faults to the fabric's `n`th connection, counted from 1.
    #[must_use]
    pub fn only_connection(mut self, n: u64) -> Self {
        self.connection = Some(n);
        self
    }
}

impl Plan for Script {
    fn fault(&self, step: &Step) -> Option<Fault> {
        if self.connection.is_some_and(|connection| connection != step.connection) {
            return None;
        }
        self.entries.iter().find_map(|(when, fault)| {
            let now = match *when {
                When::Nth(point, nth) => point == step.point && nth == step.nth,
                When::OfAll(n) => n == step.of_all,
                When::Always(point) => point == step.point,
            };
            now.then_some(*fault)
        })
    }
}

/// Faults that a random source draws, each with its own chance.
#[derive(Clone)]
pub struct Chance {
    random: Arc<dyn Random>,
    entries: Vec<(Point, Fault, u64)>,
}

impl Chance {
    /// A plan without faults. A seeded source makes the run repeatable.
    pub fn new(random: Arc<dyn Random>) -> Self {
        Self { random, entries: Vec::new() }
    }

    /// Adds a fault: one in `one_in` of these steps fails; 0 means none.
    #[must_use]
    pub fn with(mut self, point: Point, one_in: u64, fault: Fault) -> Self {
        self.entries.push((point, fault, one_in));
        self
    }
}

impl Plan for Chance {
    fn fault(&self, step: &Step) -> Option<Fault> {
        let mut fault = None;
        for (point, what, one_in) in &self.entries {
            // Every entry draws, even if an earlier entry has already hit, so that a hit does not shift later draws.
            let hit = *point == step.point && *one_in > 0 && self.random.below(*one_in) == 0;
            if hit && fault.is_none() {
                fault = Some(*what);
            }
        }
        fault
    }
}

impl std::fmt::Debug for Chance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chance").field("entries", &self.entries).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::SeededRandom;

    fn step(connection: u64, point: Point, nth: u64, of_all: u64) -> Step {
        Step { connection, point, nth, of_all }
    }

    #[test]
    fn a_script_knows_its_steps() {
        let script = Script::new()
            .at(Point::PostSend, 2, Fault::Cut)
            .at_step(7, Fault::Refuse)
            .always(Point::Expose, Fault::Fail)
            .only_connection(3);
        assert_eq!(script.fault(&step(3, Point::PostSend, 2, 2)), Some(Fault::Cut));
        assert_eq!(script.fault(&step(3, Point::PostRead, 2, 2)), None);
        assert_eq!(script.fault(&step(2, Point::PostSend, 2, 2)), None);
        assert_eq!(script.fault(&step(3, Point::PostRead, 1, 7)), Some(Fault::Refuse));
        assert_eq!(script.fault(&step(3, Point::Expose, 9, 9)), Some(Fault::Fail));
    }

    #[test]
    fn chance_draws_from_its_seed() {
        let draw = |seed| {
            let chance = Chance::new(Arc::new(SeededRandom::new(seed))).with(Point::Done, 4, Fault::Withhold).with(
                Point::Read,
                0,
                Fault::Cut,
            );
            let done: Vec<bool> = (1..=400).map(|n| chance.fault(&step(1, Point::Done, n, n)).is_some()).collect();
            assert_eq!(chance.fault(&step(1, Point::Read, 1, 1)), None);
            done
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let hits = draw(3).into_iter().filter(|hit| *hit).count();
        assert!((50..150).contains(&hits), "{hits} of 400");
    }
}
