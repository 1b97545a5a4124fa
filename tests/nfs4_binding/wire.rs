//! The simplest possible client: bytes in messages, and memory that it lends. Nothing here uses the code that it
//! judges: it makes headers and lists word by word, as RFC 8166 section 4.3 and sections 6.1 to 6.3 of the version 2
//! draft describe them.

use bytes::Bytes;
use rpcrdma_fabric::{
    Buffer, Completion, Connected, ConnectionParams, Fabric, Lent, Receives, RemoteSegment, SendWork, Token,
};
use rpcrdma_sim::World;
use rpcrdma_transport::Versions;
use std::{
    collections::VecDeque,
    future::poll_fn,
    net::{IpAddr, SocketAddr},
};

pub type Segment = RemoteSegment;

/// Bytes of a receive: as many as both ends announce.
const RECEIVE_BYTES: usize = 4096;
/// What memory holds before the server writes to it.
pub const BLANK: u8 = 0xEE;
/// The XID of the exchange of properties in version 2.
const EXCHANGE: u32 = 0x5555_0000;

/// Words in big-endian order, as in messages.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// An XDR opaque: its length, its bytes, and zeros up to the next word.
pub fn opaque(octets: &[u8]) -> Vec<u8> {
    let mut whole = [&words(&[octets.len() as u32]), octets].concat();
    whole.resize(whole.len().next_multiple_of(4), 0);
    whole
}

/// A version of RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// An error with which a server refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `RDMA2_ERR_BAD_XDR`.
    BadXdr,
    /// `RDMA2_ERR_READ_CHUNKS`, with the limit.
    ReadChunks(u32),
    /// `RDMA2_ERR_WRITE_CHUNKS`, with the limit.
    WriteChunks(u32),
    /// `RDMA2_ERR_SYSTEM`.
    System,
    /// `RDMA2_ERR_WRITE_RESOURCE`, with the chunk, counted from 1, and the bytes that it needs.
    WriteResource(u32, u32),
}

impl Version {
    pub const BOTH: [Version; 2] = [Version::One, Version::Two];

    pub fn spoken(self) -> Versions {
        match self {
            Version::One => Versions::One,
            Version::Two => Versions::Two,
        }
    }

    /// The header of a call: in version 1 it asks for 32 credits, in version 2 it grants 32.
    pub fn call(self, xid: u32, long: bool, lists: &Lists) -> Vec<u8> {
        let kind = u32::from(long);
        let front = match self {
            Version::One => words(&[xid, 1, 32, kind]),
            Version::Two => words(&[xid, 2, 0x0020_0020, kind, 0, 0]),
        };
        [front, lists.octets()].concat()
    }
}

/// Chunk lists.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// Segments of Read chunks with their Positions.
    pub reads: Vec<(u32, Segment)>,
    /// Write chunks.
    pub writes: Vec<Vec<Segment>>,
    /// The Reply chunk.
    pub reply: Option<Vec<Segment>>,
}

fn segment(segment: &Segment) -> Vec<u8> {
    words(&[segment.handle, segment.length, (segment.offset >> 32) as u32, segment.offset as u32])
}

fn chunk(segments: &[Segment]) -> Vec<u8> {
    [words(&[segments.len() as u32]), segments.iter().flat_map(segment).collect()].concat()
}

impl Lists {
    pub fn writes(writes: &[&[Segment]]) -> Self {
        Self { writes: writes.iter().map(|chunk| chunk.to_vec()).collect(), ..Self::default() }
    }

    pub fn reads(reads: &[(u32, Segment)]) -> Self {
        Self { reads: reads.to_vec(), ..Self::default() }
    }

    pub fn with_reply(self, segment: Segment) -> Self {
        Self { reply: Some(vec![segment]), ..self }
    }

    fn octets(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        for (position, read) in &self.reads {
            octets.extend(words(&[1, *position]));
            octets.extend(segment(read));
        }
        octets.extend(words(&[0]));
        for write in &self.writes {
            octets.extend(words(&[1]));
            octets.extend(chunk(write));
        }
        octets.extend(words(&[0]));
        match &self.reply {
            Some(reply) => octets.extend([words(&[1]), chunk(reply)].concat()),
            None => octets.extend(words(&[0])),
        }
        octets
    }
}

/// A segment as a reply repeats it: its length is the number of bytes written to it.
pub fn filled(segment: Segment, octets: u32) -> Segment {
    Segment { length: octets, ..segment }
}

/// A connection.
pub struct Wire {
    pub version: Version,
    /// The credits that the server grants.
    pub credits: u32,
    qp: Connected,
    heard: VecDeque<Bytes>,
    fenced: Vec<(u32, Lent)>,
    closed: bool,
    tokens: u64,
}

