//! The words of an RPC message that the transport reads: its XID, whether it is a Call or a Reply, and the program that
//! a Call names (RFC 5531 section 9).
//!
//! The transport passes RPC messages on and decodes none. But it must compare the XID with the header's, in version 1
//! only this second word shows the direction of a message, and a NULL call shows whether a silent peer is alive. Owns
//! nothing.

use crate::cursor::word_at;
use bytes::Bytes;

/// Octets of the XID, the first word.
pub(crate) const XID_OCTETS: usize = 4;

/// Whether a message is a Call or a Reply: its second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A Call (0).
    Call,
    /// A Reply (1).
    Reply,
}

impl Direction {
    /// The word on the wire.
    pub fn word(self) -> u32 {
        match self {
            Self::Call => 0,
            Self::Reply => 1,
        }
    }
}

/// Whether a message begins with this XID.
// V1-3.2-a, V1-4.2.1-c, V2-4.1-b
pub fn has_xid(message: &[u8], xid: u32) -> bool {
    message.first_chunk::<XID_OCTETS>() == Some(&xid.to_be_bytes())
}

/// The direction of a message; `None` if the message is too short, or its second word is another number.
///
/// ```
/// use rpcrdma_wire::rpc::{Direction, direction, null_call};
/// assert_eq!(direction(&null_call(7, None)), Some(Direction::Call));
/// assert_eq!(direction(&[0; 7]), None);
/// ```
pub fn direction(message: &[u8]) -> Option<Direction> {
    let word = word_at(message, XID_OCTETS)?;
    [Direction::Call, Direction::Reply].into_iter().find(|direction| direction.word() == word)
}

/// Program and version of the Call that begins with `head`.
pub fn program(head: &[u8]) -> Option<(u32, u32)> {
    word_at(head, 12).zip(word_at(head, 16))
}

/// The port mapper, which once every host with RPC had.
const PORT_MAPPER: (u32, u32) = (100_000, 2);

/// Words of a Call with empty credential and verifier.
const NULL_CALL_WORDS: usize = 10;

/// A Call of procedure 0 of this program and version, or of the port mapper if the caller knows none. Any answer shows
/// that the peer is alive, even the answer that it has no such program.
pub fn null_call(xid: u32, program: Option<(u32, u32)>) -> Bytes {
    let (program, version) = program.unwrap_or(PORT_MAPPER);
    let words: [u32; NULL_CALL_WORDS] = [xid, Direction::Call.word(), 2, program, version, 0, 0, 0, 0, 0];
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_call_has_what_it_was_made_of() {
        let call = null_call(9, Some((100_003, 3)));
        assert_eq!(call.len(), 4 * NULL_CALL_WORDS);
        assert!(has_xid(&call, 9) && !has_xid(&call, 8) && !has_xid(&call[..3], 9));
        assert_eq!(program(&call), Some((100_003, 3)));
        assert_eq!(program(&call[..19]), None);
        assert_eq!(program(&null_call(9, None)), Some(PORT_MAPPER));
    }

    #[test]
    fn the_second_word_is_the_direction() {
        let message = |word: u8| [0, 0, 0, 9, 0, 0, 0, word];
        assert_eq!(direction(&message(0)), Some(Direction::Call));
        assert_eq!(direction(&message(1)), Some(Direction::Reply));
        assert_eq!(direction(&message(2)), None);
        assert_eq!(direction(&message(0)[..7]), None);
    }
}
