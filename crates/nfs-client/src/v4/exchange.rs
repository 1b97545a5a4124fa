//! One COMPOUND and its reply: through a slot if there is a session, and within the session's limits.

use super::{
    Error, Inner,
    compound::{Plan, has_one_of_a_kind},
    reply::{self, Failed, Reply},
    session::Session,
    slots::Taken,
    standing::Ground,
};
use rpcrdma_env::Buffer;
use rpcrdma_nfs::{
    Call as _,
    v4::{Args, Arguments, Op, Outcome, Results, SessionId, Status, Tag, ops},
};
use rpcrdma_oncrpc::{CallError, Client, ItemRoom, REPLY_HEADER_BYTES, ReplyShape, TransportError};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, ItemData, Payload};
use std::sync::atomic::Ordering;

/// A reply, and whether the server may have executed the call before.
struct Exchanged {
    results: Results<ItemData>,
    is_retransmitted: bool,
}

/// A call in wire form, so that its length is known before it is sent.
struct Encoded {
    args: Payload,
    shape: ReplyShape,
    is_repeatable: bool,
}

impl Encoded {
    fn new(call: &Arguments, client: &Client) -> Self {
        let mut encoder = client.encoder();
        call.encode(&mut encoder);
        let mut shape = call.reply_shape();
        if call.ops.iter().any(|args| matches!(args, Args::ReadLink)) {
            // Linux's nfsd places the wrong bytes of a link's text, and removes the wrong ones from its reply.
            shape.items.clear();
        }
        Self { args: encoder.finish(), shape, is_repeatable: call.is_repeatable() }
    }
}

/// The result of an operation that goes without a session.
pub(super) type Alone = Result<Outcome<ItemData>, Error>;

impl Inner {
    /// Sends a call whose reply may have at most this many bytes of results, and waits for the reply.
    async fn exchange(
        &self,
        client: &Client,
        purpose: Op,
        call: Encoded,
        sink: Option<Buffer>,
        most: Option<usize>,
    ) -> Result<Exchanged, Error> {
        let Encoded { args, mut shape, is_repeatable } = call;
        if let Some(most) = most {
            shape.max_len = shape.max_len.min(most);
        }
        if let (Some(room), Some(buffer)) = (shape.items.first_mut(), sink) {
            *room = ItemRoom { max_len: room.max_len.min(buffer.capacity()), buffer: Some(buffer) };
        }
        let (results, is_retransmitted) = self.call(client, is_repeatable, args, shape, purpose).await?;
        let mut decoder = results;
        let results = Results::decode(&mut decoder).map_err(|error| Error::call(purpose, error.into()))?;
        decoder.finish().map_err(|error| Error::call(purpose, error.into()))?;
        Ok(Exchanged { results, is_retransmitted })
    }

    async fn call(
        &self,
        client: &Client,
        is_repeatable: bool,
        args: Payload,
        shape: ReplyShape,
        purpose: Op,
    ) -> Result<(Decoder, bool), Error> {
        let pending = match is_repeatable {
            true => client.call_repeatable(Arguments::PROCEDURE, args, shape),
            false => client.call(Arguments::PROCEDURE, args, shape),
        };
        let answered = pending.await.map_err(|source| Error::call(purpose, source))?;
        self.duties.heard(self.env.clock.tick());
        Ok((answered.decoder, answered.retransmitted))
    }

    /// A call of a single operation without SEQUENCE, like those that make sessions.
    pub(super) async fn alone(&self, args: Args) -> Alone {
        self.alone_over(&self.client, args).await
    }

    /// The same over one of several connections.
    pub(super) async fn alone_over(&self, client: &Client, args: Args) -> Alone {
        let op = args.op();
        let call = Arguments::new(self.minor, vec![args]);
        let Exchanged { results, .. } = self.exchange(client, op, Encoded::new(&call, client), None, None).await?;
        let failed = reply::check(&call.ops, &results).map_err(|what| Error::nonsense(op, what))?;
        match (failed, results.results.into_iter().next()) {
            (None, Some(outcome)) => Ok(outcome),
            (Some(failed), Some(outcome)) if outcome.op().is_some() && failed.at == 0 => Ok(outcome),
            (Some(failed), _) => Err(Error::refused(op, failed.status, self.client.caller())),
            (None, None) => Err(Error::nonsense(op, "returned no results")),
        }
    }

