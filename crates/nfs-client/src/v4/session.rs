//! Minor versions from 1 on: makes the client known, and makes a session with both channels (RFC 8881 sections 18.35,
//! 18.36).

use super::{
    Callbacks, Error, Inner,
    callback::in_context,
    compound::Plan,
    slots::Slots,
    standing::{Ground, Known},
};
use futures_util::future::join_all;
use rpcrdma_nfs::v4::{
    Args, List, Op, Opaque, Outcome, SessionId, Status,
    ops::{self, CallbackSecurity, ChannelAttributes, ClientDirection, create_session, exchange_id},
};
use rpcrdma_oncrpc::{Client, gss::BackHandles};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU32};

/// The most operations of a call that the client asks for: enough for a call that reads many small files.
const OPERATIONS: u32 = 64;
/// The largest reply that the client asks the server to keep, in bytes.
const CACHED_BYTES: u32 = 4_096;
/// The largest message of the back channel: RPC-over-RDMA carries it inline, because the reverse direction has no
/// chunks (RFC 8167 section 5.3). A server's calls have at most one kilobyte.
pub(super) const BACK_BYTES: u32 = 4_096 - 28;
/// The most operations of a call of the server.
pub(super) const BACK_OPERATIONS: u32 = 16;
/// The slots of the back channel: the most calls of the server at a time.
pub(super) const BACK_SLOTS: u32 = 16;
/// The largest reply in the back channel that the client keeps.
pub(super) const BACK_CACHED_BYTES: u32 = 2_048;
/// The least that a call and its reply need: SEQUENCE and a handle, with the heads of RPC.
const LEAST_BYTES: u32 = 512;
/// The fewest useful operations of a call: SEQUENCE, PUTFH, and one more.
const LEAST_OPERATIONS: u32 = 4;

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) fore: ChannelAttributes,
    pub(super) slots: Slots,
    /// Whether the server uses the connection for its own calls.
    pub(super) has_back_channel: bool,
    /// The flags of the last SEQUENCE.
    pub(super) status: AtomicU32,
    /// The context in which the server may call.
    named: Mutex<Option<BackHandles>>,
}

impl Session {
    fn named(&self) -> MutexGuard<'_, Option<BackHandles>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// EXCHANGE_ID: the client's record on the server, and whether it is confirmed.
    pub(super) async fn exchange_id(&self) -> Result<(Known, bool), Error> {
        let mut exchange = ops::ExchangeId::new(self.name.clone(), self.verifier, exchange_id::USE_NON_PNFS);
        exchange.implementation = Some(ops::Implementation {
            domain: Opaque::from("rpcrdma"),
            name: Opaque::from(concat!("rpcrdma ", env!("CARGO_PKG_VERSION"))),
            date: Default::default(),
        });
        let known = match self.alone(Args::ExchangeId(Box::new(exchange))).await? {
            Outcome::ExchangeId(Ok(known)) => known,
            outcome => return Err(self.refused(Op::ExchangeId, outcome.status())),
        };
        if !matches!(known.protection, ops::StateProtectionOk::None) {
            return Err(Error::nonsense(Op::ExchangeId, "protects state in a way that was not asked for"));
        }
        let was_known = known.flags & exchange_id::CONFIRMED != 0;
        Ok((Known { id: known.client, sequence: known.sequence }, was_known))
    }

    /// CREATE_SESSION.
    pub(super) async fn create_session(&self, client: Known) -> Result<Session, Error> {
        let wanted = self.wanted();
        let callbacks = self.options.callbacks.as_ref();
        let unsigned = || (List(vec![CallbackSecurity::None]), None);
        let (callback_security, named) = callbacks.map_or_else(unsigned, Callbacks::ways);
        let create = ops::CreateSession {
            client: client.id,
            sequence: client.sequence,
            flags: if callbacks.is_some() { create_session::CONN_BACK_CHAN } else { 0 },
            fore: wanted,
            back: ChannelAttributes::new(BACK_BYTES, BACK_CACHED_BYTES, BACK_OPERATIONS, BACK_SLOTS),
            callback_program: ops::TRANSIENT_PROGRAM,
            callback_security,
        };
        let made = match self.alone(Args::CreateSession(Box::new(create))).await? {
            Outcome::CreateSession(Ok(made)) => made,
            outcome => return Err(self.refused(Op::CreateSession, outcome.status())),
        };
        let nonsense = |what| Err(Error::nonsense(Op::CreateSession, what));
        if made.sequence != client.sequence {
            return nonsense("answered for another session");
        }
        let ChannelAttributes { max_request, max_response, max_operations, max_requests, .. } = made.fore;
        if max_request > wanted.max_request || max_response > wanted.max_response {
            return nonsense("allows larger messages than were asked for");
        }
        if max_request < LEAST_BYTES || max_response < LEAST_BYTES || max_operations < LEAST_OPERATIONS {
            return nonsense("allows too few bytes or operations in a call of the session");
        }
        if max_requests == 0 {
            return nonsense("allows no call in the session");
        }
        let granted = max_requests.min(wanted.max_requests);
        if let Some(callbacks) = callbacks {
            callbacks.session_made(made.session);
        }
        Ok(Session {
            id: made.session,
            fore: made.fore,
            slots: Slots::new(granted),
            has_back_channel: made.flags & create_session::CONN_BACK_CHAN != 0,
            status: AtomicU32::new(0),
            named: Mutex::new(named),
        })
    }

