//! Version 1: which bytes leave a message and which stay, and how long memory is exposed.

use crate::common::{self, Handles, T, call, delivered, reply, words};
use bytes::Bytes;
use rpcrdma_engine::{Action, Answer, Call, CallId, Config, ExposureId, MessageKind, SILENCE_LIMIT, v1::Connection};
use rpcrdma_wire::{
    PrivateData,
    v1::{Body, ErrorBody, Header, Lists, ReadList, ReadSegment, Segment, WriteChunk, WriteList},
};
use rpcrdma_xdr::Payload;

const PEER: PrivateData = PrivateData { remote_invalidation: true, send_size: 1024, receive_size: 1024 };

fn client() -> (Connection, Handles) {
    (Connection::new(Config::client(), Some(&PEER)), Handles::default())
}

fn server() -> (Connection, Handles) {
    (Connection::new(Config::server(), Some(&PEER)), Handles::default())
}

fn actions(engine: &mut Connection) -> Vec<Action> {
    std::iter::from_fn(|| engine.poll()).collect()
}

/// The messages among actions: header, and the bytes behind it.
fn messages(actions: &[Action]) -> Vec<(Header, Vec<u8>)> {
    let message = |action: &Action| {
        let Action::Send { octets, .. } = action else { return None };
        let octets = octets.concat();
        let (header, len) = Header::decode(&octets).unwrap();
        Some((header, octets[len..].to_vec()))
    };
    actions.iter().filter_map(message).collect()
}

fn lists(header: &Header) -> &Lists {
    header.body.lists().expect("a message of RPC")
}

/// The Read chunks of a header as (Position, bytes).
fn chunks(header: &Header) -> Vec<(u32, u32)> {
    lists(header).reads.segments().iter().map(|entry| (entry.position, entry.segment.length)).collect()
}

fn message(xid: u32, kind: u32, lists: Lists, tail: &[u8]) -> Bytes {
    let header = Header::new(xid, 8, Body::Msg(lists)).to_bytes();
    [header.to_vec(), words(&[xid, kind, 2, 100_003, 3, 1]), tail.to_vec()].concat().into()
}

fn start(engine: &mut Connection, host: &mut Handles, xid: u32, call: Payload, items: &[usize]) -> Vec<Action> {
    let reply_max = 1000 + items.iter().sum::<usize>();
    engine.call(Call::new(CallId(xid.into()), xid, call).with_reply(reply_max, items), T, host).unwrap();
    actions(engine)
}

/// A stream with arrays, and one word behind them.
fn arrays(head: Vec<u8>) -> (Payload, Vec<u8>, [Vec<u8>; 2]) {
    let (mut stream, left, moved) = common::arrays(head, 3999);
    stream.push_run(Bytes::from(words(&[77])));
    (stream, [left, words(&[77])].concat(), moved)
}

/// proves: V1-3.4.4.1-a, V1-3.4.4.2-a, IE-3.7.1-b, V1-3.4.4.4-a, V1-4.3.1.1-a, V1-3.4.5-b
#[test]
fn counts_and_flags_stay_and_elements_move_whole() {
    let (mut engine, mut host) = client();
    let (stream, reduced, [elements, present]) = arrays(call(1));
    let sent = messages(&start(&mut engine, &mut host, 1, stream, &[]));
    let [first, second] = [elements.len() as u32, present.len() as u32];
    assert_eq!(chunks(&sent[0].0), [(28, first), (32 + first, second)], "and what follows 3,999 bytes begins at 4,000");
    assert_eq!(sent[0].1, reduced, "the count of the outermost array, the flag, and nothing of what moved");

    let (mut engine, mut host) = server();
    let chunk = |handle, length| WriteChunk(vec![Segment { handle, length, offset: 0 }].into());
    let offer = Lists { writes: WriteList(vec![chunk(5, 6012), chunk(6, 3999)].into()), ..Lists::default() };
    engine.received(message(1, 0, offer, &[]), T, &mut host);
    let request = delivered(&actions(&mut engine))[0];
    let (stream, reduced, moved) = arrays(reply(1));
    engine.answer(request, Answer::Reply(stream));
    let done = actions(&mut engine);
    let write = |action: &Action| if let Action::Write { octets, .. } = action { Some(octets.concat()) } else { None };
    assert_eq!(done.iter().filter_map(write).collect::<Vec<_>>(), moved, "with the counts within");
    assert_eq!(messages(&done)[0].1, reduced);
}

