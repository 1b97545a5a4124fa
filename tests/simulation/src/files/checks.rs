//! The judge of a run of versions 2 and 3. It stands beside server and clients; the disk and the callers report to it
//! at the moments that matter.

use crate::{lock, record::Record, tally::Tally};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// A value that was written to a register.
#[derive(Clone, Copy, Debug)]
struct Write {
    value: u64,
    begin: u64,
    /// When it was acknowledged.
    end: Option<u64>,
}

#[derive(Default)]
struct Inner {
    /// Counts all reports: an earlier report has a lower number.
    moments: u64,
    /// The changes that the disk was asked for since the last start of the server, and how often.
    asked: BTreeMap<String, u64>,
    registers: BTreeMap<u64, Vec<Write>>,
    calls: usize,
}

/// The checks of a run.
pub(super) struct Checks {
    record: Arc<Record>,
    tally: Arc<Tally>,
    inner: Mutex<Inner>,
}

impl Checks {
    pub(super) fn new(record: Arc<Record>, tally: Arc<Tally>) -> Self {
        Self { record, tally, inner: Mutex::default() }
    }

    /// Something failed without a reason; reports the whole error.
    pub(super) fn failed(&self, who: &str, error: &dyn std::error::Error) {
        let mut text = format!("{who}: {error}");
        let mut source = error.source();
        while let Some(below) = source {
            text = format!("{text}: {below}");
            source = below.source();
        }
        self.found(text);
    }

    pub(super) fn note(&self, text: impl Into<String>) {
        self.record.note(text.into());
    }

    pub(super) fn found(&self, text: impl Into<String>) {
        self.record.found(text.into());
    }

    /// One or more calls have done something.
    pub(super) fn done(&self, what: &str) {
        lock(&self.inner).calls += 1;
        self.tally.count(what);
    }

    pub(super) fn calls(&self) -> usize {
        lock(&self.inner).calls
    }

    /// The disk is asked for a change. No caller asks for the same change twice, so the same change twice since a start
    /// of the server means that one call was executed twice. After a restart a server does not know what it has
    /// executed.
    pub(super) fn asked(&self, change: String) {
        self.note(&*change);
        let mut inner = lock(&self.inner);
        let times = inner.asked.entry(change.clone()).or_default();
        *times += 1;
        let twice = *times > 1;
        drop(inner);
        if twice {
            self.found(format!("executed twice: {change}"));
        }
    }

    /// The server is killed.
    pub(super) fn restarts(&self) {
        self.note("the server is killed");
        self.tally.count("files: a restart of the server");
        lock(&self.inner).asked.clear();
    }

    /// The server's death lost, or did not lose, uncommitted writes to a file.
    pub(super) fn lost(&self, is_lost: bool) {
        match is_lost {
            true => self.tally.count("files: what was not committed is lost"),
            false => self.found("the disk cannot be put back"),
        }
    }

    fn moment(inner: &mut Inner) -> u64 {
        inner.moments += 1;
        inner.moments
    }

    /// A caller is about to read a register. Returns the number of this moment.
    pub(super) fn begins_to_read(&self) -> u64 {
        Self::moment(&mut lock(&self.inner))
    }

    /// A caller is about to write a unique value to a register. Returns the index of the write.
    pub(super) fn begins_to_write(&self, register: u64, value: u64) -> usize {
        self.note(format!("register {register}: {value:#x} is written"));
        let mut inner = lock(&self.inner);
        let begin = Self::moment(&mut inner);
        let writes = inner.registers.entry(register).or_default();
        writes.push(Write { value, begin, end: None });
        writes.len() - 1
    }

    /// The write was acknowledged.
    pub(super) fn wrote(&self, register: u64, place: usize) {
        let mut inner = lock(&self.inner);
        let end = Self::moment(&mut inner);
        if let Some(write) = inner.registers.get_mut(&register).and_then(|writes| writes.get_mut(place)) {
            write.end = Some(end);
        }
        drop(inner);
        self.done("files: a register is written");
    }

    /// A caller has read a value: it must have been written, and no other write may lie entirely between its write and
    /// the beginning of the read. A register begins with zero.
    pub(super) fn read(&self, register: u64, value: u64, begin: u64) {
        let mut inner = lock(&self.inner);
        let writes = inner.registers.entry(register).or_default();
        let written = writes.iter().find(|write| write.value == value).copied();
        // An unacknowledged write has no end yet, so nothing can be later than it.
        let since = match (written, value) {
            (Some(write), _) => write.end.unwrap_or(u64::MAX),
            (None, 0) => 0,
            (None, _) => {
                drop(inner);
                return self.found(format!("register {register} has {value:#x}, which nobody wrote"));
            }
        };
        let later =
            writes.iter().find(|write| write.begin > since && write.end.is_some_and(|end| end < begin)).copied();
        drop(inner);
        if let Some(later) = later {
            self.found(format!("register {register} has {value:#x}, though {:#x} was acknowledged since", later.value));
        }
        self.done("files: a register is read");
    }
}
