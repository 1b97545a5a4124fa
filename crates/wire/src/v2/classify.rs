//! What a receiver must do with a message of version 2, judged by the message alone (draft sections 6 and 7).
//!
//! Matching the XID with outstanding calls, sequences of continued messages, the state of the property exchange,
//! credits and limits come later and elsewhere. Owns nothing but the decoded header that it passes on. It cannot fail:
//! whatever the octets are, there is one judgement.
//!
//! The message says for which half of an end it is. With `RDMA2_F_RESPONSE` clear, its XID is the sender's, and an
//! error about it means something to the sender. With the flag set, the XID is the receiver's own, and an answer could
//! hit an unrelated call of the peer. So the receiver answers only the former, except where the draft requires every
//! receiver to answer.

use super::{
    Body, Chunks, Credits, ErrorBody, Extensions, Header, HeaderError, HeaderType, NoExtensions, Prefix, Role, VERSION,
};
use crate::{
    chunk::fit::{position_zero_len, positions_fit},
    rpc::{Direction, XID_OCTETS},
};
use bytes::Bytes;

/// Octets at the beginning of an RPC message that the transport knows: the XID, and whether it is a Call or a Reply.
const KNOWN_OCTETS: usize = 8;

/// Who receives, and where in a sequence of continued messages.
#[derive(Clone, Copy, Debug)]
pub struct Receiver<'a> {
    /// Only who answers calls in the forward direction answers an unknown version.
    pub role: Role,
    /// What it knows beyond the draft.
    pub extensions: &'a dyn Extensions,
    /// Where the message stands.
    pub place: Place<'a>,
}

impl Receiver<'_> {
    /// A receiver that knows the draft and has no sequence under way.
    pub fn new(role: Role) -> Self {
        Self { role, extensions: &NoExtensions, place: Place::First }
    }
}

/// Where a message stands in a sequence of continued messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// No sequence is under way, or the message is not of it.
    First,
    /// It continues a sequence: it has its XID, header type and `RDMA2_F_RESPONSE`.
    Later {
        /// The first octets of what the earlier messages brought, at least eight if there are so many.
        head: &'a [u8],
        /// How many octets they brought.
        octets: usize,
    },
}

/// What the receiver does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The message is passed on.
    Accept {
        /// Its header.
        header: Header,
        /// Where what follows the header begins, in octets.
        payload_offset: usize,
    },
    /// It is dropped, and nothing is sent.
    Discard {
        /// Why.
        why: Discard,
        /// The credits that its prefix granted, if there was one of this version.
        credits: Option<Credits>,
    },
    /// It is dropped, and answered with an `RDMA2_ERROR`.
    Reply {
        /// The XID to repeat.
        xid: u32,
        /// The version to repeat.
        version: u32,
        /// The error.
        error: ErrorBody,
        /// As in `Discard`.
        credits: Option<Credits>,
    },
}

/// Why a message is dropped in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Discard {
    /// It is shorter than any message.
    Short,
    /// It is of another version.
    Version,
    /// It is an error that is not known or cannot be decoded.
    UnknownError,
    /// Its header type is not known, and an answer could hit an unrelated call.
    HeaderType,
    /// It claims to be continued and cannot be, and an answer could hit an unrelated call.
    Continuation,
    /// Its header, or what it describes, is wrong, and an answer could hit an unrelated call.
    Malformed,
}

/// Judges a message.
pub fn judge(receiver: &Receiver<'_>, message: &Bytes) -> Judgement {
    match Prefix::decode(message) {
        Ok(prefix) => judge_after(&prefix, receiver, message),
        // V2-7-a
        Err(_) => Judgement::Discard { why: Discard::Short, credits: None },
    }
}

/// As [`judge`], for a message whose `prefix` is decoded already. What it returns has no meaning if the prefix is of
/// another message.
// V2-C.1-a, V2-C.1-b
// V2-11.2.2.4-b, ULB-5.4.2-b
pub fn judge_after(prefix: &Prefix, receiver: &Receiver<'_>, message: &Bytes) -> Judgement {
    if prefix.version != VERSION {
        return of_other_version(receiver.role, prefix, message);
    }
    if let Err(judgement) = flags_fit(receiver, prefix) {
        return judgement;
    }
    let continues = matches!(receiver.place, Place::Later { .. });
    let (header, payload_offset) = match Header::decode_after(prefix, message, continues) {
        Ok(decoded) => decoded,
        // V2-5.1-c, V2-7.2.2-a, V2-7.2.2-b
        Err(HeaderError::Property { .. }) => return reply(prefix, ErrorBody::BadPropertyValue),
        Err(_) => return malformed(prefix),
    };
    let payload = message.get(payload_offset..).unwrap_or_default();
    match &header.body {
        // V2-7-f
        Body::Error(ErrorBody::Unknown(_)) => discard(prefix, Discard::UnknownError),
        // V2-5.1-e
        Body::Connprop(set) if !set.fits(receiver.extensions) => reply(prefix, ErrorBody::BadPropertyValue),
        // V2-6.2.2.2-g, V2-6.2.2.2-h
        Body::Msg(chunks) if header.flags.more && !chunks.is_empty() => broken_sequence(prefix),
        Body::Msg(chunks) if !msg_fits(prefix, chunks, payload, receiver.place) => malformed(prefix),
        Body::Nomsg(chunks) if !nomsg_fits(prefix, chunks) => malformed(prefix),
        _ => Judgement::Accept { header, payload_offset },
    }
}

