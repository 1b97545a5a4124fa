//! How often each call was made, for GETSTAT: a number for each version and procedure, and one for each entry of the
//! table.
//!
//! Questions about unknown programs are not listed: a caller could make such a list as long as it likes.

use super::{Entry, Table, VERSIONS};
use rpcrdma_xdr::Encoder;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of procedures that are counted, from NULL on: in each version as many as version 4 has.
const PROCEDURES: usize = 13;

/// The counters. They wrap, as the protocol's do.
pub(super) struct Statistics {
    procedures: [[AtomicU32; PROCEDURES]; VERSIONS.len()],
    /// How often each entry of the table was the answer, by version of the question.
    found: Vec<[AtomicU32; VERSIONS.len()]>,
}

/// The place of a version in a list of all.
fn place(version: u32) -> Option<usize> {
    VERSIONS.iter().position(|known| *known == version)
}

impl Statistics {
    pub(super) fn new(table: &Table) -> Self {
        Self { procedures: Default::default(), found: table.entries().iter().map(|_| Default::default()).collect() }
    }

    /// A procedure was called.
    pub(super) fn called(&self, version: u32, procedure: u32) {
        let counters = place(version).and_then(|at| self.procedures.get(at));
        let counter = counters.and_then(|all| all.get(usize::try_from(procedure).ok()?));
        counter.map(|counter| counter.fetch_add(1, Ordering::Relaxed));
    }

    /// A program was asked for in this version, and found.
    pub(super) fn found(&self, table: &Table, version: u32, entry: Option<&Entry>) {
        let same = |known: &Entry| {
            entry.is_some_and(|entry| {
                (known.program, known.version, known.netid) == (entry.program, entry.version, entry.netid)
            })
        };
        let counters = table.entries().iter().position(same).and_then(|at| self.found.get(at));
        let counter = counters.and_then(|all| all.get(place(version)?));
        counter.map(|counter| counter.fetch_add(1, Ordering::Relaxed));
    }

    /// Appends the results of GETSTAT: for each version the calls by procedure, SETs and UNSETs that were done, what
    /// was found, and what was called for others.
    pub(super) fn encode(&self, table: &Table, encoder: &mut Encoder) {
        for (at, procedures) in self.procedures.iter().enumerate() {
            procedures.iter().for_each(|counter| encoder.u32(counter.load(Ordering::Relaxed)));
            // Nothing is ever registered.
            [0, 0].into_iter().for_each(|none| encoder.u32(none));
            for (entry, found) in table.entries().iter().zip(&self.found) {
                let found = found.get(at).map_or(0, |counter| counter.load(Ordering::Relaxed));
                if found > 0 {
                    encoder.bool(true);
                    [entry.program, entry.version, found, 0].into_iter().for_each(|word| encoder.u32(word));
                    encoder.opaque(entry.netid.as_str().as_bytes());
                }
            }
            // The end of that list, and an empty one: nothing is ever called for others.
            [false, false].into_iter().for_each(|end| encoder.bool(end));
        }
    }
}
