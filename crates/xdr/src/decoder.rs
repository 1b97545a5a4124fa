//! Reading a [`Stream`].
//!
//! Owns the stream and returns its bytes as shared slices. After an error the position of the decoder is undefined, and
//! nothing that it returns has a meaning.

use crate::{
    Buffer, Decode, DecodeError, Placed, Stream, StreamPart, UNIT, padded,
    stream::{USUAL_PARTS, USUAL_PLACED},
};
use bytes::{Buf, Bytes};
use smallvec::SmallVec;

/// The data of an item, however it arrived.
#[derive(Debug)]
pub enum ItemData {
    /// In the stream or in a Read chunk.
    Shared(Bytes),
    /// Placed by the peer in the buffer that the caller had lent.
    Placed(Buffer),
}

impl ItemData {
    /// The octets.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            ItemData::Shared(octets) => octets,
            ItemData::Placed(buffer) => buffer.filled(),
        }
    }

    /// The octets, shared, without a copy.
    pub fn into_bytes(self) -> Bytes {
        match self {
            ItemData::Shared(octets) => octets,
            ItemData::Placed(buffer) => buffer.freeze(),
        }
    }
}

impl From<ItemData> for Bytes {
    fn from(item: ItemData) -> Self {
        item.into_bytes()
    }
}

/// Reads values from a received [`Stream`].
#[derive(Debug)]
pub struct Decoder {
    /// In reverse order: the next is the last.
    parts: SmallVec<[StreamPart; USUAL_PARTS]>,
    /// In reverse order: the next is the last.
    placed: SmallVec<[Placed; USUAL_PLACED]>,
    position: usize,
    remaining: usize,
}

impl Decoder {
    /// A decoder at the beginning of `stream`.
    pub fn new(stream: Stream) -> Self {
        let remaining = stream.len();
        let Stream { mut parts, mut placed } = stream;
        if parts.len() > 1 {
            parts.reverse();
        }
        if placed.len() > 1 {
            placed.reverse();
        }
        Self { parts, placed, position: 0, remaining }
    }

    /// The offset of the next value in the whole stream.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Octets left in the stream, Read chunks included.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// The remaining runs and chunks, in stream order.
    pub fn parts(&self) -> impl Iterator<Item = &StreamPart> {
        self.parts.iter().rev()
    }

