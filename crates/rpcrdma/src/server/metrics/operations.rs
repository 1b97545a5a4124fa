//! Operations of NFS version 4, by operation and status, and how long they take; what version 4 keeps for clients, and
//! the results of calls to them.
//!
//! All values of both labels come from tables, so that a client cannot create other series. Some counters exist from
//! the start; each other one is registered at its first use.

use super::{MEMORY_INTERVAL, calls::ALARMING};
use metrics::{Counter, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use rpcrdma_nfs::v4::{Op, Status, callback};
use rpcrdma_nfsd::{CallbackEvent, HealthEvent, Nfsd, Observer, is_timed};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// The protocol's name for a number that no operation has.
const ILLEGAL: &str = "ILLEGAL";
/// A status that has no name.
const OTHER: &str = "other";

/// The operations that touch files, so that the server's trouble with its disk shows in them.
const OF_FILES: [Op; 18] = [
    Op::Access,
    Op::Close,
    Op::Commit,
    Op::Create,
    Op::GetAttr,
    Op::Link,
    Op::Lock,
    Op::Lookup,
    Op::Open,
    Op::PutFh,
    Op::Read,
    Op::ReadDir,
    Op::ReadLink,
    Op::Remove,
    Op::Rename,
    Op::SetAttr,
    Op::Verify,
    Op::Write,
];
/// The operations by which clients make themselves known: the journal of clients may fail there.
const OF_CLIENTS: [Op; 4] = [Op::ExchangeId, Op::CreateSession, Op::ReclaimComplete, Op::Sequence];

/// Procedure 0 of clients.
const NULL: &str = "CB_NULL";

/// What can happen to a call to a client.
const EVENTS: [CallbackEvent; 5] =
    [CallbackEvent::Sent, CallbackEvent::Answered, CallbackEvent::Refused, CallbackEvent::Lost, CallbackEvent::NotSent];

fn word(event: CallbackEvent) -> &'static str {
    match event {
        CallbackEvent::Sent => "sent",
        CallbackEvent::Answered => "answered",
        CallbackEvent::Refused => "refused",
        CallbackEvent::Lost => "lost",
        CallbackEvent::NotSent => "not_sent",
    }
}

/// Counts an event of clients that hold delegations and are silent.
fn checked(event: HealthEvent) -> Counter {
    let word = match event {
        HealthEvent::Asked => "asked",
        HealthEvent::Answered => "answered",
        HealthEvent::GivenUp => "given_up",
    };
    counter!("rpcrdma_nfs4_health_checks_total", "event" => word)
}

/// Counts an event of calls to clients. They are few: each looks its counter up.
fn called_back(op: Option<callback::Op>, event: CallbackEvent) -> Counter {
    let operation = op.map_or(NULL, |op| op.name());
    counter!("rpcrdma_nfs4_callbacks_total", "operation" => operation, "event" => word(event))
}

/// The numbers of one operation.
struct Operation {
    name: &'static str,
    seconds: OnceLock<Histogram>,
    /// By status, as [`Operations`] lists them.
    counted: Box<[OnceLock<Counter>]>,
}

impl Operation {
    fn new(name: &'static str, statuses: usize) -> Self {
        Self { name, seconds: OnceLock::new(), counted: (0..statuses).map(|_| OnceLock::new()).collect() }
    }

    /// The counter of a status, which this call registers at its first use.
    fn counter(&self, statuses: &[&'static str], status: &'static str) -> Option<&Counter> {
        let place = self.counted.get(statuses.iter().position(|known| *known == status)?)?;
        let make = || counter!("rpcrdma_nfs4_operations_total", "operation" => self.name, "status" => status);
        Some(place.get_or_init(make))
    }

    fn seconds(&self) -> &Histogram {
        self.seconds.get_or_init(|| histogram!("rpcrdma_nfs4_operation_seconds", "operation" => self.name))
    }
}

/// The numbers of all operations.
struct Operations {
    statuses: Vec<&'static str>,
    /// In the order of [`Op::ALL`]; the last is [`ILLEGAL`].
    operations: Vec<Operation>,
}

impl Operations {
    /// Registers the counters that exist from the start.
    fn new() -> Self {
        describe();
        let statuses: Vec<_> = Status::ALL.iter().filter_map(|status| status.word()).chain([OTHER]).collect();
        let names = Op::ALL.iter().map(|op| op.name()).chain([ILLEGAL]);
        let operations = names.map(|name| Operation::new(name, statuses.len())).collect();
        let numbers = Self { statuses, operations };
        for op in OF_FILES.into_iter().chain(OF_CLIENTS) {
            let operation = numbers.at(Some(op));
            if is_timed(op) {
                operation.seconds();
            }
            operation.counter(&numbers.statuses, "OK");
            let of_files = OF_FILES.contains(&op);
            for status in ALARMING.into_iter().filter(|status| of_files || *status == "SERVERFAULT") {
                operation.counter(&numbers.statuses, status);
            }
        }
        numbers.at(None).counter(&numbers.statuses, "OP_ILLEGAL");
        for op in [None, Some(callback::Op::NotifyLock)] {
            EVENTS.into_iter().for_each(|event| called_back(op, event).increment(0));
        }
        for event in [HealthEvent::Asked, HealthEvent::Answered, HealthEvent::GivenUp] {
            checked(event).increment(0);
        }
        numbers
    }

