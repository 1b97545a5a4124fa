//! Single rules, each with a peer that sends hand-made messages.

use crate::common::{Handles, T, closed, delivered, words};
use bytes::Bytes;
use proptest::prelude::*;
use rpcrdma_engine::{
    Action, Answer, Call, CallError, CallId, CloseCause, Config, ExposeError, ExposureId, FORGOTTEN_CALL_DEADLINE,
    MessageKind, PROBE_TIMEOUT, PeerFault, ReplyBase, SILENCE_LIMIT, SPENT_LIMIT, v1::Connection,
};
use rpcrdma_wire::{
    PrivateData,
    v1::{Body, ErrorBody, Header, Lists, ReadList, ReadSegment, Segment, WriteChunk, WriteList},
};
use rpcrdma_xdr::Payload;

const PEER: PrivateData = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 };

fn actions(engine: &mut Connection) -> Vec<Action> {
    std::iter::from_fn(|| engine.poll()).collect()
}

fn client() -> (Connection, Handles) {
    (Connection::new(Config::client(), Some(&PEER)), Handles::default())
}

fn server() -> (Connection, Handles) {
    (Connection::new(Config { credits_granted: 2, ..Config::server() }, Some(&PEER)), Handles::default())
}

fn message(xid: u32, credit: u32, lists: Lists, msg_type: u32) -> Bytes {
    let mut octets = Header::new(xid, credit, Body::Msg(lists)).to_bytes().to_vec();
    octets.extend(words(&[xid, msg_type, 2, 100_003, 3, 0]));
    octets.into()
}

fn call(xid: u32) -> Bytes {
    message(xid, 8, Lists::default(), 0)
}

fn reply(xid: u32, credit: u32) -> Bytes {
    message(xid, credit, Lists::default(), 1)
}

/// Starts a call with one result of up to 10,000 bytes, which exposes one Write chunk.
fn start(engine: &mut Connection, host: &mut Handles, id: u64, xid: u32) -> Vec<Action> {
    let payload = Payload::from(Bytes::from(words(&[xid, 0, 2, 100_003, 3, 6])));
    engine.call(Call::new(CallId(id), xid, payload).with_reply(10_100, &[10_000]), T, host).unwrap();
    actions(engine)
}

fn header_of(action: &Action) -> Header {
    let Action::Send { octets, .. } = action else { panic!("{action:?}") };
    Header::decode(&octets.concat()).unwrap().0
}

fn sends(actions: &[Action]) -> Vec<Header> {
    actions.iter().filter(|action| matches!(action, Action::Send { .. })).map(header_of).collect()
}

/// proves: V1-3.3.1-c
#[test]
fn a_peer_that_overruns_its_credits_loses_the_connection() {
    let (mut engine, mut host) = server();
    engine.received(call(1), T, &mut host);
    assert_eq!(closed(&actions(&mut engine)), None, "at the limit: one credit before the first reply");
    engine.received(call(2), T, &mut host);
    assert_eq!(closed(&actions(&mut engine)), Some(CloseCause::Peer(PeerFault::CreditsOverrun)));
    engine.received(call(3), T, &mut host);
    assert!(actions(&mut engine).is_empty(), "nothing more is done for it");
}

/// A peer can answer neither a call that still waits for a credit, nor one whose reply has come and whose memory is
/// being taken back.
/// proves: V1-3.3.3-d
#[test]
fn only_what_was_sent_can_be_answered_and_only_once() {
    let (mut engine, mut host) = client();
    assert_eq!(sends(&start(&mut engine, &mut host, 1, 7)).len(), 1);
    assert!(sends(&start(&mut engine, &mut host, 2, 8)).is_empty(), "one credit until the first reply");
    engine.received(reply(8, 4), T, &mut host);
    let after = actions(&mut engine);
    assert!(!after.iter().any(|action| !matches!(action, Action::PostReceives { .. })), "{after:?}");
    let stats = engine.stats();
    assert_eq!((stats.unanswered, stats.queued, stats.discarded), (1, 1, 1));
    engine.received(reply(7, 4), T, &mut host);
    assert_eq!(sends(&actions(&mut engine)).len(), 1, "the second call");
    engine.received(reply(7, 4), T, &mut host);
    let stats = engine.stats();
    assert_eq!((stats.unanswered, stats.queued, stats.discarded), (1, 0, 2), "no credit comes of an answer twice");
}

