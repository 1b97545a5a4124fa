//! Clients of minor version 0: SETCLIENTID, SETCLIENTID_CONFIRM, RENEW (RFC 7530 sections 9.1.1, 16.29, 16.33, 16.34).
//!
//! Their records stand in the same table as the others, under names that no decent client of another minor version has,
//! so that the same limits, leases, conflicts and journal hold. A client that does have such a name meets the record of
//! another, as one does that uses the name of a client of its own minor version: the principal distinguishes them, and
//! the record's id cannot be used for sessions. An owner has at most one record that it confirmed and one that it did
//! not; if only the callback changes, both are one record with something [pending](Registration::pending).
//!
//! An id of this boot that names no confirmed client belongs to one that lost everything: EXPIRED. One of another boot,
//! or of a client with sessions, is STALE_CLIENTID.

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
use rpcrdma_nfs::v4::{ClientId, StateId, Status, VERIFIER_OCTETS, Verifier, ops::CallbackClient};
use rpcrdma_oncrpc::ClientNetwork;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What stands before the name of an owner of minor version 0 in the table and in the journal: one host may give the
/// same name to its clients of both kinds. Nothing keeps a client with sessions from saying it, but decency.
const NAME_PREFIX: &[u8] = b"NFSv4.0\0";

/// The name of an owner in the table and in the journal.
pub(super) fn name_of(owner: &[u8]) -> Bytes {
    [NAME_PREFIX, owner].concat().into()
}

/// Where a client wants to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Callback {
    /// Its program, and its address.
    pub(crate) client: CallbackClient,
    /// `callback_ident`: stands in each call.
    pub(crate) ident: u32,
    /// The address, if it may be called.
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

/// What is known of a record beside what all clients have.
#[derive(Debug, Default)]
struct Registration {
    /// What the client confirmed.
    confirmed: Option<Said>,
    /// What waits for it.
    pending: Option<Said>,
}

/// What a client of minor version 0 has beside what all clients have.
pub(crate) struct Zero {
    registration: Mutex<Registration>,
    /// Its owners, with their sequence numbers.
    pub(crate) owners: Owners,
    /// How it is called.
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

    /// Where the client wants to be called: what it confirmed last.
    pub(crate) fn callback(&self) -> Option<Arc<Callback>> {
        self.registration().confirmed.as_ref().map(|said| said.callback.clone())
    }
}

impl<P> Client<P> {
    /// Whether it is a client of minor version 0.
    pub(crate) fn is_zero(&self) -> bool {
        self.zero.is_some()
    }

    /// What it has as a client of minor version 0.
    ///
    /// # Errors
    /// STALE_CLIENTID if it is none.
    pub(crate) fn zero(&self) -> Result<&Zero, Status> {
        self.zero.as_deref().ok_or(Status::STALE_CLIENTID)
    }
}

/// The arguments of SETCLIENTID, and who sent it.
#[derive(Clone, Debug)]
pub(crate) struct SetClientId {
    /// `id`: at most 1,024 bytes, as the decoder sees to.
    pub(crate) owner: Bytes,
    /// `verifier`.
    pub(crate) verifier: Verifier,
    /// Where it wants to be called.
    pub(crate) callback: Callback,
    /// The caller.
    pub(crate) principal: Principal,
    /// From where, as far as limits go.
    pub(crate) network: ClientNetwork,
}

/// What SETCLIENTID_CONFIRM has done.
#[derive(Debug)]
pub(crate) struct Confirmed<P> {
    /// The client.
    pub(crate) client: Arc<Client<P>>,
    /// Whether it is to be called somewhere else than before.
    pub(crate) is_new: bool,
    /// What its former incarnation held.
    pub(crate) released: Vec<Release<P>>,
    /// Whether its former incarnation may have lost something, of which the client has taken note now: it is answered
    /// when the journal has that on the disk.
    pub(crate) takes_note: bool,
}

impl<P> State<P> {
    /// SETCLIENTID.
    ///
    /// # Errors
    /// CLID_INUSE if the owner is another principal's and in use, DELAY if there are too many clients.
    pub(crate) fn set_client_id(&self, call: SetClientId, now: Timestamp) -> Result<(ClientId, Verifier), Status> {
        let SetClientId { owner, verifier, callback, principal, network } = call;
        let owner = name_of(&owner);
        let pending = Said { confirm: self.confirm_verifier(), callback: Arc::new(callback) };
        let confirm = pending.confirm;
        let mut table = self.table();
        match table.confirmed(&owner) {
            // NFS4-7530-16.33-a
            Some(client) if client.principal() != principal => self.displace(&mut table, &client, now)?,
            // NFS4-7530-16.33-b: probably another callback.
            Some(client) if client.verifier() == verifier => {
                table.remove_unconfirmed(&owner);
                client.zero()?.registration().pending = Some(pending);
                return Ok((client.id(), confirm));
            }
            // After a restart the journal stands for the record.
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

    /// Eight bytes that cannot be guessed, and that come once.
    fn confirm_verifier(&self) -> Verifier {
        let mut octets = [0; VERIFIER_OCTETS];
        self.random.fill(&mut octets);
        Verifier(octets)
    }

    /// SETCLIENTID_CONFIRM.
    ///
    /// # Errors
    /// STALE_CLIENTID if no SETCLIENTID was answered so, or another has come since; CLID_INUSE if it was another
    /// principal's.
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
        // Else it comes again, and nothing changes (NFS4-7530-16.34-b).
        let (mut released, mut takes_note) = (Vec::new(), false);
        if is_new {
            registration.confirmed = registration.pending.take();
            if !table.is_confirmed(&client) {
                // NFS4-7530-16.34-c
                if let Some(former) = table.confirm(&client) {
                    released = self.purge(&former);
                    // It knows now of all that was taken from it.
                    self.recovery.restore(&client);
                    takes_note = true;
                }
            }
        }
        drop(registration);
        client.lease.renew(now);
        Ok(Confirmed { client, is_new, released, takes_note })
    }

    /// The client of an id that came in minor version 0.
    ///
    /// # Errors
    /// STALE_CLIENTID for an id of another boot or of a client with sessions; EXPIRED if the client of it is no more,
    /// or was never confirmed.
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
    /// BAD_STATEID for special ones and those of clients with sessions, STALE_STATEID, EXPIRED.
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

    /// Forgets owners that clients of minor version 0 have not used for a lease, with what they opened and did not
    /// confirm. Such clients may reclaim again when they know of all that they have lost.
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
