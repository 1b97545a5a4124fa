//! Client records, and the table of them (RFC 8881 section 2.4).
//!
//! An owner has at most two records: one that is confirmed, by its first session or by SETCLIENTID_CONFIRM, and a later
//! one that is not. The table has one lock, which SEQUENCE does not take.

use super::{
    super::callback::Notices,
    clients40::Zero,
    copies::Copies,
    exchange::ExchangeId,
    held::{Held, Totals},
    lease::Lease,
    limits::Limits,
    sessions::Creation,
};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{Bitmap, ClientId, Op, Verifier};
use rpcrdma_oncrpc::ClientNetwork;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// The caller, from the call's credential, before squashing: two equal principals are the same caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Principal {
    /// The RPC authentication flavour.
    pub(crate) flavor: u32,
    /// The user, by a number with a meaning within the flavour.
    pub(crate) user: u64,
}

/// A client record.
pub(crate) struct Client<P> {
    id: ClientId,
    owner: Bytes,
    verifier: Verifier,
    principal: Principal,
    network: ClientNetwork,
    /// The operations that only the creator of the record may send, with their integrity protected.
    machine: Option<Bitmap>,
    /// Its lease.
    pub(crate) lease: Lease,
    /// What it holds.
    pub(crate) held: Held<P>,
    /// Its copies that go on after COPY's reply.
    pub(crate) copies: Copies,
    creation: Mutex<Creation>,
    is_complete: AtomicBool,
    is_recorded: AtomicBool,
    is_unwanted: AtomicBool,
    /// How many of its sessions the server can call over, and whether there ever was one.
    pub(super) backs: AtomicUsize,
    pub(super) had_back: AtomicBool,
    /// Notices that locks may be free.
    pub(crate) notices: Notices,
    /// What a client of minor version 0 has in addition.
    pub(super) zero: Option<Box<Zero>>,
}

impl<P> Client<P> {
    /// An unconfirmed record.
    pub(super) fn new(
        id: ClientId,
        call: &ExchangeId,
        now: Timestamp,
        limits: &Arc<Limits>,
        totals: &Arc<Totals>,
    ) -> Self {
        Self {
            id,
            // Copied: a decoder returns a part of a whole message.
            owner: Bytes::copy_from_slice(&call.owner),
            verifier: call.verifier,
            principal: call.principal,
            network: call.network,
            machine: call.machine,
            lease: Lease::new(now),
            held: Held::new(id, limits.clone(), totals.clone()).of_minor(call.minor),
            copies: Copies::default(),
            creation: Mutex::default(),
            is_complete: AtomicBool::new(false),
            is_recorded: AtomicBool::new(false),
            is_unwanted: AtomicBool::new(false),
            backs: AtomicUsize::new(0),
            had_back: AtomicBool::new(false),
            notices: Notices::default(),
            zero: (call.minor == 0).then(|| Box::new(Zero::new(limits, totals))),
        }
    }

    /// Its id.
    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    /// The name that it gives itself.
    pub(crate) fn owner(&self) -> &Bytes {
        &self.owner
    }

    /// The verifier of its incarnation.
    pub(super) fn verifier(&self) -> Verifier {
        self.verifier
    }

    /// The principal that made the record.
    pub(crate) fn principal(&self) -> Principal {
        self.principal
    }

    /// The operations that are reserved for its machine, if it has asked for that.
    pub(super) fn machine(&self) -> Option<Bitmap> {
        self.machine
    }

    /// Whether an operation is reserved for its machine.
    pub(crate) fn keeps_for_machine(&self, op: Op) -> bool {
        self.machine.is_some_and(|kept| kept.contains(op as u32))
    }

    /// Whether it has sent RECLAIM_COMPLETE.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    pub(super) fn set_complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.is_recorded.load(Ordering::Acquire)
    }

    pub(super) fn set_recorded(&self) {
        self.is_recorded.store(true, Ordering::Release);
    }

    pub(super) fn has_losses(&self) -> bool {
        self.held.flags() != 0
    }

    pub(super) fn creation(&self) -> MutexGuard<'_, Creation> {
        self.creation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network from which it calls, for limits.
    pub(super) fn network(&self) -> ClientNetwork {
        self.network
    }

    /// Whether it has sessions or holds anything.
    pub(super) fn is_in_use(&self) -> bool {
        !self.creation().sessions.is_empty() || !self.held.is_empty()
    }

    /// Its place is needed: the next [`State::sweep`](super::State::sweep) removes it if its lease is over.
    pub(super) fn give_up(&self) {
        self.is_unwanted.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_unwanted(&self) -> bool {
        self.is_unwanted.load(Ordering::Relaxed)
    }
}

