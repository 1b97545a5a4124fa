//! The share reservations of opens in the table of claims, by stateid.
//!
//! An open has one guard, however many OPENs it unites. At any moment the guard covers at least the open: an OPEN
//! claims before its open is recorded, and a downgrade is recorded before the guard shrinks.

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

    /// An OPEN was recorded under this stateid: keeps its guard as long as the open exists.
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
        // The open may have been closed or downgraded in between, before the guard was here.
        Self::settle(&mut guards, client, file, other);
    }

    /// An open was downgraded.
    pub(super) fn downgraded(&self, client: &Client<Pin>, file: FileKey, other: StateIdOther) {
        Self::settle(&mut self.lock(), client, file, other);
    }

    /// Reduces the guard to the open's present modes.
    fn settle(guards: &mut HashMap<StateIdOther, Share>, client: &Client<Pin>, file: FileKey, other: StateIdOther) {
        let Ok(open) = client.held.check(StateId { sequence: 0, other }, file, Wanted::Open) else {
            guards.remove(&other);
            return;
        };
        let access = Access::from_bits(open.share.access().into());
        let deny = Deny::from_bits(open.share.deny().into());
        if let (Some(guard), Some(access), Some(deny)) = (guards.get_mut(&other), access, deny) {
            // If the open has more, the guard of another OPEN is about to be merged.
            let _ = guard.downgrade(access, deny);
        }
    }

    /// An open has ended.
    pub(super) fn end(&self, other: StateIdOther) {
        self.lock().remove(&other);
    }
}
