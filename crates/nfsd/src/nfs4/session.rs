//! Clients, sessions and the bookkeeping of stateids (RFC 8881 sections 18.34 to 18.38, 18.46 to 18.51).

use super::{
    compound::Compound,
    service::Shared,
    state::{
        backchannel::Standing,
        callers::{Callers, Contexts},
        channel::Channel,
        connections::{Ask, Direction},
        exchange::ExchangeId,
        session::Told,
        sessions::CreateSession,
    },
};
use rpcrdma_nfs::v4::{
    Bitmap, List, Opaque, Status,
    ops::{self, Answer},
};
use rpcrdma_oncrpc::{ClientNetwork, Credential};

/// The results of SEQUENCE.
pub(super) fn sequence_ok(args: &ops::Sequence, told: Told) -> ops::SequenceOk {
    ops::SequenceOk {
        session: args.session,
        sequence: args.sequence,
        slot: args.slot,
        highest_slot: told.highest,
        target_highest_slot: told.target,
        status: told.flags,
    }
}

fn channel(offered: &ops::ChannelAttributes) -> Channel {
    Channel {
        padding: offered.header_padding,
        request: offered.max_request,
        response: offered.max_response,
        cached: offered.max_response_cached,
        operations: offered.max_operations,
        slots: offered.max_requests,
    }
}

fn attributes(channel: Channel, offered: &ops::ChannelAttributes) -> ops::ChannelAttributes {
    ops::ChannelAttributes {
        header_padding: channel.padding,
        max_request: channel.request,
        max_response: channel.response,
        max_response_cached: channel.cached,
        max_operations: channel.operations,
        max_requests: channel.slots,
        // The transport negotiates it (RFC 5666, RFC 8166); the server accepts the offer.
        rdma_ird: offered.rdma_ird,
    }
}

impl Compound {
    pub(super) fn exchange_id(&self, args: ops::ExchangeId) -> Answer<ops::ExchangeIdOk> {
        let machine = self.protection(&args.protection)?;
        let exchange = ExchangeId {
            owner: args.owner.name.0,
            verifier: args.owner.verifier,
            flags: args.flags,
            minor: self.minor,
            principal: self.principal(),
            network: ClientNetwork::of(self.context.connection.peer.ip()),
            machine,
            is_protected: self.is_protected(),
        };
        let exchanged = self.shared.state.exchange_id(&exchange, self.shared.now())?;
        let protection = match exchanged.machine {
            None => ops::StateProtectionOk::None,
            Some(must_enforce) => {
                let kept = ops::ProtectedOps { must_enforce, must_allow: Bitmap::EMPTY };
                ops::StateProtectionOk::MachineCredential(kept)
            }
        };
        let identity = &self.shared.state.identity;
        Ok(ops::ExchangeIdOk {
            client: exchanged.client,
            sequence: exchanged.sequence,
            flags: exchanged.flags,
            protection,
            server: ops::ServerOwner { minor_id: identity.minor, major_id: Opaque(identity.major.clone()) },
            scope: Opaque(identity.scope.clone()),
            implementation: None,
        })
    }

    // NFS4-8881-18.36-f
    pub(super) fn create_session(&self, args: ops::CreateSession) -> Answer<ops::CreateSessionOk> {
        let create = CreateSession {
            client: args.client,
            sequence: args.sequence,
            flags: args.flags,
            fore: channel(&args.fore),
            back: channel(&args.back),
            program: args.callback_program,
            principal: self.principal(),
            callers: self.callers(&args.callback_security),
            minor: self.minor,
            connection: self.context.connection.id,
            can_call: self.context.connection.reverse.is_some(),
        };
        let (created, released) = self.shared.state.create_session(&create, self.shared.now());
        self.shared.release(self.origin(), released);
        let created = created?;
        if created.flags & ops::create_session::CONN_BACK_CHAN != 0
            && let Ok(session) = self.shared.state.session(created.session)
        {
            self.begin_calling(&session);
        }
        Ok(ops::CreateSessionOk {
            session: created.session,
            sequence: created.sequence,
            flags: created.flags,
            fore: attributes(created.fore, &args.fore),
            back: attributes(created.back, &args.back),
        })
    }

