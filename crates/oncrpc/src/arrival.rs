//! Which calls came together.

use std::sync::atomic::{AtomicU64, Ordering};

/// Marks calls that came together: all of them had arrived before the first was passed to its handler.
///
/// So a fact that the handler finds out for one of them, it has found out while the others were under way. For a call
/// that only asks for this fact, that is as good as finding it out again: the client cannot know in which order calls
/// that it has made at the same time are executed.
///
/// ```
/// use rpcrdma_oncrpc::Arrival;
/// let together = Arrival::new();
/// assert!(together == together.clone() && together != Arrival::new());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival(u64);

impl Arrival {
    /// The mark of the calls that have come until now and were not passed on. It differs from all other marks in this
    /// process.
    #[expect(clippy::new_without_default, reason = "two of them differ")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The mark for the calls that a connection passes on next. Any number of calls may come before one is passed on, and
/// several may be passed on before the next comes.
#[derive(Debug, Default)]
pub struct Arrivals(Option<Arrival>);

impl Arrivals {
    /// A call has come.
    pub fn came(&mut self) {
        self.0 = None;
    }

    /// The mark of a call that is passed on now.
    pub fn passed_on(&mut self) -> Arrival {
        *self.0.get_or_insert_with(Arrival::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_came_together_have_one_mark() {
        let mut arrivals = Arrivals::default();
        arrivals.came();
        arrivals.came();
        let first = arrivals.passed_on();
        assert_eq!(arrivals.passed_on(), first);
        arrivals.came();
        let second = arrivals.passed_on();
        assert_ne!(second, first, "the first was passed on before the third came");
        assert_eq!(arrivals.passed_on(), second, "a call that waited longer had come as well");
        assert_ne!(Arrivals::default().passed_on(), second);
    }
}
