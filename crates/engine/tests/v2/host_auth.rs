//! Host authentication with a toy of several steps: the ends send numbers in turn, and both know the last one.

use crate::{
    common::{Handles, T, call},
    peer::{Peer, msg},
    world::World,
};
use bytes::Bytes;
use rpcrdma_engine::{
    Action, CloseCause, Config, Endpoint, Side, Versions,
    v2::{
        AUTHENTICATION_TIMEOUT, AuthenticationStep, ErrorBody, Extension, Extensions, Fit, HostAuthentication,
        HostAuthenticator, OtherBody, OtherProperty,
    },
};
use rpcrdma_wire::v2::{Credits, Header, Lists, Property, PropertySet};
use std::sync::Arc;

/// Counts up to `steps` with the peer; a wrong number fails the authentication. Each number has `octets` bytes.
#[derive(Clone, Copy, Debug)]
struct Counting {
    steps: u32,
    octets: usize,
    lenient: bool,
}

#[derive(Debug)]
struct Counter {
    rules: Counting,
    side: Side,
    next: u32,
}

impl HostAuthentication for Counting {
    fn begin(&self, side: Side) -> Box<dyn HostAuthenticator> {
        Box::new(Counter { rules: *self, side, next: 0 })
    }
}

impl Counter {
    fn number(&self, number: u32) -> Bytes {
        [&number.to_be_bytes()[..], &vec![0; self.rules.octets]].concat().into()
    }
}

impl HostAuthenticator for Counter {
    fn start(&mut self) -> Option<Bytes> {
        (self.side == Side::Client).then(|| self.number(0))
    }

    fn hear(&mut self, material: &Bytes) -> AuthenticationStep {
        let expected = self.next + u32::from(self.side == Side::Client);
        if material.first_chunk() != Some(&expected.to_be_bytes()) {
            return AuthenticationStep::Reject;
        }
        self.next = expected + 1;
        let answer = self.number(self.next);
        self.next += u32::from(self.side == Side::Server);
        match expected + 1 >= self.rules.steps {
            true => AuthenticationStep::Accept((expected < self.rules.steps).then_some(answer)),
            false => AuthenticationStep::Say(answer),
        }
    }

    fn silent(&mut self) -> bool {
        self.rules.lenient
    }
}

fn with(config: Config, steps: u32, octets: usize, lenient: bool) -> Config {
    let host_authentication: Option<Arc<dyn HostAuthentication>> = Some(Arc::new(Counting { steps, octets, lenient }));
    Config { host_authentication, versions: Versions::Auto, ..config }
}

/// proves: V2-5.2.6-a, V2-5.2.6-c, V2-6.2.2.3-e, V2-6.2.2.3-a
#[test]
fn both_ends_speak_in_turn_and_then_work() {
    for steps in 1..8 {
        for octets in [0, 20_000] {
            let client = with(Config::client(), steps, octets, false);
            let server = with(Config::server(), steps, octets, false);
            let mut world = World::new(u64::from(steps), client, server);
            world.strict = false;
            world.work(300, false);
            world.finish();
            world.check_end();
            for end in &world.ends {
                let made = end.negotiated.as_ref().expect("settled");
                assert!(made.authenticated && made.version == 2, "{steps} steps");
                assert!(end.closed.is_none() && end.failed.is_empty());
            }
            assert!(world.ends[0].ended > 0);
        }
    }
}

/// proves: V2-5.2.6-b
#[test]
fn a_peer_that_stays_silent_is_up_to_the_policy() {
    for lenient in [false, true] {
        for (ours, theirs) in [(true, false), (false, true)] {
            let plain = |config| Config { versions: Versions::Auto, ..config };
            let client = if ours { with(Config::client(), 3, 0, lenient) } else { plain(Config::client()) };
            let server = if theirs { with(Config::server(), 3, 0, lenient) } else { plain(Config::server()) };
            let mut world = World::new(1, client, server);
            world.strict = false;
            world.finish();
            let asking = &world.ends[usize::from(theirs)];
            let closed = (!lenient).then_some(CloseCause::Unauthenticated);
            assert_eq!((asking.closed, asking.negotiated.is_some()), (closed, lenient));
            assert!(asking.negotiated.as_ref().is_none_or(|made| !made.authenticated));
        }
        // A peer of version 1 is silent as well, and cannot evade the policy.
        let one = Config { versions: Versions::One, ..with(Config::client(), 3, 0, lenient) };
        let closed = matches!(Endpoint::new(one, None).poll(), Some(Action::Close(CloseCause::Unauthenticated)));
        assert_eq!(closed, !lenient);
        let mut server = Endpoint::new(with(Config::server(), 3, 0, lenient), None);
        let header = rpcrdma_wire::v1::Header::new(5, 8, rpcrdma_wire::v1::Body::Msg(Lists::default())).to_bytes();
        let mut host = Handles::default();
        server.received([header.to_vec(), call(5)].concat().into(), T, &mut host);
        let delivered = std::iter::from_fn(|| server.poll()).any(|action| matches!(action, Action::Deliver { .. }));
        assert_eq!(delivered, lenient);
    }
}

/// Knows every header type.
#[derive(Debug)]
struct Strange;

impl Extensions for Strange {
    fn header_type(&self, _: u32) -> bool {
        true
    }
    fn property(&self, _: &OtherProperty) -> Fit {
        Fit::Unknown
    }
}

impl Extension for Strange {}

#[test]
fn nothing_is_delivered_before_the_verdict() {
    let extension = Some(Arc::new(Strange) as Arc<dyn Extension>);
    let mut server = Peer::new(Config { extension, ..with(Config::server(), 3, 0, false) });
    let say = |number: u32, tpmore| {
        let set = PropertySet(vec![Property::HostAuth(Bytes::copy_from_slice(&number.to_be_bytes()))]);
        Header::connprop(0x55, Credits::new(8, 8), tpmore, set)
    };
    server.hear(&say(0, true), &[]);
    let done = server.hear(&msg(1, false, false, Lists::default()), &call(1));
    assert!(done.delivered().is_empty());
    assert_eq!(done.errors(), [(1, ErrorBody::System)]);
    for (response, errors) in [(false, vec![(2, ErrorBody::System)]), (true, vec![])] {
        let body = OtherBody::new(77, Bytes::from_static(b"octets")).unwrap();
        let done = server.hear(&Header::other(2, Credits::new(8, 8), response, body), &[]);
        assert!(!done.actions.iter().any(|action| matches!(action, Action::Extension(_))), "{done:?}");
        assert_eq!(done.errors(), errors);
    }
    assert_eq!(server.engine.stats().discarded, 3);
    assert_eq!(server.engine.next_wake(), Some(server.now + AUTHENTICATION_TIMEOUT));
    let done = server.hear(&say(9, true), &[]);
    assert!(matches!(done.actions[..], [Action::Close(CloseCause::Unauthenticated)]), "a wrong number: {done:?}");
    // An authentication that never ends.
    let mut server = Peer::new(with(Config::server(), 3, 0, false));
    server.hear(&say(0, true), &[]);
    assert!(server.wake(server.now + AUTHENTICATION_TIMEOUT).closed());
    // A call as the first message counts as silence.
    let mut server = Peer::new(with(Config::server(), 3, 0, false));
    let done = server.hear(&msg(1, false, false, Lists::default()), &call(1));
    assert!(done.closed() && done.delivered().is_empty());
}