/// proves: V1-6.1-a
#[test]
fn only_what_is_marked_is_reduced() {
    for each in [300, 900, 70_000] {
        let (mut engine, mut host) = client();
        let mut call = Payload::from(Bytes::from(call(1)));
        for _ in 0..3 {
            call.push_run(Bytes::from(vec![1; each]));
            call.push_item(Bytes::from(vec![2; each]));
        }
        let sent = messages(&start(&mut engine, &mut host, 1, call, &[]));
        let each = each as u32;
        let marked = [24 + each, 24 + 3 * each, 24 + 5 * each];
        let (zero, reduced): (Vec<_>, Vec<_>) =
            chunks(&sent[0].0).into_iter().partition(|(position, _)| *position == 0);
        assert!(!reduced.is_empty() || each < 1024, "small ones do not pay beside a chunk for the stream");
        assert!(reduced.iter().all(|(position, octets)| marked.contains(position) && *octets == each), "{reduced:?}");
        let left = zero.iter().map(|(_, octets)| octets).sum::<u32>() + sent[0].1.len() as u32;
        assert_eq!(left, 24 + 6 * each - reduced.len() as u32 * each, "all else is there");
    }
}

/// proves: V1-4.3.2.3-b, V1-3.4.6-b, V1-3.4.6.2-a, IE-3.8.1-b
#[test]
fn a_chunk_has_the_octets_of_its_result_and_an_empty_one_keeps_its_place() {
    let (mut engine, mut host) = client();
    let call = Payload::from(Bytes::from(words(&[1, 0, 2, 100_003, 3, 6])));
    let sent = messages(&start(&mut engine, &mut host, 1, call, &[4001, 0, 5003]));
    let octets = |chunk: &WriteChunk| chunk.segments().iter().map(|segment| segment.length).collect::<Vec<_>>();
    let offered: Vec<_> = lists(&sent[0].0).writes.chunks().iter().map(octets).collect();
    assert_eq!(offered, [vec![4001], vec![], vec![5003]]);
}

/// proves: V1-3.5.3-e
#[test]
fn a_call_of_any_size_may_be_long() {
    for octets in [40, 44, 5000] {
        let (mut engine, mut host) = server();
        let read = ReadSegment { position: 0, segment: Segment { handle: 1, length: octets, offset: 0 } };
        let reads = ReadList(vec![read].into());
        engine.received(Header::new(7, 8, Body::Nomsg(Lists { reads, ..Lists::default() })).to_bytes(), T, &mut host);
        let done = actions(&mut engine);
        let pull = |action: &Action| if let Action::Pull { request, .. } = action { Some(*request) } else { None };
        let request = done.iter().find_map(pull).expect("it is pulled");
        let mut call = words(&[7, 0, 2, 100_003, 3, 1, 0, 0, 0, 0]);
        call.resize(octets as usize, 0);
        assert!(engine.pulled(request, &call));
        assert_eq!(delivered(&actions(&mut engine)), [request], "{octets}");
    }
}

/// proves: V1-8.1.2-a, V1-8.1.3-a
#[test]
fn memory_is_exposed_for_a_call_and_no_longer() {
    let (mut engine, mut host) = client();

    let mut named = Vec::new();
    for xid in 1..5 {
        assert_eq!(engine.stats().exposed, 0, "nothing is exposed for good, nor for a call that is over");
        let (stream, ..) = arrays(call(xid));
        let sent = messages(&start(&mut engine, &mut host, xid, stream, &[50_000]));
        let lists = lists(&sent[0].0);
        let sources = lists.reads.segments().iter().map(|entry| entry.segment.handle);
        let sinks = lists.writes.chunks().iter().chain(&lists.reply).flat_map(|chunk| chunk.segments());
        let handles: Vec<u32> = sources.chain(sinks.map(|segment: &Segment| segment.handle)).collect();
        let lent: Vec<u32> = host.lent[named.len()..].iter().map(|(_, handle)| *handle).collect();
        assert_eq!(handles, lent, "all that is exposed is this call's");
        let unused = Lists {
            writes: WriteList(lists.writes.chunks().iter().filter_map(|chunk| chunk.filled(0)).collect()),
            reply: lists.reply.as_ref().and_then(|chunk| chunk.filled(0)),
            ..Lists::default()
        };
        named.extend(lent);
        engine.received(message(xid, 1, unused, &[]), T, &mut host);
        for action in actions(&mut engine) {
            if let Action::Invalidate { exposure, .. } = action {
                engine.fenced(exposure);
            }
        }
        assert!(actions(&mut engine).iter().any(|action| matches!(action, Action::Complete { .. })));
    }
}