/// proves: V1-3.3.1-d, V1-3.3.1-h
#[test]
fn the_first_reply_grants_what_receives_were_posted_for() {
    let (mut engine, mut host) = server();
    engine.received(call(1), T, &mut host);
    let request = delivered(&actions(&mut engine))[0];
    engine.answer(request, Answer::Reply(Payload::from(Bytes::from(words(&[1, 1, 0, 0, 0, 0])))));
    let after = actions(&mut engine);
    assert!(matches!(after[0], Action::PostReceives { count: 1 }), "{after:?}");
    assert_eq!(header_of(&after[1]).credit, 2);
}

/// Each end always sends its own value, whatever is under way: the requested credits in a Call, the granted ones in a
/// Reply.
/// proves: V1-3.3.1-b, V1-3.3.1-f, V1-4.2.3-a
#[test]
fn credit_values_are_absolute_and_stay_what_they_are() {
    let mut engine = Connection::new(Config { credits_wanted: 23, ..Config::client() }, Some(&PEER));
    let mut host = Handles::default();
    let mut asked = Vec::new();
    for xid in 1..=20 {
        asked.extend(sends(&start(&mut engine, &mut host, xid, xid as u32)));
        if xid % 3 == 0 {
            engine.received(reply(xid as u32 / 3, 9), T, &mut host);
            asked.extend(sends(&actions(&mut engine)));
        }
    }
    assert!(asked.len() > 8 && asked.iter().all(|header| header.credit == 23), "{asked:?}");
    // A grant of nine means nine in all, not nine more.
    assert_eq!(engine.stats().unanswered, 8, "nine were granted, and one is kept back");
    let mut engine = Connection::new(Config { credits_granted: 7, ..Config::server() }, Some(&PEER));
    let answer = |xid| Answer::Reply(Payload::from(Bytes::from(words(&[xid, 1, 0, 0, 0, 0]))));
    engine.received(call(1), T, &mut host);
    let mut open = delivered(&actions(&mut engine));
    let mut granted = Vec::new();
    for xid in 2..30u32 {
        engine.answer(open.remove(0), answer(xid - 1));
        granted.extend(sends(&actions(&mut engine)));
        engine.drained();
        // One more under way each time, up to all granted.
        while open.len() < (xid as usize).min(7) {
            engine.received(call(1000 + xid * 10 + open.len() as u32), T, &mut host);
            open.extend(delivered(&actions(&mut engine)));
        }
    }
    assert_eq!(granted.len(), 28);
    assert!(granted.iter().all(|header| header.credit == 7), "{granted:?}");
}

#[test]
fn a_peer_that_does_not_take_its_answers_waits() {
    let (mut engine, mut host) = server();
    let reply = |xid| Answer::Reply(Payload::from(Bytes::from(words(&[xid, 1, 0, 0, 0, 0]))));
    for xid in 1..=2 {
        engine.received(call(xid), T, &mut host);
        let request = delivered(&actions(&mut engine))[0];
        engine.answer(request, reply(xid));
        actions(&mut engine);
    }
    engine.received(call(3), T, &mut host);
    assert!(delivered(&actions(&mut engine)).is_empty(), "two answers are still in our memory");
    engine.drained();
    assert_eq!(delivered(&actions(&mut engine)).len(), 1);
}

/// proves: V1-4.5-b, V1-4.5-d, V1-4.5-e, V1-4.5-f, V1-4.5.1-a, V1-3.3.1-l
#[test]
fn faulty_calls_are_answered_with_the_error_owed() {
    let (mut engine, mut host) = server();
    let mut other_version = call(5).to_vec();
    other_version[7] = 2;
    engine.received(other_version.into(), T, &mut host);
    let sent = sends(&actions(&mut engine));
    assert_eq!(sent[0].body, Body::Error(ErrorBody::Version { low: 1, high: 1 }));
    assert_eq!((sent[0].xid, sent[0].version, sent[0].credit), (5, 2, 2));
    let mut mismatch = call(6).to_vec();
    mismatch[31] = 7;
    engine.received(mismatch.into(), T, &mut host);
    let sent = sends(&actions(&mut engine));
    assert_eq!((sent[0].xid, &sent[0].body), (6, &Body::Error(ErrorBody::Chunk)));
}

