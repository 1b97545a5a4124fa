//! What a receiver must do with a message, decided from the message alone (RFC 8166 section 4.5).
//!
//! Other modules match the XID with outstanding calls and check credits and limits later. Owns nothing but the decoded
//! header that it passes on. It cannot fail: for any octets there is exactly one judgement.

use super::{Body, ErrorBody, Header, HeaderError, MIN_MESSAGE_OCTETS, Procedure, VERSION};
use crate::{
    chunk::fit::{position_zero_len, positions_fit},
    rpc::has_xid,
};

/// The receiver's role in the RPC to which the message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It answers Calls.
    Responder,
    /// It sends Calls.
    Requester,
}

/// What the receiver does with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It passes the message on.
    Accept {
        /// Its header.
        header: Header,
        /// Where its Payload stream begins, in octets.
        payload_offset: usize,
    },
    /// It drops the message, and sends nothing.
    Discard(Discard),
    /// It drops the message, and answers with an `RDMA_ERROR`.
    Reply {
        /// The XID to repeat.
        xid: u32,
        /// The version to repeat.
        version: u32,
        /// The error.
        error: ErrorBody,
    },
}

/// Why a receiver drops a message in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Discard {
    /// It is shorter than any message of its kind.
    Short,
    /// An error; only requesters receive errors.
    ErrorToResponder,
    /// An error that cannot be decoded.
    UnknownError,
    /// `RDMA_DONE` has no meaning any more.
    Done,
    /// `RDMA_MSGP` is not for requesters.
    Msgp,
    /// It is of another version.
    Version,
    /// Its header, or what it describes, is wrong, and requesters do not answer.
    Malformed,
}

/// Judges a message that stands alone.
pub fn judge(role: Role, message: &[u8]) -> Judgement {
    judge_by(|_| role, message)
}

/// As [`judge`], where the receiver can have either role: `role` chooses it from the header and the Payload stream
/// behind it, or from `None` if the message has no valid header.
pub fn judge_by(role: impl FnOnce(Option<(&Header, &[u8])>) -> Role, message: &[u8]) -> Judgement {
    let decoded = Header::decode(message);
    let role = match &decoded {
        Ok((header, payload_offset)) => role(Some((header, message.get(*payload_offset..).unwrap_or_default()))),
        Err(_) => role(None),
    };
    if too_short(&decoded, message.len()) {
        return Judgement::Discard(Discard::Short);
    }
    match decoded {
        Ok((header, payload_offset)) => {
            let payload = message.get(payload_offset..).unwrap_or_default();
            match role {
                Role::Responder => as_responder(header, payload_offset, payload),
                Role::Requester => as_requester(header, payload_offset, payload),
            }
        }
        Err(error) => match role {
            Role::Responder => answer(&error),
            // V1-4.5-c, V1-4.5-h
            Role::Requester => Judgement::Discard(match error {
                HeaderError::Short { .. } => Discard::Short,
                HeaderError::Version { .. } => Discard::Version,
                HeaderError::Malformed { procedure: Procedure::Error, .. } => Discard::UnknownError,
                _ => Discard::Malformed,
            }),
        },
    }
}

/// Of messages below 28 octets, the receiver considers only the two kinds that can be so short.
// V1-4.5-a, V1-4.5-i
fn too_short(decoded: &Result<(Header, usize), HeaderError>, len: usize) -> bool {
    let exempt = matches!(decoded, Ok((Header { body: Body::Error(_) | Body::Done, .. }, _)));
    len < MIN_MESSAGE_OCTETS && !exempt
}

/// How a responder answers octets that are not a header.
// V1-4.5-b, V1-4.5-d, V1-4.5.2-a
fn answer(error: &HeaderError) -> Judgement {
    match *error {
        HeaderError::Short { .. } => Judgement::Discard(Discard::Short),
        // If ends answered errors, two of them could answer each other without end.
        HeaderError::Version { procedure, .. } if procedure == Procedure::Error.code() => {
            Judgement::Discard(Discard::ErrorToResponder)
        }
        HeaderError::Malformed { procedure: Procedure::Error, .. } => Judgement::Discard(Discard::ErrorToResponder),
        // V1-4.5.1-a, V1-4.5-e, V1-4.5-j, IE-4.6.1-a
        HeaderError::Version { xid, version, .. } => {
            Judgement::Reply { xid, version, error: ErrorBody::Version { low: VERSION, high: VERSION } }
        }
        HeaderError::Procedure { xid, .. } | HeaderError::Malformed { xid, .. } => err_chunk(xid),
    }
}

fn err_chunk(xid: u32) -> Judgement {
    Judgement::Reply { xid, version: VERSION, error: ErrorBody::Chunk }
}

