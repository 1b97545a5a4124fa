//! Sequences of parts, credits and grants, with a peer that need not keep rules.

use crate::{
    common::{T, call, reply, words},
    peer::{Peer, credits, msg, payload, reads},
};
use bytes::Bytes;
use rpcrdma_engine::{
    Action, Answer, Call, CallError, CallId, CloseCause, Config, DEFAULT_INLINE_BYTES, Endpoint,
    FORGOTTEN_CALL_DEADLINE, Limits, MAX_CREDITS, MessageKind, PROBE_TIMEOUT, PeerFault, Piece, SILENCE_LIMIT,
    Versions,
    v2::{
        CREDIT_TIMEOUT, MAX_PARTS, MAX_PEER_CREDITS, MAX_REQUESTS, MAX_WAITING_ERRORS, SEQUENCE_TIMEOUT, SPARE_RECEIVES,
    },
};
use rpcrdma_wire::v2::{Chunks, Credits, ErrorBody, Header, Lists, NO_CHUNKS_OCTETS};
use rpcrdma_xdr::Payload;
use std::time::Duration;

fn server() -> Peer {
    Peer::ready(Config { credits_granted: 32, ..Config::server() })
}

/// proves: V2-6.2.2.2-a, V2-6.2.2.2-c, V2-6.2.2.2-e, V2-6.2.2.2-h, V2-6.2.2.2-d, V2-6.2.2.2-g, V2-6.2.2.2-l, V2-7.1.3-a
/// proves: V2-7.1.3-b, V2-4.1-i, V2-6.3.1-b
#[test]
fn a_broken_sequence_is_answered_and_never_delivered_in_part() {
    let part = |xid, more| msg(xid, false, more, Lists::default());
    let mut server = server();
    assert!(server.hear(&part(1, true), &call(1)[..4]).delivered().is_empty());
    assert!(server.hear(&Header::grant(credits()), &[]).errors().is_empty(), "a grant is no member");
    assert!(server.hear(&Header::error(9, 2, credits(), ErrorBody::System), &[]).errors().is_empty());
    assert!(server.hear(&part(1, true), &[]).errors().is_empty(), "nor is a part without bytes a fault");
    let done = server.hear(&part(2, false), &call(2));
    assert_eq!(done.errors(), [(2, ErrorBody::InvalidContinuation)]);
    assert!(done.delivered().is_empty());
    let done = server.hear(&part(1, false), &call(1)[4..]);
    assert_eq!(done.delivered().len(), 1, "the other goes on");
    let Some(Action::Deliver { pieces, .. }) = done.actions.first() else { panic!("{done:?}") };
    assert_eq!(pieces[..], [Piece::Inline(call(1).into())]);
    // A NOMSG, and chunks with MORE, break their own sequence; the server drops the parts up to its end.
    for (xid, breaking) in [
        (3, Header::nomsg(3, credits(), false, Chunks::from(reads(&[(0, 24)])))),
        (4, msg(4, false, true, reads(&[(24, 8)]))),
    ] {
        server.hear(&part(xid, true), &call(xid));
        let done = server.hear(&breaking, if breaking.flags.more { &[0; 4] } else { &[] });
        assert_eq!(done.errors(), [(xid, ErrorBody::InvalidContinuation)]);
        if breaking.flags.more {
            let done = server.hear(&part(xid, false), &[0; 8]);
            assert!(done.errors().is_empty() && done.delivered().is_empty(), "{done:?}");
        }
        assert_eq!(server.hear(&part(xid, false), &call(xid)).delivered().len(), 1, "sent again as a whole");
    }
    let done = server.hear_bytes([words(&[6, 2, 0x0020_0001, 1, 2]), words(&[0; 4])].concat());
    assert_eq!(done.errors(), [(6, ErrorBody::InvalidContinuation)]);
}

