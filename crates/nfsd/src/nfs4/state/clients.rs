//! Client records: who they are, and EXCHANGE_ID and DESTROY_CLIENTID (RFC 8881 sections 2.4, 18.35, 18.50).
//!
//! There are at most two records of an owner: one that a session has confirmed, and a later one that none has. The table of records
//! has one lock, which SEQUENCE does not take. Records that nobody confirmed go when there are too many of them or of all, the
//! oldest of the address that has most; then those whose lease is over and that hold nothing. One that holds something is marked,
//! and goes with the next [`State::sweep`]; one whose lease runs never does.

use super::{
    State,
    held::{Held, Release},
    lease::{Lease, Standing},
    sessions::Creation,
};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{ClientId, SessionId, Status, Verifier};
use rpcrdma_oncrpc::ClientNetwork;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// Flags of EXCHANGE_ID (`EXCHGID4_FLAG_*`).
pub(crate) mod exchange_flags {
    /// The client wants no more than to change its own record.
    pub(crate) const UPDATE: u32 = 0x4000_0000;
    /// The record is one that a session has confirmed.
    pub(crate) const CONFIRMED: u32 = 0x8000_0000;
    /// The server has no layouts.
    pub(crate) const NON_PNFS: u32 = 0x0001_0000;
    /// All that a client may set: moved file systems, fencing, binding to principals, uses of pNFS, and an update.
    pub(super) const ASKABLE: u32 = 0x0007_0107 | UPDATE;
}

/// Who calls, as the call says, before any squashing: two of the same are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Principal {
    /// The RPC authentication flavour.
    pub(crate) flavor: u32,
    /// The user, by a number that means something within the flavour.
    pub(crate) user: u64,
}

/// The arguments of EXCHANGE_ID, and who sent it.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeId {
    /// `co_ownerid`: at most 1,024 octets, as the decoder sees to.
    pub(crate) owner: Bytes,
    /// `co_verifier`.
    pub(crate) verifier: Verifier,
    /// `eia_flags`.
    pub(crate) flags: u32,
    /// Who calls.
    pub(crate) principal: Principal,
    /// From where, as far as limits go.
    pub(crate) network: ClientNetwork,
}

/// What EXCHANGE_ID answers, beside the [`Identity`](super::Identity) of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchanged {
    /// `eir_clientid`.
    pub(crate) client: ClientId,
    /// `eir_sequenceid`: of the first CREATE_SESSION.
    pub(crate) sequence: u32,
    /// `eir_flags`.
    pub(crate) flags: u32,
}

/// A client record.
pub(crate) struct Client<P> {
    id: ClientId,
    owner: Bytes,
    verifier: Verifier,
    principal: Principal,
    network: ClientNetwork,
    /// Its lease.
    pub(crate) lease: Lease,
    /// What it holds.
    pub(crate) held: Held<P>,
    pub(super) creation: Mutex<Creation>,
    is_complete: AtomicBool,
    is_recorded: AtomicBool,
    is_unwanted: AtomicBool,
    /// Its sessions that the server can call over, and whether there ever was one.
    pub(super) backs: AtomicUsize,
    pub(super) had_back: AtomicBool,
}

impl<P> Client<P> {
    /// Its id.
    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    /// What it calls itself.
    pub(crate) fn owner(&self) -> &Bytes {
        &self.owner
    }

    /// Who made the record.
    pub(crate) fn principal(&self) -> Principal {
        self.principal
    }

    /// Whether it has sent RECLAIM_COMPLETE.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    pub(super) fn set_complete(&self) -> bool {
        !self.is_complete.swap(true, Ordering::AcqRel)
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

    /// Whether it has sessions or holds anything.
    fn is_in_use(&self) -> bool {
        !self.creation().sessions.is_empty() || !self.held.is_empty()
    }