/// proves: V1-4.6.1-b, IE-7.1.3-a
#[test]
fn padded_messages_are_not_taken() {
    let (mut engine, mut host) = server();
    for (align, thresh) in [(0, 0), (4, 1024)] {
        let header = Header::new(6, 8, Body::Msgp { align, thresh, lists: Lists::default() });
        let octets = [header.to_bytes().to_vec(), words(&[6, 0, 2, 100_003, 3, 0])].concat();
        engine.received(octets.into(), T, &mut host);
        let done = actions(&mut engine);
        assert_eq!((delivered(&done).len(), &sends(&done)[0].body), (0, &Body::Error(ErrorBody::Chunk)));
        engine.drained();
    }
}

#[test]
fn a_flood_of_faulty_messages_ends_the_connection() {
    let (mut engine, mut host) = server();
    let nomsg = Header::new(5, 8, Body::Nomsg(Lists::default())).to_bytes();
    let mut answers = 0;
    let cause = loop {
        engine.received(nomsg.clone(), T, &mut host);
        let done = actions(&mut engine);
        answers += sends(&done).len();
        if let Some(cause) = closed(&done) {
            break cause;
        }
    };
    assert_eq!((cause, answers), (CloseCause::Peer(PeerFault::AnswersNotTaken), 19), "credits, 16, and one");
}

/// proves: V1-6.1-c, V1-6.1-d, V1-4.5.3-a
#[test]
fn an_ineligible_chunk_or_a_reply_without_room_is_refused() {
    let (mut engine, mut host) = server();
    engine.received(call(1), T, &mut host);
    let request = delivered(&actions(&mut engine))[0];
    engine.answer(request, Answer::NotEligible);
    assert_eq!(sends(&actions(&mut engine))[0].body, Body::Error(ErrorBody::Chunk));
    engine.received(call(2), T, &mut host);
    let request = delivered(&actions(&mut engine))[0];
    engine.answer(request, Answer::Reply(Payload::from(Bytes::from(vec![0; 5000]))));
    assert_eq!(sends(&actions(&mut engine))[0].body, Body::Error(ErrorBody::Chunk));
    engine.received(call(3), T, &mut host);
    engine.drained();
    let request = delivered(&actions(&mut engine))[0];
    engine.answer(request, Answer::Nothing);
    assert!(sends(&actions(&mut engine)).is_empty());
    assert_eq!(engine.stats().executing, 0);
}

/// proves: V1-4.2.1-c
#[test]
fn a_long_call_must_begin_with_its_xid() {
    let (mut engine, mut host) = server();
    let read = ReadSegment { position: 0, segment: Segment { handle: 1, length: 40, offset: 0 } };
    let lists = Lists { reads: ReadList(vec![read].into()), ..Lists::default() };
    for (xid, fits) in [(7u32, true), (8, false)] {
        engine.received(Header::new(xid, 8, Body::Nomsg(lists.clone())).to_bytes(), T, &mut host);
        let pulls = actions(&mut engine);
        let request =
            pulls.iter().find_map(|a| if let Action::Pull { request, .. } = a { Some(*request) } else { None });
        let request = request.expect("it is pulled");
        engine.pulled(request, &words(&[7, 0]));
        let after = actions(&mut engine);
        assert_eq!((delivered(&after).len(), sends(&after).len()), if fits { (1, 0) } else { (0, 1) });
        engine.answer(request, Answer::Nothing);
        engine.drained();
    }
}

/// proves: V1-8.1.4-a
#[test]
fn unreasonable_chunks_are_not_pulled() {
    let (mut engine, mut host) = server();
    let at = |length| {
        let read = ReadSegment { position: 24, segment: Segment { handle: 1, length, offset: 0 } };
        message(9, 8, Lists { reads: ReadList(vec![read].into()), ..Lists::default() }, 0)
    };
    engine.received(at((4 << 20) + 1), T, &mut host);
    let after = actions(&mut engine);
    assert!(!after.iter().any(|action| matches!(action, Action::Pull { .. })));
    assert_eq!(sends(&after)[0].body, Body::Error(ErrorBody::Chunk));
    engine.received(at(4 << 20), T, &mut host);
    assert!(actions(&mut engine).iter().any(|action| matches!(action, Action::Pull { .. })), "at the limit");
}

