//! Joins messages that come in several parts (draft section 6.2.2.2).
//!
//! Owns the parts' bytes, never more than the limit, until the last has come, and then joins them with one copy into
//! memory of exactly their size. A part that fills less than half of its receive is copied at once, so that a few bytes
//! do not hold a receive buffer. Only one sequence is under way at a time. A part that does not fit breaks the
//! sequence; the rest of a broken sequence is ignored up to its end.

use crate::plan::join;
use bytes::Bytes;
use rpcrdma_wire::v2::{Place, Prefix};

/// The most parts of one message. The largest message that we join needs fewer parts even at the smallest threshold;
/// parts without bytes cost only time.
// V2-6.2.2.2-i
pub const MAX_PARTS: usize = 8192;

/// Bytes of the message's beginning that the wire's judgement needs again with each part.
const HEAD_OCTETS: usize = 8;

#[derive(Debug)]
struct Open {
    xid: u32,
    header_type: u32,
    response: bool,
    /// The first bytes of the payload, at most [`HEAD_OCTETS`].
    head: Vec<u8>,
    /// The payload of each part.
    parts: Vec<Bytes>,
    /// Bytes of all parts.
    octets: usize,
}

impl Open {
    // V2-6.2.2.2-b, V2-6.2.2.2-m
    fn has(&self, prefix: &Prefix) -> bool {
        (self.xid, self.header_type, self.response) == (prefix.xid, prefix.header_type, prefix.flags.response)
    }
}

#[derive(Debug)]
pub(crate) struct Reassembly {
    open: Option<Open>,
    /// The broken sequence whose rest is ignored: XID and flag.
    ignored: Option<(u32, bool)>,
    max_bytes: usize,
    /// A part of at least so many bytes keeps its receive.
    held_bytes: usize,
}

/// The effect of a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The payload is complete.
    Whole(Bytes),
    /// More parts must come.
    Waits,
    /// The part does not continue the sequence under way.
    Broken,
    /// The payload, or the number of its parts, exceeds the limit.
    TooLong,
}

impl Reassembly {
    /// Joins payloads of at most `max_bytes` that come in receives of `receive_bytes`.
    pub(crate) fn new(max_bytes: usize, receive_bytes: usize) -> Self {
        Self { open: None, ignored: None, max_bytes, held_bytes: receive_bytes / 2 }
    }