    /// One attempt to make a call on this ground. The caller looks at the statuses; an error means that there is no
    /// reply.
    pub(super) async fn attempt(
        &self,
        ground: &Ground,
        plan: Plan,
        ops: Vec<Args>,
        sink: Option<Buffer>,
    ) -> Result<Reply, Error> {
        if let Some(args) = ops.iter().find(|args| !args.op().exists_in(self.minor)) {
            return Err(Error::NotInMinor { operation: args.op(), minor: self.minor });
        }
        debug_assert!(has_one_of_a_kind(&ops), "one chunk of a kind: {ops:?}");
        match &ground.session {
            Some(session) => self.through_slot(ground, session, plan, ops, sink).await,
            None => self.without_session(plan, ops, sink).await,
        }
    }

    /// Minor version 0: only the transport's XID connects a reply with its call (ULB-5.5-d).
    async fn without_session(&self, plan: Plan, ops: Vec<Args>, sink: Option<Buffer>) -> Result<Reply, Error> {
        let call = Arguments::new(0, ops);
        let Exchanged { results, is_retransmitted } =
            self.exchange(&self.client, plan.purpose, Encoded::new(&call, &self.client), sink, None).await?;
        let failed = reply::check(&call.ops, &results).map_err(|what| Error::nonsense(plan.purpose, what))?;
        let mut reply = Reply::new(results.results, failed, plan.purpose, self.client.caller());
        reply.is_repeated = is_retransmitted;
        Ok(reply)
    }

    async fn through_slot(
        &self,
        ground: &Ground,
        session: &Session,
        plan: Plan,
        mut ops: Vec<Args>,
        sink: Option<Buffer>,
    ) -> Result<Reply, Error> {
        let mut slot = session.slots.take().await;
        if slot.is_doubtful {
            if let Some(failed) = self.probe(ground, session, &mut slot).await? {
                return Ok(Reply::new(Vec::new(), Some(failed), plan.purpose, self.client.caller()));
            }
            slot.probed();
        }
        ops.insert(0, Args::Sequence(session.sequence(&slot, plan.is_kept)));
        let call = Arguments::new(self.minor, ops);
        let encoded = Encoded::new(&call, &self.client);
        let most = self.fits(session, plan, call.ops.len(), &encoded)?;
        slot.sending();
        let Exchanged { results, is_retransmitted } =
            self.exchange(&self.client, plan.purpose, encoded, sink, most).await?;
        let failed = reply::check(&call.ops, &results).map_err(|what| Error::nonsense(plan.purpose, what))?;
        self.settle(ground, session, &mut slot, &results)?;
        // From here on, positions in the reply do not count SEQUENCE.
        let failed = failed.map(|failed| Failed { at: failed.at.saturating_sub(1), ..failed });
        let mut reply = Reply::new(results.results, failed, plan.purpose, self.client.caller());
        reply.skip_sequence();
        reply.is_repeated = is_retransmitted && failed.is_some_and(|failed| failed.op == Op::Sequence);
        Ok(reply)
    }

    /// Checks that the session allows a call of so many operations. Returns the most bytes that the results may have.
    fn fits(&self, session: &Session, plan: Plan, ops: usize, call: &Encoded) -> Result<Option<usize>, Error> {
        let refused =
            |what, unit, wanted, allowed| Err(Error::TooLarge { operation: plan.purpose, what, unit, wanted, allowed });
        let operations = session.fore.max_operations as usize;
        if ops > operations {
            return refused("call", "operations", ops, operations);
        }
        let (args, allowed) = (call.args.len(), self.most_args(session));
        if args > allowed {
            return refused("call", "bytes", args, allowed);
        }
        let (results, allowed) = (call.shape.max_len, self.most_results(session));
        match results > allowed {
            true if plan.is_guessed => Ok(Some(allowed)),
            true => refused("reply", "bytes", results, allowed),
            false => Ok(None),
        }
    }

    /// The most bytes of arguments that a call of a session may have.
    pub(super) fn most_args(&self, session: &Session) -> usize {
        let most = self.client.max_args();
        let header = self.client.transport().limits().max_call.saturating_sub(most);
        most.min((session.fore.max_request as usize).saturating_sub(header))
    }

    /// The most bytes of results that a reply in a session may have. With AUTH_SYS, servers send empty verifiers.
    pub(super) fn most_results(&self, session: &Session) -> usize {
        // ULB-5.2.2-a
        self.client.max_results().min((session.fore.max_response as usize).saturating_sub(REPLY_HEADER_BYTES))
    }

