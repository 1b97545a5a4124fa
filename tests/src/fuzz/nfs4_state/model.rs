//! What a server of version 4 has to answer, written without looking at the server's code: two clients with a session
//! each, opens with shares, byte-range locks, leases, and reclaims after a restart. A question to the model changes
//! only what its answer says; after `OK` the caller updates the model for the operation.

use super::world::LEASE;
use rpcrdma_nfs::v4::{ClientId, SessionId, StateId, StateIdOther, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Clients, files, owners of opens, owners of locks under each open, slots of a session.
pub(super) const CLIENTS: usize = 2;
pub(super) const FILES: usize = 2;
pub(super) const OWNERS: usize = 2;
pub(super) const LOCKERS: usize = 2;
pub(super) const SLOTS: usize = 2;
/// The units of ranges: sixteen single bytes, and all bytes behind them as one.
pub(super) const OCTETS: usize = 17;
/// The client of minor version 0, for grace periods only: it never sends RECLAIM_COMPLETE.
pub(super) const ZERO: usize = CLIENTS;
/// How long, beyond its lease, a silent client keeps what no other client wants, in seconds.
pub(super) const COURTESY: u64 = 24 * 60 * 60;

/// An open owner's open of a file.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) id: StateId,
    /// The access and the denial of each OPEN in effect.
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

/// The last call that a slot has executed.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    pub(super) sequence: u32,
    pub(super) last: Option<(bytes::Bytes, bool, bytes::Bytes)>,
}

/// A client's delegation of the one delegated file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delegated {
    pub(super) id: StateId,
    pub(super) writes: bool,
    /// When another client first wanted the file.
    pub(super) recalled: Option<u64>,
}

/// A client that a session has confirmed.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) id: ClientId,
    pub(super) incarnation: u64,
    /// The sequence number of its next CREATE_SESSION.
    pub(super) creation: u32,
    pub(super) session: Option<SessionId>,
    pub(super) slots: [Slot; SLOTS],
    pub(super) renewed: u64,
    pub(super) is_complete: bool,
    pub(super) is_recorded: bool,
    pub(super) opens: BTreeMap<(usize, usize), Open>,
    /// States that the server took away and the client has not freed; for locks, the open that they were under.
    pub(super) lost: BTreeMap<[u8; 12], Option<[u8; 12]>>,
    pub(super) delegation: Option<Delegated>,
    /// Delegations that the client did not return in time, and has not freed.
    pub(super) not_returned: BTreeSet<[u8; 12]>,
}

/// Whether other clients prevent an operation, and which.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    Free,
    /// These clients, whose leases are over, lose their state of the file.
    Taken(Vec<usize>),
    /// A live client is in the way. These other clients may have lost their state, or not.
    Denied(Vec<usize>),
}

/// The whole model.
#[derive(Default)]
pub(super) struct Model {
    pub(super) now: u64,
    pub(super) clients: [Option<Known>; CLIENTS],
    /// The clients that may reclaim after a restart, and whether the server has taken something from each.
    pub(super) journal: BTreeMap<usize, bool>,
    past: BTreeMap<usize, bool>,
    awaited: BTreeSet<usize>,
    /// The clients that have reclaimed something, among those that never send RECLAIM_COMPLETE.
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

    /// Sorts the clients in the way of the asking client: live ones deny the request, expired ones lose their state.
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

    /// The opens that prevent an OPEN (RFC 8881 section 9.7). The owner's own opens count as well.
    pub(super) fn shares(&self, asker: usize, file: usize, access: u32, deny: u32) -> Way {
        let excludes = |open: &Open| open.denial() & access != 0 || open.access() & deny != 0;
        let clients =
            self.opens(file).into_iter().filter(|(_, _, open)| excludes(open)).map(|(client, ..)| client).collect();
        self.way(asker, &clients)
    }

    /// The opens that prevent reading or writing without an open that allows it. The denial of the owner `own` does not
    /// count.
    pub(super) fn denials(&self, asker: usize, file: usize, access: u32, own: Option<usize>) -> Way {
        let others = self.opens(file).into_iter().filter(|(client, owner, _)| (*client, Some(*owner)) != (asker, own));
        let clients = others.filter(|(.., open)| open.denial() & access != 0).map(|(client, ..)| client).collect();
        self.way(asker, &clients)
    }

    /// The locks that prevent a LOCK or LOCKT: locks of others on one of the bytes, if one of the two locks is for
    /// writing.
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

    /// A client loses its state of a file.
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

    /// A client whose lease was over has lost its delegation, because another client wanted the file.
    pub(super) fn lose_delegation(&mut self, client: usize) {
        let known = self.known(client);
        if let Some(held) = known.delegation.take() {
            known.lost.insert(held.id.other.0, None);
            self.journal.insert(client, true);
        }
    }

    /// Takes away delegations that were not returned for a lease.
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

    /// Whether a client may get new state.
    pub(super) fn fresh(&self, client: usize) -> Status {
        let is_complete = self.clients[client].as_ref().is_some_and(|known| known.is_complete);
        if self.is_grace || !is_complete { Status::GRACE } else { Status::OK }
    }

    /// Whether a client may reclaim.
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

    /// A client that never sends RECLAIM_COMPLETE has reclaimed something. Being known again is not enough: a client
    /// that reclaims nothing holds nothing that it could reclaim the next time, and others may have got it meanwhile
    /// (RFC 7530 section 9.6.3.4).
    pub(super) fn reclaimed(&mut self, client: usize) {
        self.present.insert(client);
    }

    /// A client has freed everything that it lost, or holds nothing and has ended.
    pub(super) fn restore(&mut self, client: usize) {
        if let Some(revoked) = self.journal.get_mut(&client) {
            *revoked = false;
        }
    }

    /// Time has passed: does what is due.
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

    /// The status of a stateid of any kind.
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

    /// All stateids of a client, including those that were taken away.
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

/// Compares a stateid's number with the present one (RFC 8881 section 8.2.2): 0 stands for the present one.
fn compare(told: u32, present: u32) -> Status {
    match told {
        0 => Status::OK,
        told if told == present => Status::OK,
        told if told < present => Status::OLD_STATEID,
        _ => Status::BAD_STATEID,
    }
}
