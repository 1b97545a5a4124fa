//! RDMA Write and RDMA Read.

use super::{
    Case, Given, Verdict, case,
    ledger::pattern,
    pair::{At, Pair, Wish},
};
use crate::{Completion, Lent, ReadWork, RefusedReason, RemoteSegment, Token};
use bytes::Bytes;

pub(super) const CASES: &[Case] = &[
    case!(a_send_shows_that_the_writes_before_it_are_in_place),
    case!(a_write_gathers_its_slices_and_touches_nothing_else),
    case!(writes_reach_the_first_and_the_last_octet),
    case!(a_read_brings_the_octets),
    case!(a_read_fills_one_sink_from_several_places),
    case!(more_reads_than_the_ord_wait_their_turn),
    case!(both_sides_read),
    case!(a_send_may_be_posted_behind_a_read),
    case!(writes_of_nothing_change_nothing),
    case!(reads_of_nothing_bring_nothing),
    case!(a_sink_may_be_larger_than_what_is_read),
];

fn part(segment: RemoteSegment, at: u64, length: u32) -> RemoteSegment {
    RemoteSegment { offset: segment.offset + at, length, ..segment }
}

async fn a_send_shows_that_the_writes_before_it_are_in_place(setup: Given) -> Verdict {
    const EACH: usize = 5000;
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let (token, sink) = pair.b.expose(pair.ledger.sink(10 * EACH));
    let octets = pair.ledger.share(&pattern(1, 10 * EACH));
    for n in 0..10 {
        let at = n * EACH;
        pair.a.write(vec![octets.slice(at..at + EACH)], sink.handle, sink.offset + at as u64, false);
    }
    pair.a.say(b"written");
    assert_eq!(pair.received(At::B).await.0.filled(), b"written");
    assert!(pair.take_sink(At::B, token, sink.handle).await == octets, "the bytes differ");
    drop(octets);
    pair.finish().await;
    Verdict::Passed
}

async fn a_write_gathers_its_slices_and_touches_nothing_else(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let (token, sink) = pair.b.expose(pair.ledger.sink(1000));
    let octets = pair.ledger.share(&pattern(2, 300));
    let slices = match setup.a.capabilities().max_gather {
        0..4 => vec![octets.slice(100..)],
        _ => vec![octets.slice(100..101), octets.slice(101..101), octets.slice(101..250), octets.slice(250..)],
    };
    let write = pair.a.write(slices, sink.handle, sink.offset + 333, true);
    pair.a.say(b"");
    pair.received(At::B).await;
    pair.done(At::A, write).await;
    let got = pair.take_sink(At::B, token, sink.handle).await;
    assert_eq!(&got[333..533], &octets[100..]);
    assert!(got[..333].iter().chain(&got[533..]).all(|octet| *octet == 0xEE), "bytes beside were touched");
    drop(octets);
    pair.finish().await;
    Verdict::Passed
}

async fn writes_reach_the_first_and_the_last_octet(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let (token, sink) = pair.b.expose(pair.ledger.sink(4097));
    pair.a.write(vec![Bytes::from_static(b"f")], sink.handle, sink.offset, false);
    pair.a.write(vec![Bytes::from_static(b"l")], sink.handle, sink.offset + 4096, false);
    pair.a.say(b"");
    pair.received(At::B).await;
    let got = pair.take_sink(At::B, token, sink.handle).await;
    assert_eq!((got[0], got[1], got[4095], got[4096]), (b'f', 0xEE, 0xEE, b'l'));
    pair.finish().await;
    Verdict::Passed
}

async fn a_read_brings_the_octets(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let octets = pattern(3, 10_001);
    let (token, source) = pair.b.expose(pair.ledger.source(&octets));
    let mut reads = Vec::new();
    for (at, length) in [(0, 10_001), (0, 1), (10_000, 1), (17, 5003)] {
        let sink = pair.ledger.buffer(length as usize);
        reads.push((at as usize, length as usize, pair.a.read(sink, vec![part(source, at, length)])));
    }
    for (at, length, read) in reads {
        assert!(pair.read(At::A, read).await.filled() == &octets[at..at + length], "{length} bytes at {at}");
    }
    pair.b.invalidate(source.handle);
    match pair.fenced(At::B, token).await.0 {
        Lent::Source(back) => assert!(back == octets, "the memory itself comes back"),
        other => panic!("{other:?}"),
    }
    pair.finish().await;
    Verdict::Passed
}

async fn a_read_fills_one_sink_from_several_places(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let (one, two) = (pattern(4, 3000), pattern(5, 3000));
    let (_, first) = pair.b.expose(pair.ledger.source(&one));
    let (_, second) = pair.b.expose(pair.ledger.source(&two));
    let sources = vec![part(first, 1000, 700), part(second, 3, 1), part(first, 0, 2999), part(second, 1, 1300)];
    let read = pair.a.read(pair.ledger.buffer(5000), sources);
    let expected = [&one[1000..1700], &two[3..4], &one[..2999], &two[1..1301]].concat();
    let sink = pair.read(At::A, read).await;
    assert_eq!(sink.len(), 5000);
    assert!(sink.filled() == expected, "the bytes differ");
    drop(sink);
    pair.finish().await;
    Verdict::Passed
}

