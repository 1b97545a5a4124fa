//! The flavour on the server's side: contexts are made, used and destroyed (RFC 2203 sections 5.2 to 5.4).

use super::{
    Failure, GssCaller, GssObserver, GssService, MAX_SEQUENCE, Mechanism, Names, Peer, Progress, RPCSEC_GSS, Refused,
    WINDOW, Work,
    body::{self, Unreadable},
    credential::{GssCredential, Procedure, signed_header},
    observer::Unheard,
    table::{Established, Handle, Live, Table},
    window::Window,
};
use crate::{
    AUTH_NONE, Accepted, Answered, AuthStat, CallHeader, ClientNetwork, Credential, OpaqueAuth, Rejection,
    ReplyFlavour, ServerFlavour, Unanswered, Verdict,
};
use bytes::Bytes;
use rpcrdma_env::{Clock, Env, Random};
use rpcrdma_xdr::{Decoder, Encoder, Payload};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::sync::oneshot;

/// The largest token that is taken: tickets with what Windows adds to them have some tens of KiB.
pub const MAX_TOKEN_OCTETS: usize = 64 << 10;

/// GSS_S_COMPLETE, GSS_S_CONTINUE_NEEDED, GSS_S_NO_CONTEXT, GSS_S_UNAVAILABLE (RFC 2203 appendix A).
const COMPLETE: u32 = 0;
const CONTINUE_NEEDED: u32 = 1;
const NO_CONTEXT: u32 = 8 << 16;
const UNAVAILABLE: u32 = 16 << 16;

/// RPCSEC_GSS on the server's side.
pub struct AcceptGss {
    house: Arc<House>,
    work: Arc<dyn Work>,
    observer: Arc<dyn GssObserver>,
}

/// What jobs of workers share with the flavour.
struct House {
    mechanism: Arc<dyn Mechanism>,
    names: Arc<dyn Names>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    table: Arc<Table>,
    /// Makes the numbers of principals unpredictable.
    secret: [u64; 2],
}

impl AcceptGss {
    /// The flavour over a mechanism. Contexts are made where `work` is done.
    pub fn new(env: &Env, mechanism: Arc<dyn Mechanism>, names: Arc<dyn Names>, work: Arc<dyn Work>) -> Self {
        let (clock, random) = (env.clock.clone(), env.random.clone());
        let secret = [random.next_u64(), random.next_u64()];
        let house = House { mechanism, names, clock, random, table: Arc::default(), secret };
        Self { house: Arc::new(house), work, observer: Arc::new(Unheard) }
    }

    /// The same, of which somebody hears what happens.
    pub fn with_observer(mut self, observer: Arc<dyn GssObserver>) -> Self {
        self.observer = observer;
        self
    }

    /// How many contexts there are now: finished ones, and those that wait for their initiator's next token.
    pub fn contexts(&self) -> (usize, usize) {
        self.house.table.sizes()
    }

    /// A message that makes a context. GSS-2203-5.2.2-a to -c.
    fn establish(&self, peer: SocketAddr, call: &CallHeader, credential: GssCredential, mut args: Decoder) -> Verdict {
        if call.id.procedure != 0 {
            return Verdict::Answered(Answered::denied(AuthStat::BAD_CREDENTIAL));
        }
        if call.verifier.flavour != AUTH_NONE || !call.verifier.body.is_empty() {
            return Verdict::Answered(Answered::denied(AuthStat::BAD_VERIFIER));
        }
        let token = match args.opaque(MAX_TOKEN_OCTETS).and_then(|token| args.finish().map(|()| token)) {
            Ok(token) => token,
            Err(error) if error.is_placement() => return Verdict::NotEligible,
            Err(_) => return Verdict::Answered(Answered::rejected(Rejection::GarbageArgs)),
        };
        let client = ClientNetwork::of(peer.ip());
        let Some(working) = self.house.table.begin(client) else {
            self.observer.refused(peer, Refused::Busy);
            return Verdict::Answered(failed(UNAVAILABLE, 0));
        };
        let (handle, handshake) = match credential.procedure {
            Procedure::Init if credential.handle.is_empty() => {
                (Handle::new(&*self.house.random), self.house.mechanism.begin())
            }
            Procedure::Init => return Verdict::Answered(Answered::denied(AuthStat::BAD_CREDENTIAL)),
            _ => {
                let handle = Handle::read(&credential.handle);
                match handle.and_then(|handle| Some((handle, self.house.table.take(handle)?))) {
                    Some(waiting) => waiting,
                    // GSS-2203-5.2.3.2-a: what is told of contexts that are gone is not told here.
                    None => {
                        self.observer.refused(peer, Refused::Unknown);
                        return Verdict::Answered(failed(NO_CONTEXT, 0));
                    }
                }
            }
        };
        let (sender, receiver) = oneshot::channel();
        let (house, observer) = (self.house.clone(), self.observer.clone());
        self.work.run(Box::new(move || {
            let made = handshake.step(&token).and_then(|progress| {
                let principal = match &progress {
                    Progress::Done { peer, .. } => Some(peer.principal.clone()),
                    Progress::More { .. } => None,
                };
                let answer = house.advance(handle, client, progress)?;
                principal.into_iter().for_each(|principal| observer.made(peer, &principal));
                Ok(answer)
            });
            let answer = made.unwrap_or_else(|failure| {
                observer.refused(peer, Refused::Token(&failure));
                failed(failure.major, failure.minor)
            });
            drop(working);
            // The caller may be gone.
            let _ = sender.send(answer);
        }));
        Verdict::Later(Box::pin(async move {
            receiver.await.unwrap_or_else(|_| Answered::rejected(Rejection::SystemError))
        }))
    }