/// A driver that accounts for memory asks which message a part begins, before the engine joins the parts.
#[test]
fn a_message_that_begins_a_sequence_is_known() {
    let octets = |header: Header| header.to_bytes();
    let begins = octets(msg(1, false, true, Lists::default()));
    let piece = octets(Header::connprop_piece(1, credits(), true, false, Bytes::from_static(&[0; 4])));
    let others = [
        octets(msg(1, false, false, Lists::default())),
        octets(Header::grant(credits())),
        words(&[1, 1, 0x0020_0001, 0, 1]).into(),
        words(&[1, 2, 0x0020_0001, 9, 1]).into(),
        begins.slice(..19),
    ];
    let mut server = server();
    let listening = |versions| Endpoint::new(Config { versions, ..Config::server() }, None);
    for (message, expected) in [(&begins, true), (&piece, true)].into_iter().chain(others.iter().zip([false; 5])) {
        assert_eq!(server.engine.begins_parts(message), expected, "{message:?}");
        assert_eq!(listening(Versions::Auto).begins_parts(message), expected, "{message:?}");
        assert!(!listening(Versions::One).begins_parts(message), "{message:?}");
    }
    server.hear(&msg(1, false, true, Lists::default()), &call(1));
    assert!(!server.engine.begins_parts(&begins), "one has begun");
}

/// The time counts from the sequence's first part, however often it is continued. The next sequence has its own time.
#[test]
fn a_sequence_that_does_not_end_ends_the_connection() {
    let part = |xid, more| msg(xid, false, more, Lists::default());
    let mut server = server();
    let nano = Duration::from_nanos(1);
    server.hear(&part(1, true), &call(1));
    server.now = T + SEQUENCE_TIMEOUT / 2;
    assert_eq!(server.hear(&part(1, false), &[0; 4]).delivered().len(), 1);
    let begun = server.now;
    server.hear(&part(2, true), &call(2));
    server.now = begun + SEQUENCE_TIMEOUT / 2;
    server.hear(&part(2, true), &[0; 4]);
    assert!(!server.wake(begun + (SEQUENCE_TIMEOUT - nano)).closed());
    assert_eq!(server.engine.next_wake(), Some(begun + SEQUENCE_TIMEOUT));
    let done = server.wake(begun + SEQUENCE_TIMEOUT);
    let cause = CloseCause::Peer(PeerFault::Unfinished);
    assert!(done.actions.iter().any(|action| matches!(action, Action::Close(why) if *why == cause)), "{done:?}");
}

/// proves: V2-6.2.2.2-b
#[test]
fn a_reply_in_broken_parts_fails_its_call() {
    // The second reply begins while the first is under way.
    let mut client = Peer::ready(Config::client());
    client.call(1, payload(40), 20_000, &[], false);
    client.call(2, payload(40), 20_000, &[], false);
    assert!(client.hear(&msg(1, true, true, Lists::default()), &reply(1)).failed().is_empty());
    let done = client.hear(&msg(2, true, false, Lists::default()), &reply(2));
    assert_eq!(done.failed(), [CallError::Peer(PeerFault::BrokenSequence)]);
    assert!(done.errors().is_empty(), "nobody is told");
    let done = client.hear(&msg(1, true, false, Lists::default()), &[0; 8]);
    assert_eq!(done.completed(), 1);
    // A later part breaks a rule by itself: a reply has no Read list, and only the last part may have chunks.
    for (xid, more) in [(3, false), (4, true)] {
        client.call(xid, payload(40), 20_000, &[], false);
        assert!(client.hear(&msg(xid, true, true, Lists::default()), &reply(xid)).failed().is_empty());
        let done = client.hear(&msg(xid, true, more, reads(&[(24, 8)])), &[0; 8]);
        assert_eq!(done.failed(), [CallError::Peer(PeerFault::BrokenSequence)], "more: {more}");
        assert!(done.errors().is_empty(), "nobody is told");
    }
}

/// While calls in parts hold much memory, the server keeps credits back. It grants them when it answers one of these
/// calls, even if the reply itself has to wait for a credit: otherwise neither end would ever send again.
/// proves: V2-4.2.1.2-d
#[test]
fn credits_that_were_kept_back_are_granted_though_no_reply_can_go() {
    let limits = Limits { call_bytes: 8000, ..Limits::default() };
    let mut server = Peer::new(Config { limits, credits_granted: 4, ..Config::server() });
    let none = Credits::new(0, 32);
    let part = |xid, more| Header { credits: none, ..msg(xid, false, more, Lists::default()) };
    // The server uses the only credit for its own announcement.
    server.hear(&Header::connprop(0x66, Credits::new(1, 32), false, Default::default()), &[]);
    server.hear(&part(1, true), &[call(1), vec![0; 4000]].concat());
    let request = server.hear(&part(1, false), &[0; 1000]).delivered()[0].0;
    for octets in [&call(2)[..], &[0; 8]] {
        let done = server.hear(&part(2, true), octets);
        assert!(done.sent.is_empty() && !done.closed(), "{done:?}");
    }
    server.engine.answer(request, Answer::Reply(Payload::from(Bytes::from(reply(1)))));
    let mut done = server.take();
    done.sent.extend(server.wake(server.now).sent);
    let sent: Vec<_> = done.sent.iter().map(|(header, _, kind, _)| (*kind, header.credits.granted > 0)).collect();
    assert_eq!(sent, [(MessageKind::Grant, true)]);
    let done = server.hear(&Header { credits: Credits::new(1, 32), ..part(2, false) }, &[0; 8]);
    assert_eq!(done.sent.iter().map(|(header, ..)| header.xid).collect::<Vec<_>>(), [1], "now the reply goes");
}

