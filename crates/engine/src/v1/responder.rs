//! The responder half of version 1: calls of the peer, from the header until the answer's Send is done.
//!
//! Owns shares of received messages until they are delivered, and a call's chunks for its result until it is answered.
//! It answers ERR_CHUNK to a call whose header is wrong, or that exceeds a limit. A peer that sends more calls than it
//! has credits, or faulty messages faster than it takes their answers, loses the connection.

use super::requester::Shared;
use crate::{
    Action, Answer, CloseCause, MessageKind, PeerFault, RequestId, Sent, Side,
    answer::{AnswerPlan, Carrier, plan},
    config::MAX_CREDITS,
    plan::{chunk_count, gathered, whole},
    pull::{Layout, layout},
    requests::{Pulled, Request, Requests},
};
use bytes::Bytes;
use rpcrdma_env::Slices;
use rpcrdma_wire::v1::{Body, ErrorBody, FIXED_OCTETS, Header, Lists, NO_CHUNKS_OCTETS, Plain, VERSION, WriteChunk};
use smallvec::smallvec;

/// The most answers to faulty messages whose Sends are not done, in addition to the peer's credits.
pub(crate) const FAULT_ANSWERS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Responder {
    requests: Requests,
}

impl Responder {
    /// Whether a call of the peer may come now. If the peer has no credit left, the connection closes.
    fn may_come(&self, shared: &mut Shared<'_>) -> bool {
        if shared.config.credits_granted == 0 {
            return false;
        }
        // V1-3.3.1-c
        let may = self.requests.len() < shared.ledger.granted() as usize;
        if !may {
            shared.actions.push_back(Action::Close(CloseCause::Peer(PeerFault::CreditsOverrun)));
        }
        may
    }

    /// A well-formed call without chunks.
    pub(crate) fn received_plain(&mut self, xid: u32, stream: Bytes, shared: &mut Shared<'_>) {
        if self.may_come(shared) {
            self.requests.insert(xid, Lists::default(), None, Layout::plain(stream), most(shared), shared.actions);
        }
    }

    /// A call that was judged well-formed.
    pub(crate) fn received(&mut self, header: Header, stream: Bytes, shared: &mut Shared<'_>) {
        if !self.may_come(shared) {
            return;
        }
        let xid = header.xid;
        let long = matches!(header.body, Body::Nomsg(_));
        let (Body::Msg(lists) | Body::Nomsg(lists)) = header.body else { return };
        // RFC 8167 leaves chunks in the reverse direction to an agreement of the ends; ours has none.
        let reverse = shared.config.side == Side::Client;
        let layout = layout(&lists, stream, long, &shared.config.limits).ok();
        // V1-7.1-b
        let Some(layout) = layout.filter(|_| !reverse || lists.is_empty()) else {
            return self.error(xid, VERSION, ErrorBody::Chunk, shared);
        };
        let handle = handle_of(&lists);
        self.requests.insert(xid, lists, handle, layout, most(shared), shared.actions);
    }

    /// Starts held calls, as many as may pin memory.
    fn admit(&mut self, shared: &mut Shared<'_>) {
        self.requests.admit(most(shared), shared.actions);
    }

    /// The call's chunks have come. `head` is the beginning of the pulled bytes. Returns whether the call is delivered.
    pub(crate) fn pulled(&mut self, id: RequestId, head: &[u8], shared: &mut Shared<'_>) -> bool {
        let pulled = self.requests.pulled(id, head, shared.actions);
        if pulled == Pulled::OtherXid {
            self.answer(id, Answer::NotEligible, shared);
        }
        pulled == Pulled::Delivered
    }

    /// The service's answer, or that the driver cannot serve the call.
    pub(crate) fn answer(&mut self, id: RequestId, answer: Answer, shared: &mut Shared<'_>) {
        let Some(request) = self.requests.take(id) else { return };
        let payload = match answer {
            Answer::Reply(payload) if request.takes_inline(payload.len() + NO_CHUNKS_OCTETS, shared.link) => {
                // What would follow below as well, in fewer steps: most replies are like this.
                let (xid, credit) = (request.xid, grant(shared));
                let header = shared.header(Plain { xid, credit });
                let invalidates = invalidated(&request, shared);
                let about = Sent { xid, credit, invalidates, ..Sent::of(MessageKind::Reply) };
                self.post(header, whole(payload), about, shared);
                return self.admit(shared);
            }
            Answer::Reply(payload) => payload,
            // V1-6.1-c, V1-6.1-d, V1-4.5.3-b
            Answer::NotEligible | Answer::Unreadable => {
                self.error(request.xid, VERSION, ErrorBody::Chunk, shared);
                return self.admit(shared);
            }
            Answer::Nothing => return self.admit(shared),
        };
        let carrier = Carrier {
            fixed: FIXED_OCTETS,
            continues: false,
            send_inline: shared.link.send_inline,
            max_gather: shared.config.max_gather,
            max_transfer: shared.config.max_transfer_bytes,
        };
        match plan(&request.writes, request.reply.as_ref(), &payload, &carrier) {
            Ok(plan) => self.reply(&request, plan, shared),
            // V1-4.5.3-a
            // V1-4.5.4-c
            Err(_) => self.error(request.xid, VERSION, ErrorBody::Chunk, shared),
        }
        self.admit(shared);
    }