/// proves: CM-8797-4-e
#[test]
fn a_reply_invalidates_a_handle_of_its_call_only_where_both_allow_it() {
    let write = WriteChunk(vec![Segment { handle: 77, length: 100, offset: 0 }].into());
    let asked = message(1, 8, Lists { writes: WriteList(vec![write].into()), ..Lists::default() }, 0);
    for (peer, expected) in [(PEER, Some(77)), (PrivateData { remote_invalidation: false, ..PEER }, None)] {
        let mut engine = Connection::new(Config::server(), Some(&peer));
        engine.received(asked.clone(), T, &mut Handles::default());
        let request = delivered(&actions(&mut engine))[0];
        engine.answer(request, Answer::Reply(Payload::from(Bytes::from(words(&[1, 1, 0, 0, 0, 0])))));
        let sent = actions(&mut engine);
        let invalidated =
            sent.iter().find_map(|a| if let Action::Send { about, .. } = a { Some(about.invalidates) } else { None });
        assert_eq!(invalidated, Some(expected));
    }
}

/// proves: V1-4.4.1-a, V1-8.1.3-b
#[test]
fn a_reply_waits_for_the_fence() {
    let (mut engine, mut host) = client();
    let sent = start(&mut engine, &mut host, 1, 7);
    let chunk = header_of(sent.last().unwrap()).body.lists().unwrap().writes.chunks()[0].filled(3).unwrap();
    engine.received(
        message(7, 8, Lists { writes: WriteList(vec![chunk].into()), ..Lists::default() }, 1),
        T,
        &mut host,
    );
    let after = actions(&mut engine);
    let [Action::Invalidate { exposure, handle: 1000 }] = after[..] else { panic!("{after:?}") };
    engine.fenced(exposure);
    let after = actions(&mut engine);
    let [Action::Complete { call: CallId(1), reply }] = &after[..] else { panic!("{after:?}") };
    assert!(matches!(reply.base, ReplyBase::Inline(_)));
    assert_eq!(reply.items[0].returned, 3);
}

/// The peer may invalidate a handle of an unanswered call. The peer can then no longer reach that memory; the call goes
/// on, and the engine does not invalidate the handle again.
#[test]
fn memory_that_the_peer_gives_up_early_ends_no_call() {
    let (mut engine, mut host) = client();
    start(&mut engine, &mut host, 1, 1);
    engine.received(reply(1, 8), T, &mut host);
    engine.fenced(ExposureId(0));
    start(&mut engine, &mut host, 2, 2);
    start(&mut engine, &mut host, 3, 3);
    engine.fenced(ExposureId(2));
    assert!(actions(&mut engine).is_empty(), "the call is still unanswered");
    engine.received(reply(2, 8), T, &mut host);
    assert!(matches!(actions(&mut engine)[..], [Action::Invalidate { exposure: ExposureId(1), handle: 1001 }]));
    engine.fenced(ExposureId(1));
    assert!(matches!(actions(&mut engine)[..], [Action::Complete { call: CallId(2), .. }]));
    engine.received(reply(3, 8), T, &mut host);
    assert!(matches!(actions(&mut engine)[..], [Action::Complete { call: CallId(3), .. }]));
}

/// proves: V1-4.5-g, V1-4.5-j, V1-3.3.1-l
#[test]
fn an_error_ends_its_call() {
    for error in [ErrorBody::Chunk, ErrorBody::Version { low: 2, high: 2 }] {
        let (mut engine, mut host) = client();
        start(&mut engine, &mut host, 1, 7);
        let version = if error == ErrorBody::Chunk { 1 } else { 2 };
        engine.received(Header { xid: 7, version, credit: 3, body: Body::Error(error) }.to_bytes(), T, &mut host);
        engine.fenced(ExposureId(0));
        let after = actions(&mut engine);
        assert!(
            matches!(after.last(), Some(Action::Fail { call: CallId(1), error: CallError::Remote(e) }) if *e == error),
            "{after:?}"
        );
        // The credits of an error count, but not those of a peer that does not know this version.
        let more: Vec<_> = (2..4).flat_map(|id| start(&mut engine, &mut host, id, 6 + id as u32)).collect();
        assert_eq!(sends(&more).len(), if error == ErrorBody::Chunk { 2 } else { 1 });
    }
}

