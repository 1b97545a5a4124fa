//! Locks that hosts wait for, and when to ask for them again.
//!
//! A blocked lock stands in the queue of the table of claims, which notifies lockd when the lock may be free; lockd
//! then asks on behalf of the host. Where the table cannot know that, or has no place in its queue, lockd asks again
//! from time to time.

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
    /// In the host's own words, by which it recognises the lock.
    pub(super) lock: Lock<u64>,
    /// The version and the form of the call that asked for it: GRANTED uses the same.
    pub(super) version: u32,
    pub(super) form: Form,
    /// The server's address that the host has called.
    pub(super) local: IpAddr,
    pub(super) open: Arc<dyn OpenFile>,
    /// The host no longer waits for it, or has it.
    is_over: AtomicBool,
    pub(super) _place: Place,
}

/// A lock that a host wants, and all that is needed to wait for it.
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

/// The state of a waiting lock.
pub(super) enum Standing {
    /// Another owner has it. The server asks for it again at this time.
    Waiting(Timestamp),
    /// The server has taken it for the host, and is asking whether the host still wants it. To give it back, the server
    /// must know which locks the owner had in the range before.
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

/// Notifies lockd when a lock may be free. It keeps neither the server nor the waiting host alive.
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

/// When to ask again for a lock that is not free now.
pub(super) fn again(now: Timestamp, is_told: bool, waiting: usize) -> Timestamp {
    // If a host waits for more locks than the table has places for, some of them get no notice.
    now + if is_told && waiting <= MAX_WAITING_LOCKS { ASK_AGAIN } else { ASK_HOST_AGAIN }
}

impl Held {
    /// The locks whose time has come, at most this many. Each comes again later.
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
    /// Asks again for locks whose time has come. Begins with host `from`, so that the last hosts get their turn.
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
            // If another thread uses the host now, its locks come the next time.
            let due = host.held_now().map(|mut held| held.due(now, left)).unwrap_or_default();
            left -= due.len();
            due.into_iter().for_each(|waiter| self.grant_later(host.clone(), waiter));
        }
    }
}
