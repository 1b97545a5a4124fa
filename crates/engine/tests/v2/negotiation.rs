//! Which version a connection uses.

use crate::{
    common::{Handles, T, call, words},
    peer::{credits, msg},
    world::World,
};
use bytes::Bytes;
use proptest::prelude::*;
use rpcrdma_engine::{
    Action, Call, CallError, CallId, CloseCause, Config, Endpoint, MessageKind, Negotiated, NoVersion2, PeerFault,
    VERSION_TIMEOUT, Versions,
};
use rpcrdma_env::Timestamp;
use rpcrdma_wire::{
    v1,
    v2::{Credits, Header, Lists, Property, PropertySet, probe},
};
use rpcrdma_xdr::Payload;
use std::time::Duration;

struct End {
    engine: Endpoint,
    host: Handles,
    now: Timestamp,
}

#[derive(Debug, Default)]
struct Done {
    sent: Vec<Bytes>,
    negotiated: Option<Negotiated>,
    closed: Option<CloseCause>,
    failed: Vec<CallError>,
    delivered: usize,
    receives: usize,
}

impl End {
    fn new(config: Config, versions: Versions) -> Self {
        let engine = Endpoint::new(Config { versions, ..config }, None);
        Self { engine, host: Handles::default(), now: T }
    }

    /// A client that has just sent its first messages.
    fn client(versions: Versions) -> (Self, Done) {
        let mut end = Self::new(Config::client(), versions);
        end.engine.start(end.now, &mut end.host);
        let done = end.take();
        (end, done)
    }

    fn hear(&mut self, message: impl Into<Bytes>) -> Done {
        self.engine.received(message.into(), self.now, &mut self.host);
        self.take()
    }

    fn call(&mut self, xid: u32) -> Done {
        let message = Payload::from(Bytes::from(call(xid)));
        let call = Call::new(CallId(xid.into()), xid, message).with_reply(100, &[]);
        self.engine.call(call, self.now, &mut self.host).unwrap();
        self.take()
    }

    fn take(&mut self) -> Done {
        let mut done = Done::default();
        while let Some(action) = self.engine.poll() {
            match action {
                Action::Send { octets, signaled, .. } => {
                    done.sent.push(octets.concat().into());
                    if signaled {
                        self.engine.drained();
                    }
                }
                Action::Negotiated(negotiated) => assert!(done.negotiated.replace(negotiated).is_none()),
                Action::Close(cause) => done.closed = Some(cause),
                Action::Fail { error, .. } => done.failed.push(error),
                Action::Deliver { .. } => done.delivered += 1,
                Action::PostReceives { count } => done.receives += count,
                _ => {}
            }
        }
        done
    }
}

fn version_of(message: &Bytes) -> u32 {
    u32::from_be_bytes(*message[4..].first_chunk().unwrap())
}

fn xid_of(message: &Bytes) -> u32 {
    u32::from_be_bytes(*message.first_chunk().unwrap())
}

fn connprop() -> Bytes {
    Header::connprop(0x55, Credits::new(8, 8), false, PropertySet(vec![Property::SendSize(4096)])).to_bytes()
}

/// proves: V2-4.2.3-a, V2-4.2.3-b, V2-4.2.3-c, V2-4.2.3-d, V2-4.2.3.1-a, V2-4.2.3.1-b, V2-4.2.3.2-f
#[test]
fn a_server_of_version_2_gets_version_2() {
    for versions in [Versions::Auto, Versions::Two] {
        let (mut client, done) = End::client(versions);
        assert_eq!((done.sent.len(), version_of(&done.sent[0])), (1, 2));
        assert!(done.sent[0].len() <= 1024);
        assert!(client.call(1).sent.is_empty(), "only that one message");
        let done = client.hear(connprop());
        let made = done.negotiated.unwrap();
        assert_eq!((made.version, made.refused), (2, None));
        assert_eq!((made.link.send_inline, made.link.receive_inline), (4096, 4096), "its defaults");
        assert_eq!(done.sent.iter().map(version_of).collect::<Vec<_>>(), [2], "the call that was held");
    }
}

