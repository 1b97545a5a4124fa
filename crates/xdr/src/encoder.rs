//! Appends values to a [`Payload`].
//!
//! Small values are copied into the current run; items and large shared octets become parts of their own. Encoding
//! returns no error: data that is too long for XDR is a mistake of the program and panics.

use crate::{Encode, Part, Payload, padding};
use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_env::Scratch;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Shared octets up to this number are copied into the current run, which costs less than a part of their own.
const COPY_LIMIT_OCTETS: usize = 256;

/// The first memory of a run whose size is not known in advance: enough for a usual reply without an item.
const FIRST_RUN_OCTETS: usize = 192;

/// Memory for short streams, such as those of a connection, so that not each of them costs an allocation. Clones share
/// it. A stream that lives long keeps its neighbours' memory, too: give it memory of its own.
#[derive(Clone, Debug, Default)]
pub struct SharedScratch(Arc<Mutex<Scratch>>);

impl SharedScratch {
    /// An empty stream with room for `octets` inline octets.
    pub fn encoder(&self, octets: usize) -> Encoder {
        let run = self.scratch().lend(octets);
        Encoder { done: Payload::new(), run, home: Some(self.clone()) }
    }

    /// The stream that `fill` appends, which should have at most `octets` inline octets. It waits for no other stream
    /// that is made at the same time, but has memory of its own then.
    pub fn write(&self, octets: usize, fill: impl FnOnce(&mut Encoder)) -> Payload {
        let mut scratch = match self.0.try_lock() {
            Ok(scratch) => scratch,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let mut encoder = Encoder::with_capacity(octets);
                fill(&mut encoder);
                return encoder.finish();
            }
        };
        let mut encoder = Encoder { done: Payload::new(), run: scratch.lend(octets), home: None };
        fill(&mut encoder);
        let Encoder { mut done, mut run, .. } = encoder;
        done.push_run(run.split().freeze());
        scratch.give_back(run);
        done
    }

    fn scratch(&self) -> MutexGuard<'_, Scratch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Builds a [`Payload`].
#[derive(Debug, Default)]
pub struct Encoder {
    done: Payload,
    run: BytesMut,
    /// Receives the unused rest of the run's memory.
    home: Option<SharedScratch>,
}

impl Encoder {
    /// An empty stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty stream with room for `octets` inline octets.
    pub fn with_capacity(octets: usize) -> Self {
        Self { run: BytesMut::with_capacity(octets), ..Self::default() }
    }

    /// The number of octets encoded so far, which is the position of the next value.
    pub fn position(&self) -> usize {
        self.done.len() + self.run.len()
    }

    /// Makes room for `octets` more, in steps that are not too small.
    #[inline]
    fn make_room(&mut self, octets: usize) {
        if self.run.capacity() - self.run.len() < octets {
            self.run.reserve(octets.max(FIRST_RUN_OCTETS));
        }
    }

    /// An unsigned integer.
    pub fn u32(&mut self, value: u32) {
        self.make_room(size_of_val(&value));
        self.run.put_u32(value);
    }

    /// Unsigned integers, one behind the other.
    pub fn words<const N: usize>(&mut self, words: [u32; N]) {
        self.make_room(size_of_val(&words));
        self.run.put_slice(words.map(u32::to_be_bytes).as_flattened());
    }

    /// An integer.
    pub fn i32(&mut self, value: i32) {
        self.u32(value as u32);
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self, value: u64) {
        self.make_room(size_of_val(&value));
        self.run.put_u64(value);
    }

    /// A hyper integer.
    pub fn i64(&mut self, value: i64) {
        self.u64(value as u64);
    }

    /// A boolean: one word, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// Octets of a length that both sides know, and their padding.
    pub fn opaque_fixed(&mut self, octets: &[u8]) {
        self.make_room(octets.len() + padding(octets.len()));
        self.padded(octets);
    }

    /// Octets and their padding, for which there is room.
    #[inline]
    fn padded(&mut self, octets: &[u8]) {
        self.run.put_slice(octets);
        let pad = padding(octets.len());
        if pad > 0 {
            self.run.put_bytes(0, pad);
        }
    }

