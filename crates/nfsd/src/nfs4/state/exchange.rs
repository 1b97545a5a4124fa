//! EXCHANGE_ID and DESTROY_CLIENTID (RFC 8881 sections 18.35, 18.50): which client gets a record, and which record goes
//! for it.
//!
//! If there are too many records, unconfirmed ones go first, the oldest of the network that has most; then confirmed
//! records whose lease is over and that hold nothing. If all of these hold something, the one that was away longest is
//! marked, and goes with the next [`State::sweep`]; the new client has to ask again. A confirmed record whose lease
//! runs never goes.

use super::{
    State,
    clients::{Client, Principal, Table},
    lease::Standing,
    release::Release,
};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{Bitmap, ClientId, Op, Status, Verifier, ops::exchange_id};
use rpcrdma_oncrpc::ClientNetwork;
use std::sync::{Arc, MutexGuard, PoisonError};

/// All flags that a client may set in a minor version: fencing exists only in version 2 (RFC 7862 section 14.1).
fn askable(minor: u32) -> u32 {
    if minor < 2 { exchange_id::CLIENT_MASK & !exchange_id::SUPPORTS_FENCE_OPS } else { exchange_id::CLIENT_MASK }
}

/// The arguments of EXCHANGE_ID, and its sender.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeId {
    /// `co_ownerid`: at most 1,024 bytes, which the decoder enforces.
    pub(crate) owner: Bytes,
    /// `co_verifier`.
    pub(crate) verifier: Verifier,
    /// `eia_flags`.
    pub(crate) flags: u32,
    /// The minor version of the call, which decides on the valid flags.
    pub(crate) minor: u32,
    /// The caller.
    pub(crate) principal: Principal,
    /// The network from which it comes, for limits.
    pub(crate) network: ClientNetwork,
    /// The operations to reserve for the machine, if the client asks for that.
    pub(crate) machine: Option<Bitmap>,
    /// Whether nobody can have changed the call on its way.
    pub(crate) is_protected: bool,
}