/// proves: V1-2.2.2-a, V1-4.5-c, V1-4.2.4-e, V1-4.6.1-c, V1-4.6.2-b, V1-4.2.4-d
#[test]
fn what_answers_nothing_is_dropped() {
    let (mut engine, mut host) = client();
    start(&mut engine, &mut host, 1, 7);
    let strange = [
        reply(8, 5),
        call(7),
        Header::new(7, 5, Body::Done).to_bytes(),
        Header::new(7, 5, Body::Msgp { align: 0, thresh: 0, lists: Lists::default() }).to_bytes(),
        Bytes::from_static(&[1; 30]),
        Header::new(9, 5, Body::Error(ErrorBody::Chunk)).to_bytes(),
    ];
    for octets in strange {
        let before = engine.stats().receives;
        engine.received(octets, T, &mut host);
        assert!(sends(&actions(&mut engine)).is_empty(), "requesters answer nothing");
        assert_eq!(engine.stats().receives, before, "the receive is replaced");
    }
    assert_eq!(engine.stats().unanswered, 1);
}

/// proves: V1-3.3.3-c, V1-3.3.3-d, V1-3.3.1-e, V1-3.3.1-g
#[test]
fn calls_wait_for_credits_and_one_is_kept_back() {
    let (mut engine, mut host) = client();
    let sent = |done: &[Action]| sends(done).len();
    assert_eq!(sent(&start(&mut engine, &mut host, 1, 1)), 1);
    for id in 2..=6 {
        assert_eq!(sent(&start(&mut engine, &mut host, id, id as u32)), 0, "one credit before the first reply");
    }
    engine.received(reply(1, 3), T, &mut host);
    assert_eq!(sent(&actions(&mut engine)), 2, "three granted, one kept");
    engine.received(reply(2, 0), T, &mut host);
    assert_eq!(sent(&actions(&mut engine)), 0, "a grant of nothing counts as one, and one is under way");
    engine.received(reply(3, u32::MAX), T, &mut host);
    assert_eq!(sent(&actions(&mut engine)), 3);
    assert_eq!(engine.stats().unanswered, 3);
}

/// proves: V1-4.4.1-b, V1-8.1.4-c
#[test]
fn a_cancelled_call_gives_its_memory_back_and_keeps_its_credit() {
    let (mut engine, mut host) = client();
    start(&mut engine, &mut host, 1, 7);
    engine.cancel(CallId(1), 7);
    let after = actions(&mut engine);
    let [Action::Invalidate { exposure, .. }] = after[..] else { panic!("{after:?}") };
    engine.fenced(exposure);
    assert!(matches!(actions(&mut engine)[..], [Action::Cancelled { call: CallId(1) }]));
    assert_eq!(engine.stats().unanswered, 1);
    let refused = engine.call(Call::new(CallId(2), 7, Payload::new()), T, &mut host);
    assert!(refused.is_err(), "its XID is still in use");
    engine.received(reply(7, 8), T, &mut host);
    assert_eq!(engine.stats().unanswered, 0);
    assert!(actions(&mut engine).is_empty());
}

#[test]
fn a_forgotten_call_keeps_its_memory_until_the_deadline() {
    let (mut engine, mut host) = client();
    start(&mut engine, &mut host, 2, 2);
    engine.received(reply(2, 8), T, &mut host);
    engine.fenced(ExposureId(0));
    start(&mut engine, &mut host, 1, 7);
    actions(&mut engine);
    engine.forget(CallId(1), 7, T);
    assert!(actions(&mut engine).is_empty());
    let deadline = T + FORGOTTEN_CALL_DEADLINE;
    // Until then the engine probes the server, and the server answers.
    for _ in 0..2 {
        let asks = engine.next_wake().unwrap();
        assert!(asks < deadline);
        engine.wake(asks, &mut host);
        assert_eq!(sends(&actions(&mut engine)).len(), 1);
        engine.received(reply(host.last_xid(), 8), asks, &mut host);
        assert!(matches!(actions(&mut engine)[..], [Action::Alive]));
    }
    assert_eq!(engine.next_wake(), Some(deadline));
    engine.wake(deadline, &mut host);
    let after = actions(&mut engine);
    let exposure =
        after.iter().find_map(|a| if let Action::Invalidate { exposure, .. } = a { Some(*exposure) } else { None });
    engine.fenced(exposure.expect("the memory is taken back"));
    assert!(matches!(actions(&mut engine)[..], [Action::Released { call: CallId(1) }]));
    let (mut engine, mut host) = client();
    start(&mut engine, &mut host, 1, 7);
    engine.forget(CallId(1), 7, T);
    engine.received(reply(7, 8), T, &mut host);
    engine.fenced(ExposureId(0));
    assert!(matches!(actions(&mut engine).last(), Some(Action::Released { call: CallId(1) })), "its reply ends it too");
}

