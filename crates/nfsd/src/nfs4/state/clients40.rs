//! Clients of minor version 0: SETCLIENTID, SETCLIENTID_CONFIRM, RENEW (RFC 7530 sections 9.1.1, 16.29, 16.33, 16.34).
//!
//! Their records stand in the same table as all others, so that the same limits, leases, conflicts and journal apply.
//! Their names there are names that no decent client of another minor version has. If a client does have such a name,
//! it meets another client's record, like a client that uses another's name in its own minor version: the principal
//! distinguishes them, and the record's id cannot be used for sessions. An owner has at most one confirmed and one
//! unconfirmed record; if only the callback changes, both are one record with something
//! [pending](Registration::pending).
//!
//! An id of this boot that names no confirmed client belongs to a client that has lost everything: EXPIRED. An id of
//! another boot, or of a client with sessions, is STALE_CLIENTID.

use super::{
    super::callback::dial40::Calls,
    State,
    clients::{Client, Principal},
    exchange::ExchangeId,
    held::Totals,
    limits::Limits,
    owners40::Owners,
    release::Release,
    stateids::{check_epoch, client_of, epoch_of, special},
};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{ClientId, StateId, Status, VERIFIER_BYTES, Verifier, ops::CallbackClient};
use rpcrdma_oncrpc::ClientNetwork;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The prefix of an owner of minor version 0 in the table and in the journal: one host may give its clients of both
/// kinds the same name. A client with sessions could also use the prefix, if it is not decent.
const NAME_PREFIX: &[u8] = b"NFSv4.0\0";

/// The name of an owner in the table and in the journal.
pub(super) fn name_of(owner: &[u8]) -> Bytes {
    [NAME_PREFIX, owner].concat().into()
}

/// Where the server is to call a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Callback {
    /// The client's program, and its address.
    pub(crate) client: CallbackClient,
    /// `callback_ident`, which each call contains.
    pub(crate) ident: u32,
    /// The address, if the server may call it.
    pub(crate) to: Option<SocketAddr>,
    /// The address of the server that the client knows.
    pub(crate) from: IpAddr,
}

/// The arguments of SETCLIENTID, and its `setclientid_confirm`.
#[derive(Clone, Debug)]
struct Said {
    confirm: Verifier,
    callback: Arc<Callback>,
}

/// What a record of minor version 0 has in addition.
#[derive(Debug, Default)]
struct Registration {
    /// The arguments that the client has confirmed.
    confirmed: Option<Said>,
    /// The arguments that wait for confirmation.
    pending: Option<Said>,
}

/// What a client of minor version 0 has in addition.
pub(crate) struct Zero {
    registration: Mutex<Registration>,
    /// Its owners, with their sequence numbers.
    pub(crate) owners: Owners,
    /// How the server calls it.
    pub(crate) calls: Calls,
}

impl Zero {
    pub(super) fn new(limits: &Arc<Limits>, totals: &Arc<Totals>) -> Self {
        Self {
            registration: Mutex::default(),
            owners: Owners::new(limits.clone(), totals.clone()),
            calls: Calls::default(),
        }
    }

    fn registration(&self) -> MutexGuard<'_, Registration> {
        self.registration.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the server is to call the client: what the client last confirmed.
    pub(crate) fn callback(&self) -> Option<Arc<Callback>> {
        self.registration().confirmed.as_ref().map(|said| said.callback.clone())
    }
}

impl<P> Client<P> {
    /// Whether it is a client of minor version 0.
    pub(crate) fn is_zero(&self) -> bool {
        self.zero.is_some()
    }

    /// What it has in addition as a client of minor version 0.
    ///
    /// # Errors
    /// STALE_CLIENTID if it is not a client of minor version 0.
    pub(crate) fn zero(&self) -> Result<&Zero, Status> {
        self.zero.as_deref().ok_or(Status::STALE_CLIENTID)
    }
}

/// The arguments of SETCLIENTID, and its sender.
#[derive(Clone, Debug)]
pub(crate) struct SetClientId {
    /// `id`: at most 1,024 bytes, which the decoder enforces.
    pub(crate) owner: Bytes,
    /// `verifier`.
    pub(crate) verifier: Verifier,
    /// Where the server is to call the client.
    pub(crate) callback: Callback,
    /// The caller.
    pub(crate) principal: Principal,
    /// The network from which it comes, for limits.
    pub(crate) network: ClientNetwork,
}

/// The effect of SETCLIENTID_CONFIRM.
#[derive(Debug)]
pub(crate) struct Confirmed<P> {
    /// The client.
    pub(crate) client: Arc<Client<P>>,
    /// Whether the server must call the client at another place than before.
    pub(crate) is_new: bool,
    /// What the client's former incarnation held.
    pub(crate) released: Vec<Release<P>>,
    /// Whether the client has now learned of a loss that its former incarnation may have had: then the server replies
    /// only when the journal on the disk says so.
    pub(crate) takes_note: bool,
}