impl<P> std::fmt::Debug for Client<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id).field("principal", &self.principal).finish_non_exhaustive()
    }
}

/// All records.
pub(super) struct Table<P> {
    pub(super) by_id: HashMap<ClientId, Arc<Client<P>>>,
    confirmed: HashMap<Bytes, ClientId>,
    unconfirmed: HashMap<Bytes, ClientId>,
    of_network: HashMap<ClientNetwork, usize>,
    last: u32,
}

impl<P> Default for Table<P> {
    fn default() -> Self {
        Self {
            by_id: HashMap::new(),
            confirmed: HashMap::new(),
            unconfirmed: HashMap::new(),
            of_network: HashMap::new(),
            last: 0,
        }
    }
}

impl<P> Table<P> {
    /// Whether the record was confirmed.
    pub(super) fn is_confirmed(&self, client: &Client<P>) -> bool {
        self.confirmed.get(&client.owner) == Some(&client.id)
    }

    /// The confirmed record of an owner.
    pub(super) fn confirmed(&self, owner: &Bytes) -> Option<Arc<Client<P>>> {
        self.by_id.get(self.confirmed.get(owner)?).cloned()
    }

    /// Makes this record the owner's confirmed one. Returns the record that it replaces.
    pub(super) fn confirm(&mut self, client: &Client<P>) -> Option<Arc<Client<P>>> {
        let former = self.confirmed(&client.owner);
        if let Some(former) = &former {
            self.remove(former);
            if former.is_recorded() {
                // The journal has the owner, so it has this record.
                client.set_recorded();
            }
        }
        self.unconfirmed.remove(&client.owner);
        self.confirmed.insert(client.owner.clone(), client.id);
        former
    }

    /// An id of this boot that no record has.
    pub(super) fn next_id(&mut self, epoch: u32) -> ClientId {
        loop {
            self.last = self.last.wrapping_add(1);
            let id = ClientId(u64::from(epoch) << 32 | u64::from(self.last));
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }

    /// Adds an unconfirmed record. The owner must have no other unconfirmed one.
    pub(super) fn insert(&mut self, client: Client<P>) {
        self.unconfirmed.insert(client.owner.clone(), client.id);
        *self.of_network.entry(client.network).or_default() += 1;
        self.by_id.insert(client.id, Arc::new(client));
    }

    /// Removes a record, if it exists.
    pub(super) fn remove(&mut self, client: &Client<P>) {
        if self.by_id.remove(&client.id).is_none() {
            return;
        }
        for names in [&mut self.confirmed, &mut self.unconfirmed] {
            if names.get(&client.owner) == Some(&client.id) {
                names.remove(&client.owner);
            }
        }
        if let Some(count) = self.of_network.get_mut(&client.network) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of_network.remove(&client.network);
            }
        }
    }

    /// Removes the unconfirmed record of an owner, if there is one.
    pub(super) fn remove_unconfirmed(&mut self, owner: &Bytes) {
        let client = self.unconfirmed.get(owner).and_then(|id| self.by_id.get(id)).cloned();
        if let Some(client) = client {
            self.remove(&client);
        }
    }

    /// How many records an address has.
    pub(super) fn count_of(&self, network: ClientNetwork) -> usize {
        self.of_network.get(&network).copied().unwrap_or(0)
    }

    /// How many records are unconfirmed.
    pub(super) fn unconfirmed(&self) -> usize {
        self.unconfirmed.len()
    }

    /// The oldest unconfirmed record: of this network, or of the network that has most records.
    pub(super) fn oldest_unconfirmed(&self, network: Option<ClientNetwork>) -> Option<Arc<Client<P>>> {
        let all = self.unconfirmed.values().filter_map(|id| self.by_id.get(id));
        let fitting = all.filter(|client| network.is_none_or(|network| client.network == network));
        let key = |client: &&Arc<Client<P>>| {
            (std::cmp::Reverse(self.count_of(client.network)), client.lease.renewed(), client.id)
        };
        fitting.min_by_key(key).cloned()
    }
}
