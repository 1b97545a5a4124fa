//! The judge of a run of NFS version 4. It stands beside the server; clients report to it and ask it at the moments
//! that matter.
//!
//! A client reports that it gives something up before it tells the server, and reports what it gets after it has the
//! reply. So in between no other client may get it, whatever the server has lost meanwhile.

use super::{LEASE, ours::client_of};
use crate::{lock, record::Record};
use rpcrdma_env::{Clock, Timestamp};
use rpcrdma_nfs::v4::{Handle, Op, StateId, StateIdOther, Status};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

/// Something of which a client's possession excludes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    /// The lock of a counter.
    Counter(usize),
    /// An open of the private file that denies all others.
    Private,
    /// An open of a shared file that denies all others.
    Visited(usize),
    /// A delegation of a shared file: several clients may have one for reading.
    Delegated(usize),
}

/// A delegation that a client has.
#[derive(Clone, Debug)]
struct Held {
    handle: Handle,
    is_write: bool,
    /// Distinguishes it from other delegations of the same file and client.
    number: u64,
    /// When the server recalled it.
    recalled: Option<Timestamp>,
}

/// A client has a shared file open until this is dropped; it drops this before it sends CLOSE.
pub(super) struct Using {
    checks: Arc<Checks>,
    file: usize,
    client: usize,
    number: u64,
}

impl Drop for Using {
    fn drop(&mut self) {
        lock(&self.checks.inner).users.remove(&(self.file, self.client, self.number));
    }
}

/// Counts of an operation that must change something once for each call, and never twice.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    executed: u64,
    acknowledged: u64,
    /// Calls with an unknown result, because the server restarted meanwhile.
    unsure: u64,
}

#[derive(Default)]
struct Inner {
    holders: BTreeMap<Thing, usize>,
    changed: BTreeMap<&'static str, Changed>,
    /// The last value of each counter, and values that calls with an unknown result may have written.
    counters: BTreeMap<usize, (u64, Vec<u64>)>,
    calls: usize,
    /// Delegations by file and client.
    delegations: BTreeMap<(usize, usize), Held>,
    /// When a client received a recall of a delegation that it did not know yet: a recall can overtake the reply that
    /// grants the delegation.
    early: HashMap<(usize, StateIdOther), Timestamp>,
    /// Opens by file, client and number, and whether they are for writing.
    users: BTreeMap<(usize, usize, u64), bool>,
    numbers: u64,
    /// How often a client of ours was away for so long that the server may have taken away what it holds.
    departures: BTreeMap<usize, u64>,
    /// How often the server was restarted.
    restarts: u64,
    /// What callers held at such an absence or restart, until they have used it again or given it up.
    doubtful: BTreeSet<(Thing, usize)>,
}

/// The checks of a run.
pub(crate) struct Checks {
    clock: Arc<dyn Clock>,
    record: Arc<Record>,
    inner: Mutex<Inner>,
}

