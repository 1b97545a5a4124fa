//! Making a context: tokens go to the server and back until both ends have it (RFC 2203 section 5.2).

use super::{
    super::{
        Failure, Handshake, Mechanism, Progress, RPCSEC_GSS, Work,
        credential::{GssCredential, Procedure},
        making::NO_CONTEXT,
    },
    context::{Context, Made},
};
use crate::{
    AuthStat, CallError, CallId, Client, ClientFlavour, ClientTransport, ContextError, MAX_AUTH_BODY_BYTES, OpaqueAuth,
    Protected, ReplyShape, Results, Wrapped,
};
use bytes::Bytes;
use rpcrdma_env::Clock;
use rpcrdma_xdr::{Decoder, Encoder, Payload, padded};
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;

/// The largest token that is taken from a server: Kerberos' have some 150 bytes.
const MAX_ANSWER_BYTES: usize = 2048;
/// The longest handle for which a credential has room.
const MAX_HANDLE_BYTES: usize = MAX_AUTH_BODY_BYTES - 20;
/// The most tokens that are sent for one context. Kerberos needs one, mechanisms that negotiate a few.
const MAX_STEPS: usize = 8;
/// How often the client tries to make a context. It tries again if the transport has sent a token twice, because the
/// server takes the second one for a replay, and if the server has lost the context that it was making, as nfsd does
/// when its cache is flushed.
const ATTEMPTS: usize = 3;
/// The bits of a major status that show an error (RFC 2744 section 3.9.1).
const ERRORS: u32 = 0xffff_0000;
/// The bit that says: another token is expected.
const CONTINUE_NEEDED: u32 = 1;

/// A context that is to be made.
pub(super) struct Establishing {
    pub(super) mechanism: Arc<dyn Mechanism>,
    pub(super) work: Arc<dyn Work>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) transport: Arc<dyn ClientTransport>,
    pub(super) program: (u32, u32),
}

/// A server's answer to a token (RFC 2203 section 5.2.3.1).
struct Answer {
    handle: Bytes,
    major: u32,
    minor: u32,
    window: u32,
    token: Bytes,
    verifier: OpaqueAuth,
    retransmitted: bool,
}

/// Why a context was not made.
enum Refused {
    /// The transport has sent a token twice, and the server has refused it or has lost the context that it made from
    /// it.
    Repeated(CallError),
    Finally(CallError),
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        Self::Finally(error)
    }
}

impl Establishing {
    pub(super) async fn run(self) -> Result<Arc<Context>, CallError> {
        let mut attempts = 1;
        loop {
            match self.attempt().await {
                Ok(context) => return Ok(Arc::new(context)),
                Err(Refused::Repeated(_)) if attempts < ATTEMPTS => attempts += 1,
                Err(Refused::Repeated(error) | Refused::Finally(error)) => return Err(error),
            }
        }
    }

    async fn attempt(&self) -> Result<Context, Refused> {
        let mut handle = Bytes::new();
        let mut progress = self.step(self.mechanism.begin(), Bytes::new()).await?;
        for step in 0..MAX_STEPS {
            let (handshake, token) = match progress {
                Progress::More { handshake, token } => (handshake, token),
                Progress::Done { .. } => return Err(self.broken("it has not yet proven who it is").into()),
            };
            let procedure = if step == 0 { Procedure::Init } else { Procedure::ContinueInit };
            let answer = self.send(procedure, handle, token).await?;
            if answer.major & ERRORS != 0 {
                let error = self.refused(&answer);
                let is_lost = answer.major == NO_CONTEXT;
                return Err(if answer.retransmitted || is_lost { Refused::Repeated(error) } else { error.into() });
            }
            if answer.handle.is_empty() {
                return Err(self.broken("it gives the context no handle").into());
            }
            progress = self.step(handshake, answer.token.clone()).await?;
            if answer.major != CONTINUE_NEEDED {
                return Ok(self.made(progress, answer)?);
            }
            handle = answer.handle;
        }
        Err(self.broken("it asks for too many tokens").into())
    }

