//! Every error: when it is sent, with which fields, and how a requester reacts to it.

use crate::{
    common::{call, reply, segment, words},
    peer::{Peer, credits, msg, payload, reads, writes},
};
use bytes::Bytes;
use rpcrdma_engine::{
    Action, Answer, Call, CallError, CallId, CallRefused, Config, Limits, MessageKind, Side, v2::ReverseSupport,
};
use rpcrdma_wire::v2::{Body, Chunks, ErrorBody, Header, Lists, Property, WriteChunk};
use rpcrdma_xdr::Payload;

fn server() -> Peer {
    let limits = Limits { segments: 4, call_bytes: 10_000, read_chunks: 2, write_chunks: 2 };
    Peer::ready(Config { limits, ..Config::server() })
}

fn client() -> Peer {
    Peer::ready(Config::client())
}

/// A service's reply with eligible results of these lengths.
fn answer(xid: u32, run: usize, items: &[usize]) -> Answer {
    let mut payload = Payload::from(Bytes::from(reply(xid)));
    payload.push_run(Bytes::from(vec![0; run]));
    for &len in items {
        payload.push_item(Bytes::from(vec![1; len]));
    }
    Answer::Reply(payload)
}

/// proves: V2-4.3.4-d, V2-7.3.1-a, V2-7.3.1-c, V2-7.3.2-a, V2-7.3.3-a, V2-5.2.4-b, V2-7.3-c, V2-11.1.4-a
#[test]
fn chunks_above_a_limit_are_refused_with_the_limit() {
    let mut server = server();
    let cases = [
        (reads(&[(24, 8), (32, 8)]), None),
        (reads(&[(24, 8), (32, 8), (40, 8)]), Some(ErrorBody::ReadChunks { max_chunks: 2 })),
        (writes(&[&[8], &[8]]), None),
        (writes(&[&[8], &[8], &[8]]), Some(ErrorBody::WriteChunks { max_chunks: 2 })),
        (writes(&[&[8, 8], &[8, 8]]), None),
        (writes(&[&[8, 8], &[8, 8, 8]]), Some(ErrorBody::Segments { max_segments: 4 })),
        (reads(&[(24, 10_000)]), None),
        (reads(&[(24, 10_001)]), Some(ErrorBody::System)),
    ];
    for (xid, (lists, error)) in (1..).zip(cases) {
        let done = server.hear(&msg(xid, false, false, lists), &call(xid));
        assert_eq!(done.errors(), error.map(|error| (xid, error)).into_iter().collect::<Vec<_>>());
        let taken = done.actions.iter().any(|action| matches!(action, Action::Deliver { .. } | Action::Pull { .. }));
        assert_eq!(taken, error.is_none(), "what is refused is not executed");
    }
}

/// proves: V2-7-b, V2-7-c, V2-7-d, V2-7-e, V2-6.2.2.1-d
#[test]
fn an_error_names_its_call_and_grants() {
    let mut server = server();
    let done = server.hear(&msg(7, false, false, writes(&[&[8], &[8], &[8]])), &call(7));
    let [(header, ..)] = done.sent.as_slice() else { panic!("{done:?}") };
    assert_eq!((header.xid, header.version), (7, 2));
    assert_eq!((header.flags.response, header.flags.more), (true, false));
    assert!(matches!(header.body, Body::Error(_)));
    assert_ne!(header.credits.granted, 0);
}

/// proves: V2-7.3.4-a, V2-7.3.4-b, V2-7.3.4-c, V2-6.4-e, V2-6.4-h, V2-7.3.5-a, V2-7.3.5-b
#[test]
fn results_that_do_not_fit_say_what_they_need() {
    let mut peer = server();
    let done = peer.hear(&msg(1, false, false, writes(&[&[8], &[20, 29]])), &call(1));
    peer.engine.answer(done.delivered()[0].0, answer(1, 0, &[8, 50]));
    let done = peer.take();
    assert_eq!(done.errors(), [(1, ErrorBody::WriteResource { chunk_index: 2, length_needed: 50 })]);
    assert!(!done.actions.iter().any(|action| matches!(action, Action::Write { .. })), "nothing was written");
    // A client that has announced Simple Format cannot continue its reply.
    let config = Config { credits_granted: 4, reverse: ReverseSupport::Simple, ..Config::client() };
    let mut client = Peer::ready(config);
    let done = client.hear(&msg(2, false, false, Lists::default()), &call(2));
    client.engine.answer(done.delivered()[0].0, answer(2, 4096 - 36 - 24, &[]));
    assert_eq!(client.take().sent.len(), 1, "exactly a message");
    let done = client.hear(&msg(3, false, false, Lists::default()), &call(3));
    client.engine.answer(done.delivered()[0].0, answer(3, 4096 - 36 - 20, &[]));
    assert_eq!(client.take().errors(), [(3, ErrorBody::ReplyResource { length_needed: 4064 })]);
}

