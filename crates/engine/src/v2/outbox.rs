//! Messages that wait to be sent: errors, messages of extensions, replies, and the message that is under way in parts.
//!
//! Owns shares of the bytes until they are sent. A message that does not fit one Send goes in several, and only control
//! messages go between them. Chunks go with the last part.

use crate::{Action, MessageKind, Sent, plan::gathered};
use bytes::Bytes;
use rpcrdma_env::{Scratch, Slices};
use rpcrdma_wire::v2::{Chunks, Credits, ErrorBody, Header, NO_CHUNKS_OCTETS, OtherBody, PREFIX_OCTETS, Prefix};
use rpcrdma_xdr::UNIT;
use smallvec::smallvec;
use std::collections::VecDeque;

/// The most errors that may wait for credits. We close the connection of a peer that causes more.
pub const MAX_WAITING_ERRORS: usize = 160;

/// A message without payload.
#[derive(Debug)]
pub(crate) enum Control {
    Error { xid: u32, version: u32, error: ErrorBody },
    Other { xid: u32, response: bool, body: OtherBody },
}

/// An RPC message that is being sent in parts, or waits for a credit.
#[derive(Debug)]
pub(crate) struct Outgoing {
    about: Sent,
    /// The chunks, which go with the last part.
    chunks: Chunks,
    /// The payload of the next part; `None` if the payload is in a chunk.
    next: Option<Slices>,
    /// The payloads of the parts behind that.
    later: VecDeque<Slices>,
}

/// The chunks leave no room for payload in a Send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// The bytes of a payload for which the chunks leave room in a Send of `threshold` bytes.
fn room(chunks: &Chunks, threshold: usize) -> Result<usize, NoRoom> {
    let header = PREFIX_OCTETS + chunks.encoded_len();
    threshold.checked_sub(header).filter(|&room| room >= UNIT).ok_or(NoRoom)
}

/// Whether one Send takes a whole message; the payload is `None` if it is in a chunk.
pub(crate) fn fits(chunks: &Chunks, payload: Option<&Slices>, threshold: usize) -> Result<bool, NoRoom> {
    let Some(payload) = payload else { return Ok(true) };
    Ok(payload.iter().map(Bytes::len).sum::<usize>() <= room(chunks, threshold)?)
}

/// A part of a message as a Send, the last one if `last`.
// V2-4.1-a, V2-4.1-d, V2-4.1-f, V2-4.1-g, V2-4.4.1.1-b, V2-4.5.1-b, V2-4.5.2-b
pub(crate) fn part(
    about: &Sent,
    chunks: &Chunks,
    payload: Option<Slices>,
    last: bool,
    credits: Credits,
    max_gather: usize,
    scratch: &mut Scratch,
) -> Action {
    let response = about.kind == MessageKind::Reply;
    // V2-4.4.3-a, V2-6.3.2-a
    let prefix = Prefix::rpc(about.xid, credits, response, !last, payload.is_some());
    let header = scratch.write(PREFIX_OCTETS + chunks.encoded_len(), |out| prefix.encode_with(chunks, out));
    let octets = gathered(header, payload.unwrap_or_default(), max_gather, scratch);
    let about = Sent {
        credit: credits.granted.into(),
        inline_bytes: octets.iter().map(Bytes::len).sum(),
        ..if last { *about } else { part_of(*about) }
    };
    // V2-6.2.4-f
    Action::Send { octets, signaled: response && last, about }
}

impl Outgoing {
    /// A message that goes in as many parts as its payload needs, which is `None` if it is in a chunk.
    // V2-4.4.1-a, V2-4.4.2-a, V2-4.1-c
    pub(crate) fn new(
        about: Sent,
        chunks: Chunks,
        payload: Option<Slices>,
        threshold: usize,
        max_gather: usize,
    ) -> Result<Self, NoRoom> {
        if fits(&chunks, payload.as_ref(), threshold)? {
            return Ok(Self { about, chunks, next: payload, later: VecDeque::new() });
        }
        let last = room(&chunks, threshold)?;
        let each = threshold.saturating_sub(NO_CHUNKS_OCTETS) / UNIT * UNIT;
        let mut parts = cut(payload.unwrap_or_default(), each.max(UNIT), last, max_gather);
        Ok(Self { about, chunks, next: parts.pop_front(), later: parts })
    }

    pub(crate) fn xid(&self) -> u32 {
        self.about.xid
    }

    /// Whether it is a reply.
    pub(crate) fn is_reply(&self) -> bool {
        self.about.kind == MessageKind::Reply
    }

    /// The next part as a Send, and whether it was the last.
    pub(crate) fn send(&mut self, credits: Credits, max_gather: usize, scratch: &mut Scratch) -> (Action, bool) {
        let payload = self.next.take();
        self.next = self.later.pop_front();
        let last = self.next.is_none();
        // V2-6.2.2.2-f, V2-4.4.2.1-c
        let chunks = if last { std::mem::take(&mut self.chunks) } else { Chunks::default() };
        (part(&self.about, &chunks, payload, last, credits, max_gather, scratch), last)
    }
}

