//! Rules that no vector can show: extensions, later parts of sequences, and size limits.

use bytes::Bytes;
use rpcrdma_wire::v2::{
    Body, Chunks, Credits, Discard, ErrorBody, Extensions, Fit, Flags, Header, Judgement, Lists, NoExtensions,
    OtherBody, OtherProperty, Place, Property, PropertySet, ReadList, ReadSegment, Receiver, Role, Segment, WriteChunk,
    WriteList, judge,
};

const CREDITS: Credits = Credits { granted: 1, maximum: 8 };
const XID: u32 = 0x1122_3344;

fn responder() -> Receiver<'static> {
    Receiver::new(Role::Responder)
}

fn message(header: &Header, payload: &[u8]) -> Bytes {
    [&header.to_bytes()[..], payload].concat().into()
}

fn rpc(direction: u32, len: usize) -> Vec<u8> {
    let mut octets = [XID.to_be_bytes(), direction.to_be_bytes()].concat();
    octets.resize(len.max(8), 0);
    octets.truncate(len);
    octets
}

fn reads(entries: &[(u32, u32)]) -> Chunks {
    let entry =
        |&(position, length): &(u32, u32)| ReadSegment { position, segment: Segment { handle: 1, length, offset: 0 } };
    Lists { reads: ReadList(entries.iter().map(entry).collect()), ..Lists::default() }.into()
}

fn accepted(judgement: &Judgement) -> bool {
    matches!(judgement, Judgement::Accept { .. })
}

fn answered(judgement: &Judgement) -> Option<ErrorBody> {
    match judgement {
        Judgement::Reply { error, .. } => Some(*error),
        _ => None,
    }
}

fn dropped(judgement: &Judgement) -> Option<Discard> {
    match judgement {
        Judgement::Discard { why, .. } => Some(*why),
        _ => None,
    }
}

/// Header type 9, and property 77 whose value has two octets.
struct Embedder;

impl Extensions for Embedder {
    fn header_type(&self, code: u32) -> bool {
        code == 9
    }

    fn property(&self, property: &OtherProperty) -> Fit {
        match (property.code(), property.data().len()) {
            (77, 2) => Fit::Fits,
            (77, _) => Fit::Unfit,
            _ => Fit::Unknown,
        }
    }
}

/// proves: V2-6.1-c, V2-6.1-e, V2-B.1-a, V2-B.2-a, V2-B.5-b, V2-7.1.2-a
#[test]
fn an_embedder_adds_a_header_type() {
    let embedder = Receiver { extensions: &Embedder, ..responder() };
    let other = |code, response| {
        Header::other(XID, CREDITS, response, OtherBody::new(code, Bytes::from_static(b"body")).unwrap())
    };
    for response in [false, true] {
        let octets = other(9, response).to_bytes();
        let Judgement::Accept { header, payload_offset } = judge(&embedder, &octets) else { panic!("{response}") };
        assert_eq!((header, payload_offset), (other(9, response), octets.len()));
    }
    assert_eq!(answered(&judge(&responder(), &other(9, false).to_bytes())), Some(ErrorBody::InvalidHeaderType));
    assert_eq!(dropped(&judge(&responder(), &other(9, true).to_bytes())), Some(Discard::HeaderType));
    assert_eq!(answered(&judge(&embedder, &other(8, false).to_bytes())), Some(ErrorBody::InvalidHeaderType));
    for code in [0, 1, 4, 5] {
        assert_eq!(OtherBody::new(code, Bytes::new()), None, "the draft's own");
    }
    // The draft's rules about flags hold for this type as well.
    let flagged =
        |more, tpmore| Header { flags: Flags { response: false, more, tpmore }, ..other(9, false) }.to_bytes();
    assert_eq!(answered(&judge(&embedder, &flagged(true, false))), Some(ErrorBody::InvalidContinuation));
    assert_eq!(answered(&judge(&embedder, &flagged(false, true))), Some(ErrorBody::InvalidHeaderType));
}