/// proves: ULB-3.4.1-b
#[test]
fn a_silent_peer_is_probed_and_then_given_up() {
    let (mut engine, mut host) = client();
    start(&mut engine, &mut host, 1, 1);
    engine.received(reply(1, 2), T, &mut host);
    engine.fenced(ExposureId(0));
    assert_eq!(engine.next_wake(), None, "a peer that owes nothing may be silent");
    start(&mut engine, &mut host, 2, 2);
    actions(&mut engine);
    let limit = T + SILENCE_LIMIT;
    assert_eq!(engine.next_wake(), Some(limit));
    engine.wake(limit, &mut host);
    let after = actions(&mut engine);
    assert!(matches!(&after.last(), Some(Action::Send { about, .. }) if about.kind == MessageKind::Probe), "{after:?}");
    engine.received(reply(host.last_xid(), 2), limit, &mut host);
    assert!(matches!(actions(&mut engine)[..], [Action::Alive]), "answered: wait on");
    engine.wake(limit + SILENCE_LIMIT, &mut host);
    assert_eq!(sends(&actions(&mut engine)).len(), 1);
    engine.wake(limit + SILENCE_LIMIT + PROBE_TIMEOUT, &mut host);
    assert_eq!(closed(&actions(&mut engine)), Some(CloseCause::Silent));
    assert_eq!(engine.closed(), [CallId(2)], "to be sent again");
}

/// A grant of one leaves no credit for a probe, and neither does a grant below the number of calls under way. The
/// engine never probes beyond its credits; it ends the connection much later.
/// proves: ULB-3.4.1-b
#[test]
fn without_a_credit_to_ask_with_a_silent_server_has_longer() {
    for (grants, under_way) in [([1, 1], 1), ([8, 2], 6)] {
        let (mut engine, mut host) = client();
        start(&mut engine, &mut host, 1, 1);
        engine.received(reply(1, grants[0]), T, &mut host);
        engine.fenced(ExposureId(0));
        for xid in 2..=8 {
            start(&mut engine, &mut host, u64::from(xid), xid);
        }
        if under_way > 1 {
            engine.received(reply(2, grants[1]), T, &mut host);
        }
        actions(&mut engine);
        assert_eq!(engine.stats().unanswered, under_way);
        engine.wake(T + SILENCE_LIMIT, &mut host);
        engine.wake(T + SILENCE_LIMIT + PROBE_TIMEOUT, &mut host);
        assert!(actions(&mut engine).is_empty(), "not asked, and so not judged");
        assert_eq!(engine.next_wake(), Some(T + SPENT_LIMIT));
        engine.wake(T + SPENT_LIMIT, &mut host);
        assert_eq!(closed(&actions(&mut engine)), Some(CloseCause::Silent));
    }
}

/// proves: V1-4.5.4-a
#[test]
fn a_call_whose_memory_cannot_be_exposed_fails_or_waits_for_another_connection() {
    let (mut engine, mut host) = client();
    host.refuses = Some(ExposeError::NoMemory);
    let after = start(&mut engine, &mut host, 1, 7);
    assert!(matches!(after[..], [Action::Fail { error: CallError::Expose(ExposeError::NoMemory), .. }]), "{after:?}");
    host.refuses = Some(ExposeError::Closed);
    assert!(start(&mut engine, &mut host, 2, 8).is_empty());
    assert_eq!(engine.closed(), [CallId(2)]);
}

