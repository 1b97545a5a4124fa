//! The transport header of version 2 (draft sections 6.1 to 6.3).
//!
//! A prefix of five words (XID, version, credits, header type, flags), then the fields of the header type. Owns the
//! decoded lists; opaque octets share the message's buffer. Decoding stops at the first word that cannot be part of
//! such a header; the error keeps the prefix, which an answer needs.

use super::{Chunks, Credits, ErrorBody, Flags, HeaderError, NO_CHUNKS_OCTETS, PropertyError, PropertySet, VERSION};
use crate::{cursor::Cursor, fixed::put_words, rpc::Direction};
use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_xdr::{DecodeError, UNIT};

/// Octets of the prefix. A receiver discards a shorter message unparsed (draft section 7).
// V2-6.2.2-a, V2-7-a
pub const PREFIX_OCTETS: usize = 20;

/// The header types that the draft defines (table 2).
// V2-6.1-a, V2-6.1-b, V2-6.1-d, V2-6.3-a, V2-8.4-b, V2-B.5-c
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderType {
    /// `RDMA2_MSG` (0): chunk lists, then all or part of an RPC message.
    Msg,
    /// `RDMA2_NOMSG` (1): chunk lists only; without any, a grant of credits.
    Nomsg,
    /// `RDMA2_ERROR` (4).
    Error,
    /// `RDMA2_CONNPROP` (5): transport properties.
    Connprop,
}

impl HeaderType {
    /// The word on the wire.
    pub fn code(self) -> u32 {
        match self {
            HeaderType::Msg => 0,
            HeaderType::Nomsg => 1,
            HeaderType::Error => 4,
            HeaderType::Connprop => 5,
        }
    }

    /// The header type of a word, if the draft defines it.
    pub fn from_code(code: u32) -> Option<Self> {
        [HeaderType::Msg, HeaderType::Nomsg, HeaderType::Error, HeaderType::Connprop]
            .into_iter()
            .find(|header_type| header_type.code() == code)
    }

    /// The name in the draft.
    pub fn name(self) -> &'static str {
        match self {
            HeaderType::Msg => "RDMA2_MSG",
            HeaderType::Nomsg => "RDMA2_NOMSG",
            HeaderType::Error => "RDMA2_ERROR",
            HeaderType::Connprop => "RDMA2_CONNPROP",
        }
    }

    /// Whether a payload may be continued over several messages of this type.
    // V2-6.2.2.2-d, V2-6.2.2.2-n
    pub fn can_continue(self) -> bool {
        matches!(self, HeaderType::Msg | HeaderType::Connprop)
    }
}

/// The words at the beginning of every header.
// V2-6.2.1-a, V2-6.2.2-a
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// `rdma_xid`.
    pub xid: u32,
    /// `rdma_vers`.
    pub version: u32,
    /// `rdma_credit`.
    pub credits: Credits,
    /// `rdma_htype`, known or not.
    pub header_type: u32,
    /// `rdma_flags`, less the reserved bits.
    pub flags: Flags,
}

impl Prefix {
    /// The prefix of a message, whatever its version.
    ///
    /// # Errors
    /// If the message is shorter.
    pub fn decode(message: &[u8]) -> Result<Self, HeaderError> {
        Self::decode_from(&mut Cursor::new(message)).map_err(|_| HeaderError::Short { len: message.len() })
    }

    fn decode_from(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let [xid, version, credit, header_type, flags] = cursor.words()?;
        Ok(Self { xid, version, credits: Credits::from_word(credit), header_type, flags: Flags::from_word(flags) })
    }

