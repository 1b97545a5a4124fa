//! The exchange of transport properties, and the additions of an extension.

use crate::{
    common::{call, words},
    peer::{Done, Peer, credits, msg, payload},
};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use rpcrdma_engine::{
    Action, Config, MessageKind, Negotiated,
    v2::{
        EXCHANGE_TIMEOUT, ErrorBody, Extension, ExtensionRefused, Extensions, Fit, MAX_PEER_CREDITS,
        MAX_WAITING_ERRORS, MAX_WAITING_MESSAGES, OtherBody, OtherProperty, Received,
    },
};
use rpcrdma_wire::v2::{Body, Credits, Header, Lists, Properties, Property, PropertySet};
use std::sync::Arc;

fn connprop(tpmore: bool, set: Vec<Property>) -> Header {
    Header::connprop(0x55, credits(), tpmore, PropertySet(set))
}

fn negotiated(done: &Done) -> Option<Negotiated> {
    done.actions.iter().find_map(|action| match action {
        Action::Negotiated(negotiated) => Some(negotiated.clone()),
        _ => None,
    })
}

fn kinds(done: &Done) -> Vec<MessageKind> {
    done.sent.iter().map(|sent| sent.2).collect()
}

/// What an end announces: all its sets, as its peer reads them.
fn announced(config: Config) -> (Properties, Vec<(Header, usize)>) {
    let mut peer = Peer::new(config);
    peer.engine.start(peer.now, &mut peer.host);
    let mut sent = peer.take().sent;
    for _ in 0..20 {
        sent.extend(peer.hear(&Header::grant(Credits::new(8, 8)), &[]).sent);
    }
    let mut properties = Properties::default();
    let mut pieces = Vec::new();
    let mut headers = Vec::new();
    for (header, ..) in sent.into_iter().filter(|sent| sent.2 == MessageKind::Properties) {
        let len = header.encoded_len();
        match &header.body {
            Body::Connprop(set) if pieces.is_empty() => properties.apply(set),
            Body::Connprop(set) => {
                // The last piece, which the harness reads by itself.
                let _ = set;
            }
            Body::ConnpropPiece(octets) => pieces.extend_from_slice(octets),
            other => panic!("{other:?}"),
        }
        headers.push((header, len));
    }
    (properties, headers)
}

/// proves: V2-4.2.3-b, V2-4.2.3-c, V2-4.2.3-d, V2-4.2.3-f, V2-6.2.2.1-f, V2-6.2.2.3-a, V2-6.2.2.3-c, V2-6.3.4-c
/// proves: V2-6.3.4-d, V2-5.2.1-a, V2-5.2.2-a, V2-5.2.2-d
#[test]
fn a_client_begins_with_its_properties_in_a_small_message() {
    let small = Config { send_bytes: 1024, receive_bytes: 2048, ..Config::client() };
    let (properties, headers) = announced(small);
    assert_eq!((properties.send_size, properties.receive_size), (4096, 4096), "never less than a peer may rely on");
    assert_eq!(headers.len(), 1);
    assert!(headers[0].0.xid != 0 && !headers[0].0.flags.response && !headers[0].0.flags.tpmore);
    // A client with many properties sends one message, and the rest when it has credits.
    let config =
        Config { extension: Some(Arc::new(Known(vec![(900, 600), (901, 600), (902, 600)]))), ..Config::client() };
    let mut peer = Peer::new(config.clone());
    peer.engine.start(peer.now, &mut peer.host);
    assert_eq!(peer.take().sent.len(), 1);
    let (_, headers) = announced(config);
    assert_eq!(headers.iter().map(|(header, _)| header.flags.tpmore).collect::<Vec<_>>(), [true, true, false]);
    assert!(headers.iter().all(|(header, len)| *len <= 1024 && header.xid == headers[0].0.xid));
}