/// proves: V2-5-a, V2-5.1-g, V2-5.1-c, V2-5.1-b, V2-B.1-a
#[test]
fn an_embedder_adds_a_property() {
    let embedder = Receiver { extensions: &Embedder, ..responder() };
    let octets = |code, data: &'static [u8]| {
        let property = Property::Other(OtherProperty::new(code, Bytes::from_static(data)).unwrap());
        Header::connprop(XID, CREDITS, false, PropertySet(vec![property])).to_bytes()
    };
    assert!(accepted(&judge(&embedder, &octets(77, b"ab"))));
    assert!(accepted(&judge(&embedder, &octets(77, b""))), "the default");
    assert_eq!(answered(&judge(&embedder, &octets(77, b"abc"))), Some(ErrorBody::BadPropertyValue));
    assert!(accepted(&judge(&embedder, &octets(78, b"abc"))), "of somebody else");
    assert!(accepted(&judge(&responder(), &octets(77, b"abc"))), "without the extension");
}

/// proves: V2-4.1-b, V2-4.1-c, V2-4.1-f, V2-4.4.2-a, V2-6.2.2.2-a, V2-6.3.1-b, V2-3.1.2-a
#[test]
fn the_rpc_header_is_read_across_parts() {
    for (response, direction) in [(false, 0), (true, 1)] {
        let whole = rpc(direction, 40);
        for cut in 0..=whole.len() {
            let (first, last) = whole.split_at(cut);
            let more = Header::msg(XID, CREDITS, response, true, Chunks::default());
            assert!(accepted(&judge(&responder(), &message(&more, first))), "first part of {cut}");
            let place = Place::Later { head: &first[..cut.min(8)], octets: cut };
            let end = Header::msg(XID, CREDITS, response, false, Chunks::default());
            let later = Receiver { place, ..responder() };
            assert!(accepted(&judge(&later, &message(&end, last))), "last part after {cut}");
        }
        // The same parts with the other direction in the RPC header.
        let whole = rpc(1 - direction, 40);
        let later = Receiver { place: Place::Later { head: &whole[..6], octets: 6 }, ..responder() };
        let end = Header::msg(XID, CREDITS, response, false, Chunks::default());
        let judgement = judge(&later, &message(&end, &whole[6..]));
        let expected = if response { (None, Some(Discard::Malformed)) } else { (Some(ErrorBody::BadXdr), None) };
        assert_eq!((answered(&judgement), dropped(&judgement)), expected);
    }
}

/// proves: V2-4.3.5-b, V2-4.3.5-c, V2-4.3.5-g, V2-4.3.5-h, V2-4.3.5-d
#[test]
fn positions_lie_in_the_unreduced_stream() {
    let call = |entries: &[(u32, u32)]| {
        judge(&responder(), &message(&Header::msg(XID, CREDITS, false, false, reads(entries)), &rpc(0, 40)))
    };
    let bad = Some(ErrorBody::BadXdr);
    assert!(accepted(&call(&[(40, 5)])), "at the end of what is inline");
    assert_eq!(answered(&call(&[(44, 5)])), bad, "one unit past it");
    assert!(accepted(&call(&[(40, 5), (48, 1)])), "behind the first chunk, with its padding");
    assert!(accepted(&call(&[(48, 1), (40, 2), (40, 3)])), "in any order");
    assert_eq!(answered(&call(&[(40, 5), (44, 1)])), bad, "inside the first chunk");
    assert_eq!(answered(&call(&[(40, 5), (52, 1)])), bad, "beyond both");
    assert_eq!(answered(&call(&[(38, 4)])), bad, "no multiple of four");
    assert_eq!(answered(&call(&[(0, 40)])), bad, "a second payload");
}