    /// The next [`State::sweep`] takes it if its lease is over, since its place is wanted.
    fn give_up(&self) {
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
    pub(super) fn is_confirmed(&self, client: &Client<P>) -> bool {
        self.confirmed.get(&client.owner) == Some(&client.id)
    }

    fn confirmed(&self, owner: &Bytes) -> Option<Arc<Client<P>>> {
        self.by_id.get(self.confirmed.get(owner)?).cloned()
    }

    /// The record of an owner becomes the confirmed one. Gives the one that it replaces.
    pub(super) fn confirm(&mut self, client: &Client<P>) -> Option<Arc<Client<P>>> {
        let former = self.confirmed(&client.owner);
        if let Some(former) = &former {
            self.remove(former);
            if former.is_recorded() {
                // It is the owner that is on record.
                client.set_recorded();
            }
        }
        self.unconfirmed.remove(&client.owner);
        self.confirmed.insert(client.owner.clone(), client.id);
        former
    }

    /// The confirmed record that [`confirm`](Self::confirm) would replace.
    pub(super) fn former(&self, client: &Client<P>) -> Option<Arc<Client<P>>> {
        self.confirmed(&client.owner)
    }

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

    fn remove_unconfirmed(&mut self, owner: &Bytes) {
        let client = self.unconfirmed.get(owner).and_then(|id| self.by_id.get(id)).cloned();
        if let Some(client) = client {
            self.remove(&client);
        }
    }

    fn count_of(&self, network: ClientNetwork) -> usize {
        self.of_network.get(&network).copied().unwrap_or(0)
    }

    /// The oldest record that nobody confirmed: of an address, or of the one that has most of all records.
    fn oldest_unconfirmed(&self, network: Option<ClientNetwork>) -> Option<Arc<Client<P>>> {
        let all = self.unconfirmed.values().filter_map(|id| self.by_id.get(id));
        let fitting = all.filter(|client| network.is_none_or(|network| client.network == network));
        let key = |client: &&Arc<Client<P>>| {
            (std::cmp::Reverse(self.count_of(client.network)), client.lease.renewed(), client.id)
        };
        fitting.min_by_key(key).cloned()
    }
}

impl<P> State<P> {
    pub(super) fn table(&self) -> MutexGuard<'_, Table<P>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of a client id.
    ///
    /// # Errors
    /// STALE_CLIENTID if there is none.
    pub(crate) fn client(&self, id: ClientId) -> Result<Arc<Client<P>>, Status> {
        self.table().by_id.get(&id).cloned().ok_or(Status::STALE_CLIENTID)
    }

    /// EXCHANGE_ID.
    ///
    /// # Errors
    /// INVAL for flags that a client may not set, CLID_INUSE if the owner is another principal's, NOENT, NOT_SAME and PERM for updates
    /// of what is not there, not of this incarnation or not the caller's, and DELAY if there are too many clients.
    pub(crate) fn exchange_id(&self, call: &ExchangeId, now: Timestamp) -> Result<Exchanged, Status> {
        if call.flags & !exchange_flags::ASKABLE != 0 {
            return Err(Status::INVAL);
        }
        let is_update = call.flags & exchange_flags::UPDATE != 0;
        let mut table = self.table();
        let confirmed = table.confirmed(&call.owner);
        let told = |client: &Client<P>| Exchanged {
            client: client.id,
            sequence: client.creation().next(),
            flags: exchange_flags::NON_PNFS | exchange_flags::CONFIRMED,
        };
        // The cases are numbered as in RFC 8881 section 18.35.4.
        match confirmed {
            // 7
            None if is_update => return Err(Status::NOENT),
            // 8
            Some(client) if is_update && client.verifier != call.verifier => return Err(Status::NOT_SAME),
            // 9
            Some(client) if is_update && client.principal != call.principal => return Err(Status::PERM),
            // 6: nothing of what may be changed is kept.
            Some(client) if is_update => return Ok(told(&client)),
            // 3
            Some(client) if client.principal != call.principal => self.displace(&mut table, &client, now)?,
            // 2
            Some(client) if client.verifier == call.verifier => {
                table.remove_unconfirmed(&call.owner);
                return Ok(told(&client));
            }
            // After a restart the journal stands for the record.
            None if self.recovery.is_of_another(&call.owner, call.principal) => return Err(Status::CLID_INUSE),
            // 5, and 1
            Some(_) | None => {}
        }
        // 4
        table.remove_unconfirmed(&call.owner);
        let client = self.add(&mut table, call, now)?;
        Ok(Exchanged { client, sequence: 1, flags: exchange_flags::NON_PNFS })
    }

