//! Locks that are waited for, and what of them is due.
//!
//! A blocked lock stands in the queue of the table of claims, which rings when it may be free; lockd asks then in the
//! host's stead. What the table cannot know of, or has no place for, is asked for again from time to time.

use super::{
    Lockd,
    hosts::{Held, Host, Waiting},
    limits::{ASK_AGAIN, ASK_HOST_AGAIN, MAX_ASKED_AT_ONCE},
    room::Place,
};
use crate::{
    OpenFile,
    claims::{FileKey, Holder, Kind, MAX_WAITING_LOCKS, Range, Wake},
    opened::Opened,
};
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::nlm::{Form, Lock};
use std::{
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

/// A lock that a host waits for.
pub(super) struct Waiter {
    pub(super) file: Opened,
    pub(super) key: FileKey,
    pub(super) holder: Holder,
    pub(super) range: Range,
    pub(super) kind: Kind,
    /// As it was asked for: the host knows it by these words.
    pub(super) lock: Lock<u64>,
    /// The version in which it was asked for, and the form of that call: the notice uses the same.
    pub(super) version: u32,
    pub(super) form: Form,
    /// The server's address that the host has called.
    pub(super) local: IpAddr,
    pub(super) open: Arc<dyn OpenFile>,
    /// The host waits for it no more, or has it.
    is_over: AtomicBool,
    pub(super) _place: Place,
}

/// A lock that a host wants, with what it takes to wait for it.
pub(super) struct Wish {
    pub(super) file: Opened,
    pub(super) key: FileKey,
    pub(super) holder: Holder,
    pub(super) range: Range,
    pub(super) kind: Kind,
    pub(super) lock: Lock<u64>,
    pub(super) version: u32,
    pub(super) form: Form,
    pub(super) local: IpAddr,
    pub(super) open: Arc<dyn OpenFile>,
}

/// How a waiting lock stands.
pub(super) enum Standing {
    /// Another owner has it. It is asked for again at this time.
    Waiting(Timestamp),
    /// It was taken for the host, which is asked whether it still wants it. To give it back one must know what the
    /// owner had of the range before.
    Granting { cookie: u64, before: Vec<(Range, Kind)> },
}

impl Waiter {
    pub(super) fn new(wish: &Wish, place: Place) -> Arc<Self> {
        Arc::new(Self {
            file: wish.file.clone(),
            key: wish.key,
            holder: wish.holder.clone(),
            range: wish.range,
            kind: wish.kind,
            lock: wish.lock.clone(),
            version: wish.version,
            form: wish.form,
            local: wish.local,
            open: wish.open.clone(),
            is_over: AtomicBool::new(false),
            _place: place,
        })
    }

    pub(super) fn is(&self, file: FileKey, holder: &Holder, range: Range) -> bool {
        self.key == file && self.range == range && self.holder == *holder
    }

    /// The host no longer waits for it.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// Rings when a lock may be free. It keeps neither the server nor the waiting host.
struct Bell {
    lockd: Weak<Lockd>,
    host: Weak<Host>,
    waiter: Weak<Waiter>,
}

impl Wake for Bell {
    fn wake(&self) {
        let (Some(lockd), Some(host), Some(waiter)) =
            (self.lockd.upgrade(), self.host.upgrade(), self.waiter.upgrade())
        else {
            return;
        };
        lockd.grant_later(host, waiter);
    }
}

// NLM-GRANT-a, NLM-BOTH-a
pub(super) fn bell(lockd: &Arc<Lockd>, host: &Arc<Host>, waiter: &Arc<Waiter>) -> Arc<dyn Wake> {
    let (lockd, host, waiter) = (Arc::downgrade(lockd), Arc::downgrade(host), Arc::downgrade(waiter));
    Arc::new(Bell { lockd, host, waiter })
}

/// When a lock is asked for again that could not be had now.
pub(super) fn again(now: Timestamp, is_told: bool, waiting: usize) -> Timestamp {
    // A host that waits for more locks than the table has places for does not get notices for all.
    now + if is_told && waiting <= MAX_WAITING_LOCKS { ASK_AGAIN } else { ASK_HOST_AGAIN }
}

impl Held {
    /// Those whose time has come, at most this many. Each comes again later.
    fn due(&mut self, now: Timestamp, most: usize) -> Vec<Arc<Waiter>> {
        let count = self.waiting.len();
        let mut due = Vec::new();
        for Waiting { waiter, standing } in &mut self.waiting {
            if let Standing::Waiting(next) = standing
                && due.len() < most
                && *next <= now
            {
                *next = again(now, true, count);
                due.push(waiter.clone());
            }
        }
        due
    }
}

impl Lockd {
    /// Asks again for locks whose time has come. `from` is the host to begin with, so that the last does not stay the
    /// last.
    pub(super) fn ask_again(self: &Arc<Self>, from: u64) {
        if self.waiting.used() == 0 {
            return;
        }
        let (now, mut hosts, mut left) = (self.clock.now(), self.hosts.all(), MAX_ASKED_AT_ONCE);
        if !hosts.is_empty() {
            let count = hosts.len();
            hosts.rotate_left((from % count as u64) as usize);
        }
        for host in hosts {
            // One that is in use is asked the next time.
            let due = host.held_now().map(|mut held| held.due(now, left)).unwrap_or_default();
            left -= due.len();
            due.into_iter().for_each(|waiter| self.grant_later(host.clone(), waiter));
        }
    }
}
