//! The protocol of strangers: either version, as far as a client with one call at a time needs it.

use bytes::Bytes;
use rpcrdma_wire::{
    chunk::Lists,
    v1,
    v2::{self, Chunks, Credits, Property, PropertySet},
};

/// Bytes of the largest message, and of a receive.
pub(super) const INLINE_BYTES: u32 = 4096;
/// How many receives are posted: more than twice the granted credits.
pub(super) const RECEIVES: usize = 36;
/// Version 2: messages that the server may have under way.
const CEILING: u16 = 16;
/// Version 2: after so many messages the stranger sends a separate grant.
const GRANT_AFTER: u16 = CEILING / 2;

/// A conversation.
pub(super) struct Talk {
    version: u32,
    /// Version 2: messages that the server allows.
    credits: u16,
    /// Version 2: received messages for which no new credit has been granted yet.
    taken: u16,
    /// Version 2: the parts of a reply that have arrived.
    parts: Vec<u8>,
}

/// A reply.
pub(super) struct Reply {
    pub(super) lists: Lists,
    /// Whether its stream is in the Reply chunk.
    pub(super) long: bool,
    pub(super) stream: Vec<u8>,
}

/// What a message means while a reply is awaited.
pub(super) enum Heard {
    /// Nothing yet.
    Nothing,
    /// The reply.
    Reply(Reply),
    /// The server's transport refuses the call.
    Refused,
    /// These bytes are no valid message.
    Noise(String),
}

impl Talk {
    pub(super) fn new(version: u32) -> Self {
        Self { version, credits: 1, taken: 0, parts: Vec::new() }
    }

    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// The message that has to be sent before any other, if any.
    pub(super) fn opening(&mut self, xid: u32) -> Option<Bytes> {
        if self.version != v2::VERSION {
            return None;
        }
        self.credits -= 1;
        let properties = vec![Property::SendSize(INLINE_BYTES), Property::ReceiveSize(INLINE_BYTES)];
        let credits = Credits::new(CEILING, CEILING);
        Some(v2::Header::connprop(xid, credits, false, PropertySet(properties)).to_bytes())
    }

    /// Whether a call can be sent.
    pub(super) fn may_call(&self) -> bool {
        self.credits > 0
    }

    /// A call, with all of it in chunks if `long`. The server may invalidate `handle`, if it is not zero.
    pub(super) fn call(&mut self, xid: u32, lists: Lists, handle: u32, inline: Option<&[u8]>) -> Bytes {
        let header = if self.version == v2::VERSION {
            self.credits -= 1;
            self.parts.clear();
            let credits = self.grants();
            let chunks = Chunks { inv_handle: handle, lists };
            match inline {
                Some(_) => v2::Header::msg(xid, credits, false, false, chunks).to_bytes(),
                None => v2::Header::nomsg(xid, credits, false, chunks).to_bytes(),
            }
        } else {
            let body = if inline.is_some() { v1::Body::Msg(lists) } else { v1::Body::Nomsg(lists) };
            v1::Header::new(xid, 1, body).to_bytes()
        };
        [&header, inline.unwrap_or_default()].concat().into()
    }

    /// One credit for each message that has come since, and at least one.
    fn grants(&mut self) -> Credits {
        Credits::new(std::mem::take(&mut self.taken).max(1), CEILING)
    }

    /// A grant that cannot wait for the next call.
    pub(super) fn grant(&mut self) -> Option<Bytes> {
        (self.taken >= GRANT_AFTER).then(|| v2::Header::grant(self.grants()).to_bytes())
    }

    /// Takes a message while the reply to `xid` is awaited.
    pub(super) fn heard(&mut self, message: &Bytes, xid: u32) -> Heard {
        if self.version == v2::VERSION { self.heard_two(message, xid) } else { heard_one(message, xid) }
    }

    fn heard_two(&mut self, message: &Bytes, xid: u32) -> Heard {
        let (header, at) = match v2::Header::decode_piece(message) {
            Ok(decoded) => decoded,
            Err(error) => return Heard::Noise(error.to_string()),
        };
        self.credits = self.credits.saturating_add(header.credits.granted).min(header.credits.maximum.max(1));
        self.taken += u16::from(!header.is_grant());
        match header.body {
            v2::Body::Error(_) if header.xid == xid => Heard::Refused,
            v2::Body::Msg(chunks) if header.xid == xid && header.flags.response => {
                self.parts.extend_from_slice(&message[at..]);
                if header.flags.more {
                    return Heard::Nothing;
                }
                let stream = std::mem::take(&mut self.parts);
                Heard::Reply(Reply { lists: chunks.lists, long: false, stream })
            }
            v2::Body::Nomsg(chunks) if header.xid == xid && header.flags.response => {
                Heard::Reply(Reply { lists: chunks.lists, long: true, stream: Vec::new() })
            }
            _ => Heard::Nothing,
        }
    }
}

fn heard_one(message: &Bytes, xid: u32) -> Heard {
    let (header, at) = match v1::Header::decode(message) {
        Ok(decoded) => decoded,
        Err(error) => return Heard::Noise(error.to_string()),
    };
    if header.xid != xid {
        // The server may call back if a corrupted call has asked for it; the stranger does not answer.
        return Heard::Nothing;
    }
    match header.body {
        v1::Body::Msg(lists) => Heard::Reply(Reply { lists, long: false, stream: message[at..].to_vec() }),
        v1::Body::Nomsg(lists) => Heard::Reply(Reply { lists, long: true, stream: Vec::new() }),
        v1::Body::Error(_) => Heard::Refused,
        other => Heard::Noise(other.procedure().name().to_owned()),
    }
}
