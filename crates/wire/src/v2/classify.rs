//! What a receiver must do with a message of version 2, decided from the message alone (draft sections 6 and 7).
//!
//! Other modules later match the XID with outstanding calls and check sequences of continued messages, the state of the
//! property exchange, credits and limits. Owns nothing but the decoded header that it passes on. It cannot fail: for
//! any octets there is exactly one judgement.
//!
//! The flag `RDMA2_F_RESPONSE` says for which role of an end the message is. If it is clear, the sender chose the XID,
//! and an error about this XID means something to the sender. If it is set, the receiver chose the XID, and an answer
//! could hit an unrelated call of the peer. So the receiver answers only messages without the flag, except where the
//! draft requires every receiver to answer.

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

/// The receiver's role, and where in a sequence of continued messages it is.
#[derive(Clone, Copy, Debug)]
pub struct Receiver<'a> {
    /// Only the end that answers calls in the forward direction answers an unknown version.
    pub role: Role,
    /// The header types and properties that the receiver knows beyond the draft's.
    pub extensions: &'a dyn Extensions,
    /// Where the message stands in a sequence.
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
    /// No sequence is under way, or the message does not belong to it.
    First,
    /// The message continues a sequence: it has the same XID, header type and `RDMA2_F_RESPONSE`.
    Later {
        /// The first octets that the earlier messages brought, at least eight if they brought so many.
        head: &'a [u8],
        /// How many octets they brought.
        octets: usize,
    },
}

/// What the receiver does with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It passes the message on.
    Accept {
        /// Its header.
        header: Header,
        /// The offset of the first octet behind the header.
        payload_offset: usize,
    },
    /// It drops the message, and sends nothing.
    Discard {
        /// Why.
        why: Discard,
        /// The credits that the message's prefix grants, if it has a prefix of this version.
        credits: Option<Credits>,
    },
    /// It drops the message, and answers with an `RDMA2_ERROR`.
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

/// Why a receiver drops a message in silence.
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
    /// It is marked as continued though it cannot be, and an answer could hit an unrelated call.
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

/// As [`judge`], for a message whose `prefix` is decoded already. If the prefix belongs to another message, the result
/// has no meaning.
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

/// Judges a message of another version: either an error about the version, or a message to answer with such an error.
// V2-7.1.1-a, V2-7.1.1-b, V2-7-g
fn of_other_version(role: Role, prefix: &Prefix, message: &Bytes) -> Judgement {
    // If ends answered errors, two of them could answer each other without end.
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

/// Whether the RPC message, or its part in this message, belongs to the prefix, and the chunks fit.
fn msg_fits(prefix: &Prefix, chunks: &Chunks, payload: &[u8], place: Place<'_>) -> bool {
    let (head, before) = match place {
        Place::First => (&[][..], 0),
        Place::Later { head, octets } => (head, octets),
    };
    let mut joined = [0; KNOWN_OCTETS];
    let known = match payload.get(..KNOWN_OCTETS) {
        Some(known) if head.is_empty() => known,
        _ => {
            let octets = head.iter().chain(payload);
            let len = joined.iter_mut().zip(octets).map(|(to, octet)| *to = *octet).count();
            joined.get(..len).unwrap_or_default()
        }
    };
    // V2-6.3.1-b
    if !begins_with(prefix, known) || (known.len() < XID_OCTETS && !prefix.flags.more) {
        return false;
    }
    if prefix.flags.response {
        // V2-4.4.1.1-d
        return chunks.lists.reads.is_empty();
    }
    // The receiver joins the parts when the last has come; until then a message has no chunks.
    prefix.flags.more
        // Two payloads, both at offset 0, have no sensible meaning.
        || (chunks.lists.reads.segments().iter().all(|entry| entry.position != 0)
            // V2-4.3.5-h
            && positions_fit(&chunks.lists, before.saturating_add(payload.len())))
}

/// Whether the RPC message begins with the XID and the direction of the prefix, as far as its first octets have
/// arrived.
// V2-7.2-a, V2-6.2.2.1-g, V2-6.2.2.1-e, V2-3.1.2-a
fn begins_with(prefix: &Prefix, known: &[u8]) -> bool {
    let direction = if prefix.flags.response { Direction::Reply } else { Direction::Call };
    let (xid, rest) = known.split_at(known.len().min(XID_OCTETS));
    let direction_fits = rest.first_chunk() == Some(&direction.word().to_be_bytes());
    prefix.xid.to_be_bytes().starts_with(xid) && (direction_fits || known.len() < KNOWN_OCTETS)
}

/// Whether a chunk holds the RPC message, or the message is a grant, without chunks and XID.
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