/// proves: V2-4.4.2.1-a, V2-4.4.2.1-c, V2-6.2.2.2-g
#[test]
fn positions_of_a_continued_call_lie_in_all_its_parts() {
    let whole = rpc(0, 400);
    let last = |position| {
        let place = Place::Later { head: &whole[..8], octets: 360 };
        let end = Header::msg(XID, CREDITS, false, false, reads(&[(position, 5)]));
        judge(&Receiver { place, ..responder() }, &message(&end, &whole[360..]))
    };
    assert!(accepted(&last(8)));
    assert!(accepted(&last(400)));
    assert_eq!(answered(&last(404)), Some(ErrorBody::BadXdr));
    // An open sequence must not have chunks.
    let place = Place::Later { head: &whole[..8], octets: 100 };
    let more = Header::msg(XID, CREDITS, false, true, reads(&[(8, 5)]));
    let judgement = judge(&Receiver { place, ..responder() }, &message(&more, &whole[100..200]));
    assert_eq!(answered(&judgement), Some(ErrorBody::InvalidContinuation));
}

/// proves: V2-6.2.2.2-n, V2-5.1-k
#[test]
fn properties_come_in_pieces() {
    let material = Bytes::from(vec![7; 100]);
    let set = PropertySet(vec![Property::HostAuth(material)]);
    let mut encoded = Vec::new();
    set.encode(&mut encoded);
    let encoded = Bytes::from(encoded);
    let mut joined = Vec::new();
    for (at, piece) in encoded.chunks(48).enumerate() {
        let more = (at + 1) * 48 < encoded.len();
        let header = Header::connprop_piece(XID, CREDITS, more, false, Bytes::copy_from_slice(piece));
        let place = if at == 0 { Place::First } else { Place::Later { head: &[], octets: joined.len() } };
        let judgement = judge(&Receiver { place, ..responder() }, &header.to_bytes());
        let Judgement::Accept { header: Header { body: Body::ConnpropPiece(octets), flags, .. }, .. } = judgement
        else {
            panic!("{judgement:?}")
        };
        assert_eq!(flags.more, more);
        joined.extend_from_slice(&octets);
    }
    let (read, len) = PropertySet::decode(&joined.into()).unwrap();
    assert_eq!((read, len), (set, encoded.len()));
}

/// proves: V2-4.4.3-b, V2-4.4.3-c, V2-4.4.1.1-d, V2-4.3.5-e, V2-6.3.2-h, V2-4.4.3-j, V2-6.3.2-a, V2-4.4.3-d
#[test]
fn special_messages_have_their_chunk() {
    let call =
        |entries: &[(u32, u32)]| judge(&responder(), &Header::nomsg(XID, CREDITS, false, reads(entries)).to_bytes());
    let bad = Some(ErrorBody::BadXdr);
    assert!(accepted(&call(&[(0, 40)])));
    assert!(accepted(&call(&[(0, 20), (0, 20), (40, 5)])), "with an item in a chunk of its own");
    assert_eq!(answered(&call(&[(0, 0)])), bad, "an empty one");
    assert_eq!(answered(&call(&[(40, 5)])), bad, "no Position Zero chunk");
    assert_eq!(answered(&call(&[(0, 40), (44, 5)])), bad, "beyond its end");
    let requester = Receiver::new(Role::Requester);
    let reply = |lists: Lists| judge(&requester, &Header::nomsg(XID, CREDITS, true, lists.into()).to_bytes());
    let chunk = |length| Some(WriteChunk(vec![Segment { handle: 1, length, offset: 0 }].into()));
    assert!(accepted(&reply(Lists { reply: chunk(1), ..Lists::default() })));
    let malformed = Some(Discard::Malformed);
    assert_eq!(dropped(&reply(Lists { reply: chunk(0), ..Lists::default() })), malformed);
    let writes = WriteList(vec![WriteChunk(vec![Segment { handle: 1, length: 4, offset: 0 }].into())].into());
    assert_eq!(dropped(&reply(Lists { writes, ..Lists::default() })), malformed);
    let with_reads = Lists { reply: chunk(1), ..reads(&[(0, 4)]).lists };
    assert_eq!(dropped(&reply(with_reads)), malformed);
}