/// proves: V2-6.2.2.2-n, V2-8.5-a
#[test]
fn a_property_that_fits_no_message_goes_in_pieces_and_is_joined() {
    let extension = || -> Option<Arc<dyn Extension>> { Some(Arc::new(Known(vec![(900, 9000)]))) };
    let mut client = Peer::new(Config { extension: extension(), ..Config::client() });
    let mut server = Peer::new(Config { extension: extension(), ..Config::server() });
    client.engine.start(client.now, &mut client.host);
    let mut to_server: Vec<Bytes> = raw(&mut client);
    let mut to_client: Vec<Bytes> = Vec::new();
    let mut known = [0, 0];
    for _ in 0..50 {
        for message in to_server.drain(..) {
            server.engine.received(message, server.now, &mut server.host);
        }
        known[1] += count_properties(&mut server, &mut to_client);
        for message in to_client.drain(..) {
            client.engine.received(message, client.now, &mut client.host);
        }
        known[0] += count_properties(&mut client, &mut to_server);
    }
    assert_eq!(known, [1, 1], "both have the other's");
    assert_eq!(client.call(1, payload(40), 0, &[], false).sent.len(), 1, "and the exchange is over");
}

fn raw(peer: &mut Peer) -> Vec<Bytes> {
    let mut out = Vec::new();
    count_properties(peer, &mut out);
    out
}

fn count_properties(peer: &mut Peer, out: &mut Vec<Bytes>) -> usize {
    let mut known = 0;
    while let Some(action) = peer.engine.poll() {
        match action {
            Action::Send { octets, .. } => {
                let octets: Bytes = octets.concat().into();
                assert!(octets.len() <= 4096);
                out.push(octets);
                peer.engine.drained();
            }
            Action::Extension(Received::Property(property)) => {
                assert_eq!((property.code(), property.data().len()), (900, 9000));
                known += 1;
            }
            _ => {}
        }
    }
    known
}

/// proves: V2-5.1-b, V2-5.1-g, V2-5-a, V2-6.3.4-e, V2-5.2.3-a, V2-5.2.5-a, V2-6.2.2.3-e, V2-11.3-a, V2-B.4-a
/// proves: V2-4.2.3-g
#[test]
fn both_ends_use_what_the_other_has_announced() {
    let mut server = Peer::new(Config { send_bytes: 65_536, receive_bytes: 8192, ..Config::server() });
    server.engine.start(server.now, &mut server.host);
    let unknown = OtherProperty::new(0xFFFF_FFFF, Bytes::from_static(b"whatever")).unwrap();
    let set =
        vec![Property::ReceiveSize(16_384), Property::Other(unknown), Property::SendSize(100), Property::Reverse(2)];
    let done = server.hear(&connprop(false, set), &[]);
    assert_eq!(kinds(&done), [MessageKind::Properties]);
    let made = negotiated(&done).unwrap();
    assert_eq!((made.version, made.link.send_inline, made.link.receive_inline), (2, 16_384, 1024));
    assert_eq!(made.peer.unwrap().reverse.level(), 2);
    // A server sends nothing before the client's first message.
    let mut server = Peer::new(Config::server());
    server.engine.wake(server.now, &mut server.host);
    assert!(server.take().sent.is_empty());
}

/// The client's first message is a call, and the server answers it.
fn begin_with_a_call(server: &mut Peer) {
    let done = server.hear(&msg(1, false, false, Lists::default()), &call(1));
    server.engine.answer(done.delivered()[0].0, rpcrdma_engine::Answer::Reply(payload(40)));
    assert_eq!(kinds(&server.take()), [MessageKind::Reply], "its one credit is for the reply");
}

