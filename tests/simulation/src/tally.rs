//! Counts what has happened in a run, so that a test can check that the seeds try everything.

use crate::lock;
use std::{collections::BTreeMap, sync::Mutex};

/// How often each thing has happened, by its name.
pub type Counts = BTreeMap<String, u64>;

/// Counts events. All parts of a run share it.
#[derive(Debug, Default)]
pub struct Tally {
    counts: Mutex<Counts>,
}

impl Tally {
    /// Counts an event.
    pub fn count(&self, what: impl Into<String>) {
        *lock(&self.counts).entry(what.into()).or_default() += 1;
    }

    /// All counts.
    pub fn counts(&self) -> Counts {
        lock(&self.counts).clone()
    }
}

/// Adds the counts of one run to those of others.
pub fn add(all: &mut Counts, run: &Counts) {
    for (what, count) in run {
        *all.entry(what.clone()).or_default() += count;
    }
}
