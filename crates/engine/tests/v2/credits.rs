//! Credits at their limits, with a peer that counts.

use crate::{
    common::{call, reply},
    peer::{Done, Peer, msg, payload},
};
use rpcrdma_engine::{Action, Config, MessageKind, v2::ReverseSupport};
use rpcrdma_wire::v2::{Credits, Header, Lists, Property, PropertySet};

/// Calls leave the last credit for a reply, which the peer may need before it answers any call.
/// proves: V2-4.2.1.1-e
#[test]
fn calls_leave_the_last_credit_to_answers() {
    let config = Config { credits_granted: 4, ..Config::client() };
    let mut client = Peer::new(config);
    client.engine.start(client.now, &mut client.host);
    client.take();
    client.hear(&Header::connprop(1, Credits::new(3, 32), false, Default::default()), &[]);
    let sent: Vec<usize> = (1..5).map(|xid| client.call(xid, payload(40), 100, &[], false).sent.len()).collect();
    assert_eq!(sent, [1, 1, 0, 0], "three credits, of which one is kept");
    // A call of the server, which grants no credit that a call of ours could use.
    let header = Header { credits: Credits::new(0, 32), ..msg(9, false, false, Lists::default()) };
    let done = client.hear(&header, &call(9));
    client.engine.answer(done.delivered()[0].0, rpcrdma_engine::Answer::Reply(payload(40)));
    let done = client.take();
    assert_eq!(done.sent.iter().map(|(header, ..)| header.flags.response).collect::<Vec<_>>(), [true]);
    let done = client.hear(&Header::grant(Credits::new(2, 32)), &[]);
    assert_eq!(done.sent.len(), 1, "two more, of which one is kept");
    // Without an unanswered call of the peer, no credit need be kept.
    let mut alone = Peer::new(Config::client());
    alone.engine.start(alone.now, &mut alone.host);
    alone.take();
    alone.hear(&Header::connprop(1, Credits::new(1, 32), false, Default::default()), &[]);
    assert_eq!(alone.call(1, payload(40), 100, &[], false).sent.len(), 1);
}

/// The first message grants credits, and there are receives for them before it leaves.
/// proves: V2-4.2.1.2-b
#[test]
fn receives_come_before_the_message_that_grants_their_credits() {
    let mut client = Peer::new(Config::client());
    client.engine.start(client.now, &mut client.host);
    let actions: Vec<_> = std::iter::from_fn(|| client.engine.poll()).collect();
    assert!(matches!(actions[..], [Action::PostReceives { .. }, Action::Send { .. }]), "{actions:?}");
}

/// However many credits there are, no more calls are under way than this end has asked for, or than the peer's ceiling.
/// proves: V2-4.2.1.1-c
#[test]
fn calls_under_way_keep_within_both_ceilings() {
    for (wanted, ceiling, most) in [(3, 32, 3), (32, 3, 3), (4, 4, 4)] {
        let mut client = Peer::new(Config { credits_wanted: wanted, ..Config::client() });
        client.engine.start(client.now, &mut client.host);
        client.take();
        client.hear(&Header::connprop(1, Credits::new(ceiling, ceiling), false, Default::default()), &[]);
        let calls = |done: &Done| done.sent.iter().filter(|(_, _, kind, _)| *kind == MessageKind::Call).count();
        let sent: usize = (1..10).map(|xid| calls(&client.call(xid, payload(40), 100, &[], false))).sum();
        // This grant ensures that no credit is missing.
        let sent = sent + calls(&client.hear(&Header::grant(Credits::new(ceiling, ceiling)), &[]));
        assert_eq!((sent, client.engine.stats().unanswered), (most, most), "{wanted} wanted, a ceiling of {ceiling}");
        let answer = Header { credits: Credits::new(1, ceiling), ..msg(1, true, false, Lists::default()) };
        let done = client.hear(&answer, &reply(1));
        assert_eq!((done.completed(), calls(&done)), (1, 1), "the next one goes");
    }
}

/// There are receives for all that the peer may send at once: the messages of both ceilings, and one bare grant, which
/// needs no credit.
/// proves: V2-4.2.1.2-b, V2-4.2.1.1-h
#[test]
fn a_grant_finds_a_receive_when_all_credits_are_used() {
    for own in [2, 5, 32] {
        let mut server = Peer::announced(
            Config { credits_granted: own, credits_wanted: own, ..Config::server() },
            vec![Property::Reverse(3)],
        );
        // Every message of the server has to grant a credit, and it can send as many messages as the peer's ceiling.
        // The peer can use all these grants, and all its messages can be on their way, before the server has looked at
        // any of them. One bare grant comes in addition.
        let ceiling = 32;
        let receives = server.engine.stats().receives;
        assert!(receives > own as usize + ceiling, "{receives} receives");
        let calls = (1..1000).map(|xid| server.call(xid, payload(40), 100, &[], false).sent);
        let forced: usize = calls.flatten().map(|(header, ..)| usize::from(header.credits.granted)).sum();
        assert!((1..=ceiling).contains(&forced), "{forced} granted without a receive to spare");
    }
}

/// The XIDs of the two directions are independent. If our reply answers a call with the same XID as a call of ours,
/// this does not show which of our grants the peer has read.
/// proves: V2-4.2.1.1-h
#[test]
fn an_answer_does_not_count_as_a_call_with_its_xid() {
    let granted = |xid| {
        let config = Config { credits_granted: 16, credits_wanted: 16, ..Config::client() };
        let mut client = Peer::ready(Config { reverse: ReverseSupport::General, ..config });
        let word = Credits::new(8, 32);
        client.call(1, payload(40), 100, &[], false);
        let done = client.hear(&Header { credits: word, ..msg(xid, false, false, Lists::default()) }, &call(xid));
        client.engine.answer(done.delivered()[0].0, rpcrdma_engine::Answer::Reply(payload(9000)));
        assert_eq!(client.take().sent.len(), 3);
        let mut sent = client.hear(&msg(1, true, false, Lists::default()), &reply(1)).sent;
        for xid in 2..8 {
            sent.extend(client.hear(&Header::grant(word), &[]).sent);
            sent.extend(client.call(xid, payload(40), 100, &[], false).sent);
            sent.extend(client.hear(&msg(xid, true, false, Lists::default()), &reply(xid)).sent);
        }
        sent.iter().map(|(header, ..)| header.credits.granted).collect::<Vec<_>>()
    };
    assert_eq!(granted(1), granted(99));
}

/// Properties count when the peer has announced all of them; the engine answers an earlier call with the defaults.
/// proves: V2-4.2.2-c, V2-6.2.2.3-h
#[test]
fn defaults_hold_until_the_exchange_is_over() {
    let large = Config { send_bytes: 65_536, receive_bytes: 65_536, ..Config::server() };
    for (over, messages) in [(false, 3), (true, 1)] {
        let mut server = Peer::new(large.clone());
        let set = PropertySet(vec![Property::ReceiveSize(65_536), Property::SendSize(65_536)]);
        server.hear(&Header::connprop(0x66, Credits::new(8, 32), !over, set), &[]);
        let done = server.hear(&msg(1, false, false, Lists::default()), &call(1));
        server.engine.answer(done.delivered()[0].0, rpcrdma_engine::Answer::Reply(payload(9000)));
        let sent = server.take().sent;
        assert_eq!(sent.len(), messages, "exchange over: {over}");
        assert!(sent.iter().all(|(header, octets, ..)| over || header.encoded_len() + octets <= 4096));
    }
}
