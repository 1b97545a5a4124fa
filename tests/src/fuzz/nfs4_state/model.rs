//! What version 4 has to answer, thought of without looking at how the server does it: two clients with a session each,
//! opens with shares, byte-range locks, leases, and what may be reclaimed after a restart. A question to it changes
//! nothing but what its answer says; `OK` is followed by what the operation does.

use super::world::LEASE;
use rpcrdma_nfs::v4::{ClientId, SessionId, StateId, StateIdOther, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Clients, files, owners of opens, owners of locks under each open, slots of a session.
pub(super) const CLIENTS: usize = 2;
pub(super) const FILES: usize = 2;
pub(super) const OWNERS: usize = 2;
pub(super) const LOCKERS: usize = 2;
pub(super) const SLOTS: usize = 2;
/// Bytes that ranges are told apart by: sixteen, and all behind them.
pub(super) const OCTETS: usize = 17;
/// The client of minor version 0, as far as grace periods go: it never says that it is done.
pub(super) const ZERO: usize = CLIENTS;
/// For how long a client that is not heard of keeps what nobody wants, in seconds, beside its lease.
pub(super) const COURTESY: u64 = 24 * 60 * 60;

/// An open owner's open of a file.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) id: StateId,
    /// The access and the denial of each OPEN that is in effect.
    pub(super) accesses: BTreeSet<u32>,
    pub(super) denials: BTreeSet<u32>,
    pub(super) locks: BTreeMap<usize, Lock>,
}

impl Open {
    pub(super) fn access(&self) -> u32 {
        self.accesses.iter().fold(0, |all, access| all | access)
    }

    pub(super) fn denial(&self) -> u32 {
        self.denials.iter().fold(0, |all, denial| all | denial)
    }

    /// Whether one OPEN asked for at least this.
    pub(super) fn allows(&self, access: u32) -> bool {
        self.accesses.iter().any(|had| had & access == access)
    }
}

/// A lock owner's ranges under an open: whether each byte is locked, and for writing.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) id: StateId,
    pub(super) octets: [Option<bool>; OCTETS],
}

/// What a slot has executed last.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    pub(super) sequence: u32,
    pub(super) last: Option<(bytes::Bytes, bool, bytes::Bytes)>,
}

/// A client's delegation of the file that is delegated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delegated {
    pub(super) id: StateId,
    pub(super) writes: bool,
    /// When somebody has wanted it first.
    pub(super) recalled: Option<u64>,
}

/// A client that a session has confirmed.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) id: ClientId,
    pub(super) incarnation: u64,
    /// The number of its next CREATE_SESSION.
    pub(super) creation: u32,
    pub(super) session: Option<SessionId>,
    pub(super) slots: [Slot; SLOTS],
    pub(super) renewed: u64,
    pub(super) is_complete: bool,
    pub(super) is_recorded: bool,
    pub(super) opens: BTreeMap<(usize, usize), Open>,
    /// What was taken away and not freed: of locks under which open.
    pub(super) lost: BTreeMap<[u8; 12], Option<[u8; 12]>>,
    pub(super) delegation: Option<Delegated>,
    /// Delegations that it did not return in time, and has not freed.
    pub(super) not_returned: BTreeSet<[u8; 12]>,
}

/// Who stands in the way.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    Free,
    /// Clients whose leases are over lose what they have on the file.
    Taken(Vec<usize>),
    /// Somebody who is there. These may have lost what they had, or not.
    Denied(Vec<usize>),
}

/// All of it.
#[derive(Default)]
pub(super) struct Model {
    pub(super) now: u64,
    pub(super) clients: [Option<Known>; CLIENTS],
    /// Who may reclaim after a restart, and whether something was taken from it.
    pub(super) journal: BTreeMap<usize, bool>,
    past: BTreeMap<usize, bool>,
    awaited: BTreeSet<usize>,
    /// Who has reclaimed something of those that never say that they are done.
    present: BTreeSet<usize>,
    pub(super) is_grace: bool,
    until: u64,
}

impl Model {
    pub(super) fn known(&mut self, client: usize) -> &mut Known {
        self.clients[client].as_mut().expect("the caller has looked")
    }

    pub(super) fn is_live(&self, client: usize) -> bool {
        self.clients[client].as_ref().is_some_and(|known| self.now - known.renewed <= LEASE)
    }

