//! Records: messages in a stream of bytes (RFC 5531 section 11).
//!
//! A record is one or more fragments, each after a word whose highest bit marks the last fragment and whose other bits
//! are its length. The reader owns a small stage for headers and small records; a large fragment gets a buffer of the
//! connection's allocator and is read straight into it. The writer shares the bytes that it gets. After an error
//! neither can go on.

use super::{Io, MAX_FRAGMENTS, looking::Looking};
use crate::{Arrival, Arrivals};
use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_env::{Allocator, BoxFuture, Buffer, BusyPoll, Clock};
use rpcrdma_xdr::{Payload, Stream};
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::AsyncWrite;

// RPC-5531-11-a
const LAST_FRAGMENT: u32 = 1 << 31;
const HEADER_BYTES: usize = 4;
/// The stage's size: how much is read at once while nothing large is expected.
const STAGE_BYTES: usize = 16 << 10;
/// Records up to this many bytes are taken from the stage; fragments beyond get buffers of their own, which the
/// allocator counts.
const SMALL_RECORD_BYTES: usize = 8 << 10;
/// So many written bytes count as progress, a quarter of the largest record. A peer that takes a byte now and then
/// cannot hold memory by that.
const PROGRESS_BYTES: u64 = 256 << 10;
/// The size of a piece that headers are cut from: the next piece is made when this one is used up, and used again once
/// all headers are written.
const HEADERS_BYTES: usize = 1 << 10;
/// The most slices in one vectored write.
const WRITE_SLICES: usize = 64;

