//! From whole RPC messages to services.
//!
//! The router reads a call's header, lets a flavour check its credential, asks the duplicate request cache about calls
//! that must not be executed twice, and hands the arguments to the service. It owns the message until then. Every
//! failure leads to a reply that RFC 5531 names, or to no reply.

mod reply;

use crate::{
    AcceptNone, AcceptSys, Accepted, Answer, Answered, AuthStat, BadCall, Begun, CallContext, CallHeader, CallId,
    Handler, Outcome, Rejection, Repetition, ReplyFlavour, ServerFlavour, Service, TransportKind, Verdict,
    duplicate::{DUPLICATE_CACHE_BYTES, DuplicateCache, InProgress, Key, Lookup, Origin, measure},
    peek::{ask_arguments, ask_words, first_words, peek_flavour},
};
use futures_util::future::{Either, select};
use reply::{Telling, answered, kept, protected, reply};
use rpcrdma_env::{BoxFuture, Clock, Env};
use rpcrdma_xdr::{Decoder, Payload, SharedScratch, Stream};
use std::{
    pin::pin,
    sync::{Arc, Once},
    task::{Context, Poll},
};

/// Hands calls to services. One router may serve any number of connections over any transports, and the duplicate
/// request cache is common to them: a client that lost its connection finds its replies again.
pub struct Router {
    services: Vec<Arc<dyn Service>>,
    flavours: Vec<Arc<dyn ServerFlavour>>,
    /// Whether one of them signs each transmission.
    signs: bool,
    duplicates: DuplicateCache,
    clock: Arc<dyn Clock>,
}

impl Router {
    /// A router without services that accepts AUTH_NONE and AUTH_SYS.
    pub fn new(env: &Env) -> Self {
        Self {
            services: Vec::new(),
            flavours: vec![Arc::new(AcceptSys::default()), Arc::new(AcceptNone)],
            signs: false,
            duplicates: DuplicateCache::new(DUPLICATE_CACHE_BYTES),
            clock: env.clock.clone(),
        }
    }

    /// Adds a version of a program.
    pub fn with_service(mut self, service: Arc<dyn Service>) -> Self {
        self.services.push(service);
        self
    }

    /// Adds a credential flavour; it comes before an earlier one of the same number.
    pub fn with_flavour(mut self, flavour: Arc<dyn ServerFlavour>) -> Self {
        self.signs |= flavour.signs_each_transmission();
        self.flavours.insert(0, flavour);
        self
    }

    /// Limits the duplicate request cache to `octets`.
    pub fn with_duplicate_cache_bytes(mut self, octets: usize) -> Self {
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
        let repetition = ask_arguments(message, |words| service.repetition(procedure, words))?;
        let id = CallId { xid, program, version, procedure };
        key(context, id, repetition, || measure(message.parts()))
    }

    /// The same for a call by a proven caller. The key leaves out what differs between transmissions of the call.
    fn signed_key(&self, context: &CallContext, id: CallId, caller: u64, args: &Decoder) -> Option<Key> {
        let service = self.find(id.program, id.version).ok()?;
        if id.procedure == 0 {
            return None;
        }
        let repetition = ask_words(args, |words| service.repetition(id.procedure, words));
        let key = key(context, id, repetition, || measure(args.parts()))?;
        Some(Key { caller, ..key })
    }

    /// Whether the call's flavour signs each transmission.
    fn is_signed(&self, message: &Stream) -> bool {
        let flavour = || self.flavour(peek_flavour(message)?);
        self.signs && flavour().is_some_and(|flavour| flavour.signs_each_transmission())
    }

    fn dispatch(&self, context: CallContext, message: Stream) -> Dispatched {
        self.try_dispatch(context, message).unwrap_or_else(Dispatched::Known)
    }

