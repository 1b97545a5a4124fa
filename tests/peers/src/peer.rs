//! A peer that sends over a TCP socket whatever the test wants, and reads the answers strictly.

use crate::wire::{
    self, CRC, ENHANCED, PRIVATE_DATA, READ_REQUEST, READ_RESPONSE, SEND, SEND_INVALIDATE, TERMINATE, Tagged, Untagged,
    WRITE,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

/// How long we wait for an answer; it usually comes within milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes in one frame of the server.
const MAX_ULPDU_OCTETS: usize = 65_535;

/// What the server sends.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A whole Send, and the handle that it invalidates.
    Send { payload: Vec<u8>, invalidates: Option<u32> },
    /// A segment of an RDMA Write.
    Write { stag: u32, offset: u64, octets: Vec<u8> },
    /// A request to read our memory.
    ReadRequest(Asked),
    /// A segment of the response to our RDMA Read.
    ReadResponse { stag: u32, octets: usize, last: bool },
    /// A Terminate, with its layer, type and code.
    Terminate(u8, u8, u8),
    /// The end of the connection.
    Closed,
}

/// An RDMA Read Request of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub sink: u32,
    pub sink_offset: u64,
    pub size: u32,
    pub source: u32,
    pub source_offset: u64,
}

/// An established connection.
pub struct Peer {
    pub stream: TcpStream,
    /// The number of our next Send.
    pub msn: u32,
    /// How many Read Requests of the server we have answered.
    pub answered: usize,
    heard: [u32; 3],
    arriving: Vec<u8>,
}

/// A new TCP connection, without any bytes.
pub fn dial(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads the remaining bytes until the server ends the connection. A reset is an end, too.
pub fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return all,
            Ok(octets) => all.extend(&buffer[..octets]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("the server does not end the connection: {error}"),
        }
    }
}

impl Peer {
    /// Connects as a decent client does.
    pub fn connect(address: &str) -> Self {
        Self::connect_with(address, 16, 16)
    }

    /// Connects with these depths of RDMA Reads.
    pub fn connect_with(address: &str, ird: u16, ord: u16) -> Self {
        Self::over(dial(address), ird, ord)
    }

