//! What judges a run of versions 2 and 3: kept beside server and clients, and told by the disk and by callers at the
//! moments that count.

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
    /// Counts all that is told here: what has the lower number was before.
    moments: u64,
    /// What the disk was asked to change since the server was started last, and how often.
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

    /// Something failed that there is no reason for: all that its error says.
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

    /// Something was done by one or more calls.
    pub(super) fn done(&self, what: &str) {
        lock(&self.inner).calls += 1;
        self.tally.count(what);
    }

    pub(super) fn calls(&self) -> usize {
        lock(&self.inner).calls
    }

    /// The disk is asked for a change. No caller ever asks twice for the same, so twice since a start of the server is
    /// one call that was executed twice. After a restart a server does not know what it has executed.
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

    /// With it, what was written to a file and not committed is gone.
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

    /// A caller is about to read a register. Returns the moment.
    pub(super) fn begins_to_read(&self) -> u64 {
        Self::moment(&mut lock(&self.inner))
    }

    /// A caller is about to write to a register a value that nobody else writes. Returns its place.
    pub(super) fn begins_to_write(&self, register: u64, value: u64) -> usize {
        self.note(format!("register {register}: {value:#x} is written"));
        let mut inner = lock(&self.inner);
        let begin = Self::moment(&mut inner);
        let writes = inner.registers.entry(register).or_default();
        writes.push(Write { value, begin, end: None });
        writes.len() - 1
    }

    /// It was acknowledged.
    pub(super) fn wrote(&self, register: u64, place: usize) {
        let mut inner = lock(&self.inner);
        let end = Self::moment(&mut inner);
        if let Some(write) = inner.registers.get_mut(&register).and_then(|writes| writes.get_mut(place)) {
            write.end = Some(end);
        }
        drop(inner);
        self.done("files: a register is written");
    }

    /// A value was read: it must have been written, and no other may have been written entirely between it and the
    /// beginning of the read. A register begins with zero.
    pub(super) fn read(&self, register: u64, value: u64, begin: u64) {
        let mut inner = lock(&self.inner);
        let writes = inner.registers.entry(register).or_default();
        let written = writes.iter().find(|write| write.value == value).copied();
        // Before the end of a write that nobody has acknowledged nothing can be said.
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