/// A message of another version: an error about the version, or something to answer with one.
// V2-7.1.1-a, V2-7.1.1-b, V2-7-g
fn of_other_version(role: Role, prefix: &Prefix, message: &Bytes) -> Judgement {
    // An answer to an error could be answered with an error, without end.
    let is_error = prefix.header_type == HeaderType::Error.code();
    match (role, is_error) {
        (Role::Responder, false) => Judgement::Reply {
            xid: prefix.xid,
            version: prefix.version,
            error: ErrorBody::Version { low: VERSION, high: VERSION },
            credits: None,
        },
        (Role::Requester, true) => match Header::decode_after(prefix, message, false) {
            Ok((header, payload_offset)) => Judgement::Accept { header, payload_offset },
            Err(_) => Judgement::Discard { why: Discard::Version, credits: None },
        },
        _ => Judgement::Discard { why: Discard::Version, credits: None },
    }
}

/// Whether the header type is known and may have these flags.
fn flags_fit(receiver: &Receiver<'_>, prefix: &Prefix) -> Result<(), Judgement> {
    let header_type = HeaderType::from_code(prefix.header_type);
    // V2-6.2.2.3-b, V2-6.2.2.3-f
    if prefix.flags.tpmore && header_type != Some(HeaderType::Connprop) {
        return Err(reply(prefix, ErrorBody::InvalidHeaderType));
    }
    // V2-6.1-c, V2-6.1-e, V2-7.1.2-a, V2-7.1.2-b, V2-7.2-d
    if header_type.is_none() && !receiver.extensions.header_type(prefix.header_type) {
        return Err(match prefix.flags.response {
            true => discard(prefix, Discard::HeaderType),
            false => reply(prefix, ErrorBody::InvalidHeaderType),
        });
    }
    // V2-6.2.2.2-d, V2-6.2.2.2-e
    if prefix.flags.more && !header_type.is_some_and(HeaderType::can_continue) {
        return Err(broken_sequence(prefix));
    }
    Ok(())
}

/// Whether an RPC message, or the part of it in this message, belongs to the prefix, and the chunks fit it.
fn msg_fits(prefix: &Prefix, chunks: &Chunks, payload: &[u8], place: Place<'_>) -> bool {
    let (head, before) = match place {
        Place::First => (&[][..], 0),
        Place::Later { head, octets } => (head, octets),
    };
    let mut known = [0; KNOWN_OCTETS];
    let mut len = 0;
    for (to, octet) in known.iter_mut().zip(head.iter().chain(payload)) {
        *to = *octet;
        len += 1;
    }
    let known = known.get(..len).unwrap_or_default();
    // V2-6.3.1-b
    if !begins_with(prefix, known) || (len < XID_OCTETS && !prefix.flags.more) {
        return false;
    }
    if prefix.flags.response {
        // V2-4.4.1.1-d
        return chunks.lists.reads.is_empty();
    }
    // Parts are put together when the last has come; until then a message has no chunks.
    prefix.flags.more
        // Two payloads at offset 0 have no sensible meaning.
        || (chunks.lists.reads.segments().iter().all(|entry| entry.position != 0)
            // V2-4.3.5-h
            && positions_fit(&chunks.lists, before.saturating_add(payload.len())))
}

/// Whether the beginning of an RPC message, as far as this message has it, has the XID and the direction of the prefix.
// V2-7.2-a, V2-6.2.2.1-g, V2-6.2.2.1-e, V2-3.1.2-a
fn begins_with(prefix: &Prefix, known: &[u8]) -> bool {
    let direction = if prefix.flags.response { Direction::Reply } else { Direction::Call };
    let (xid, rest) = known.split_at(known.len().min(XID_OCTETS));
    let direction_fits = rest.first_chunk() == Some(&direction.word().to_be_bytes());
    prefix.xid.to_be_bytes().starts_with(xid) && (direction_fits || known.len() < KNOWN_OCTETS)
}

/// Whether there is an RPC message in a chunk, or neither: a grant.
fn nomsg_fits(prefix: &Prefix, chunks: &Chunks) -> bool {
    if chunks.is_empty() {
        // V2-6.3.2-f
        return prefix.xid == 0;
    }
    let lists = &chunks.lists;
    if prefix.flags.response {
        // V2-6.3.2-h
        return lists.reads.is_empty() && lists.reply.as_ref().is_some_and(|reply| !reply.is_empty());
    }
    // V2-6.3.2-h, V2-4.4.3-j
    position_zero_len(lists).is_some_and(|len| positions_fit(lists, len))
}

// V2-7.2.1-a, V2-7.2.1-b, V2-7-g
fn malformed(prefix: &Prefix) -> Judgement {
    if prefix.header_type == HeaderType::Error.code() {
        discard(prefix, Discard::UnknownError)
    } else if prefix.flags.response {
        discard(prefix, Discard::Malformed)
    } else {
        reply(prefix, ErrorBody::BadXdr)
    }
}

// V2-7.1.3-a, V2-6.2.2.2-e, V2-6.2.2.2-h
fn broken_sequence(prefix: &Prefix) -> Judgement {
    if prefix.flags.response || prefix.header_type == HeaderType::Error.code() {
        discard(prefix, Discard::Continuation)
    } else {
        reply(prefix, ErrorBody::InvalidContinuation)
    }
}

fn discard(prefix: &Prefix, why: Discard) -> Judgement {
    Judgement::Discard { why, credits: Some(prefix.credits) }
}

fn reply(prefix: &Prefix, error: ErrorBody) -> Judgement {
    let Prefix { xid, version, credits, .. } = *prefix;
    Judgement::Reply { xid, version, error, credits: Some(credits) }
}