    /// Runs a step of the mechanism on a thread of [`Work`].
    async fn step(&self, handshake: Box<dyn Handshake>, token: Bytes) -> Result<Progress, CallError> {
        let (sender, receiver) = oneshot::channel();
        let job = move || {
            // The caller may no longer wait.
            let _ = sender.send(handshake.step(&token));
        };
        self.work.run(Box::new(job));
        match receiver.await {
            Ok(step) => step.map_err(|failure| ContextError::new(failure.text).into()),
            Err(_) => Err(ContextError::new("the thread that makes contexts has ended").into()),
        }
    }

    /// Sends a token. GSS-2203-5.2.2-b, GSS-2203-5.2.2-c.
    async fn send(&self, procedure: Procedure, handle: Bytes, token: Bytes) -> Result<Answer, CallError> {
        let (program, version) = self.program;
        let control = Arc::new(Control { procedure, handle, verifier: OnceLock::new() });
        let client = Client::new(self.transport.clone(), control.clone(), program, version);
        let mut arguments = Encoder::with_capacity(4 + padded(token.len()));
        arguments.opaque_shared(token);
        let results = ReplyShape::inline(MAX_HANDLE_BYTES + MAX_ANSWER_BYTES + 20);
        let Results { mut decoder, retransmitted } = client.call(0, arguments.finish(), results).await?;
        let verifier = control.verifier.get().cloned().unwrap_or_default();
        let handle = decoder.opaque(MAX_HANDLE_BYTES)?;
        let (major, minor, window) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        let token = decoder.opaque(MAX_ANSWER_BYTES)?;
        decoder.finish()?;
        Ok(Answer { handle, major, minor, window, token, verifier, retransmitted })
    }

    /// The context, once both ends have it. GSS-2203-5.2.3.1-c.
    fn made(&self, progress: Progress, answer: Answer) -> Result<Context, CallError> {
        let Progress::Done { mut protection, peer, token } = progress else {
            return Err(self.broken("it completes the context before it has proven who it is"));
        };
        if !token.is_empty() {
            return Err(self.broken("it completes the context before it has seen the last token"));
        }
        let Answer { handle, window, verifier, .. } = answer;
        if verifier.flavour != RPCSEC_GSS {
            return Err(CallError::BadVerifier(AuthStat::BAD_VERIFIER));
        }
        let signed = protection.verify(&window.to_be_bytes(), &verifier.body);
        signed.map_err(|_| CallError::BadVerifier(AuthStat::INVALID_RESPONSE))?;
        if window == 0 {
            return Err(self.broken("its window has room for no call"));
        }
        tracing::debug!(server = %self.transport.server(), principal = %peer.principal, window, "a context is made");
        let transport = Arc::downgrade(&self.transport);
        let made = Made { handle, window, peer, protection, transport, program: self.program };
        Ok(Context::new(made, self.clock.now()))
    }

    fn refused(&self, answer: &Answer) -> CallError {
        let why = self.mechanism.explain(answer.major, answer.minor);
        ContextError::new(format!("{} refuses the caller's ticket: {why}", self.transport.server())).into()
    }

    fn broken(&self, what: &str) -> CallError {
        ContextError::new(format!("{} makes no context: {what}", self.transport.server())).into()
    }
}

impl From<Failure> for ContextError {
    fn from(failure: Failure) -> Self {
        Self::new(failure.text)
    }
}

/// The flavour of a message that makes a context. It keeps the reply's verifier.
struct Control {
    procedure: Procedure,
    handle: Bytes,
    verifier: OnceLock<OpaqueAuth>,
}

impl ClientFlavour for Control {
    fn max_credential(&self) -> usize {
        MAX_AUTH_BODY_BYTES
    }

    fn max_verifier(&self) -> usize {
        MAX_AUTH_BODY_BYTES
    }

    fn wrap(&self, _: &CallId, args: Payload, _: &Arc<dyn ClientTransport>) -> Wrapped {
        let Self { procedure, handle, .. } = self;
        let credential = GssCredential { procedure: *procedure, sequence: 0, service: None, handle: handle.clone() };
        Wrapped::Plain(Protected { credential: credential.write(), verifier: OpaqueAuth::none(), body: args })
    }

    fn unwrap(&self, _: &CallId, verifier: &OpaqueAuth, results: Decoder) -> Result<Decoder, AuthStat> {
        // There is one reply to one call.
        let _ = self.verifier.set(verifier.clone());
        Ok(results)
    }
}