/// A client that begins with a call learns the server's properties when it announces its own. It can do so once.
///
/// proves: V2-6.3.4-b, V2-4.2.3-f
#[test]
fn a_client_that_begins_with_a_call_may_announce_itself_later() {
    for late in [connprop(false, vec![Property::SegmentCount(4)]), connprop(true, vec![Property::SegmentCount(4)])] {
        let mut server = Peer::new(Config { send_bytes: 16_384, receive_bytes: 16_384, ..Config::server() });
        begin_with_a_call(&mut server);
        assert_eq!(server.engine.link().receive_inline, 4096, "the defaults");
        let done = server.hear(&late, &[]);
        let (Body::Connprop(ours), MessageKind::Properties) = (&done.sent[0].0.body, done.sent[0].2) else {
            panic!("{done:?}")
        };
        assert!(ours.0.contains(&Property::ReceiveSize(16_384)), "{ours:?}");
        let more = matches!(&late, Header { flags, .. } if flags.tpmore);
        if more {
            assert_eq!(server.engine.link().receive_inline, 4096, "until both ends have said everything");
            let due = server.engine.next_wake().expect("it is not waited for");
            assert!(due <= server.now + EXCHANGE_TIMEOUT);
            server.hear(&connprop(false, Vec::new()), &[]);
        }
        // The client's default send size limits its own messages to 4096; the server's size counts from now on.
        let done = server.hear(&connprop(false, Vec::new()), &[]);
        assert_eq!(done.errors(), [(0x55, ErrorBody::InvalidHeaderType)], "the last was the last");
        let done = server.hear(&msg(2, false, false, Lists::default()), &call(2));
        assert_eq!(done.delivered().len(), 1, "calls go on");
    }
    // From then on the client's receive size counts.
    let mut server = Peer::new(Config { send_bytes: 16_384, receive_bytes: 16_384, ..Config::server() });
    begin_with_a_call(&mut server);
    let sizes = vec![Property::ReceiveSize(8192), Property::SendSize(8192)];
    server.hear(&connprop(false, sizes), &[]);
    assert_eq!((server.engine.link().send_inline, server.engine.link().receive_inline), (8192, 8192));
}

/// proves: V2-6.2.2.3-g, V2-6.2.2.3-d, V2-6.2.2.3-f, V2-4.2.1.2-d
#[test]
fn each_set_is_answered_and_none_is_taken_after_the_last() {
    let mut server = Peer::new(Config::server());
    let done = server.hear(&connprop(true, vec![Property::SegmentCount(4)]), &[]);
    assert_eq!(kinds(&done), [MessageKind::Properties], "its own at once");
    let done = server.hear(&connprop(true, vec![Property::SegmentSize(9)]), &[]);
    assert_eq!(kinds(&done), [MessageKind::Grant], "then a grant");
    let done = server.hear(&connprop(false, vec![Property::SegmentSize(7)]), &[]);
    let theirs = negotiated(&done).unwrap().peer.unwrap();
    assert_eq!((theirs.segment_count, theirs.segment_size), (4, 7));
    let done = server.hear(&connprop(false, vec![Property::SegmentSize(5)]), &[]);
    assert_eq!(done.errors(), [(0x55, ErrorBody::InvalidHeaderType)]);
    assert!(negotiated(&done).is_none());
    // The server takes only this many sets.
    let mut server = Peer::new(Config::server());
    for _ in 0..64 {
        assert!(server.hear(&connprop(true, Vec::new()), &[]).errors().is_empty());
    }
    let done = server.hear(&connprop(true, Vec::new()), &[]);
    assert_eq!(done.errors(), [(0x55, ErrorBody::InvalidHeaderType)], "one past the limit");
}

/// proves: V2-5.1-c, V2-5.1-e, V2-5.1-f, V2-5.1-k, V2-7.2.2-a, V2-7.2.2-b, V2-7.2.2-c
#[test]
fn a_bad_set_is_answered_and_changes_nothing_but_the_end() {
    let head = |flags: u32| words(&[0x55, 2, 0x0020_0001, 5, flags]);
    let bad =
        [(words(&[2, 3, 4, 99, 1, 3, 0]), ErrorBody::BadPropertyValue), (words(&[2, 3, 4, 99]), ErrorBody::BadXdr)];
    for (body, error) in bad {
        for (flags, over) in [(0, true), (4, false)] {
            let mut server = Peer::new(Config::server());
            let done = server.hear_bytes([head(flags), body.clone()].concat());
            assert_eq!(done.errors(), []);
            assert_eq!(kinds(&done), [MessageKind::Properties], "one credit: its own first");
            let done_2 = server.hear(&Header::grant(credits()), &[]);
            assert_eq!(done_2.errors(), [(0x55, error)]);
            let made = negotiated(&done);
            assert_eq!(made.is_some(), over, "its end is an end");
            if let Some(made) = made {
                assert_eq!(made.peer, Some(Properties::default()), "nothing of it counts");
            }
        }
    }
    // A wrong message of another kind is not part of the exchange.
    let mut server = Peer::new(Config::server());
    let done = server.hear_bytes(words(&[1, 2, 0x0020_0001, 9, 0]));
    assert!(negotiated(&done).is_none(), "{done:?}");
    let done = server.hear(&connprop(false, vec![Property::SegmentSize(7)]), &[]);
    assert_eq!(negotiated(&done).and_then(|made| made.peer).map(|theirs| theirs.segment_size), Some(7));
}