    /// An unsigned integer.
    ///
    /// # Errors
    /// If the stream ends, or a chunk stands at this place.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.word()?))
    }

    /// The next `N` words, if they lie together and `fit`. Otherwise it reads nothing, and the caller reads word by
    /// word, which also finds what is wrong. This costs a fraction of `N` single words.
    ///
    /// ```
    /// use rpcrdma_xdr::{Decoder, Stream};
    /// let mut decoder = Decoder::new(Stream::from(bytes::Bytes::from_static(&[0, 0, 0, 1, 0, 0, 0, 2])));
    /// assert_eq!(decoder.words(|[_, second]| *second == 3), None);
    /// assert_eq!(decoder.words(|[_, second]| *second == 2), Some([1, 2]));
    /// assert_eq!(decoder.words(|[_]| true), None, "the stream has ended");
    /// ```
    pub fn words<const N: usize>(&mut self, fit: impl FnOnce(&[u32; N]) -> bool) -> Option<[u32; N]> {
        let Some(StreamPart::Run(run)) = self.parts.last_mut() else { return None };
        let octets = run.get(..N * UNIT)?;
        let mut words = [0; N];
        for (word, octets) in words.iter_mut().zip(octets.chunks_exact(UNIT)) {
            *word = octets.first_chunk().copied().map_or(0, u32::from_be_bytes);
        }
        if !fit(&words) {
            return None;
        }
        run.advance(N * UNIT);
        self.advance(N * UNIT);
        Some(words)
    }

    /// An integer.
    ///
    /// # Errors
    /// As [`u32`](Self::u32).
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.word()?))
    }

    /// An unsigned hyper integer.
    ///
    /// # Errors
    /// As [`u32`](Self::u32).
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.word()?))
    }

    /// A hyper integer.
    ///
    /// # Errors
    /// As [`u32`](Self::u32).
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.word()?))
    }

    /// A boolean.
    ///
    /// # Errors
    /// As [`u32`](Self::u32), and if the word is neither 0 nor 1.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(self.bad_value(value, "boolean")),
        }
    }

    /// The error for the word just read, which is not a value of the type `what`.
    pub fn bad_value(&self, value: u32, what: &'static str) -> DecodeError {
        DecodeError::BadValue { position: self.position.saturating_sub(UNIT), value, what }
    }

    /// `N` octets of fixed length and their padding.
    ///
    /// # Errors
    /// As [`u32`](Self::u32).
    pub fn opaque_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        if padded(N) == N {
            return self.word();
        }
        let octets = self.inline(N)?;
        <[u8; N]>::try_from(&octets[..]).map_err(|_| self.truncated(N))
    }

    /// Octets of fixed length and their padding, shared.
    ///
    /// # Errors
    /// As [`u32`](Self::u32).
    pub fn opaque_fixed(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        self.inline(len)
    }

    /// Octets of variable length (also a string), at most `max`, shared. The peer may not place them directly.
    ///
    /// # Errors
    /// As [`u32`](Self::u32), and if the length is above `max`.
    // V1-2.2.4.2-a, V2-3.1.4.2-a, V2-3.1.4.1-a
    pub fn opaque(&mut self, max: usize) -> Result<Bytes, DecodeError> {
        let len = self.count(max)?;
        self.inline(len)
    }

    /// As [`opaque`](Self::opaque), for octets that the caller copies or looks at: `read` sees them where they lie.
    ///
    /// ```
    /// use rpcrdma_xdr::{Decoder, Stream};
    /// let mut decoder = Decoder::new(Stream::from(bytes::Bytes::from_static(b"\0\0\0\x05seven\0\0\0")));
    /// assert_eq!(decoder.opaque_with(8, <[u8]>::to_vec)?, b"seven");
    /// # Ok::<(), rpcrdma_xdr::DecodeError>(())
    /// ```
    ///
    /// # Errors
    /// As [`opaque`](Self::opaque).
    pub fn opaque_with<T>(&mut self, max: usize, read: impl FnOnce(&[u8]) -> T) -> Result<T, DecodeError> {
        let len = self.count(max)?;
        let whole = padded(len);
        if let Some(StreamPart::Run(run)) = self.parts.last_mut()
            && let Some(octets) = run.get(..whole).and_then(|octets| octets.get(..len))
        {
            let value = read(octets);
            run.advance(whole);
            self.advance(whole);
            return Ok(value);
        }
        self.inline(len).map(|octets| read(&octets))
    }

    /// A count or length of at most `max`.
    ///
    /// # Errors
    /// As [`u32`](Self::u32), and if the count is above `max`.
    pub fn count(&mut self, max: usize) -> Result<usize, DecodeError> {
        let len = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if len > max {
            return Err(DecodeError::TooLong { position: self.position - UNIT, len, max });
        }
        Ok(len)
    }

    /// A data item of at most `max` octets that the binding allows to be placed directly: inline, from its Read chunk,
    /// or in the buffer that the caller lent for it.
    ///
    /// # Errors
    /// As [`opaque`](Self::opaque), and if the chunk's length is not the item's, or the item came inline though the
    /// caller had offered a chunk for it.
    // V1-6.1-f
    pub fn item(&mut self, max: usize) -> Result<ItemData, DecodeError> {
        let len = self.count(max)?;
        if let Some(placed) = self.placed.pop() {
            return self.placed_item(len, placed);
        }
        if let Some(StreamPart::Chunk(data)) = self.parts.last_mut() {
            // With or without the roundup padding, a chunk is correct (V1-3.4.5.2-b, RFC 8166 section 3.4.5.2).
            if data.len() != len && data.len() != padded(len) {
                return Err(DecodeError::ChunkLength { position: self.position, len, chunk_len: data.len() });
            }
            let octets = data.split_to(len);
            self.parts.pop();
            self.advance(padded(len));
            return Ok(ItemData::Shared(octets));
        }
        self.inline(len).map(ItemData::Shared)
    }

    // V2-4.3.1-b, V1-6.1-e, V2-A.1-d, V2-A.1-e
    fn placed_item(&mut self, len: usize, placed: Placed) -> Result<ItemData, DecodeError> {
        match (placed.returned(), placed.buffer) {
            (0, _) if len > 0 && placed.offered > 0 => {
                Err(DecodeError::InlineDespiteChunk { position: self.position, offered: placed.offered })
            }
            (0, _) => self.inline(len).map(ItemData::Shared),
            (returned, Some(buffer)) if returned == len => Ok(ItemData::Placed(buffer)),
            (chunk_len, _) => Err(DecodeError::ChunkLength { position: self.position, len, chunk_len }),
        }
    }

    /// A value that may be absent.
    ///
    /// # Errors
    /// As [`bool`](Self::bool) and the value's decoder.
    pub fn optional<T: Decode>(&mut self) -> Result<Option<T>, DecodeError> {
        if self.bool()? { T::decode(self).map(Some) } else { Ok(None) }
    }

    /// A counted array of at most `max` elements. The decoder reserves room for no more than the rest of the stream can
    /// hold.
    ///
    /// # Errors
    /// As [`count`](Self::count) and the elements' decoder.
    pub fn array<T: Decode>(&mut self, max: usize) -> Result<Vec<T>, DecodeError> {
        let count = self.count(max)?;
        let mut elements = Vec::with_capacity(count.min(self.remaining / UNIT));
        for _ in 0..count {
            elements.push(T::decode(self)?);
        }
        Ok(elements)
    }

    /// Ends the decoding: the caller must have read everything.
    ///
    /// # Errors
    /// If octets are left in the stream, or the peer placed data that no item claims.
    pub fn finish(mut self) -> Result<(), DecodeError> {
        self.skip_empty_chunks();
        if let Some(StreamPart::Chunk(_)) = self.parts.last() {
            return Err(DecodeError::NotEligible { position: self.position });
        }
        if self.remaining > 0 {
            return Err(DecodeError::Trailing { position: self.position, left: self.remaining });
        }
        match self.placed.iter().map(Placed::returned).fold(0, usize::saturating_add) {
            0 => Ok(()),
            octets => Err(DecodeError::Unclaimed { octets }),
        }
    }

    /// Skips the rest, chunks included, for messages of which a part can be used though the rest cannot be read. Lent
    /// buffers stay, for [`take_unused_buffers`](Self::take_unused_buffers).
    pub fn discard_rest(&mut self) {
        self.parts.clear();
        self.position += self.remaining;
        self.remaining = 0;
    }

    /// Feeds a hasher with what distinguishes a message from most others: the remaining length, and up to `octets`
    /// bytes of the remaining stream outside chunks. Those are one piece however the stream is cut, because many
    /// hashers distinguish two pieces from one.
    pub fn measure(&self, octets: usize, hasher: &mut impl std::hash::Hasher) {
        hasher.write_usize(self.remaining);
        let mut runs = self.parts.iter().rev().filter_map(|part| match part {
            StreamPart::Run(run) => Some(&run[..]),
            StreamPart::Chunk(_) => None,
        });
        let first = runs.next().unwrap_or_default();
        let first = first.get(..octets).unwrap_or(first);
        let mut runs = runs.peekable();
        if first.len() == octets || runs.peek().is_none() {
            return hasher.write(first);
        }
        let mut piece = first.to_vec();
        for run in runs {
            let left = octets - piece.len();
            piece.extend_from_slice(run.get(..left).unwrap_or(run));
        }
        hasher.write(&piece);
    }

    /// The buffers lent for Write chunks that no item has used, so that the caller can use them again.
    pub fn take_unused_buffers(&mut self) -> Vec<Buffer> {
        self.placed
            .iter_mut()
            .rev()
            .filter(|placed| placed.returned() == 0)
            .filter_map(|placed| placed.buffer.take())
            .collect()
    }

    /// A whole number of words, copied. `N` is a multiple of four.
    #[inline]
    fn word<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        if let Some(StreamPart::Run(run)) = self.parts.last_mut()
            && let Some(word) = run.first_chunk().copied()
        {
            run.advance(N);
            let used = run.is_empty();
            self.position += N;
            self.remaining -= N;
            if used {
                self.drop_used();
            }
            return Ok(word);
        }
        self.cut_word()
    }

    /// As [`word`](Self::word), for words that several runs share or that the stream does not have.
    #[cold]
    fn cut_word<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut out = [0; N];
        self.check_inline(N)?;
        let mut filled = 0;
        while filled < N {
            let piece = self.piece(N - filled)?;
            out[filled..filled + piece.len()].copy_from_slice(&piece);
            filled += piece.len();
        }
        self.advance(N);
        Ok(out)
    }

    /// `len` inline octets and the padding after them.
    fn inline(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        let whole = padded(len);
        if whole == 0 {
            return Ok(Bytes::new());
        }
        self.check_inline(whole)?;
        let mut octets = match self.parts.last_mut() {
            Some(StreamPart::Run(run)) if run.len() >= whole => run.split_to(whole),
            _ => {
                // The transport has cut these octets into several runs. They have arrived, so this length is more than
                // a claim of the peer.
                let mut joined = Vec::with_capacity(whole);
                while joined.len() < whole {
                    joined.extend_from_slice(&self.piece(whole - joined.len())?);
                }
                joined.into()
            }
        };
        self.advance(whole);
        octets.truncate(len);
        Ok(octets)
    }

    /// Checks that no chunk stands among the next `len` octets.
    fn check_inline(&mut self, len: usize) -> Result<(), DecodeError> {
        if len > self.remaining {
            return Err(self.truncated(len));
        }
        self.skip_empty_chunks();
        let mut here = 0;
        for part in self.parts.iter().rev() {
            match part {
                StreamPart::Run(run) => here += run.len(),
                StreamPart::Chunk(data) if data.is_empty() => {}
                StreamPart::Chunk(_) => return Err(DecodeError::NotEligible { position: self.position + here }),
            }
            if here >= len {
                break;
            }
        }
        Ok(())
    }

    /// Up to `max` octets of the next run.
    fn piece(&mut self, max: usize) -> Result<Bytes, DecodeError> {
        self.skip_empty_chunks();
        match self.parts.last_mut() {
            Some(StreamPart::Run(run)) => Ok(run.split_to(run.len().min(max))),
            Some(StreamPart::Chunk(_)) => Err(DecodeError::NotEligible { position: self.position }),
            None => Err(self.truncated(max)),
        }
    }

    /// Drops empty runs, and chunks without data, which stand for empty items.
    fn skip_empty_chunks(&mut self) {
        while let Some(StreamPart::Run(octets) | StreamPart::Chunk(octets)) = self.parts.last() {
            if !octets.is_empty() {
                break;
            }
            self.parts.pop();
        }
    }

    fn advance(&mut self, len: usize) {
        self.position += len;
        self.remaining -= len;
        self.drop_used();
    }

    /// Drops runs that are read to their end.
    fn drop_used(&mut self) {
        while let Some(StreamPart::Run(run)) = self.parts.last() {
            if !run.is_empty() {
                break;
            }
            self.parts.pop();
        }
    }

    fn truncated(&self, needed: usize) -> DecodeError {
        DecodeError::Truncated { position: self.position, needed, left: self.remaining }
    }
}

#[cfg(test)]
mod tests;
