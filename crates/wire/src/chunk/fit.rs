//! Whether a receiver can put together what a header describes: the same checks in both versions.
//!
//! Owns nothing and cannot fail.

use super::Lists;
use rpcrdma_xdr::UNIT;

/// The octets of the Position Zero chunk, if the list has one that is not empty.
// V1-4.2.4-c, V2-6.3.2-h, IE-3.4-a
pub(crate) fn position_zero_len(lists: &Lists) -> Option<usize> {
    let zero = lists.reads.chunks().into_iter().find(|chunk| chunk.position == 0)?;
    usize::try_from(zero.len()).ok().filter(|&len| len > 0)
}

/// Whether the Read chunks fit into the stream: each Position is a multiple of four, not within the data of another
/// chunk, and not beyond the end of the stream. `inline` octets of the stream arrive outside these chunks: behind the
/// header, or in a Position Zero chunk.
// V2-4.3.5-h, V2-7.2.1-a, IE-3.5.1-a, V2-4.4.3-j
pub(crate) fn positions_fit(lists: &Lists, inline: usize) -> bool {
    let mut inline_before = 0;
    let mut in_chunks = 0u64;
    for chunk in lists.reads.chunks().iter().filter(|chunk| chunk.position != 0) {
        let position = u64::from(chunk.position);
        let Some(at) = position.checked_sub(in_chunks) else { return false };
        // V1-3.4.5-c, V2-4.3.5-c
        if !position.is_multiple_of(UNIT as u64) || at < inline_before || at > inline as u64 {
            return false;
        }
        inline_before = at;
        in_chunks = in_chunks.saturating_add(chunk.len().next_multiple_of(UNIT as u64));
    }
    true
}