    /// Whether a sequence is under way.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The place of a message in the sequence under way.
    pub(crate) fn place(&self, prefix: &Prefix) -> Place<'_> {
        match &self.open {
            Some(open) if open.has(prefix) => Place::Later { head: &open.head, octets: open.octets },
            _ => Place::First,
        }
    }

    /// Whether a message belongs to the rest of a broken sequence, which is ignored.
    // V2-7.1.3-b, V2-6.2.2.2-l
    pub(crate) fn passes_over(&mut self, prefix: &Prefix) -> bool {
        let over = self.ignored == Some((prefix.xid, prefix.flags.response));
        // V2-7.4.1-b
        if over && !prefix.flags.more {
            self.ignored = None;
        }
        over
    }

    /// Handles a message that could be a part, with its payload.
    // V2-6.2.2.2-a, V2-4.4.2-b, V2-4.1-d
    pub(crate) fn part(&mut self, prefix: &Prefix, payload: Bytes) -> Step {
        match &mut self.open {
            None if !prefix.flags.more => return Step::Whole(payload),
            None => {
                let Prefix { xid, header_type, .. } = *prefix;
                let response = prefix.flags.response;
                self.open = Some(Open { xid, header_type, response, head: Vec::new(), parts: Vec::new(), octets: 0 });
            }
            Some(open) if open.has(prefix) => {}
            Some(_) => {
                self.breaks(prefix);
                return Step::Broken;
            }
        }
        let Some(mut open) = self.open.take() else { return Step::Broken };
        let octets = open.octets.saturating_add(payload.len());
        if open.parts.len() == MAX_PARTS || octets > self.max_bytes {
            self.breaks(prefix);
            return Step::TooLong;
        }
        let missing = HEAD_OCTETS.saturating_sub(open.head.len()).min(payload.len());
        open.head.extend_from_slice(&payload[..missing]);
        open.octets = octets;
        let is_held = payload.len() >= self.held_bytes || !prefix.flags.more;
        open.parts.push(if is_held { payload } else { Bytes::copy_from_slice(&payload) });
        if prefix.flags.more {
            self.open = Some(open);
            return Step::Waits;
        }
        Step::Whole(join(&open.parts))
    }

    /// A message was dropped because it is wrong: a sequence under way with its XID is dropped, too, and its rest
    /// ignored.
    // V2-6.2.2.2-l
    pub(crate) fn breaks(&mut self, prefix: &Prefix) {
        if self.open.as_ref().is_some_and(|open| open.xid == prefix.xid) {
            self.open = None;
        }
        if prefix.flags.more {
            self.ignored = Some((prefix.xid, prefix.flags.response));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_wire::v2::{Credits, Flags};

    fn prefix(xid: u32, header_type: u32, response: bool, more: bool) -> Prefix {
        let flags = Flags { response, more, tpmore: false };
        Prefix { xid, version: 2, credits: Credits::default(), header_type, flags }
    }

    fn octets(len: usize) -> Bytes {
        Bytes::from(vec![1; len])
    }

    /// proves: V2-6.2.2.2-a, V2-4.4.2-b
    #[test]
    fn parts_are_joined_in_their_order() {
        let mut parts = Reassembly::new(100, 64);
        assert_eq!(parts.part(&prefix(7, 0, false, true), Bytes::from_static(b"ab")), Step::Waits);
        assert_eq!(parts.part(&prefix(7, 0, false, true), Bytes::new()), Step::Waits);
        assert_eq!(parts.place(&prefix(7, 0, false, false)), Place::Later { head: b"ab", octets: 2 });
        let whole = parts.part(&prefix(7, 0, false, false), Bytes::from_static(b"cd"));
        assert_eq!(whole, Step::Whole(Bytes::from_static(b"abcd")));
        assert!(!parts.is_open());
    }

    /// proves: V2-6.2.2.2-b, V2-6.2.2.2-l, V2-6.2.2.2-m, V2-7.1.3-b
    #[test]
    fn what_differs_breaks_and_a_sequence_with_another_xid_goes_on() {
        let mut parts = Reassembly::new(100, 64);
        assert_eq!(parts.part(&prefix(7, 0, false, true), octets(4)), Step::Waits);
        assert_eq!(parts.part(&prefix(8, 0, false, true), octets(4)), Step::Broken);
        assert!(parts.passes_over(&prefix(8, 0, false, true)));
        assert!(parts.passes_over(&prefix(8, 0, false, false)));
        assert!(!parts.passes_over(&prefix(8, 0, false, false)), "up to its end");
        assert!(matches!(parts.part(&prefix(7, 0, false, false), octets(4)), Step::Whole(_)));
        for other in [prefix(7, 5, false, true), prefix(7, 0, true, true)] {
            assert_eq!(parts.part(&prefix(7, 0, false, true), octets(4)), Step::Waits);
            assert_eq!(parts.part(&other, octets(4)), Step::Broken);
            assert!(!parts.is_open(), "the same XID: what is held goes");
            assert!(parts.passes_over(&Prefix { flags: Flags { more: false, ..other.flags }, ..other }));
        }
    }

    /// A receive is free again at once unless its part fills at least half of it.
    #[test]
    fn receives_are_not_held_for_a_few_octets() {
        let mut parts = Reassembly::new(1000, 64);
        let (few, half) = (octets(28), octets(32));
        assert_eq!(parts.part(&prefix(7, 0, false, true), few.clone()), Step::Waits);
        assert_eq!(parts.part(&prefix(7, 0, false, true), half.clone()), Step::Waits);
        assert!(few.is_unique() && !half.is_unique());
        assert_eq!(parts.part(&prefix(7, 0, false, false), octets(4)), Step::Whole(octets(64)));
        assert!(half.is_unique());
    }

    /// Each part's judgement gets the first bytes of the whole message, wherever the parts were cut.
    #[test]
    fn the_head_is_that_of_the_whole() {
        let mut parts = Reassembly::new(1000, 64);
        let mut seen = 0;
        for chunk in b"abcdefghijkl".chunks(4) {
            assert_eq!(parts.part(&prefix(7, 0, false, true), Bytes::copy_from_slice(chunk)), Step::Waits);
            seen += chunk.len();
            let head = &b"abcdefgh"[..seen.min(HEAD_OCTETS)];
            assert_eq!(parts.place(&prefix(7, 0, false, true)), Place::Later { head, octets: seen });
        }
    }

    /// proves: V2-6.2.2.2-i
    #[test]
    fn octets_and_parts_have_limits() {
        let mut parts = Reassembly::new(100, 64);
        let more = prefix(7, 0, false, true);
        assert_eq!(parts.part(&prefix(7, 0, false, false), octets(101)), Step::Whole(octets(101)), "in one part");
        assert_eq!(parts.part(&more, octets(96)), Step::Waits);
        assert!(matches!(parts.part(&prefix(7, 0, false, false), octets(4)), Step::Whole(_)), "exactly the limit");
        assert_eq!(parts.part(&more, octets(96)), Step::Waits);
        assert_eq!(parts.part(&more, octets(5)), Step::TooLong);
        assert!(parts.passes_over(&more) && !parts.is_open());
        assert!(parts.passes_over(&prefix(7, 0, false, false)));
        for _ in 0..MAX_PARTS {
            assert_eq!(parts.part(&more, Bytes::new()), Step::Waits);
        }
        assert_eq!(parts.part(&more, Bytes::new()), Step::TooLong);
    }
}