/// proves: V1-7.1-b, BIDI-8167-2.4.1-a, BIDI-8167-4.1-a
#[test]
fn the_reverse_direction_has_credits_and_xids_of_its_own_and_no_chunks() {
    let mut engine = Connection::new(Config { credits_granted: 2, ..Config::client() }, Some(&PEER));
    let mut host = Handles::default();
    assert!(matches!(actions(&mut engine)[..], [Action::PostReceives { count: 1 }]));
    start(&mut engine, &mut host, 1, 7);
    engine.received(call(7), T, &mut host);
    let request = delivered(&actions(&mut engine))[0];
    engine.received(reply(7, 4), T, &mut host);
    engine.fenced(ExposureId(0));
    assert!(matches!(actions(&mut engine).last(), Some(Action::Complete { .. })), "same XID, another RPC");
    let more: Vec<_> = (2..7).flat_map(|id| start(&mut engine, &mut host, id, 20 + id as u32)).collect();
    assert_eq!(sends(&more).len(), 3, "four are granted and one is kept back, whatever comes the other way");
    engine.received(call(9), T, &mut host);
    assert_eq!(delivered(&actions(&mut engine)).len(), 1, "as is the second that was granted to the peer");
    engine.answer(request, Answer::Reply(Payload::from(Bytes::from(words(&[7, 1, 0, 0, 0, 0])))));
    assert_eq!(sends(&actions(&mut engine))[0].credit, 2);
    let write = WriteChunk(vec![Segment { handle: 77, length: 100, offset: 0 }].into());
    engine.received(
        message(8, 2, Lists { writes: WriteList(vec![write].into()), ..Lists::default() }, 0),
        T,
        &mut host,
    );
    assert_eq!(sends(&actions(&mut engine))[0].body, Body::Error(ErrorBody::Chunk));
}

/// A server that executes the call 1, and may make so many calls between two of its answers.
fn calls_back(calls_between_answers: u32) -> (Connection, Handles, rpcrdma_engine::RequestId) {
    let config = Config { credits_granted: 8, credits_wanted: 8, calls_between_answers, ..Config::server() };
    let (mut engine, mut host) = (Connection::new(config, Some(&PEER)), Handles::default());
    engine.received(call(1), T, &mut host);
    let request = delivered(&actions(&mut engine))[0];
    (engine, host, request)
}

fn call_back(engine: &mut Connection, host: &mut Handles, xid: u32) {
    let payload = Payload::from(Bytes::from(words(&[xid, 0, 2, 0x4000_0000, 1, 1])));
    engine.call(Call::new(CallId(xid.into()), xid, payload).with_reply(100, &[]), T, host).unwrap();
}

/// Some peers post receives for our calls only when they receive a reply of ours. Between two such replies, such a peer
/// gets a limited number of calls and no probe, whatever it grants and however fast it replies.
#[test]
fn calls_wait_for_an_answer_of_ours_where_the_peer_needs_one() {
    let (mut engine, mut host, request) = calls_back(3);
    let begin = |engine: &mut Connection, host: &mut Handles, xid: u32| {
        call_back(engine, host, xid);
        sends(&actions(engine)).len()
    };
    for xid in 100..103 {
        assert_eq!(begin(&mut engine, &mut host, xid), 1);
        engine.received(reply(xid, 32), T, &mut host);
        assert!(sends(&actions(&mut engine)).is_empty());
    }
    assert_eq!((begin(&mut engine, &mut host, 103), begin(&mut engine, &mut host, 104)), (0, 0), "one past the limit");
    engine.resume(T, &mut host);
    assert!(actions(&mut engine).is_empty(), "nothing was answered meanwhile");
    engine.answer(request, Answer::Reply(Payload::from(Bytes::from(words(&[1, 1, 0, 0, 0, 0])))));
    engine.resume(T, &mut host);
    let sent: Vec<u32> = sends(&actions(&mut engine)).iter().map(|header| header.xid).collect();
    assert_eq!(sent, [1, 103, 104], "the answer first");
    assert_eq!(begin(&mut engine, &mut host, 105), 1);
    assert_eq!(begin(&mut engine, &mut host, 106), 0, "three again");
    engine.received(reply(103, 32), T, &mut host);
    engine.wake(T + SILENCE_LIMIT, &mut host);
    engine.wake(T + SILENCE_LIMIT + PROBE_TIMEOUT, &mut host);
    let after = actions(&mut engine);
    assert!(sends(&after).is_empty() && closed(&after).is_none(), "it is not asked, and so not judged: {after:?}");
}

/// proves: V1-4.4.1-b
#[test]
fn a_name_that_has_ended_is_no_other_call() {
    let (mut engine, mut host) = client();
    start(&mut engine, &mut host, 1, 7);
    engine.received(reply(7, 8), T, &mut host);
    engine.fenced(ExposureId(0));
    actions(&mut engine);
    start(&mut engine, &mut host, 2, 7);
    engine.cancel(CallId(1), 7);
    engine.forget(CallId(1), 7, T);
    assert!(actions(&mut engine).is_empty(), "call 2 has that XID now");
    engine.cancel(CallId(2), 7);
    let after = actions(&mut engine);
    let [Action::Invalidate { exposure, .. }] = after[..] else { panic!("{after:?}") };
    engine.fenced(exposure);
    assert!(matches!(actions(&mut engine)[..], [Action::Cancelled { call: CallId(2) }]));
    engine.cancel(CallId(2), 7);
    engine.forget(CallId(2), 7, T);
    assert!(actions(&mut engine).is_empty(), "once");
    assert_eq!(engine.stats().unanswered, 1, "its credit is in use until the peer answers");
}