/// proves: V2-6.2.2.2-i, V2-7.4.1-a, V2-7.4.1-b
#[test]
fn what_is_put_together_has_limits() {
    let limits = Limits { call_bytes: 8000, ..Limits::default() };
    let mut server = Peer::ready(Config { limits, ..Config::server() });
    let long = |xid, last: usize| {
        let parts = [(msg(xid, false, true, Lists::default()), 4000), (msg(xid, false, false, Lists::default()), last)];
        parts.map(|(header, len)| (header, [call(xid), vec![0; len]].concat()[..len].to_vec()))
    };
    for (xid, last, error) in [(1, 4000, None), (2, 4004, Some((2, ErrorBody::System)))] {
        let mut errors = Vec::new();
        let mut delivered = 0;
        for (header, octets) in long(xid, last) {
            let done = server.hear(&header, &octets);
            errors.extend(done.errors());
            delivered += done.delivered().len();
        }
        assert_eq!((errors, delivered), (error.into_iter().collect(), usize::from(error.is_none())));
    }
    // Unanswered calls that came in parts hold memory. If it is much, the server keeps back the credits for further
    // parts.
    for (call_bytes, full) in [(8000, true), (12_000, false)] {
        let limits = Limits { call_bytes, ..Limits::default() };
        let mut server = Peer::ready(Config { limits, credits_granted: 4, ..Config::server() });
        let mut delivered = Vec::new();
        for (header, octets) in long(1, 1000) {
            delivered.extend(server.hear(&header, &octets).delivered());
        }
        let mut granted = 0;
        for part in [&call(2)[..], &[0; 8]] {
            let done = server.hear(&msg(2, false, true, Lists::default()), part);
            assert!(!done.closed(), "{done:?}");
            granted += done.grants();
        }
        assert_eq!(granted == 0, full, "{granted} grants");
        server.engine.answer(delivered[0].0, Answer::Reply(Payload::from(Bytes::from(reply(1)))));
        let done = server.take();
        let granted: u16 = done.sent.iter().map(|(header, ..)| header.credits.granted).sum();
        assert!(granted > 0 && !done.closed(), "full: {full}, {done:?}");
        assert!(server.engine.holds_parts(), "parts of the second");
        let second = server.hear(&msg(2, false, false, Lists::default()), &[0; 8]).delivered();
        assert!(server.engine.holds_parts(), "the second");
        server.engine.answer(second[0].0, Answer::Nothing);
        assert!(!server.engine.holds_parts());
    }
    // Parts without bytes, without end.
    let mut server = Peer::ready(Config { limits, ..Config::server() });
    let mut errors = Vec::new();
    for _ in 0..=MAX_PARTS {
        errors.extend(server.hear(&msg(7, false, true, Lists::default()), &[]).errors());
    }
    assert_eq!(errors, [(7, ErrorBody::System)]);
    // The server skips the rest of the message, up to its end, and serves the next one.
    for more in [true, false] {
        let done = server.hear(&msg(7, false, more, Lists::default()), &call(7));
        assert!(done.errors().is_empty() && done.delivered().is_empty(), "{done:?}");
    }
    assert_eq!(server.hear(&msg(8, false, false, Lists::default()), &call(8)).delivered().len(), 1);
    // The size of a reply has a limit as well.
    let mut client = Peer::ready(Config { limits, ..Config::client() });
    client.call(1, payload(40), 100, &[], false);
    client.hear(&msg(1, true, true, Lists::default()), &[reply(1), vec![0; 4000 - 24]].concat());
    let done = client.hear(&msg(1, true, false, Lists::default()), &[0; 4004]);
    assert_eq!(done.failed(), [CallError::Peer(PeerFault::TooLong)]);
}

