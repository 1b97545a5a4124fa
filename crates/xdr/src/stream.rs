//! A received XDR stream, as a transport passes it to its user.
//!
//! Owns the received octets and the buffers in which the peer placed items. Building a stream cannot fail; a
//! [`Decoder`](crate::Decoder) finds the parts that do not fit together.

use crate::{Buffer, padded};
use bytes::Bytes;
use smallvec::SmallVec;

/// A part of a [`Stream`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamPart {
    /// Inline octets.
    Run(Bytes),
    /// The data of one Read chunk, at its Position, perhaps with the item's roundup padding.
    Chunk(Bytes),
}

/// The outcome of one Write chunk that the requester offered.
#[derive(Debug)]
pub struct Placed {
    /// The size of the chunk offered, in octets; 0 for an empty chunk, which asks for the item inline.
    pub offered: usize,
    /// The lent memory, of which the responder wrote `len()` octets; `None` for an empty chunk.
    pub buffer: Option<Buffer>,
}

impl Placed {
    /// How many octets the peer says it has placed.
    pub fn returned(&self) -> usize {
        self.buffer.as_ref().map_or(0, Buffer::len)
    }
}

/// As many parts need no memory of their own: the run of a stream without Read chunks. Room for more would be copied
/// with every stream.
pub(crate) const USUAL_PARTS: usize = 1;
/// The same for Write chunks.
pub(crate) const USUAL_PLACED: usize = 1;

/// A received XDR stream. In a Call, chunks stand at their Positions among the runs. In a Reply, the runs are the
/// reduced stream, and the Write chunks come separately, in list order.
#[derive(Debug, Default)]
pub struct Stream {
    pub(crate) parts: SmallVec<[StreamPart; USUAL_PARTS]>,
    pub(crate) placed: SmallVec<[Placed; USUAL_PLACED]>,
}

impl Stream {
    /// An empty stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty stream with room for so many parts.
    pub fn with_parts(parts: usize) -> Self {
        Self { parts: SmallVec::with_capacity(parts), ..Self::default() }
    }

    /// Appends inline octets.
    pub fn push_run(&mut self, run: Bytes) {
        if !run.is_empty() {
            self.parts.push(StreamPart::Run(run));
        }
    }

    /// Appends the data of a Read chunk whose Position is the present end of the stream.
    pub fn push_chunk(&mut self, data: Bytes) {
        self.parts.push(StreamPart::Chunk(data));
    }

    /// Adds the next Write chunk of the Reply.
    pub fn push_placed(&mut self, placed: Placed) {
        self.placed.push(placed);
    }

    /// The length in octets of runs and chunks, chunks rounded up to the next unit.
    pub fn len(&self) -> usize {
        self.parts
            .iter()
            .map(|part| match part {
                StreamPart::Run(run) => run.len(),
                StreamPart::Chunk(data) => padded(data.len()),
            })
            .fold(0, usize::saturating_add)
    }

    /// Whether it has no octets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The Write chunks of the Reply, in list order, for a caller that wants its memory back and not the message.
    pub fn into_placed(self) -> impl Iterator<Item = Placed> {
        self.placed.into_iter()
    }

    /// The runs and chunks in stream order.
    pub fn parts(&self) -> impl Iterator<Item = &StreamPart> {
        self.parts.iter()
    }
}

impl From<Bytes> for Stream {
    fn from(run: Bytes) -> Self {
        let mut stream = Stream::new();
        stream.push_run(run);
        stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_empty_without_octets() {
        let mut stream = Stream::new();
        assert!(stream.is_empty());
        stream.push_run(Bytes::new());
        stream.push_chunk(Bytes::new());
        assert!(stream.is_empty(), "a chunk for an empty item has none");
        stream.push_chunk(Bytes::from_static(b"12345"));
        assert_eq!((stream.len(), stream.is_empty()), (8, false));
    }
}