    /// Another principal wants the owner of a confirmed record. Sessions count as state: who has one uses the record.
    fn displace(&self, table: &mut Table<P>, client: &Client<P>, now: Timestamp) -> Result<(), Status> {
        let is_over = client.lease.standing(now, &self.limits) != Standing::Live;
        match (client.is_in_use(), is_over) {
            (true, false) => Err(Status::CLID_INUSE),
            (true, true) if !client.held.is_empty() => {
                // Others may get what it held once the journal says so.
                client.give_up();
                Err(Status::DELAY)
            }
            _ => self.drop_idle(table, client),
        }
    }

    /// Removes a client that holds nothing, with its sessions, and forgets it in the journal.
    ///
    /// # Errors
    /// DELAY if a call of it has got something in this moment.
    fn drop_idle(&self, table: &mut Table<P>, client: &Client<P>) -> Result<(), Status> {
        if !client.held.end_if_empty() {
            return Err(Status::DELAY);
        }
        table.remove(client);
        client.lease.end();
        self.end_sessions(client);
        if client.is_recorded() {
            self.recovery.forget(&client.owner);
        }
        Ok(())
    }

    fn add(&self, table: &mut Table<P>, call: &ExchangeId, now: Timestamp) -> Result<ClientId, Status> {
        while table.unconfirmed.len() >= self.limits.unconfirmed {
            let Some(oldest) = table.oldest_unconfirmed(None) else { return Err(Status::DELAY) };
            table.remove(&oldest);
        }
        if table.count_of(call.network) >= self.limits.clients_of_address {
            self.make_room(table, Some(call.network), now)?;
        }
        if table.by_id.len() >= self.limits.clients {
            self.make_room(table, None, now)?;
        }
        let id = loop {
            table.last = table.last.wrapping_add(1);
            let id = ClientId(u64::from(self.recovery.epoch()) << 32 | u64::from(table.last));
            if !table.by_id.contains_key(&id) {
                break id;
            }
        };
        let client = Client {
            id,
            // What a decoder gives is a part of a whole message.
            owner: Bytes::copy_from_slice(&call.owner),
            verifier: call.verifier,
            principal: call.principal,
            network: call.network,
            lease: Lease::new(now),
            held: Held::new(id, self.limits.clone(), self.totals.clone()),
            creation: Mutex::default(),
            is_complete: AtomicBool::new(false),
            is_recorded: AtomicBool::new(false),
            is_unwanted: AtomicBool::new(false),
            backs: AtomicUsize::new(0),
            had_back: AtomicBool::new(false),
        };
        table.unconfirmed.insert(client.owner.clone(), id);
        *table.of_network.entry(call.network).or_default() += 1;
        table.by_id.insert(id, Arc::new(client));
        Ok(id)
    }

    /// Makes room for one record, of an address or of all.
    fn make_room(&self, table: &mut Table<P>, network: Option<ClientNetwork>, now: Timestamp) -> Result<(), Status> {
        if let Some(oldest) = table.oldest_unconfirmed(network) {
            table.remove(&oldest);
            return Ok(());
        }
        let is_over = |client: &&Arc<Client<P>>| {
            network.is_none_or(|network| client.network == network)
                && client.lease.standing(now, &self.limits) != Standing::Live
        };
        let over: Vec<_> = table.by_id.values().filter(is_over).cloned().collect();
        if let Some(idle) = over.iter().find(|client| client.held.is_empty()) {
            return self.drop_idle(table, idle);
        }
        if let Some(oldest) = over.iter().min_by_key(|client| client.lease.renewed()) {
            oldest.give_up();
        }
        Err(Status::DELAY)
    }

    /// DESTROY_CLIENTID.
    ///
    /// # Errors
    /// STALE_CLIENTID if there is none, CLIENTID_BUSY while it has sessions or holds anything.
    pub(crate) fn destroy_client(&self, id: ClientId) -> Result<(), Status> {
        let mut table = self.table();
        let client = table.by_id.get(&id).cloned().ok_or(Status::STALE_CLIENTID)?;
        if client.is_in_use() {
            return Err(Status::CLIENTID_BUSY);
        }
        self.drop_idle(&mut table, &client)
    }

    /// The sessions of a client.
    pub(crate) fn sessions_of(&self, client: &Client<P>) -> Vec<SessionId> {
        client.creation().sessions.clone()
    }

    /// Everything that a client held, as it is at its end. Its record is out of the table.
    pub(super) fn purge(&self, client: &Client<P>) -> Vec<Release<P>> {
        client.lease.end();
        self.end_sessions(client);
        client.held.release_all()
    }
}
