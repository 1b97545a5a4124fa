//! RPC calls, transport headers of version 1 and records on TCP, written from RFC 5531, 8166 and 1813.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;

/// Appends words, opaques and strings.
#[derive(Clone, Default)]
pub struct Xdr(pub Vec<u8>);

impl Xdr {
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn words(self, values: &[u32]) -> Self {
        values.iter().fold(self, |xdr, &value| xdr.u32(value))
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn opaque(self, octets: &[u8]) -> Self {
        self.u32(octets.len() as u32).raw(octets)
    }

    /// Bytes and their padding, without a length.
    pub fn raw(mut self, octets: &[u8]) -> Self {
        self.0.extend(octets);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// A call's header up to the arguments, with the credential of an ordinary user.
pub fn call(xid: u32, program: u32, version: u32, procedure: u32) -> Xdr {
    let user = Xdr::default().u32(0).opaque(b"hostile").words(&[1000, 1000, 0]).0;
    call_as(xid, program, version, procedure, 1, &user)
}

/// With another credential.
pub fn call_as(xid: u32, program: u32, version: u32, procedure: u32, flavour: u32, body: &[u8]) -> Xdr {
    Xdr::default().words(&[xid, 0, 2, program, version, procedure, flavour]).opaque(body).words(&[0, 0])
}

/// NULL of NFS.
pub fn null(xid: u32) -> Vec<u8> {
    call(xid, NFS, 3, 0).0
}

/// A WRITE up to its data.
pub fn write_call(xid: u32, file: &[u8], count: u32) -> Xdr {
    let mut stream = call(xid, NFS, 3, 7);
    stream.0.extend(Xdr::default().opaque(file).u64(0).words(&[count, 0, count]).0);
    stream
}

/// A segment: handle, length, offset.
pub type Segment = (u32, u32, u64);

/// The contents of a transport header.
#[derive(Clone, Default)]
pub struct Header {
    pub reads: Vec<(u32, Segment)>,
    pub writes: Vec<Vec<Segment>>,
    pub reply: Option<Vec<Segment>>,
    /// RDMA_NOMSG.
    pub long: bool,
}

impl Header {
    /// The message. A long message has nothing after the header.
    pub fn message(&self, xid: u32, stream: &[u8]) -> Vec<u8> {
        let mut message = Xdr::default().words(&[xid, 1, 32, u32::from(self.long)]).0;
        message.extend(self.lists().0);
        if !self.long {
            message.extend(stream);
        }
        message
    }

    /// The three lists, which are the same in both versions.
    pub fn lists(&self) -> Xdr {
        let segment = |xdr: Xdr, &(handle, length, offset): &Segment| xdr.words(&[handle, length]).u64(offset);
        let chunk = |xdr: Xdr, chunk: &Vec<Segment>| chunk.iter().fold(xdr.u32(chunk.len() as u32), segment);
        let mut xdr = Xdr::default();
        for (position, read) in &self.reads {
            xdr = segment(xdr.words(&[1, *position]), read);
        }
        xdr = xdr.u32(0);
        for write in &self.writes {
            xdr = chunk(xdr.u32(1), write);
        }
        xdr = xdr.u32(0);
        match &self.reply {
            Some(reply) => chunk(xdr.u32(1), reply),
            None => xdr.u32(0),
        }
    }
}

/// A call that travels inline.
pub fn inline(stream: &[u8]) -> Vec<u8> {
    Header::default().message(word(stream, 0), stream)
}

/// The word at a byte offset.
pub fn word(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().unwrap())
}

/// The server's answer to a message, at the level of the transport.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// An RPC reply, from its XID on.
    Rpc(Vec<u8>),
    /// The reply went into the Reply chunk.
    Long(u32),
    ErrVers {
        xid: u32,
        low: u32,
        high: u32,
    },
    ErrChunk {
        xid: u32,
    },
}

impl Reply {
    /// Reads a message of the server.
    pub fn read(message: &[u8]) -> Self {
        let xid = word(message, 0);
        assert_ne!(word(message, 8), 0, "credits are never zero");
        match (word(message, 12), message.get(16..20).map(|_| word(message, 16))) {
            (4, Some(1)) => Reply::ErrVers { xid, low: word(message, 20), high: word(message, 24) },
            (4, Some(2)) => Reply::ErrChunk { xid },
            (1, _) => Reply::Long(xid),
            (0, Some(0)) => {
                let mut at = 20;
                while word(message, at) == 1 {
                    at += 8 + 16 * word(message, at + 4) as usize;
                }
                at += 4;
                at += if word(message, at) == 1 { 8 + 16 * word(message, at + 4) as usize } else { 4 };
                assert_eq!(word(message, at), xid);
                Reply::Rpc(message[at..].to_vec())
            }
            other => panic!("{other:?}: {message:02x?}"),
        }
    }

    pub fn xid(&self) -> u32 {
        match self {
            Reply::Rpc(octets) => word(octets, 0),
            Reply::Long(xid) | Reply::ErrVers { xid, .. } | Reply::ErrChunk { xid } => *xid,
        }
    }
}

/// How a call was answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Status {
    Success(Vec<u8>),
    ProgUnavail,
    ProgMismatch(u32, u32),
    ProcUnavail,
    GarbageArgs,
    SystemErr,
    RpcMismatch(u32, u32),
    AuthError(u32),
}

/// Reads a reply.
pub fn status(reply: &[u8]) -> Status {
    let at = |index: usize| word(reply, 4 * index);
    assert_eq!(at(1), 1, "it is a reply");
    if at(2) == 1 {
        return if at(3) == 0 { Status::RpcMismatch(at(4), at(5)) } else { Status::AuthError(at(4)) };
    }
    assert_eq!((at(2), at(3), at(4)), (0, 0, 0), "accepted, AUTH_NONE");
    match at(5) {
        0 => Status::Success(reply[24..].to_vec()),
        1 => Status::ProgUnavail,
        2 => Status::ProgMismatch(at(6), at(7)),
        3 => Status::ProcUnavail,
        4 => Status::GarbageArgs,
        5 => Status::SystemErr,
        other => panic!("accept_stat {other}"),
    }
}

/// Sends a record of one fragment.
pub fn send_record(stream: &mut TcpStream, message: &[u8]) {
    let mut record = (0x8000_0000 | message.len() as u32).to_be_bytes().to_vec();
    record.extend(message);
    stream.write_all(&record).unwrap();
}

/// The next record. `None` if the server has ended the connection.
pub fn read_record(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        let mut head = [0; 4];
        match stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return None,
            Err(error) => panic!("no record: {error}"),
        }
        let head = u32::from_be_bytes(head);
        let mut fragment = vec![0; (head & 0x7FFF_FFFF) as usize];
        stream.read_exact(&mut fragment).unwrap();
        message.extend(fragment);
        if head >> 31 == 1 {
            return Some(message);
        }
    }
}
