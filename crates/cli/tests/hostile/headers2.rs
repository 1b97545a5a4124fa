//! Messages of version 2, built and read according to the draft; and a peer that speaks it.

use crate::{
    peer::Peer,
    rpc::{self, Header, NFS, Status, Xdr, call, status, word},
    stage::Stage,
};

/// Header types.
const MSG: u32 = 0;
const NOMSG: u32 = 1;
pub(crate) const ERROR: u32 = 4;
const CONNPROP: u32 = 5;
/// Flags.
pub(crate) const RESPONSE: u32 = 1;
pub(crate) const MORE: u32 = 2;
pub(crate) const TPMORE: u32 = 4;
/// Errors.
pub(crate) const ERR_VERS: u32 = 1;
pub(crate) const ERR_SYSTEM: u32 = 100;
/// The credits that each of our messages grants: 16 more, 64 at most.
const CREDITS: u32 = 64 << 16 | 16;
const BARRIER_XID: u32 = 0xBA88_1E88;
/// The length of a version error in version 1's layout.
const ERR_VERS_1_BYTES: usize = 28;

pub(crate) fn prefix(xid: u32, kind: u32, flags: u32) -> Xdr {
    Xdr::default().words(&[xid, 2, CREDITS, kind, flags])
}

/// A message with these lists; it may be a part.
pub(crate) fn message(header: &Header, xid: u32, flags: u32, stream: &[u8]) -> Vec<u8> {
    let mut message = prefix(xid, if header.long { NOMSG } else { MSG }, flags).u32(0).0;
    message.extend(header.lists().0);
    if !header.long {
        message.extend(stream);
    }
    message
}

/// A call that travels inline.
pub(crate) fn inline(stream: &[u8]) -> Vec<u8> {
    message(&Header::default(), word(stream, 0), 0, stream)
}

/// Properties: codes and their bytes.
pub(crate) fn properties(flags: u32, list: &[(u32, &[u8])]) -> Vec<u8> {
    let begin = prefix(0x0C0F_FEE0, CONNPROP, flags).u32(list.len() as u32);
    list.iter().fold(begin, |xdr, (code, octets)| xdr.u32(*code).opaque(octets)).0
}

/// A message of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// An RPC reply, from its XID on.
    Rpc(Vec<u8>),
    /// The reply went into the Reply chunk.
    Long(u32),
    /// An error and its first two words.
    Error {
        xid: u32,
        code: u32,
        fields: [u32; 2],
    },
    /// A version error, in version 1's layout.
    ErrorOf1 {
        xid: u32,
        version: u32,
        low: u32,
        high: u32,
    },
    Properties,
    Grant,
}

impl Said {
    pub(crate) fn read(message: &[u8]) -> Self {
        let (xid, kind) = (word(message, 0), word(message, 12));
        let field = |at: usize| if message.len() >= at + 4 { word(message, at) } else { 0 };
        if kind == ERROR && message.len() == ERR_VERS_1_BYTES && field(16) == ERR_VERS && field(20) <= 2 {
            return Said::ErrorOf1 { xid, version: word(message, 4), low: field(20), high: field(24) };
        }
        // A version error may repeat the version of the message that it answers.
        let repeats = kind == ERROR && field(20) == ERR_VERS;
        assert!(word(message, 4) == 2 || repeats, "{message:02x?}");
        let (granted, most) = (word(message, 8) & 0xFFFF, word(message, 8) >> 16);
        assert!(granted > 0 && most >= granted, "{message:02x?}");
        match kind {
            ERROR => Said::Error { xid, code: field(20), fields: [field(24), field(28)] },
            CONNPROP => Said::Properties,
            NOMSG if xid == 0 && message.len() == 36 => Said::Grant,
            NOMSG => Said::Long(xid),
            MSG => {
                assert_eq!(word(message, 16), RESPONSE, "a whole reply: {message:02x?}");
                let mut at = 24;
                while word(message, at) == 1 {
                    at += 24;
                }
                at += 4;
                while word(message, at) == 1 {
                    at += 8 + 16 * word(message, at + 4) as usize;
                }
                at += 4;
                at += if word(message, at) == 1 { 8 + 16 * word(message, at + 4) as usize } else { 4 };
                assert_eq!(word(message, at), xid);
                Said::Rpc(message[at..].to_vec())
            }
            other => panic!("{other}: {message:02x?}"),
        }
    }