/// proves: V2-A.1-c, V2-A.1-g, V2-7.4.1-a, V2-7.3-c
#[test]
fn calls_that_cannot_be_served_are_answered() {
    let mut server = server();
    for (xid, answer, error) in
        [(1, Answer::NotEligible, ErrorBody::BadXdr), (2, Answer::Unreadable, ErrorBody::System)]
    {
        let done = server.hear(&msg(xid, false, false, Lists::default()), &call(xid));
        server.engine.answer(done.delivered()[0].0, answer);
        assert_eq!(server.take().errors(), [(xid, error)]);
    }
    // A Position Zero chunk that begins with another XID.
    let lists = Chunks::from(reads(&[(0, 40)]));
    let done = server.hear(&Header::nomsg(3, credits(), false, lists), &[]);
    let Some(Action::Pull { request, .. }) = done.actions.first() else { panic!("{done:?}") };
    server.engine.pulled(*request, &call(4));
    assert_eq!(server.take().errors(), [(3, ErrorBody::BadXdr)]);
    // A client without a reverse direction serves no calls.
    let mut client = client();
    let done = client.hear(&msg(5, false, false, Lists::default()), &call(5));
    assert_eq!(done.errors(), [(5, ErrorBody::System)]);
}

/// proves: V2-4.5.4-d, V2-4.5.4-e, V2-7.3.1-b, V2-7.3.2-d, V2-4.5.4-b, V2-4.5.3-a, V2-5.2.5-b
#[test]
fn a_client_refuses_what_it_has_not_announced() {
    let reply_chunk = || Lists { reply: Some(WriteChunk(vec![segment(6, 99)].into())), ..Lists::default() };
    let both = || Lists { reads: reads(&[(24, 8)]).reads, ..writes(&[&[8]]) };
    let none = ErrorBody::ReplyResource { length_needed: 0 };
    let (no_reads, no_writes) = (ErrorBody::ReadChunks { max_chunks: 0 }, ErrorBody::WriteChunks { max_chunks: 0 });
    for (level, expected) in [
        (ReverseSupport::Simple, [Some(no_reads), Some(none), Some(none)]),
        (ReverseSupport::Continued, [Some(no_reads), Some(no_writes), Some(none)]),
        (ReverseSupport::General, [None, None, None]),
    ] {
        let mut client = Peer::ready(Config { credits_granted: 8, reverse: level, ..Config::client() });
        for (xid, (lists, error)) in (1..).zip([both(), writes(&[&[8]]), reply_chunk()].into_iter().zip(expected)) {
            let done = client.hear(&msg(xid, false, false, lists), &call(xid));
            assert_eq!(done.errors(), error.map(|error| (xid, error)).into_iter().collect::<Vec<_>>(), "{level:?}");
        }
        let done = client.hear(&msg(9, false, true, Lists::default()), &call(9));
        let error = (level == ReverseSupport::Simple).then_some((9, ErrorBody::InvalidContinuation));
        assert_eq!(done.errors(), error.into_iter().collect::<Vec<_>>());
    }
}

/// proves: V2-7.1.1-e, V2-7.1.2-d, V2-7.1.3-c, V2-7.2.1-c, V2-7.3.4-d, V2-7.3.5-c, V2-7.4.1-c, V2-6.4-g, V2-7.1.2-e
/// proves: V2-7.3.1-e, V2-7.3.2-c, V2-7.3.3-c
#[test]
fn an_error_ends_its_call() {
    let permanent = [
        ErrorBody::Version { low: 1, high: 1 },
        ErrorBody::BadXdr,
        ErrorBody::BadPropertyValue,
        ErrorBody::InvalidHeaderType,
        ErrorBody::InvalidContinuation,
        ErrorBody::System,
        ErrorBody::WriteResource { chunk_index: 1, length_needed: 5000 },
        ErrorBody::ReplyResource { length_needed: 500_000 },
        // Limits that the call kept, some exactly: it has one Write chunk of one segment.
        ErrorBody::ReadChunks { max_chunks: 9 },
        ErrorBody::WriteChunks { max_chunks: 9 },
        ErrorBody::Segments { max_segments: 9 },
        ErrorBody::ReadChunks { max_chunks: 0 },
        ErrorBody::WriteChunks { max_chunks: 1 },
        ErrorBody::Segments { max_segments: 1 },
    ];
    let mut client = client();
    for (xid, error) in (1..).zip(permanent) {
        assert_eq!(client.call(xid, payload_of(xid, 0), 6000, &[5000], false).sent.len(), 1);
        let done = client.hear(&Header::error(xid, 2, credits(), error), &[]);
        assert_eq!(done.failed(), [CallError::Rejected(error)]);
        assert!(client.hear(&Header::error(xid, 2, credits(), error), &[]).actions.is_empty(), "once");
    }
    assert_eq!(client.engine.stats().exposed, 0);
    assert_eq!(client.call(99, payload_of(99, 0), 100, &[], false).sent.len(), 1, "RDMA2_MSG is not banned");
}

