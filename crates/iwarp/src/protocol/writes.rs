//! Finds the RDMA Write of ours that a peer has refused.
//!
//! A Write is done when its octets are in the socket. Whether the peer accepts them shows later, if at all: its
//! Terminate quotes the header of the segment that it refused. This module finds the Write to which that header
//! belongs. It remembers a limited number of Writes, and only numbers, no memory. A header belongs to a Write if it has
//! its steering tag and an offset within it; a peer can blame nothing else, whatever it quotes.

use rpcrdma_fabric::Token;
use std::collections::VecDeque;

/// Writes that are remembered after they are done; the oldest is forgotten first. A peer that refuses a Write receives
/// nothing behind it, so all Writes behind it belong to calls that the peer had made before: 64 at a time by default,
/// of up to 8 segments each.
const MAX_REMEMBERED: usize = 512;

/// The destination of a refused segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The steering tag.
    pub stag: u32,
    /// The offset in that memory of the segment's first octet.
    pub offset: u64,
}

/// The destination of a Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) stag: u32,
    pub(crate) offset: u64,
    pub(crate) octets: u64,
}

impl Span {
    /// Whether a segment of this Write can have gone there. A Write without data has no such segment; no peer checks
    /// its destination.
    pub(crate) fn holds(&self, refused: Refused) -> bool {
        // The difference wraps, as the transmitter's offsets do.
        self.stag == refused.stag && refused.offset.wrapping_sub(self.offset) < self.octets
    }
}

struct Done {
    token: Token,
    span: Span,
    signaled: bool,
}

/// Writes that are done here and that the peer may still refuse.
#[derive(Default)]
pub(crate) struct DoneWrites {
    writes: VecDeque<Done>,
}

impl DoneWrites {
    /// Remembers a Write. `signaled`: its owner already has its completion.
    pub(crate) fn add(&mut self, token: Token, span: Span, signaled: bool) {
        if span.octets == 0 {
            return;
        }
        if self.writes.len() == MAX_REMEMBERED {
            self.writes.pop_front();
        }
        self.writes.push_back(Done { token, span, signaled });
    }

    /// The token of the Write that was refused, unless its owner already has its completion. If several match, the
    /// newest: older Writes to the same place must have been accepted, or the peer would have refused those.
    pub(crate) fn refused(&self, refused: Refused) -> Option<Token> {
        let named = self.writes.iter().rev().find(|done| done.span.holds(refused))?;
        (!named.signaled).then_some(named.token)
    }

    pub(crate) fn clear(&mut self) {
        self.writes = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(stag: u32, offset: u64) -> Refused {
        Refused { stag, offset }
    }

    #[test]
    fn a_write_is_named_by_its_tag_and_an_offset_within_it() {
        let span = Span { stag: 7, offset: 100, octets: 50 };
        for (refused, held) in [
            (at(7, 100), true),
            (at(7, 149), true),
            (at(7, 99), false),
            (at(7, 150), false),
            (at(7, 0), false),
            (at(7, u64::MAX), false),
            (at(8, 100), false),
        ] {
            assert_eq!(span.holds(refused), held, "{refused:?}");
        }
        let wraps = Span { stag: 7, offset: u64::MAX, octets: 2 };
        assert!(wraps.holds(at(7, u64::MAX)) && wraps.holds(at(7, 0)) && !wraps.holds(at(7, 1)));
        assert!(!Span { octets: 0, ..span }.holds(at(7, 100)));
    }

    #[test]
    fn the_newest_is_meant_and_who_was_told_is_not_told_again() {
        let mut done = DoneWrites::default();
        let span = Span { stag: 7, offset: 0, octets: 10 };
        assert_eq!(done.refused(at(7, 0)), None);
        done.add(Token(1), span, false);
        done.add(Token(2), span, false);
        done.add(Token(3), Span { stag: 8, ..span }, false);
        assert_eq!(done.refused(at(7, 9)), Some(Token(2)));
        done.add(Token(4), span, true);
        assert_eq!(done.refused(at(7, 9)), None, "it is neither of the older ones");
        done.clear();
        assert_eq!(done.refused(at(8, 0)), None);
    }

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let mut done = DoneWrites::default();
        for n in 0..MAX_REMEMBERED as u32 {
            done.add(Token(n.into()), Span { stag: n, offset: 0, octets: 1 }, false);
            done.add(Token(n.into()), Span { stag: n, offset: 0, octets: 0 }, false);
        }
        assert_eq!(done.refused(at(0, 0)), Some(Token(0)), "at the limit");
        done.add(Token(9), Span { stag: u32::MAX, offset: 0, octets: 1 }, false);
        assert_eq!(done.refused(at(0, 0)), None, "one past it");
        assert_eq!(done.refused(at(1, 0)), Some(Token(1)));
        assert_eq!(done.writes.len(), MAX_REMEMBERED);
    }
}
