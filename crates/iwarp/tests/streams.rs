//! The decoder and arbitrary streams: cuts make no difference, and no bytes make the decoder fail or lose memory.

mod common;

use bytes::Bytes;
use common::{
    buffer, pattern,
    wire::{AGREED, completions, deliver, endpoint, output},
};
use proptest::prelude::*;
use rpcrdma_fabric::{Completion, Lent, ReadWork, RemoteSegment, SendWork, Token, WriteWork};
use rpcrdma_iwarp::protocol::{
    Endpoint, Phase, Role,
    fpdu::Segmentation,
    mpa::{Frame, HEAD_OCTETS, Head, Kind},
    negotiation, terminate,
};

const SINK_OCTETS: usize = 60_000;
const RECEIVES: usize = 32;

/// An action of a peer.
#[derive(Clone, Debug)]
enum Act {
    Send(usize),
    Write(usize, usize),
    Read(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..=1000usize).prop_map(Act::Send),
        (0..SINK_OCTETS, 1..SINK_OCTETS).prop_map(|(at, len)| Act::Write(at, len.min(SINK_OCTETS - at))),
        (1..SINK_OCTETS).prop_map(Act::Read),
    ]
}

struct Ends {
    here: Endpoint,
    there: Endpoint,
    sink: RemoteSegment,
}

/// Two ends of one connection; the right one has exposed a sink and reads from the left one.
fn ends(acts: &[Act], fpdu_octets: usize, crc: bool) -> Ends {
    let agreed = negotiation::Agreed { crc, ird: 16, ord: 16, ..AGREED };
    let mut here = endpoint(Role::Initiator, agreed, RECEIVES, fpdu_octets);
    let mut there = endpoint(Role::Initiator, agreed, RECEIVES, fpdu_octets);
    let sink = there.expose(Token(0), Lent::Sink(buffer(SINK_OCTETS))).unwrap();
    let source = here.expose(Token(0), Lent::Source(pattern(SINK_OCTETS, 200))).unwrap();
    for (index, act) in acts.iter().enumerate() {
        match *act {
            Act::Send(len) => {
                let octets = vec![pattern(len, index)];
                here.post_send(SendWork { octets: octets.into(), ..SendWork::default() }).unwrap();
            }
            Act::Write(at, len) => {
                let octets = pattern(len, index);
                let cut = len / 2;
                let write = WriteWork {
                    octets: vec![octets.slice(..cut), octets.slice(cut..)].into(),
                    handle: sink.handle,
                    offset: at as u64,
                    ..WriteWork::default()
                };
                here.post_write(write).unwrap();
            }
            Act::Read(len) => {
                let sources = vec![RemoteSegment { length: len as u32, ..source }];
                there.post_read(ReadWork { token: Token(index as u64), sink: buffer(len), sources }).unwrap();
            }
        }
    }
    Ends { here, there, sink }
}