/// The summary of a part that is not the last one.
fn part_of(about: Sent) -> Sent {
    Sent {
        kind: MessageKind::Part,
        placed_bytes: 0,
        read_chunks: 0,
        write_chunks: 0,
        reply_chunk: false,
        invalidates: None,
        ..about
    }
}

/// Cuts a payload into parts of `each` bytes, the last of at most `last`; an empty payload gives no part.
// V2-6.3.1-b, V2-4.1-c
fn cut(payload: Slices, each: usize, last: usize, max_gather: usize) -> VecDeque<Slices> {
    let mut left: usize = payload.iter().map(Bytes::len).sum();
    let mut slices = payload.into_iter();
    let mut current = Bytes::new();
    let mut parts = VecDeque::with_capacity(left.div_ceil(each).max(1));
    loop {
        // At least one unit must be left for the last part, or it would have no bytes.
        let wanted = if left <= last { left } else { each.min(left.saturating_sub(UNIT)).max(UNIT) };
        let mut part = Slices::with_capacity(max_gather.min(2));
        let mut len = 0;
        while len < wanted {
            if current.is_empty() {
                let Some(next) = slices.next() else { break };
                current = next;
                continue;
            }
            let here = current.split_to(current.len().min(wanted - len));
            len += here.len();
            part.push(here);
        }
        let is_last = left <= last;
        left = left.saturating_sub(len);
        parts.push_back(part);
        if is_last || len == 0 {
            return parts;
        }
    }
}

/// A control message as a Send.
pub(crate) fn control(control: Control, credits: Credits) -> Action {
    let (header, kind) = match control {
        Control::Error { xid, version, error } => (Header::error(xid, version, credits, error), MessageKind::Error),
        Control::Other { xid, response, body } => (Header::other(xid, credits, response, body), MessageKind::Extension),
    };
    bare(&header, kind)
}

/// A message that consists of a header only.
pub(crate) fn bare(header: &Header, kind: MessageKind) -> Action {
    let octets = header.to_bytes();
    let about =
        Sent { xid: header.xid, credit: header.credits.granted.into(), inline_bytes: octets.len(), ..Sent::of(kind) };
    Action::Send { octets: smallvec![octets], signaled: true, about }
}

/// All messages that wait.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) controls: VecDeque<Control>,
    pub(crate) replies: VecDeque<Outgoing>,
    /// The message of which a part was sent, and others are left.
    // V2-4.1-e, V2-6.2.2.2-j
    pub(crate) current: Option<Outgoing>,
}

impl Outbox {
    /// An error about a message.
    pub(crate) fn error(&mut self, xid: u32, version: u32, error: ErrorBody) {
        self.controls.push_back(Control::Error { xid, version, error });
    }

    /// Takes the message that is under way in parts.
    pub(crate) fn take_current(&mut self) -> Option<Outgoing> {
        // Nearly always there is none: `take` alone would move the whole place to find that out.
        if self.current.is_none() { None } else { self.current.take() }
    }

    /// Replies that are not sent.
    #[inline]
    pub(crate) fn answers(&self) -> usize {
        self.replies.iter().chain(&self.current).filter(|outgoing| outgoing.is_reply()).count()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.controls.is_empty() && self.replies.is_empty() && self.current.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(total: usize, each: usize, last: usize) -> Vec<usize> {
        let payload = Bytes::from((0..total).map(|at| at as u8).collect::<Vec<_>>());
        let slices = smallvec![payload.slice(..total / 3), Bytes::new(), payload.slice(total / 3..)];
        let parts = cut(slices, each, last, 8);
        let joined: Vec<u8> = parts.iter().flatten().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!(joined, payload, "in order, nothing lost");
        parts.iter().map(|part| part.iter().map(Bytes::len).sum()).collect()
    }

    /// proves: V2-4.4.2-a, V2-4.1-c, V2-4.1-d, V2-6.3.1-b
    #[test]
    fn a_payload_is_cut_into_parts_that_fit() {
        assert_eq!(lengths(40, 100, 100), [40]);
        assert_eq!(lengths(100, 100, 100), [100]);
        assert_eq!(lengths(104, 100, 100), [100, 4]);
        assert_eq!(lengths(100, 100, 60), [96, 4], "the last part is never without bytes");
        assert_eq!(lengths(100, 100, 4), [96, 4]);
        assert_eq!(lengths(312, 100, 20), [100, 100, 100, 12]);
        assert_eq!(lengths(320, 100, 16), [100, 100, 100, 16, 4]);
        assert_eq!(lengths(0, 100, 100), [0]);
    }
}