    /// Whether this is the prefix of a message that every receiver accepts unless a sequence is under way: a whole RPC
    /// message behind the header of an `RDMA2_MSG` without chunks and without a handle. It begins at
    /// [`NO_CHUNKS_OCTETS`]. Any other message is for [`judge_after`](super::judge_after).
    // V2-6.3.1-b, V2-6.2.2.1-e, V2-6.2.2.1-g
    pub fn is_plain(&self, message: &[u8]) -> bool {
        let Some((head, [x0, x1, x2, x3, d0, d1, d2, d3, ..])) = message.split_first_chunk::<NO_CHUNKS_OCTETS>() else {
            return false;
        };
        let direction = if self.flags.response { Direction::Reply } else { Direction::Call };
        self.version == VERSION
            && self.header_type == HeaderType::Msg.code()
            && self.flags == (Flags { more: false, tpmore: false, ..self.flags })
            && head[PREFIX_OCTETS..] == [0; NO_CHUNKS_OCTETS - PREFIX_OCTETS]
            && [*x0, *x1, *x2, *x3] == self.xid.to_be_bytes()
            && [*d0, *d1, *d2, *d3] == direction.word().to_be_bytes()
    }

    /// The prefix of [`Header::msg`] if the payload is in the message, and of [`Header::nomsg`] if not.
    // V2-6.2.2.1-a
    pub fn rpc(xid: u32, credits: Credits, response: bool, more: bool, inline: bool) -> Self {
        let header_type = if inline { HeaderType::Msg } else { HeaderType::Nomsg };
        let flags = Flags { response, more, tpmore: false };
        Self { xid, version: VERSION, credits, header_type: header_type.code(), flags }
    }

    /// Appends the header of an RPC message that has this prefix and these chunks.
    pub fn encode_with(&self, chunks: &Chunks, out: &mut impl BufMut) {
        if chunks.inv_handle == 0 && chunks.is_empty() {
            // What would follow below as well, in one piece: most messages are like this.
            let [xid, version, credits, header_type, flags] = self.words();
            put_words::<_, NO_CHUNKS_OCTETS>([xid, version, credits, header_type, flags, 0, 0, 0, 0], out);
            return;
        }
        self.encode(out);
        chunks.encode(out);
    }

    fn encode(&self, out: &mut impl BufMut) {
        put_words::<_, PREFIX_OCTETS>(self.words(), out);
    }

    fn words(&self) -> [u32; PREFIX_OCTETS / UNIT] {
        [self.xid, self.version, self.credits.word(), self.header_type, self.flags.word()]
    }

    /// Whether the message is a part of a longer message of this version, and not the last part.
    // V2-6.2.2.2-a, V2-6.2.2.2-d
    pub fn is_continued(&self) -> bool {
        self.version == VERSION
            && self.flags.more
            && HeaderType::from_code(self.header_type).is_some_and(HeaderType::can_continue)
    }

    /// Whether `message`, which has this prefix, grants credits and does nothing else, whatever its XID: as
    /// [`Header::is_grant`], without decoding the lists.
    // V2-6.3.2-g
    pub fn is_grant(&self, message: &[u8]) -> bool {
        let lists = message.get(NO_CHUNKS_OCTETS - 3 * UNIT..NO_CHUNKS_OCTETS);
        self.header_type == HeaderType::Nomsg.code() && lists.is_some_and(|lists| lists.iter().all(|&octet| octet == 0))
    }

    /// The header type's name in the draft, if it has one.
    pub fn type_name(&self) -> Option<&'static str> {
        HeaderType::from_code(self.header_type).map(HeaderType::name)
    }
}

/// The body of a header type that the draft does not define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherBody {
    header_type: u32,
    octets: Bytes,
}

impl OtherBody {
    /// A body of an extension's header type. `None` if the draft defines the code.
    pub fn new(header_type: u32, octets: Bytes) -> Option<Self> {
        HeaderType::from_code(header_type).is_none().then_some(Self { header_type, octets })
    }

    /// The word on the wire.
    pub fn header_type(&self) -> u32 {
        self.header_type
    }

    /// All octets behind the prefix. Only the extension knows where its header ends.
    pub fn octets(&self) -> &Bytes {
        &self.octets
    }
}

