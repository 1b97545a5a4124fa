//! How a call of version 1 travels: which data goes inline, which into chunks, and which chunks are offered for the
//! reply.
//!
//! Owns shares of the message's bytes. A call that fits no message is refused, with the length that did not fit.

use crate::{
    Call, CallRefused, Config, Link, Side,
    config::MAX_SEGMENTS_PER_MESSAGE,
    plan::{CallPlan, MIN_REDUCED_BESIDE_ZERO, join, largest_first, reduced, rest},
};
use rpcrdma_wire::v1::{NO_CHUNKS_OCTETS, ReadSegment, Segment};
use rpcrdma_xdr::{Payload, padded};
use smallvec::SmallVec;

/// Plans a call.
// V1-4.5.4-a, V1-6.2-a
pub(crate) fn plan(config: &Config, link: &Link, call: &Call) -> Result<CallPlan, CallRefused> {
    if goes_inline(link, call) {
        // The rest of this file would find the same.
        return Ok(CallPlan { inline: rest(&call.message, &[]), ..CallPlan::default() });
    }
    let Call { message, reply_max, items, .. } = call;
    let (writes, reply) = plan_reply(link, *reply_max, items);
    let mut plan = CallPlan { writes, reply, ..CallPlan::default() };
    plan_call(link, message, &mut plan);
    let header = header_bytes(&plan);
    // V1-7.1-b
    if config.side == Side::Server && header > NO_CHUNKS_OCTETS {
        let len = if plan.writes.is_empty() && plan.reply.is_none() { message.len() } else { *reply_max };
        return Err(CallRefused::TooLargeInline { len: len.saturating_add(NO_CHUNKS_OCTETS), max: link.send_inline });
    }
    if header > link.send_inline || segments(&plan) > MAX_SEGMENTS_PER_MESSAGE {
        return Err(CallRefused::HeaderTooLarge { len: header, max: link.send_inline });
    }
    match plan.longest_chunk() {
        len if len > config.max_transfer_bytes => {
            Err(CallRefused::ChunkTooLarge { len, max: config.max_transfer_bytes })
        }
        _ => Ok(plan),
    }
}

/// Whether a call needs no chunks, neither for itself nor for its reply.
// V1-4.3.2.3-a
pub(crate) fn goes_inline(link: &Link, call: &Call) -> bool {
    call.reply_max.saturating_add(NO_CHUNKS_OCTETS) <= link.receive_inline
        && call.message.len().saturating_add(NO_CHUNKS_OCTETS) <= link.send_inline
}

/// Offers nothing if the largest reply fits a Send; Write chunks if it has eligible results; and a Reply chunk if the
/// rest does not fit (RFC 8166 sections 4.3.2 and 4.3.3).
// V1-4.3.2-a, V1-4.3.2.1-a, V1-4.3.2.1-c, V1-3.4.6-b, V1-3.4.6.2-a, IE-3.8.1-b
// ULB-3.2-a, V1-4.3.2.2-b, ULB-5.1.2.1-b
fn plan_reply(link: &Link, reply_max: usize, items: &[usize]) -> (SmallVec<[usize; 2]>, Option<usize>) {
    if reply_max.saturating_add(NO_CHUNKS_OCTETS) <= link.receive_inline {
        // V1-4.3.2.3-a
        return (SmallVec::new(), None);
    }
    let reducible: usize = items.iter().map(|&len| padded(len)).fold(0, usize::saturating_add);
    let writes = if reducible > 0 { items.into() } else { SmallVec::new() };
    let reduced = reply_max.saturating_sub(if writes.is_empty() { 0 } else { reducible });
    let header = NO_CHUNKS_OCTETS + write_list_bytes(&writes);
    // V1-4.3.3-a, V1-3.5.3-d, IE-7.1.2-b, V1-4.3.2.3-d
    let reply = (header.saturating_add(reduced) > link.receive_inline).then_some(reduced);
    (writes, reply)
}