/// proves: V2-6.2.2.3-h, V2-4.2.3-f, V2-5.2-b
#[test]
fn a_peer_without_the_exchange_is_served_with_the_defaults() {
    let mut server = Peer::new(Config { receive_bytes: 65_536, send_bytes: 65_536, ..Config::server() });
    let done = server.hear(&msg(1, false, false, Lists::default()), &call(1));
    assert_eq!(done.delivered().len(), 1);
    assert_eq!(negotiated(&done).map(|made| made.link.send_inline), Some(4096));
    server.engine.answer(done.delivered()[0].0, rpcrdma_engine::Answer::Reply(crate::peer::payload(40)));
    assert_eq!(kinds(&server.take()), [MessageKind::Reply], "its one credit is for the reply");
    // A server that answers with a grant and nothing else: calls wait a while.
    let mut client = Peer::new(Config::client());
    client.engine.start(client.now, &mut client.host);
    client.take();
    client.hear(&Header::grant(credits()), &[]);
    assert!(client.call(1, payload(40), 0, &[], false).sent.is_empty());
    let late = client.now + EXCHANGE_TIMEOUT;
    assert_eq!(client.engine.next_wake(), Some(late));
    let done = client.wake(late);
    assert_eq!((kinds(&done), negotiated(&done).is_some()), (vec![MessageKind::Call], true));
}

/// proves: V2-4.5.3-b, V2-4.5.3-c, V2-4.5.3-d, V2-4.5.3-e, V2-5.2.5-c, V2-5.2.5-e, V2-5.2.5-f
#[test]
fn a_server_calls_only_who_has_said_that_it_may() {
    for (level, may) in [(None, false), (Some(0), false), (Some(1), true), (Some(3), true), (Some(4), false)] {
        let mut server = Peer::new(Config { credits_wanted: 4, ..Config::server() });
        assert!(server.call(1, payload(40), 0, &[], false).sent.is_empty(), "nothing is known yet");
        let done = server.hear(&connprop(false, level.map(Property::Reverse).into_iter().collect()), &[]);
        let done_2 = server.hear(&Header::grant(Credits::new(8, 8)), &[]);
        let calls = kinds(&done).into_iter().chain(kinds(&done_2)).filter(|kind| *kind == MessageKind::Call).count();
        assert_eq!(
            (calls, done.failed().len() + done_2.failed().len()),
            (usize::from(may), usize::from(!may)),
            "{level:?}"
        );
    }
}

/// An embedder's properties, of these codes and lengths, and its header type 77.
#[derive(Debug)]
struct Known(Vec<(u32, usize)>);

impl Extensions for Known {
    fn header_type(&self, code: u32) -> bool {
        code == 77
    }
    fn property(&self, property: &OtherProperty) -> Fit {
        match self.0.iter().find(|(code, _)| *code == property.code()) {
            None => Fit::Unknown,
            Some((_, len)) if *len == property.data().len() => Fit::Fits,
            Some(_) => Fit::Unfit,
        }
    }
}

impl Extension for Known {
    fn announced(&self) -> Vec<OtherProperty> {
        let property = |&(code, len): &(u32, usize)| OtherProperty::new(code, Bytes::from(vec![7; len]));
        self.0.iter().filter_map(property).collect()
    }
}

