//! The client's part: it names its context to the server, and understands calls that come in it.

use super::super::{
    GssAuth, GssCaller, GssService, MAX_SEQUENCE, RPCSEC_GSS, WINDOW,
    body::{self, Unreadable},
    client::Context,
    credential::{GssCredential, Procedure, signed_header},
    table::Handle,
    window::Window,
};
use crate::{
    Accepted, Answered, AuthStat, CallHeader, Credential, OpaqueAuth, Rejection, ReplyFlavour, ServerFlavour,
    Unanswered, Verdict,
};
use bytes::Bytes;
use rpcrdma_env::{Clock, Env, Random};
use rpcrdma_xdr::{Decoder, Payload};
use std::{
    collections::VecDeque,
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Contexts that a server may call in: the last one that the client named to it, and the one before, whose calls may be
/// under way.
const MAX_CONTEXTS: usize = 2;

/// The handles and the service with which a server may call: CREATE_SESSION and BACKCHANNEL_CTL carry them
/// (`gss_cb_handles4`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackHandles {
    /// What the protection of calls covers: the same as of calls to the server.
    pub service: GssService,
    /// The server's handle of the context.
    pub from_server: Bytes,
    /// The client's handle of the context, which the server's calls carry.
    pub from_client: Bytes,
}

/// RPCSEC_GSS for calls that come from servers, in the contexts in which the client calls these servers. It is a
/// flavour of the router to which the transport passes such calls.
///
/// It keeps the contexts that it has named: the server can call in them for as long as they last.
pub struct AcceptBack {
    auth: GssAuth,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    named: Mutex<VecDeque<Named>>,
    /// Whether the server has called in one of them.
    has_heard: AtomicBool,
}

/// A context whose handle the server knows.
struct Named {
    handle: Handle,
    context: Arc<Context>,
    /// Of the sequence numbers of the server's calls.
    window: Window,
}

impl AcceptBack {
    /// For calls in the contexts of `auth`.
    pub fn new(auth: GssAuth, env: &Env) -> Self {
        Self {
            auth,
            clock: env.clock.clone(),
            random: env.random.clone(),
            named: Mutex::default(),
            has_heard: AtomicBool::new(false),
        }
    }

    fn named(&self) -> MutexGuard<'_, VecDeque<Named>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server has called in a context, since [`expect`](Self::expect). Such a server makes no other calls.
    pub fn has_heard(&self) -> bool {
        self.has_heard.load(Ordering::Relaxed)
    }

    /// Forgets whether the server can call in a context: it may have restarted.
    pub fn expect(&self) {
        self.has_heard.store(false, Ordering::Relaxed);
    }

    /// The handles of the present context, if there is one. The server may call by them as soon as it has them.
    pub fn handles(&self) -> Option<BackHandles> {
        let context = self.auth.context()?;
        // The server numbers its calls by its own window: with a window larger than this client's, calls could be lost.
        if context.window() > WINDOW {
            return None;
        }
        let (service, from_server) = (self.auth.service(), context.handle().clone());
        let mut named = self.named();
        if let Some(last) = named.back().filter(|last| Arc::ptr_eq(&last.context, &context)) {
            let from_client = Bytes::copy_from_slice(last.handle.octets());
            return Some(BackHandles { service, from_server, from_client });
        }
        let handle = Handle::new(&*self.random);
        let oldest = if named.len() == MAX_CONTEXTS { named.pop_front() } else { None };
        named.push_back(Named { handle, context, window: Window::new() });
        drop(named);
        // Dropping it may send a message to the server.
        drop(oldest);
        Some(BackHandles { service, from_server, from_client: Bytes::copy_from_slice(handle.octets()) })
    }

    fn exchange(
        &self,
        call: &CallHeader,
        (credential, service): (GssCredential, GssService),
        args: Decoder,
    ) -> Verdict {
        let denied = |stat| Verdict::Answered(Answered::denied(stat));
        let mut named = self.named();
        let handle = Handle::read(&credential.handle);
        let Some(named) = named.iter_mut().find(|named| Some(named.handle) == handle) else {
            return denied(AuthStat::GSS_CREDENTIAL_PROBLEM);
        };
        let (context, sequence) = (named.context.clone(), credential.sequence);
        if context.is_over(self.clock.now()) || sequence >= MAX_SEQUENCE {
            return denied(AuthStat::GSS_CONTEXT_PROBLEM);
        }
        // NFS4-8881-18.36-o: the service that the client named to the server, and nothing less.
        if service != self.auth.service() {
            return denied(AuthStat::TOO_WEAK);
        }
        if named.window.is_late(sequence) {
            return Verdict::Dropped;
        }
        if call.verifier.flavour != RPCSEC_GSS {
            return denied(AuthStat::GSS_CREDENTIAL_PROBLEM);
        }
        let opened = {
            let mut live = context.live();
            if live.protection.verify(&signed_header(call), &call.verifier.body).is_err() {
                return denied(AuthStat::GSS_CREDENTIAL_PROBLEM);
            }
            named.window.note(sequence);
            self.has_heard.store(true, Ordering::Relaxed);
            body::open(&mut *live.protection, service, sequence, args)
        };
        let principal = context.acceptor().clone();
        let seal = Seal { context, service, sequence };
        let args = match opened {
            Ok(args) => args,
            Err(Unreadable::Placed) => return Verdict::NotEligible,
            Err(Unreadable::Wrong) => {
                return match seal.wrap(None) {
                    Ok((verifier, _)) => Verdict::Answered(Answered { verifier, result: Err(Rejection::GarbageArgs) }),
                    Err(_) => denied(AuthStat::GSS_CONTEXT_PROBLEM),
                };
            }
        };
        let credential = Credential::Gss(Arc::new(GssCaller::new(principal, None, service)));
        Verdict::Accepted(Accepted { credential, args, reply: Some(Box::new(seal)), caller: None })
    }
}

impl ServerFlavour for AcceptBack {
    fn number(&self) -> u32 {
        RPCSEC_GSS
    }

    fn signs_each_transmission(&self) -> bool {
        true
    }

    fn accept(&self, _: SocketAddr, call: &CallHeader, args: Decoder) -> Verdict {
        match GssCredential::read(&call.credential.body) {
            Err(stat) => Verdict::Answered(Answered::denied(stat)),
            Ok(credential) => match (credential.procedure, credential.service) {
                (Procedure::Data, Some(service)) => self.exchange(call, (credential, service), args),
                // Contexts are made and destroyed by the client.
                _ => Verdict::Answered(Answered::denied(AuthStat::REJECTED_CREDENTIAL)),
            },
        }
    }
}

impl fmt::Debug for AcceptBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptBack").field("auth", &self.auth).finish_non_exhaustive()
    }
}

/// Protects the reply to a server's call.
struct Seal {
    context: Arc<Context>,
    service: GssService,
    sequence: u32,
}

impl ReplyFlavour for Seal {
    fn wrap(&self, results: Option<Payload>) -> Result<(OpaqueAuth, Payload), Unanswered> {
        let Self { context, service, sequence } = self;
        body::answer(&mut *context.live().protection, context.acceptor(), (*service, *sequence), results)
    }
}
