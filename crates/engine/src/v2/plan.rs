//! How a call of version 2 travels (draft sections 4.4 and 6.4).
//!
//! As in version 1 the largest eligible items go into Read chunks until the rest fits a Send. If the rest is still too
//! long, it goes in several messages, which costs no registration, or into a Position Zero chunk if it would need many.
//! The reply gets Write chunks for eligible results, and a Reply chunk only if it would need many messages. Owns shares
//! of the message's bytes.

use crate::{
    Call, CallRefused, Link,
    plan::{CallPlan, MIN_REDUCED_BESIDE_ZERO, join, largest_first, reduced, rest},
};
use bytes::Bytes;
use rpcrdma_wire::v2::{NO_CHUNKS_OCTETS, ReadSegment, Segment};
use rpcrdma_xdr::{Payload, padded};
use smallvec::SmallVec;

/// What a call may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) link: Link,
    /// Whether it may have chunks.
    pub(crate) chunks: bool,
    /// Whether several messages may carry it in parts.
    pub(crate) continues: bool,
    /// The most parts of a call that the peer could also pull.
    pub(crate) call_parts: usize,
    /// The most parts of a reply that the peer could also place.
    pub(crate) reply_parts: usize,
    /// The most bytes in one segment.
    pub(crate) segment_bytes: u32,
    /// The most bytes in one chunk.
    pub(crate) chunk_bytes: usize,
    pub(crate) narrowed: Narrowed,
}

/// What a call may still use after refusals of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Narrowed {
    /// The most Read chunks.
    pub(crate) reads: usize,
    /// Whether there may be Write chunks.
    pub(crate) writes: bool,
    /// The most segments in the header.
    pub(crate) segments: usize,
    /// The bytes that the Reply chunk must have.
    pub(crate) reply: Option<usize>,
}

impl Default for Narrowed {
    fn default() -> Self {
        Self { reads: usize::MAX, writes: true, segments: usize::MAX, reply: None }
    }
}

/// Whether the call and its reply each fit a Send without chunks, so that nothing is left to plan: most calls are like
/// this.
pub(crate) fn goes_inline(link: Link, narrowed: Narrowed, call: &Call) -> bool {
    let fits = |octets: usize, inline| octets.saturating_add(NO_CHUNKS_OCTETS) <= inline;
    narrowed.reply.is_none() && fits(call.reply_max, link.receive_inline) && fits(call.message.len(), link.send_inline)
}

/// Plans a call.
// V2-5.2.4-a, V2-5.2.4-b, V2-7.4-a
pub(crate) fn plan(way: &Way, call: &Call) -> Result<CallPlan, CallRefused> {
    if goes_inline(way.link, way.narrowed, call) {
        // The rest of this file would find the same.
        return Ok(CallPlan { inline: rest(&call.message, &[]), ..CallPlan::default() });
    }
    let plan = with_chunks(way, call);
    let fits = plan.as_ref().is_ok_and(|plan| segments(plan, way) <= way.narrowed.segments);
    if fits || !way.chunks {
        return plan;
    }
    // The peer accepts few segments, or none: everything goes inline, if necessary in parts.
    let way = Way { chunks: false, ..*way };
    with_chunks(&way, call).or(plan)
}

// V2-4.4.1.1-a, V2-4.4.1.1-c, V2-4.3.5-e
fn with_chunks(way: &Way, call: &Call) -> Result<CallPlan, CallRefused> {
    let (message, reply_max) = (&call.message, call.reply_max);
    let way = Way { chunks: way.chunks && way.segment_bytes > 0 && way.narrowed.segments > 0, ..*way };
    let too_large = |len: usize, max| CallRefused::TooLargeInline { len: len.saturating_add(NO_CHUNKS_OCTETS), max };
    let (writes, reply) = plan_reply(&way, reply_max, &call.items);
    if !way.chunks && !way.continues && reply_max.saturating_add(NO_CHUNKS_OCTETS) > way.link.receive_inline {
        return Err(too_large(reply_max, way.link.receive_inline));
    }
    let mut plan = CallPlan { writes, reply, ..CallPlan::default() };
    if !plan_call(&way, message, &mut plan) {
        return Err(too_large(message.len(), way.link.send_inline));
    }
    let header = header_bytes(&plan, &way);
    if header.saturating_add(rpcrdma_xdr::UNIT) > way.link.send_inline {
        return Err(CallRefused::HeaderTooLarge { len: header, max: way.link.send_inline });
    }
    match plan.longest_chunk() {
        len if len > way.chunk_bytes => Err(CallRefused::ChunkTooLarge { len, max: way.chunk_bytes }),
        _ => Ok(plan),
    }
}