    /// Octets of variable length (also a string): the length word, a copy of the octets, padding.
    ///
    /// # Panics
    /// If there are 2^32 octets or more.
    pub fn opaque(&mut self, octets: &[u8]) {
        let len = word_of(octets.len());
        self.make_room(size_of_val(&len) + octets.len() + padding(octets.len()));
        self.run.put_u32(len);
        self.padded(octets);
    }

    /// As [`opaque`](Self::opaque), but shares the octets if that costs less than a copy. They are not marked: a
    /// transport will not place them directly.
    ///
    /// # Panics
    /// If there are 2^32 octets or more.
    pub fn opaque_shared(&mut self, octets: Bytes) {
        if octets.len() <= COPY_LIMIT_OCTETS {
            self.opaque(&octets);
        } else {
            self.length(octets.len());
            let pad = padding(octets.len());
            self.end_run();
            self.done.push_run(octets);
            self.run.put_bytes(0, pad);
        }
    }

    /// A data item of variable length that the upper-layer binding allows to be placed directly: the length word, then
    /// the shared octets as a marked part. Encode it even if it is empty: the k-th mark belongs to the k-th Write
    /// chunk.
    ///
    /// # Panics
    /// If there are 2^32 octets or more.
    // V1-3.4.2-a, V1-3.4.4.1-a, V2-4.3.4.1-a, V2-4.3.4.1-b, V1-3.4.4.2-a, V2-4.3.4.2-a, V2-4.3.4.2-b
    pub fn item(&mut self, data: Bytes) {
        self.length(data.len());
        self.end_run();
        self.done.push_item(data);
    }

    /// A present or absent value: the flag, then the value.
    pub fn optional<T: Encode>(&mut self, value: Option<&T>) {
        self.bool(value.is_some());
        if let Some(value) = value {
            value.encode(self);
        }
    }

    /// A counted array.
    ///
    /// # Panics
    /// If there are 2^32 elements or more.
    pub fn array<T: Encode>(&mut self, elements: &[T]) {
        self.length(elements.len());
        for element in elements {
            element.encode(self);
        }
    }

    /// Appends another stream with its marks. Short runs of it are copied.
    pub fn payload(&mut self, payload: Payload) {
        for part in payload.into_parts() {
            match part {
                Part::Run(run) if run.len() <= COPY_LIMIT_OCTETS => {
                    self.make_room(run.len());
                    self.run.put_slice(&run);
                }
                Part::Run(run) => {
                    self.end_run();
                    self.done.push_run(run);
                }
                Part::Item(data) => {
                    self.end_run();
                    self.done.push_item(data);
                }
            }
        }
    }

    /// The stream.
    pub fn finish(self) -> Payload {
        let Self { mut done, mut run, home } = self;
        match home {
            None => done.push_run(run.freeze()),
            Some(home) => {
                done.push_run(run.split().freeze());
                home.scratch().give_back(run);
            }
        }
        done
    }

    fn length(&mut self, len: usize) {
        self.u32(word_of(len));
    }

    fn end_run(&mut self) {
        if !self.run.is_empty() {
            self.done.push_run(self.run.split().freeze());
        }
    }
}