/// A call with an eligible argument.
fn payload_of(xid: u32, item: usize) -> Payload {
    let mut payload = Payload::from(Bytes::from(call(xid)));
    if item > 0 {
        payload.push_item(Bytes::from(vec![1; item]));
    }
    payload
}

/// proves: V2-7.3.1-d, V2-7.3.1-e, V2-7.3.2-b, V2-7.3.2-c, V2-7.3.3-b, V2-7.3.3-c, V2-6.4-f, V2-4.5.5-a, V2-4.5.4-e
#[test]
fn a_call_that_was_not_executed_is_sent_again_in_another_way() {
    let mut client = client();
    let done = client.call(1, payload_of(1, 9000), 100, &[], false);
    assert!(done.sent[0].0.body.chunks().is_some_and(|chunks| chunks.lists.reads.segments().len() == 1));
    let done = client.hear(&Header::error(1, 2, credits(), ErrorBody::ReadChunks { max_chunks: 0 }), &[]);
    assert!(done.failed().is_empty());
    assert_eq!(
        done.sent.iter().map(|(header, len, ..)| (header.xid, *len)).collect::<Vec<_>>(),
        [(1, 4060), (1, 4060), (1, 24 + 9000 - 2 * 4060)]
    );
    let done = client.call(2, payload_of(2, 0), 200_000, &[190_000], false);
    assert!(done.sent[0].0.body.chunks().is_some_and(|chunks| chunks.lists.writes.chunks().len() == 1));
    let done = client.hear(&Header::error(2, 2, credits(), ErrorBody::WriteChunks { max_chunks: 0 }), &[]);
    let chunks = done.sent[0].0.body.chunks().unwrap();
    assert_eq!(chunks.lists.reply.as_ref().map(WriteChunk::len), Some(200_000));
    assert!(chunks.lists.writes.is_empty());
    // The engine sends the call again twice, then the call fails.
    for segments in [0, 0] {
        let done = client.hear(&Header::error(2, 2, credits(), ErrorBody::Segments { max_segments: segments }), &[]);
        match done.failed()[..] {
            [] => assert!(done.sent[0].0.body.chunks().is_some_and(Chunks::is_empty)),
            [CallError::Rejected(ErrorBody::Segments { .. })] => {}
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!((client.engine.stats().unanswered, client.engine.stats().exposed), (1, 0), "the first is under way");
    assert!(client.call(3, payload_of(3, 0), 100, &[], false).failed().is_empty());
    // After any refusal of chunks in the reverse direction, the call has no chunks at all.
    let config = Config { credits_wanted: 4, ..Config::server() };
    let mut server = Peer::announced(config, vec![Property::Reverse(3)]);
    server.call(1, payload_of(1, 9000), 100, &[], false);
    let done = server.hear(&Header::error(1, 2, credits(), ErrorBody::ReadChunks { max_chunks: 7 }), &[]);
    assert_eq!(done.sent.len(), 3, "in parts");
}

/// proves: V2-6.4-f, V2-6.4-g
#[test]
fn a_call_that_was_executed_is_sent_again_only_if_it_may_be_repeated() {
    for repeatable in [false, true] {
        let mut client = client();
        client.call(1, payload_of(1, 0), 6000, &[5000], repeatable);
        let error = ErrorBody::WriteResource { chunk_index: 1, length_needed: 50_000 };
        let done = client.hear(&Header::error(1, 2, credits(), error), &[]);
        assert_eq!(done.failed().is_empty(), repeatable);
        if repeatable {
            let reply = done.sent[0].0.body.chunks().and_then(|chunks| chunks.lists.reply.clone());
            assert_eq!(reply.map(|chunk| chunk.len()), Some(56_000));
            let error = ErrorBody::ReplyResource { length_needed: 60_000 };
            let done = client.hear(&Header::error(1, 2, credits(), error), &[]);
            let reply = done.sent[0].0.body.chunks().and_then(|chunks| chunks.lists.reply.clone());
            assert_eq!(reply.map(|chunk| chunk.len()), Some(60_000));
            let done = client.hear(&Header::error(1, 2, credits(), error), &[]);
            assert_eq!(done.failed(), [CallError::Rejected(error)], "it had as much");
        }
    }
}

/// Nor is a call sent again if the peer takes no chunks: the peer would execute it again, and lack the same room.
/// proves: V2-6.4-g
#[test]
fn a_call_that_was_executed_is_not_sent_again_where_no_chunk_can_help() {
    let error = ErrorBody::ReplyResource { length_needed: 10_000 };
    for (announced, again) in [
        (vec![Property::Reverse(2)], false),
        (vec![Property::Reverse(3)], true),
        (vec![Property::Reverse(3), Property::SegmentCount(0)], false),
        (vec![Property::Reverse(3), Property::SegmentSize(0)], false),
    ] {
        // The caller may also have expected a short reply.
        for reply_max in [100, 6000] {
            let config = Config { credits_wanted: 4, ..Config::server() };
            let mut server = Peer::announced(config, announced.clone());
            server.call(1, payload_of(1, 0), reply_max, &[], true);
            let done = server.hear(&Header::error(1, 2, credits(), error), &[]);
            assert_eq!((done.sent.len(), done.failed().is_empty()), (usize::from(again), again), "{announced:?}");
        }
    }
    // Or if the peer has refused chunks for this call.
    let mut client = client();
    client.call(1, payload_of(1, 0), 6000, &[5000], true);
    let none = ErrorBody::Segments { max_segments: 0 };
    assert_eq!(client.hear(&Header::error(1, 2, credits(), none), &[]).sent.len(), 1, "without chunks");
    let done = client.hear(&Header::error(1, 2, credits(), error), &[]);
    assert_eq!((done.sent.len(), done.failed()), (0, vec![CallError::Rejected(error)]));
}

/// A client does not follow for ever a server that asks for more each time.
/// proves: V2-6.4-g, V2-7.3.5-c
#[test]
fn a_call_is_sent_again_twice_and_no_more() {
    let mut client = client();
    client.call(1, payload_of(1, 0), 6000, &[], true);
    for (length_needed, again) in [(10_000, true), (20_000, true), (30_000, false)] {
        let error = ErrorBody::ReplyResource { length_needed };
        let done = client.hear(&Header::error(1, 2, credits(), error), &[]);
        let expected = if again { vec![] } else { vec![CallError::Rejected(error)] };
        assert_eq!((done.sent.len(), done.failed()), (usize::from(again), expected), "{error:?}");
    }
}

/// proves: V2-7-f, V2-7-g, V2-7.4-a, V2-6.2.2.1-g, V2-3.1.2-c
#[test]
fn errors_about_nothing_and_unknown_ones_are_dropped() {
    let mut client = client();
    client.call(1, payload_of(1, 0), 100, &[], false);
    let before = client.engine.stats().discarded;
    for error in [ErrorBody::BadXdr, ErrorBody::System] {
        let done = client.hear(&Header::error(7, 2, credits(), error), &[]);
        assert!(done.sent.is_empty() && done.actions.is_empty(), "{done:?}");
    }
    let unknown = ErrorBody::of_extension(55).unwrap();
    let done = client.hear(&Header::error(1, 2, credits(), unknown), &[]);
    assert!(done.sent.is_empty() && done.actions.is_empty(), "{done:?}");
    assert_eq!(client.engine.stats().discarded, before + 3);
    let done = client.hear(&msg(1, true, false, Lists::default()), &reply(1));
    assert_eq!(done.completed(), 1, "the call is still there");
    let done = client.hear(&msg(1, true, false, Lists::default()), &reply(1));
    assert!(done.sent.is_empty() && done.actions.is_empty(), "a reply to nobody");
    let placed = Lists { reply: Some(WriteChunk(vec![segment(6, 40)].into())), ..Lists::default() };
    client.hear(&Header::nomsg(1, credits(), true, Chunks::from(placed)), &[]);
    assert_eq!(client.engine.stats().discarded, before + 5);
    let call = |id: u64| Call::new(CallId(id), 9, payload(40));
    assert!(client.engine.call(call(9), client.now, &mut client.host).is_ok());
    let again = client.engine.call(call(10), client.now, &mut client.host);
    assert_eq!(again, Err(CallRefused::XidInUse { xid: 9 }));
}

/// A prefix alone.
fn bare(xid: u32, version: u32, kind: u32, flags: u32) -> Vec<u8> {
    words(&[xid, version, 0x0020_0001, kind, flags])
}

/// The server answers each message with the error beside it, and then serves a call.
fn are_answered(cases: &[(Vec<u8>, Option<ErrorBody>)]) {
    let mut server = server();
    for (octets, error) in cases {
        let (octets, error) = (octets.clone(), *error);
        let xid = u32::from_be_bytes(*octets.first_chunk().unwrap());
        let done = server.hear_bytes(octets);
        assert_eq!(done.errors(), error.map(|error| (xid, error)).into_iter().collect::<Vec<_>>());
        assert!(done.delivered().is_empty());
    }
    assert!(server.hear(&msg(20, false, false, Lists::default()), &call(20)).delivered().len() == 1, "it goes on");
}

/// proves: V2-6.1-c, V2-6.1-e, V2-7.1.2-a, V2-7.1.2-b, V2-7.2-d, V2-7.2.1-a, V2-7.2.1-b, V2-7-a
/// proves: V2-7.1.1-a, V2-7.1.1-b, V2-4.2.3.3-d
#[test]
fn what_is_no_header_of_the_version_is_answered_as_the_wire_judges() {
    are_answered(&[
        (bare(1, 2, 9, 0), Some(ErrorBody::InvalidHeaderType)),
        (bare(2, 2, 9, 1), None),
        (bare(3, 2, 0, 0), Some(ErrorBody::BadXdr)),
        (bare(4, 2, 0, 0)[..19].to_vec(), None),
        (bare(5, 1, 0, 0), Some(ErrorBody::Version { low: 2, high: 2 })),
    ]);
}

/// proves: V2-6.2.2.3-b, V2-6.3.2-f, V2-6.3.2-h
#[test]
fn what_carries_no_message_is_answered_as_the_wire_judges() {
    are_answered(&[
        ([bare(6, 2, 1, 4), words(&[0; 4])].concat(), Some(ErrorBody::InvalidHeaderType)),
        ([bare(7, 2, 1, 0), words(&[0; 4])].concat(), Some(ErrorBody::BadXdr)),
        ([bare(8, 2, 1, 1), words(&[0; 4])].concat(), None),
        ([bare(0, 2, 1, 0), words(&[0; 4])].concat(), None),
    ]);
}

/// proves: V2-4.2.1.1-i, V2-6.3.2-f
#[test]
fn grants_of_messages_that_are_dropped_count() {
    // A client that can send nothing: the first message of the server grants nothing.
    let mut client = Peer::new(Config::client());
    client.engine.start(client.now, &mut client.host);
    client.take();
    let none = rpcrdma_wire::v2::Credits::new(0, 32);
    client.hear(&Header::connprop(1, none, false, Default::default()), &[]);
    assert!(client.call(1, payload_of(1, 0), 100, &[], false).sent.is_empty(), "no credit");
    // A NOMSG without chunks and with an XID is no message, but its grant counts.
    let done = client.hear(&Header::nomsg(5, credits(), true, Chunks::default()), &[]);
    assert_eq!(done.sent.iter().map(|sent| sent.2).collect::<Vec<_>>(), [MessageKind::Call]);
}

/// proves: V2-6.2.4-a, V2-6.2.4-b, V2-6.2.4-c, V2-6.2.4-e, V2-C.7-a, V2-C.7-b
#[test]
fn a_reply_invalidates_what_the_call_has_offered_and_nothing_else() {
    let offer = |handle| Chunks { inv_handle: handle, lists: writes(&[&[80]]) };
    for (remote, handle, invalidated) in [(true, 6, Some(6)), (true, 7, None), (true, 0, None), (false, 6, None)] {
        let mut server = Peer::ready(Config { remote_invalidation: remote, ..Config::server() });
        let done = server.hear(&Header::msg(1, credits(), false, false, offer(handle)), &call(1));
        server.engine.answer(done.delivered()[0].0, answer(1, 9000, &[80]));
        let done = server.take();
        let sent: Vec<_> = done.sent.iter().map(|(_, _, _, invalidate)| *invalidate).collect();
        assert_eq!(sent, [None, None, invalidated], "with the last Send only");
        let mut client = Peer::ready(Config { remote_invalidation: remote, ..Config::client() });
        let done = client.call(1, payload_of(1, 0), 90_000, &[80_000], false);
        let Body::Msg(chunks) = &done.sent[0].0.body else { panic!("{done:?}") };
        assert_eq!(chunks.invalidatable().is_some(), remote);
    }
    assert_eq!(Config::server().side, Side::Server);
}