/// All that the right end has received, in a comparable form.
fn results(endpoint: &mut Endpoint, sink: RemoteSegment) -> Vec<(String, Vec<u8>)> {
    endpoint.invalidate(sink.handle);
    completions(endpoint)
        .into_iter()
        .map(|completion| match completion {
            Completion::Received { buffer, .. } => ("received".to_owned(), buffer.filled().to_vec()),
            Completion::Read { token, sink } => (format!("read {}", token.0), sink.filled().to_vec()),
            Completion::Fenced { memory: Lent::Sink(mut sink), .. } => ("fenced".to_owned(), sink.bytes_mut().to_vec()),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// All that the right end should have received.
fn expected(acts: &[Act]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut sink = vec![0; SINK_OCTETS];
    let mut messages = Vec::new();
    for (index, act) in acts.iter().enumerate() {
        match *act {
            Act::Send(len) => messages.push(pattern(len, index).to_vec()),
            Act::Write(at, len) => sink[at..at + len].copy_from_slice(&pattern(len, index)),
            Act::Read(_) => {}
        }
    }
    (messages, sink)
}

/// The bytes that the left end sends.
fn stream(ends: &mut Ends) -> Vec<u8> {
    ends.here.feed(&output(&mut ends.there));
    output(&mut ends.here)
}

/// For each byte of the sink, whether a Write has certainly set it: the other bytes may hold anything.
fn written(acts: &[Act]) -> Vec<bool> {
    let mut set = vec![false; SINK_OCTETS];
    for act in acts {
        if let Act::Write(at, len) = *act {
            set[at..at + len].fill(true);
        }
    }
    set
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// However a stream is cut, and whatever the decoder guesses about it, its bytes end in their places.
    #[test]
    fn cuts_make_no_difference(
        acts in prop::collection::vec(act(), 1..12),
        fpdu in prop_oneof![Just(128usize), Just(1448), Just(9000), Just(65_535)],
        crc: bool,
        cuts in prop::collection::vec(prop_oneof![1..40usize, 1..5000usize, 1..400_000usize], 1..20),
    ) {
        let mut ends = ends(&acts, fpdu, crc);
        let octets = stream(&mut ends);
        let mut cut = cuts.iter().copied().cycle();
        deliver(&mut ends.there, &octets, || cut.next().unwrap());
        prop_assert_eq!(ends.there.phase(), &Phase::Open);
        prop_assert!(!ends.there.mid_fpdu());
        let seen = results(&mut ends.there, ends.sink);
        let (messages, sink) = expected(&acts);
        let set = written(&acts);
        let mut messages = messages.into_iter();
        for (what, octets) in seen {
            match what.as_str() {
                "received" => prop_assert_eq!(Some(octets), messages.next()),
                "fenced" => prop_assert!((0..SINK_OCTETS).all(|at| !set[at] || octets[at] == sink[at])),
                _ => prop_assert!(octets == pattern(octets.len(), 200)),
            }
        }
        prop_assert_eq!(messages.next(), None);
    }

    /// A stream with a fault in it ends the connection, or waits for more; with CRC it delivers nothing that was not
    /// sent.
    #[test]
    fn damage_is_noticed(
        acts in prop::collection::vec(act(), 1..6),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
        cuts in prop::collection::vec(1..5000usize, 1..8),
    ) {
        let mut ends = ends(&acts, 1448, true);
        let mut octets = stream(&mut ends);
        prop_assume!(!octets.is_empty());
        let at = at.index(octets.len());
        octets[at] ^= flip;
        let mut cut = cuts.iter().copied().cycle();
        deliver(&mut ends.there, &octets, || cut.next().unwrap());
        prop_assert!(!matches!(ends.there.phase(), Phase::Open) || ends.there.mid_fpdu());
        let (messages, _) = expected(&acts);
        let mut received = 0;
        for completion in completions(&mut ends.there) {
            if let Completion::Received { buffer, .. } = completion {
                prop_assert_eq!(buffer.filled(), &messages[received][..]);
                received += 1;
            }
        }
    }

    /// Random bytes, with or without a valid beginning, never make the decoder fail, and all memory comes back once.
    #[test]
    fn arbitrary_octets_lose_nothing(
        acts in prop::collection::vec(act(), 0..4),
        keep in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..3000),
        crc: bool,
        cuts in prop::collection::vec(1..5000usize, 1..8),
    ) {
        let mut ends = ends(&acts, 1448, crc);
        let mut octets = stream(&mut ends);
        octets.truncate(keep.index(octets.len() + 1));
        octets.extend(noise);
        let mut cut = cuts.iter().copied().cycle();
        deliver(&mut ends.there, &octets, || cut.next().unwrap());
        let _ = output(&mut ends.there);
        ends.there.peer_closed();
        let back = completions(&mut ends.there);
        let receives = back.iter().filter(|c| matches!(
            c,
            Completion::Received { .. } | Completion::Failed { kind: rpcrdma_fabric::WorkKind::Receive, .. }
        ));
        prop_assert_eq!(receives.count(), RECEIVES);
        let reads = back.iter().filter(|c| matches!(
            c,
            Completion::Read { .. } | Completion::Failed { kind: rpcrdma_fabric::WorkKind::Read, .. }
        ));
        prop_assert_eq!(reads.count(), acts.iter().filter(|a| matches!(a, Act::Read(_))).count());
        prop_assert_eq!(back.iter().filter(|c| matches!(c, Completion::Fenced { .. })).count(), 1);
        let closed = matches!(back.last(), Some(Completion::Closed { .. }));
        prop_assert!(closed);
    }

    /// Set-up frames and Terminates: the decoder reads or refuses any bytes, and what it reads is encoded to the same
    /// bytes.
    #[test]
    fn frames_survive_anything(
        mut head in prop::array::uniform20(any::<u8>()),
        private in prop::collection::vec(any::<u8>(), 0..600),
        right_key: bool,
    ) {
        let _ = terminate::decode(&private).map(|reading| reading.to_string());
        let _ = terminate::quoted_sink(&private);
        let head: &mut [u8; HEAD_OCTETS] = &mut head;
        if right_key {
            head[..16].copy_from_slice(b"MPA ID Req Frame");
        }
        if let Ok(decoded) = Head::decode(Kind::Request, head) {
            prop_assert!(decoded.private_octets <= 512);
            if let Ok(frame) = Frame::decode(decoded, &private) {
                let again = frame.encode(Kind::Request);
                let (first, rest) = again.split_first_chunk().unwrap();
                let back = Frame::decode(Head::decode(Kind::Request, first).unwrap(), rest).unwrap();
                prop_assert_eq!((back.enhanced, back.private_data), (frame.enhanced, frame.private_data));
            }
        }
    }
}

/// After a wrong guess about the next segment's place, the endpoint finds the bytes that landed there and moves them.
#[test]
fn a_send_behind_a_short_write_is_found() {
    let mut ends = ends(&[Act::Write(0, 10_000), Act::Send(700), Act::Write(20_000, 10), Act::Send(0)], 1448, true);
    let octets = stream(&mut ends);
    deliver(&mut ends.there, &octets, || usize::MAX);
    let seen = results(&mut ends.there, ends.sink);
    assert_eq!(seen[0].1, pattern(700, 1));
    assert_eq!(seen[1].1, Bytes::new());
    assert_eq!(seen[2].1[..10_000], pattern(10_000, 0));
    assert_eq!(seen[2].1[20_000..20_010], pattern(10, 2));
}

/// If the last segment of a Send is as long as the others, the guess is right until the Send's buffer has been handed
/// out. The bytes behind the Send then lie in that buffer; the endpoint must find them all the same.
#[test]
fn a_send_behind_one_that_fills_its_segments_is_found() {
    let cut = Segmentation::for_fpdu(128).untagged_octets;
    for crc in [true, false] {
        let mut ends = ends(&[Act::Send(4 * cut), Act::Send(1), Act::Send(300)], 128, crc);
        let octets = stream(&mut ends);
        // The first header, so that the next read can guess.
        let mut reads = [20].into_iter();
        deliver(&mut ends.there, &octets, || reads.next().unwrap_or(usize::MAX));
        let seen = results(&mut ends.there, ends.sink);
        assert_eq!(seen[0].1, pattern(4 * cut, 0));
        assert_eq!(seen[1].1, pattern(1, 1));
        assert_eq!(seen[2].1, pattern(300, 2));
    }
}

/// One read of the socket puts many segments straight into their places, within the limits of one read.
#[test]
fn a_read_takes_many_segments() {
    for (fpdu, least, most) in [(1448, 128 * 1424, 129 * 1448), (65_535, 512 << 10, 640 << 10)] {
        let mut there = endpoint(Role::Initiator, AGREED, 1, fpdu);
        let mut here = endpoint(Role::Initiator, AGREED, 1, fpdu);
        let sink = there.expose(Token(0), Lent::Sink(buffer(4 << 20))).unwrap();
        let octets = vec![pattern(4 << 20, 0)];
        here.post_write(WriteWork { octets: octets.into(), handle: sink.handle, ..WriteWork::default() }).unwrap();
        let stream = output(&mut here);
        there.feed(&stream[..20]);
        let slices = there.read_slices();
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        assert!((least..most + (8 << 10)).contains(&room), "{room} bytes in {} slices", slices.len());
        drop(slices);
        deliver(&mut there, &stream[20..], || usize::MAX);
        there.invalidate(sink.handle);
        match completions(&mut there).remove(0) {
            Completion::Fenced { memory: Lent::Sink(mut sink), .. } => {
                assert!(sink.bytes_mut() == &pattern(4 << 20, 0)[..]);
            }
            other => panic!("{other:?}"),
        }
    }
}