impl Wire {
    /// Connects, with these private data: format 1, no remote invalidation, Sends and receives of 4 KiB. In version 2
    /// an exchange of properties follows, which changes nothing.
    pub async fn connect(world: &World, from: IpAddr, to: SocketAddr, version: Version, credits: u32) -> Self {
        let receives = (0..128).map(|_| Buffer::from_vec(vec![0; RECEIVE_BYTES])).collect();
        let private_data = Bytes::from_static(&[0xF6, 0xAB, 0x0E, 0x18, 1, 0, 3, 3]);
        let params = ConnectionParams { private_data, ird: 4, ord: 4, receives: Receives::Own(receives) };
        let qp = world.fabric(from).connect(to, params).await.unwrap();
        let mut wire =
            Self { version, credits, qp, heard: VecDeque::new(), fenced: Vec::new(), closed: false, tokens: 0 };
        if version == Version::Two {
            wire.say(words(&[EXCHANGE, 2, 0x0020_0020, 5, 0, 0])).await;
            let answer = wire.hear().await;
            assert_eq!((&answer[4..8], &answer[12..16]), (&[0, 0, 0, 2][..], &[0, 0, 0, 5][..]), "properties");
        }
        wire
    }

    /// The word in which the server grants credits: in version 1 all of them; in version 2 one more, with all of them
    /// as the ceiling.
    pub fn granted(&self) -> u32 {
        match self.version {
            Version::One => self.credits,
            Version::Two => self.credits << 16 | 1,
        }
    }

    /// The header of a reply.
    pub fn reply(&self, xid: u32, long: bool, lists: &Lists) -> Vec<u8> {
        let kind = u32::from(long);
        let front = match self.version {
            Version::One => words(&[xid, 1, self.granted(), kind]),
            Version::Two => words(&[xid, 2, self.granted(), kind, 1, 0]),
        };
        [front, lists.octets()].concat()
    }

    /// An error message; version 1 has one error for all cases (`ERR_CHUNK`).
    pub fn error(&self, xid: u32, refusal: Refusal) -> Vec<u8> {
        if self.version == Version::One {
            return words(&[xid, 1, self.granted(), 4, 2]);
        }
        let rest: &[u32] = match refusal {
            Refusal::BadXdr => &[2],
            Refusal::ReadChunks(most) => &[6, most],
            Refusal::WriteChunks(most) => &[7, most],
            Refusal::WriteResource(chunk, needed) => &[9, chunk, needed],
            Refusal::System => &[100],
        };
        [words(&[xid, 2, self.granted(), 4, 1]), words(rest)].concat()
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    fn took(&mut self, completion: Completion) {
        match completion {
            Completion::Received { buffer, .. } => {
                let _ = self.qp.post_receive(Buffer::from_vec(vec![0; RECEIVE_BYTES]));
                self.heard.push_back(buffer.freeze());
            }
            Completion::Fenced { handle, memory, .. } => self.fenced.push((handle, memory)),
            Completion::Closed { .. } => self.closed = true,
            _ => {}
        }
    }

    async fn wait(&mut self) {
        assert!(!self.closed, "the server has ended the connection");
        let completion = poll_fn(|cx| self.qp.poll(cx)).await;
        self.took(completion);
    }

    /// Sends a message.
    pub async fn say(&mut self, octets: Vec<u8>) {
        assert!(octets.len() <= RECEIVE_BYTES, "{} bytes", octets.len());
        let send = SendWork { token: self.token(), octets: vec![octets.into()].into(), ..SendWork::default() };
        self.qp.post_send(send).unwrap();
        // A queue pair sends nothing unless it is polled.
        poll_fn(|cx| {
            while !self.closed
                && let std::task::Poll::Ready(completion) = self.qp.poll(cx)
            {
                self.took(completion);
            }
            std::task::Poll::Ready(())
        })
        .await;
    }

    /// Waits until the server has ended the connection, without a further message.
    pub async fn ends(&mut self) {
        while !self.closed {
            self.wait().await;
        }
        assert!(self.heard.is_empty());
    }

    /// The next message.
    pub async fn hear(&mut self) -> Bytes {
        loop {
            if let Some(message) = self.heard.pop_front() {
                return message;
            }
            self.wait().await;
        }
    }

    /// Lends memory for results.
    pub fn sink(&mut self, octets: usize) -> Segment {
        let token = self.token();
        self.qp.expose(token, Lent::Sink(Buffer::from_vec(vec![BLANK; octets]))).unwrap()
    }

    /// Lends arguments.
    pub fn source(&mut self, octets: &[u8]) -> Segment {
        let token = self.token();
        self.qp.expose(token, Lent::Source(Bytes::copy_from_slice(octets))).unwrap()
    }

    /// Takes memory back, and returns its contents.
    pub async fn take(&mut self, segment: Segment) -> Vec<u8> {
        self.qp.invalidate(segment.handle);
        loop {
            if let Some(at) = self.fenced.iter().position(|(handle, _)| *handle == segment.handle) {
                return match self.fenced.remove(at).1 {
                    Lent::Source(octets) => octets.to_vec(),
                    Lent::Sink(mut buffer) => buffer.bytes_mut().to_vec(),
                };
            }
            self.wait().await;
        }
    }

    /// Takes memory back; the server must have written exactly these bytes to its beginning.
    pub async fn has(&mut self, segment: Segment, octets: &[u8]) {
        let memory = self.take(segment).await;
        assert_eq!(memory[..octets.len()], *octets);
        assert!(memory[octets.len()..].iter().all(|octet| *octet == BLANK), "nothing behind it was written");
    }
}