/// Moves the largest items to Read chunks until the rest fits a Send; if it never fits, moves the rest to a Position
/// Zero chunk.
// V1-3.5.1-a, V1-3.5.2-a, V1-3.5.3-a, IE-3.4-b, V1-4.2.4-f
fn plan_call(link: &Link, message: &Payload, plan: &mut CallPlan) {
    let base = header_bytes(plan);
    let mut by_size = largest_first(message);
    let mut total = base.saturating_add(message.len());
    let mut count = 0;
    while total > link.send_inline && count < by_size.len() {
        total = total.saturating_sub(padded(by_size[count].1.len())).saturating_add(ReadSegment::OCTETS);
        count += 1;
    }
    let fits = total <= link.send_inline;
    if !fits {
        count = by_size.iter().take_while(|(_, data)| data.len() >= MIN_REDUCED_BESIDE_ZERO).count();
    }
    by_size.truncate(count);
    let reduced = reduced(&by_size);
    let rest = rest(message, &reduced);
    if fits {
        plan.inline = rest;
    } else {
        // V1-3.5.3-c, V1-3.5.3-h, V1-6.1-b
        plan.zero = Some(join(&rest));
    }
    plan.reads = reduced;
}

/// Bytes of the chunks of a Write list, each with one segment or empty.
fn write_list_bytes(writes: &[usize]) -> usize {
    writes.iter().map(|&len| 8 + if len > 0 { Segment::OCTETS } else { 0 }).sum()
}

/// Bytes of the header that follows from a plan.
fn header_bytes(plan: &CallPlan) -> usize {
    let reads = plan.reads.len() + usize::from(plan.zero.is_some());
    NO_CHUNKS_OCTETS
        + reads * ReadSegment::OCTETS
        + write_list_bytes(&plan.writes)
        + if plan.reply.is_some() { 4 + Segment::OCTETS } else { 0 }
}