/// proves: V2-6.2.2.2-j, V2-6.2.2.2-k, V2-4.2.1.1-e, V2-4.2.1.2-a
#[test]
fn a_sender_without_credits_pauses_and_goes_on() {
    let mut client = Peer::new(Config::client());
    client.engine.start(client.now, &mut client.host);
    client.take();
    let two = Credits::new(2, 32);
    client.hear(&Header::connprop(1, two, false, Default::default()), &[]);
    let message = Payload::from(Bytes::from([call(1), vec![0; 5 * 4060 - 24]].concat()));
    let sent = client.call(1, message, 100, &[], false).sent;
    assert_eq!(sent.len(), 2);
    for left in [2, 1] {
        let done = client.hear(&Header::grant(Credits::new(left, 32)), &[]);
        assert_eq!(done.sent.len(), usize::from(left));
        assert!(done.sent.iter().all(|(header, len, ..)| header.xid == 1 && *len == 4060));
    }
    assert!(client.hear(&Header::grant(Credits::new(9, 32)), &[]).sent.is_empty(), "that was all");
}

/// proves: V2-6.2.2.2-k, V2-4.2.1.2-d, V2-4.2.1.2-c
#[test]
fn who_may_be_stuck_is_granted_and_grants_are_not_answered() {
    let mut server = Peer::ready(Config { credits_granted: 4, ..Config::server() });
    let mut grants = 0;
    for _ in 0..40 {
        let done = server.hear(&msg(1, false, true, Lists::default()), &[]);
        grants += done.grants();
    }
    assert!((10..=40).contains(&grants), "a window of four: {grants}");
    server.hear(&msg(2, false, false, Lists::default()), &[0; 40]);
    assert!(server.hear(&Header::grant(credits()), &[]).sent.is_empty(), "a grant alone is not answered");
}

/// Sixty-four bare grants may have cost a peer its last credit; without a grant of ours neither end would ever send
/// again.
///
/// proves: V2-4.2.1.2-d
#[test]
fn who_has_spent_all_on_grants_gets_some_and_makes_no_loop() {
    const GRANTS: usize = 400;
    for granted in [1, 2, 4, 64] {
        let mut server = Peer::ready(Config { credits_granted: granted, ..Config::server() });
        let most = GRANTS / granted.max(2) as usize;
        let mut answers = 0;
        for _ in 0..GRANTS {
            let done = server.hear(&Header::grant(credits()), &[]);
            assert!(!done.closed() && done.sent.len() == done.grants());
            assert!(done.sent.iter().all(|(header, ..)| header.credits.granted >= 2), "{granted}: more than it costs");
            answers += done.grants();
        }
        assert!((most - 1..=most + 1).contains(&answers), "{granted}: {answers} answers to {GRANTS}");
        let done = server.hear(&msg(9, false, false, Lists::default()), &call(9));
        assert_eq!(done.delivered().len(), 1, "{granted}: the next call is taken");
    }
}

/// Two ends that both follow this rule soon fall silent, whatever credits they began with.
///
/// proves: V2-4.2.1.2-d
#[test]
fn two_ends_do_not_answer_each_others_grants_for_ever() {
    for (ours, theirs, begins) in [(1, 1, 1), (2, 2, 7), (4, 2, 40), (64, 4, 200)] {
        let mut ends = [
            Peer::ready(Config { credits_granted: ours, ..Config::server() }),
            Peer::ready(Config { credits_wanted: theirs, ..Config::client() }),
        ];
        let mut under_way: std::collections::VecDeque<_> = (0..begins).map(|_| (0, Header::grant(credits()))).collect();
        let mut heard = 0;
        while let Some((to, header)) = under_way.pop_front() {
            heard += 1;
            assert!(heard <= 2 * begins + 2, "{ours} {theirs}: {heard} grants of {begins}");
            let peer: &mut Peer = &mut ends[to];
            let sent = peer.hear(&header, &[]).sent;
            under_way.extend(sent.into_iter().map(|(header, ..)| (1 - to, header)));
        }
    }
}

/// proves: V2-4.2.1.1-e, V2-4.2-a, V2-11.1.4-c, ULB-5.4.2-b
#[test]
fn a_peer_beyond_its_credits_loses_the_connection() {
    let mut server = Peer::ready(Config { credits_granted: 4, ..Config::server() });
    let mut closed = None;
    for xid in 1..20 {
        let done = server.hear(&msg(xid, false, false, Lists::default()), &call(xid));
        if done.closed() {
            closed = Some(xid);
            break;
        }
    }
    assert_eq!(closed, Some(5), "four calls, and nothing is answered");
    assert!(server.hear(&msg(9, false, false, Lists::default()), &call(9)).sent.is_empty());
}