impl Checks {
    pub(super) fn new(record: Arc<Record>, clock: Arc<dyn Clock>) -> Self {
        Self { record, clock, inner: Mutex::default() }
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

    /// A client has made a call. Calls that are sent again do not count.
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

    /// A client will not learn the result of an operation.
    pub(super) fn unsure(&self, op: Op) {
        lock(&self.inner).changed.entry(op.name()).or_default().unsure += 1;
    }

    /// A client has got something that excludes others.
    pub(super) fn got(&self, thing: Thing, client: usize) {
        let mut inner = lock(&self.inner);
        let former = inner.holders.insert(thing, client);
        let may_be_lost = former.is_some_and(|former| inner.doubtful.contains(&(thing, former)));
        inner.doubtful.remove(&(thing, client));
        drop(inner);
        self.note(format!("client {client} has {thing:?}"));
        if let Some(former) = former
            && !may_be_lost
        {
            self.found(format!("client {client} is given {thing:?}, which client {former} has"));
        }
    }

    /// A client is about to give something up.
    pub(super) fn gives_up(&self, thing: Thing, client: usize) {
        self.note(format!("client {client} gives up {thing:?}"));
        if let Thing::Delegated(file) = thing {
            if lock(&self.inner).delegations.remove(&(file, client)).is_none() {
                self.found(format!("client {client} gives up {thing:?}, which it does not have"));
            }
            return;
        }
        let mut inner = lock(&self.inner);
        let may_be_lost = inner.doubtful.remove(&(thing, client));
        let has_it = inner.holders.get(&thing) == Some(&client);
        if has_it {
            inner.holders.remove(&thing);
        }
        drop(inner);
        if !has_it && !may_be_lost {
            self.found(format!("client {client} gives up {thing:?}, which it does not have"));
        }
    }

    /// A client is about to forget everything: it begins again.
    pub(super) fn forgets(&self, client: usize) {
        self.note(format!("client {client} begins anew"));
        let mut inner = lock(&self.inner);
        inner.holders.retain(|_, holder| *holder != client);
        inner.delegations.retain(|(_, holder), _| *holder != client);
        inner.users.retain(|(_, user, _), _| *user != client);
    }

    /// A client of ours is away for longer than its lease: the server may take away what its callers hold.
    pub(super) fn leaves(&self, client: usize) {
        let mut inner = lock(&self.inner);
        *inner.departures.entry(client).or_default() += 1;
        let held = inner.holders.iter().filter(|(_, holder)| client_of(**holder) == client);
        let held: Vec<_> = held.map(|(thing, holder)| (*thing, *holder)).collect();
        inner.doubtful.extend(held);
        inner.users.retain(|(_, user, _), _| client_of(*user) != client);
    }

    /// A caller gets something by a call that it made before its client was away. If another has got it since, the
    /// other keeps it, and this caller must not be able to use it.
    pub(super) fn got_late(&self, thing: Thing, caller: usize) {
        let is_anothers = {
            let inner = lock(&self.inner);
            inner.holders.get(&thing).is_some_and(|holder| !inner.doubtful.contains(&(thing, *holder)))
        };
        match is_anothers {
            true => self.note(format!("client {caller} hears late of {thing:?}")),
            false => self.got(thing, caller),
        }
        lock(&self.inner).doubtful.insert((thing, caller));
    }

    /// The server restarts.
    pub(super) fn restarts(&self) {
        self.note("the server restarts");
        lock(&self.inner).restarts += 1;
    }

    /// How often the server has restarted.
    pub(super) fn starts(&self) -> u64 {
        lock(&self.inner).restarts
    }

    /// How often a client of ours was away for longer than its lease.
    pub(super) fn departures(&self, client: usize) -> u64 {
        lock(&self.inner).departures.get(&client).copied().unwrap_or_default()
    }

    /// Whether a caller has something, and no other has got it meanwhile.
    pub(super) fn has(&self, thing: Thing, caller: usize) -> bool {
        lock(&self.inner).holders.get(&thing) == Some(&caller)
    }

    /// The server has let a caller use something, by a call made when its client had been away `departures` times. If
    /// the client has been away since, this proves nothing: the reply may have been on its way when the client went
    /// away.
    pub(super) fn confirms(&self, thing: Thing, caller: usize, departures: u64) {
        if self.departures(client_of(caller)) == departures {
            lock(&self.inner).doubtful.remove(&(thing, caller));
        }
    }

    /// A client of ours is killed with all its callers.
    pub(super) fn forgets_all(&self, client: usize) {
        let mut inner = lock(&self.inner);
        inner.holders.retain(|_, holder| client_of(*holder) != client);
        inner.doubtful.retain(|(_, holder)| client_of(*holder) != client);
        inner.users.retain(|(_, user, _), _| client_of(*user) != client);
    }

    /// A client has a shared file open: no other client may have a delegation that excludes this open.
    pub(super) fn uses(self: &Arc<Self>, file: usize, client: usize, writes: bool) -> Using {
        let mut inner = lock(&self.inner);
        inner.numbers += 1;
        let number = inner.numbers;
        inner.users.insert((file, client, number), writes);
        let other = inner.in_the_way(file, client, writes, self.clock.now());
        drop(inner);
        if let Some((other, held)) = other {
            self.found(format!(
                "client {client} opens shared file {file} (to write: {writes}) beside {held:?} of client {other}"
            ));
        }
        Using { checks: self.clone(), file, client, number }
    }

    /// A client has got a delegation.
    pub(super) fn delegated(&self, handle: &Handle, state: StateId, file: usize, client: usize, is_write: bool) {
        let mut inner = lock(&self.inner);
        inner.numbers += 1;
        let recalled = inner.early.remove(&(client, state.other));
        let held = Held { handle: handle.clone(), is_write, number: inner.numbers, recalled };
        inner.delegations.insert((file, client), held);
        let other = inner.in_the_way(file, client, is_write, self.clock.now());
        let mut users = inner
            .users
            .iter()
            .filter(|((used, user, _), writes)| *used == file && *user != client && (is_write || **writes));
        let user = users.next().map(|((_, user, _), _)| *user);
        drop(inner);
        self.note(format!("client {client} has shared file {file} delegated (to write: {is_write})"));
        if let Some((other, held)) = other {
            self.found(format!(
                "client {client} is given {file} (to write: {is_write}) beside {held:?} of client {other}"
            ));
        }
        if let Some(user) = user {
            self.found(format!("client {client} is given {file} (to write: {is_write}), which client {user} has open"));
        }
    }

    /// A client has received a recall.
    pub(super) fn recalled(&self, handle: &Handle, state: StateId, client: usize) {
        let now = self.clock.now();
        let mut inner = lock(&self.inner);
        let is_it = |((_, holder), held): &(&(usize, usize), &mut Held)| *holder == client && held.handle == *handle;
        match inner.delegations.iter_mut().find(is_it) {
            Some((_, held)) => held.recalled = held.recalled.or(Some(now)),
            None => drop(inner.early.insert((client, state.other), now)),
        }
    }

    /// Whether the server recalled a client's delegation of a file so long ago that it may have taken it away.
    pub(super) fn may_be_lost(&self, file: usize, client: usize) -> bool {
        let now = self.clock.now();
        lock(&self.inner).delegations.get(&(file, client)).is_none_or(|held| held.is_overdue(now))
    }

    /// The other clients with a write delegation of a file, each with the delegation's number.
    pub(super) fn writers(&self, file: usize, client: usize) -> Vec<(usize, u64)> {
        let inner = lock(&self.inner);
        let others = inner.delegations.iter().filter(|((held, holder), _)| *held == file && *holder != client);
        others.filter(|(_, held)| held.is_write).map(|((_, holder), held)| (*holder, held.number)).collect()
    }

    /// A client has read a file without an open. A client with the same write delegation before and after had it
    /// meanwhile.
    pub(super) fn passed_by(&self, file: usize, client: usize, before: &[(usize, u64)]) {
        let after = self.writers(file, client);
        if let Some((holder, _)) = before.iter().find(|writer| after.contains(writer))
            && !self.may_be_lost(file, *holder)
        {
            self.found(format!("client {client} reads shared file {file}, which client {holder} has to itself"));
        }
    }

    /// The holder of a counter's lock has read the counter.
    pub(super) fn read(&self, counter: usize, value: u64) {
        let mut inner = lock(&self.inner);
        let (last, perhaps) = inner.counters.entry(counter).or_default();
        let is_right = value == *last || perhaps.contains(&value);
        let expected = format!("{last} or one of {perhaps:?}");
        // From now on the value is known.
        (*last, *perhaps) = (value, Vec::new());
        drop(inner);
        if !is_right {
            self.found(format!("counter {counter} is {value} instead of {expected}"));
        }
    }

    /// The holder is about to write the counter stably, or knows with `is_known` that it has been written.
    pub(super) fn wrote(&self, counter: usize, value: u64, is_known: bool) {
        let mut inner = lock(&self.inner);
        let (last, perhaps) = inner.counters.entry(counter).or_default();
        match is_known {
            true => (*last, *perhaps) = (value, Vec::new()),
            false => perhaps.push(value),
        }
    }

    /// Judges at the end how often each operation that must not be done twice was done.
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

impl Held {
    /// Whether the server may have taken the delegation away. The server waits for a lease after its recall; half a
    /// lease is safe for the judge.
    fn is_overdue(&self, now: Timestamp) -> bool {
        self.recalled.is_some_and(|recalled| now.since(recalled) >= LEASE / 2)
    }
}

impl Inner {
    /// Another client's delegation that excludes such a use.
    fn in_the_way(&self, file: usize, client: usize, writes: bool, now: Timestamp) -> Option<(usize, Held)> {
        let is_in_the_way = |held: &Held| (held.is_write || writes) && !held.is_overdue(now);
        let mut others = self.delegations.iter().filter(|((held, holder), _)| *held == file && *holder != client);
        others.find(|(_, held)| is_in_the_way(held)).map(|((_, holder), held)| (*holder, held.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_sim::World;

    fn checks() -> Checks {
        let clock = World::new(1).env().clock;
        Checks::new(Record::new(clock.clone()), clock)
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
    fn what_a_client_that_was_away_has_is_doubtful_until_it_has_used_it_since() {
        let (first, second) = (11, 12);
        let had_before = |called_at: u64| {
            let checks = checks();
            checks.got(Thing::Counter(0), first);
            checks.leaves(client_of(first));
            checks.confirms(Thing::Counter(0), first, called_at);
            checks.got(Thing::Counter(0), second);
            checks.is_wrong()
        };
        assert!(!had_before(0), "the answer of a call of before comes when the client has gone");
        assert!(had_before(1), "it was used since");
    }

    #[test]
    fn what_a_client_that_was_away_has_open_is_in_nobodys_way() {
        let handle = Handle::new(b"f").unwrap();
        let (absent, present) = (11, 21);
        for leaves in [absent, present] {
            let checks = Arc::new(checks());
            let open = checks.uses(0, absent, true);
            checks.leaves(client_of(leaves));
            checks.delegated(&handle, StateId::ANONYMOUS, 0, 0, false);
            assert_eq!(checks.is_wrong(), leaves != absent);
            drop(open);
        }
    }

    #[test]
    fn who_hears_late_of_a_lock_takes_it_from_nobody() {
        let (late, present) = (31, 11);
        let checks = checks();
        checks.leaves(client_of(late));
        checks.got(Thing::Counter(1), present);
        checks.got_late(Thing::Counter(1), late);
        assert!(checks.has(Thing::Counter(1), present) && !checks.has(Thing::Counter(1), late));
        checks.gives_up(Thing::Counter(1), late);
        checks.gives_up(Thing::Counter(1), present);
        // If no other has got it meanwhile, the caller has it, but another may still get it.
        checks.got_late(Thing::Counter(1), late);
        assert!(checks.has(Thing::Counter(1), late));
        checks.got(Thing::Counter(1), present);
        assert!(!checks.is_wrong());
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

    /// Whether the checks find something wrong in these actions.
    fn is_found(act: impl FnOnce(&Arc<Checks>)) -> bool {
        let checks = Arc::new(checks());
        act(&checks);
        checks.is_wrong()
    }

    #[test]
    fn what_is_let_through_beside_a_delegation_is_found() {
        let handle = Handle::new(b"f").unwrap();
        for (is_write, other_writes, wrong) in
            [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
        {
            let has = |checks: &Arc<Checks>| checks.delegated(&handle, StateId::ANONYMOUS, 0, 0, is_write);
            let use_it = |checks: &Arc<Checks>, file, client| drop(checks.uses(file, client, other_writes));
            assert_eq!(is_found(|c| (has(c), use_it(c, 0, 1)).1), wrong, "{is_write} {other_writes}");
            assert_eq!(is_found(|c| (has(c), c.delegated(&handle, StateId::ANONYMOUS, 0, 1, other_writes)).1), wrong);
            let open = |checks: &Arc<Checks>| checks.uses(0, 1, other_writes);
            assert!(!is_found(|c| (drop(open(c)), has(c)).1), "it was closed by then");
            let beside = |checks: &Arc<Checks>| {
                let _open = open(checks);
                has(checks);
            };
            assert_eq!(is_found(beside), wrong);
            assert!(!is_found(|c| (has(c), use_it(c, 0, 0), use_it(c, 1, 1)).2), "its own, and another file");
            assert!(!is_found(|c| (has(c), c.gives_up(Thing::Delegated(0), 0), use_it(c, 0, 1)).2));
            assert!(!is_found(|c| (has(c), c.forgets(0), use_it(c, 0, 1)).2));
            assert_eq!(
                is_found(|c| (has(c), c.recalled(&handle, StateId::ANONYMOUS, 0), use_it(c, 0, 1)).2),
                wrong,
                "it has a lease"
            );
        }
        assert!(is_found(|c| c.gives_up(Thing::Delegated(0), 0)));
    }

    /// Seed 904208.
    #[test]
    fn a_recall_counts_from_its_arrival_even_before_the_reply_that_grants_the_delegation() {
        let handle = Handle::new(b"f").unwrap();
        let state = |octet| StateId { sequence: 1, other: StateIdOther([octet; 12]) };
        for (recalled, is_the_same) in [(1, true), (2, false)] {
            let checks = checks();
            checks.recalled(&handle, state(recalled), 0);
            checks.delegated(&handle, state(1), 0, 0, false);
            assert_eq!(lock(&checks.inner).delegations[&(0, 0)].recalled.is_some(), is_the_same);
        }
    }

    #[test]
    fn a_look_at_what_another_has_to_itself_is_found() {
        let handle = Handle::new(b"f").unwrap();
        let look = |is_write: bool, between: &dyn Fn(&Checks)| {
            is_found(|checks| {
                checks.delegated(&handle, StateId::ANONYMOUS, 0, 0, is_write);
                let before = checks.writers(0, 1);
                between(checks);
                checks.passed_by(0, 1, &before);
            })
        };
        assert!(look(true, &|_| {}));
        assert!(!look(false, &|_| {}));
        let again = |checks: &Checks| {
            checks.gives_up(Thing::Delegated(0), 0);
            checks.delegated(&handle, StateId::ANONYMOUS, 0, 0, true);
        };
        assert!(!look(true, &again), "it had it before and after, and not meanwhile");
    }
}
