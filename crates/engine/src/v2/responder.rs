//! The responder half of version 2: calls of the peer, and the errors that answer them (draft sections 4.5.4 and 7.3).
//!
//! Owns the table of calls. Which error answers what:
//!
//! | what is wrong | error |
//! |---|---|
//! | calls are not served here, chunks that are too large, or could not be read | `SYSTEM` |
//! | chunks where the client has announced that it takes none | `READ_CHUNKS 0`, `WRITE_CHUNKS 0`, `REPLY_RESOURCE 0` |
//! | more Read chunks, Write chunks, segments than are handled | `READ_CHUNKS`, `WRITE_CHUNKS`, `SEGMENTS`, with the limit |
//! | an argument in a chunk that may not be there | `BAD_XDR` |
//! | a Write chunk that its result does not fit | `WRITE_RESOURCE` |
//! | a reply that can neither be placed nor continued | `REPLY_RESOURCE` |

use super::{
    credits::Credits,
    exchange::reverse_of,
    outbox::{Outbox, Outgoing, fits, part},
};
use crate::{
    Action, Answer, CloseCause, Config, Link, MessageKind, PeerFault, RequestId, Sent, Side,
    answer::{AnswerPlan, Carrier, Misfit, plan},
    plan::{chunk_count, whole},
    pull::layout,
    requests::{Pulled, Request, Requests},
};
use bytes::Bytes;
use rpcrdma_env::Scratch;
use rpcrdma_wire::v2::{Chunks, ErrorBody, Lists, NO_CHUNKS_OCTETS, ReverseSupport, VERSION};
use std::collections::{BTreeMap, VecDeque};

/// The most unanswered calls of the peer, including those that are held. Credits keep a correct peer far below this
/// number.
pub const MAX_REQUESTS: usize = 256;

/// Bytes of a header in front of its lists.
const FIXED_OCTETS: usize = NO_CHUNKS_OCTETS - 12;

#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(crate) requests: Requests,
    /// Bytes of the calls that came in parts: their memory is separate from the receives.
    joined: BTreeMap<RequestId, usize>,
    joined_bytes: usize,
}

/// The data outside of this half that handling a call needs.
pub(crate) struct Serving<'a> {
    pub(crate) config: &'a Config,
    pub(crate) link: Link,
    pub(crate) credits: &'a mut Credits,
    pub(crate) outbox: &'a mut Outbox,
    /// Whether a reply may be sent at once, if one Send takes it.
    pub(crate) at_once: bool,
    /// Memory for headers.
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) actions: &'a mut VecDeque<Action>,
}

impl Serving<'_> {
    fn level(&self) -> ReverseSupport {
        match self.config.side {
            Side::Client => reverse_of(self.config),
            Side::Server => ReverseSupport::General,
        }
    }

    fn most(&self) -> usize {
        self.credits.own()
    }
}

impl Responder {
    /// Bytes of calls that came in parts and are not answered.
    pub(crate) fn joined_bytes(&self) -> usize {
        self.joined_bytes
    }

    /// A call that was judged well-formed: with its stream, which may have been `joined` from parts, or with `None` if
    /// the stream is in its chunks. Returns whether the call was accepted, and keeps its credit.
    pub(crate) fn received(
        &mut self,
        xid: u32,
        chunks: Chunks,
        stream: Option<Bytes>,
        joined: bool,
        serving: &mut Serving<'_>,
    ) -> bool {
        let handle = chunks.invalidatable();
        let lists = chunks.lists;
        if let Some(error) = refusal(&lists, serving) {
            serving.outbox.error(xid, VERSION, error);
            return false;
        }
        let long = stream.is_none();
        let joined = stream.as_ref().filter(|_| joined).map(Bytes::len);
        let Ok(layout) = layout(&lists, stream.unwrap_or_default(), long, &serving.config.limits) else {
            // V2-11.1.4-a, V2-7.3-c
            serving.outbox.error(xid, VERSION, ErrorBody::System);
            return false;
        };
        if self.requests.len() >= MAX_REQUESTS {
            serving.actions.push_back(Action::Close(CloseCause::Peer(PeerFault::CreditsOverrun)));
            return false;
        }
        let id = self.requests.insert(xid, lists, handle, layout, serving.most(), serving.actions);
        if let Some(octets) = joined {
            self.joined.insert(id, octets);
            self.joined_bytes += octets;
        }
        true
    }

