//! One call to a client by a session's back channel: a slot, a connection, and the result (RFC 8881 section 2.10.6).
//!
//! A call without a reply in time keeps its slot until the call's fate is known: a late reply frees the slot, and the
//! end of the connection puts the slot in doubt. If the connection ends while the call is under way, the server sends
//! the call again over another connection of the session, with the same slot and number, as long as there is time. A
//! caller that no longer wants the call drops it; the slot is then in doubt.

use super::{
    super::{
        service::{Pin, Shared},
        state::{
            backchannel::{Settled, Standing, TakenSlot},
            session::Session,
        },
    },
    NoAnswer,
    message::{Judged, Message, Verdict},
    paths::Path,
};
use crate::CallbackEvent;
use futures_util::future::{Either, select};
use rpcrdma_env::{Clock, Timestamp};
use rpcrdma_nfs::v4::{
    Status,
    callback::{Args, Arguments, Outcome, ReferringCalls, VERSION},
};
use rpcrdma_oncrpc::{CALL_HEADER_BYTES, CallError, Client as RpcClient, ClientFlavour, Results as RpcResults};
use rpcrdma_xdr::padded;
use std::{
    pin::{Pin as Pinned, pin},
    sync::Arc,
    time::Duration,
};

/// The pause before the server repeats a call that the client has put off. Each pause is twice as long as the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The end of a call's time.
pub(super) struct Until {
    when: Timestamp,
}

impl Until {
    pub(super) fn new(clock: &dyn Clock, time: Duration) -> Self {
        Self { when: clock.now() + time }
    }
}

/// How far a call has got in one session.
pub(super) enum Attempt {
    /// To its end.
    Ended(Result<Vec<Outcome>, NoAnswer>),
    /// None of it was sent, and this session cannot send it.
    NotSent,
}

/// How a wait has ended.
enum Waited<T> {
    Done(T),
    TooLate,
    SessionEnded,
}

/// An RPC that is under way.
type Calling = Pinned<Box<dyn Future<Output = Result<RpcResults, CallError>> + Send>>;

impl Shared {
    /// The newest connection over which the server can call a session, except connection `without`.
    pub(super) fn path_of(&self, session: &Session<Pin>, without: Option<u64>) -> Option<Path> {
        let connections = session.back_connections();
        let mut others = connections.into_iter().rev().filter(|connection| Some(*connection) != without);
        others.find_map(|connection| self.paths.get(connection))
    }

    async fn within<T>(
        &self,
        session: &Session<Pin>,
        until: &Until,
        done: impl Future<Output = T> + Unpin,
    ) -> Waited<T> {
        let ended = pin!(session.calls.until_ended());
        let over = select(self.clock.sleep_until(until.when), ended);
        match select(done, over).await {
            Either::Left((value, _)) => Waited::Done(value),
            Either::Right((Either::Left(_), _)) => Waited::TooLate,
            Either::Right((Either::Right(_), _)) => Waited::SessionEnded,
        }
    }

    /// Makes a call in a session. Every wait ends at `until`, or with the session.
    pub(super) async fn call_in(
        self: &Arc<Self>,
        session: &Arc<Session<Pin>>,
        ops: &[Args],
        referring: &[ReferringCalls],
        until: &Until,
    ) -> Attempt {
        let (program, Some(flavour)) = session.calls.program() else { return Attempt::NotSent };
        let (minor, ops, referring) = (session.calls.minor(), ops.to_vec(), referring.to_vec());
        let message = Message { session: session.id(), minor, ops, referring };
        if let Some(status) = too_much(session, &message, &*flavour) {
            return Attempt::Ended(Err(NoAnswer::Refused(status)));
        }
        let mut call = Call { shared: self, session, message, program, flavour, was_sent: false };
        match call.run(until).await {
            Err(NoAnswer::NoPath) if session.calls.is_ended() => Attempt::NotSent,
            ended => Attempt::Ended(ended),
        }
    }
}

