//! How a call travels, in either version: which items go into chunks, and which bytes of the stream remain.
//!
//! Owns shares of the message's bytes. Each version has its own rules for the choice: `v1/plan.rs`, `v2/plan.rs`.

use bytes::Bytes;
use rpcrdma_env::{Scratch, Slices, few};
use rpcrdma_xdr::{Part, Payload, padding};
use smallvec::{SmallVec, smallvec};

/// An item shorter than this is copied into a Position Zero chunk rather than exposed on its own, in bytes. An
/// exposure and an RDMA Read cost more than the copy.
pub(crate) const MIN_REDUCED_BESIDE_ZERO: usize = 1024;

/// An item to be moved to a Read chunk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reduced {
    pub(crate) position: u32,
    pub(crate) data: Bytes,
}

/// How a call travels.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CallPlan {
    /// Items in Read chunks, in stream order.
    pub(crate) reads: SmallVec<[Reduced; 1]>,
    /// The rest of the stream, if it does not fit the Send.
    pub(crate) zero: Option<Bytes>,
    /// The rest of the stream, if it fits the Send.
    pub(crate) inline: Slices,
    /// Bytes of the Write chunk of each eligible result; empty if all results come inline.
    pub(crate) writes: SmallVec<[usize; 2]>,
    /// Bytes of the Reply chunk.
    pub(crate) reply: Option<usize>,
}

impl CallPlan {
    /// Whether memory has to be exposed for the call.
    pub(crate) fn has_chunks(&self) -> bool {
        !self.reads.is_empty() || self.zero.is_some() || !self.writes.is_empty() || self.reply.is_some()
    }

    /// Bytes of the longest chunk.
    pub(crate) fn longest_chunk(&self) -> usize {
        let reads = self.reads.iter().map(|reduced| reduced.data.len());
        let zero = self.zero.iter().map(Bytes::len);
        reads.chain(zero).chain(self.writes.iter().copied()).chain(self.reply).max().unwrap_or(0)
    }
}

/// The eligible items of a message and their places, the largest first.
// V1-6.1-a, V2-4.3.2-b, V1-3.4.2-b, V2-4.3.2-a
pub(crate) fn largest_first(message: &Payload) -> SmallVec<[(usize, &Bytes); 2]> {
    let mut by_size: SmallVec<[(usize, &Bytes); 2]> = few(message.items().filter(|(_, data)| !data.is_empty()));
    by_size.sort_by_key(|(position, data)| (usize::MAX - data.len(), *position));
    by_size
}

/// Makes Read chunks of these items, in stream order.
// V1-3.4.5-b, V2-4.3.5-b, V2-4.3.5-g, V1-4.3.1.1-a, V1-3.4.4.4-a, V2-4.3.4.4-a, V1-3.4.5.2-a, V1-3.4.5.2-c,
// V2-4.3.5.2-a, V2-4.3.5.2-b
// ULB-5.1.2.1-a
pub(crate) fn reduced(items: &[(usize, &Bytes)]) -> SmallVec<[Reduced; 1]> {
    let reduced = |(position, data): &(usize, &Bytes)| {
        Some(Reduced { position: u32::try_from(*position).ok()?, data: Bytes::clone(data) })
    };
    let mut reduced: SmallVec<[Reduced; 1]> = few(items.iter().filter_map(reduced));
    reduced.sort_by_key(|reduced| reduced.position);
    reduced
}

/// A number of chunks, for observers. A header has room for far fewer than 2^32.
pub(crate) fn chunk_count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The whole stream.
// V1-3.5.3-h, V2-4.4.3-h, IE-3.8.1-c
pub(crate) fn whole(message: Payload) -> Slices {
    let mut parts = message.into_parts();
    if let [Part::Run(_)] = parts[..]
        && let Some(Part::Run(run)) = parts.pop()
    {
        // Most messages are like this.
        return few([run]);
    }
    // With room for the header, unless it is joined with the first of two (`gathered`).
    let mut out = Slices::with_capacity(if parts.len() > 2 { parts.len() + 1 } else { parts.len() });
    for part in parts {
        match part {
            Part::Run(run) => out.push(run),
            Part::Item(data) => {
                let pad = padding(data.len());
                out.extend(Some(data).filter(|data| !data.is_empty()));
                out.extend((pad > 0).then(|| Bytes::from_static(&[0; 3][..pad])));
            }
        }
    }
    out
}

