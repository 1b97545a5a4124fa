//! Minor version 0: clients without sessions (RFC 7530 sections 9.1.1, 9.5, 16.29, 16.33, 16.34, 16.37).
//!
//! Without sessions, a call itself says to which client's state it refers: by a client id, or by a stateid, which
//! begins with one. Either renews the client's lease.

use super::{
    callback::dial40::target,
    compound::Compound,
    service::{Pin, Shared},
    state::{
        clients::Client,
        clients40::{Callback, SetClientId},
    },
};
use rpcrdma_nfs::v4::{
    ClientId, StateId, Status,
    ops::{self, Answer, SetClientIdFailure},
};
use rpcrdma_oncrpc::ClientNetwork;
use std::sync::Arc;

/// Keeps a client known while one of its operations is executed.
pub(super) struct Present {
    shared: Arc<Shared>,
    client: Arc<Client<Pin>>,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.client.lease.leave(Some(self.shared.now()));
    }
}

impl Compound {
    /// Keeps the client of an operation known until the returned guard is dropped; from now on [`client`](Self::client)
    /// returns this client.
    ///
    /// # Errors
    /// EXPIRED if the client has just ended.
    pub(super) fn present(&mut self, client: Arc<Client<Pin>>) -> Result<Present, Status> {
        if !client.lease.enter(self.shared.now()) {
            return Err(Status::EXPIRED);
        }
        self.client_of_zero = Some(client.clone());
        Ok(Present { shared: self.shared.clone(), client })
    }

    /// The client whose lease an operation renews.
    // NFS4-7530-9.5-a
    fn renewed(&self, client: Arc<Client<Pin>>) -> Result<Arc<Client<Pin>>, Status> {
        if client.lease.renew(self.shared.now()) { Ok(client) } else { Err(Status::EXPIRED) }
    }

    /// The client with this id in minor version 0. Renews its lease.
    ///
    /// # Errors
    /// STALE_CLIENTID, EXPIRED.
    pub(super) fn client_of_id(&self, id: ClientId) -> Result<Arc<Client<Pin>>, Status> {
        self.renewed(self.shared.state.client_of_zero(id)?)
    }

    /// The client of a stateid that is not special: the session's client; in minor version 0 the client that the
    /// stateid names, whose lease this renews.
    ///
    /// # Errors
    /// In minor version 0 STALE_STATEID, EXPIRED, BAD_STATEID.
    pub(super) fn client_of(&self, state: StateId) -> Result<Arc<Client<Pin>>, Status> {
        if self.minor > 0 {
            return self.client();
        }
        self.renewed(self.shared.state.client_of_state(state)?)
    }

    /// Checks the stateid in an operation of minor version 0, which has no current stateid and no number for "the
    /// latest".
    ///
    /// # Errors
    /// As [`client_of`](Self::client_of), and OLD_STATEID; BAD_STATEID for an open that was not confirmed.
    pub(super) fn state_of_zero(&self, state: StateId) -> Result<StateId, Status> {
        // The operation that uses a special stateid checks it.
        if !state.is_special() {
            self.client_of(state)?.held.check_of_zero(state)?;
        }
        Ok(state)
    }

    pub(super) fn set_client_id(&self, args: ops::SetClientId) -> Answer<ops::SetClientIdOk, SetClientIdFailure> {
        let call = SetClientId {
            owner: args.owner.name.0,
            verifier: args.owner.verifier,
            callback: Callback {
                to: target(&args.callback, self.context.connection.peer.ip()),
                from: self.context.connection.local.ip(),
                client: args.callback,
                ident: args.callback_ident,
            },
            principal: self.principal(),
            network: ClientNetwork::of(self.context.connection.peer.ip()),
        };
        let (client, confirm) = self.shared.state.set_client_id(call, self.shared.now())?;
        Ok(ops::SetClientIdOk { client, confirm })
    }

    pub(super) async fn confirm_client_id(&self, args: ops::SetClientIdConfirm) -> Answer {
        let state = &self.shared.state;
        let confirmed = state.confirm_client_id(args.client, args.confirm, self.principal(), self.shared.now())?;
        self.shared.release(self.origin(), confirmed.released);
        if confirmed.takes_note {
            // After the reply the client relies on what it gets, also after a restart.
            self.write_waiting().await;
        }
        if confirmed.is_new {
            self.shared.begin_dialling(&confirmed.client);
        }
        Ok(())
    }

    pub(super) fn renew(&self, args: ops::Renew) -> Answer {
        let client = self.client_of_id(args.client)?;
        self.shared.dial_again(&client);
        let [_, _, delegations] = client.held.counts();
        // NFS4-7530-16.29-a: the client must learn it, but its lease is renewed in any case.
        if delegations > 0 && !self.shared.can_call(&client) { Err(Status::CB_PATH_DOWN) } else { Ok(()) }
    }

    pub(super) async fn release_lock_owner(&self, args: ops::ReleaseLockOwner) -> Answer {
        let client = self.client_of_id(args.owner.client)?;
        let name = &args.owner.name;
        if !client.held.has_lock_states(name) {
            client.zero()?.owners.forget_locker(name);
            return Ok(());
        }
        let owner = client.zero()?.owners.get(super::state::owners40::OwnerOf::Locks, name)?;
        // After the owner's operation that is under way.
        let _turn = owner.turn().await;
        let holder = Shared::holder(client.id(), name);
        if client.held.locked_files(name).iter().any(|file| self.shared.claims.has_locks(*file, &holder)) {
            return Err(Status::LOCKS_HELD);
        }
        let released = client.held.forget_locks(name);
        self.shared.release(self.origin(), released);
        client.zero()?.owners.forget_locker(name);
        Ok(())
    }
}