    /// What becomes of clients in the way of one that asks now.
    fn way(&self, asker: usize, in_the_way: &BTreeSet<usize>) -> Way {
        let there = |client: &usize| *client == asker || self.is_live(*client);
        let dead: Vec<_> = in_the_way.iter().copied().filter(|client| !there(client)).collect();
        match (in_the_way.iter().any(there), dead.is_empty()) {
            (true, _) => Way::Denied(dead),
            (false, true) => Way::Free,
            (false, false) => Way::Taken(dead),
        }
    }

    /// The opens of a file, with their clients and owners.
    fn opens(&self, file: usize) -> Vec<(usize, usize, &Open)> {
        let mut found = Vec::new();
        for (client, known) in self.clients.iter().enumerate() {
            let Some(known) = known else { continue };
            let of_file = known.opens.iter().filter(|((of, _), _)| *of == file);
            found.extend(of_file.map(|((_, owner), open)| (client, *owner, open)));
        }
        found
    }

    /// Of an OPEN: RFC 8881 section 9.7. The owner's own opens are no exception.
    pub(super) fn shares(&self, asker: usize, file: usize, access: u32, deny: u32) -> Way {
        let excludes = |open: &Open| open.denial() & access != 0 || open.access() & deny != 0;
        let clients =
            self.opens(file).into_iter().filter(|(_, _, open)| excludes(open)).map(|(client, ..)| client).collect();
        self.way(asker, &clients)
    }

    /// Of reading or writing without an open that allows it. `own` is whose denial does not count.
    pub(super) fn denials(&self, asker: usize, file: usize, access: u32, own: Option<usize>) -> Way {
        let others = self.opens(file).into_iter().filter(|(client, owner, _)| (*client, Some(*owner)) != (asker, own));
        let clients = others.filter(|(.., open)| open.denial() & access != 0).map(|(client, ..)| client).collect();
        self.way(asker, &clients)
    }

    /// Of a LOCK or LOCKT: whoever else has a byte of it, one of the two for writing.
    pub(super) fn locks(&self, asker: (usize, usize, usize), file: usize, range: &[usize], writes: bool) -> Way {
        let mut clients = BTreeSet::new();
        for (client, owner, open) in self.opens(file) {
            let locks = open.locks.iter().filter(|(locker, _)| (client, owner, **locker) != asker);
            let excludes = |lock: &Lock| range.iter().any(|at| lock.octets[*at].is_some_and(|write| write || writes));
            if locks.map(|(_, lock)| lock).any(excludes) {
                clients.insert(client);
            }
        }
        self.way(asker.0, &clients)
    }

    /// A client loses what it has on a file.
    pub(super) fn take(&mut self, client: usize, file: usize) {
        let known = self.known(client);
        let (gone, left): (BTreeMap<_, _>, _) =
            std::mem::take(&mut known.opens).into_iter().partition(|((of, _), _)| *of == file);
        known.opens = left;
        for open in gone.into_values() {
            known.lost.insert(open.id.other.0, None);
            known.lost.extend(open.locks.values().map(|lock| (lock.id.other.0, Some(open.id.other.0))));
        }
        self.journal.insert(client, true);
    }

    /// A client whose lease was over has lost its delegation to who has wanted the file.
    pub(super) fn lose_delegation(&mut self, client: usize) {
        let known = self.known(client);
        if let Some(held) = known.delegation.take() {
            known.lost.insert(held.id.other.0, None);
            self.journal.insert(client, true);
        }
    }

    /// What was not returned for a lease is taken away.
    fn revoke(&mut self) {
        let now = self.now;
        for client in 0..CLIENTS {
            let Some(known) = &mut self.clients[client] else { continue };
            let is_due = |held: &Delegated| held.recalled.is_some_and(|since| now - since >= LEASE);
            if let Some(held) = known.delegation.take_if(|held| is_due(held)) {
                known.not_returned.insert(held.id.other.0);
                self.journal.insert(client, true);
            }
        }
    }

    /// Whether a client may have what it did not hold before.
    pub(super) fn fresh(&self, client: usize) -> Status {
        let is_complete = self.clients[client].as_ref().is_some_and(|known| known.is_complete);
        if self.is_grace || !is_complete { Status::GRACE } else { Status::OK }
    }