/// proves: V2-4.2.1.1-h
#[test]
fn ceilings_are_cut_to_named_limits() {
    let peer = Peer::ready(Config { credits_granted: u32::MAX, ..Config::server() });
    let most = MAX_CREDITS as usize + usize::from(MAX_PEER_CREDITS) + SPARE_RECEIVES;
    assert!(peer.engine.stats().receives <= most && MAX_REQUESTS >= usize::from(MAX_PEER_CREDITS));
    let mut server = Peer::new(Config { credits_granted: 8, ..Config::server() });
    server.hear(&Header::connprop(1, Credits::new(u16::MAX, u16::MAX), false, Default::default()), &[]);
    assert_eq!(server.engine.stats().receives, 8 + usize::from(MAX_PEER_CREDITS) + SPARE_RECEIVES);
}

/// The number of errors that wait for credits is limited.
#[test]
fn so_many_errors_wait_for_credits_and_no_more() {
    let mut server = Peer::new(Config { credits_granted: 256, ..Config::server() });
    // The server uses the only credit for its own announcement.
    server.hear(&Header::connprop(0x66, Credits::new(1, 32), false, Default::default()), &[]);
    let refused = |xid| words(&[xid, 2, 0x0020_0000, 9, 0]);
    for xid in 1..=MAX_WAITING_ERRORS as u32 {
        let done = server.hear_bytes(refused(xid));
        assert!(done.errors().is_empty() && !done.closed(), "{xid}: {done:?}");
    }
    assert!(server.hear_bytes(refused(1)).closed());
}

/// proves: V2-11.1.4-d
#[test]
fn a_forgotten_call_keeps_its_memory_until_the_deadline() {
    let mut client = Peer::ready(Config::client());
    client.call(1, payload(40), 90_000, &[80_000], false);
    client.engine.forget(CallId(1), 1, client.now);
    let deadline = client.now + FORGOTTEN_CALL_DEADLINE;
    // The peer lives: it answers another call.
    client.now = T + (FORGOTTEN_CALL_DEADLINE - Duration::from_nanos(1));
    client.call(2, payload(40), 100, &[], false);
    assert_eq!(client.hear(&msg(2, true, false, Lists::default()), &reply(2)).completed(), 1);
    assert_eq!((client.engine.next_wake(), client.engine.stats().exposed), (Some(deadline), 1));
    assert!(client.wake(client.now).actions.is_empty());
    let done = client.wake(deadline);
    assert!(matches!(done.actions[..], [Action::Released { call: CallId(1) }]), "{done:?}");
    assert_eq!((client.engine.stats().exposed, client.host.lent.len()), (0, 1));
}

#[test]
fn answers_that_are_not_taken_end_the_connection() {
    let mut server = server();
    let mut closed = None;
    for xid in 1..2000 {
        let word = Credits::new(8, 32);
        let header = Header { credits: word, ..msg(xid, false, false, reads(&[(2, 8)])) };
        server.engine.received([header.to_bytes().to_vec(), call(xid)].concat().into(), server.now, &mut server.host);
        while let Some(action) = server.engine.poll() {
            if let Action::Close(cause) = action {
                closed = Some(cause);
            }
        }
        if closed.is_some() {
            break;
        }
    }
    assert_eq!(closed, Some(CloseCause::Peer(PeerFault::AnswersNotTaken)));
}

/// proves: V2-4.2.1.1-e
#[test]
fn a_connection_outlives_a_call_that_was_taken_back_while_it_waited_for_credits() {
    for taken_back in [false, true] {
        let mut client = Peer::new(Config::client());
        client.engine.start(client.now, &mut client.host);
        assert_eq!(client.take().sent.len(), 1, "this took the only credit");
        client.hear(&Header::connprop(0x66, Credits::new(0, 32), false, Default::default()), &[]);
        assert!(client.call(1, payload(40), 100, &[], false).sent.is_empty());
        client.wake(client.now);
        if taken_back {
            client.engine.cancel(CallId(1), 1);
        }
        let until = client.now + CREDIT_TIMEOUT;
        assert_eq!(client.engine.next_wake(), Some(until));
        assert_eq!(client.wake(until).closed(), !taken_back);
    }
}