/// proves: V2-B.1-a, V2-B.2-a, V2-B.5-b, V2-5-a, V2-7.1.2-c, V2-7.1.2-e, V2-6.2.2.1-c
#[test]
fn an_extension_has_properties_and_header_types_of_its_own() {
    let config = Config { extension: Some(Arc::new(Known(vec![(900, 8)]))), ..Config::server() };
    let mut server = Peer::new(config);
    let property = |len| OtherProperty::new(900, Bytes::from(vec![1; len])).unwrap();
    let done = server.hear(&connprop(true, vec![Property::Other(property(8))]), &[]);
    assert!(matches!(&done.actions[..], [Action::Extension(Received::Property(known))] if known.data().len() == 8));
    let (Body::Connprop(set), ..) = (&done.sent[0].0.body, 0) else { panic!("{done:?}") };
    assert_eq!(set.others().map(OtherProperty::code).collect::<Vec<_>>(), [900], "and it announces its own");
    let done = server.hear(&connprop(false, vec![Property::Other(property(9))]), &[]);
    assert_eq!(done.errors(), [(0x55, ErrorBody::BadPropertyValue)]);
    let body = |code| OtherBody::new(code, Bytes::from_static(b"octets")).unwrap();
    let done = server.hear(&Header::other(5, credits(), false, body(77)), &[]);
    let expected = Received::Message { xid: 5, response: false, body: body(77) };
    assert!(matches!(&done.actions[..], [Action::Extension(received)] if *received == expected), "{done:?}");
    let done = server.hear(&Header::other(6, credits(), false, body(78)), &[]);
    assert_eq!(done.errors(), [(6, ErrorBody::InvalidHeaderType)]);
    // The engine does not send a header type again that the peer does not know.
    let Peer { engine, host, now } = &mut server;
    engine.send_extension(9, false, body(77), *now, host).unwrap();
    let done = server.hear(&Header::grant(Credits::new(8, 8)), &[]);
    assert!(kinds(&done).contains(&MessageKind::Extension) || done.sent.is_empty());
    let error = ErrorBody::InvalidHeaderType;
    let done = server.hear(&Header::error(9, 2, credits(), error), &[]);
    assert!(matches!(&done.actions[..], [Action::Extension(Received::Error { xid: 9, .. })]), "{done:?}");
    let Peer { engine, host, now } = &mut server;
    let refused = engine.send_extension(10, false, body(77), *now, host);
    assert_eq!(refused, Err(ExtensionRefused::Unsupported { header_type: 77 }));
    let large = OtherBody::new(79, Bytes::from(vec![0; 4077])).unwrap();
    let refused = engine.send_extension(11, false, large, *now, host);
    assert_eq!(refused, Err(ExtensionRefused::TooLarge { len: 4097, max: 4096 }));
}

/// Properties in pieces are judged as properties in one message.
/// proves: V2-6.2.2.2-n, V2-7.2.2-b, V2-7.2.2-c
#[test]
fn properties_in_pieces_are_judged() {
    let known = |len| Property::Other(OtherProperty::new(900, Bytes::from(vec![1; len])).unwrap());
    for (set, error) in [
        (vec![known(8), Property::SegmentSize(7)], None),
        (vec![known(9), Property::SegmentSize(7)], Some(ErrorBody::BadPropertyValue)),
    ] {
        let config = Config { extension: Some(Arc::new(Known(vec![(900, 8)]))), ..Config::server() };
        let mut server = Peer::new(config);
        let mut octets = BytesMut::new();
        PropertySet(set).encode(&mut octets);
        let last = octets.split_off(12).freeze();
        let piece = |more, octets| Header::connprop_piece(0x55, Credits::new(4, 32), more, false, octets);
        server.hear(&piece(true, octets.freeze()), &[]);
        let done = server.hear(&piece(false, last), &[]);
        assert_eq!(done.errors(), error.map(|error| (0x55, error)).into_iter().collect::<Vec<_>>());
        let theirs = negotiated(&done).and_then(|made| made.peer).unwrap();
        assert_eq!(theirs.segment_size == 7, error.is_none(), "{theirs:?}");
        let heard = done.actions.iter().filter(|action| matches!(action, Action::Extension(_))).count();
        assert_eq!(heard, usize::from(error.is_none()));
    }
}