/// proves: V1-4.5.4-b
#[test]
fn a_reply_is_not_given_out_while_its_memory_may_be_reached() {
    let (mut engine, mut host) = client();
    let call = Payload::from(Bytes::from(words(&[7, 0, 2, 100_003, 3, 6])));
    let sent = messages(&start(&mut engine, &mut host, 7, call, &[50_000]));
    let chunk = lists(&sent[0].0).writes.chunks()[0].filled(50_000).unwrap();
    engine.received(
        message(7, 1, Lists { writes: WriteList(vec![chunk].into()), ..Lists::default() }, &[]),
        T,
        &mut host,
    );
    let done = actions(&mut engine);
    let invalidated =
        |action: &Action| if let Action::Invalidate { exposure, .. } = action { Some(*exposure) } else { None };
    let mut open: Vec<ExposureId> = done.iter().filter_map(invalidated).collect();
    let last = open.pop().expect("the memory is taken back first");
    open.into_iter().for_each(|exposure| engine.fenced(exposure));
    assert!(!done.iter().any(|action| matches!(action, Action::Complete { .. })));
    // The engine waits as long as it takes: the provider fences, or ends the connection.
    for minute in 1..200 {
        engine.wake(T + SILENCE_LIMIT * minute, &mut host);
        assert!(!actions(&mut engine).iter().any(|action| matches!(action, Action::Complete { .. })));
    }
    engine.fenced(last);
    assert!(actions(&mut engine).iter().any(|action| matches!(action, Action::Complete { .. })));
}

/// A health check goes out although every credit that calls may use is in use.
/// proves: ULB-3.4.1-a, ULB-5.4.2-a
#[test]
fn one_credit_is_left_for_a_health_check() {
    let (mut engine, mut host) = client();
    let call = |xid| Payload::from(Bytes::from(call(xid)));
    start(&mut engine, &mut host, 1, call(1), &[]);
    let granted = Header::new(1, 3, Body::Msg(Lists::default())).to_bytes();
    engine.received([granted.to_vec(), reply(1)].concat().into(), T, &mut host);
    let sent: usize = (2..8).map(|xid| messages(&start(&mut engine, &mut host, xid, call(xid), &[])).len()).sum();
    assert_eq!((sent, engine.stats().unanswered), (2, 2), "three were granted");
    engine.wake(T + SILENCE_LIMIT, &mut host);
    let done = actions(&mut engine);
    let Some(Action::Send { about, octets, .. }) = done.last() else { panic!("{done:?}") };
    assert_eq!(about.kind, MessageKind::Probe);
    let octets = octets.concat();
    assert_eq!(octets[octets.len() - 20..][..4], [0; 4], "procedure 0, with no credential and no verifier");
}

#[test]
fn credits_of_another_version_mean_nothing() {
    let call = |xid| Payload::from(Bytes::from(call(xid)));
    for (error, sent) in [(ErrorBody::Version { low: 2, high: 2 }, 1), (ErrorBody::Chunk, 4)] {
        let (mut engine, mut host) = client();
        start(&mut engine, &mut host, 1, call(1), &[]);
        engine.received(Header { xid: 1, version: 1, credit: 5, body: Body::Error(error) }.to_bytes(), T, &mut host);
        let after: usize = (2..9).map(|xid| messages(&start(&mut engine, &mut host, xid, call(xid), &[])).len()).sum();
        assert_eq!(after, sent, "{error:?}");
    }
}

/// proves: V1-3.3.3-e, V1-3.3.3-a
#[test]
fn no_threshold_is_below_the_least() {
    let small = Config { send_bytes: 100, receive_bytes: 0, ..Config::client() };
    for peer in [None, Some(&PrivateData { remote_invalidation: false, send_size: 0, receive_size: 1 })] {
        let engine = Connection::new(small.clone(), peer);
        assert_eq!((engine.link().send_inline, engine.link().receive_inline), (1024, 1024));
    }
}