    fn reply(&mut self, request: &Request, plan: AnswerPlan, shared: &mut Shared<'_>) {
        let credit = grant(shared);
        let about = Sent {
            xid: request.xid,
            credit,
            placed_bytes: plan.placed,
            write_chunks: chunk_count(plan.lists.writes.chunks().len()),
            reply_chunk: plan.inline.is_none(),
            invalidates: invalidated(request, shared),
            ..Sent::of(MessageKind::Reply)
        };
        // V1-3.5.2-b, V1-2.3.2-c
        for write in plan.writes {
            shared.actions.push_back(Action::Write { xid: request.xid, to: write.to, octets: write.octets });
        }
        let (body, inline) = match plan.inline {
            Some(inline) => (Body::Msg(plan.lists), inline),
            None => (Body::Nomsg(plan.lists), Slices::new()),
        };
        let header = Header::new(request.xid, credit, body);
        let header = shared.scratch.write(header.encoded_len(), |out| header.encode(out));
        self.post(header, inline, about, shared);
    }

    /// Sends a reply.
    fn post(&mut self, header: Bytes, inline: Slices, about: Sent, shared: &mut Shared<'_>) {
        let octets = gathered(header, inline, shared.config.max_gather, shared.scratch);
        let about = Sent { inline_bytes: octets.iter().map(Bytes::len).sum(), ..about };
        // V1-2.3.2-d, V2-3.2.2.5-a, V2-4.3.5.1-b
        self.requests.undrained += 1;
        shared.ledger.answering();
        shared.actions.push_back(Action::Send { octets, signaled: true, about });
    }

    /// Answers a message with an error.
    pub(crate) fn error(&mut self, xid: u32, version: u32, error: ErrorBody, shared: &mut Shared<'_>) {
        if shared.config.credits_granted == 0 {
            return;
        }
        let credit = grant(shared);
        if self.requests.undrained > shared.ledger.granted() as usize + FAULT_ANSWERS {
            shared.actions.push_back(Action::Close(CloseCause::Peer(PeerFault::AnswersNotTaken)));
            return;
        }
        // V1-4.5-d, V1-4.5-e, V1-4.5-f, V1-3.3.1-l
        let header = Header { xid, version, credit, body: Body::Error(error) }.to_bytes();
        let about = Sent { xid, credit, inline_bytes: header.len(), ..Sent::of(MessageKind::Error) };
        self.requests.undrained += 1;
        shared.actions.push_back(Action::Send { octets: smallvec![header], signaled: true, about });
    }

    /// The peer has taken an answer.
    pub(crate) fn drained(&mut self, shared: &mut Shared<'_>) {
        self.requests.drained();
        self.admit(shared);
    }

    /// The connection is over: no call can be answered any more.
    pub(crate) fn closed(&mut self) {
        self.requests.closed();
    }

    /// Calls of the peer that are not answered.
    pub(crate) fn executing(&self) -> usize {
        self.requests.len()
    }
}

/// The handle of the peer that the reply to a call invalidates.
// CM-8797-4-e
fn invalidated(request: &Request, shared: &Shared<'_>) -> Option<u32> {
    request.handle.filter(|_| shared.link.send_invalidates)
}

/// Raises the peer's credits to the configured number, receives first, and returns it.
// V1-3.3.1-b, V1-3.3.1-d, V1-3.3.1-h
fn grant(shared: &mut Shared<'_>) -> u32 {
    let credits = shared.config.credits_granted.clamp(1, MAX_CREDITS);
    shared.ledger.grant(credits);
    credits
}

/// The most calls and answers that may pin memory.
fn most(shared: &Shared<'_>) -> usize {
    shared.ledger.granted().max(shared.config.credits_granted.min(MAX_CREDITS)) as usize
}

/// The handle to invalidate: the handle of the memory that the reply fills, if there is one.
fn handle_of(lists: &Lists) -> Option<u32> {
    let written = lists.writes.chunks().iter().chain(&lists.reply).flat_map(WriteChunk::segments);
    let read = lists.reads.segments().iter().map(|entry| &entry.segment);
    written.chain(read).map(|segment| segment.handle).next()
}