    fn at(&self, op: Option<Op>) -> &Operation {
        let illegal = self.operations.len() - 1;
        // By number: the table is in that order.
        let place = op.and_then(|op| Op::ALL.binary_search(&op).ok()).unwrap_or(illegal);
        &self.operations[place]
    }
}

/// The counters of all operations, once they have begun. The server is made before the port of the metrics is open, but
/// answers no call until then.
#[derive(Default)]
pub(in crate::server) struct Later(OnceLock<Operations>);

impl Later {
    /// Registers the counters that exist from the start.
    pub(in crate::server) fn begin(&self) {
        self.0.get_or_init(Operations::new);
    }
}

impl Observer for Later {
    fn operation(&self, op: Option<Op>, status: Status, took: Option<Duration>) {
        if let Some(operations) = self.0.get() {
            operations.count(op, status, took);
        }
    }

    fn callback(&self, op: Option<callback::Op>, event: CallbackEvent) {
        if self.0.get().is_some() {
            called_back(op, event).increment(1);
        }
    }

    fn health(&self, event: HealthEvent) {
        if self.0.get().is_some() {
            checked(event).increment(1);
        }
    }
}

impl Operations {
    fn count(&self, op: Option<Op>, status: Status, took: Option<Duration>) {
        let operation = self.at(op);
        if let Some(took) = took {
            operation.seconds().record(took);
        }
        if let Some(counter) = operation.counter(&self.statuses, status.word().unwrap_or(OTHER)) {
            counter.increment(1);
        }
    }
}

fn describe() {
    describe_counter!("rpcrdma_nfs4_operations_total", "Operations of NFS version 4, by operation and status");
    describe_histogram!("rpcrdma_nfs4_operation_seconds", "Time from an operation's beginning to its results");
    describe_counter!("rpcrdma_nfs4_callbacks_total", "Calls to clients of NFS version 4, by operation and event");
    describe_counter!(
        "rpcrdma_nfs4_health_checks_total",
        "Clients that hold delegations and were silent for most of their lease, by what became of them"
    );
    describe_gauge!("rpcrdma_nfs4_clients", "Clients of NFS version 4 that the server knows");
    describe_gauge!("rpcrdma_nfs4_sessions", "Sessions of NFS version 4");
    describe_gauge!("rpcrdma_nfs4_session_connections", "Connections that belong to sessions of NFS version 4");
    describe_gauge!("rpcrdma_nfs4_stateids", "What clients of NFS version 4 hold, by kind");
    describe_counter!("rpcrdma_nfs4_recalls_total", "Delegations that were called back from clients");
    describe_counter!(
        "rpcrdma_nfs4_revocations_total",
        "Delegations that were taken from clients that did not return them"
    );
    describe_counter!(
        "rpcrdma_nfs4_expired_total",
        "What was taken from clients of NFS version 4 that were away, by kind"
    );
    describe_gauge!("rpcrdma_nfs4_copies", "Copies of NFS version 4 that go on after COPY was answered");
    describe_counter!("rpcrdma_nfs4_copied_bytes_total", "Bytes that COPY has copied on the server");
}

/// Updates the gauges of what version 4 keeps for clients, for as long as it is polled.
pub(in crate::server) async fn watch_clients(nfsd: Arc<Nfsd>) {
    while let Some(counts) = nfsd.version_4_counts() {
        gauge!("rpcrdma_nfs4_clients").set(counts.clients as f64);
        gauge!("rpcrdma_nfs4_sessions").set(counts.sessions as f64);
        gauge!("rpcrdma_nfs4_session_connections").set(counts.connections as f64);
        for (kind, count) in [("open", counts.opens), ("lock", counts.locks), ("delegation", counts.delegations)] {
            gauge!("rpcrdma_nfs4_stateids", "kind" => kind).set(count as f64);
        }
        counter!("rpcrdma_nfs4_recalls_total").absolute(counts.recalls);
        counter!("rpcrdma_nfs4_revocations_total").absolute(counts.revocations);
        let expired = [
            ("open", counts.expired_opens),
            ("lock", counts.expired_locks),
            ("delegation", counts.expired_delegations),
        ];
        for (kind, count) in expired {
            counter!("rpcrdma_nfs4_expired_total", "kind" => kind).absolute(count);
        }
        gauge!("rpcrdma_nfs4_copies").set(counts.copies as f64);
        counter!("rpcrdma_nfs4_copied_bytes_total").absolute(counts.copied);
        tokio::time::sleep(MEMORY_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_its_own_numbers() {
        let numbers = Operations::new();
        for op in Op::ALL {
            assert_eq!(numbers.at(Some(*op)).name, op.name());
        }
        assert_eq!(numbers.at(None).name, ILLEGAL);
    }

    #[test]
    fn every_status_has_a_place_and_those_of_the_start_exist() {
        let numbers = Operations::new();
        let read = numbers.at(Some(Op::Read));
        for status in Status::ALL {
            assert!(read.counter(&numbers.statuses, status.word().unwrap_or(OTHER)).is_some(), "{status:?}");
        }
        assert!(Status(4_711).word().is_none() && read.counter(&numbers.statuses, OTHER).is_some());
        for status in ALARMING.into_iter().chain(["OK", "OP_ILLEGAL"]) {
            assert!(numbers.statuses.contains(&status), "{status}");
        }
        let mut once = numbers.statuses.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), numbers.statuses.len());
    }
}