    /// Whether the server calls in contexts, and does not know the present one.
    pub(super) fn owes_context(&self) -> bool {
        let Some(session) = self.standing().session.clone() else { return false };
        let context = self.options.callbacks.as_ref().and_then(Callbacks::next_context);
        context.is_some_and(|context| session.named().as_ref() != Some(&context))
    }

    /// BACKCHANNEL_CTL: tells the server that it may call in the present context. Returns false if the server knew that
    /// already, or if the call has failed.
    pub(super) async fn name_context(&self) -> bool {
        let session = self.standing().session.clone();
        let context = self.options.callbacks.as_ref().and_then(Callbacks::context);
        let (Some(session), Some(context)) = (session, context) else { return false };
        if session.named().as_ref() == Some(&context) {
            return false;
        }
        let ways = [in_context(&context), CallbackSecurity::None];
        let mut build = |_: &Ground| {
            let control = ops::BackchannelCtl { program: ops::TRANSIENT_PROGRAM, security: List(ways.to_vec()) };
            Ok(vec![Args::BackchannelCtl(control)])
        };
        let told = self.perform(Plan::changes(Op::BackchannelCtl), None, &mut build).await;
        match told.and_then(|reply| reply.ok()) {
            Ok(_) => {
                *session.named() = Some(context);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "the client could not tell the server in which context it can call");
                false
            }
        }
    }

    /// The attributes that the client asks for: all that the transport can carry.
    fn wanted(&self) -> ChannelAttributes {
        let octets = |octets: usize| u32::try_from(octets).unwrap_or(u32::MAX);
        let limits = self.client.transport().limits();
        let slots = self.options.slots.clamp(1, super::slots::MAX_SLOTS);
        ChannelAttributes {
            max_response: octets(limits.max_reply),
            ..ChannelAttributes::new(octets(limits.max_call), CACHED_BYTES, OPERATIONS, slots)
        }
    }

    /// BIND_CONN_TO_SESSION: binds the connection to the session, and to the server's calls. If there are several
    /// connections, the client binds each, because the server does not say which one it needs; one established
    /// connection is enough to go on.
    ///
    /// At first the client binds none of the other connections: the server adds each to the session with the first
    /// SEQUENCE over it, because the client has asked for no state protection (RFC 8881 section 2.10.3.1).
    pub(super) async fn bind(&self, session: &Arc<Session>) -> Result<(), Error> {
        let members = self.client.transport().members();
        if members.is_empty() {
            return self.bind_over(&self.client, session).await;
        }
        let clients: Vec<_> = members.into_iter().map(|member| self.client.clone().over(member)).collect();
        let bound = join_all(clients.iter().map(|client| self.bind_over(client, session))).await;
        bound.into_iter().reduce(|one, other| one.or(other)).unwrap_or(Ok(()))
    }

    async fn bind_over(&self, client: &Client, session: &Arc<Session>) -> Result<(), Error> {
        // The first SEQUENCE has already bound it to the fore channel. A request for the back channel alone would then
        // be refused (NFS4ERR_INVAL, by Linux's server and ours).
        let direction =
            if self.options.callbacks.is_some() { ClientDirection::ForeOrBoth } else { ClientDirection::Fore };
        self.bind_for(client, session.id, direction).await
    }

    async fn bind_for(&self, client: &Client, session: SessionId, direction: ClientDirection) -> Result<(), Error> {
        let bind = ops::BindConnToSession { session, direction, rdma_mode: false };
        match self.alone_over(client, Args::BindConnToSession(bind)).await? {
            Outcome::BindConnToSession(Ok(bound)) if bound.session == session => Ok(()),
            Outcome::BindConnToSession(Ok(_)) => {
                Err(Error::nonsense(Op::BindConnToSession, "answered for another session"))
            }
            outcome => Err(self.refused(Op::BindConnToSession, outcome.status())),
        }
    }

    /// DESTROY_SESSION for a useless session, whatever the server's answer.
    pub(super) async fn destroy_session(&self, session: SessionId) {
        let members = self.client.transport().members();
        let client =
            members.into_iter().next().map_or_else(|| self.client.clone(), |one| self.client.clone().over(one));
        if let Err(error) = self.destroy_session_over(&client, session).await {
            tracing::debug!(%error, "a session that is of no use could not be destroyed");
        }
    }

    /// The server accepts this only over a connection of the session (RFC 8881 section 18.37.3), and the client may
    /// have given the session up because it has lost them all. A session that stays prevents the end of the client.
    async fn destroy_session_over(&self, client: &Client, session: SessionId) -> Result<(), Error> {
        let destroy = || Args::DestroySession(ops::DestroySession { session });
        let mut status = self.alone_over(client, destroy()).await?.status();
        if status == Status::CONN_NOT_BOUND_TO_SESSION {
            self.bind_for(client, session, ClientDirection::Fore).await?;
            status = self.alone_over(client, destroy()).await?.status();
        }
        match status {
            Status::OK => Ok(()),
            status => Err(self.refused(Op::DestroySession, status)),
        }
    }

    /// The server returns an error.
    pub(super) fn refused(&self, op: Op, status: Status) -> Error {
        Error::refused(op, status, self.client.caller())
    }
}
