//! The calls of the server, which the transport brings in the reverse direction (RFC 8881 section 20, RFC 7862 section
//! 16).
//!
//! Make [`Callbacks`] before the transport, which gets its service; the client gets it with its
//! [`Options`](super::Options). The router answers CB_NULL. All other answers are ready at once: no call of the server
//! has to wait, and the client keeps only the last reply of each slot.
//!
//! In minor version 0 the server makes its own connection for calls: there the service belongs to a listener, whose
//! address is in the client's options.

mod answer;
mod slots;

use super::{
    Inner,
    session::{BACK_BYTES, BACK_SLOTS},
};
use rpcrdma_env::{BoxFuture, Env};
use rpcrdma_nfs::v4::{
    List, Opaque, SessionId, Status, callback,
    ops::{self, CallbackSecurity, GssHandles, MAX_CALLBACK_SECURITY, MAX_GSS_HANDLE_BYTES},
};
use rpcrdma_oncrpc::{
    Answer, AuthStat, CallContext, Credential, Router, Service,
    gss::{AcceptBack, BackHandles, GssAuth, GssService},
};
use rpcrdma_xdr::{Decode as _, Decoder, Encode as _, Encoder};
use slots::{BackSlots, Turn};
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

/// How many calls of the server the client answers at a time: for the options of a transport.
pub const CALLBACK_SLOTS: u32 = BACK_SLOTS;

/// How many sessions' calls the client answers: the present one's, and those of a few before it.
const MAX_SESSIONS: usize = 4;

/// The handles of a context in the form of operations.
pub(super) fn in_context(handles: &BackHandles) -> CallbackSecurity {
    let service = match handles.service {
        GssService::Authentication => ops::GssService::None,
        GssService::Integrity => ops::GssService::Integrity,
        GssService::Privacy => ops::GssService::Privacy,
    };
    let (from_server, from_client) = (Opaque(handles.from_server.clone()), Opaque(handles.from_client.clone()));
    CallbackSecurity::Gss(Box::new(GssHandles { service, from_server, from_client }))
}

/// Answers the calls of the server. Cloning shares.
#[derive(Clone, Default)]
pub struct Callbacks {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    client: Mutex<Weak<Inner>>,
    sessions: Mutex<VecDeque<(SessionId, BackSlots)>>,
    /// The number by which the server names this client in its calls, in minor version 0.
    ident: AtomicU32,
    /// The contexts in which the server may call.
    contexts: Option<Arc<AcceptBack>>,
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callbacks")
    }
}

impl Callbacks {
    /// Callbacks for a client that does not exist yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same for a client that uses RPCSEC_GSS: the server may call in the same contexts. Once it has done so, the
    /// client accepts no other calls in this session.
    pub fn in_contexts_of(auth: GssAuth, env: &Env) -> Self {
        let contexts = Some(Arc::new(AcceptBack::new(auth, env)));
        Self { shared: Arc::new(Shared { contexts, ..Shared::default() }) }
    }

    /// The handler of the server's calls, for the transport that brings them.
    pub fn router(&self, env: &Env) -> Router {
        let router = Router::new(env).with_service(self.service());
        match &self.shared.contexts {
            Some(contexts) => router.with_flavour(contexts.clone()),
            None => router,
        }
    }

    /// The most calls of the server that the client answers at a time: a transport grants these in the reverse
    /// direction.
    pub const fn slots() -> u32 {
        CALLBACK_SLOTS
    }

    /// The callback program as a service, for a transport whose router does not understand calls with RPCSEC_GSS.
    pub fn service(&self) -> Arc<dyn Service> {
        self.shared.clone()
    }

    /// Connects the client that the server calls.
    pub(super) fn attach(&self, client: &Arc<Inner>) {
        *self.shared.client.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(client);
    }

    /// Sets the number by which the server names this client in its calls, in minor version 0.
    pub(super) fn called(&self, ident: u32) {
        self.shared.ident.store(ident, Ordering::Relaxed);
    }

    /// That number.
    pub(super) fn ident(&self) -> u32 {
        self.shared.ident.load(Ordering::Relaxed)
    }

    /// The credentials with which the server may call in a session that is about to be made. Contexts come first: a
    /// server takes the first one that it can use, and many servers can use only the last.
    pub(super) fn ways(&self) -> (List<CallbackSecurity, MAX_CALLBACK_SECURITY>, Option<BackHandles>) {
        if let Some(contexts) = &self.shared.contexts {
            contexts.expect();
        }
        let context = self.context();
        let ways = context.as_ref().map(in_context).into_iter().chain([CallbackSecurity::None]);
        (List(ways.collect()), context)
    }