/// The stream without the reduced items and their padding.
// V1-3.4.1-a, V2-4.3.1-a, V1-3.4.4.4-b, V2-4.3.4.4-b, V2-4.3.4.4-c, IE-3.7-a, IE-3.7.1-b
pub(crate) fn rest(message: &Payload, reduced: &[Reduced]) -> Slices {
    // With room for the header (`gathered`).
    let mut out = Slices::with_capacity((message.parts().len() + 1).saturating_sub(reduced.len()));
    let mut position = 0;
    let mut gone = reduced.iter().map(|reduced| reduced.position as usize).peekable();
    for part in message.parts() {
        match part {
            Part::Run(run) => out.push(run.clone()),
            // An empty item has no bytes, so the item that is reduced at this position is the one behind it.
            Part::Item(data) if data.is_empty() => {}
            Part::Item(_) if gone.peek() == Some(&position) => {
                gone.next();
            }
            Part::Item(data) => {
                out.push(data.clone());
                if padding(data.len()) > 0 {
                    out.push(Bytes::from_static(&[0; 3][..padding(data.len())]));
                }
            }
        }
        position += part.stream_len();
    }
    out
}

/// The slices in one piece, without a copy if there is only one.
pub(crate) fn join(slices: &[Bytes]) -> Bytes {
    if let [one] = slices {
        return one.clone();
    }
    let mut whole = Vec::with_capacity(slices.iter().map(Bytes::len).sum());
    for slice in slices {
        whole.extend_from_slice(slice);
    }
    whole.into()
}

/// The longest beginning of a stream that is copied behind its header: what stands before the data of a READ or WRITE.
const JOINED_OCTETS: usize = 512;

/// Header and slices as one Send of at most `max` slices.
// V1-4.2.4-f
// V1-3.2-b
pub(crate) fn gathered(header: Bytes, mut inline: Slices, max: usize, scratch: &mut Scratch) -> Slices {
    if inline.len() >= max {
        return smallvec![header, join(&inline)];
    }
    // A page in one Send: header, beginning, data. A third slice would need memory for the list.
    if inline.len() == 2
        && let Some(begin) = inline.first_mut().filter(|begin| begin.len() <= JOINED_OCTETS)
    {
        let joined = scratch.write(header.len() + begin.len(), |out| {
            out.extend_from_slice(&header);
            out.extend_from_slice(begin);
        });
        *begin = joined;
        return inline;
    }
    inline.insert(0, header);
    inline
}

/// Shared by the tests of both versions' plans.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A message that begins with `run` bytes, followed by items of these lengths, each with four bytes behind it.
    pub(crate) fn message(run: usize, items: &[usize]) -> Payload {
        let mut payload = Payload::from(Bytes::from(vec![1; run]));
        for &len in items {
            payload.push_item(Bytes::from(vec![2; len]));
            payload.push_run(Bytes::from(vec![3; 4]));
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_stream_has_its_items_and_their_padding() {
        let message = testing::message(8, &[0, 4, 5]);
        let joined = |slices: Slices| join(&slices);
        assert_eq!(joined(whole(message.clone())), message.to_bytes());
        assert_eq!(whole(message.clone()), rest(&message, &[]), "as if nothing is reduced");
        assert_eq!(whole(Payload::new()).len(), 0);
    }

    #[test]
    fn a_send_has_at_most_so_many_slices_and_copies_only_beyond() {
        let whole = Bytes::from((0..40).collect::<Vec<u8>>());
        let slices: Vec<Bytes> = whole.chunks(10).map(|slice| whole.slice_ref(slice)).collect();
        let send =
            |count: usize| gathered(Bytes::from_static(b"header"), slices[..count].into(), 4, &mut Scratch::default());
        for count in [0, 1, 3] {
            let octets = send(count);
            assert_eq!(octets.len(), 1 + count);
            assert!(octets[1..].iter().zip(&slices).all(|(sent, slice)| sent.as_ptr() == slice.as_ptr()), "{count}");
        }
        let octets = send(4);
        assert_eq!(octets[..], [Bytes::from_static(b"header"), whole.clone()], "one past the limit");
    }

    #[test]
    fn a_short_beginning_of_two_slices_stands_behind_its_header() {
        let data = Bytes::from(vec![2; 4096]);
        let send = |begin: usize| {
            let inline = Slices::from_iter([Bytes::from(vec![1; begin]), data.clone()]);
            gathered(Bytes::from_static(b"header"), inline, 4, &mut Scratch::default())
        };
        for (begin, slices) in [(0, 2), (JOINED_OCTETS, 2), (JOINED_OCTETS + 1, 3)] {
            let octets = send(begin);
            assert_eq!((octets.len(), octets.spilled()), (slices, slices > 2));
            assert_eq!(octets.last().unwrap().as_ptr(), data.as_ptr(), "the data stay where they are");
            assert_eq!(join(&octets), [b"header", &vec![1; begin][..], &data].concat());
        }
    }
}