/// proves: V2-6.2.2.1-e, V2-6.1-e, V2-7-g
#[test]
fn what_the_peer_did_not_begin_is_not_answered() {
    let bad_call = message(&Header::msg(XID, CREDITS, false, false, Chunks::default()), &[0; 8]);
    let bad_reply = message(&Header::msg(XID, CREDITS, true, false, Chunks::default()), &[0; 8]);
    for role in [Role::Responder, Role::Requester] {
        let receiver = Receiver { role, extensions: &NoExtensions, place: Place::First };
        assert_eq!(answered(&judge(&receiver, &bad_call)), Some(ErrorBody::BadXdr));
        assert_eq!(dropped(&judge(&receiver, &bad_reply)), Some(Discard::Malformed));
    }
}

/// proves: V2-7.1.1-a, V2-7-g
#[test]
fn only_a_responder_answers_another_version() {
    let call = Header { version: 3, ..Header::grant(CREDITS) }.to_bytes();
    let error = Header::error(XID, 3, CREDITS, ErrorBody::Version { low: 3, high: 4 }).to_bytes();
    let requester = Receiver::new(Role::Requester);
    let range = ErrorBody::Version { low: 2, high: 2 };
    assert_eq!(answered(&judge(&responder(), &call)), Some(range));
    assert_eq!(dropped(&judge(&responder(), &error)), Some(Discard::Version));
    assert_eq!(dropped(&judge(&requester, &call)), Some(Discard::Version));
    assert!(accepted(&judge(&requester, &error)));
}

/// The order that docs/version2.md states for messages with two faults.
///
/// proves: V2-6.2.2.3-b, V2-6.1-e, V2-6.2.2.2-d, V2-7.2.1-a, V2-C.1-a
#[test]
fn the_first_of_two_faults_counts() {
    let octets = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Bytes>();
    let judged = |words: &[u32]| judge(&responder(), &octets(words));
    const MORE: u32 = 2;
    const TPMORE: u32 = 4;
    let version = Some(ErrorBody::Version { low: 2, high: 2 });
    assert_eq!(answered(&judged(&[XID, 3, 1, 9, TPMORE])), version);
    assert_eq!(answered(&judged(&[XID, 2, 1, 1, TPMORE | MORE])), Some(ErrorBody::InvalidHeaderType));
    assert_eq!(answered(&judged(&[XID, 2, 1, 9, MORE])), Some(ErrorBody::InvalidHeaderType));
    assert_eq!(answered(&judged(&[XID, 2, 1, 1, MORE])), Some(ErrorBody::InvalidContinuation), "and cut off");
    assert_eq!(answered(&judged(&[XID, 2, 1, 0, MORE, 0, 1])), Some(ErrorBody::BadXdr), "and with a chunk");
    let chunk_and_other_xid = [XID, 2, 1, 0, MORE, 0, 0, 1, 0, 0, 0, XID + 1];
    assert_eq!(answered(&judged(&chunk_and_other_xid)), Some(ErrorBody::InvalidContinuation));
}

/// A responder reads and writes the requester's memory and lends none: a Reply that advertises memory is dropped.
/// proves: V2-4-a
#[test]
fn a_reply_that_advertises_memory_is_dropped() {
    let requester = Receiver::new(Role::Requester);
    let room = || Some(WriteChunk(vec![Segment { handle: 1, length: 40, offset: 0 }].into()));
    for position in [0, 40] {
        let lists = |reply| Lists { reply, ..reads(&[(position, 8)]).lists };
        let short = message(&Header::msg(XID, CREDITS, true, false, lists(None).into()), &rpc(1, 40));
        let long = message(&Header::nomsg(XID, CREDITS, true, lists(room()).into()), &[]);
        for octets in [short, long] {
            assert_eq!(dropped(&judge(&requester, &octets)), Some(Discard::Malformed), "position {position}");
        }
    }
    let long = Header::nomsg(XID, CREDITS, true, Lists { reply: room(), ..Lists::default() }.into());
    assert!(accepted(&judge(&requester, &message(&long, &[]))), "without it is right");
}
