//! Messages in several parts, put together (draft section 6.2.2.2).
//!
//! Owns a copy of the parts' octets, so that a receive buffer is not held for a few octets of it, and never more than the
//! limit. There is one sequence at a time. A part that does not fit breaks the sequence; what follows of the broken one is
//! passed over up to its end.

use bytes::{Bytes, BytesMut};
use rpcrdma_wire::v2::{Place, Prefix};

/// The most parts of one message. The largest message that is put together fits into fewer at the smallest threshold; a
/// part without octets costs time and nothing else.
pub const MAX_PARTS: usize = 8192;

/// Octets of the beginning that the wire wants to see again.
const HEAD_OCTETS: usize = 8;

#[derive(Debug)]
struct Open {
    xid: u32,
    header_type: u32,
    response: bool,
    octets: BytesMut,
    parts: usize,
}

impl Open {
    fn has(&self, prefix: &Prefix) -> bool {
        (self.xid, self.header_type, self.response) == (prefix.xid, prefix.header_type, prefix.flags.response)
    }
}

#[derive(Debug)]
pub(crate) struct Reassembly {
    open: Option<Open>,
    /// The rest of a broken sequence: XID and flag.
    ignored: Option<(u32, bool)>,
    max_octets: usize,
}

/// What a part did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The payload is complete.
    Whole(Bytes),
    /// More is to come.
    Waits,
    /// The part does not continue what is under way.
    Broken,
    /// The payload, or the number of its parts, is above the limit.
    TooLong,
}

impl Reassembly {
    pub(crate) fn new(max_octets: usize) -> Self {
        Self { open: None, ignored: None, max_octets }
    }

    /// Whether a sequence is under way.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Where a message stands.
    pub(crate) fn place(&self, prefix: &Prefix) -> Place<'_> {
        match &self.open {
            Some(open) if open.has(prefix) => {
                let head = open.octets.get(..HEAD_OCTETS).unwrap_or(&open.octets);
                Place::Later { head, octets: open.octets.len() }
            }
            _ => Place::First,
        }
    }

    /// Whether a message belongs to the rest of a broken sequence.
    pub(crate) fn passes_over(&mut self, prefix: &Prefix) -> bool {
        let over = self.ignored == Some((prefix.xid, prefix.flags.response));
        if over && !prefix.flags.more {
            self.ignored = None;
        }
        over
    }

    /// A message that could be a part, with its payload.
    pub(crate) fn part(&mut self, prefix: &Prefix, payload: Bytes) -> Step {
        match &mut self.open {
            None if !prefix.flags.more => return Step::Whole(payload),
            None => {
                let Prefix { xid, header_type, .. } = *prefix;
                let response = prefix.flags.response;
                self.open = Some(Open { xid, header_type, response, octets: BytesMut::new(), parts: 0 });
            }
            Some(open) if open.has(prefix) => {}
            Some(_) => {
                self.breaks(prefix);
                return Step::Broken;
            }
        }
        let Some(mut open) = self.open.take() else { return Step::Broken };
        open.parts += 1;
        if open.parts > MAX_PARTS || open.octets.len().saturating_add(payload.len()) > self.max_octets {
            self.breaks(prefix);
            return Step::TooLong;
        }
        open.octets.extend_from_slice(&payload);
        if prefix.flags.more {
            self.open = Some(open);
            return Step::Waits;
        }
        Step::Whole(open.octets.freeze())
    }

    /// A message is dropped for what is wrong with it: what is held with its XID goes too, and so does what is to come.
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
        let mut parts = Reassembly::new(100);
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
        let mut parts = Reassembly::new(100);
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

    /// proves: V2-6.2.2.2-i
    #[test]
    fn octets_and_parts_have_limits() {
        let mut parts = Reassembly::new(100);
        let more = prefix(7, 0, false, true);
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