/// The status if a message exceeds the limits of the client's back channel.
// NFS4-8881-2.10.6.4-c
// ULB-6.2-g
fn too_much(session: &Session<Pin>, message: &Message, flavour: &dyn ClientFlavour) -> Option<Status> {
    let back = &session.back;
    if message.operations() > back.operations as usize {
        return Some(Status::TOO_MANY_OPS);
    }
    let header = CALL_HEADER_BYTES + padded(flavour.max_credential()) + flavour.max_call_expansion();
    let octets = header.saturating_add(message.octets());
    // ULB-6.2-f: a client that takes no more than its inline thresholds is never sent more.
    (octets > back.request as usize).then_some(Status::REQ_TOO_BIG)
}

/// A slot that a call has taken. If it is dropped before it was settled, and anything was sent, it is in doubt.
struct SlotGuard {
    session: Arc<Session<Pin>>,
    taken: TakenSlot,
    /// The connection over which its call was last sent.
    sent: Option<u64>,
    is_settled: bool,
}

impl SlotGuard {
    fn settle(mut self, judged: &Judged, now: Timestamp) {
        self.is_settled = true;
        settle(&self.session, self.taken, judged, now);
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if !self.is_settled {
            let unknown = |connection| Settled::Unknown { connection };
            self.session.calls.settle(self.taken, self.sent.map_or(Settled::NotExecuted, unknown));
        }
    }
}

/// A call in a session.
struct Call<'a> {
    shared: &'a Arc<Shared>,
    session: &'a Arc<Session<Pin>>,
    message: Message,
    program: u32,
    flavour: Arc<dyn ClientFlavour>,
    was_sent: bool,
}