impl<P> State<P> {
    /// SETCLIENTID.
    ///
    /// # Errors
    /// CLID_INUSE if the owner belongs to another principal and is in use; DELAY if there are too many clients.
    pub(crate) fn set_client_id(&self, call: SetClientId, now: Timestamp) -> Result<(ClientId, Verifier), Status> {
        let SetClientId { owner, verifier, callback, principal, network } = call;
        let owner = name_of(&owner);
        let pending = Said { confirm: self.confirm_verifier(), callback: Arc::new(callback) };
        let confirm = pending.confirm;
        let mut table = self.table();
        match table.confirmed(&owner) {
            // NFS4-7530-16.33-a
            Some(client) if client.principal() != principal => self.displace(&mut table, &client, now)?,
            // NFS4-7530-16.33-b: the client probably changes its callback.
            Some(client) if client.verifier() == verifier => {
                table.remove_unconfirmed(&owner);
                client.zero()?.registration().pending = Some(pending);
                return Ok((client.id(), confirm));
            }
            // After a restart the journal's entry counts as the record.
            None if self.recovery.is_of_another(&owner, principal) => return Err(Status::CLID_INUSE),
            Some(_) | None => {}
        }
        // NFS4-7530-16.33-c: the client has restarted, or is new.
        table.remove_unconfirmed(&owner);
        let record =
            ExchangeId { owner, verifier, flags: 0, minor: 0, principal, network, machine: None, is_protected: false };
        let id = self.add(&mut table, &record, now)?;
        let client = table.by_id.get(&id).ok_or(Status::SERVERFAULT)?;
        client.zero()?.registration().pending = Some(pending);
        Ok((id, confirm))
    }

    /// Eight bytes that cannot be guessed, and are used only once.
    fn confirm_verifier(&self) -> Verifier {
        let mut octets = [0; VERIFIER_BYTES];
        self.random.fill(&mut octets);
        Verifier(octets)
    }

    /// SETCLIENTID_CONFIRM.
    ///
    /// # Errors
    /// STALE_CLIENTID if no SETCLIENTID has had this answer, or if another has come since; CLID_INUSE if another
    /// principal sent it.
    // NFS4-7530-16.34-d
    pub(crate) fn confirm_client_id(
        &self,
        id: ClientId,
        confirm: Verifier,
        principal: Principal,
        now: Timestamp,
    ) -> Result<Confirmed<P>, Status> {
        let mut table = self.table();
        let client = table.by_id.get(&id).cloned().ok_or(Status::STALE_CLIENTID)?;
        let mut registration = client.zero()?.registration();
        let is = |said: &Option<Said>| said.as_ref().is_some_and(|said| said.confirm == confirm);
        let is_new = is(&registration.pending);
        if !is_new && !is(&registration.confirmed) {
            return Err(Status::STALE_CLIENTID);
        }
        // NFS4-7530-16.34-a
        if client.principal() != principal {
            return Err(Status::CLID_INUSE);
        }
        // Otherwise this is a repetition, and nothing changes (NFS4-7530-16.34-b).
        let (mut released, mut takes_note) = (Vec::new(), false);
        if is_new {
            registration.confirmed = registration.pending.take();
            if !table.is_confirmed(&client) {
                // NFS4-7530-16.34-c
                if let Some(former) = table.confirm(&client) {
                    released = self.purge(&former);
                    // It now knows of all its losses.
                    self.recovery.restore(&client);
                    takes_note = true;
                }
            }
        }
        drop(registration);
        client.lease.renew(now);
        Ok(Confirmed { client, is_new, released, takes_note })
    }

    /// The client of an id in minor version 0.
    ///
    /// # Errors
    /// STALE_CLIENTID for an id of another boot or of a client with sessions; EXPIRED if its client has ended, or was
    /// never confirmed.
    // NFS4-7530-9.1.1-a
    pub(crate) fn client_of_zero(&self, id: ClientId) -> Result<Arc<Client<P>>, Status> {
        if epoch_of(id) != self.recovery.epoch() {
            return Err(Status::STALE_CLIENTID);
        }
        let table = self.table();
        match table.by_id.get(&id) {
            Some(client) if !client.is_zero() => Err(Status::STALE_CLIENTID),
            Some(client) if table.is_confirmed(client) => Ok(client.clone()),
            _ => Err(Status::EXPIRED),
        }
    }

    /// The client that a stateid of minor version 0 names.
    ///
    /// # Errors
    /// BAD_STATEID for special stateids and those of clients with sessions; STALE_STATEID; EXPIRED.
    // NFS4-7530-9.1.4.4-a
    pub(crate) fn client_of_state(&self, state: StateId) -> Result<Arc<Client<P>>, Status> {
        if special(state)?.is_some() {
            return Err(Status::BAD_STATEID);
        }
        check_epoch(state, self.recovery.epoch())?;
        self.client_of_zero(client_of(state)).map_err(|status| match status {
            Status::STALE_CLIENTID => Status::BAD_STATEID,
            status => status,
        })
    }

    /// Forgets owners that clients of minor version 0 have not used for a lease, with their unconfirmed opens. Lets
    /// such clients reclaim again when they know of all their losses.
    pub(crate) fn sweep_owners(&self, now: Timestamp) -> Vec<Release<P>> {
        let clients: Vec<_> = self.table().by_id.values().filter(|client| client.is_zero()).cloned().collect();
        let mut released = Vec::new();
        for client in &clients {
            if let Ok(zero) = client.zero() {
                released.extend(zero.owners.sweep(&client.held, now));
                if client.held.has_taken_note() {
                    self.recovery.restore(client);
                }
            }
        }
        released
    }
}

#[cfg(test)]
#[path = "tests/clients40.rs"]
mod tests;