    /// A message in a context.
    fn exchange(
        &self,
        peer: SocketAddr,
        call: &CallHeader,
        (credential, service): (GssCredential, GssService),
        args: Decoder,
    ) -> Verdict {
        let denied = |stat| Verdict::Answered(Answered::denied(stat));
        let refused = |why, stat| {
            self.observer.refused(peer, why);
            denied(stat)
        };
        let context = Handle::read(&credential.handle).and_then(|handle| Some((handle, self.house.table.get(handle)?)));
        let Some((handle, context)) = context else {
            return refused(Refused::Unknown, AuthStat::GSS_CREDENTIAL_PROBLEM);
        };
        // Some protect the nothing that destroys a context, and Linux sends it as it is (GSS-2203-5.4-c):
        // it is answered in the same way.
        let is_bare = credential.procedure == Procedure::Destroy && args.remaining() == 0;
        let service = if is_bare { GssService::Authentication } else { service };
        let sequence = credential.sequence;
        if context.is_over(self.house.clock.now()) {
            self.house.table.remove(handle);
            return refused(Refused::Over, AuthStat::GSS_CONTEXT_PROBLEM);
        }
        if sequence >= MAX_SEQUENCE {
            return refused(Refused::Over, AuthStat::GSS_CONTEXT_PROBLEM);
        }
        let opened = {
            let mut live = context.live();
            // What is dropped anyway needs no checksum (RFC 2203 section 7.2.2).
            if live.window.is_late(sequence) {
                self.observer.dropped(peer);
                return Verdict::Dropped;
            }
            if let Err(stat) = verify(&mut live, call) {
                return refused(Refused::Header, stat);
            }
            // GSS-2203-5.3.3.1-c: only now.
            live.window.note(sequence);
            body::open(&mut *live.protection, service, sequence, args)
        };
        let seal = Seal { context: context.clone(), service, sequence };
        let args = match opened {
            Ok(args) => args,
            Err(Unreadable::Placed) => return Verdict::NotEligible,
            Err(Unreadable::Wrong) => {
                self.observer.refused(peer, Refused::Arguments);
                return seal.answer(Err(Rejection::GarbageArgs));
            }
        };
        if credential.procedure == Procedure::Destroy {
            if call.id.procedure != 0 {
                return denied(AuthStat::BAD_CREDENTIAL);
            }
            if args.finish().is_err() {
                return seal.answer(Err(Rejection::GarbageArgs));
            }
            self.house.table.remove(handle);
            return seal.answer(Ok(Payload::new()));
        }
        let (principal, user) = (context.principal.clone(), context.user.clone());
        let credential = Credential::Gss(Arc::new(GssCaller { principal, user, service }));
        Verdict::Accepted(Accepted { credential, args, reply: Some(Box::new(seal)), caller: Some(context.caller) })
    }
}

impl ServerFlavour for AcceptGss {
    fn number(&self) -> u32 {
        RPCSEC_GSS
    }

    fn signs_each_transmission(&self) -> bool {
        true
    }

    fn accept(&self, peer: SocketAddr, call: &CallHeader, args: Decoder) -> Verdict {
        match GssCredential::read(&call.credential.body) {
            Err(stat) => {
                self.observer.refused(peer, Refused::Credential);
                Verdict::Answered(Answered::denied(stat))
            }
            Ok(credential) => match (credential.procedure, credential.service) {
                (Procedure::Data | Procedure::Destroy, Some(service)) => {
                    self.exchange(peer, call, (credential, service), args)
                }
                _ => self.establish(peer, call, credential, args),
            },
        }
    }
}