    /// Finds out how to handle the call. An error is an answer that needs no service.
    fn try_dispatch(&self, context: CallContext, message: Stream) -> Result<Dispatched, Outcome> {
        let key = if self.is_signed(&message) { None } else { self.duplicate_key(&context, &message) };
        let mut decoder = Decoder::new(message);
        let header = CallHeader::decode(&mut decoder).map_err(|bad| match bad {
            BadCall::NotACall => Outcome::Nothing,
            BadCall::NotEligible => Outcome::NotEligible,
            BadCall::Rejected { xid, rejection } => reply(&context.connection.scratch, xid, None, Err(rejection)),
        })?;
        let xid = header.id.xid;
        let accepted = match self.accept(&context, &header, decoder) {
            Verdict::Accepted(accepted) => accepted,
            Verdict::Answered(answer) => return Err(answered(xid, answer)),
            Verdict::Later(answer) => {
                let gone = context.connection.gone.wait();
                return Ok(Dispatched::Waits(Box::pin(async move {
                    match select(answer, pin!(gone)).await {
                        Either::Left((answer, _)) => answered(xid, answer),
                        // The flavour learns from the drop of its answer that the caller no longer waits.
                        Either::Right(_) => Outcome::Nothing,
                    }
                })));
            }
            Verdict::Dropped => return Err(Outcome::Nothing),
            Verdict::NotEligible => return Err(Outcome::NotEligible),
        };
        let Accepted { credential, args, reply: flavour, caller } = accepted;
        let flavour = match context.first_word.clone() {
            Some(word) => flavour.map(|flavour| Box::new(Telling { flavour, word }) as Box<dyn ReplyFlavour>),
            None => flavour,
        };
        let key = caller.map_or(key, |caller| self.signed_key(&context, header.id, caller, &args));
        let service = match self.find(header.id.program, header.id.version) {
            Ok(service) => service,
            Err(rejection) => return Err(reply(&context.connection.scratch, xid, flavour.as_deref(), Err(rejection))),
        };
        if header.id.procedure == 0 {
            let scratch = &context.connection.scratch;
            return Err(match args.finish().map_err(Answer::from) {
                Err(Answer::NotEligible) => Outcome::NotEligible,
                Err(_) => reply(scratch, xid, flavour.as_deref(), Err(Rejection::GarbageArgs)),
                Ok(()) => reply(scratch, xid, flavour.as_deref(), Ok(Payload::new())),
            });
        }
        let origin = Origin { peer: context.connection.peer, id: context.connection.id };
        let in_progress = match key.map(|key| self.duplicates.lookup(key, origin, self.clock.now())) {
            Some(Lookup::Done(reply)) => return Err(again(flavour.as_deref(), reply)),
            Some(Lookup::InProgress) => return Err(Outcome::Nothing),
            Some(Lookup::Wait(reply)) => {
                let answer =
                    async move { reply.await.map_or(Outcome::Nothing, |reply| again(flavour.as_deref(), reply)) };
                return Ok(Dispatched::Waits(Box::pin(answer)));
            }
            Some(Lookup::New(in_progress)) => Some((in_progress, self.clock.clone())),
            None => None,
        };
        let scratch = context.connection.scratch.clone();
        let mut context = context.with_credential(credential);
        context.plain = (flavour.is_none() && in_progress.is_none()).then_some(xid);
        let call = service.begin(context, header.id.procedure, args);
        Ok(Dispatched::Called(call, Called { xid, flavour, in_progress, scratch }))
    }

    fn accept(&self, context: &CallContext, header: &CallHeader, args: Decoder) -> Verdict {
        let number = header.credential.flavour;
        let verdict = match self.flavour(number) {
            Some(flavour) => flavour.accept(context.connection.peer, header, args),
            // RPC-5531-8.2-b
            None => Verdict::Answered(Answered::denied(AuthStat::REJECTED_CREDENTIAL)),
        };
        if let Verdict::Answered(Answered { result: Err(Rejection::Auth(stat)), .. }) = &verdict {
            tracing::debug!(peer = %context.connection.peer, flavour = number, reason = stat.0, "credential refused");
        }
        verdict
    }

    fn flavour(&self, number: u32) -> Option<&Arc<dyn ServerFlavour>> {
        self.flavours.iter().find(|flavour| flavour.number() == number)
    }
}