/// Why records can no longer be read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A record is longer than is accepted.
    #[error("a record of at least {len} bytes is above the limit of {max}")]
    TooLong {
        /// Bytes announced so far.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A record has too many fragments.
    #[error("a record has more than {MAX_FRAGMENTS} fragments")]
    TooManyFragments,
    /// The stream ends inside a record.
    #[error("the stream ends inside a record")]
    Truncated,
    /// Reading failed.
    #[error("reading failed")]
    Io(#[source] Arc<io::Error>),
}

enum State {
    Header,
    Small { len: usize },
    Memory { len: usize, wait: BoxFuture<'static, Buffer> },
    Large { len: usize, filled: usize, buffer: Buffer },
}

/// Reads records.
pub(crate) struct RecordReader {
    allocator: Arc<dyn Allocator>,
    max_record: usize,
    stage: BytesMut,
    state: State,
    record: Stream,
    record_len: usize,
    fragments: usize,
    last: bool,
    received: u64,
    records: u64,
    /// How many records were complete at the latest read, and at the one before.
    at_read: u64,
    at_read_before: u64,
    /// Which records came with one read.
    arrivals: Arrivals,
    looking: Looking,
}

impl RecordReader {
    pub(crate) fn new(
        allocator: Arc<dyn Allocator>,
        max_record: usize,
        busy_poll: BusyPoll,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            allocator,
            max_record,
            stage: BytesMut::new(),
            state: State::Header,
            record: Stream::new(),
            record_len: 0,
            fragments: 0,
            last: false,
            received: 0,
            records: 0,
            at_read: 0,
            at_read_before: 0,
            arrivals: Arrivals::default(),
            looking: Looking::new(busy_poll, clock),
        }
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Records that are complete. Parts do not count as progress: half a record holds memory, however slowly the rest
    /// comes.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Marks a record that is passed on now, and those that came with it.
    pub(crate) fn arrival(&mut self) -> Arrival {
        self.arrivals.passed_on()
    }

    /// Whether the next record has begun to come.
    pub(crate) fn is_followed(&self) -> bool {
        !self.stage.is_empty()
    }

    /// How many records have come together: those of the latest read so far, or of the one before if they were more.
    pub(crate) fn together(&self) -> usize {
        usize::try_from((self.records - self.at_read).max(self.at_read - self.at_read_before)).unwrap_or(usize::MAX)
    }

    /// Whether the peer owes the rest of a record. It does not while we have no memory for it. But a connection that
    /// holds memory and waits for more may wait for others that do the same, and must not do so for ever.
    pub(crate) fn is_inside_record(&self) -> bool {
        match self.state {
            State::Header => self.fragments > 0 || !self.stage.is_empty(),
            State::Memory { len, .. } => self.record_len.saturating_sub(len) > SMALL_RECORD_BYTES,
            State::Small { .. } | State::Large { .. } => true,
        }
    }

    /// The next record, or `None` at the end of the stream. So many bytes wait to be written to the peer.
    pub(crate) fn poll_record(
        &mut self,
        io: &mut (impl Io + ?Sized),
        cx: &mut Context<'_>,
        unsent: usize,
    ) -> Poll<Result<Option<Stream>, RecordError>> {
        self.looking.unsent(unsent);
        loop {
            match &mut self.state {
                State::Header => match self.stage.first_chunk::<HEADER_BYTES>().copied() {
                    Some(header) => {
                        let header = u32::from_be_bytes(header);
                        let _ = self.stage.split_to(HEADER_BYTES);
                        self.begin_fragment(header)?;
                    }
                    None if ready!(self.poll_fill(io, cx))? == 0 => {
                        let clean = self.stage.is_empty() && self.fragments == 0;
                        return Poll::Ready(if clean { Ok(None) } else { Err(RecordError::Truncated) });
                    }
                    None => {}
                },
                State::Small { len } => {
                    let len = *len;
                    if self.stage.len() >= len {
                        self.record.push_run(self.stage.split_to(len).freeze());
                        if let Some(record) = self.end_fragment() {
                            return Poll::Ready(Ok(Some(record)));
                        }
                    } else if ready!(self.poll_fill(io, cx))? == 0 {
                        return Poll::Ready(Err(RecordError::Truncated));
                    }
                }
                State::Memory { len, wait } => {
                    let len = *len;
                    let buffer = ready!(wait.as_mut().poll(cx));
                    self.begin_large(len, buffer);
                }
                State::Large { len, filled, buffer } => {
                    if filled < len {
                        let room = &mut buffer.bytes_mut()[*filled..*len];
                        let octets = ready!(self.looking.poll_read(io, cx, room)).map_err(failed)?;
                        if octets == 0 {
                            return Poll::Ready(Err(RecordError::Truncated));
                        }
                        *filled += octets;
                        self.has_read(octets);
                        continue;
                    }
                    let len = *len;
                    if let State::Large { mut buffer, .. } = std::mem::replace(&mut self.state, State::Header) {
                        buffer.set_len(len);
                        self.record.push_run(buffer.freeze());
                    }
                    if let Some(record) = self.end_fragment() {
                        return Poll::Ready(Ok(Some(record)));
                    }
                }
            }
        }
    }

    fn begin_fragment(&mut self, header: u32) -> Result<(), RecordError> {
        self.last = header & LAST_FRAGMENT != 0;
        let len = usize::try_from(header & !LAST_FRAGMENT).unwrap_or(usize::MAX);
        self.fragments += 1;
        if self.fragments > MAX_FRAGMENTS {
            return Err(RecordError::TooManyFragments);
        }
        self.record_len = self.record_len.saturating_add(len);
        if self.record_len > self.max_record {
            return Err(RecordError::TooLong { len: self.record_len, max: self.max_record });
        }
        if self.record_len <= SMALL_RECORD_BYTES || len == 0 {
            self.state = State::Small { len };
        } else if let Some(buffer) = self.allocator.try_allocate(len) {
            self.begin_large(len, buffer);
        } else {
            let allocator = self.allocator.clone();
            self.state = State::Memory { len, wait: Box::pin(async move { allocator.allocate(len).await }) };
        }
        Ok(())
    }

    /// Moves the fragment's bytes that the stage holds into its buffer.
    fn begin_large(&mut self, len: usize, mut buffer: Buffer) {
        let filled = self.stage.len().min(len);
        buffer.bytes_mut()[..filled].copy_from_slice(&self.stage.split_to(filled));
        self.state = State::Large { len, filled, buffer };
    }

    fn end_fragment(&mut self) -> Option<Stream> {
        self.state = State::Header;
        if !self.last {
            return None;
        }
        self.record_len = 0;
        self.fragments = 0;
        self.records += 1;
        Some(std::mem::take(&mut self.record))
    }

    fn poll_fill(&mut self, io: &mut (impl Io + ?Sized), cx: &mut Context<'_>) -> Poll<Result<usize, RecordError>> {
        let needed = match self.state {
            State::Small { len } => len,
            _ => HEADER_BYTES,
        };
        if self.stage.capacity() < needed.max(STAGE_BYTES / 4) || self.stage.len() == self.stage.capacity() {
            self.stage.reserve(STAGE_BYTES);
        }
        let octets = ready!(self.looking.poll_fill(io, cx, &mut self.stage)).map_err(failed)?;
        self.has_read(octets);
        Poll::Ready(Ok(octets))
    }

    fn has_read(&mut self, octets: usize) {
        self.received += octets as u64;
        (self.at_read_before, self.at_read) = (self.at_read, self.records);
        self.arrivals.came();
    }
}

fn failed(error: io::Error) -> RecordError {
    RecordError::Io(Arc::new(error))
}

/// Writes records.
#[derive(Default)]
pub(crate) struct RecordWriter {
    queue: VecDeque<Bytes>,
    headers: BytesMut,
    queued: usize,
    sent: u64,
    emptied: u64,
}

impl RecordWriter {
    /// Queues a message as a record.
    pub(crate) fn push(&mut self, message: &Payload) {
        let mut left = message.len();
        let mut slices = message.slices();
        let mut rest = Bytes::new();
        loop {
            let fragment = left.min((LAST_FRAGMENT - 1) as usize);
            left -= fragment;
            let last = if left == 0 { LAST_FRAGMENT } else { 0 };
            if self.headers.capacity() < HEADER_BYTES {
                self.headers.reserve(HEADERS_BYTES);
            }
            self.headers.put_u32(last | fragment as u32);
            let header = self.headers.split().freeze();
            self.queue(header);
            let mut open = fragment;
            while open > 0 {
                if rest.is_empty() {
                    match slices.next() {
                        Some(slice) => rest = slice,
                        None => return,
                    }
                }
                let piece = rest.split_to(rest.len().min(open));
                open -= piece.len();
                self.queue(piece);
            }
            if left == 0 {
                return;
            }
        }
    }

    fn queue(&mut self, slice: Bytes) {
        self.queued += slice.len();
        self.queue.push_back(slice);
    }

    /// Bytes that wait to be written.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes written so far.
    #[cfg(test)]
    fn sent(&self) -> u64 {
        self.sent
    }

    /// Changes whenever everything is written, and with every large part of it.
    pub(crate) fn progress(&self) -> u64 {
        self.emptied.wrapping_add(self.sent / PROGRESS_BYTES)
    }

    /// Writes what is queued.
    pub(crate) fn poll_flush(
        &mut self,
        mut io: Pin<&mut (impl AsyncWrite + ?Sized)>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.queued > 0 {
            let mut slices = [IoSlice::new(&[]); WRITE_SLICES];
            let mut used = 0;
            for (slot, slice) in slices.iter_mut().zip(&self.queue) {
                *slot = IoSlice::new(slice);
                used += 1;
            }
            let octets = ready!(io.as_mut().poll_write_vectored(cx, &slices[..used]))?;
            if octets == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(octets);
        }
        io.poll_flush(cx)
    }

    fn advance(&mut self, mut octets: usize) {
        self.sent += octets as u64;
        self.queued -= octets;
        self.emptied += u64::from(self.queued == 0);
        while let Some(front) = self.queue.front_mut() {
            if octets < front.len() {
                let _ = front.split_to(octets);
                break;
            }
            octets -= front.len();
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rpcrdma_env::{Heap, tokio_env};
    use rpcrdma_xdr::StreamPart;
    use std::future::poll_fn;
    use tokio::io::{AsyncWriteExt, Join, Sink, join, sink};

    impl Io for Join<&[u8], Sink> {}

    fn reader(allocator: Arc<dyn Allocator>) -> RecordReader {
        RecordReader::new(allocator, MAX, BusyPoll::Off, tokio_env().unwrap().clock)
    }

    const MAX: usize = 40_000;

    fn fragment(last: bool, octets: &[u8]) -> Vec<u8> {
        let header = octets.len() as u32 | if last { LAST_FRAGMENT } else { 0 };
        [&header.to_be_bytes()[..], octets].concat()
    }

    fn joined(stream: &Stream) -> Vec<u8> {
        let octets = |part: &StreamPart| match part {
            StreamPart::Run(run) | StreamPart::Chunk(run) => run.to_vec(),
        };
        stream.parts().flat_map(octets).collect()
    }

    async fn read_all(octets: &[u8]) -> (Vec<Vec<u8>>, Result<(), RecordError>) {
        let mut reader = reader(Arc::new(Heap));
        let mut io = join(octets, sink());
        let mut records = Vec::new();
        loop {
            match poll_fn(|cx| reader.poll_record(&mut io, cx, 0)).await {
                Ok(Some(record)) => records.push(joined(&record)),
                Ok(None) => return (records, Ok(())),
                Err(error) => return (records, Err(error)),
            }
        }
    }

    /// proves: RPC-5531-11-a
    #[tokio::test]
    async fn fragments_are_joined_to_records() {
        let large = vec![7; SMALL_RECORD_BYTES + 1];
        let octets = [
            fragment(true, b"whole"),
            fragment(false, b"first"),
            fragment(false, b""),
            fragment(true, &large),
            fragment(true, &large),
            fragment(true, b""),
        ]
        .concat();
        let (records, end) = read_all(&octets).await;
        assert_eq!(records, [b"whole".to_vec(), [b"first".to_vec(), large.clone()].concat(), large, vec![]]);
        end.unwrap();
    }

    #[tokio::test]
    async fn a_large_record_is_one_run_in_a_buffer_of_the_allocator() {
        let octets = fragment(true, &vec![7; 30_000]);
        let mut reader = reader(Arc::new(Heap));
        let mut io = join(&octets[..], sink());
        let record = poll_fn(|cx| reader.poll_record(&mut io, cx, 0)).await.unwrap().unwrap();
        assert_eq!(record.parts().count(), 1);
    }

    /// The allocator is asked for every byte but the first few of a record, however it is cut.
    #[tokio::test]
    async fn small_fragments_of_a_large_record_are_counted_by_the_allocator() {
        #[derive(Default)]
        struct Counting(std::sync::atomic::AtomicUsize);
        impl Allocator for Counting {
            fn try_allocate(&self, len: usize) -> Option<Buffer> {
                self.0.fetch_add(len, std::sync::atomic::Ordering::Relaxed);
                Heap.try_allocate(len)
            }
            fn allocate(&self, len: usize) -> BoxFuture<'_, Buffer> {
                Box::pin(async move { self.try_allocate(len).unwrap_or_else(|| Buffer::from_vec(vec![0; len])) })
            }
        }
        let counting = Arc::new(Counting::default());
        let mut reader = reader(counting.clone());
        let octets = [fragment(false, &[1; 500]).repeat(60), fragment(true, b"")].concat();
        let record = poll_fn(|cx| reader.poll_record(&mut join(&octets[..], sink()), cx, 0)).await.unwrap().unwrap();
        assert_eq!(joined(&record), vec![1; 30_000]);
        let counted = counting.0.load(std::sync::atomic::Ordering::Relaxed);
        assert!((30_000 - SMALL_RECORD_BYTES..=30_000).contains(&counted), "{counted}");
    }

    #[tokio::test]
    async fn the_limits_hold_at_the_limit_and_one_past_it() {
        let (records, end) = read_all(&fragment(true, &vec![1; MAX])).await;
        assert_eq!(records[0].len(), MAX);
        end.unwrap();
        let (_, end) = read_all(&fragment(true, &vec![1; MAX + 1])).await;
        assert!(matches!(end, Err(RecordError::TooLong { .. })));
        let (_, end) = read_all(&[fragment(false, &vec![1; MAX]), fragment(true, b"1")].concat()).await;
        assert!(matches!(end, Err(RecordError::TooLong { .. })), "over all fragments");
        let empty = |count: usize| [fragment(false, b"").repeat(count - 1), fragment(true, b"")].concat();
        read_all(&empty(MAX_FRAGMENTS)).await.1.unwrap();
        assert!(matches!(read_all(&empty(MAX_FRAGMENTS + 1)).await.1, Err(RecordError::TooManyFragments)));
    }

    #[tokio::test]
    async fn a_stream_that_ends_inside_a_record_is_an_error() {
        let large = fragment(true, &vec![7; 20_000]);
        for octets in [&b"\x80\0"[..], b"\x80\0\0\x04abc", &fragment(false, b"abc"), &large[..19_000]] {
            assert!(matches!(read_all(octets).await.1, Err(RecordError::Truncated)));
        }
    }

    #[tokio::test]
    async fn what_is_written_is_read() {
        let (mut near, mut far) = tokio::io::duplex(1000);
        let mut payload = Payload::from(Bytes::from_static(b"head"));
        payload.push_item(vec![5; 10_001].into());
        let expected = payload.to_bytes();
        let write = async {
            let mut writer = RecordWriter::default();
            for _ in 0..50 {
                writer.push(&payload);
            }
            poll_fn(|cx| writer.poll_flush(Pin::new(&mut near), cx)).await.unwrap();
            assert_eq!((writer.queued(), writer.sent()), (0, 50 * (4 + expected.len() as u64)));
            near.shutdown().await.unwrap();
        };
        let read = async {
            let mut reader = reader(Arc::new(Heap));
            let mut count = 0;
            while let Some(record) = poll_fn(|cx| reader.poll_record(&mut far, cx, 0)).await.unwrap() {
                assert_eq!(joined(&record), expected);
                count += 1;
            }
            assert_eq!(count, 50);
        };
        tokio::join!(write, read);
    }

    proptest! {
        #[test]
        fn arbitrary_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..300), small in any::<bool>()) {
            let mut octets = octets;
            if small && octets.len() > 3 {
                octets[..3].copy_from_slice(&[0; 3]);
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (records, _) = runtime.block_on(read_all(&octets));
            prop_assert!(records.iter().map(Vec::len).sum::<usize>() <= octets.len());
        }
    }
}