/// Checks a call's verifier. GSS-2203-5.3.1-a, GSS-2203-5.3.3.4.2-a.
fn verify(live: &mut Live, call: &CallHeader) -> Result<(), AuthStat> {
    if call.verifier.flavour != RPCSEC_GSS {
        return Err(AuthStat::GSS_CREDENTIAL_PROBLEM);
    }
    live.protection.verify(&signed_header(call), &call.verifier.body).map_err(|failure| match failure.is_expired() {
        true => AuthStat::GSS_CONTEXT_PROBLEM,
        false => AuthStat::GSS_CREDENTIAL_PROBLEM,
    })
}

impl House {
    /// What the initiator is told after a token that was good.
    fn advance(&self, handle: Handle, client: ClientNetwork, progress: Progress) -> Result<Answered, Failure> {
        match progress {
            Progress::More { handshake, token } => {
                self.table.wait(handle, client, handshake);
                let told = told(handle.octets(), CONTINUE_NEEDED, 0, &token);
                Ok(Answered { verifier: OpaqueAuth::none(), result: Ok(told) })
            }
            Progress::Done { mut protection, peer, token } => {
                let checksum = protection.sign(&WINDOW.to_be_bytes())?;
                let live = Mutex::new(Live { window: Window::new(), protection });
                self.keep(handle, client, peer, live)?;
                let verifier = OpaqueAuth { flavour: RPCSEC_GSS, body: checksum };
                Ok(Answered { verifier, result: Ok(told(handle.octets(), COMPLETE, 0, &token)) })
            }
        }
    }

    /// Keeps a context, unless it cannot be known whose it is: as nobody's it would stay so for as long as it lasts.
    fn keep(&self, handle: Handle, client: ClientNetwork, peer: Peer, live: Mutex<Live>) -> Result<(), Failure> {
        let Peer { principal, local, lifetime, .. } = peer;
        let now = self.clock.now();
        let user = self.names.user(&principal, local.as_deref()).map_err(|error| Failure {
            major: UNAVAILABLE,
            minor: 0,
            text: format!("this machine's databases do not tell which user {principal} is: {error}"),
        })?;
        let mut hasher = DefaultHasher::new();
        (self.secret, &*principal).hash(&mut hasher);
        let until = lifetime.map(|lifetime| now + lifetime);
        let context = Established { principal, user, caller: hasher.finish(), until, live };
        self.table.insert(handle, client, context, now);
        Ok(())
    }
}

/// What an initiator is told (RFC 2203 section 5.2.3.1): handle, major and minor status, window, token.
fn told(handle: &[u8], major: u32, minor: u32, token: &[u8]) -> Payload {
    let mut encoder = Encoder::with_capacity(40 + token.len());
    encoder.opaque(handle);
    [major, minor, WINDOW].into_iter().for_each(|word| encoder.u32(word));
    encoder.opaque(token);
    encoder.finish()
}

/// A context is not made: there is neither handle nor token. GSS-2203-5.2.3.1-a.
fn failed(major: u32, minor: u32) -> Answered {
    Answered { verifier: OpaqueAuth::none(), result: Ok(told(b"", major, minor, b"")) }
}

/// What a call's reply is protected with.
struct Seal {
    context: Arc<Established>,
    service: GssService,
    sequence: u32,
}

impl Seal {
    /// The flavour's own answer to a call in a context.
    fn answer(&self, result: Result<Payload, Rejection>) -> Verdict {
        let (results, rejection) = match result {
            Ok(results) => (Some(results), None),
            Err(rejection) => (None, Some(rejection)),
        };
        match self.wrap(results) {
            Ok((verifier, results)) => {
                Verdict::Answered(Answered { verifier, result: rejection.map_or(Ok(results), Err) })
            }
            Err(Unanswered::Denied(stat)) => Verdict::Answered(Answered::denied(stat)),
            Err(Unanswered::Silent) => Verdict::Dropped,
        }
    }
}

impl ReplyFlavour for Seal {
    /// GSS-2203-5.3.3.2-a, GSS-2203-5.3.3.4.1-a, GSS-2203-5.3.3.4.1-b.
    fn wrap(&self, results: Option<Payload>) -> Result<(OpaqueAuth, Payload), Unanswered> {
        let mut live = self.context.live();
        let denied = |failure: Failure| {
            tracing::debug!(principal = %self.context.principal, %failure, "a reply cannot be signed");
            Unanswered::Denied(AuthStat::GSS_CONTEXT_PROBLEM)
        };
        let body: Bytes = live.protection.sign(&self.sequence.to_be_bytes()).map_err(denied)?;
        let verifier = OpaqueAuth { flavour: RPCSEC_GSS, body };
        let Some(results) = results else { return Ok((verifier, Payload::new())) };
        match body::close(&mut *live.protection, self.service, self.sequence, results) {
            Ok(results) => Ok((verifier, results)),
            Err(failure) => {
                tracing::warn!(principal = %self.context.principal, %failure, "results cannot be protected");
                Err(Unanswered::Silent)
            }
        }
    }
}
