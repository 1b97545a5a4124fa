//! Peers that send anything at all: nothing panics, nothing grows without bound, and the answers to a peer come to an
//! end.

use crate::{
    common::{Handles, T, call, reply},
    peer::{msg, payload, reads, writes},
};
use bytes::Bytes;
use proptest::prelude::*;
use rpcrdma_engine::{
    Action, Answer, Call, CallId, Config, Endpoint, Versions,
    v2::{MAX_PEER_CREDITS, MAX_REQUESTS, SPARE_RECEIVES},
};
use rpcrdma_wire::v2::{Chunks, Credits, ErrorBody, Header, Lists, PropertySet};
use std::time::Duration;

/// A message of any kind, possibly damaged.
#[derive(Clone, Debug)]
struct Shot {
    kind: u8,
    xid: u32,
    response: bool,
    more: bool,
    tpmore: bool,
    word: u32,
    damage: Option<(u16, u8)>,
    cut: Option<u16>,
}

fn shot() -> impl Strategy<Value = Shot> {
    let xid = prop_oneof![8 => 1u32..6, 1 => Just(0), 1 => 0x7700u32..0x7703, 1 => any::<u32>()];
    let word = prop_oneof![4 => Just(0x0020_0004u32), 1 => Just(0), 1 => any::<u32>(), 2 => Just(0x0001_0001)];
    let damage = proptest::option::weighted(0.15, (0u16..80, any::<u8>()));
    let cut = proptest::option::weighted(0.1, 0u16..80);
    (0u8..12, xid, any::<bool>(), any::<bool>(), any::<bool>(), word, damage, cut).prop_map(
        |(kind, xid, response, more, tpmore, word, damage, cut)| Shot {
            kind,
            xid,
            response,
            more,
            tpmore,
            word,
            damage,
            cut,
        },
    )
}

impl Shot {
    fn octets(&self) -> Vec<u8> {
        let Shot { xid, response, more, tpmore, .. } = *self;
        let word = Credits::from_word(self.word);
        let head = if response { reply(xid) } else { call(xid) };
        let (header, payload) = match self.kind {
            0 | 1 => (msg(xid, response, more, Lists::default()), head),
            2 => (msg(xid, response, more, Lists::default()), vec![0; 8]),
            3 => (msg(xid, response, more, Lists::default()), Vec::new()),
            4 => (msg(xid, response, more, reads(&[(24, 8), (24, 3)])), head),
            5 => (msg(xid, response, more, writes(&[&[8, 8], &[], &[7]])), head),
            6 => (Header::nomsg(xid, word, response, Chunks::from(reads(&[(0, 40)]))), Vec::new()),
            7 => (Header::nomsg(xid, word, response, Chunks::default()), Vec::new()),
            8 => {
                let errors = [
                    ErrorBody::BadXdr,
                    ErrorBody::ReadChunks { max_chunks: 0 },
                    ErrorBody::WriteChunks { max_chunks: 0 },
                    ErrorBody::Segments { max_segments: xid },
                    ErrorBody::WriteResource { chunk_index: 1, length_needed: self.word },
                    ErrorBody::ReplyResource { length_needed: self.word },
                    ErrorBody::Version { low: 1, high: 1 },
                ];
                (Header::error(xid, 2, word, errors[self.word as usize % errors.len()]), Vec::new())
            }
            9 => (Header::connprop(xid, word, tpmore, PropertySet::default()), Vec::new()),
            10 => (Header::connprop_piece(xid, word, more, tpmore, Bytes::from_static(&[0, 0, 0, 1])), Vec::new()),
            _ => (Header { version: self.word, ..Header::grant(word) }, Vec::new()),
        };
        let mut octets = Header { credits: word, ..header }.to_bytes().to_vec();
        octets.extend(payload);
        if let Some((at, octet)) = self.damage
            && let Some(place) = octets.get_mut(usize::from(at))
        {
            *place = octet;
        }
        octets.truncate(self.cut.map_or(usize::MAX, usize::from));
        octets
    }
}