    /// The call's chunks have come. `head` is the beginning of the pulled bytes. Returns whether the call is delivered.
    pub(crate) fn pulled(&mut self, id: RequestId, head: &[u8], serving: &mut Serving<'_>) -> bool {
        let pulled = self.requests.pulled(id, head, serving.actions);
        if pulled == Pulled::OtherXid {
            // The answer is an error, which goes to the outbox.
            self.answer(id, Answer::NotEligible, serving);
        }
        pulled == Pulled::Delivered
    }

    /// The service's answer, or that the driver cannot serve the call. Returns whether the reply was sent; a reply that
    /// was not, and an error, go to the outbox.
    pub(crate) fn answer(&mut self, id: RequestId, answer: Answer, serving: &mut Serving<'_>) -> bool {
        let Some(request) = self.requests.take(id) else { return false };
        self.joined_bytes -= self.joined.remove(&id).unwrap_or(0);
        serving.credits.released();
        let reply = match answer {
            Answer::Reply(payload)
                if serving.at_once && request.takes_inline(NO_CHUNKS_OCTETS + payload.len(), &serving.link) =>
            {
                // What `reply` would do as well, in fewer steps: most replies are like this.
                let about = Sent {
                    xid: request.xid,
                    invalidates: invalidated(&request, serving),
                    ..Sent::of(MessageKind::Reply)
                };
                let (max_gather, credits) = (serving.config.max_gather, serving.credits.stamp());
                let (chunks, inline) = (Chunks::default(), Some(whole(payload)));
                let send = part(&about, &chunks, inline, true, credits, max_gather, serving.scratch);
                serving.actions.push_back(send);
                Ok(true)
            }
            Answer::Reply(payload) => reply(&request, &payload, serving),
            // V2-A.1-c, V2-A.1-g
            Answer::NotEligible => Err(ErrorBody::BadXdr),
            // V2-7.3-c, V2-7.3-b, V2-7.4.1-a
            Answer::Unreadable => Err(ErrorBody::System),
            Answer::Nothing => Ok(false),
        };
        let is_sent = reply.unwrap_or_else(|error| {
            serving.outbox.error(request.xid, VERSION, error);
            false
        });
        self.requests.admit(serving.most(), serving.actions);
        is_sent
    }

    /// The peer has taken an answer.
    pub(crate) fn drained(&mut self, serving: &mut Serving<'_>) {
        self.requests.drained();
        self.requests.admit(serving.most(), serving.actions);
    }
}

