//! How a reply travels: which data we write to the requester's chunks, and which goes inline (RFC 8166 sections 3.5,
//! 4.3.2 and 4.3.3).
//!
//! Owns shares of the reply's bytes. A reply that does not fit into what the requester offered is an error, found
//! before anything is written.

use bytes::Bytes;
use rpcrdma_env::Slices;
use rpcrdma_wire::chunk::{Lists, ReadList, Segment, WriteChunk, WriteList};
use rpcrdma_xdr::{Part, Payload, padding};
use smallvec::SmallVec;

/// What one Send and one Write can carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carrier {
    /// Bytes of a header in front of its lists.
    pub(crate) fixed: usize,
    /// Whether several messages can carry one reply.
    pub(crate) continues: bool,
    /// Bytes of header and inline stream in one Send.
    pub(crate) send_inline: usize,
    /// Slices in one Write.
    pub(crate) max_gather: usize,
    /// Bytes in one Write.
    pub(crate) max_transfer: usize,
}

/// A Write to the requester's memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) to: Segment,
    pub(crate) octets: Slices,
}

/// How a reply travels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AnswerPlan {
    /// The chunks that the header repeats.
    pub(crate) lists: Lists,
    /// The slices behind the header; `None` if the stream is in the Reply chunk.
    pub(crate) inline: Option<Slices>,
    /// The Writes that come before the Send.
    pub(crate) writes: SmallVec<[Write; 1]>,
    /// Bytes of all writes.
    pub(crate) placed: u64,
}

/// The reply does not fit the chunks that the requester offered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// A Write chunk is too small for its result.
    Write {
        /// The chunk, counted from 0.
        index: usize,
        /// Bytes of the result.
        needed: usize,
    },
    /// The remaining stream fits neither a Send nor the Reply chunk.
    Reply {
        /// The bytes of the remaining stream.
        needed: usize,
    },
    /// A chunk goes beyond the end of the address space.
    Chunk,
}

/// Pairs the k-th marked item with the k-th Write chunk, then chooses between a short and a long reply.
// V1-4.3.2-b, V1-3.5.3-f, V2-4.4.3-e, V1-4.3.2.1-b, IE-3.9-a
pub(crate) fn plan(
    offered: &WriteList,
    reply: Option<&WriteChunk>,
    payload: &Payload,
    carrier: &Carrier,
) -> Result<AnswerPlan, Misfit> {
    let mut writes = SmallVec::new();
    let mut placed = 0;
    // With room for the header (`gathered`). Most items are placed.
    let runs = payload.parts().iter().filter(|part| matches!(part, Part::Run(_))).count();
    let mut rest = Slices::with_capacity(runs + 1);
    let mut returned = SmallVec::with_capacity(offered.chunks().len());
    let mut chunks = offered.chunks().iter();
    for part in payload.parts() {
        match part {
            Part::Run(run) => rest.push(run.clone()),
            // ULB-5.1.2.1-c, ULB-5.1.2.1-g, ULB-5.1.2.1-i, V1-4.3.2.2-a, IE-3.7.1-a
            Part::Item(data) => match chunks.next() {
                // An empty chunk asks for its result inline; so does the end of the list.
                // V1-4.3.2.3-c, V1-4.3.2.3-b
                Some(chunk) if !chunk.segments().is_empty() => {
                    let octets = data.len() as u64;
                    let misfit = Misfit::Write { index: returned.len(), needed: data.len() };
                    // V1-3.4.6.2-c, V2-4.3.6.2-c, V1-3.4.6-d, V2-4.3.6-d, V2-4.3.6-e
                    returned.push(chunk.filled(octets).ok_or(misfit)?);
                    scatter(std::slice::from_ref(data), chunk, carrier, &mut writes)?;
                    placed += octets;
                }
                chunk => {
                    // IE-3.9-b, V1-4.3.2.3-c
                    // ULB-5.1.2.1-e
                    returned.extend(chunk.cloned());
                    push_padded(&mut rest, data);
                }
            },
        }
    }
    for chunk in chunks {
        // V1-4.3.2.2-c, V2-4.3.6-h
        // ULB-5.1.2.1-h
        // ULB-5.1.2.1-f
        returned.push(chunk.filled(0).ok_or(Misfit::Chunk)?);
    }
    let mut lists = Lists {
        reads: ReadList::default(),
        writes: WriteList(returned),
        // V1-4.3.3-c, V1-4.3.3-e, IE-3.6.1-c
        reply: reply.map(|chunk| chunk.filled(0).ok_or(Misfit::Chunk)).transpose()?,
    };
    let rest_bytes: usize = rest.iter().map(Bytes::len).sum();
    let header = carrier.fixed + lists.encoded_len();
    // V1-4.3.3-b, V2-6.4-c
    // V2-5.2.2-c
    if header + rest_bytes <= carrier.send_inline {
        return Ok(AnswerPlan { lists, inline: Some(rest), writes, placed });
    }
    // V1-3.5.3-g, V2-4.4.3-f, V2-4.4.3-i, V1-4.3.3-d
    let chunk = reply.filter(|_| header <= carrier.send_inline && rest_bytes > 0);
    let Some((chunk, filled)) = chunk.and_then(|chunk| Some((chunk, chunk.filled(rest_bytes as u64)?))) else {
        return match carrier.continues {
            // V2-6.4-d, ULB-3.2-e
            true => Ok(AnswerPlan { lists, inline: Some(rest), writes, placed }),
            // V2-7.3.5-a, V1-4.5.3-a
            false => Err(Misfit::Reply { needed: rest_bytes }),
        };
    };
    lists.reply = Some(filled);
    scatter(&rest, chunk, carrier, &mut writes)?;
    Ok(AnswerPlan { lists, inline: None, writes, placed: placed + rest_bytes as u64 })
}

