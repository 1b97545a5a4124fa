//! Counts what the server takes from clients that are away (because others want it, or because the courtesy is over),
//! and reports it to the operator.
//!
//! A client may lose much in little time, one file after the other. This module adds up what clients have lost since
//! the last report, and reports it at once or a minute after that report: a line for each of the clients that have lost
//! most, and one line for all others. Nothing here sleeps or fails.

use super::state::release::{Release, Released};
use crate::trouble::BETWEEN_WARNINGS;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::ClientId;
use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The most clients that get a line of their own in one report.
pub(super) const MAX_TOLD: usize = 8;

/// Opens, locks and delegations, in number.
type Numbers = [u64; 3];

/// What clients have lost.
#[derive(Default)]
pub(crate) struct Losses {
    totals: [AtomicU64; 3],
    untold: Mutex<Untold>,
}

#[derive(Default)]
struct Untold {
    last: Option<Timestamp>,
    of: HashMap<ClientId, Numbers>,
}

fn add(numbers: &mut Numbers, more: Numbers) {
    numbers.iter_mut().zip(more).for_each(|(number, more)| *number += more);
}

impl Losses {
    /// Clients that were away have lost these claims.
    pub(super) fn count<P>(&self, released: &[Release<P>]) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        for release in released {
            let (at, one) = match release.what {
                Released::Open(..) => (0, [1, 0, 0]),
                Released::Lock(_) => (1, [0, 1, 0]),
                Released::Delegation(_) => (2, [0, 0, 1]),
            };
            self.totals[at].fetch_add(1, Ordering::Relaxed);
            add(untold.of.entry(release.client).or_default(), one);
        }
    }

    /// How many opens, locks and delegations the server has taken since it started.
    pub(crate) fn totals(&self) -> Numbers {
        self.totals.each_ref().map(|total| total.load(Ordering::Relaxed))
    }

    /// Reports the losses since the last report, if it is time.
    pub(super) fn tell(&self, now: Timestamp) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        if untold.of.is_empty() || untold.last.is_some_and(|last| now < last + BETWEEN_WARNINGS) {
            return;
        }
        untold.last = Some(now);
        let mut clients: Vec<_> = std::mem::take(&mut untold.of).into_iter().collect();
        drop(untold);
        clients.sort_unstable_by_key(|(client, numbers)| (Reverse(numbers.iter().sum::<u64>()), *client));
        let others = clients.split_off(clients.len().min(MAX_TOLD));
        for (client, [opens, locks, delegations]) in clients {
            tracing::warn!(
                client = client.0,
                opens,
                locks,
                delegations,
                "a client was away for longer than its lease: what it held was taken from it"
            );
        }
        if !others.is_empty() {
            let (clients, mut numbers) = (others.len(), Numbers::default());
            others.into_iter().for_each(|(_, of_client)| add(&mut numbers, of_client));
            let [opens, locks, delegations] = numbers;
            tracing::warn!(
                clients,
                opens,
                locks,
                delegations,
                "further clients were away for longer than their leases: what they held was taken from them"
            );
        }
    }
}