fn as_responder(header: Header, payload_offset: usize, payload: &[u8]) -> Judgement {
    let well_formed = match &header.body {
        // V1-4.2.4-d, V1-4.2.4-e
        Body::Error(_) => return Judgement::Discard(Discard::ErrorToResponder),
        // V1-4.6.2-b, IE-7.1.2.1-a
        Body::Done => return Judgement::Discard(Discard::Done),
        // V1-4.6.1-b, IE-7.1.3-a
        Body::Msgp { .. } => false,
        // Two payloads, both at offset 0, have no sensible meaning (RFC 8166 section 4.2.4).
        // V1-4.2.4-g
        Body::Msg(lists) => {
            // V1-4.2.1-c
            has_xid(payload, header.xid)
                && lists.reads.segments().iter().all(|entry| entry.position != 0)
                && positions_fit(lists, payload.len())
        }
        // V1-4.2.4-c, IE-3.5-a, IE-3.5.1-a
        Body::Nomsg(lists) => position_zero_len(lists).is_some_and(|len| positions_fit(lists, len)),
    };
    if well_formed { Judgement::Accept { header, payload_offset } } else { err_chunk(header.xid) }
}

fn as_requester(header: Header, payload_offset: usize, payload: &[u8]) -> Judgement {
    let well_formed = match &header.body {
        Body::Error(_) => true,
        Body::Done => return Judgement::Discard(Discard::Done),
        // V1-4.6.1-c
        Body::Msgp { .. } => return Judgement::Discard(Discard::Msgp),
        // V1-4.3.1-b, IE-7.1.2-a
        Body::Msg(lists) => lists.reads.is_empty() && has_xid(payload, header.xid),
        Body::Nomsg(lists) => lists.reads.is_empty() && lists.reply.as_ref().is_some_and(|reply| !reply.is_empty()),
    };
    if well_formed { Judgement::Accept { header, payload_offset } } else { Judgement::Discard(Discard::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::super::{Lists, ReadList, ReadSegment, Segment};
    use super::*;

    fn call(reads: &[(u32, u32)], payload: usize) -> Judgement {
        let entry = |&(position, length): &(u32, u32)| ReadSegment {
            position,
            segment: Segment { handle: 1, length, offset: 0 },
        };
        let lists = Lists { reads: ReadList(reads.iter().map(entry).collect()), ..Lists::default() };
        let mut message = Header::new(7, 1, Body::Msg(lists)).to_bytes().to_vec();
        message.extend_from_slice(&7u32.to_be_bytes());
        message.resize(message.len() - 4 + payload, 0);
        judge(Role::Responder, &message)
    }

    fn accepted(judgement: &Judgement) -> bool {
        matches!(judgement, Judgement::Accept { .. })
    }

    /// proves: V1-3.4.5-b, V1-3.4.5-c, V1-4.2.4-g
    #[test]
    fn positions_lie_in_the_unreduced_stream() {
        assert!(accepted(&call(&[(40, 5)], 40)), "at the end of what is inline");
        assert_eq!(call(&[(44, 5)], 40), err_chunk(7), "one unit past it");
        assert!(accepted(&call(&[(40, 5), (48, 1)], 40)), "behind the first chunk, with its padding");
        assert_eq!(call(&[(40, 5), (44, 1)], 40), err_chunk(7), "inside the first chunk");
        assert_eq!(call(&[(40, 5), (52, 1)], 40), err_chunk(7), "beyond both");
        assert_eq!(call(&[(38, 4)], 40), err_chunk(7), "no multiple of four");
        assert_eq!(call(&[(0, 40)], 40), err_chunk(7), "a second payload");
    }

    fn judged(role: Role, words: &[u32]) -> Judgement {
        judge(role, &words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>())
    }

    /// proves: V1-4.5-h
    #[test]
    fn an_error_is_never_answered_whatever_its_version() {
        for version in [0, 1, 2, u32::MAX] {
            for error in [&[1, 1, 1][..], &[1, 1], &[2, 0, 0], &[9, 0, 0], &[]] {
                let words = [&[7, version, 1, 4][..], error].concat();
                assert!(matches!(judged(Role::Responder, &words), Judgement::Discard(_)), "{words:?}");
            }
        }
    }

    #[test]
    fn what_a_requester_drops_it_drops_for_a_reason() {
        let why = |words: &[u32]| judged(Role::Requester, words);
        let dropped = Judgement::Discard;
        assert_eq!(why(&[7, 1, 1, 0, 0, 0]), dropped(Discard::Short));
        assert_eq!(why(&[7, 2, 1, 0, 0, 0, 0]), dropped(Discard::Version));
        assert_eq!(why(&[7, 2, 1, 4, 9, 0, 0]), dropped(Discard::Version), "whatever else is wrong");
        assert_eq!(why(&[7, 1, 1, 4, 9, 0, 0]), dropped(Discard::UnknownError));
        assert_eq!(why(&[7, 1, 1, 9, 0, 0, 0]), dropped(Discard::Malformed), "no such procedure");
        assert_eq!(why(&[7, 1, 1, 0, 2, 0, 0]), dropped(Discard::Malformed), "no presence word");
    }

    /// proves: V1-4.2.1-c
    #[test]
    fn a_payload_must_hold_the_xid() {
        assert!(accepted(&call(&[], 4)));
        assert_eq!(call(&[], 3), err_chunk(7));
    }
}