    pub(super) fn destroy_session(&self, args: ops::DestroySession) -> Answer {
        self.shared.state.destroy_session(args.session, self.context.connection.id)
    }

    pub(super) fn bind_connection(&self, args: ops::BindConnToSession) -> Answer<ops::BindConnToSessionOk> {
        let ask = match args.direction {
            ops::ClientDirection::Fore => Ask::Fore,
            ops::ClientDirection::Back => Ask::Back,
            ops::ClientDirection::ForeOrBoth => Ask::ForeOrBoth,
            ops::ClientDirection::BackOrBoth => Ask::BackOrBoth,
        };
        let connection = &self.context.connection;
        let direction =
            self.shared.state.bind_connection(args.session, connection.id, ask, connection.reverse.is_some())?;
        if direction != Direction::Fore
            && let Ok(session) = self.shared.state.session(args.session)
        {
            self.begin_calling(&session);
        }
        let direction = match direction {
            Direction::Fore => ops::ServerDirection::Fore,
            Direction::Back => ops::ServerDirection::Back,
            Direction::Both => ops::ServerDirection::Both,
        };
        // Linux's client does not mount if the server answers with another mode.
        Ok(ops::BindConnToSessionOk { session: args.session, direction, rdma_mode: false })
    }

    /// The credentials with which the server may call the client, according to the client.
    fn callers<const MAX: usize>(&self, security: &List<ops::CallbackSecurity, MAX>) -> Result<Callers, Status> {
        let principal = match &self.context.credential {
            Credential::Gss(caller) => Some(&*caller.principal),
            _ => None,
        };
        Callers::read(security, Contexts { all: self.server.contexts.get().map(|all| &**all), principal })
    }

    pub(super) fn control_back_channel(&self, args: ops::BackchannelCtl) -> Answer {
        let session = self.session()?;
        let callers = self.callers(&args.security)?;
        // The client may not have answered because a context had ended; it may answer in another.
        let is_down = session.calls.standing() == Standing::Down;
        if session.calls.control(args.program, callers) || is_down {
            session.set_standing(Standing::Unproven);
            self.shared.probe(session);
        }
        Ok(())
    }

    pub(super) fn destroy_client(&self, args: ops::DestroyClientId) -> Answer {
        self.shared.state.destroy_client(args.client)
    }

    pub(super) async fn reclaim_complete(&self, args: ops::ReclaimComplete) -> Answer {
        if args.one_file_system {
            // No file system moves to or from this server: there is nothing to reclaim after a move.
            return self.file().map(drop);
        }
        let client = self.client()?;
        self.shared.on_worker(self.origin(), move |shared| shared.state.recovery.complete(&client, shared.now())).await
    }

    pub(super) async fn free_state(&self, args: ops::FreeStateId) -> Answer {
        let state = self.state_of(args.state, false)?;
        let client = self.client()?;
        // Two calls of one lock-owner at a time may leave a stateid that does not know of its locked ranges.
        if let Some((file, owner)) = client.held.lock_of(state)
            && self.shared.claims.has_locks(file, &Shared::holder(client.id(), &owner))
        {
            return Err(Status::LOCKS_HELD);
        }
        if self.shared.state.free_stateid(&client, state)? {
            self.write_waiting().await;
        }
        Ok(())
    }

    /// Waits until the disk has the journal's entries that were left for later.
    pub(super) async fn write_waiting(&self) {
        let written = self.shared.on_worker(self.origin(), |shared| {
            shared.state.recovery.write_waiting();
            Ok(())
        });
        // A program that drops this work is about to end.
        let _ = written.await;
    }

    pub(super) fn test_states(&self, args: ops::TestStateId) -> Answer<ops::TestStateIdOk> {
        let client = self.client()?;
        let statuses = args.states.iter().map(|state| client.held.test(*state)).collect();
        Ok(ops::TestStateIdOk { statuses: List(statuses) })
    }
}