/// Sends shots to an endpoint that works meanwhile: it makes calls, serves calls, and pulls.
fn play(config: Config, shots: &[Shot], decent: bool) {
    let mut host = Handles::default();
    let mut engine = Endpoint::new(config, None);
    let mut now = T;
    engine.start(now, &mut host);
    let mut posted = 2usize;
    let (mut sent, mut closed) = (0usize, false);
    if decent {
        let header = Header::connprop(0x55, Credits::new(32, 32), false, PropertySet::default());
        posted -= 1;
        engine.received(header.to_bytes(), now, &mut host);
    }
    for (turn, shot) in shots.iter().enumerate() {
        if turn % 3 == 0 && !closed {
            let xid = 1 + turn as u32 % 5;
            let call = CallId(turn as u64);
            let made = Call::new(call, xid, payload(40 + turn * 500)).with_reply(90_000, &[70_000]);
            let _ = engine.call(Call { repeatable: turn % 2 == 0, ..made }, now, &mut host);
        }
        // The provider deals with a Send that finds no receive.
        if posted == 0 || closed {
            break;
        }
        posted -= 1;
        engine.received(shot.octets().into(), now, &mut host);
        loop {
            while let Some(action) = engine.poll() {
                match action {
                    Action::PostReceives { count } => posted += count,
                    Action::Send { octets, signaled, .. } => {
                        assert!(!closed);
                        assert!(octets.iter().map(Bytes::len).sum::<usize>() <= 4096);
                        sent += 1;
                        if signaled {
                            engine.drained();
                        }
                    }
                    Action::Deliver { request, xid, .. } => {
                        let payload = Bytes::from(reply(xid)).into();
                        engine.answer(request, if turn % 4 == 0 { Answer::Nothing } else { Answer::Reply(payload) });
                    }
                    Action::Pull { request, octets, .. } => _ = engine.pulled(request, &vec![0; octets]),
                    Action::Invalidate { exposure, .. } => engine.fenced(exposure),
                    Action::Close(_) => closed = true,
                    _ => {}
                }
            }
            if engine.next_wake().is_none_or(|when| when > now) {
                break;
            }
            engine.wake(now, &mut host);
        }
        let stats = engine.stats();
        assert!(closed || stats.receives == posted, "the engine's count is the fabric's");
        assert!(posted <= 64 + usize::from(MAX_PEER_CREDITS) + SPARE_RECEIVES + 64);
        assert!(stats.executing <= 2 * MAX_REQUESTS);
        now = now + Duration::from_millis(if turn % 10 == 0 { 3000 } else { 1 });
    }
    // One message may make the endpoint send the parts of a few messages, but not any number.
    assert!(sent <= 64 + shots.len() * 64, "{sent} for {}", shots.len());
    engine.closed();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// proves: V2-7-a, V2-7-g, V2-11.2.2.4-b, V2-11.3-a, V2-11.1-a
    #[test]
    fn nothing_that_a_peer_sends_upsets_an_end(
        shots in proptest::collection::vec(shot(), 1..120),
        server in any::<bool>(),
        auto in any::<bool>(),
        decent in proptest::bool::weighted(0.8),
    ) {
        let versions = if auto { Versions::Auto } else { Versions::Two };
        let config = if server { Config { credits_wanted: 8, ..Config::server() } } else { Config { credits_granted: 8, ..Config::client() } };
        play(Config { versions, ..config }, &shots, decent);
    }

    #[test]
    fn nothing_of_random_octets_does_either(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 1..50),
        server in any::<bool>(),
    ) {
        let config = if server { Config::server() } else { Config::client() };
        let mut host = Handles::default();
        let mut engine = Endpoint::new(Config { versions: Versions::Auto, ..config }, None);
        engine.start(T, &mut host);
        for message in messages {
            engine.received(message.into(), T, &mut host);
            while engine.poll().is_some() {}
        }
    }
}
