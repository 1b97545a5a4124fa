//! The queues of clients that wait for locks.
//!
//! Clients ask again and again for a lock that was denied (RFC 8881 section 9.6). This module keeps the order in which
//! they began, and notifies them in that order when it is worth asking. A client gets no notice while a client before
//! it has one and would exclude it. The queue reserves nothing: the first that asks after a release gets the lock,
//! notified or not. So a client that queues and never comes delays at most the notices of clients behind it, until it
//! loses its place: [`WAITING_TIME`] after it last asked, or [`WOKEN_TIME`] after a notice to which it did not react.
//!
//! A client that waits for a program of the host gets no notice when the program unlocks, because the host does not
//! report that: the client finds out by asking. [`Wake`]s are called without any lock. Nothing fails: if the queue has
//! no room for a client, it gets no notice, and asks as before.

use super::{
    clients::Clients,
    files::FileKey,
    holder::{Client, Holder},
    range::{Kind, Range},
    ranges::{Index, Ranges},
};
use rpcrdma_env::Timestamp;
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// How long a client keeps its place if it does not ask again. Linux's client asks at least once a minute.
pub const WAITING_TIME: Duration = Duration::from_secs(90);

/// How long a notified client has to ask again. Then it loses its place, and clients behind it that it would exclude
/// get notices.
pub const WOKEN_TIME: Duration = Duration::from_secs(5);

/// Notifies a client that a lock may be free (CB_NOTIFY_LOCK, NLM_GRANTED): it is a hint, and may come more than once.
pub trait Wake: Send + Sync {
    /// It is time to ask again.
    fn wake(&self);
}

/// The clients to notify.
pub(super) type Wakes = Vec<Arc<dyn Wake>>;

struct Waiter {
    holder: Holder,
    range: Range,
    kind: Kind,
    wake: Arc<dyn Wake>,
    asked: Timestamp,
    told: Option<Timestamp>,
}

/// The clients that wait for locks on one file, in the order in which they began.
#[derive(Default)]
pub(super) struct Queue(VecDeque<Waiter>);

/// The file of the queue, and the present time.
pub(super) struct Place<'a> {
    pub(super) clients: &'a Clients,
    pub(super) file: FileKey,
    pub(super) now: Timestamp,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A lock was denied: puts the waiter at the end, or keeps its place. If its last notice was in vain, it can get
    /// another.
    // NFS4-8881-9.6-a, NFS4-LIMIT-b
    pub(super) fn push(&mut self, at: &Place<'_>, holder: &Holder, wanted: (Range, Kind), wake: Arc<dyn Wake>) {
        let (range, kind) = wanted;
        let same = |waiter: &&mut Waiter| waiter.is(holder, range) && waiter.kind == kind;
        if let Some(waiter) = self.0.iter_mut().find(same) {
            // It asked after its notice, and was too late: it keeps its place for the next time.
            (waiter.asked, waiter.told, waiter.wake) = (at.now, None, wake);
        } else if self.0.len() < at.clients.limits.waiting_of_file && at.clients.wait(holder.client(), at.file) {
            let holder = holder.clone();
            self.0.push_back(Waiter { holder, range, kind, wake, asked: at.now, told: None });
        }
    }

    /// An owner does not wait for a range any more: it has the lock, or it has asked again without waiting (section
    /// 9.6).
    pub(super) fn remove(&mut self, at: &Place<'_>, holder: &Holder, range: Range) {
        self.keep(at, |waiter| !waiter.is(holder, range));
    }

    pub(super) fn remove_holder(&mut self, at: &Place<'_>, holder: &Holder) {
        self.keep(at, |waiter| waiter.holder != *holder);
    }

    pub(super) fn remove_client(&mut self, at: &Place<'_>, client: Client) {
        self.keep(at, |waiter| waiter.holder.client() != client);
    }

    pub(super) fn has_late(&self, now: Timestamp) -> bool {
        self.0.iter().any(|waiter| waiter.is_late(now))
    }

    fn keep(&mut self, at: &Place<'_>, keep: impl Fn(&Waiter) -> bool) {
        self.0.retain(|waiter| {
            let keeps = keep(waiter);
            if !keeps {
                at.clients.wait_no_more(waiter.holder.client(), at.file);
            }
            keeps
        });
    }

    /// The clients to notify now: those whose lock is free, unless an earlier client that is notified, now or before,
    /// would exclude them. An earlier client whose own lock is not free excludes nobody.
    // NFS4-8881-9.6-a, NFS4-8881-9.6-c
    pub(super) fn freed(&mut self, at: &Place<'_>, ranges: &Ranges) -> Wakes {
        self.keep(at, |waiter| !waiter.is_late(at.now));
        let (mut before, mut wakes) = (Index::default(), Wakes::new());
        for (number, waiter) in (1..).zip(&mut self.0) {
            let (range, kind) = (waiter.range, waiter.kind);
            if ranges.conflict(&waiter.holder, range, kind).is_some() || before.conflict(range, kind, number).is_some()
            {
                continue;
            }
            before.insert(range, kind, number);
            if waiter.told.is_none() {
                waiter.told = Some(at.now);
                wakes.push(waiter.wake.clone());
            }
        }
        wakes
    }
}

impl Waiter {
    fn is(&self, holder: &Holder, range: Range) -> bool {
        self.holder == *holder && self.range == range
    }

    fn is_late(&self, now: Timestamp) -> bool {
        now.since(self.asked) >= WAITING_TIME || self.told.is_some_and(|told| now.since(told) >= WOKEN_TIME)
    }
}