/// proves: V2-4.2.1.1-e, V2-4.2.1.1-i
#[test]
fn a_peer_that_grants_nothing_does_not_hold_answers_for_ever() {
    let none = Credits::new(0, 32);
    let mut server = Peer::new(Config::server());
    server.hear(&Header::connprop(1, credits(), false, Default::default()), &[]);
    let header = Header { credits: none, ..msg(1, false, false, Lists::default()) };
    let done = server.hear(&header, &call(1));
    server.engine.answer(done.delivered()[0].0, rpcrdma_engine::Answer::Reply(payload(40)));
    assert!(server.take().sent.is_empty());
    assert_eq!(server.engine.stats().executing, 1, "it is not answered before it is sent");
    server.wake(server.now);
    let until = server.now + CREDIT_TIMEOUT;
    assert_eq!(server.engine.next_wake(), Some(until));
    let mut other = Header::grant(none);
    other.xid = 0;
    server.hear(&other, &[]);
    assert_eq!(server.engine.next_wake(), Some(until), "what grants nothing changes nothing");
    assert!(!server.wake(server.now + (CREDIT_TIMEOUT - std::time::Duration::from_nanos(1))).closed());
    assert!(server.wake(until).closed());
    // A credit that comes in time.
    let mut server = Peer::new(Config::server());
    server.hear(&Header::connprop(1, credits(), false, Default::default()), &[]);
    let done = server.hear(&header, &call(1));
    server.engine.answer(done.delivered()[0].0, rpcrdma_engine::Answer::Reply(payload(40)));
    server.wake(server.now);
    assert_eq!(server.hear(&Header::grant(credits()), &[]).sent.len(), 1);
    assert_eq!((server.engine.next_wake(), server.engine.stats().executing), (None, 0));
}

#[test]
fn a_silent_peer_is_probed_and_given_up() {
    let mut client = Peer::ready(Config::client());
    client.call(1, payload(40), 100, &[], false);
    let done = client.wake(client.now + SILENCE_LIMIT);
    assert_eq!(done.sent.iter().map(|sent| sent.2).collect::<Vec<_>>(), [MessageKind::Probe]);
    let done = client.wake(client.now + PROBE_TIMEOUT);
    assert!(matches!(done.actions[..], [Action::Close(CloseCause::Silent)]), "{done:?}");
    let mut client = Peer::ready(Config::client());
    client.call(1, payload(40), 100, &[], false);
    client.wake(client.now + SILENCE_LIMIT);
    client.hear(&Header::grant(credits()), &[]);
    assert!(!client.wake(client.now + PROBE_TIMEOUT).closed(), "any message shows that it lives");
    let mut client = Peer::ready(Config::client());
    client.call(1, payload(40), 100, &[], false);
    assert_eq!(client.hear(&msg(1, true, false, Lists::default()), &reply(1)).completed(), 1);
    assert_eq!(client.engine.next_wake(), None, "one that owes nothing may be silent");
    client.call(2, payload(40), 100, &[], false);
    let done = client.wake(client.now + SILENCE_LIMIT);
    let probe = done.sent[0].0.xid;
    let done = client.hear(&msg(probe, true, false, Lists::default()), &reply(probe));
    assert!(matches!(done.actions[..], [Action::Alive]), "{done:?}");
    assert_eq!(client.hear(&msg(2, true, false, Lists::default()), &reply(2)).completed(), 1);
    // The host gives the probe an XID that a call uses.
    client.call(0x7702, payload(40), 100, &[], false);
    assert!(client.wake(client.now + SILENCE_LIMIT).sent.is_empty());
    assert_eq!(client.hear(&msg(0x7702, true, false, Lists::default()), &reply(0x7702)).completed(), 1);
}

