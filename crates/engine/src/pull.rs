//! The sources of the pieces of a received call (RFC 8166 sections 3.4.5 and 3.5.3).
//!
//! Turns the Read list into the segments to pull and the pieces of the stream in order. Owns shares of the received
//! message. A call above a limit is an error before anything is pulled.

use crate::{Limits, Piece, Pieces};
use bytes::Bytes;
use rpcrdma_env::few;
use rpcrdma_wire::chunk::{Lists, Segment};
use rpcrdma_xdr::UNIT;
use smallvec::SmallVec;

/// How to put a call together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The bytes to pull: all chunks in the order of their Positions.
    pub(crate) octets: usize,
    /// The segments to read.
    pub(crate) sources: SmallVec<[Segment; 1]>,
    /// The stream.
    pub(crate) pieces: Pieces,
    /// Whether the stream itself is pulled.
    pub(crate) long: bool,
}

impl Layout {
    /// The layout of a call that came as a whole.
    pub(crate) fn plain(stream: Bytes) -> Self {
        let pieces = (!stream.is_empty()).then_some(Piece::Inline(stream));
        Self { octets: 0, sources: SmallVec::new(), pieces: few(pieces), long: false }
    }
}

/// The call exceeds a named limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AboveLimit;

/// The layout of a call that was judged well-formed. `stream` is the inline stream behind the header; `long` says that
/// the stream itself is in the Position Zero chunk.
// V1-3.4.5-e, V2-4.3.5-f, V1-3.4.5.1-a, V2-4.3.5.1-a, IE-3.3.3-a
pub(crate) fn layout(lists: &Lists, stream: Bytes, long: bool, limits: &Limits) -> Result<Layout, AboveLimit> {
    if lists.is_empty() && !long {
        // Most calls are like this.
        return Ok(Layout::plain(stream));
    }
    if lists.segment_count() > limits.segments {
        return Err(AboveLimit);
    }
    let chunks = lists.reads.chunks();
    let total = chunks.iter().map(|chunk| chunk.len()).fold(0, u64::saturating_add);
    // V1-8.1.4-a, V2-11.1.4-a, V2-4.3.4-d
    if total > limits.call_bytes {
        return Err(AboveLimit);
    }
    // ULB-5.1.2.2-a
    let mut sources = SmallVec::with_capacity(lists.reads.segments().len());
    let mut pieces = Pieces::with_capacity(2 * chunks.len() + 1);
    let mut base = Base { stream: &stream, long, used: 0 };
    let mut base_bytes = stream.len();
    let mut in_chunks = 0usize;
    let mut pulled = 0usize;
    for chunk in chunks {
        let octets = usize::try_from(chunk.len()).map_err(|_| AboveLimit)?;
        let position = usize::try_from(chunk.position).map_err(|_| AboveLimit)?;
        // The limit above keeps the sum of all chunks far from overflow.
        let range = pulled..pulled + octets;
        pulled = range.end;
        if long && position == 0 {
            // Position zero sorts first, so the stream is at the beginning of the pulled bytes.
            base_bytes = octets;
        } else {
            pieces.extend(base.up_to(position.saturating_sub(in_chunks).min(base_bytes)));
            pieces.push(Piece::Item(range));
            // V2-4.3.5-g, V1-3.4.5.2-d, V2-4.3.5.2-c
            in_chunks = in_chunks.saturating_add(octets.next_multiple_of(UNIT));
        }
        sources.extend(chunk.segments.into_iter().filter(|segment| segment.length > 0));
    }
    pieces.extend(base.up_to(base_bytes));
    Ok(Layout { octets: pulled, sources, pieces, long })
}

/// The bytes of the stream that are in no chunk of their own.
struct Base<'a> {
    stream: &'a Bytes,
    long: bool,
    used: usize,
}

impl Base<'_> {
    /// The next piece, up to the byte `end`.
    fn up_to(&mut self, end: usize) -> Option<Piece> {
        let range = self.used..end.max(self.used);
        self.used = range.end;
        match (range.is_empty(), self.long) {
            (true, _) => None,
            (false, true) => Some(Piece::Run(range)),
            (false, false) => Some(Piece::Inline(self.stream.slice(range))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_wire::chunk::{ReadList, ReadSegment};

    fn lists(reads: &[(u32, u32)]) -> Lists {
        let entry = |&(position, length): &(u32, u32)| ReadSegment {
            position,
            segment: Segment { handle: 1, length, offset: 0 },
        };
        Lists { reads: ReadList(reads.iter().map(entry).collect()), ..Lists::default() }
    }

    fn pieces(reads: &[(u32, u32)], inline: usize, long: bool) -> Pieces {
        let stream = Bytes::from(vec![0; inline]);
        layout(&lists(reads), stream, long, &Limits::default()).unwrap().pieces
    }

    fn inline(len: usize) -> Piece {
        Piece::Inline(Bytes::from(vec![0; len]))
    }

    /// proves: V1-3.4.5-e, V1-3.4.5.1-a, V1-3.4.4-a
    #[test]
    fn chunks_are_laid_at_their_positions() {
        assert_eq!(pieces(&[], 40, false)[..], [inline(40)]);
        assert_eq!(pieces(&[(40, 5)], 40, false)[..], [inline(40), Piece::Item(0..5)]);
        assert_eq!(
            pieces(&[(24, 2), (8, 5), (24, 2), (20, 0)], 20, false)[..],
            [inline(8), Piece::Item(0..5), inline(4), Piece::Item(5..5), inline(4), Piece::Item(5..9), inline(4)]
        );
    }

    /// proves: V1-3.5.3-c, V1-4.2.4-c, IE-3.4-a, IE-3.5-a, IE-3.5.1-a, IE-3.6.1-a
    #[test]
    fn a_long_call_takes_its_stream_from_position_zero() {
        assert_eq!(
            pieces(&[(12, 3), (0, 20), (0, 4)], 0, true)[..],
            [Piece::Run(0..12), Piece::Item(24..27), Piece::Run(12..24)]
        );
    }

    /// proves: V1-8.1.4-a, V1-3.4.4-b
    #[test]
    fn limits_hold_at_the_limit_and_one_past_it() {
        let limits = Limits { segments: 2, call_bytes: 100, ..Limits::default() };
        let stream = Bytes::from(vec![0; 8]);
        assert!(layout(&lists(&[(8, 50), (60, 50)]), stream.clone(), false, &limits).is_ok());
        assert_eq!(layout(&lists(&[(8, 50), (60, 51)]), stream.clone(), false, &limits), Err(AboveLimit));
        assert_eq!(layout(&lists(&[(8, 1), (8, 1), (8, 1)]), stream.clone(), false, &limits), Err(AboveLimit));
        let huge = lists(&[(8, u32::MAX), (8, u32::MAX)]);
        assert_eq!(layout(&huge, stream.clone(), false, &limits), Err(AboveLimit));
    }
}