    /// Whether it may reclaim.
    pub(super) fn reclaim(&self, client: usize) -> Status {
        let is_complete = self.clients.get(client).and_then(Option::as_ref).is_some_and(|known| known.is_complete);
        match self.past.get(&client) {
            _ if !self.is_grace || is_complete => Status::NO_GRACE,
            None => Status::RECLAIM_BAD,
            Some(true) => Status::NO_GRACE,
            Some(false) => Status::OK,
        }
    }

    /// RECLAIM_COMPLETE.
    pub(super) fn complete(&mut self, client: usize) -> Status {
        let known = self.known(client);
        if known.is_complete {
            return Status::COMPLETE_ALREADY;
        }
        (known.is_complete, known.is_recorded) = (true, true);
        let has_losses = !(known.lost.is_empty() && known.not_returned.is_empty());
        self.journal.insert(client, has_losses);
        self.awaited.remove(&client);
        self.end_grace();
        Status::OK
    }

    fn end_grace(&mut self) {
        if !self.is_grace || !(self.awaited.is_empty() || self.now >= self.until) {
            return;
        }
        for (client, revoked) in std::mem::take(&mut self.past) {
            if self.journal.get(&client) == Some(&revoked)
                && (revoked || self.awaited.contains(&client) && !self.present.contains(&client))
            {
                self.journal.remove(&client);
            }
        }
        self.awaited.clear();
        self.present.clear();
        self.is_grace = false;
    }

    /// A client that never says that it is done has reclaimed something. To be known again is not enough: who reclaims
    /// nothing holds nothing that it could reclaim the next time, while others get it (RFC 7530 section 9.6.3.4).
    pub(super) fn reclaimed(&mut self, client: usize) {
        self.present.insert(client);
    }

    /// A client has freed all that it lost, or holds nothing and is no more.
    pub(super) fn restore(&mut self, client: usize) {
        if let Some(revoked) = self.journal.get_mut(&client) {
            *revoked = false;
        }
    }

    /// Time has passed, and what is due is done.
    pub(super) fn passed(&mut self, now: u64) {
        self.now = now;
        self.end_grace();
        for client in 0..CLIENTS {
            let is_gone = |known: &Known| now - known.renewed > LEASE + COURTESY;
            if self.clients[client].as_ref().is_some_and(is_gone) {
                self.clients[client] = None;
                self.journal.remove(&client);
            }
        }
        self.revoke();
    }

    /// The server has restarted.
    pub(super) fn restarted(&mut self) {
        self.clients = Default::default();
        self.past = self.journal.clone();
        self.awaited = self.past.iter().filter(|(_, revoked)| !**revoked).map(|(client, _)| *client).collect();
        self.is_grace = !self.awaited.is_empty();
        self.present.clear();
        self.until = self.now + LEASE;
    }

    /// What a stateid is worth, whatever it is for.
    pub(super) fn state(&self, client: usize, id: StateId) -> Status {
        let Some(known) = &self.clients[client] else { return Status::BAD_STATEID };
        if known.lost.contains_key(&id.other.0) {
            return Status::EXPIRED;
        }
        if known.not_returned.contains(&id.other.0) {
            return Status::DELEG_REVOKED;
        }
        let delegation = known.delegation.map(|held| held.id);
        let ids =
            known.opens.values().flat_map(|open| [open.id].into_iter().chain(open.locks.values().map(|lock| lock.id)));
        match ids.into_iter().chain(delegation).find(|there| there.other == id.other) {
            None => Status::BAD_STATEID,
            Some(there) => compare(id.sequence, there.sequence),
        }
    }

    /// All stateids of a client, those that were taken away too.
    pub(super) fn states(&self, client: usize) -> Vec<StateId> {
        let Some(known) = &self.clients[client] else { return Vec::new() };
        let lost = known
            .lost
            .keys()
            .chain(&known.not_returned)
            .map(|other| StateId { sequence: 1, other: StateIdOther(*other) });
        let held = known.opens.values();
        let held = held.flat_map(|open| [open.id].into_iter().chain(open.locks.values().map(|lock| lock.id)));
        lost.chain(held).chain(known.delegation.map(|held| held.id)).collect()
    }
}

/// A stateid's number against the present one (RFC 8881 section 8.2.2): 0 is whatever it is now.
fn compare(told: u32, present: u32) -> Status {
    match told {
        0 => Status::OK,
        told if told == present => Status::OK,
        told if told < present => Status::OLD_STATEID,
        _ => Status::BAD_STATEID,
    }
}