/// Errors that wait for credits take no places from an extension's messages.
#[test]
fn so_many_messages_of_an_extension_wait_and_no_more() {
    let config = Config { extension: Some(Arc::new(Known(Vec::new()))), credits_granted: 128, ..Config::server() };
    let mut server = Peer::new(config);
    let body = |code| OtherBody::new(code, Bytes::from_static(b"octets")).unwrap();
    // The server uses the only credit for its own announcement.
    server.hear(&Header::connprop(0x55, Credits::new(1, 128), false, PropertySet::default()), &[]);
    let refused = |server: &mut Peer, xid| {
        let done = server.hear(&Header::other(xid, Credits::new(0, 128), false, body(78)), &[]);
        assert!(done.errors().is_empty() && !done.closed(), "{done:?}");
    };
    let errors = (MAX_WAITING_ERRORS - MAX_WAITING_MESSAGES) as u32;
    for xid in 0..errors {
        refused(&mut server, xid);
    }
    let Peer { engine, host, now } = &mut server;
    for xid in 0..MAX_WAITING_MESSAGES as u32 {
        assert!(engine.extension_room(), "{xid}");
        engine.send_extension(xid, false, body(77), *now, host).unwrap();
    }
    assert!(!engine.extension_room());
    assert_eq!(engine.send_extension(99, false, body(77), *now, host), Err(ExtensionRefused::Busy));
    refused(&mut server, errors);
    let done = server.hear(&Header::grant(Credits::new(128, 128)), &[]);
    assert_eq!(done.errors().len(), usize::from(MAX_PEER_CREDITS), "in their order");
    server.hear(&Header::grant(Credits::new(128, 128)), &[]);
    let done = server.hear(&Header::grant(Credits::new(128, 128)), &[]);
    let sent = kinds(&done).into_iter().filter(|kind| *kind == MessageKind::Extension).count();
    assert!(sent > 0 && server.engine.extension_room(), "{sent}");
    // The engine recognizes errors about the last of these messages only.
    for xid in MAX_WAITING_MESSAGES as u32..=MAX_WAITING_ERRORS as u32 {
        server.hear(&Header::grant(Credits::new(2, 128)), &[]);
        let Peer { engine, host, now } = &mut server;
        engine.send_extension(xid, false, body(77), *now, host).unwrap();
        assert_eq!(server.take().sent.len(), 1);
    }
    for (xid, known) in [(0, 0), (1, 1), (MAX_WAITING_ERRORS as u32, 1)] {
        let done = server.hear(&Header::error(xid, 2, Credits::new(8, 128), ErrorBody::System), &[]);
        let about =
            |action: &&Action| matches!(action, Action::Extension(Received::Error { xid: of, .. }) if *of == xid);
        assert_eq!(done.actions.iter().filter(about).count(), known, "{xid}: {done:?}");
    }
}

#[test]
fn so_many_header_types_are_remembered_as_unknown_and_no_more() {
    let mut server = Peer::ready(Config::server());
    let send = |Peer { engine, host, now }: &mut Peer, code| {
        engine.send_extension(code, false, OtherBody::new(code, Bytes::new()).unwrap(), *now, host)
    };
    for code in 100..165 {
        send(&mut server, code).unwrap();
        server.take();
        server.hear(&Header::error(code, 2, Credits::new(2, 32), ErrorBody::InvalidHeaderType), &[]);
    }
    for code in 100..164 {
        assert_eq!(send(&mut server, code), Err(ExtensionRefused::Unsupported { header_type: code }));
    }
    assert_eq!(send(&mut server, 164), Ok(()), "one past the limit");
}

proptest! {
    /// Sets of any shape: the exchange ends with the last set, and only once.
    #[test]
    fn an_exchange_ends_once(tpmores in proptest::collection::vec(any::<bool>(), 1..10)) {
        let mut server = Peer::new(Config::server());
        let (mut ended, mut errors) = (0, 0);
        for tpmore in &tpmores {
            let done = server.hear(&connprop(*tpmore, Vec::new()), &[]);
            ended += usize::from(negotiated(&done).is_some());
            errors += done.errors().len();
        }
        for _ in 0..20 {
            errors += server.hear(&Header::grant(credits()), &[]).errors().len();
        }
        let last = tpmores.iter().position(|tpmore| !tpmore);
        prop_assert_eq!(ended, usize::from(last.is_some()));
        prop_assert_eq!(errors, last.map_or(0, |at| tpmores.len() - at - 1));
    }
}