    /// Connects over a new TCP connection.
    pub fn over(mut stream: TcpStream, ird: u16, ord: u16) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let request = wire::request(CRC | ENHANCED, 2, &wire::enhanced(ird, ord, &PRIVATE_DATA));
        stream.write_all(&request).unwrap();
        let (flags, private) = read_reply(&mut stream).expect("a reply");
        assert_eq!(flags, CRC | ENHANCED);
        assert!(private.len() >= 4 + 8 && private[4..8] == PRIVATE_DATA[..4], "{private:02x?}");
        Self { stream, msn: 1, answered: 0, heard: [0; 3], arriving: Vec::new() }
    }

    /// Sends bytes as they are. It is no failure if the server has already closed: its last bytes are read afterwards.
    pub fn raw(&mut self, octets: &[u8]) {
        match self.stream.write_all(octets) {
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            result => result.unwrap(),
        }
    }

    /// The frame of the next Send.
    pub fn next_send(&mut self, payload: &[u8]) -> Vec<u8> {
        let msn = self.msn;
        self.msn += 1;
        Untagged::new(SEND, msn).fpdu(payload)
    }

    /// Sends a message.
    pub fn send(&mut self, payload: &[u8]) {
        let fpdu = self.next_send(payload);
        self.raw(&fpdu);
    }

    /// Answers a Read Request with these bytes, in segments that fit.
    pub fn respond(&mut self, asked: &Asked, octets: &[u8]) {
        let mut at = 0;
        loop {
            let len = (octets.len() - at).min(32 << 10);
            let last = at + len == octets.len();
            let header = Tagged { last, ..Tagged::new(READ_RESPONSE, asked.sink, asked.sink_offset + at as u64) };
            let fpdu = header.fpdu(&octets[at..at + len]);
            self.raw(&fpdu);
            at += len;
            if last {
                return;
            }
        }
    }

    /// The next thing that the server sends.
    pub fn hear(&mut self) -> Heard {
        loop {
            if let Some(heard) = self.frame() {
                return heard;
            }
        }
    }

    /// Reads one frame and checks all that can be checked of it.
    fn frame(&mut self) -> Option<Heard> {
        let mut head = [0; 2];
        if !self.fill(&mut head, true) {
            return Some(Heard::Closed);
        }
        let len = usize::from(u16::from_be_bytes(head));
        assert!((14..=MAX_ULPDU_OCTETS).contains(&len));
        let mut frame = head.to_vec();
        frame.resize((2 + len).next_multiple_of(4) + 4, 0);
        if !self.fill(&mut frame[2..], false) {
            return Some(Heard::Closed);
        }
        let (body, crc) = frame.split_last_chunk::<4>().unwrap();
        assert_eq!(u32::from_le_bytes(*crc), wire::crc32c(body), "the server's CRC");
        let (ddp, rdmap, rest) = (body[2], body[3], &body[4..2 + len]);
        assert_eq!((ddp & 0x03, rdmap >> 6), (1, 1), "versions");
        let (tagged, last, opcode) = (ddp & 0x80 != 0, ddp & 0x40 != 0, rdmap & 0x0F);
        if tagged {
            let stag = u32::from_be_bytes(rest[..4].try_into().unwrap());
            let offset = u64::from_be_bytes(rest[4..12].try_into().unwrap());
            let octets = rest[12..].to_vec();
            return Some(match opcode {
                WRITE => Heard::Write { stag, offset, octets },
                READ_RESPONSE => Heard::ReadResponse { stag, octets: octets.len(), last },
                _ => panic!("a tagged segment with operation {opcode}"),
            });
        }
        let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        let (invalidate, queue, msn, offset, payload) = (word(0), word(4), word(8), word(12), &rest[16..]);
        let numbered = &mut self.heard[queue as usize];
        assert_eq!(msn, *numbered + 1, "the message's number on queue {queue}");
        if last {
            *numbered += 1;
        }
        match (opcode, queue) {
            (SEND | SEND_INVALIDATE, 0) => {
                assert_eq!(offset as usize, self.arriving.len());
                self.arriving.extend(payload);
                let invalidates = (opcode == SEND_INVALIDATE).then_some(invalidate);
                last.then(|| Heard::Send { payload: std::mem::take(&mut self.arriving), invalidates })
            }
            (READ_REQUEST, 1) => {
                assert_eq!((payload.len(), last, offset), (28, true, 0));
                let long = |at: usize| u64::from_be_bytes(payload[at..at + 8].try_into().unwrap());
                let word = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
                Some(Heard::ReadRequest(Asked {
                    sink: word(0),
                    sink_offset: long(4),
                    size: word(12),
                    source: word(16),
                    source_offset: long(20),
                }))
            }
            (TERMINATE, 2) => {
                assert!(payload.len() >= 4 && last, "{payload:02x?}");
                Some(Heard::Terminate(payload[0] >> 4, payload[0] & 0x0F, payload[1]))
            }
            _ => panic!("operation {opcode} on queue {queue}"),
        }
    }

    /// Fills a buffer. Returns false if the connection has ended; with `clean`, it may end only before the first byte.
    fn fill(&mut self, out: &mut [u8], clean: bool) -> bool {
        let mut have = 0;
        while have < out.len() {
            match self.stream.read(&mut out[have..]) {
                Ok(0) => {
                    assert!(!clean || have == 0, "the connection ends within a frame");
                    return false;
                }
                Ok(octets) => have += octets,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
                Err(error) => panic!("the server says nothing: {error}"),
            }
        }
        true
    }

    /// The next Send, answering Reads with zeros and taking Writes on the way.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.hear() {
                Heard::Send { payload, .. } => return Some(payload),
                Heard::ReadRequest(asked) => {
                    let zeros = vec![0; asked.size as usize];
                    self.respond(&asked, &zeros);
                    self.answered += 1;
                }
                Heard::Write { .. } => {}
                Heard::Closed => return None,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Fails unless the server sends this Terminate and then ends the connection; answers may come before.
    pub fn terminated(mut self, what: &str, layer: u8, etype: u8, code: u8) {
        loop {
            match self.hear() {
                Heard::Terminate(l, t, c) => {
                    assert_eq!((l, t, c), (layer, etype, code), "{what}");
                    assert_eq!(self.hear(), Heard::Closed, "{what}: nothing follows a Terminate");
                    return;
                }
                Heard::Closed => panic!("{what}: closed without a Terminate"),
                _ => {}
            }
        }
    }

    /// Ends our direction, and reads until the end. Returns how many Sends came.
    pub fn finish(mut self) -> usize {
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut sends = 0;
        loop {
            match self.hear() {
                Heard::Closed => return sends,
                Heard::Send { .. } => sends += 1,
                _ => {}
            }
        }
    }
}

/// Reads the server's set-up reply: flags and private data. `None` if it closes instead.
pub fn read_reply(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 20];
    match stream.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return None,
        Err(error) => panic!("no reply and no end: {error}"),
    }
    assert_eq!(&head[..16], b"MPA ID Rep Frame");
    let mut private = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
    stream.read_exact(&mut private).unwrap();
    Some((head[16], private))
}
