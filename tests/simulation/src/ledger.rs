//! Every call of a run: which process makes it, how often each server executes it, and how it ends.
//!
//! A call is answered once or fails for a reason that its caller can understand. A server executes a call that is not
//! idempotent at most once within the time for which its duplicate request cache promises to remember the call.

use crate::{lock, record::Record, trust::Trust};
use rpcrdma_env::Timestamp;
use rpcrdma_oncrpc::{CallError, DUPLICATE_LIFETIME, TransportError};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// A process on a host, which makes or executes calls; a restart ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// The server is 0, clients are counted from 1.
    pub host: u64,
    /// How often the host was started before.
    pub starts: u64,
}

impl Process {
    /// Whether it is a process of the server.
    pub fn is_server(self) -> bool {
        self.host == 0
    }
}

#[derive(Debug)]
struct Entry {
    caller: Process,
    what: String,
    ended: bool,
    /// The client whose connections carry the call, in either direction.
    client: IpAddr,
    doubted: bool,
    executions: Vec<(Process, Timestamp)>,
}

/// Knows every call.
pub struct Ledger {
    entries: Mutex<BTreeMap<u64, Entry>>,
    next: AtomicU64,
    /// Whether faults are off: no call may fail that is made from now on.
    calm: AtomicBool,
    /// Which hosts and connections count in the judgement.
    pub trust: Trust,
    record: Arc<Record>,
}

impl Ledger {
    /// A ledger without calls.
    pub fn new(record: Arc<Record>) -> Arc<Self> {
        let (entries, trust) = (Mutex::default(), Trust::default());
        Arc::new(Self { entries, next: AtomicU64::new(1), calm: AtomicBool::new(false), trust, record })
    }

    /// From now on every call has to be answered.
    pub fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// A process makes a call over a client's connections; `doubted` if it is known that the connection does not count.
    /// Returns the call's number.
    pub fn begin(&self, caller: Process, client: IpAddr, doubted: bool, what: String) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let doubted = doubted || self.trust.doubts(client);
        let entry = Entry { caller, what, ended: false, client, doubted, executions: Vec::new() };
        lock(&self.entries).insert(number, entry);
        number
    }

    /// A message was corrupted on this connection: its client's open calls, and the server's calls to the client, may
    /// suffer.
    pub fn spoil(&self, initiator: SocketAddr) {
        self.trust.spoil(initiator);
        let mut entries = lock(&self.entries);
        entries.values_mut().filter(|e| !e.ended && e.client == initiator.ip()).for_each(|e| e.doubted = true);
    }

    /// Whether the reply to a call may be anything.
    pub fn is_doubted(&self, number: u64) -> bool {
        lock(&self.entries).get(&number).is_none_or(|entry| entry.doubted)
    }

    /// A process executes a call that came over a connection that counts; `now` is the time of its own clock. `once` if
    /// the call is not idempotent.
    pub fn executed(&self, number: u64, by: Process, now: Timestamp, once: bool) {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&number) else {
            return self.record.found(format!("call {number} is executed and was never made"));
        };
        let before = entry.executions.iter().rfind(|(process, _)| *process == by).copied();
        entry.executions.push((by, now));
        if let Some((_, then)) = before
            && once
            && !entry.doubted
            && now.since(then) < DUPLICATE_LIFETIME
        {
            self.record.found(format!("call {number} ({}) was executed twice by {by:?}", entry.what));
        }
    }

    /// A call was answered, and its caller has checked the answer.
    pub fn answered(&self, number: u64) {
        let Some(Ended { what, executions, doubted, .. }) = self.end(number) else { return };
        if executions == 0 && !doubted {
            self.record.found(format!("call {number} ({what}) was answered and never executed"));
        }
    }

    /// A call failed. `asked` if the call was meant to fail, and the server has said so.
    pub fn failed(&self, number: u64, error: &CallError, asked: bool) {
        let Some(Ended { what, client, doubted, .. }) = self.end(number) else { return };
        self.record.note(format!("call {number} ({what}) failed: {error}"));
        // The server remembers the XID of a call whose memory was gone. If that XID was corrupted, a later call that
        // really has it is refused once.
        let is_refused = matches!(error, CallError::Transport(TransportError::Remote { .. }));
        if doubted || asked || (is_refused && self.trust.was_spoilt(client)) {
            return;
        }
        if self.calm.load(Ordering::Relaxed) {
            self.record.found(format!("call {number} ({what}) failed with faults off: {error:?}"));
        } else if !is_clear(error) {
            self.record.found(format!("call {number} ({what}) failed with what is no fault of the network: {error:?}"));
        }
    }

    /// A caller has taken a call back.
    pub fn cancelled(&self, number: u64) {
        self.end(number);
    }

    /// A process has ended, and no caller waits for its calls.
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

    /// Whether no calls were made.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn end(&self, number: u64) -> Option<Ended> {
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(&number)?;
        if std::mem::replace(&mut entry.ended, true) {
            self.record.found(format!("call {number} ({}) ended twice", entry.what));
            return None;
        }
        Some(Ended {
            what: entry.what.clone(),
            client: entry.client,
            executions: entry.executions.len(),
            doubted: entry.doubted,
        })
    }
}

