//! The server's part: calls to a client, signed in a context that the client has made.

use super::super::{
    Failure, GssService, MAX_SEQUENCE, body,
    credential::{GssCredential, Procedure, sign},
    table::{Established, Live},
    transmissions::Transmissions,
};
use crate::{
    AuthStat, CallError, CallId, ClientFlavour, ClientTransport, ContextError, MAX_AUTH_BODY_BYTES, OpaqueAuth,
    Protected, Rejection, Signed, SignedLater, Wrapped,
};
use bytes::Bytes;
use rpcrdma_env::Clock;
use rpcrdma_xdr::{Decoder, Payload, padded};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// The bytes of a credential without those of its handle.
const CREDENTIAL_BYTES: usize = 20;

/// Calls a client with the service that the client used. It does not keep a context alive: a context that was destroyed
/// or displaced signs nothing any more. Cloning shares.
#[derive(Clone)]
pub struct BackAuth {
    context: Weak<Established>,
    /// The client's handle of the context.
    handle: Bytes,
    service: GssService,
    clock: Arc<dyn Clock>,
}

impl BackAuth {
    pub(in crate::gss) fn new(
        context: &Arc<Established>,
        handle: Bytes,
        service: GssService,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { context: Arc::downgrade(context), handle, service, clock }
    }

    /// Whether, as far as is known, the context can sign calls for this long from now on.
    pub fn lasts(&self, time: Duration) -> bool {
        let until = self.clock.now() + time;
        self.context.upgrade().is_some_and(|context| !context.is_over(until))
    }

    /// Whether it is the same context by the same handle.
    pub fn is(&self, other: &Self) -> bool {
        self.context.ptr_eq(&other.context) && self.handle == other.handle
    }

    /// The context, if it is still valid.
    fn context(&self) -> Result<Arc<Established>, ContextError> {
        let context = self.context.upgrade().filter(|context| !context.is_over(self.clock.now()));
        context.ok_or_else(|| ContextError::new("the context for calls to the client has ended"))
    }
}

impl ClientFlavour for BackAuth {
    fn max_credential(&self) -> usize {
        CREDENTIAL_BYTES + padded(self.handle.len())
    }

    fn max_call_expansion(&self) -> usize {
        self.service.max_call_expansion()
    }

    fn max_verifier(&self) -> usize {
        MAX_AUTH_BODY_BYTES
    }

    fn max_expansion(&self) -> usize {
        self.service.max_expansion()
    }

    fn protects_bodies(&self) -> bool {
        self.service.protects_bodies()
    }

    fn wrap(&self, call: &CallId, args: Payload, _: &Arc<dyn ClientTransport>) -> Wrapped {
        Wrapped::Signed(Arc::new(BackCall { auth: self.clone(), id: *call, args, sent: Mutex::default() }))
    }
}

impl fmt::Debug for BackAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackAuth").field("service", &self.service).finish_non_exhaustive()
    }
}

/// A call to a client, and its transmissions.
struct BackCall {
    auth: BackAuth,
    id: CallId,
    /// The arguments without protection: each transmission has its own.
    args: Payload,
    sent: Mutex<Sent>,
}

/// The transmissions of a call.
#[derive(Default)]
struct Sent {
    numbers: Transmissions,
    /// An earlier transmission was sent, and the next could not be signed: whether the client has executed the call is
    /// unknown.
    is_doubtful: bool,
}

impl BackCall {
    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more transmission, and its number.
    fn sign_anew(&self) -> Result<(u32, Protected), ContextError> {
        let context = self.auth.context()?;
        let mut live = context.live();
        if live.back >= MAX_SEQUENCE {
            return Err(ContextError::new("the context has used all its sequence numbers"));
        }
        Ok(self.sign_in(&mut live)?)
    }

    fn sign_in(&self, live: &mut Live) -> Result<(u32, Protected), Failure> {
        let (service, handle) = (self.auth.service, self.auth.handle.clone());
        let number = live.back;
        let credential = GssCredential { procedure: Procedure::Data, sequence: number, service: Some(service), handle };
        let header = sign(&mut *live.protection, self.id, credential.write())?;
        let body = body::close(&mut *live.protection, service, number, self.args.clone())?;
        live.back += 1;
        Ok((number, Protected { credential: header.credential, verifier: header.verifier, body }))
    }
}

impl Signed for BackCall {
    fn sign(&self) -> Result<Protected, ContextError> {
        let signed = self.sign_anew();
        let mut sent = self.sent();
        match &signed {
            Ok((number, _)) => sent.numbers.push(*number),
            Err(_) => sent.is_doubtful |= !sent.numbers.is_empty(),
        }
        signed.map(|(_, protected)| protected)
    }

    fn unwrap(&self, verifier: &OpaqueAuth, results: Option<Decoder>) -> Result<Option<Decoder>, AuthStat> {
        let context = self.auth.context().map_err(|_| AuthStat::GSS_CONTEXT_PROBLEM)?;
        let sent = self.sent();
        let mut live = context.live();
        sent.numbers.unwrap(&mut *live.protection, self.auth.service, verifier, results)
    }

    /// Only the client can make another context, and its rejection asks the server to wait for one. With such a
    /// rejection the client has certainly not executed the call.
    fn renew(&self, _: &Arc<dyn ClientTransport>) -> SignedLater {
        let error = match self.sent().is_doubtful {
            true => ContextError::new("the context for calls to the client has ended").into(),
            false => CallError::Rejected(Rejection::Auth(AuthStat::GSS_CREDENTIAL_PROBLEM)),
        };
        Box::pin(std::future::ready(Err(error)))
    }
}

impl fmt::Debug for BackCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BackCall").field(&self.id).finish()
    }
}