fn segments(plan: &CallPlan) -> usize {
    plan.reads.len()
        + usize::from(plan.zero.is_some())
        + plan.writes.iter().filter(|&&len| len > 0).count()
        + usize::from(plan.reply.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallId, plan::testing::message};
    use bytes::Bytes;

    fn link(send: usize, receive: usize) -> Link {
        Link { send_inline: send, receive_inline: receive, send_invalidates: false }
    }

    /// Plans a call whose reply has at most `reply_max` bytes, of which the eligible results have at most `items`.
    fn plan(
        config: &Config,
        link: &Link,
        message: &Payload,
        reply_max: usize,
        items: &[usize],
    ) -> Result<CallPlan, CallRefused> {
        super::plan(config, link, &Call::new(CallId(1), 1, message.clone()).with_reply(reply_max, items))
    }

    fn planned(send: usize, message: &Payload, reply_max: usize, items: &[usize]) -> CallPlan {
        plan(&Config::client(), &link(send, 1024), message, reply_max, items).unwrap()
    }

    fn inline_bytes(plan: &CallPlan) -> usize {
        plan.inline.iter().map(Bytes::len).sum()
    }

    /// proves: V1-3.5.1-a, V1-4.2.4-f
    #[test]
    fn what_fits_is_sent_whole() {
        let fits = planned(1024, &message(1024 - 28 - 60, &[60]), 100, &[]);
        assert_eq!((fits.reads.len(), fits.zero.is_some()), (1, false), "one unit too long: the item goes");
        let fits = planned(1024, &message(1024 - 28 - 8 - 4, &[5]), 100, &[]);
        assert_eq!((fits.reads.len(), inline_bytes(&fits)), (0, 1024 - 28), "padding is inline with its item");
    }

    /// proves: V1-3.5.2-a, V1-3.4.4.4-b, V1-3.4.5.2-a, V1-3.4.5.2-c, V1-4.3.1.1-a
    #[test]
    fn the_largest_items_are_reduced_first_and_only_as_many_as_needed() {
        let call = message(100, &[600, 2001, 200]);
        let plan = planned(1024, &call, 100, &[]);
        assert_eq!(plan.reads.iter().map(|r| (r.position, r.data.len())).collect::<Vec<_>>(), [(100 + 600 + 4, 2001)]);
        assert_eq!(inline_bytes(&plan), call.len() - 2004);
        let plan = planned(1024, &message(100, &[5000, 700, 900]), 100, &[]);
        assert_eq!(plan.reads.iter().map(|r| r.data.len()).collect::<Vec<_>>(), [5000, 900]);
    }

    /// proves: V1-3.5.3-a, V1-3.5.3-c, V1-3.5.3-h, V1-6.1-b, IE-3.4-b
    #[test]
    fn what_cannot_be_reduced_goes_to_position_zero() {
        let plan = planned(1024, &message(2000, &[4000, 10]), 100, &[]);
        assert_eq!(plan.reads.len(), 1, "large items stay on their own");
        assert_eq!(plan.zero.as_ref().map(Bytes::len), Some(2000 + 4 + 12 + 4));
        assert!(plan.inline.is_empty());
    }

    /// proves: V1-4.3.3-a, V1-4.3.2-a, V1-4.3.2.1-a, V1-6.2-a, V1-3.5.3-d, V1-4.3.2.3-a, V1-3.4.6-b, V1-4.3.2.1-c
    /// proves: V1-3.4.6.2-a, IE-3.8.1-b, IE-7.1.2-b, V1-4.3.2.3-d
    #[test]
    fn the_reply_gets_room_for_its_largest_form() {
        let call = message(40, &[]);
        let offered = |reply_max, items: &[usize]| {
            let plan = planned(4096, &call, reply_max, items);
            (plan.writes.into_vec(), plan.reply)
        };
        assert_eq!(offered(1024 - 28, &[500]), (vec![], None), "fits inline, item and all");
        assert_eq!(offered(1024 - 28 + 4, &[500]), (vec![500], None));
        assert_eq!(offered(1024 - 28 + 4, &[]), (vec![], Some(1000)), "one unit past the threshold");
        assert_eq!(offered(100_000 + 972, &[100_000]), (vec![100_000], None));
        assert_eq!(offered(100_000 + 976, &[100_000]), (vec![100_000], Some(976)));
        assert_eq!(offered(100_000, &[50_000, 0, 40_000]), (vec![50_000, 0, 40_000], Some(10_000)));
        assert_eq!(offered(100_000, &[49_998, 39_997]), (vec![49_998, 39_997], Some(10_000)), "no room for padding");
    }

    /// proves: V1-7.1-b
    #[test]
    fn the_reverse_direction_is_inline_only() {
        let link = link(1024, 1024);
        let fits = plan(&Config::server(), &link, &message(1024 - 28, &[]), 1024 - 28, &[]);
        assert!(fits.is_ok());
        let long = plan(&Config::server(), &link, &message(1024 - 24, &[]), 0, &[]);
        assert_eq!(long, Err(CallRefused::TooLargeInline { len: 1028, max: 1024 }));
        let long = plan(&Config::server(), &link, &message(40, &[]), 1024 - 24, &[]);
        assert!(matches!(long, Err(CallRefused::TooLargeInline { .. })));
    }

    #[test]
    fn a_header_and_a_chunk_have_limits() {
        let items = vec![9; 40];
        let many = plan(&Config::client(), &link(1024, 1024), &message(40, &[]), 2000, &items[..39]);
        assert!(many.is_ok(), "28 + 39 * 24 + 20 bytes, and 40 of the call");
        let many = plan(&Config::client(), &link(1024, 1024), &message(40, &[]), 2000, &items);
        assert!(matches!(many, Err(CallRefused::HeaderTooLarge { len: 1032, max: 1024 })), "{many:?}");
        let config = Config { max_transfer_bytes: 5000, ..Config::client() };
        assert!(plan(&config, &link(1024, 1024), &message(40, &[5000]), 0, &[]).is_ok());
        let long = plan(&config, &link(1024, 1024), &message(40, &[5001]), 0, &[]);
        assert_eq!(long, Err(CallRefused::ChunkTooLarge { len: 5001, max: 5000 }));
    }
}