/// Plans a reply, and sends it if that may be at once: returns whether it is sent, or in the outbox.
fn reply(request: &Request, payload: &rpcrdma_xdr::Payload, serving: &mut Serving<'_>) -> Result<bool, ErrorBody> {
    let carrier = Carrier {
        fixed: FIXED_OCTETS,
        // V2-4.5.4-c
        continues: serving.level() >= ReverseSupport::Continued,
        send_inline: serving.link.send_inline,
        max_gather: serving.config.max_gather,
        max_transfer: serving.config.max_transfer_bytes,
    };
    let octets = |octets: usize| u32::try_from(octets).unwrap_or(0);
    let AnswerPlan { lists, inline, writes, placed } = plan(&request.writes, request.reply.as_ref(), payload, &carrier)
        .map_err(|misfit| match misfit {
            // V2-7.3.4-a, V2-7.3.4-b, V2-7.3.4-c, V2-6.4-e, V2-6.4-h
            Misfit::Write { index, needed } => {
                ErrorBody::WriteResource { chunk_index: octets(index.saturating_add(1)), length_needed: octets(needed) }
            }
            // V2-7.3.5-a, V2-7.3.5-b, V2-6.4-e
            Misfit::Reply { needed } => ErrorBody::ReplyResource { length_needed: octets(needed) },
            Misfit::Chunk => ErrorBody::System,
        })?;
    let about = Sent {
        // V2-3.1.2-b, V2-4.5.2-a
        xid: request.xid,
        placed_bytes: placed,
        write_chunks: chunk_count(lists.writes.chunks().len()),
        reply_chunk: inline.is_none(),
        invalidates: invalidated(request, serving),
        ..Sent::of(MessageKind::Reply)
    };
    // V2-6.2.4-f
    let chunks = Chunks { inv_handle: 0, lists };
    let (threshold, max_gather) = (serving.link.send_inline, serving.config.max_gather);
    let whole = fits(&chunks, inline.as_ref(), threshold).map_err(|_| ErrorBody::System)?;
    // V2-3.2.2.4-b, V2-4.3.6-f, V2-4.4.2.1-b
    for write in writes {
        serving.actions.push_back(Action::Write { xid: request.xid, to: write.to, octets: write.octets });
    }
    if whole && serving.at_once {
        let credits = serving.credits.stamp();
        let send = part(&about, &chunks, inline, true, credits, max_gather, serving.scratch);
        serving.actions.push_back(send);
        return Ok(true);
    }
    let outgoing = Outgoing::new(about, chunks, inline, threshold, max_gather).map_err(|_| ErrorBody::System)?;
    serving.outbox.replies.push_back(outgoing);
    Ok(false)
}

/// The handle of the peer that the reply to a call invalidates.
// V2-6.2.4-c, V2-6.2.4-d, V2-6.2.4-e, V2-C.7-d
fn invalidated(request: &Request, serving: &Serving<'_>) -> Option<u32> {
    request.handle.filter(|_| serving.link.send_invalidates)
}

/// The error with which the call's chunks, or the call itself, are refused.
fn refusal(lists: &Lists, serving: &Serving<'_>) -> Option<ErrorBody> {
    let (config, level) = (serving.config, serving.level());
    if config.credits_granted == 0 {
        return Some(ErrorBody::System);
    }
    if lists.is_empty() {
        return None;
    }
    // V2-4.5.4-d, V2-4.5.4-e
    if level < ReverseSupport::General {
        let continues = level >= ReverseSupport::Continued;
        return Some(match (lists.reads.is_empty(), lists.writes.is_empty()) {
            // V2-7.3.1-b
            (false, _) => ErrorBody::ReadChunks { max_chunks: 0 },
            // V2-7.3.2-d: a client that can take a continued reply (level 2) sends the call again without chunks; one
            // that cannot gets REPLY_RESOURCE.
            (true, false) if continues => ErrorBody::WriteChunks { max_chunks: 0 },
            _ => ErrorBody::ReplyResource { length_needed: 0 },
        });
    }
    let (reads, writes) = (config.limits.read_chunks, config.limits.write_chunks);
    // V2-7.3.1-a, V2-7.3.1-c
    if lists.reads.chunks().len() > reads {
        return Some(ErrorBody::ReadChunks { max_chunks: u32::try_from(reads).unwrap_or(u32::MAX) });
    }
    // V2-7.3.2-a
    if lists.writes.chunks().len() > writes {
        return Some(ErrorBody::WriteChunks { max_chunks: u32::try_from(writes).unwrap_or(u32::MAX) });
    }
    let segments = config.limits.segments;
    // V2-7.3.3-a, V2-5.2.4-b
    (lists.segment_count() > segments)
        .then(|| ErrorBody::Segments { max_segments: u32::try_from(segments).unwrap_or(u32::MAX) })
}