// V1-3.5.3-h, V2-4.4.3-h, IE-3.8.1-c
fn push_padded(rest: &mut Slices, data: &Bytes) {
    if !data.is_empty() {
        rest.push(data.clone());
    }
    if padding(data.len()) > 0 {
        rest.push(Bytes::from_static(&[0; 3][..padding(data.len())]));
    }
}

/// Spreads `slices` over the segments of `chunk`, which are long enough, in as few Writes as the carrier allows.
// V1-3.4.6-c, V2-4.3.6-c, V1-3.4.6.2-b, V2-4.3.6.2-b, IE-3.8.1-a, V2-11.1.4-b
fn scatter(
    slices: &[Bytes],
    chunk: &WriteChunk,
    carrier: &Carrier,
    writes: &mut SmallVec<[Write; 1]>,
) -> Result<(), Misfit> {
    let mut slices = slices.iter().filter(|slice| !slice.is_empty()).cloned();
    let mut current = slices.next();
    for segment in chunk.segments() {
        let mut done = 0u32;
        while done < segment.length && current.is_some() {
            let offset = segment.offset.checked_add(done.into()).ok_or(Misfit::Chunk)?;
            let max = carrier.max_transfer.min((segment.length - done) as usize);
            let mut octets = Slices::new();
            let mut len = 0;
            while let Some(slice) = &mut current {
                let here = slice.len().min(max - len);
                if here == 0 || octets.len() == carrier.max_gather {
                    break;
                }
                octets.push(slice.split_to(here));
                len += here;
                if slice.is_empty() {
                    current = slices.next();
                }
            }
            let length = u32::try_from(len).map_err(|_| Misfit::Chunk)?;
            if length == 0 {
                return Err(Misfit::Chunk);
            }
            writes.push(Write { to: Segment { handle: segment.handle, length, offset }, octets });
            done += length;
        }
    }
    if current.is_some() { Err(Misfit::Chunk) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_wire::v1::FIXED_OCTETS;

    const CARRIER: Carrier =
        Carrier { fixed: FIXED_OCTETS, continues: false, send_inline: 1024, max_gather: 4, max_transfer: 1 << 20 };

    fn chunk(handle: u32, lengths: &[u32]) -> WriteChunk {
        WriteChunk(lengths.iter().map(|&length| Segment { handle, length, offset: 1000 }).collect())
    }

    fn reply(run: usize, items: &[usize]) -> Payload {
        let mut payload = Payload::from(Bytes::from(vec![1; run]));
        for &len in items {
            payload.push_item(Bytes::from(vec![2; len]));
            payload.push_run(Bytes::from(vec![3; 4]));
        }
        payload
    }

    fn lengths(chunk: &WriteChunk) -> Vec<u32> {
        chunk.segments().iter().map(|segment| segment.length).collect()
    }

    fn inline_bytes(plan: &AnswerPlan) -> Option<usize> {
        plan.inline.as_ref().map(|inline| inline.iter().map(Bytes::len).sum())
    }

    /// proves: V1-4.3.2-b, V1-4.3.2.1-b, V1-3.4.6-c, V1-3.4.6-d, V1-3.4.6.2-b, V1-3.4.6.2-c, V1-3.5.3-f, V1-4.3.1-b
    /// proves: IE-3.7.1-a, IE-3.8.1-a, IE-3.9-a
    #[test]
    fn results_go_to_their_chunks_in_order_and_without_padding() {
        let offered = WriteList(vec![chunk(1, &[100, 100]), chunk(2, &[50]), chunk(3, &[9])].into());
        let plan = plan(&offered, None, &reply(40, &[150, 49]), &CARRIER).unwrap();
        let written: Vec<_> = plan.writes.iter().map(|w| (w.to.handle, w.to.length, w.to.offset)).collect();
        assert_eq!(written, [(1, 100, 1000), (1, 50, 1000), (2, 49, 1000)]);
        assert_eq!(
            plan.lists.writes.chunks().iter().map(lengths).collect::<Vec<_>>(),
            [vec![100, 50], vec![49], vec![0]]
        );
        assert_eq!((inline_bytes(&plan), plan.placed), (Some(48), 199));
        assert!(plan.lists.reads.is_empty());
    }

    /// proves: V1-4.3.2.3-c, V1-4.3.2.2-c, V1-3.4.6-e
    #[test]
    fn an_empty_chunk_keeps_its_result_inline() {
        let offered = WriteList(vec![chunk(1, &[]), chunk(2, &[50]), chunk(3, &[50])].into());
        let plan = plan(&offered, None, &reply(40, &[10, 0, 50]), &CARRIER).unwrap();
        assert_eq!(plan.lists.writes.chunks().iter().map(lengths).collect::<Vec<_>>(), [vec![], vec![0], vec![50]]);
        assert_eq!(inline_bytes(&plan), Some(40 + 12 + 12), "the first with its padding");
    }

    /// proves: V1-3.5.3-g, V1-4.3.3-b, V1-4.3.3-c, V1-4.3.3-d, V1-4.3.3-e, V1-3.5.3-h, V1-4.3.2.3-d, IE-3.6.1-c
    /// proves: IE-3.8.1-c, IE-3.9-b
    #[test]
    fn the_reply_chunk_is_for_what_does_not_fit_inline() {
        let room = chunk(7, &[2000, 3000]);
        let short = plan(&WriteList::default(), Some(&room), &reply(1024 - 28 - 36, &[]), &CARRIER).unwrap();
        assert_eq!((inline_bytes(&short), lengths(short.lists.reply.as_ref().unwrap())), (Some(960), vec![0, 0]));
        let long = plan(&WriteList::default(), Some(&room), &reply(2048, &[5]), &CARRIER).unwrap();
        assert_eq!((inline_bytes(&long), lengths(long.lists.reply.as_ref().unwrap())), (None, vec![2000, 60]));
        assert_eq!(long.placed, 2060, "padding included");
        let full = plan(&WriteList::default(), Some(&room), &reply(5000, &[]), &CARRIER);
        assert!(full.is_ok());
        assert_eq!(
            plan(&WriteList::default(), Some(&room), &reply(5004, &[]), &CARRIER),
            Err(Misfit::Reply { needed: 5004 })
        );
        assert_eq!(plan(&WriteList::default(), None, &reply(1000, &[]), &CARRIER), Err(Misfit::Reply { needed: 1000 }));
    }

    /// proves: V1-3.4.6-d, V2-4.3.6-d
    #[test]
    fn each_segment_is_written_under_its_own_handle() {
        let segment = |handle, length, offset| Segment { handle, length, offset };
        let offered = WriteList(vec![WriteChunk(vec![segment(7, 100, 1000), segment(8, 50, 64)].into())].into());
        let room = WriteChunk(vec![segment(5, 1000, 0), segment(6, 1000, 9)].into());
        let plan = plan(&offered, Some(&room), &reply(1200, &[120]), &CARRIER).unwrap();
        let written: Vec<_> = plan.writes.iter().map(|w| (w.to.handle, w.to.length, w.to.offset)).collect();
        assert_eq!(written, [(7, 100, 1000), (8, 20, 64), (5, 1000, 0), (6, 204, 9)]);
    }

    /// If an arm of a union has no eligible item, nothing is marked: the chunk is used for the next item, and comes
    /// back unused if no item is left.
    /// proves: V1-4.3.2.2-a, V1-4.3.2.2-c
    #[test]
    fn a_chunk_that_was_not_needed_takes_the_next_item() {
        let offered = WriteList(vec![chunk(1, &[50, 50]), chunk(2, &[60])].into());
        let used = |items: &[usize]| {
            let plan = plan(&offered, None, &reply(40, items), &CARRIER).unwrap();
            let written: Vec<_> = plan.writes.iter().map(|w| (w.to.handle, w.to.length)).collect();
            (written, plan.lists.writes.chunks().iter().map(lengths).collect::<Vec<_>>())
        };
        assert_eq!(used(&[60]), (vec![(1, 50), (1, 10)], vec![vec![50, 10], vec![0]]));
        assert_eq!(used(&[]), (vec![], vec![vec![0, 0], vec![0]]));
    }

    /// proves: V1-4.5.3-a
    #[test]
    fn a_chunk_that_is_too_small_is_found_before_anything_is_written() {
        let offered = WriteList(vec![chunk(1, &[20, 29])].into());
        assert!(plan(&offered, None, &reply(40, &[49]), &CARRIER).is_ok());
        assert_eq!(plan(&offered, None, &reply(40, &[50]), &CARRIER), Err(Misfit::Write { index: 0, needed: 50 }));
    }

    #[test]
    fn writes_keep_within_the_carrier_and_within_the_address_space() {
        let carrier = Carrier { max_gather: 2, max_transfer: 64, ..CARRIER };
        let offered = WriteList(vec![chunk(1, &[100])].into());
        let cut = plan(&offered, None, &reply(40, &[100]), &carrier).unwrap();
        assert_eq!(cut.writes.iter().map(|w| (w.to.offset, w.to.length)).collect::<Vec<_>>(), [(1000, 64), (1064, 36)]);
        let mut many = Payload::new();
        for _ in 0..600 {
            many.push_run(Bytes::from_static(&[1; 4]));
        }
        let cut = plan(&WriteList::default(), Some(&chunk(1, &[4000])), &many, &carrier).unwrap();
        assert!(cut.writes.iter().all(|write| write.octets.len() <= 2));
        assert_eq!(cut.writes.iter().map(|write| write.to.length).sum::<u32>(), 2400);
        let end = WriteChunk(vec![Segment { handle: 1, length: 100, offset: u64::MAX - 10 }].into());
        assert_eq!(plan(&WriteList(vec![end].into()), None, &reply(40, &[100]), &carrier), Err(Misfit::Chunk));
    }
}