/// The duplicate cache's key of a call, if it must not be executed twice.
fn key(
    context: &CallContext,
    id: CallId,
    repetition: Repetition,
    measure: impl FnOnce() -> (usize, u64),
) -> Option<Key> {
    let CallId { xid, program, version, procedure } = id;
    let peer = context.connection.peer;
    let port = match repetition {
        Repetition::Executed => return None,
        // A device gives each connection another port.
        // NFS4-7530-DRC-a
        Repetition::AnsweredToPort if context.connection.kind != TransportKind::Rdma => peer.port(),
        Repetition::Answered | Repetition::AnsweredToPort => 0,
    };
    // On a socket of both families, an IPv4 client must be the same client as over another transport. ULB-3.4.2-a
    let client = peer.ip().to_canonical();
    let (len, checksum) = measure();
    Some(Key { client, port, xid, program, version, procedure, caller: 0, len, checksum })
}

/// A kept reply, for another transmission of its call.
fn again(flavour: Option<&dyn ReplyFlavour>, kept: Payload) -> Outcome {
    match flavour {
        Some(flavour) => protected(flavour, kept),
        None => Outcome::Reply(kept),
    }
}

/// How a call is handled.
enum Dispatched {
    /// The outcome is known without the service.
    Known(Outcome),
    /// It waits for the answer to the same call.
    Waits(BoxFuture<'static, Outcome>),
    /// The service executes it.
    Called(Begun<Answer>, Called),
}

impl Handler for Router {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        match self.dispatch(context, message) {
            Dispatched::Known(outcome) => Box::pin(std::future::ready(outcome)),
            Dispatched::Waits(outcome) => outcome,
            Dispatched::Called(Begun::Done(answer), called) => Box::pin(std::future::ready(called.outcome(answer))),
            Dispatched::Called(Begun::Waits(call), called) => Box::pin(async move { called.outcome(call.await) }),
        }
    }

    fn begin(&self, context: CallContext, message: Stream, cx: &mut Context<'_>) -> Begun {
        match self.dispatch(context, message) {
            Dispatched::Known(outcome) => Begun::Done(outcome),
            Dispatched::Waits(mut outcome) => match outcome.as_mut().poll(cx) {
                Poll::Ready(outcome) => Begun::Done(outcome),
                Poll::Pending => Begun::Waits(outcome),
            },
            Dispatched::Called(Begun::Done(answer), called) => Begun::Done(called.outcome(answer)),
            Dispatched::Called(Begun::Waits(mut call), called) => match call.as_mut().poll(cx) {
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
            Answer::Whole(whole) if whole.xid == xid => return Outcome::Reply(whole.message),
            // The service has kept its reply to another call: the fault is the program's, not the client's.
            Answer::Whole(whole) => {
                // Clients could fill the log with it, and one line is enough for the programmer.
                static TOLD: Once = Once::new();
                TOLD.call_once(|| {
                    tracing::error!(
                        xid,
                        other = whole.xid,
                        "a service answered a call with its reply to another call; the client gets SYSTEM_ERR"
                    );
                });
                Err(Rejection::SystemError)
            }
            Answer::GarbageArgs => Err(Rejection::GarbageArgs),
            Answer::ProcUnavail => Err(Rejection::ProcedureUnavailable),
            Answer::SystemErr => Err(Rejection::SystemError),
            Answer::AuthError(stat) => Err(Rejection::Auth(stat)),
            Answer::NotEligible => return Outcome::NotEligible,
            Answer::Nothing => return Outcome::Nothing,
        };
        let Some((in_progress, clock)) = in_progress else {
            return reply(&scratch, xid, flavour.as_deref(), result);
        };
        let reply = kept(xid, result);
        if is_repeatable {
            in_progress.pass_on(&reply);
        } else {
            in_progress.finish(&reply, clock.now());
        }
        again(flavour.as_deref(), reply)
    }
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;

#[cfg(test)]
mod signed_tests;