/// What follows the prefix.
// V2-6-a, V2-6.3.1-a, V2-6.3.2-a, V2-6.3.4-a, V2-8.5-a
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// `RDMA2_MSG`.
    Msg(Chunks),
    /// `RDMA2_NOMSG`.
    Nomsg(Chunks),
    /// `RDMA2_ERROR`.
    Error(ErrorBody),
    /// `RDMA2_CONNPROP`, complete.
    Connprop(PropertySet),
    /// Part of an `RDMA2_CONNPROP` that several messages carry: octets of an encoded [`PropertySet`].
    ConnpropPiece(Bytes),
    /// A header type that the draft does not define.
    Other(OtherBody),
}

impl Body {
    /// The word on the wire.
    pub fn type_code(&self) -> u32 {
        match self {
            Body::Msg(_) => HeaderType::Msg.code(),
            Body::Nomsg(_) => HeaderType::Nomsg.code(),
            Body::Error(_) => HeaderType::Error.code(),
            Body::Connprop(_) | Body::ConnpropPiece(_) => HeaderType::Connprop.code(),
            Body::Other(other) => other.header_type,
        }
    }

    /// The chunks, where the header type has any.
    pub fn chunks(&self) -> Option<&Chunks> {
        match self {
            Body::Msg(chunks) | Body::Nomsg(chunks) => Some(chunks),
            _ => None,
        }
    }

    /// Whether octets of an RPC message follow the header.
    pub fn has_payload(&self) -> bool {
        matches!(self, Body::Msg(_))
    }

    fn decode(prefix: &Prefix, piece: bool, cursor: &mut Cursor<'_>, message: &Bytes) -> Result<Self, PropertyError> {
        let rest = |cursor: &mut Cursor<'_>| {
            let octets = cursor.skip(cursor.remaining()).map(|range| message.slice(range));
            octets.unwrap_or_default()
        };
        Ok(match HeaderType::from_code(prefix.header_type) {
            Some(HeaderType::Msg) => Body::Msg(Chunks::decode(cursor)?),
            Some(HeaderType::Nomsg) => Body::Nomsg(Chunks::decode(cursor)?),
            Some(HeaderType::Error) => Body::Error(ErrorBody::decode(cursor)?),
            Some(HeaderType::Connprop) if piece || prefix.flags.more => Body::ConnpropPiece(rest(cursor)),
            Some(HeaderType::Connprop) => Body::Connprop(PropertySet::decode_from(cursor, message)?),
            None => Body::Other(OtherBody { header_type: prefix.header_type, octets: rest(cursor) }),
        })
    }
}

/// A transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The XID of the RPC message, or of the property exchange.
    pub xid: u32,
    /// `rdma_vers`: 2, except in an error, which repeats the version of the message that it answers.
    pub version: u32,
    /// Credits for the receiver.
    pub credits: Credits,
    /// The flags.
    pub flags: Flags,
    /// What follows the prefix.
    pub body: Body,
}

impl Header {
    /// A message with payload: a whole RPC message, or with `more` a part of it that is not the last. Chunks belong in
    /// the last part.
    // V2-6.2.2.1-a
    // V2-4.5.1-c, V2-4.5.1-f, V2-4.5.2-c, V2-4.5.2-e, V2-4.5.2-f
    pub fn msg(xid: u32, credits: Credits, response: bool, more: bool, chunks: Chunks) -> Self {
        Self { xid, version: VERSION, credits, flags: Flags { response, more, tpmore: false }, body: Body::Msg(chunks) }
    }

    /// A message whose RPC message is in a chunk.
    // V2-6.3.2-b
    pub fn nomsg(xid: u32, credits: Credits, response: bool, chunks: Chunks) -> Self {
        let flags = Flags { response, ..Flags::default() };
        Self { xid, version: VERSION, credits, flags, body: Body::Nomsg(chunks) }
    }

    /// A grant of credits and nothing else: no chunks, XID zero.
    // V2-6.3.2-c, V2-6.3.2-d
    pub fn grant(credits: Credits) -> Self {
        Self::nomsg(0, credits, false, Chunks::default())
    }