/// How many messages a payload needs, with the smallest header in each.
fn parts(octets: usize, inline: usize) -> usize {
    octets.div_ceil(inline.saturating_sub(NO_CHUNKS_OCTETS).max(1))
}

// V2-A.2-a, ULB-3.2-b, V2-4.3.6-b, V2-4.3.6.2-a, V2-4.4.3-c, V2-6.4-b
fn plan_reply(way: &Way, reply_max: usize, items: &[usize]) -> (SmallVec<[usize; 2]>, Option<usize>) {
    let inline = way.link.receive_inline;
    if let Some(octets) = way.narrowed.reply.filter(|_| way.chunks) {
        return (SmallVec::new(), Some(octets));
    }
    if reply_max.saturating_add(NO_CHUNKS_OCTETS) <= inline || !way.chunks {
        return (SmallVec::new(), None);
    }
    let reducible: usize = items.iter().map(|&len| padded(len)).fold(0, usize::saturating_add);
    let writes = if reducible > 0 && way.narrowed.writes { items.into() } else { SmallVec::new() };
    let reduced = reply_max.saturating_sub(if writes.is_empty() { 0 } else { reducible });
    let header = NO_CHUNKS_OCTETS + write_list_bytes(&writes, way);
    let long = header.saturating_add(reduced) > inline;
    let place = long && (!way.continues || parts(reduced, inline) > way.reply_parts);
    (writes, place.then_some(reduced))
}

/// Returns whether the message can be sent in some way.
// V2-4.4-a, V2-6.3.2-e, V2-4.4.2.1-a, V2-5.2.2-b
fn plan_call(way: &Way, message: &Payload, plan: &mut CallPlan) -> bool {
    let inline = way.link.send_inline;
    let mut total = header_bytes(plan, way).saturating_add(message.len());
    if total <= inline {
        plan.inline = rest(message, &[]);
        return true;
    }
    let mut by_size = largest_first(message);
    by_size.truncate(if way.chunks { way.narrowed.reads } else { 0 });
    let mut count = 0;
    while total > inline && count < by_size.len() {
        let len = by_size[count].1.len();
        total = total.saturating_sub(padded(len)).saturating_add(pieces(len, way) * ReadSegment::OCTETS);
        count += 1;
    }
    if total > inline {
        count = by_size.iter().take_while(|(_, data)| data.len() >= MIN_REDUCED_BESIDE_ZERO).count();
    }
    by_size.truncate(count);
    let reduced = reduced(&by_size);
    let slices = rest(message, &reduced);
    plan.reads = reduced;
    let octets: usize = slices.iter().map(Bytes::len).sum();
    // A Position Zero chunk is a Read chunk, too.
    let may_pull = way.chunks && plan.reads.len() < way.narrowed.reads;
    if total <= inline || (way.continues && (!may_pull || parts(octets, inline) <= way.call_parts)) {
        plan.inline = slices;
    } else if may_pull {
        // V2-4.4.3-b, V2-4.4.3-g, V2-4.4.3-h, V2-A.1-a
        plan.zero = Some(join(&slices));
    } else {
        return false;
    }
    true
}

/// The number of segments of a chunk.
// V2-4.3.4-a, V2-5.2.3-a
fn pieces(octets: usize, way: &Way) -> usize {
    octets.div_ceil(usize::try_from(way.segment_bytes).unwrap_or(usize::MAX).max(1))
}

fn write_list_bytes(writes: &[usize], way: &Way) -> usize {
    writes.iter().map(|&len| 8 + pieces(len, way) * Segment::OCTETS).sum()
}

fn header_bytes(plan: &CallPlan, way: &Way) -> usize {
    let reads = plan.reads.iter().map(|reduced| reduced.data.len()).chain(plan.zero.iter().map(Bytes::len));
    NO_CHUNKS_OCTETS
        + reads.map(|len| pieces(len, way) * ReadSegment::OCTETS).sum::<usize>()
        + write_list_bytes(&plan.writes, way)
        + plan.reply.map_or(0, |len| 4 + pieces(len, way) * Segment::OCTETS)
}