fn word_of(len: usize) -> u32 {
    u32::try_from(len).expect("XDR lengths have 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: V1-4-a, V2-3.1.4-a, V2-3.1.4.1-a, V2-3.1.4.2-a
    #[test]
    fn values_are_big_endian_words() {
        let mut encoder = Encoder::new();
        encoder.u32(1);
        encoder.i32(-2);
        encoder.u64(3);
        encoder.i64(-4);
        encoder.bool(true);
        encoder.opaque(b"abcde");
        encoder.opaque_fixed(b"xy");
        assert_eq!(encoder.position(), 44);
        let expected = [
            &[0, 0, 0, 1][..],
            &[255, 255, 255, 254],
            &[0, 0, 0, 0, 0, 0, 0, 3],
            &[255, 255, 255, 255, 255, 255, 255, 252],
            &[0, 0, 0, 1],
            &[0, 0, 0, 5],
            b"abcde\0\0\0",
            b"xy\0\0",
        ]
        .concat();
        assert_eq!(&encoder.finish().to_bytes()[..], &expected[..]);
    }

    #[test]
    fn the_length_word_of_an_item_stays_inline() {
        let mut encoder = Encoder::new();
        encoder.item(Bytes::from_static(b"123"));
        encoder.u32(9);
        let payload = encoder.finish();
        assert_eq!(
            payload.parts(),
            [
                Part::Run(Bytes::from_static(&[0, 0, 0, 3])),
                Part::Item(Bytes::from_static(b"123")),
                Part::Run(Bytes::from_static(&[0, 0, 0, 9])),
            ]
        );
    }

    #[test]
    fn another_stream_is_put_in_with_its_marks() {
        let mut inner = Encoder::new();
        inner.item(Bytes::from_static(b"123"));
        let mut encoder = Encoder::new();
        encoder.u32(7);
        encoder.payload(inner.finish());
        encoder.u32(9);
        assert_eq!(encoder.position(), 16);
        let payload = encoder.finish();
        assert_eq!(payload.items().map(|(at, _)| at).collect::<Vec<_>>(), [8]);
        assert_eq!(&payload.to_bytes()[..], b"\0\0\0\x07\0\0\0\x03123\0\0\0\0\x09");
    }

    #[test]
    fn short_runs_of_another_stream_are_copied_and_long_ones_shared() {
        let long = Bytes::from(vec![5; COPY_LIMIT_OCTETS + 1]);
        for (run, parts) in [(long.slice(..COPY_LIMIT_OCTETS), 1), (long.clone(), 2)] {
            let mut encoder = Encoder::new();
            encoder.u32(7);
            encoder.payload(run.clone().into());
            assert_eq!(encoder.position(), 4 + run.len());
            let payload = encoder.finish();
            assert_eq!((payload.parts().len(), payload.len()), (parts, 4 + run.len()));
            assert_eq!(payload.to_bytes()[4..], run[..]);
        }
    }

    #[test]
    fn streams_share_memory_and_keep_what_was_written() {
        let scratch = SharedScratch::default();
        let fill = |encoder: &mut Encoder, n: u32| {
            encoder.u32(n);
            encoder.item(Bytes::from_static(b"item"));
            encoder.u64(n.into());
        };
        let streams: Vec<Payload> = (0..50)
            .map(|n| {
                if n % 2 == 0 {
                    return scratch.write(8, |encoder| fill(encoder, n));
                }
                let mut encoder = scratch.encoder(8);
                fill(&mut encoder, n);
                encoder.finish()
            })
            .collect();
        for (n, stream) in (0u32..).zip(&streams) {
            let octets = stream.to_bytes();
            assert_eq!((&octets[..4], &octets[12..]), (&n.to_be_bytes()[..], &u64::from(n).to_be_bytes()[..]));
        }
        let run = |at: usize| match &streams[at].parts()[0] {
            Part::Run(run) => run.as_ptr(),
            Part::Item(_) => panic!("a run comes first"),
        };
        assert_eq!(run(0).wrapping_add(16), run(1), "one behind the other: 8 bytes, then 8 more");
    }

    #[test]
    fn a_stream_that_is_made_beside_another_has_memory_of_its_own() {
        let scratch = SharedScratch::default();
        let mut inner = None;
        let outer = scratch.write(8, |encoder| {
            encoder.u32(1);
            inner = Some(scratch.write(8, |encoder| encoder.u32(2)));
            encoder.u32(3);
        });
        assert_eq!(outer.to_bytes()[..], [0, 0, 0, 1, 0, 0, 0, 3]);
        assert_eq!(inner.unwrap().to_bytes()[..], [0, 0, 0, 2]);
    }

    #[test]
    fn large_octets_are_shared_with_or_without_a_mark() {
        let data = Bytes::from(vec![5; COPY_LIMIT_OCTETS + 1]);
        let mut encoder = Encoder::new();
        encoder.opaque_shared(data.clone());
        encoder.u32(1);
        let payload = encoder.finish();
        assert_eq!(payload.items().count(), 0);
        assert!(payload.parts().iter().any(|part| matches!(part, Part::Run(run) if run.as_ptr() == data.as_ptr())));
        assert_eq!(payload.len(), 4 + 260 + 4);
        assert_eq!(payload.to_bytes().len(), 268);
    }
}
