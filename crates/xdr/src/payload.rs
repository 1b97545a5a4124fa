//! An XDR stream to send, in parts.
//!
//! It owns runs of inline bytes, and shares data items with their makers. It cannot fail.

use crate::{padded, padding};
use bytes::{Buf as _, Bytes};
use rpcrdma_env::few;
use smallvec::SmallVec;

/// A part of a [`Payload`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Inline octets, roundup padding included.
    Run(Bytes),
    /// The octets of one data item that may be placed directly, without the roundup padding that follows
    /// it in the stream. Its length word is the end of the run before it. May be empty: the mark counts.
    Item(Bytes),
}

impl Part {
    /// The octets that this part adds to the whole stream, padding included.
    pub fn stream_len(&self) -> usize {
        match self {
            Part::Run(run) => run.len(),
            Part::Item(data) => padded(data.len()),
        }
    }
}

/// An encoded XDR stream: runs of inline octets, and marked data items in their places.
#[derive(Debug, Default)]
pub struct Payload {
    parts: SmallVec<[Part; 2]>,
    len: usize,
}

impl Clone for Payload {
    fn clone(&self) -> Self {
        Self { parts: few(self.parts.iter().cloned()), len: self.len }
    }
}

static ZEROES: [u8; 3] = [0; 3];

impl Payload {
    /// An empty stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// The stream's length in octets with every item and its padding in place.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the stream has no octets. It may still have marks of empty items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The parts, in stream order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The parts by value, in stream order.
    pub fn into_parts(self) -> SmallVec<[Part; 2]> {
        self.parts
    }

    /// The marked items with their positions: the offset of an item's first octet in the whole stream.
    pub fn items(&self) -> impl Iterator<Item = (usize, &Bytes)> {
        let mut position = 0;
        self.parts.iter().filter_map(move |part| {
            let at = position;
            position += part.stream_len();
            match part {
                Part::Item(data) => Some((at, data)),
                Part::Run(_) => None,
            }
        })
    }

    /// The whole stream as shared slices, padding included, none of them empty. For transports without direct
    /// placement, and for streams that travel as one chunk.
    pub fn slices(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.parts
            .iter()
            .flat_map(|part| match part {
                Part::Run(run) => [run.clone(), Bytes::new()],
                Part::Item(data) => [data.clone(), Bytes::from_static(&ZEROES[..padding(data.len())])],
            })
            .filter(|slice| !slice.is_empty())
    }

    /// The whole stream in one piece. Copies, unless it is a single run.
    pub fn to_bytes(&self) -> Bytes {
        if let [Part::Run(run)] = &self.parts[..] {
            return run.clone();
        }
        let mut whole = Vec::with_capacity(self.len);
        for slice in self.slices() {
            whole.extend_from_slice(&slice);
        }
        whole.into()
    }

    /// Appends inline octets, shared. Their number should be a multiple of four, so that what follows
    /// stays aligned.
    pub fn push_run(&mut self, run: Bytes) {
        if !run.is_empty() {
            self.len += run.len();
            self.parts.push(Part::Run(run));
        }
    }

    /// Appends a marked item, shared. The length word is not part of it.
    pub fn push_item(&mut self, data: Bytes) {
        self.len += padded(data.len());
        self.parts.push(Part::Item(data));
    }

    /// Appends another stream, marks included.
    pub fn append(&mut self, tail: Payload) {
        self.len += tail.len;
        if self.parts.is_empty() {
            self.parts = tail.parts;
        } else {
            self.parts.extend(tail.parts);
        }
    }

    /// The stream without its first `octets` octets, which must all be inline.
    pub fn behind(self, octets: usize) -> Payload {
        let (mut rest, mut left) = (Payload::new(), octets);
        for part in self.parts {
            match part {
                Part::Run(mut run) => {
                    let passed = left.min(run.len());
                    run.advance(passed);
                    left -= passed;
                    rest.push_run(run);
                }
                Part::Item(data) => rest.push_item(data),
            }
        }
        rest
    }

    /// The same stream with no item marked, so that a transport places nothing directly. RPCSEC_GSS integrity and
    /// privacy need this (RFC 8166 section 8.2.2.3).
    pub fn without_placement(self) -> Payload {
        let mut plain = Payload::new();
        for slice in self.slices() {
            plain.push_run(slice);
        }
        plain
    }
}

impl From<Bytes> for Payload {
    fn from(run: Bytes) -> Self {
        let mut payload = Payload::new();
        payload.push_run(run);
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Payload {
        let mut payload = Payload::from(Bytes::from_static(b"head"));
        payload.push_item(Bytes::from_static(b"five5"));
        payload.push_item(Bytes::new());
        payload.push_run(Bytes::from_static(b"tail"));
        payload
    }

    /// proves: V1-2.2.4.2-a
    #[test]
    fn an_item_is_padded_only_in_the_stream() {
        let payload = sample();
        assert_eq!(payload.len(), 4 + 8 + 4);
        assert_eq!(&payload.to_bytes()[..], b"headfive5\0\0\0tail");
        let items: Vec<_> = payload.items().map(|(at, data)| (at, data.len())).collect();
        assert_eq!(items, [(4, 5), (12, 0)], "an empty item is marked too");
    }

    /// proves: V1-8.2.2.3-a
    #[test]
    fn without_placement_keeps_the_octets_and_drops_the_marks() {
        let plain = sample().without_placement();
        assert_eq!(plain.to_bytes(), sample().to_bytes());
        assert_eq!(plain.len(), sample().len());
        assert_eq!(plain.items().count(), 0);
    }

    #[test]
    fn what_stands_behind_the_first_octets_keeps_its_marks() {
        let mut whole = Payload::from(Bytes::from_static(b"rpchead."));
        whole.append(sample());
        for octets in [0, 4, 8, 12] {
            let rest = whole.clone().behind(octets);
            assert_eq!(rest.to_bytes(), whole.to_bytes().slice(octets..));
            assert_eq!(rest.len(), 24 - octets);
            assert_eq!(rest.items().map(|(at, _)| at).collect::<Vec<_>>(), [12 - octets, 20 - octets]);
        }
    }

    #[test]
    fn appending_shifts_positions() {
        let mut whole = Payload::from(Bytes::from_static(b"rpchead."));
        whole.append(sample());
        assert_eq!(whole.items().map(|(at, _)| at).collect::<Vec<_>>(), [12, 20]);
        assert_eq!(whole.len(), 24);
    }

    #[test]
    fn the_mark_of_an_empty_item_has_no_octets() {
        let mut payload = Payload::new();
        assert!(payload.is_empty());
        payload.push_item(Bytes::new());
        assert!(payload.is_empty());
        assert_eq!(payload.items().count(), 1);
        assert!(!sample().is_empty());
    }

    #[test]
    fn items_are_shared_not_copied() {
        let data = Bytes::from(vec![1; 100]);
        let mut payload = Payload::new();
        payload.push_item(data.clone());
        let slices: Vec<_> = payload.slices().collect();
        assert_eq!(slices[0].as_ptr(), data.as_ptr());
    }
}
