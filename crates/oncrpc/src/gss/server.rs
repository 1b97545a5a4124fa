//! The flavour on the server's side: contexts are made, used and destroyed (RFC 2203 sections 5.2 to 5.4).

use super::{
    BackAuth, BackHandles, GssCaller, GssObserver, GssService, MAX_SEQUENCE, Mechanism, Names, RPCSEC_GSS, Refused,
    Workshop,
    body::{self, Unreadable},
    credential::{GssCredential, Procedure, signed_header},
    making::{Making, NO_CONTEXT, no_context},
    observer::Unheard,
    queue::Queue,
    table::{Established, Handle, Live, Table},
};
use crate::{
    AUTH_NONE, Accepted, Answered, AuthStat, CallHeader, Credential, OpaqueAuth, Rejection, ReplyFlavour,
    ServerFlavour, Unanswered, Verdict,
};
use rpcrdma_env::{Clock, Env, Random};
use rpcrdma_xdr::{Decoder, Payload};
use std::{net::SocketAddr, sync::Arc};

/// The largest token that is taken: tickets with what Windows adds to them have some tens of KiB.
pub const MAX_TOKEN_BYTES: usize = 64 << 10;

/// RPCSEC_GSS on the server's side.
pub struct AcceptGss {
    house: Arc<House>,
    observer: Arc<dyn GssObserver>,
}

/// What jobs of workers share with the flavour.
pub(super) struct House {
    pub(super) mechanism: Arc<dyn Mechanism>,
    pub(super) names: Arc<dyn Names>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) table: Table,
    /// Tokens that wait for a thread, and principals that wait to be looked up.
    pub(super) tokens: Arc<Queue>,
    pub(super) users: Arc<Queue>,
    /// Makes the numbers of principals unpredictable.
    pub(super) secret: [u64; 2],
}

impl AcceptGss {
    /// The flavour over a mechanism. Contexts are made in the workshop.
    pub fn new(env: &Env, mechanism: Arc<dyn Mechanism>, names: Arc<dyn Names>, workshop: Workshop) -> Self {
        let (clock, random) = (env.clock.clone(), env.random.clone());
        let secret = [random.next_u64(), random.next_u64()];
        let (tokens, users) = workshop.queues();
        let house = House { mechanism, names, clock, random, table: Table::default(), tokens, users, secret };
        Self { house: Arc::new(house), observer: Arc::new(Unheard) }
    }

    /// The same, with an observer.
    pub fn with_observer(mut self, observer: Arc<dyn GssObserver>) -> Self {
        self.observer = observer;
        self
    }

    /// How many contexts there are now: finished ones, and those that wait for their initiator's next token.
    pub fn contexts(&self) -> (usize, usize) {
        self.house.table.sizes()
    }

    /// How many tokens wait for a thread, and how many principals wait to be looked up.
    pub fn waiting(&self) -> (usize, usize) {
        (self.house.tokens.len(), self.house.users.len())
    }

    /// The flavour that calls a client back by the handles that it names, which belong to a context of `principal`;
    /// `None` if there is no such context. NFS4-8881-18.36-o.
    pub fn back(&self, principal: &str, handles: &BackHandles) -> Option<BackAuth> {
        let context = self.house.table.get(Handle::read(&handles.from_server)?)?;
        let is_own = *context.principal == *principal && !context.is_over(self.house.clock.now());
        let (handle, service) = (handles.from_client.clone(), handles.service);
        is_own.then(|| BackAuth::new(&context, handle, service, self.house.clock.clone()))
    }

    /// A message that makes a context. GSS-2203-5.2.2-a to -c.
    fn establish(&self, peer: SocketAddr, call: &CallHeader, credential: GssCredential, mut args: Decoder) -> Verdict {
        if call.id.procedure != 0 {
            return Verdict::Answered(Answered::denied(AuthStat::BAD_CREDENTIAL));
        }
        if call.verifier.flavour != AUTH_NONE || !call.verifier.body.is_empty() {
            return Verdict::Answered(Answered::denied(AuthStat::BAD_VERIFIER));
        }
        let token = match args.opaque(MAX_TOKEN_BYTES).and_then(|token| args.finish().map(|()| token)) {
            Ok(token) => token,
            Err(error) if error.is_placement() => return Verdict::NotEligible,
            Err(_) => return Verdict::Answered(Answered::rejected(Rejection::GarbageArgs)),
        };
        let begun = match credential.procedure {
            Procedure::Init if credential.handle.is_empty() => None,
            Procedure::Init => return Verdict::Answered(Answered::denied(AuthStat::BAD_CREDENTIAL)),
            _ => {
                let handle = Handle::read(&credential.handle);
                match handle.and_then(|handle| Some((handle, self.house.table.take(handle)?))) {
                    Some(waiting) => Some(waiting),
                    // GSS-2203-5.2.3.2-a: the error for a context that has ended does not apply here.
                    None => {
                        self.observer.refused(peer, Refused::Unknown);
                        let result = Ok(no_context(NO_CONTEXT, 0));
                        return Verdict::Answered(Answered { verifier: OpaqueAuth::none(), result });
                    }
                }
            }
        };
        Making::begin(self.house.clone(), self.observer.clone(), peer, (begun, token))
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
            // GSS-2203-5.3.3.3-a
            return refused(Refused::Unknown, AuthStat::GSS_CREDENTIAL_PROBLEM);
        };
        // Some clients protect the empty body of the message that destroys a context, and Linux sends it unprotected
        // (GSS-2203-5.4-c): the reply has the form of the call.
        let is_bare = credential.procedure == Procedure::Destroy && args.remaining() == 0;
        let service = if is_bare { GssService::Authentication } else { service };
        let sequence = credential.sequence;
        if context.is_over(self.house.clock.now()) {
            self.house.table.remove(handle);
            return refused(Refused::Over, AuthStat::GSS_CONTEXT_PROBLEM);
        }
        // GSS-2203-5.3.3.3-b
        if sequence >= MAX_SEQUENCE {
            return refused(Refused::Over, AuthStat::GSS_CONTEXT_PROBLEM);
        }
        let opened = {
            let mut live = context.live();
            // A call that is dropped anyway needs no checksum (RFC 2203 section 7.2.2).
            // GSS-2203-5.3.3.1-a
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

/// Protects the reply to a call.
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
    fn wrap(&self, results: Option<Payload>) -> Result<(OpaqueAuth, Payload), Unanswered> {
        let Self { context, service, sequence } = self;
        body::answer(&mut *context.live().protection, &context.principal, (*service, *sequence), results)
    }
}