    /// Reads SEQUENCE in the reply, and accepts the reply if it belongs to this call.
    fn settle(
        &self,
        ground: &Ground,
        session: &Session,
        slot: &mut Taken<'_>,
        results: &Results<ItemData>,
    ) -> Result<(), Error> {
        match results.results.first() {
            Some(Outcome::Sequence(Ok(told))) => self.sequenced(ground, session, slot, told),
            // An earlier call without a reply has used the number.
            Some(Outcome::Sequence(Err(Status::RETRY_UNCACHED_REP | Status::SEQ_FALSE_RETRY))) => {
                slot.advance();
                Ok(())
            }
            Some(Outcome::Sequence(Err(_))) => {
                slot.keep();
                Ok(())
            }
            // The server refused the call as a whole: that says nothing about the slot.
            _ => Ok(()),
        }
    }

    /// SEQUENCE has succeeded.
    fn sequenced(
        &self,
        ground: &Ground,
        session: &Session,
        slot: &mut Taken<'_>,
        told: &ops::SequenceOk,
    ) -> Result<(), Error> {
        session.check(slot, told).map_err(|what| Error::nonsense(Op::Sequence, what))?;
        slot.advance();
        slot.follow(told);
        session.status.store(told.status, Ordering::Relaxed);
        self.told(ground, told.status);
        Ok(())
    }

    /// Finds out which number the next call in a doubtful slot has. Whether or not the server has executed the unknown
    /// call, its number is used once the server has answered this probe (ULB-5.5-b, -c). So after an error of the
    /// transport only that call fails, as the transport says, and the session goes on (ULB-5.4.2-c). If the slot cannot
    /// be used, returns how SEQUENCE failed.
    async fn probe(&self, ground: &Ground, session: &Session, slot: &mut Taken<'_>) -> Result<Option<Failed>, Error> {
        let call = Arguments::new(self.minor, vec![Args::Sequence(session.sequence(slot, false))]);
        let mut encoder = Encoder::new();
        call.encode(&mut encoder);
        // The reply may be the one that the server kept for the unknown call.
        let most = self.most_results(session).min(session.fore.max_response_cached as usize);
        let shape = ReplyShape::inline(most.max(call.largest_results()));
        tracing::debug!(slot = slot.slot(), number = slot.number, "a slot is probed after a call without a reply");
        let results = match self.call(&self.client, false, encoder.finish(), shape, Op::Sequence).await {
            // The server kept the reply, and it is larger than kept replies may be: the number is used.
            Err(Error::Call { source: CallError::Transport(TransportError::ReplyTooLarge { .. }), .. }) => {
                slot.advance();
                return Ok(None);
            }
            results => results?.0,
        };
        let outcome = first_sequence(results).map_err(|error| Error::call(Op::Sequence, error.into()))?;
        match outcome {
            Ok(told) => self.sequenced(ground, session, slot, &told).map(|()| None),
            Err(Status::RETRY_UNCACHED_REP | Status::SEQ_FALSE_RETRY) => {
                slot.advance();
                Ok(None)
            }
            Err(Status::OK) => Err(Error::nonsense(Op::Sequence, "returned no results")),
            Err(status) => Ok(Some(Failed { op: Op::Sequence, at: 0, status })),
        }
    }
}

/// The result of SEQUENCE, the first operation in a reply; the other results may belong to another call.
fn first_sequence(mut decoder: Decoder) -> Result<Result<ops::SequenceOk, Status>, rpcrdma_xdr::DecodeError> {
    let status = Status::decode(&mut decoder)?;
    Tag::decode(&mut decoder)?;
    let answer = match decoder.u32()? {
        0 => Err(status),
        _ => match Outcome::<ItemData>::decode(&mut decoder)? {
            Outcome::Sequence(answer) => answer,
            other => Err(other.status()),
        },
    };
    decoder.discard_rest();
    Ok(answer)
}

impl Session {
    /// The SEQUENCE of a call.
    fn sequence(&self, slot: &Taken<'_>, cache: bool) -> ops::Sequence {
        let (sequence, highest_slot) = (slot.number, slot.highest());
        ops::Sequence { session: self.id, sequence, slot: slot.slot(), highest_slot, cache }
    }

    /// Checks that a reply belongs to the call in this slot.
    fn check(&self, slot: &Taken<'_>, told: &ops::SequenceOk) -> Result<(), &'static str> {
        let ops::SequenceOk { session: SessionId(session), sequence, slot: number, .. } = *told;
        if session != self.id.0 {
            return Err("answered for another session");
        }
        if number != slot.slot() {
            return Err("answered for another slot");
        }
        if sequence != slot.number {
            return Err("answered for another number of the slot");
        }
        Ok(())
    }
}
