//! From whole RPC messages to services.
//!
//! The router reads a call's header, has its credential understood, asks the duplicate request cache about calls
//! that must not be executed twice, and hands the arguments to the service. It owns the message until then. Every
//! way in which this can fail is an answer that RFC 5531 names, or silence.

use crate::{
    AcceptNone, AcceptSys, Accepted, Answer, AuthStat, BadCall, Begun, CallContext, CallHeader, Handler, OpaqueAuth,
    Outcome, Rejection, Repetition, ReplyFlavour, ReplyHeader, ServerFlavour, Service, TransportKind,
    duplicate::{DUPLICATE_CACHE_OCTETS, DuplicateCache, InProgress, Key, Lookup, Origin, measure},
    peek::{ask_arguments, first_words},
};
use rpcrdma_env::{BoxFuture, Clock, Env};
use rpcrdma_xdr::{Decoder, Payload, SharedScratch, Stream};
use std::{
    sync::Arc,
    task::{Context, Poll},
};

/// Room for results that are copied behind the header.
const SHORT_RESULT_OCTETS: usize = 256;

/// Hands calls to services. One router may serve any number of connections over any transports, and the duplicate
/// request cache is common to them: a client that lost its connection finds its replies again.
pub struct Router {
    services: Vec<Arc<dyn Service>>,
    flavours: Vec<Arc<dyn ServerFlavour>>,
    duplicates: DuplicateCache,
    clock: Arc<dyn Clock>,
}

impl Router {
    /// A router without services that accepts AUTH_NONE and AUTH_SYS.
    pub fn new(env: &Env) -> Self {
        Self {
            services: Vec::new(),
            flavours: vec![Arc::new(AcceptSys), Arc::new(AcceptNone)],
            duplicates: DuplicateCache::new(DUPLICATE_CACHE_OCTETS),
            clock: env.clock.clone(),
        }
    }

    /// Adds a version of a program.
    pub fn with_service(mut self, service: Arc<dyn Service>) -> Self {
        self.services.push(service);
        self
    }

    /// Adds a credential flavour; it comes before one of the same number that is there already.
    pub fn with_flavour(mut self, flavour: Arc<dyn ServerFlavour>) -> Self {
        self.flavours.insert(0, flavour);
        self
    }

    /// Limits the duplicate request cache to `octets`.
    pub fn with_duplicate_cache_octets(mut self, octets: usize) -> Self {
        self.duplicates = DuplicateCache::new(octets);
        self
    }

    fn find(&self, program: u32, version: u32) -> Result<&Arc<dyn Service>, Rejection> {
        let of_program = || self.services.iter().filter(|service| service.program() == program);
        match of_program().find(|service| service.version() == version) {
            Some(service) => Ok(service),
            None => {
                let low = of_program().map(|service| service.version()).min();
                let high = of_program().map(|service| service.version()).max();
                match (low, high) {
                    (Some(low), Some(high)) => Err(Rejection::ProgramMismatch { low, high }),
                    _ => Err(Rejection::ProgramUnavailable),
                }
            }
        }
    }

    /// The duplicate cache's key of a call that must not be executed twice.
    fn duplicate_key(&self, context: &CallContext, message: &Stream) -> Option<Key> {
        let [xid, _, _, program, version, procedure] = first_words(message)?;
        let service = self.find(program, version).ok()?;
        if procedure == 0 {
            return None;
        }
        let peer = context.connection.peer;
        let port = match ask_arguments(message, |words| service.repetition(procedure, words))? {
            Repetition::Executed => return None,
            // A device gives each connection another port.
            Repetition::AnsweredToPort if context.connection.kind != TransportKind::Rdma => peer.port(),
            Repetition::Answered | Repetition::AnsweredToPort => 0,
        };
        // An IPv4 client of a socket of both families is the client that it is over another transport.
        let client = peer.ip().to_canonical();
        let (len, checksum) = measure(message.parts());
        Some(Key { client, port, xid, program, version, procedure, len, checksum })
    }

    /// What the call is answered with. An error is an answer that is known without the service.
    fn dispatch(&self, context: CallContext, message: Stream) -> Dispatched {
        self.try_dispatch(context, message).unwrap_or_else(Dispatched::Known)
    }