impl Call<'_> {
    /// Makes the call, to its end.
    async fn run(&mut self, until: &Until) -> Result<Vec<Outcome>, NoAnswer> {
        let mut pause = FIRST_PAUSE;
        loop {
            let Some((guard, path)) = self.slot_and_path(until).await else {
                return Err(if self.was_sent { NoAnswer::Lost } else { NoAnswer::NoPath });
            };
            let is_doubtful = guard.taken.is_doubtful;
            let message = if is_doubtful { self.message.probe() } else { self.message.clone() };
            self.was_sent |= !is_doubtful;
            let (guard, judged) = self.over_any(&message, guard, path, until).await?;
            guard.settle(&judged, self.shared.now());
            match judged.verdict {
                // The slot is no longer in doubt: now it can carry the call itself.
                _ if is_doubtful => {}
                Verdict::Answered(outcomes) => return Ok(outcomes),
                Verdict::Failed(why) => return Err(why),
                Verdict::OtherSlot | Verdict::OtherPath => {}
                Verdict::Later => self.pause(&mut pause, until).await?,
            }
        }
    }

    async fn pause(&self, pause: &mut Duration, until: &Until) -> Result<(), NoAnswer> {
        let pausing = self.shared.clock.sleep_until(self.shared.now() + *pause);
        *pause = pause.saturating_mul(2);
        match self.shared.within(self.session, until, pausing).await {
            Waited::Done(()) => Ok(()),
            Waited::TooLate | Waited::SessionEnded => Err(NoAnswer::Refused(Status::DELAY)),
        }
    }

    /// Sends a message by a slot. If the connection ends meanwhile, sends it again over another one; from then on also
    /// if the client answers DELAY, because it is still executing the first.
    async fn over_any(
        &self,
        message: &Message,
        mut guard: SlotGuard,
        mut path: Path,
        until: &Until,
    ) -> Result<(SlotGuard, Judged), NoAnswer> {
        let (mut is_again, mut pause) = (guard.taken.is_doubtful, FIRST_PAUSE);
        loop {
            let connection = path.connection;
            guard.sent = Some(connection);
            let (returned, judged) = self.exchange(message, guard, path.clone(), until).await?;
            guard = returned;
            match judged.verdict {
                Verdict::OtherPath => {
                    is_again = true;
                    // If this fails, the guard leaves the slot in doubt.
                    path = self.path(Some(connection), until).await.ok_or(NoAnswer::Lost)?;
                }
                Verdict::Later if is_again => self.pause(&mut pause, until).await?,
                _ => return Ok((guard, judged)),
            }
        }
    }

    /// Waits for a free slot and a connection.
    async fn slot_and_path(&self, until: &Until) -> Option<(SlotGuard, Path)> {
        let take = || {
            let path = self.shared.path_of(self.session, None)?;
            let is_gone = |connection| self.shared.paths.get(connection).is_none();
            let taken = self.session.calls.take(is_gone)?;
            let guard = SlotGuard { session: self.session.clone(), taken, sent: None, is_settled: false };
            Some((guard, path))
        };
        self.wait_for(take, until).await
    }

    /// Waits for a connection other than `without`.
    async fn path(&self, without: Option<u64>, until: &Until) -> Option<Path> {
        self.wait_for(|| self.shared.path_of(self.session, without), until).await
    }

    /// Waits until `look` finds something, whatever the event is that brings it.
    async fn wait_for<T>(&self, look: impl Fn() -> Option<T>, until: &Until) -> Option<T> {
        let calls = &self.session.calls;
        loop {
            let mut changed = pin!(calls.changed());
            changed.as_mut().enable();
            if calls.is_ended() || calls.is_broken() {
                return None;
            }
            if let Some(found) = look() {
                return Some(found);
            }
            match self.shared.within(self.session, until, changed).await {
                Waited::Done(()) => {}
                Waited::TooLate | Waited::SessionEnded => return None,
            }
        }
    }

    /// Sends a message and waits for the reply.
    ///
    /// # Errors
    /// LOST if it is too late or the session has ended. The task that still waits then settles the slot.
    async fn exchange(
        &self,
        message: &Message,
        guard: SlotGuard,
        path: Path,
        until: &Until,
    ) -> Result<(SlotGuard, Judged), NoAnswer> {
        let (args, shape) = message.encoded(guard.taken, self.session.back.response);
        let client = RpcClient::new(path.transport.clone(), self.flavour.clone(), self.program, VERSION);
        for op in message.names() {
            self.shared.observe(|observer| observer.callback(Some(op), CallbackEvent::Sent));
        }
        let mut calling: Calling = Box::pin(client.call(Arguments::PROCEDURE, args, shape));
        match self.shared.within(self.session, until, &mut calling).await {
            Waited::Done(answer) => {
                let judged = message.judge(guard.taken, path.connection, answer);
                Ok((guard, judged))
            }
            Waited::SessionEnded => Err(NoAnswer::Lost),
            Waited::TooLate => {
                tracing::debug!(client = self.session.client().id().0, "a client does not answer a call");
                self.session.set_standing(Standing::Down);
                let (message, clock) = (message.clone(), self.shared.clock.clone());
                self.shared.tasks.spawn(async move {
                    let session = guard.session.clone();
                    let ended = pin!(session.calls.until_ended());
                    let Either::Left((answer, _)) = select(calling, ended).await else { return };
                    let judged = message.judge(guard.taken, path.connection, answer);
                    guard.settle(&judged, clock.now());
                });
                Err(NoAnswer::Lost)
            }
        }
    }
}

/// A call has ended.
fn settle(session: &Session<Pin>, taken: TakenSlot, judged: &Judged, now: Timestamp) {
    session.calls.settle(taken, judged.settled);
    if let Some(target) = judged.target {
        session.calls.aim(target);
    }
    match judged.is_up {
        Some(true) => {
            // NFS4-8881-20.9-d
            session.client().lease.renew(now);
            session.set_standing(Standing::Proven);
        }
        Some(false) => session.set_standing(Standing::Down),
        None => {}
    }
}
