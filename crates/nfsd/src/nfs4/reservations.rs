//! The share reservations of opens in the table of claims, by stateid.
//!
//! An open has one guard, whatever number of OPENs it is the union of. The guard says at least what the open says, at
//! any moment: an OPEN claims before it is noted, and what is given up is noted first.

use super::{service::Pin, state::checked::Wanted, state::clients::Client};
use crate::claims::{Access, Deny, FileKey, Share};
use rpcrdma_nfs::v4::{StateId, StateIdOther};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

#[derive(Default)]
pub(crate) struct Reservations(Mutex<HashMap<StateIdOther, Share>>);

impl Reservations {
    fn lock(&self) -> MutexGuard<'_, HashMap<StateIdOther, Share>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An OPEN was noted under this stateid: its guard is kept as long as the open is.
    pub(super) fn keep(&self, client: &Client<Pin>, other: StateIdOther, guard: Share) {
        let mut guards = self.lock();
        let file = guard.file();
        match guards.remove(&other) {
            Some(mut known) => {
                known.merge(guard);
                guards.insert(other, known);
            }
            None => {
                guards.insert(other, guard);
            }
        }
        // It may have been closed or downgraded in between, when there was no guard to see it.
        Self::settle(&mut guards, client, file, other);
    }

    /// An open was downgraded.
    pub(super) fn downgraded(&self, client: &Client<Pin>, file: FileKey, other: StateIdOther) {
        Self::settle(&mut self.lock(), client, file, other);
    }

    /// Makes the guard say what the open says.
    fn settle(guards: &mut HashMap<StateIdOther, Share>, client: &Client<Pin>, file: FileKey, other: StateIdOther) {
        let Ok(open) = client.held.check(StateId { sequence: 0, other }, file, Wanted::Open) else {
            guards.remove(&other);
            return;
        };
        let access = Access::from_bits(open.share.access().into());
        let deny = Deny::from_bits(open.share.deny().into());
        if let (Some(guard), Some(access), Some(deny)) = (guards.get_mut(&other), access, deny) {
            // If the open says more, the guard of that OPEN is about to be merged.
            let _ = guard.downgrade(access, deny);
        }
    }

    /// An open has ended.
    pub(super) fn end(&self, other: StateIdOther) {
        self.lock().remove(&other);
    }
}