fn segments(plan: &CallPlan, way: &Way) -> usize {
    let reads = plan.reads.iter().map(|reduced| reduced.data.len()).chain(plan.zero.iter().map(Bytes::len));
    reads.chain(plan.writes.iter().copied()).chain(plan.reply).map(|len| pieces(len, way)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallId, plan::testing::message};

    const WAY: Way = Way {
        link: Link { send_inline: 1024, receive_inline: 1024, send_invalidates: false },
        chunks: true,
        continues: true,
        call_parts: 4,
        reply_parts: 4,
        segment_bytes: 1 << 20,
        chunk_bytes: 1 << 30,
        narrowed: Narrowed { reads: usize::MAX, writes: true, segments: 16, reply: None },
    };
    /// Bytes of payload beside the smallest header.
    const ROOM: usize = 1024 - NO_CHUNKS_OCTETS;

    /// Plans a call whose reply has at most `reply_max` bytes, of which the eligible results have at most `items`.
    fn plan(way: &Way, message: &Payload, reply_max: usize, items: &[usize]) -> Result<CallPlan, CallRefused> {
        super::plan(way, &Call::new(CallId(1), 1, message.clone()).with_reply(reply_max, items))
    }

    fn inline(plan: &CallPlan) -> usize {
        plan.inline.iter().map(Bytes::len).sum()
    }

    /// proves: V2-4.4-a, V2-4.4.1-a, V2-4.4.1.1-a, V2-6.3.2-e, V2-4.4.2.1-a, V2-4.4.3-j
    #[test]
    fn a_long_call_goes_in_parts_or_into_a_chunk() {
        let call = |run, items: &[usize]| plan(&WAY, &message(run, items), 100, &[]).unwrap();
        let short = call(ROOM, &[]);
        assert_eq!((inline(&short), short.reads.len(), short.zero.is_some()), (ROOM, 0, false));
        let continued = call(4 * ROOM, &[]);
        assert_eq!((inline(&continued), continued.zero.is_some()), (4 * ROOM, false));
        let special = call(4 * ROOM + 4, &[]);
        assert_eq!((inline(&special), special.zero.as_ref().map(Bytes::len)), (0, Some(4 * ROOM + 4)));
        let reduced = call(400, &[5000]);
        assert_eq!((inline(&reduced), reduced.reads.len()), (404, 1));
        let both = call(2000, &[5000, 8]);
        assert_eq!((inline(&both), both.reads.len()), (2000 + 4 + 12, 1), "continued, with a Read chunk");
        let all = call(9000, &[5000]);
        assert_eq!((all.zero.as_ref().map(Bytes::len), all.reads.len()), (Some(9004), 1));
    }

    /// proves: V2-A.2-a, V2-6.4-a, V2-6.4-b, V2-4.3.6-b, V2-4.3.6.2-a, V2-4.4.3-c, V2-5.2.2-b
    #[test]
    fn a_reply_chunk_is_offered_where_many_parts_would_be_needed() {
        let offered = |reply_max, items: &[usize]| {
            let plan = plan(&WAY, &message(40, &[]), reply_max, items).unwrap();
            (plan.writes.into_vec(), plan.reply)
        };
        assert_eq!(offered(ROOM, &[500]), (vec![], None));
        assert_eq!(offered(ROOM + 4, &[500]), (vec![500], None));
        assert_eq!(offered(4 * ROOM, &[]), (vec![], None), "in parts");
        assert_eq!(offered(4 * ROOM + 4, &[]), (vec![], Some(4 * ROOM + 4)));
        assert_eq!(offered(100_001 + 3 + 4 * ROOM, &[100_001]), (vec![100_001], None));
        assert_eq!(offered(100_001 + 3 + 4 * ROOM + 4, &[100_001]), (vec![100_001], Some(4 * ROOM + 4)));
    }

    /// An item is reduced exactly if the message would not fit beside the chunks for its reply.
    /// proves: V2-4.4-a
    #[test]
    fn chunks_for_the_reply_leave_less_room_for_the_call() {
        let segment = Segment::OCTETS;
        for (reply_max, items, header) in
            [(ROOM, &[][..], 0), (ROOM + 4, &[500], 8 + segment), (4 * ROOM + 4, &[], 4 + segment)]
        {
            for (more, reads) in [(0, 0), (4, 1)] {
                let call = message(ROOM - header - 104 + more, &[100]);
                assert_eq!(plan(&WAY, &call, reply_max, items).unwrap().reads.len(), reads, "{reply_max} {items:?}");
            }
        }
    }

    /// proves: V2-5.2.4-b, V2-5.2.4-a, V2-5.2.3-a
    #[test]
    fn segments_keep_within_what_the_peer_takes() {
        let way = Way { segment_bytes: 1000, narrowed: Narrowed { segments: 4, ..WAY.narrowed }, ..WAY };
        let four = plan(&way, &message(40, &[2001]), 1500, &[1000]).unwrap();
        assert_eq!((segments(&four, &way), four.reads.len(), &four.writes[..]), (4, 1, &[1000][..]));
        let five = plan(&way, &message(40, &[3001]), 1500, &[1000]).unwrap();
        assert_eq!((segments(&five, &way), inline(&five)), (0, 40 + 3004 + 4), "all inline");
        for none in [Way { segment_bytes: 0, ..way }, Way { narrowed: Narrowed { segments: 0, ..way.narrowed }, ..way }]
        {
            let plan = plan(&none, &message(40, &[70_000]), 70_000, &[60_000]).unwrap();
            assert_eq!((segments(&plan, &none), inline(&plan), plan.reply), (0, 70_044, None));
        }
    }

    /// proves: V2-4.5.4-c, V2-5.2.5-b
    #[test]
    fn without_chunks_or_parts_there_are_limits() {
        let simple = Way { chunks: false, continues: false, ..WAY };
        assert!(plan(&simple, &message(ROOM, &[]), ROOM, &[]).is_ok());
        let long = plan(&simple, &message(ROOM + 4, &[]), 0, &[]);
        assert_eq!(long, Err(CallRefused::TooLargeInline { len: 1028, max: 1024 }));
        let long = plan(&simple, &message(40, &[]), ROOM + 4, &[500]);
        assert_eq!(long, Err(CallRefused::TooLargeInline { len: 1028, max: 1024 }));
        let continued = Way { chunks: false, ..WAY };
        let plan = plan(&continued, &message(9000, &[5000]), 90_000, &[80_000]).unwrap();
        assert_eq!((inline(&plan), plan.reads.len(), plan.writes.len(), plan.reply), (14_004, 0, 0, None));
    }

    /// proves: V2-7.3.1-d, V2-7.3.2-b, V2-7.3.3-b, V2-6.4-f
    #[test]
    fn a_refused_call_is_planned_again_within_what_is_left() {
        let again = |narrowed, reply_max, items: &[usize]| {
            plan(&Way { narrowed, ..WAY }, &message(40, &[5000, 2000]), reply_max, items).unwrap()
        };
        let one = again(Narrowed { reads: 1, ..WAY.narrowed }, 100, &[]);
        assert_eq!((one.reads.len(), one.zero.is_some(), inline(&one)), (1, false, 40 + 8 + 2000));
        let none = again(Narrowed { reads: 0, ..WAY.narrowed }, 100, &[]);
        assert_eq!((none.reads.len(), none.zero.is_some(), inline(&none)), (0, false, 7048));
        let no_writes = again(Narrowed { writes: false, ..WAY.narrowed }, 60_000, &[50_000]);
        assert_eq!((no_writes.writes.len(), no_writes.reply), (0, Some(60_000)));
        let larger = again(Narrowed { reply: Some(9000), ..WAY.narrowed }, 100, &[]);
        assert_eq!((larger.writes.len(), larger.reply), (0, Some(9000)));
    }

    #[test]
    fn a_chunk_has_a_limit() {
        let way = Way { chunk_bytes: 5000, ..WAY };
        assert!(plan(&way, &message(40, &[5000]), 0, &[]).is_ok());
        // The item is longer than a chunk can be, so it goes in parts.
        let long = plan(&way, &message(40, &[5004]), 0, &[]).unwrap();
        assert_eq!((long.reads.len(), inline(&long)), (0, 40 + 5004 + 4));
    }
}