/// A call that has just ended.
struct Ended {
    what: String,
    client: IpAddr,
    executions: usize,
    doubted: bool,
}

/// Whether faults of networks and providers can explain a failure.
fn is_clear(error: &CallError) -> bool {
    use TransportError::{Closed, Lost, NotLent, NotSpoken, Remote, Unreachable};
    let CallError::Transport(error) = error else { return false };
    matches!(error, Unreachable { .. } | Lost { .. } | NotSpoken { .. } | NotLent { .. } | Remote { .. } | Closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_sim::World;
    use std::time::Duration;

    const CLIENT: Process = Process { host: 1, starts: 0 };
    const SERVER: Process = Process { host: 0, starts: 0 };

    const SERVER_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn begin(ledger: &Ledger) -> u64 {
        ledger.begin(CLIENT, ADDRESS, false, "a call".to_owned())
    }

    fn ledger() -> (Arc<Ledger>, Arc<Record>) {
        let record = Record::new(World::new(1).env().clock);
        (Ledger::new(record.clone()), record)
    }

    #[test]
    fn a_second_execution_is_found_while_the_cache_promises_to_remember() {
        let first = Timestamp::from_nanos(7);
        for (by, after, once, found) in [
            (SERVER, DUPLICATE_LIFETIME - Duration::from_nanos(1), true, 1),
            (SERVER, DUPLICATE_LIFETIME, true, 0),
            (SERVER, Duration::ZERO, false, 0),
            (Process { starts: 1, ..SERVER }, Duration::ZERO, true, 0),
        ] {
            let (ledger, record) = ledger();
            let number = begin(&ledger);
            ledger.executed(number, SERVER, first, once);
            ledger.executed(number, by, first + after, once);
            assert_eq!(record.findings().len(), found, "{by:?} after {after:?}");
        }
    }

    #[test]
    fn calls_that_end_otherwise_than_once_are_found() {
        let (ledger, record) = ledger();
        let number = begin(&ledger);
        assert_eq!(ledger.open().len(), 1);
        ledger.failed(number, &CallError::Transport(TransportError::Closed), false);
        assert!(ledger.open().is_empty() && record.findings().is_empty());
        ledger.cancelled(number);
        assert_eq!(record.findings().len(), 1, "it ended before");
        ledger.answered(begin(&ledger));
        assert_eq!(record.findings().len(), 2, "it was never executed");
        let malformed = CallError::WrongXid { expected: 1, got: 2 };
        ledger.failed(begin(&ledger), &malformed, false);
        assert_eq!(record.findings().len(), 3);
        begin(&ledger);
        ledger.gone(CLIENT);
        assert!(ledger.open().is_empty());
    }

    #[test]
    fn a_call_that_fails_with_faults_off_is_found_unless_it_was_to_fail() {
        let closed = CallError::Transport(TransportError::Closed);
        for (calm, asked, found) in [(false, false, 0), (true, false, 1), (true, true, 0)] {
            let (ledger, record) = ledger();
            if calm {
                ledger.calm();
            }
            ledger.failed(begin(&ledger), &closed, asked);
            assert_eq!(record.findings().len(), found);
        }
    }

    #[test]
    fn a_call_that_nobody_made_is_found_when_it_is_executed() {
        let (ledger, record) = ledger();
        ledger.executed(7, SERVER, Timestamp::from_nanos(7), false);
        assert_eq!(record.findings().len(), 1);
    }

    /// After a corrupted message, doubts excuse failures of open and of later calls; nothing excuses a second end of a
    /// call.
    #[test]
    fn calls_that_may_have_met_a_corrupted_message_only_have_to_end_once() {
        let (ledger, record) = ledger();
        let (open, other) = (begin(&ledger), ledger.begin(CLIENT, SERVER_ADDRESS, false, "of another".to_owned()));
        let connection = SocketAddr::new(ADDRESS, 5000);
        ledger.spoil(connection);
        let during = begin(&ledger);
        ledger.trust.over(connection);
        let after = begin(&ledger);
        let doubted = [open, other, during, after].map(|number| ledger.is_doubted(number));
        assert_eq!(doubted, [true, false, true, false]);
        let malformed = CallError::WrongXid { expected: 1, got: 2 };
        ledger.failed(open, &malformed, false);
        ledger.answered(during);
        assert!(record.findings().is_empty());
        ledger.answered(during);
        ledger.answered(after);
        assert_eq!(record.findings().len(), 2);
    }
}