/// proves: V2-4.3.6-h, V2-4.4.3-i, V2-A.1-h, V2-6.4-h, V2-4.3.6-g
#[test]
fn a_reply_is_taken_in_any_form_that_was_offered() {
    let mut client = Peer::ready(Config::client());
    let fault = |done: crate::peer::Done| done.failed().first().copied();
    for (xid, form) in (1..).zip(["inline", "unused", "absent", "changed", "no chunk"]) {
        let sent = client.call(xid, payload(40), 400_000, &[5000], false).sent;
        let offered = sent[0].0.body.chunks().unwrap().lists.clone();
        assert!(offered.reply.is_some() && offered.writes.chunks().len() == 1);
        let unused = Lists {
            reads: Default::default(),
            writes: rpcrdma_wire::v2::WriteList(offered.writes.chunks().iter().filter_map(|c| c.filled(0)).collect()),
            reply: offered.reply.as_ref().and_then(|chunk| chunk.filled(0)),
        };
        let mut changed = unused.clone();
        changed.writes.0[0].0[0].handle += 1;
        let done = match form {
            "inline" => client.hear(&msg(xid, true, false, unused), &reply(xid)),
            "unused" => {
                client.hear(&msg(xid, true, true, Lists::default()), &reply(xid));
                client.hear(&msg(xid, true, false, unused), &[0; 8])
            }
            "absent" => client.hear(&msg(xid, true, false, Lists::default()), &reply(xid)),
            "changed" => {
                assert_eq!(
                    fault(client.hear(&msg(xid, true, false, changed), &reply(xid))),
                    Some(CallError::Peer(PeerFault::ChunksChanged))
                );
                continue;
            }
            _ => {
                let before = client.engine.stats().discarded;
                let done = client.hear(
                    &Header::nomsg(
                        xid,
                        credits(),
                        true,
                        Chunks::from(Lists { writes: unused.writes, ..Lists::default() }),
                    ),
                    &[],
                );
                assert!(done.actions.is_empty() && client.engine.stats().discarded > before, "{done:?}");
                continue;
            }
        };
        let Some(Action::Complete { reply, .. }) = done.actions.first() else { panic!("{form}: {done:?}") };
        assert_eq!((reply.items[0].offered, reply.items[0].returned), (0, 0), "{form}: inline is good enough");
    }
}

/// If a reply may be long, the length of the last such reply decides whether the client exposes memory for it. If the
/// reply would take more messages than the window allows, the client always exposes memory. In both cases every reply
/// arrives.
/// proves: V2-6.4-a, V2-A.2-a
#[test]
fn memory_is_exposed_where_a_long_reply_is_expected() {
    let config = Config { reply_parts: 4, ..Config::client() };
    let long = 4 * (4096 - NO_CHUNKS_OCTETS);
    let mut client = Peer::ready(config.clone());
    let mut xid = 0;
    let mut offered = |client: &mut Peer, reply_max: usize| {
        xid += 1;
        let done = client.call(xid, payload(40), reply_max, &[], false);
        let (header, ..) = done.sent.last().unwrap();
        (xid, header.body.chunks().unwrap().lists.clone())
    };
    let in_parts = |client: &mut Peer, xid: u32, octets: usize, lists: Lists| {
        let mut left = octets;
        let mut head = reply(xid);
        while left > 4000 {
            head.resize(4000, 0);
            client.hear(&msg(xid, true, true, Lists::default()), &std::mem::take(&mut head));
            left -= 4000;
        }
        head.resize(left, 0);
        let done = client.hear(&msg(xid, true, false, lists), &head);
        assert_eq!(done.completed(), 1, "{done:?}");
    };
    let unused =
        |lists: &Lists| Lists { reply: lists.reply.as_ref().and_then(|chunk| chunk.filled(0)), ..Lists::default() };

    let (first, lists) = offered(&mut client, long + 4);
    assert_eq!(lists.reply, None, "nothing is known yet");
    in_parts(&mut client, first, 3 * 4096, Lists::default());
    let (few, _) = offered(&mut client, long);
    in_parts(&mut client, few, 40, Lists::default());
    let (second, lists) = offered(&mut client, long + 4);
    assert_eq!(lists.reply, None, "the last was short, and one that has no room to be long says nothing");
    in_parts(&mut client, second, long + 4, Lists::default());
    let (third, lists) = offered(&mut client, long + 4);
    assert!(lists.reply.is_some(), "the last was long");
    let (other, few) = offered(&mut client, long);
    assert_eq!(few.reply, None, "few parts at the most");
    in_parts(&mut client, other, 40, Lists::default());
    assert!(offered(&mut client, long + 4).1.reply.is_some(), "which says nothing either");
    in_parts(&mut client, third, long, unused(&lists));
    let (fourth, lists) = offered(&mut client, long + 4);
    assert_eq!(lists.reply, None, "short again, by one unit");
    in_parts(&mut client, fourth, long + 4, Lists::default());
    let (fifth, lists) = offered(&mut client, long + 4);
    let filled = Lists { reply: lists.reply.as_ref().and_then(|chunk| chunk.filled(40)), ..Lists::default() };
    let done = client.hear(&Header::nomsg(fifth, credits(), true, Chunks::from(filled)), &[]);
    assert_eq!(done.completed(), 1);
    let (_, lists) = offered(&mut client, long + 4);
    assert!(lists.reply.is_some(), "a chunk that was used is as good as many parts");

    let window = config.credits_wanted as usize / 4 * (4096 - NO_CHUNKS_OCTETS);
    let mut fresh = Peer::ready(config);
    assert_eq!(offered(&mut fresh, window).1.reply, None);
    assert!(offered(&mut fresh, window + 4).1.reply.is_some());
}