    pub(crate) fn xid(&self) -> Option<u32> {
        match self {
            Said::Rpc(octets) => Some(word(octets, 0)),
            Said::Long(xid) | Said::Error { xid, .. } | Said::ErrorOf1 { xid, .. } => Some(*xid),
            Said::Properties | Said::Grant => None,
        }
    }
}

/// A connection in version 2. The server has announced its properties, and waits for more of ours.
pub(crate) fn settled(stage: &Stage) -> Peer {
    let mut peer = Peer::connect(&stage.server.rdma);
    peer.send(&properties(TPMORE, &[]));
    assert_eq!(Said::read(&peer.message().expect("an answer")), Said::Properties);
    peer
}

/// Proves with a barrier, a NULL call, that the connection works. Returns all messages with an XID before the barrier's
/// answer.
pub(crate) fn until_barrier(peer: &mut Peer, what: &str) -> Vec<Said> {
    let mut heard = Vec::new();
    loop {
        let answered = peer.answered;
        peer.send(&inline(&rpc::null(BARRIER_XID)));
        loop {
            let said = Said::read(&peer.message().unwrap_or_else(|| panic!("{what}: the connection has ended")));
            match said.xid() {
                Some(BARRIER_XID) => break,
                Some(_) => heard.push(said),
                None => {}
            }
        }
        // A call with Read chunks may be answered after the barrier, but not after the next one.
        if answered == peer.answered {
            return heard;
        }
    }
}

/// The next message with an XID.
pub(crate) fn next(peer: &mut Peer) -> Said {
    loop {
        let said = Said::read(&peer.message().expect("the connection stands"));
        if said.xid().is_some() {
            return said;
        }
    }
}

/// Fails unless the NULL call is answered in this version.
pub(crate) fn assert_answered(peer: &mut Peer, version: u32) {
    if version == 1 {
        let rpc::Reply::Rpc(reply) = rpc::Reply::read(&peer.message().unwrap()) else { panic!() };
        return assert_eq!(status(&reply), Status::Success(Vec::new()));
    }
    let Said::Rpc(reply) = next(peer) else { panic!() };
    assert_eq!(status(&reply), Status::Success(Vec::new()));
}

/// Messages that a decent client of version 2 sends, read-only or harmless; the last ones are a call in two parts.
pub(crate) fn decent(root: &[u8], file: &[u8]) -> Vec<Vec<u8>> {
    let args = |procedure: u32, args: Xdr| [call(5, NFS, 3, procedure).0, args.0].concat();
    let handle = |handle: &[u8]| Xdr::default().opaque(handle);
    let read = args(6, handle(file).u64(0).u32(3000));
    let write = rpc::write_call(5, file, 64).0;
    let readdir = args(17, handle(root).u64(0).u64(0).u32(4096).u32(8192));
    let mut messages: Vec<Vec<u8>> =
        [rpc::null(5), args(1, handle(root)), args(3, handle(root).opaque(b"out")), readdir.clone(), read.clone()]
            .iter()
            .map(|stream| inline(stream))
            .collect();
    let lists = Header { reads: vec![(write.len() as u32, (7, 64, 0))], ..Header::default() };
    messages.push(message(&lists, 5, 0, &write));
    let lists =
        Header { writes: vec![vec![(7, 2000, 0), (8, 2000, 64)]], reply: Some(vec![(9, 600, 0)]), ..Header::default() };
    messages.push(message(&lists, 5, 0, &read));
    let lists = Header { reads: vec![(0, (7, readdir.len() as u32, 0))], long: true, ..Header::default() };
    messages.push(message(&lists, 5, 0, &[]));
    messages.push(message(&Header { long: true, ..Header::default() }, 0, 0, &[]));
    messages.push(prefix(9, ERROR, RESPONSE).words(&[2]).0);
    messages.push(properties(0, &[(1, &8192_u32.to_be_bytes()), (2, &4096_u32.to_be_bytes()), (99, &[1, 2, 3])]));
    messages.push(properties(TPMORE, &[(3, &65_536_u32.to_be_bytes()), (4, &[]), (5, &1_u32.to_be_bytes())]));
    let (head, rest) = readdir.split_at(readdir.len() / 8 * 4);
    messages.push(message(&Header::default(), 5, MORE, head));
    messages.push(message(&Header::default(), 5, 0, rest));
    messages
}