    /// The present context, if the server may not know it yet.
    pub(super) fn context(&self) -> Option<BackHandles> {
        let handles = self.shared.contexts.as_ref()?.handles()?;
        Some(handles).filter(|handles| handles.from_server.len() <= MAX_GSS_HANDLE_BYTES)
    }

    /// The same, if the server has called in a context.
    pub(super) fn next_context(&self) -> Option<BackHandles> {
        self.shared.contexts.as_ref().filter(|contexts| contexts.has_heard()).and_then(|_| self.context())
    }

    /// From now on the server may call in this session.
    pub(super) fn session_made(&self, session: SessionId) {
        let mut sessions = self.shared.sessions();
        if sessions.len() >= MAX_SESSIONS {
            sessions.pop_front();
        }
        sessions.push_back((session, BackSlots::default()));
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, VecDeque<(SessionId, BackSlots)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> Option<Arc<Inner>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Answers a CB_COMPOUND.
    fn answer(&self, call: &callback::Arguments) -> rpcrdma_xdr::Payload {
        let encoded = |results: &callback::Results| {
            let mut encoder = Encoder::new();
            results.encode(&mut encoder);
            encoder.finish()
        };
        let refused = |status| encoded(&callback::Results { status, tag: call.tag.clone(), results: Vec::new() });
        if call.minor == 0
            && let Some(client) = self.client().filter(|client| client.minor == 0)
        {
            // Anybody can send a call to the port, but only the server knows the number.
            if call.ident != self.ident.load(Ordering::Relaxed) {
                return refused(Status::BADHANDLE);
            }
            let outcomes = answer::outcomes_without_session(&client, call);
            return encoded(&callback::Results::of(call.tag.clone(), outcomes));
        }
        if !(1..=rpcrdma_nfs::v4::MAX_MINOR).contains(&call.minor) {
            return refused(Status::MINOR_VERS_MISMATCH);
        }
        let Some(callback::Args::Sequence(sequence)) = call.ops.first() else {
            let outcome = match call.ops.first() {
                Some(first) => callback::Outcome::failed(first.op(), Status::OP_NOT_IN_SESSION),
                None => match call.broken_outcome() {
                    Some(outcome) => outcome,
                    None => return refused(Status::OK),
                },
            };
            return encoded(&callback::Results::of(call.tag.clone(), vec![outcome]));
        };
        let mut sessions = self.sessions();
        let turn = match sessions.iter_mut().find(|(session, _)| *session == sequence.session) {
            Some((_, slots)) => slots.begin(sequence),
            None => Turn::Refused(Status::BADSESSION),
        };
        let (told, slot) = match turn {
            Turn::New(told, slot) => (told, slot),
            Turn::Again(reply) => return reply,
            Turn::Refused(status) => {
                let outcome = callback::Outcome::Sequence(Err(status));
                return encoded(&callback::Results::of(call.tag.clone(), vec![outcome]));
            }
        };
        let outcomes = answer::outcomes(self.client().as_deref(), call, sequence, told);
        let reply = encoded(&callback::Results::of(call.tag.clone(), outcomes));
        slot.keep(&reply);
        reply
    }
}

impl Service for Shared {
    fn program(&self) -> u32 {
        ops::TRANSIENT_PROGRAM
    }

    fn version(&self) -> u32 {
        callback::VERSION
    }

    /// The slots of the back channel replace a cache of replies.
    fn is_idempotent(&self, _: u32) -> bool {
        true
    }

    fn call(&self, context: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        // If a server signs its calls, an unsigned call does not come from it, but from an attacker on the path.
        let is_signed = matches!(context.credential, Credential::Gss(_));
        // OPS-SEC-o
        if !is_signed && self.contexts.as_ref().is_some_and(|contexts| contexts.has_heard()) {
            return Box::pin(std::future::ready(Answer::AuthError(AuthStat::TOO_WEAK)));
        }
        let answer = match callback::Arguments::decode(&mut args) {
            _ if procedure != callback::Arguments::PROCEDURE => Answer::ProcUnavail,
            _ if args.position() > BACK_BYTES as usize => Answer::GarbageArgs,
            Ok(call) => Answer::Results(self.answer(&call)),
            Err(error) => error.into(),
        };
        Box::pin(std::future::ready(answer))
    }
}