/// proves: V2-4.2.3.2-a, V2-4.2.3.2-b, V2-4.2.3.2-c, V2-4.2.3.2-f, V2-4.2.3.2-g, V2-4.2.3.3-c, V2-7.1.1-c, V2-7.1.1-d
/// proves: V2-4.2.3-g
#[test]
fn a_server_that_refuses_gets_version_1_on_the_same_connection() {
    let v2_layout = |xid, low, high| {
        Header::error(xid, 2, credits(), rpcrdma_wire::v2::ErrorBody::Version { low, high }).to_bytes()
    };
    let range = |low, high| Some(NoVersion2::Range { low, high });
    type Answer = Box<dyn Fn(u32) -> Bytes>;
    let answers: [(Answer, Option<NoVersion2>); 4] = [
        (Box::new(|xid| probe::refusal(xid, 2, 32, 1, 1)), range(1, 1)),
        (Box::new(|xid| probe::refusal(xid, 1, 32, 0, 7)), range(0, 7)),
        (Box::new(move |xid| v2_layout(xid, 1, 1)), range(1, 1)),
        (Box::new(|xid| words(&[xid, 2, 32, 4, 2]).into()), Some(NoVersion2::OtherError)),
    ];
    for (answer, refused) in answers {
        let (mut client, done) = End::client(Versions::Auto);
        client.call(1);
        let done = client.hear(answer(xid_of(&done.sent[0])));
        let made = done.negotiated.unwrap();
        assert_eq!((made.version, made.refused), (1, refused));
        assert_eq!((made.link.send_inline, made.link.receive_inline), (1024, 1024), "its defaults");
        assert_eq!(done.closed, None);
        assert_eq!(done.sent.iter().map(version_of).collect::<Vec<_>>(), [1], "the call that was held");
        let (header, _) = v1::Header::decode(&done.sent[0]).unwrap();
        assert_eq!(header.xid, 1);
        // From now on it is a connection of version 1, which ignores messages of version 2.
        assert!(client.hear(connprop()).sent.is_empty());
        let (mut client, done) = End::client(Versions::Two);
        let done = client.hear(answer(xid_of(&done.sent[0])));
        assert!(matches!(done.closed, Some(CloseCause::NoCommonVersion { .. })), "version 1 is not wanted");
    }
}

/// A host that takes its actions late loses none of them when the version changes.
#[test]
fn what_was_asked_for_before_a_refusal_is_done() {
    let (_, at_once) = End::client(Versions::Auto);
    let mut client = End::new(Config::client(), Versions::Auto);
    client.engine.start(client.now, &mut client.host);
    let done = client.hear(probe::refusal(xid_of(&at_once.sent[0]), 2, 32, 1, 1));
    assert_eq!((done.sent.first(), done.negotiated.map(|made| made.version)), (at_once.sent.first(), Some(1)));
    assert!(done.receives >= at_once.receives && at_once.receives > 0, "{} receives", done.receives);
}

/// proves: V2-4.2.3.2-c
#[test]
fn without_a_common_version_the_connection_is_closed() {
    for (low, high) in [(3, 9), (0, 0)] {
        let (mut client, done) = End::client(Versions::Auto);
        let done = client.hear(probe::refusal(xid_of(&done.sent[0]), 2, 32, low, high));
        assert_eq!(done.closed, Some(CloseCause::NoCommonVersion { low, high }));
    }
}

/// proves: V2-4.2.3.2-e, V2-4.2.3.2-h
#[test]
fn a_server_that_does_not_answer_is_given_up_in_time() {
    let about_another = [probe::refusal(0xBAD, 2, 32, 1, 1), words(&[0xBAD, 2, 32, 4, 2]).into()];
    let noises = about_another.into_iter().chain([Bytes::new(), words(&[1, 1, 1, 1]).into()]);
    for noise in noises.map(Some).chain([None]) {
        let (mut client, _) = End::client(Versions::Auto);
        client.call(1);
        let deadline = client.now + VERSION_TIMEOUT;
        if let Some(noise) = noise {
            let done = client.hear(noise);
            assert!(done.closed.is_none() && done.sent.is_empty(), "{done:?}");
        }
        assert_eq!(client.engine.next_wake(), Some(deadline));
        client.engine.wake(T + (VERSION_TIMEOUT - Duration::from_nanos(1)), &mut client.host);
        assert_eq!(client.take().closed, None);
        client.engine.wake(deadline, &mut client.host);
        assert_eq!(client.take().closed, Some(CloseCause::NoAnswer));
        assert!(client.engine.is_probing());
        assert_eq!(client.engine.closed(), [CallId(1)], "the call is to be made on another connection");
    }
}

