//! The record of a run: notes of events and findings, besides the network's own log.

use crate::lock;
use rpcrdma_env::{Clock, Timestamp};
use rpcrdma_sim::Logged;
use std::{
    fmt,
    sync::{Arc, Mutex},
};

/// The most findings that are kept: the first are the most useful, and a broken run can have one for each message.
const MAX_FINDINGS: usize = 64;

/// Something that the run itself did, or that one of the hosts said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// When it happened, in the world's time.
    pub at: Timestamp,
    /// What happened, in words.
    pub text: String,
}

/// Everything that happened. Two runs of a seed have equal logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventLog {
    /// What happened on the network.
    pub network: Vec<Logged>,
    /// What the run did, and what the hosts said.
    pub notes: Vec<Note>,
}

impl EventLog {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.network.len() + self.notes.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first entries in which two logs differ, in words. `None` if the logs are equal.
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self == other {
            return None;
        }
        let (ours, theirs) = (self.to_string(), other.to_string());
        let mut pairs = ours.lines().zip(theirs.lines());
        let differing = pairs.find(|(ours, theirs)| ours != theirs);
        Some(match differing {
            Some((ours, theirs)) => format!("{ours} | {theirs}"),
            None => format!("{} entries | {} entries", self.len(), other.len()),
        })
    }
}

impl fmt::Display for EventLog {
    /// A line for each entry, in the order of time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut notes = self.notes.iter().peekable();
        for logged in &self.network {
            while let Some(note) = notes.next_if(|note| note.at <= logged.at) {
                writeln!(f, "{:>16} * {}", note.at.as_nanos(), note.text)?;
            }
            writeln!(f, "{:>16}   {:?}", logged.at.as_nanos(), logged.event)?;
        }
        notes.try_for_each(|note| writeln!(f, "{:>16} * {}", note.at.as_nanos(), note.text))
    }
}

/// Takes notes and findings. All checkers share it.
pub struct Record {
    clock: Arc<dyn Clock>,
    notes: Mutex<Vec<Note>>,
    findings: Mutex<Vec<String>>,
}

impl Record {
    /// An empty record, with the world's time.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, notes: Mutex::default(), findings: Mutex::default() })
    }

    /// Notes that something happened.
    pub fn note(&self, text: String) {
        lock(&self.notes).push(Note { at: self.clock.now(), text });
    }

    /// Notes that something happened that must not happen.
    pub fn found(&self, text: String) {
        self.note(format!("FOUND: {text}"));
        let mut findings = lock(&self.findings);
        if findings.len() < MAX_FINDINGS {
            findings.push(format!("at {} ns: {text}", self.clock.now().as_nanos()));
        }
    }

    /// All findings.
    pub fn findings(&self) -> Vec<String> {
        lock(&self.findings).clone()
    }

    pub(crate) fn notes(&self) -> Vec<Note> {
        lock(&self.notes).clone()
    }
}