async fn more_reads_than_the_ord_wait_their_turn(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { reads: 2, ..Wish::default() }).await;
    let octets = pattern(6, 40 * 100);
    let (_, source) = pair.b.expose(pair.ledger.source(&octets));
    let mut reads = Vec::new();
    for n in 0..20 {
        let sources = vec![part(source, n * 200, 100), part(source, n * 200 + 100, 100)];
        reads.push(pair.a.read(pair.ledger.buffer(200), sources));
    }
    for (n, read) in reads.into_iter().enumerate() {
        assert_eq!(pair.read(At::A, read).await.filled(), &octets[n * 200..(n + 1) * 200], "Read {n}");
    }
    pair.finish().await;
    Verdict::Passed
}

async fn both_sides_read(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let (of_a, of_b) = (pattern(7, 50_000), pattern(8, 50_000));
    let (_, at_a) = pair.a.expose(pair.ledger.source(&of_a));
    let (_, at_b) = pair.b.expose(pair.ledger.source(&of_b));
    let by_a = pair.a.read(pair.ledger.buffer(50_000), vec![at_b]);
    let by_b = pair.b.read(pair.ledger.buffer(50_000), vec![at_a]);
    assert!(pair.read(At::A, by_a).await.filled() == of_b, "a's bytes differ");
    assert!(pair.read(At::B, by_b).await.filled() == of_a, "b's bytes differ");
    pair.finish().await;
    Verdict::Passed
}

async fn a_send_may_be_posted_behind_a_read(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { reads: 1, ..Wish::default() }).await;
    let octets = pattern(9, 30_000);
    let (_, source) = pair.b.expose(pair.ledger.source(&octets));
    let reads: Vec<_> = (0..3).map(|_| pair.a.read(pair.ledger.buffer(30_000), vec![source])).collect();
    pair.a.say(b"behind");
    // The contract does not define their order.
    assert_eq!(pair.received(At::B).await.0.filled(), b"behind");
    for read in reads {
        assert!(pair.read(At::A, read).await.filled() == octets, "the bytes differ");
    }
    pair.finish().await;
    Verdict::Passed
}

async fn writes_of_nothing_change_nothing(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let (token, sink) = pair.b.expose(pair.ledger.sink(10));
    let write = crate::WriteWork {
        token: Token(900),
        octets: Default::default(),
        handle: sink.handle,
        offset: sink.offset,
        signaled: false,
    };
    // The provider may accept or refuse it; the connection must not end.
    if let Err(refused) = pair.a.queue_pair.post_write(write) {
        assert_eq!(refused.reason, RefusedReason::Empty);
        assert_eq!(refused.returned.token, Token(900));
    }
    pair.a.say(b"");
    pair.received(At::B).await;
    assert_eq!(pair.take_sink(At::B, token, sink.handle).await, [0xEE; 10]);
    pair.still_works().await;
    pair.finish().await;
    Verdict::Passed
}

async fn reads_of_nothing_bring_nothing(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let (_, source) = pair.b.expose(pair.ledger.source(b"octets"));
    for sources in [vec![], vec![part(source, 0, 0)], vec![part(source, 1, 0), part(source, 6, 0)]] {
        let read = ReadWork { token: Token(900), sink: pair.ledger.buffer(8), sources };
        match pair.a.queue_pair.post_read(read) {
            Err(refused) => {
                assert_eq!(refused.reason, RefusedReason::Empty);
                assert_eq!(refused.returned.sink.capacity(), 8);
            }
            Ok(()) => {
                // Not through the end's records: a provider may accept or refuse this Read.
                let sink = super::pair::within(&pair.env.clone(), "a Read of nothing", |cx| {
                    pair.b.poll(cx);
                    pair.a.queue_pair.poll(cx)
                })
                .await;
                match sink {
                    Completion::Read { token: Token(900), sink } => assert!(sink.is_empty()),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    // An empty segment among others changes nothing.
    let read = pair.a.read(pair.ledger.buffer(6), vec![part(source, 0, 3), part(source, 0, 0), part(source, 3, 3)]);
    assert_eq!(pair.read(At::A, read).await.filled(), b"octets");
    pair.finish().await;
    Verdict::Passed
}

async fn a_sink_may_be_larger_than_what_is_read(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let (_, source) = pair.b.expose(pair.ledger.source(b"octets"));
    let read = pair.a.read(pair.ledger.buffer(100), vec![source]);
    let mut sink = pair.read(At::A, read).await;
    assert_eq!(sink.filled(), b"octets");
    assert!(sink.bytes_mut()[6..].iter().all(|octet| *octet == 0xEE), "bytes behind were touched");
    drop(sink);
    pair.finish().await;
    Verdict::Passed
}