    fn try_dispatch(&self, context: CallContext, message: Stream) -> Result<Dispatched, Outcome> {
        let scratch = context.connection.scratch.clone();
        let key = self.duplicate_key(&context, &message);
        let mut decoder = Decoder::new(message);
        let header = CallHeader::decode(&mut decoder).map_err(|bad| match bad {
            BadCall::NotACall => Outcome::Nothing,
            BadCall::NotEligible => Outcome::NotEligible,
            BadCall::Rejected { xid, rejection } => Outcome::Reply(reply(&scratch, xid, None, Err(rejection))),
        })?;
        let xid = header.id.xid;
        let accepted = self.accept(&context, &header, decoder).map_err(|stat| {
            tracing::debug!(peer = %context.connection.peer, flavour = header.credential.flavour, "credential refused");
            Outcome::Reply(reply(&scratch, xid, None, Err(Rejection::Auth(stat))))
        })?;
        let Accepted { credential, args, reply: flavour } = accepted;
        let service = match self.find(header.id.program, header.id.version) {
            Ok(service) => service,
            Err(rejection) => return Err(Outcome::Reply(reply(&scratch, xid, flavour.as_deref(), Err(rejection)))),
        };
        if header.id.procedure == 0 {
            return Err(match args.finish().map_err(Answer::from) {
                Err(Answer::NotEligible) => Outcome::NotEligible,
                Err(_) => Outcome::Reply(reply(&scratch, xid, flavour.as_deref(), Err(Rejection::GarbageArgs))),
                Ok(()) => Outcome::Reply(reply(&scratch, xid, flavour.as_deref(), Ok(Payload::new()))),
            });
        }
        let origin = Origin { peer: context.connection.peer, id: context.connection.id };
        let in_progress = match key.map(|key| self.duplicates.lookup(key, origin, self.clock.now())) {
            Some(Lookup::Done(reply)) => return Err(Outcome::Reply(reply)),
            Some(Lookup::InProgress) => return Err(Outcome::Nothing),
            Some(Lookup::Wait(reply)) => {
                let answer = async move { reply.await.map_or(Outcome::Nothing, Outcome::Reply) };
                return Ok(Dispatched::Waits(Box::pin(answer)));
            }
            Some(Lookup::New(in_progress)) => Some((in_progress, self.clock.clone())),
            None => None,
        };
        let call = service.call(context.with_credential(credential), header.id.procedure, args);
        Ok(Dispatched::Called(call, Called { xid, flavour, in_progress, scratch }))
    }

    fn accept(&self, context: &CallContext, header: &CallHeader, args: Decoder) -> Result<Accepted, AuthStat> {
        let number = header.credential.flavour;
        match self.flavours.iter().find(|flavour| flavour.number() == number) {
            Some(flavour) => flavour.accept(context.connection.peer, header, args),
            None => Err(AuthStat::REJECTED_CREDENTIAL),
        }
    }
}

/// What a call was found to be.
enum Dispatched {
    /// One whose outcome is known without the service.
    Known(Outcome),
    /// One that waits for the answer to the same call.
    Waits(BoxFuture<'static, Outcome>),
    /// One that the service executes.
    Called(BoxFuture<'static, Answer>, Called),
}

impl Handler for Router {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        match self.dispatch(context, message) {
            Dispatched::Known(outcome) => Box::pin(std::future::ready(outcome)),
            Dispatched::Waits(outcome) => outcome,
            Dispatched::Called(call, called) => Box::pin(async move { called.outcome(call.await) }),
        }
    }

    fn begin(&self, context: CallContext, message: Stream, cx: &mut Context<'_>) -> Begun {
        match self.dispatch(context, message) {
            Dispatched::Known(outcome) => Begun::Done(outcome),
            Dispatched::Waits(mut outcome) => match outcome.as_mut().poll(cx) {
                Poll::Ready(outcome) => Begun::Done(outcome),
                Poll::Pending => Begun::Waits(outcome),
            },
            Dispatched::Called(mut call, called) => match call.as_mut().poll(cx) {
                Poll::Ready(answer) => Begun::Done(called.outcome(answer)),
                Poll::Pending => Begun::Waits(Box::pin(async move { called.outcome(call.await) })),
            },
        }
    }
}

/// What is needed to reply to a call that the service executes.
struct Called {
    xid: u32,
    flavour: Option<Box<dyn ReplyFlavour>>,
    in_progress: Option<(InProgress, Arc<dyn Clock>)>,
    scratch: SharedScratch,
}

impl Called {
    fn outcome(self, answer: Answer) -> Outcome {
        let Self { xid, flavour, in_progress, scratch } = self;
        let is_repeatable = matches!(answer, Answer::Repeatable(_));
        let result = match answer {
            Answer::Results(results) | Answer::Repeatable(results) => Ok(results),
            Answer::GarbageArgs => Err(Rejection::GarbageArgs),
            Answer::ProcUnavail => Err(Rejection::ProcedureUnavailable),
            Answer::SystemErr => Err(Rejection::SystemError),
            Answer::AuthError(stat) => Err(Rejection::Auth(stat)),
            Answer::NotEligible => return Outcome::NotEligible,
            Answer::Nothing => return Outcome::Nothing,
        };
        let reply = reply(&scratch, xid, flavour.as_deref(), result);
        if let Some((in_progress, clock)) = in_progress {
            if is_repeatable {
                in_progress.pass_on(&reply);
            } else {
                in_progress.finish(&reply, clock.now());
            }
        }
        Outcome::Reply(reply)
    }
}

/// A whole reply message.
fn reply(
    scratch: &SharedScratch,
    xid: u32,
    flavour: Option<&dyn ReplyFlavour>,
    result: Result<Payload, Rejection>,
) -> Payload {
    let (status, results) = match result {
        Ok(results) => (Ok(()), results),
        Err(rejection) => (Err(rejection), Payload::new()),
    };
    let (verifier, results) = match flavour {
        Some(flavour) => flavour.wrap(results),
        None => (OpaqueAuth::none(), results),
    };
    let mut encoder = scratch.encoder(crate::REPLY_HEADER_OCTETS + verifier.body.len() + 8 + SHORT_RESULT_OCTETS);
    ReplyHeader { xid, verifier, status }.encode(&mut encoder);
    if status.is_ok() {
        encoder.payload(results);
    }
    encoder.finish()
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