#[test]
fn calls_that_are_held_can_be_taken_back() {
    let (mut client, _) = End::client(Versions::Auto);
    client.call(1);
    client.call(2);
    client.call(3);
    client.engine.cancel(CallId(1), 1);
    client.engine.forget(CallId(2), 2, client.now);
    let mut back = 0;
    while let Some(action) = client.engine.poll() {
        back += match action {
            Action::Cancelled { call: CallId(1) } | Action::Released { call: CallId(2) } => 1,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!((back, client.engine.stats().queued), (2, 1));
    let done = client.hear(connprop());
    assert_eq!(done.sent.iter().map(xid_of).collect::<Vec<_>>(), [3]);
}

/// proves: V2-4.2.3.3-a, V2-4.2.3.3-b, V2-4.2.3.3-c, V2-4.2.3.3-d, V2-7.1.1-a, V2-7.1.1-b, V2-4.2.3.2-a, V2-4.2.3.2-b
/// proves: V2-4.2.3-e, V2-C.1-a, V2-7-g
#[test]
fn a_server_goes_by_the_first_message_that_it_does_not_refuse() {
    let v1_call =
        |xid| [v1::Header::new(xid, 8, v1::Body::Msg(Lists::default())).to_bytes().to_vec(), call(xid)].concat();
    let other = |xid, version| words(&[xid, version, 8, 0, 0, 0, 0, 0]);
    for versions in [Versions::Auto, Versions::Two] {
        let high = 2;
        let low = if versions == Versions::Auto { 1 } else { 2 };
        let mut server = End::new(Config::server(), versions);
        if versions == Versions::Two {
            let done = server.hear(v1_call(6));
            assert_eq!(
                (done.sent, done.delivered),
                (vec![probe::refusal(6, 1, 64, 2, 2)], 0),
                "version 1 is not wanted"
            );
        }
        for version in [0, 3, u32::MAX] {
            let done = server.hear(other(7, version));
            assert_eq!(done.sent, [probe::refusal(7, version, 64, low, high)]);
            assert_eq!((done.receives, done.delivered), (1, 0), "its receive is replaced");
        }
        for nothing in [Vec::new(), words(&[1, 2, 8]), words(&[1, 2, 8, 0]), words(&[1, 9, 8, 4, 1, 1, 1])] {
            assert!(server.hear(nothing).sent.is_empty());
        }
        let done = server.hear(connprop());
        assert_eq!(done.negotiated.map(|made| made.version), Some(2));
        // From now on the version stays.
        let done = server.hear(v1_call(5));
        assert_eq!(done.delivered, 0);
        let error = rpcrdma_wire::v2::ErrorBody::Version { low: 2, high: 2 };
        let sent = Header::decode(&done.sent[0]).unwrap().0;
        assert_eq!((sent.xid, sent.version, sent.body), (5, 1, rpcrdma_wire::v2::Body::Error(error)));
    }
    let mut server = End::new(Config::server(), Versions::Auto);
    server.hear(other(7, 3));
    let done = server.hear(v1_call(5));
    assert_eq!((done.negotiated.map(|made| made.version), done.delivered), (Some(1), 1));
    let done = server.hear(connprop());
    assert_eq!(done.sent, [probe::refusal(0x55, 2, 64, 1, 1)], "the settled one only");
    // A server of version 1 behaves as before.
    let mut server = End::new(Config::server(), Versions::One);
    assert_eq!(server.take().negotiated.map(|made| made.version), Some(1));
    assert_eq!(server.hear(connprop()).sent, [probe::refusal(0x55, 2, 64, 1, 1)]);
    assert_eq!(server.hear(v1_call(5)).delivered, 1);
}

#[test]
fn a_peer_that_takes_no_refusals_loses_the_connection() {
    let mut server = End::new(Config::server(), Versions::Auto);
    let mut closed = None;
    for xid in 0..100 {
        server.engine.received(words(&[xid, 3, 8, 0]).into(), server.now, &mut server.host);
        while let Some(action) = server.engine.poll() {
            if let Action::Close(cause) = action {
                closed = Some(cause);
            }
        }
    }
    assert_eq!(closed, Some(CloseCause::Peer(PeerFault::AnswersNotTaken)));
    // A client that takes the refusals may go on asking.
    let mut server = End::new(Config::server(), Versions::Auto);
    for xid in 0..100 {
        let done = server.hear(words(&[xid, 3, 8, 0]));
        assert_eq!((done.sent.len(), done.closed), (1, None));
    }
}

/// proves: V2-6.2.2.3-h
#[test]
fn a_client_of_version_2_may_begin_with_a_call() {
    let mut server = End::new(Config::server(), Versions::Auto);
    let octets = [msg(5, false, false, Lists::default()).to_bytes().to_vec(), call(5)].concat();
    let done = server.hear(octets);
    assert_eq!((done.negotiated.map(|made| made.version), done.delivered), (Some(2), 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Ends with a common version can do any work, and report the same version.
    #[test]
    fn ends_with_a_common_version_work_together(seed in any::<u64>(), pair in 0usize..7) {
        use Versions::{Auto, One, Two};
        let (ours, theirs, version) =
            [(One, One, 1), (One, Auto, 1), (Two, Two, 2), (Two, Auto, 2), (Auto, One, 1), (Auto, Two, 2), (Auto, Auto, 2)][pair];
        let client = Config { versions: ours, credits_wanted: 16, ..Config::client() };
        let server = Config { versions: theirs, ..Config::server() };
        let mut world = World::new(seed, client, server);
        world.strict = version == 2;
        world.work(300, false);
        world.finish();
        world.check_end();
        for end in &world.ends {
            prop_assert_eq!(end.negotiated.as_ref().map(|made| made.version), Some(version));
            prop_assert!(end.failed.is_empty() && end.closed.is_none());
        }
    }
}

#[test]
fn messages_are_told_apart_for_those_who_watch() {
    let (mut client, _) = End::client(Versions::Auto);
    client.hear(connprop());
    let message = Payload::from(Bytes::from([call(1), vec![0; 5000]].concat()));
    let call = Call::new(CallId(1), 1, message).with_reply(100, &[]);
    client.engine.call(call, client.now, &mut client.host).unwrap();
    let kinds: Vec<MessageKind> = std::iter::from_fn(|| client.engine.poll())
        .filter_map(|action| match action {
            Action::Send { about, .. } => Some(about.kind),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [MessageKind::Part, MessageKind::Call]);
}