/// The results of EXCHANGE_ID, beside the [`Identity`](super::Identity) of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchanged {
    /// The operations that are reserved for the machine, if any.
    pub(crate) machine: Option<Bitmap>,
    /// `eir_clientid`.
    pub(crate) client: ClientId,
    /// `eir_sequenceid`: of the first CREATE_SESSION.
    pub(crate) sequence: u32,
    /// `eir_flags`.
    pub(crate) flags: u32,
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
    /// INVAL for flags that a client may not set; WRONG_CRED if the operation is reserved for the machine; CLID_INUSE
    /// if the owner belongs to another principal; NOENT, NOT_SAME and PERM for updates of a record that does not exist,
    /// has another incarnation or another principal; DELAY if there are too many clients.
    // NFS4-8881-18.35-b, NFS4-8881-18.35-c, NFS4-8881-18.35-f
    pub(crate) fn exchange_id(&self, call: &ExchangeId, now: Timestamp) -> Result<Exchanged, Status> {
        // NFS4-8881-18.35-a
        if call.flags & !askable(call.minor) != 0 {
            return Err(Status::INVAL);
        }
        let is_update = call.flags & exchange_id::UPDATE_CONFIRMED_RECORD != 0;
        let mut table = self.table();
        let confirmed = table.confirmed(&call.owner);
        let told = |client: &Client<P>| Exchanged {
            machine: client.machine(),
            client: client.id(),
            sequence: client.creation().next(),
            flags: exchange_id::USE_NON_PNFS | exchange_id::CONFIRMED,
        };
        // NFS4-8881-18.35-j
        let is_kept = |client: &Client<P>| client.keeps_for_machine(Op::ExchangeId) && !call.is_protected;
        // The cases are numbered as in RFC 8881 section 18.35.4.
        match confirmed {
            // 7
            None if is_update => return Err(Status::NOENT),
            // 8
            Some(client) if is_update && client.verifier() != call.verifier => return Err(Status::NOT_SAME),
            // 9
            Some(client) if is_update && client.principal() != call.principal => return Err(Status::PERM),
            Some(client) if client.principal() == call.principal && is_kept(&client) => return Err(Status::WRONG_CRED),
            // 6: the server keeps nothing that an update may change.
            Some(client) if is_update => return Ok(told(&client)),
            // 3
            Some(client) if client.principal() != call.principal => self.displace(&mut table, &client, now)?,
            // 2
            Some(client) if client.verifier() == call.verifier => {
                table.remove_unconfirmed(&call.owner);
                return Ok(told(&client));
            }
            // After a restart the journal's entry counts as the record.
            None if self.recovery.is_of_another(&call.owner, call.principal) => return Err(Status::CLID_INUSE),
            // 5, and 1
            Some(_) | None => {}
        }
        // 4
        table.remove_unconfirmed(&call.owner);
        let client = self.add(&mut table, call, now)?;
        Ok(Exchanged { client, sequence: 1, flags: exchange_id::USE_NON_PNFS, machine: call.machine })
    }

    /// Another principal wants the owner of a confirmed record. Sessions count as state: a client with a session is in
    /// use.
    pub(super) fn displace(&self, table: &mut Table<P>, client: &Client<P>, now: Timestamp) -> Result<(), Status> {
        let is_over = client.lease.standing(now, &self.limits) != Standing::Live;
        match (client.is_in_use(), is_over) {
            // NFS4-8881-18.35-d
            (true, false) => Err(Status::CLID_INUSE),
            (true, true) if !client.held.is_empty() => {
                // Other clients may get what it held once the journal says so.
                client.give_up();
                Err(Status::DELAY)
            }
            _ => self.drop_idle(table, client),
        }
    }

    /// Removes a client that holds nothing, with its sessions, and forgets it in the journal.
    ///
    /// # Errors
    /// DELAY if one of its calls has just got something.
    fn drop_idle(&self, table: &mut Table<P>, client: &Client<P>) -> Result<(), Status> {
        if !client.held.end_if_empty() {
            return Err(Status::DELAY);
        }
        table.remove(client);
        client.lease.end();
        self.end_sessions(client);
        if client.is_recorded() {
            self.recovery.forget(client.owner());
        }
        Ok(())
    }

    pub(super) fn add(&self, table: &mut Table<P>, call: &ExchangeId, now: Timestamp) -> Result<ClientId, Status> {
        // NFS4-7530-16.34-e
        while table.unconfirmed() >= self.limits.unconfirmed {
            let Some(oldest) = table.oldest_unconfirmed(None) else { return Err(Status::DELAY) };
            table.remove(&oldest);
        }
        if table.count_of(call.network) >= self.limits.clients_of_address {
            self.make_room(table, Some(call.network), now)?;
        }
        if table.by_id.len() >= self.limits.clients {
            self.make_room(table, None, now)?;
        }
        let id = table.next_id(self.recovery.epoch());
        table.insert(Client::new(id, call, now, &self.limits, &self.totals));
        Ok(id)
    }

    /// Makes room for one record, in this network or in the table.
    fn make_room(&self, table: &mut Table<P>, network: Option<ClientNetwork>, now: Timestamp) -> Result<(), Status> {
        if let Some(oldest) = table.oldest_unconfirmed(network) {
            table.remove(&oldest);
            return Ok(());
        }
        let is_over = |client: &&Arc<Client<P>>| {
            network.is_none_or(|network| client.network() == network)
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
    /// STALE_CLIENTID if there is none; CLIENTID_BUSY while it has sessions or holds anything.
    // NFS4-8881-18.50-a
    pub(crate) fn destroy_client(&self, id: ClientId) -> Result<(), Status> {
        let mut table = self.table();
        let client = table.by_id.get(&id).cloned().filter(|client| !client.is_zero()).ok_or(Status::STALE_CLIENTID)?;
        if client.is_in_use() {
            return Err(Status::CLIENTID_BUSY);
        }
        self.drop_idle(&mut table, &client)
    }

    /// The sessions of a client.
    #[cfg(test)]
    pub(crate) fn sessions_of(&self, client: &Client<P>) -> Vec<rpcrdma_nfs::v4::SessionId> {
        client.creation().sessions.clone()
    }

    /// Returns everything that a client held, because it has ended. Its record is no longer in the table.
    pub(super) fn purge(&self, client: &Client<P>) -> Vec<Release<P>> {
        client.lease.end();
        self.end_sessions(client);
        client.held.release_all()
    }
}