    /// An error about the message with this XID and version.
    // V2-7-b, V2-7-c, V2-7-e, V2-6.2.2.1-d
    pub fn error(xid: u32, version: u32, credits: Credits, error: ErrorBody) -> Self {
        let flags = Flags { response: true, ..Flags::default() };
        Self { xid, version, credits, flags, body: Body::Error(error) }
    }

    /// Transport properties; with `tpmore`, more of them follow in another message.
    // V2-6.2.2.1-f, V2-6.2.2.3-a
    pub fn connprop(xid: u32, credits: Credits, tpmore: bool, properties: PropertySet) -> Self {
        let flags = Flags { tpmore, ..Flags::default() };
        Self { xid, version: VERSION, credits, flags, body: Body::Connprop(properties) }
    }

    /// A part of an encoded property set that one message cannot hold. `more` is set in all but the last; `tpmore` is
    /// as in [`connprop`](Self::connprop), and the same in all.
    // V2-6.2.2.2-n
    pub fn connprop_piece(xid: u32, credits: Credits, more: bool, tpmore: bool, octets: Bytes) -> Self {
        let flags = Flags { response: false, more, tpmore };
        Self { xid, version: VERSION, credits, flags, body: Body::ConnpropPiece(octets) }
    }

    /// A message of an extension's header type.
    // V2-6.2.2.1-c
    pub fn other(xid: u32, credits: Credits, response: bool, body: OtherBody) -> Self {
        let flags = Flags { response, ..Flags::default() };
        Self { xid, version: VERSION, credits, flags, body: Body::Other(body) }
    }

    /// Decodes the header at the beginning of a message that is not a later part of a sequence. Returns it with the
    /// offset of the first octet behind it.
    ///
    /// # Errors
    /// If the message is too short for the prefix, of another version, or malformed.
    pub fn decode(message: &Bytes) -> Result<(Self, usize), HeaderError> {
        Self::decode_after(&Prefix::decode(message)?, message, false)
    }

