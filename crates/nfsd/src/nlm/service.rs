//! The procedures: from arguments of either width to lockd, and back in the form in which the caller wants its answer.
//!
//! The server executes a `_MSG` call like the procedure to which it belongs, sends an empty reply, and sends the result
//! as a call to the caller's address. It refuses procedures of clients (GRANTED), because it is no client.

use super::{
    Call, Lockd,
    grants::{encoded, outside},
};
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::nlm::{
    self, CancelArguments, Cookie, Form, LockArguments, Notice, Procedure, Response, ShareArguments, ShareResponse,
    Status, TestArguments, TestResponse, Tested, UnlockArguments, VERSION_4, Widen, Width,
};
use rpcrdma_oncrpc::{Answer, CallContext, ClientNetwork, Service};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, Payload};
use std::sync::Arc;

/// The service of one version.
pub(crate) struct NlmService {
    lockd: Arc<Lockd>,
    version: u32,
}

impl NlmService {
    pub(super) fn new(lockd: Arc<Lockd>, version: u32) -> Self {
        Self { lockd, version }
    }
}

impl Service for NlmService {
    fn program(&self) -> u32 {
        nlm::PROGRAM
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn is_idempotent(&self, procedure: u32) -> bool {
        // NLM-DUP-a, ULB-3.4.2-a
        Procedure::from_number(procedure).is_none_or(Procedure::is_idempotent)
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        let procedure = Procedure::from_number(procedure).filter(|procedure| procedure.is_in(self.version));
        let Some(procedure) = procedure else { return ready(Answer::ProcUnavail) };
        let call = Call { context, version: self.version, form: procedure.form(), procedure };
        let lockd = self.lockd.clone();
        let called = match self.version {
            VERSION_4 => execute::<u64>(lockd, call, args),
            _ => execute::<u32>(lockd, call, args),
        };
        called.unwrap_or_else(|error| ready(Answer::from(error)))
    }
}

fn ready(answer: Answer) -> BoxFuture<'static, Answer> {
    Box::pin(std::future::ready(answer))
}

fn decode<A: Decode>(mut args: Decoder) -> Result<A, DecodeError> {
    let decoded = A::decode(&mut args)?;
    args.finish()?;
    Ok(decoded)
}

/// The empty reply to a message, and to procedures without results.
fn empty() -> Answer {
    Answer::Results(Payload::new())
}

type Called = Result<BoxFuture<'static, Answer>, DecodeError>;

fn execute<W: Width>(lockd: Arc<Lockd>, call: Call, args: Decoder) -> Called {
    match call.procedure {
        Procedure::Null => Ok(ready(empty())),
        Procedure::Test | Procedure::TestMessage => {
            let TestArguments { cookie, exclusive, lock } = decode::<TestArguments<W>>(args)?.widen();
            Ok(Box::pin(async move {
                let tested = match lockd.test(&call, exclusive, lock).await {
                    Tested::Other(status) => Tested::Other(status.in_version(call.version)),
                    denied => denied,
                };
                lockd.answer(&call, &TestResponse { cookie, tested }.narrow::<W>())
            }))
        }
        Procedure::Lock | Procedure::LockMessage | Procedure::UnmonitoredLock => {
            let args = decode::<LockArguments<W>>(args)?.widen();
            let (cookie, is_watched) = (args.cookie.clone(), call.procedure != Procedure::UnmonitoredLock);
            Ok(Box::pin(async move {
                let done = lockd.lock(&call, args, is_watched).await;
                lockd.answer_status(&call, cookie, done)
            }))
        }
        Procedure::Cancel | Procedure::CancelMessage => {
            let CancelArguments { cookie, exclusive, lock, .. } = decode::<CancelArguments<W>>(args)?.widen();
            Ok(Box::pin(async move {
                let done = lockd.cancel(&call, exclusive, lock).await;
                lockd.answer_status(&call, cookie, done)
            }))
        }
        Procedure::Unlock | Procedure::UnlockMessage => {
            let UnlockArguments { cookie, lock } = decode::<UnlockArguments<W>>(args)?.widen();
            Ok(Box::pin(async move {
                let done = lockd.unlock(&call, lock).await;
                lockd.answer_status(&call, cookie, done)
            }))
        }
        Procedure::Granted => {
            let TestArguments { cookie, .. } = decode::<TestArguments<W>>(args)?;
            Ok(ready(lockd.answer_status(&call, cookie, Err(Status::Denied))))
        }
        Procedure::GrantedMessage => decode::<TestArguments<W>>(args).map(|_| ready(empty())),
        Procedure::TestResponse => decode::<TestResponse<W>>(args).map(|_| ready(empty())),
        Procedure::LockResponse | Procedure::CancelResponse | Procedure::UnlockResponse => {
            decode::<Response>(args).map(|_| ready(empty()))
        }
        Procedure::GrantedResponse => {
            let Response { cookie, status } = decode(args)?;
            if !lockd.answers.answered(call.client(), &cookie, status) {
                tracing::debug!(client = %call.client(), %status, "an answer that belongs to no call of this server");
            }
            Ok(ready(empty()))
        }
        Procedure::Share | Procedure::Unshare => {
            let args = decode::<ShareArguments>(args)?;
            let (cookie, reserves) = (args.cookie.clone(), call.procedure == Procedure::Share);
            Ok(Box::pin(async move {
                let done = if reserves { lockd.share(&call, args).await } else { lockd.unshare(&call, args).await };
                let status = status_of(&call, done);
                lockd.answer(&call, &ShareResponse { cookie, status, sequence: 0 })
            }))
        }
        Procedure::FreeAll => {
            let Notice { name, .. } = decode(args)?;
            Ok(Box::pin(async move {
                lockd.free_all(call.client(), name.as_slice()).await;
                empty()
            }))
        }
    }
}

fn status_of(call: &Call, done: Result<Status, Status>) -> Status {
    let (Ok(status) | Err(status)) = done;
    status.in_version(call.version)
}

impl Lockd {
    fn answer_status(self: &Arc<Self>, call: &Call, cookie: Cookie, done: Result<Status, Status>) -> Answer {
        self.answer(call, &Response { cookie, status: status_of(call, done) })
    }

    /// A reply with the results or, for a message, a call with them.
    fn answer(self: &Arc<Self>, call: &Call, results: &impl Encode) -> Answer {
        let Some(procedure) = call.procedure.response().filter(|_| call.form == Form::Message) else {
            let mut encoder = Encoder::new();
            results.encode(&mut encoder);
            return Answer::Results(encoder.finish());
        };
        match self.calls.begin(ClientNetwork::of(call.client())) {
            Some(under_way) => {
                let to = outside((call.local(), call.client()), call.version, procedure, encoded(results));
                let answered = self.outside.call(to);
                self.tasks.spawn(async move {
                    if let Err(error) = answered.await {
                        tracing::debug!(%error, "cannot call a host with the answer that it waits for");
                    }
                    drop(under_way);
                });
            }
            // The host asks again.
            None => tracing::debug!(client = %call.client(), "too many answers are under way to a host"),
        }
        empty()
    }
}
