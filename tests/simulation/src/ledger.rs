//! Every call of a run: who makes it, how often it is executed where, and how it ends.
//!
//! A call is answered once or fails for a reason that its caller can understand. One that is not idempotent is executed at most
//! once by one server within the time for which its duplicate request cache promises to remember it.

use crate::{lock, record::Record};
use rpcrdma_env::Timestamp;
use rpcrdma_oncrpc::{CallError, DUPLICATE_LIFETIME, TransportError};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Who makes calls, and who executes them: a process on a host, which ends with a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// The server is 0, clients are counted from 1.
    pub host: u64,
    /// Starts of the host before this one.
    pub starts: u64,
}

#[derive(Debug)]
struct Entry {
    caller: Process,
    what: String,
    ended: bool,
    executions: Vec<(Process, Timestamp)>,
}

/// Knows every call.
pub struct Ledger {
    entries: Mutex<BTreeMap<u64, Entry>>,
    next: AtomicU64,
    /// Nothing goes wrong any more: no call may fail that is made now.
    calm: AtomicBool,
    record: Arc<Record>,
}

impl Ledger {
    /// No call has been made.
    pub fn new(record: Arc<Record>) -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), next: AtomicU64::new(1), calm: AtomicBool::new(false), record })
    }

    /// From now on every call has to be answered.
    pub fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// A call is made. Returns its number.
    pub fn begin(&self, caller: Process, what: String) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { caller, what, ended: false, executions: Vec::new() };
        lock(&self.entries).insert(number, entry);
        number
    }

    /// A process executes a call, by its own clock now. `once`: it is not idempotent.
    pub fn executed(&self, number: u64, by: Process, now: Timestamp, once: bool) {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&number) else {
            return self.record.found(format!("call {number} is executed and was never made"));
        };
        let before = entry.executions.iter().rfind(|(process, _)| *process == by).copied();
        entry.executions.push((by, now));
        if let Some((_, then)) = before
            && once
            && now.since(then) < DUPLICATE_LIFETIME
        {
            self.record.found(format!("call {number} ({}) was executed twice by {by:?}", entry.what));
        }
    }

    /// A call was answered, and its caller has checked the answer.
    pub fn answered(&self, number: u64) {
        let Some((what, executions)) = self.end(number) else { return };
        if executions == 0 {
            self.record.found(format!("call {number} ({what}) was answered and never executed"));
        }
    }

    /// A call failed.
    pub fn failed(&self, number: u64, error: &CallError) {
        let Some((what, _)) = self.end(number) else { return };
        self.record.note(format!("call {number} ({what}) failed: {error}"));
        if self.calm.load(Ordering::Relaxed) {
            self.record.found(format!("call {number} ({what}) failed with faults off: {error:?}"));
        } else if !is_clear(error) {
            self.record.found(format!("call {number} ({what}) failed with what is no fault of the network: {error:?}"));
        }
    }

    /// A call was taken back.
    pub fn cancelled(&self, number: u64) {
        self.end(number);
    }

    /// A process is gone, and nobody waits for its calls.
    pub fn gone(&self, caller: Process) {
        lock(&self.entries).values_mut().filter(|entry| entry.caller == caller).for_each(|entry| entry.ended = true);
    }

    /// Calls that have not ended, in words.
    pub fn open(&self) -> Vec<String> {
        let entries = lock(&self.entries);
        let open = entries.iter().filter(|(_, entry)| !entry.ended);
        open.map(|(number, entry)| format!("call {number} ({}) of {:?}", entry.what, entry.caller)).collect()
    }

    /// How many calls were made.
    pub fn len(&self) -> usize {
        lock(&self.entries).len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn end(&self, number: u64) -> Option<(String, usize)> {
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(&number)?;
        if std::mem::replace(&mut entry.ended, true) {
            self.record.found(format!("call {number} ({}) ended twice", entry.what));
            return None;
        }
        Some((entry.what.clone(), entry.executions.len()))
    }
}

/// Whether a failure is one that faults of networks and providers explain.
fn is_clear(error: &CallError) -> bool {
    use TransportError::{Closed, Lost, NotLent, Remote, Unreachable};
    matches!(error, CallError::Transport(Unreachable { .. } | Lost { .. } | NotLent { .. } | Remote { .. } | Closed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_sim::World;
    use std::time::Duration;

    const CLIENT: Process = Process { host: 1, starts: 0 };
    const SERVER: Process = Process { host: 0, starts: 0 };

    fn ledger() -> (Arc<Ledger>, Arc<Record>) {
        let record = Record::new(World::new(1).env().clock);
        (Ledger::new(record.clone()), record)
    }

    #[test]
    fn a_second_execution_is_found_while_the_cache_promises_to_remember() {
        let begin = Timestamp::from_nanos(7);
        for (by, after, once, found) in [
            (SERVER, DUPLICATE_LIFETIME - Duration::from_nanos(1), true, 1),
            (SERVER, DUPLICATE_LIFETIME, true, 0),
            (SERVER, Duration::ZERO, false, 0),
            (Process { starts: 1, ..SERVER }, Duration::ZERO, true, 0),
        ] {
            let (ledger, record) = ledger();
            let number = ledger.begin(CLIENT, "a call".to_owned());
            ledger.executed(number, SERVER, begin, once);
            ledger.executed(number, by, begin + after, once);
            assert_eq!(record.findings().len(), found, "{by:?} after {after:?}");
        }
    }

    #[test]
    fn calls_that_end_otherwise_than_once_are_found() {
        let (ledger, record) = ledger();
        let number = ledger.begin(CLIENT, "a call".to_owned());
        assert_eq!(ledger.open().len(), 1);
        ledger.failed(number, &CallError::Transport(TransportError::Closed));
        assert!(ledger.open().is_empty() && record.findings().is_empty());
        ledger.cancelled(number);
        assert_eq!(record.findings().len(), 1, "it ended before");
        ledger.answered(ledger.begin(CLIENT, "another".to_owned()));
        assert_eq!(record.findings().len(), 2, "it was never executed");
        let malformed = CallError::WrongXid { expected: 1, got: 2 };
        ledger.failed(ledger.begin(CLIENT, "a third".to_owned()), &malformed);
        assert_eq!(record.findings().len(), 3);
        ledger.begin(CLIENT, "a fourth".to_owned());
        ledger.gone(CLIENT);
        assert!(ledger.open().is_empty());
    }
}