    /// As [`decode`](Self::decode), for a message that may continue the message before it: properties stay octets.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_piece(message: &Bytes) -> Result<(Self, usize), HeaderError> {
        Self::decode_after(&Prefix::decode(message)?, message, true)
    }

    /// Decodes what follows the prefix; `piece` means that the message may continue the message before it.
    pub(crate) fn decode_after(prefix: &Prefix, message: &Bytes, piece: bool) -> Result<(Self, usize), HeaderError> {
        let prefix = *prefix;
        let mut cursor = Cursor::new(message);
        // The prefix was decoded from this message, so the message is at least so long.
        cursor.skip(PREFIX_OCTETS).ok_or(HeaderError::Short { len: message.len() })?;
        let ours = prefix.version == VERSION;
        // V2-C.1-a
        if !ours && prefix.header_type != HeaderType::Error.code() {
            return Err(HeaderError::Version { prefix });
        }
        match Body::decode(&prefix, piece, &mut cursor, message) {
            // An error about the version repeats a version that the answering end may not know.
            Ok(body) if ours || matches!(body, Body::Error(ErrorBody::Version { .. })) => {
                let Prefix { xid, version, credits, flags, .. } = prefix;
                Ok((Self { xid, version, credits, flags, body }, cursor.position()))
            }
            Ok(_) => Err(HeaderError::Version { prefix }),
            Err(_) if !ours => Err(HeaderError::Version { prefix }),
            Err(PropertyError::Xdr(cause)) => Err(HeaderError::Malformed { prefix, cause }),
            Err(cause) => Err(HeaderError::Property { prefix, cause }),
        }
    }

    /// The header's prefix.
    pub fn prefix(&self) -> Prefix {
        let Self { xid, version, credits, flags, .. } = *self;
        Prefix { xid, version, credits, header_type: self.body.type_code(), flags }
    }

    /// Whether it grants credits and does nothing else, whatever its XID (draft section 6.3.2).
    // V2-6.3.2-c, V2-6.3.2-g
    pub fn is_grant(&self) -> bool {
        matches!(&self.body, Body::Nomsg(chunks) if chunks.is_empty())
    }

    /// Octets of the encoded header.
    pub fn encoded_len(&self) -> usize {
        PREFIX_OCTETS
            + match &self.body {
                Body::Msg(chunks) | Body::Nomsg(chunks) => chunks.encoded_len(),
                Body::Error(error) => error.encoded_len(),
                Body::Connprop(properties) => properties.encoded_len(),
                Body::ConnpropPiece(octets) => octets.len(),
                Body::Other(other) => other.octets.len(),
            }
    }

    /// Appends the encoded header.
    pub fn encode(&self, out: &mut impl BufMut) {
        self.prefix().encode(out);
        match &self.body {
            Body::Msg(chunks) | Body::Nomsg(chunks) => chunks.encode(out),
            Body::Error(error) => error.encode(out),
            Body::Connprop(properties) => properties.encode(out),
            Body::ConnpropPiece(octets) => out.put_slice(octets),
            Body::Other(other) => out.put_slice(&other.octets),
        }
    }

    /// The encoded header.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        self.encode(&mut out);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{Lists, WriteChunk};

    const CREDITS: Credits = Credits { granted: 3, maximum: 9 };

    fn words(header: &Header) -> Vec<u32> {
        header.to_bytes().chunks_exact(4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]])).collect()
    }

    /// proves: V2-6.2.2.1-d, V2-6.2.2.1-f, V2-6.2.2.3-c, V2-6.3.2-d, V2-6.3.4-d, V2-7-b, V2-7-c, V2-7-d, V2-7-e
    /// proves: V2-6.2.4-f, V2-6.2.2-c
    #[test]
    fn headers_are_made_with_the_flags_that_they_must_have() {
        let credits = 0x0009_0003;
        let chunks = || Chunks { inv_handle: 0x77, ..Chunks::default() };
        assert_eq!(words(&Header::msg(5, CREDITS, false, false, chunks())), [5, 2, credits, 0, 0, 0x77, 0, 0, 0]);
        assert_eq!(words(&Header::msg(5, CREDITS, true, true, chunks())), [5, 2, credits, 0, 3, 0x77, 0, 0, 0]);
        assert_eq!(words(&Header::nomsg(5, CREDITS, true, chunks())), [5, 2, credits, 1, 1, 0x77, 0, 0, 0]);
        for (response, more, inline) in [(false, false, true), (true, true, true), (true, false, false)] {
            let header = match inline {
                true => Header::msg(5, CREDITS, response, more, chunks()),
                false => Header::nomsg(5, CREDITS, response, chunks()),
            };
            let mut octets = BytesMut::new();
            Prefix::rpc(5, CREDITS, response, more, inline).encode_with(&chunks(), &mut octets);
            assert_eq!(octets, header.to_bytes(), "from its prefix and its chunks");
        }
        assert_eq!(words(&Header::grant(CREDITS)), [0, 2, credits, 1, 0, 0, 0, 0, 0]);
        assert_eq!(words(&Header::error(5, 3, CREDITS, ErrorBody::BadXdr)), [5, 3, credits, 4, 1, 2]);
        assert_eq!(words(&Header::connprop(5, CREDITS, false, PropertySet::default())), [5, 2, credits, 5, 0, 0]);
        assert_eq!(words(&Header::connprop(5, CREDITS, true, PropertySet::default())), [5, 2, credits, 5, 4, 0]);
        let piece = |more, tpmore| Header::connprop_piece(5, CREDITS, more, tpmore, Bytes::from_static(&[0, 0, 0, 8]));
        assert_eq!(words(&piece(true, true)), [5, 2, credits, 5, 6, 8]);
        assert_eq!(words(&piece(false, false)), [5, 2, credits, 5, 0, 8]);
        let other = |response| Header::other(5, CREDITS, response, OtherBody::new(9, Bytes::new()).unwrap());
        assert_eq!(words(&other(false)), [5, 2, credits, 9, 0]);
        assert_eq!(words(&other(true)), [5, 2, credits, 9, 1]);
        assert!(Header::grant(CREDITS).is_grant());
        let reply = Lists { reply: Some(WriteChunk::default()), ..Lists::default() };
        for other in [Header::nomsg(0, CREDITS, false, reply.into()), piece(false, false), other(false)] {
            assert!(!other.is_grant(), "{other:?}");
        }
    }

    /// proves: V2-6.3.2-g, V2-6.2.2.2-d
    #[test]
    fn the_prefix_and_three_words_show_a_grant_and_the_prefix_alone_a_part() {
        let known = |header: &Header| {
            let message = header.to_bytes();
            let prefix = Prefix::decode(&message).unwrap();
            assert_eq!(prefix.is_grant(&message), header.is_grant(), "{header:?}");
            (prefix.is_grant(&message), prefix.is_continued())
        };
        let lists = || Lists { reply: Some(WriteChunk::default()), ..Lists::default() };
        assert_eq!(known(&Header::grant(CREDITS)), (true, false));
        assert_eq!(known(&Header { xid: 7, ..Header::grant(CREDITS) }), (true, false), "whatever its XID");
        assert_eq!(known(&Header::nomsg(7, CREDITS, true, lists().into())), (false, false));
        assert_eq!(known(&Header::msg(7, CREDITS, false, true, Chunks::default())), (false, true));
        assert_eq!(known(&Header::msg(7, CREDITS, false, false, Chunks::default())), (false, false));
        assert_eq!(known(&Header::connprop_piece(7, CREDITS, true, false, Bytes::new())), (false, true));
        let grant = Header::grant(CREDITS).to_bytes();
        let prefix = Prefix::decode(&grant).unwrap();
        assert!(!prefix.is_grant(&grant[..grant.len() - 1]), "cut off");
        let continued = Flags { more: true, ..Flags::default() };
        assert!(!Prefix { flags: continued, ..prefix }.is_continued(), "a type that cannot be");
        assert!(!Prefix { flags: continued, header_type: 0, version: 3, ..prefix }.is_continued());
        assert!(Prefix { flags: continued, header_type: 0, ..prefix }.is_continued());
    }

    #[test]
    fn what_is_wrong_in_a_message_of_another_version_is_its_version() {
        let cut = |version| {
            let header = Header::error(5, version, CREDITS, ErrorBody::Version { low: 1, high: 3 });
            let octets = header.to_bytes();
            Header::decode(&octets.slice(..octets.len() - 1)).unwrap_err()
        };
        assert!(matches!(cut(3), HeaderError::Version { prefix } if prefix.version == 3));
        assert!(matches!(cut(VERSION), HeaderError::Malformed { .. }));
        assert_eq!(cut(VERSION).prefix().map(|prefix| (prefix.xid, prefix.credits)), Some((5, CREDITS)));
        assert_eq!(Header::decode(&Bytes::from_static(&[0; PREFIX_OCTETS - 1])).unwrap_err().prefix(), None);
    }

    /// proves: V2-6.1-a, V2-6.1-d, V2-8.4-b
    #[test]
    fn four_header_types_are_defined() {
        let known: Vec<_> = (0..1000).filter_map(|code| Some((code, HeaderType::from_code(code)?.name()))).collect();
        assert_eq!(known, [(0, "RDMA2_MSG"), (1, "RDMA2_NOMSG"), (4, "RDMA2_ERROR"), (5, "RDMA2_CONNPROP")]);
        assert!([2, 3, u32::MAX].into_iter().all(|code| HeaderType::from_code(code).is_none()));
        assert!(known.iter().all(|(code, _)| OtherBody::new(*code, Bytes::new()).is_none()));
    }

    /// proves: V2-4.2.3-d
    #[test]
    fn the_first_message_of_a_client_fits_where_only_version_1_is_known() {
        let set = crate::v2::Properties::default().to_set();
        let header = Header::connprop(1, CREDITS, false, set);
        // Five numbers of twelve octets each, behind the prefix and a count.
        assert_eq!(header.encoded_len(), PREFIX_OCTETS + 4 + 5 * 12);
        assert!(header.encoded_len() <= crate::v2::MIN_SIZE_OCTETS as usize);
    }
}