/// A call takes at most as many Sends as the configuration allows, and at most half of the peer's credits.
/// proves: V2-6.3.2-e
#[test]
fn the_longest_continued_call_is_configured() {
    let each = 4096 - NO_CHUNKS_OCTETS;
    for (call_parts, most) in [(1, 1), (3, 3), (1000, 16)] {
        let config = Config { call_parts, ..Config::client() };
        let sent = |octets: usize| Peer::ready(config.clone()).call(1, payload(octets), 0, &[], false).sent;
        assert_eq!(sent(most * each).len(), most);
        let longer = sent(most * each + 4);
        assert!(longer.len() == 1 && longer[0].0.body.chunks().unwrap().lists.reads.chunks().len() == 1, "{longer:?}");
    }
}

/// Two ends that are joined, each with the messages that the other has sent.
struct Joined {
    ends: [Peer; 2],
    grants: usize,
    sent: usize,
}

impl Joined {
    /// Hands messages over until both ends are silent. Answers calls at once with `reply_bytes`.
    fn settle(&mut self, reply_bytes: usize) {
        let mut idle = 0;
        for side in (0..2).cycle() {
            let (end, other) = match &mut self.ends {
                [client, server] if side == 0 => (client, server),
                [client, server] => (server, client),
            };
            idle += 1;
            while let Some(action) = end.engine.poll() {
                idle = 0;
                match action {
                    Action::Send { octets, signaled, about, .. } => {
                        self.sent += 1;
                        self.grants += usize::from(about.kind == MessageKind::Grant);
                        if signaled {
                            end.engine.drained();
                        }
                        other.engine.received(octets.concat().into(), other.now, &mut other.host);
                    }
                    Action::Deliver { request, xid, .. } => {
                        let mut octets = reply(xid);
                        octets.resize(reply_bytes, 0);
                        end.engine.answer(request, Answer::Reply(Payload::from(Bytes::from(octets))));
                    }
                    Action::Close(cause) => panic!("{cause:?}"),
                    _ => {}
                }
            }
            if idle == 2 {
                return;
            }
        }
    }

    /// Makes `count` calls, one after the other.
    fn calls(&mut self, count: u32, call_bytes: usize, reply_bytes: usize) -> (usize, usize) {
        let before = (self.sent, self.grants);
        for _ in 0..count {
            let xid = 1 + self.sent as u32;
            let mut octets = call(xid);
            octets.resize(call_bytes, 0);
            let client = &mut self.ends[0];
            let message = Payload::from(Bytes::from(octets));
            let call = Call::new(CallId(xid.into()), xid, message).with_reply(reply_bytes, &[]);
            client.engine.call(call, client.now, &mut client.host).unwrap();
            self.settle(reply_bytes);
            assert_eq!(self.ends[0].engine.stats().unanswered, 0);
        }
        (self.sent - before.0, self.grants - before.1)
    }
}

/// An end that has sent much more than the other does not leave it with a window of one message.
/// proves: V2-4.2.1.1-h
#[test]
fn long_replies_do_not_narrow_the_window_of_long_calls_nor_the_other_way_round() {
    let each = DEFAULT_INLINE_BYTES as usize - NO_CHUNKS_OCTETS;
    let client = Peer::new(Config { reply_parts: 32, ..Config::client() });
    let server = Peer::new(Config::server());
    let mut joined = Joined { ends: [client, server], grants: 0, sent: 0 };
    let client = &mut joined.ends[0];
    client.engine.start(client.now, &mut client.host);
    joined.settle(0);
    for _ in 0..3 {
        for (call, reply) in [(1, 16), (1, 1), (16, 1), (8, 8), (1, 3), (12, 1), (1, 1)] {
            let (sent, grants) = joined.calls(100, call * each, reply * each);
            assert_eq!(sent - grants, 100 * (call + reply), "calls of {call} parts, replies of {reply}");
            assert!(
                grants <= 100 * (call + reply) / 8,
                "{grants} grants for calls of {call} parts, replies of {reply}"
            );
        }
    }
}
