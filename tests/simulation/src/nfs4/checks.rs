//! What judges a run of NFS version 4: kept by the tests beside the server, and asked and told by clients at the moments that count.
//!
//! What a client gives up is taken out before it says so to the server, and what it gets is put in when it hears of it. So nobody
//! else may get it in between, whatever the server has lost meanwhile.

use crate::{lock, record::Record};
use rpcrdma_nfs::v4::{Op, Status};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// What excludes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    /// The lock of a counter.
    Counter(usize),
    /// An open of the private file, that denies all others.
    Private,
}

/// What was changed once by each call, and may not have been changed twice.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    executed: u64,
    acknowledged: u64,
    /// Calls of which nobody knows: the server restarted meanwhile.
    unsure: u64,
}

#[derive(Default)]
struct Inner {
    holders: BTreeMap<Thing, usize>,
    changed: BTreeMap<&'static str, Changed>,
    /// Each counter as it was written last, and values that may have been written by a call of which nobody knows.
    counters: BTreeMap<usize, (u64, Vec<u64>)>,
    calls: usize,
}

/// The checks of a run.
pub(crate) struct Checks {
    record: Arc<Record>,
    inner: Mutex<Inner>,
}

impl Checks {
    pub(super) fn new(record: Arc<Record>) -> Self {
        Self { record, inner: Mutex::default() }
    }

    pub(super) fn note(&self, text: impl Into<String>) {
        self.record.note(text.into());
    }

    pub(super) fn found(&self, text: impl Into<String>) {
        self.record.found(text.into());
    }

    pub(super) fn is_wrong(&self) -> bool {
        !self.record.findings().is_empty()
    }

    /// A call was made. Calls that are sent again are none.
    pub(super) fn called(&self) {
        lock(&self.inner).calls += 1;
    }

    pub(super) fn calls(&self) -> usize {
        lock(&self.inner).calls
    }

    /// The server has executed an operation.
    pub(super) fn executed(&self, op: Op, status: Status) {
        if status == Status::OK {
            lock(&self.inner).changed.entry(op.name()).or_default().executed += 1;
        }
    }

    /// A client has learned that an operation has succeeded.
    pub(super) fn acknowledged(&self, op: Op) {
        lock(&self.inner).changed.entry(op.name()).or_default().acknowledged += 1;
    }

    /// A client will not learn what came of an operation.
    pub(super) fn unsure(&self, op: Op) {
        lock(&self.inner).changed.entry(op.name()).or_default().unsure += 1;
    }

    /// A client has been given something that excludes others.
    pub(super) fn got(&self, thing: Thing, client: usize) {
        let former = lock(&self.inner).holders.insert(thing, client);
        self.note(format!("client {client} has {thing:?}"));
        if let Some(former) = former {
            self.found(format!("client {client} is given {thing:?}, which client {former} has"));
        }
    }

    /// A client is about to give it up.
    pub(super) fn gives_up(&self, thing: Thing, client: usize) {
        self.note(format!("client {client} gives up {thing:?}"));
        if lock(&self.inner).holders.remove(&thing) != Some(client) {
            self.found(format!("client {client} gives up {thing:?}, which it does not have"));
        }
    }

    /// A client is about to forget all that it had: it begins anew.
    pub(super) fn forgets(&self, client: usize) {
        self.note(format!("client {client} begins anew"));
        lock(&self.inner).holders.retain(|_, holder| *holder != client);
    }

    /// Whoever has the counter's lock has read it.
    pub(super) fn read(&self, counter: usize, value: u64) {
        let mut inner = lock(&self.inner);
        let (last, perhaps) = inner.counters.entry(counter).or_default();
        let is_right = value == *last || perhaps.contains(&value);
        let expected = format!("{last} or one of {perhaps:?}");
        // From here on it is known.
        (*last, *perhaps) = (value, Vec::new());
        drop(inner);
        if !is_right {
            self.found(format!("counter {counter} is {value} instead of {expected}"));
        }
    }

    /// It is about to write it stably, and knows of it by `is_known`.
    pub(super) fn wrote(&self, counter: usize, value: u64, is_known: bool) {
        let mut inner = lock(&self.inner);
        let (last, perhaps) = inner.counters.entry(counter).or_default();
        match is_known {
            true => (*last, *perhaps) = (value, Vec::new()),
            false => perhaps.push(value),
        }
    }

    /// How often each operation that is not to be done twice was done, at the end.
    pub(super) fn judge_executions(&self, ops: &[Op]) {
        for op in ops {
            let Changed { executed, acknowledged, unsure } =
                lock(&self.inner).changed.get(&op.name()).copied().unwrap_or_default();
            if !(acknowledged..=acknowledged + unsure).contains(&executed) {
                self.found(format!(
                    "{op:?} was executed {executed} times; {acknowledged} were acknowledged, {unsure} perhaps done"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_sim::World;

    fn checks() -> Checks {
        Checks::new(Record::new(World::new(1).env().clock))
    }

    #[test]
    fn two_who_hold_the_same_are_found() {
        let checks = checks();
        checks.got(Thing::Private, 0);
        checks.got(Thing::Counter(0), 1);
        checks.gives_up(Thing::Private, 0);
        checks.got(Thing::Private, 1);
        checks.forgets(1);
        checks.got(Thing::Counter(0), 2);
        assert!(!checks.is_wrong());
        checks.got(Thing::Counter(0), 0);
        assert!(checks.is_wrong());
    }

    #[test]
    fn a_call_that_is_executed_twice_or_never_is_found() {
        for (executed, acknowledged, unsure, wrong) in
            [(2, 2, 0, false), (3, 2, 0, true), (3, 2, 1, false), (1, 2, 1, true), (2, 0, 2, false)]
        {
            let checks = checks();
            (0..executed).for_each(|_| checks.executed(Op::Create, Status::OK));
            checks.executed(Op::Create, Status::EXIST);
            (0..acknowledged).for_each(|_| checks.acknowledged(Op::Create));
            (0..unsure).for_each(|_| checks.unsure(Op::Create));
            checks.judge_executions(&[Op::Create]);
            assert_eq!(checks.is_wrong(), wrong, "{executed} {acknowledged} {unsure}");
        }
    }

    #[test]
    fn stable_writes_that_are_lost_are_found() {
        let checks = checks();
        checks.wrote(0, 1, true);
        checks.wrote(0, 2, false);
        checks.read(0, 2);
        checks.read(0, 2);
        assert!(!checks.is_wrong());
        checks.read(0, 1);
        assert!(checks.is_wrong());
    }
}