/// proves: V1-8.1.4-c
#[test]
fn the_deadline_of_a_forgotten_call_is_not_the_next_calls() {
    let (mut engine, mut host) = client();
    start(&mut engine, &mut host, 1, 7);
    engine.forget(CallId(1), 7, T);
    engine.received(reply(7, 8), T, &mut host);
    engine.fenced(ExposureId(0));
    assert!(matches!(actions(&mut engine)[..], [Action::Invalidate { .. }, Action::Released { call: CallId(1) }]));
    start(&mut engine, &mut host, 2, 7);
    let later = T + FORGOTTEN_CALL_DEADLINE / 2;
    engine.forget(CallId(2), 7, later);
    let invalidates = |engine: &mut Connection| {
        actions(engine).iter().filter(|action| matches!(action, Action::Invalidate { .. })).count()
    };
    engine.wake(T + FORGOTTEN_CALL_DEADLINE, &mut host);
    assert_eq!(invalidates(&mut engine), 0, "the first deadline is over, and was another call's");
    engine.wake(later + FORGOTTEN_CALL_DEADLINE, &mut host);
    assert_eq!(invalidates(&mut engine), 1);
}

/// A call that comes when one may be sent goes behind those that have waited for that.
#[test]
fn a_new_call_does_not_overtake_those_that_wait() {
    let (mut engine, mut host, request) = calls_back(1);
    call_back(&mut engine, &mut host, 100);
    engine.received(reply(100, 32), T, &mut host);
    call_back(&mut engine, &mut host, 101);
    assert_eq!(sends(&actions(&mut engine)).len(), 1, "100 alone");
    engine.answer(request, Answer::Reply(Payload::from(Bytes::from(words(&[1, 1, 0, 0, 0, 0])))));
    call_back(&mut engine, &mut host, 102);
    let sent: Vec<u32> = sends(&actions(&mut engine)).iter().map(|header| header.xid).collect();
    assert_eq!(sent, [1, 101], "102 waits now");
    assert_eq!(engine.stats().queued, 1);
}

/// proves: V1-4.2.4-c, V1-4.5.2-a
#[test]
fn a_long_call_that_has_a_reply_chunk_only_is_answered() {
    let (mut engine, mut host) = server();
    let reply = Some(WriteChunk(vec![Segment { handle: 77, length: 100, offset: 0 }].into()));
    let header = Header::new(7, 2, Body::Nomsg(Lists { reply, ..Lists::default() }));
    engine.received(header.to_bytes(), T, &mut host);
    assert_eq!(sends(&actions(&mut engine))[0].body, Body::Error(ErrorBody::Chunk));
}

proptest! {
    /// Arbitrary bytes, and valid messages with a word changed, cost neither a panic nor a receive.
    #[test]
    fn hostile_messages_are_survived(
        messages in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..80), 0usize..20, any::<u32>()), 1..40),
        as_client in any::<bool>(),
    ) {
        let (mut engine, mut host) = if as_client { client() } else { server() };
        if as_client {
            start(&mut engine, &mut host, 1, 7);
        }
        for (arbitrary, octets, at, word) in messages {
            let mut message = if as_client { reply(7, 8) } else { call(7) }.to_vec();
            let at = at * 4;
            if at + 4 <= message.len() {
                message[at..at + 4].copy_from_slice(&word.to_be_bytes());
            }
            let message = if arbitrary { octets } else { message };
            engine.received(message.into(), T, &mut host);
            for action in actions(&mut engine) {
                match action {
                    Action::Deliver { request, .. } => engine.answer(request, Answer::Nothing),
                    Action::Pull { request, .. } => _ = engine.pulled(request, &[]),
                    Action::Send { signaled: true, .. } => engine.drained(),
                    _ => {}
                }
            }
            let stats = engine.stats();
            prop_assert!(stats.receives > stats.granted as usize + stats.unanswered || engine.next_wake().is_none());
        }
    }
}
