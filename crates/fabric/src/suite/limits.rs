//! The limits of the capabilities: work beyond them is refused and handed back, and the connection continues.

use super::{
    Case, Given, Verdict, case,
    ledger::number,
    pair::{At, Pair, Wish},
};
use crate::{Lent, ReadWork, Refused, RefusedReason, RemoteSegment, SendWork, Token, WriteWork};
use bytes::Bytes;
use rpcrdma_env::Slices;
use std::fmt::Debug;

pub(super) const CASES: &[Case] = &[
    case!(receives_are_limited),
    case!(exposures_are_limited),
    case!(exposing_nothing_is_refused),
    case!(the_length_of_an_exposure_is_limited),
    case!(slices_are_limited),
    case!(the_length_of_a_message_is_limited),
    case!(posted_work_is_limited),
    case!(a_read_needs_room_in_its_sink),
    case!(an_ord_of_zero_allows_no_read),
    case!(an_invalidation_that_cannot_be_sent_is_refused),
];

/// Limits above this many pieces are not tried: it would take too long to reach them.
const PIECES_TO_TRY: usize = 100_000;

/// Lengths above this many bytes are not tried: it would take too much memory.
const BYTES_TO_TRY: usize = 64 << 20;

fn limit<T: Debug>(result: Result<(), Refused<T>>, max: usize) -> T {
    let refused = result.expect_err("it is past the limit");
    assert!(matches!(refused.reason, RefusedReason::Limit { max: m, .. } if m == max), "{:?}", refused.reason);
    refused.returned
}

async fn receives_are_limited(setup: Given) -> Verdict {
    let max = setup.b.capabilities().max_receives;
    if max > PIECES_TO_TRY {
        return Verdict::Skipped("too many receives are possible");
    }
    let mut pair = Pair::connect(&setup, Wish { at_b: 0, ..Wish::default() }).await;
    for _ in 0..max {
        pair.b.receive(pair.ledger.buffer(16));
    }
    let buffer = pair.ledger.buffer(16);
    let given = number(&buffer);
    assert_eq!(number(&limit(pair.b.queue_pair.post_receive(buffer), max)), given);
    // After one is used, one more can be posted.
    pair.a.say(b"x");
    pair.received(At::B).await;
    pair.b.receive(pair.ledger.buffer(16));
    pair.finish().await;
    Verdict::Passed
}

async fn exposures_are_limited(setup: Given) -> Verdict {
    let max = setup.b.capabilities().max_exposures;
    if max > PIECES_TO_TRY {
        return Verdict::Skipped("too many exposures are possible");
    }
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let mut first = None;
    for _ in 0..max {
        let lent = pair.b.expose(pair.ledger.sink(1));
        first.get_or_insert(lent);
    }
    let (token, segment) = first.expect("at least one exposure is possible");
    let refused = pair.b.queue_pair.expose(Token(0), pair.ledger.sink(1));
    let returned = limit(refused.map(|_| ()), max);
    assert_eq!(returned.octets(), 1);
    drop(returned);
    pair.take_sink(At::B, token, segment.handle).await;
    pair.b.expose(pair.ledger.sink(1));
    pair.finish().await;
    Verdict::Passed
}

async fn exposing_nothing_is_refused(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    for memory in [pair.ledger.sink(0), Lent::Source(Bytes::new())] {
        let access = memory.access();
        let refused = pair.b.queue_pair.expose(Token(0), memory).expect_err("there is nothing to expose");
        assert_eq!(refused.reason, RefusedReason::Empty);
        assert_eq!(refused.returned.access(), access);
    }
    pair.finish().await;
    Verdict::Passed
}

async fn the_length_of_an_exposure_is_limited(setup: Given) -> Verdict {
    let max = setup.b.capabilities().max_exposure_bytes;
    if max > BYTES_TO_TRY {
        return Verdict::Skipped("too long exposures are possible");
    }
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    pair.b.expose(pair.ledger.sink(max));
    let refused = pair.b.queue_pair.expose(Token(0), pair.ledger.sink(max + 1));
    assert_eq!(limit(refused.map(|_| ()), max).octets(), max + 1);
    pair.finish().await;
    Verdict::Passed
}

async fn slices_are_limited(setup: Given) -> Verdict {
    let max = setup.a.capabilities().max_gather;
    if max > PIECES_TO_TRY {
        return Verdict::Skipped("too many slices are possible");
    }
    let mut pair = Pair::connect(&setup, Wish { octets: max.max(64), ..Wish::default() }).await;
    let slices = |count: usize| vec![Bytes::from_static(b"s"); count];
    pair.a.send(slices(max), None, false);
    assert_eq!(pair.received(At::B).await.0.len(), max);
    let send = SendWork { octets: slices(max + 1).into(), ..SendWork::default() };
    assert_eq!(limit(pair.a.queue_pair.post_send(send), max).octets.len(), max + 1);
    let write = WriteWork { octets: slices(max + 1).into(), ..WriteWork::default() };
    assert_eq!(limit(pair.a.queue_pair.post_write(write), max).octets.len(), max + 1);
    pair.still_works().await;
    pair.finish().await;
    Verdict::Passed
}

async fn the_length_of_a_message_is_limited(setup: Given) -> Verdict {
    let max = setup.a.capabilities().max_message_bytes;
    if max > BYTES_TO_TRY {
        return Verdict::Skipped("too long messages are possible");
    }
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let octets: Slices = [pair.ledger.share(&vec![1; max + 1])].into_iter().collect();
    let send = SendWork { octets: octets.clone(), ..SendWork::default() };
    assert_eq!(limit(pair.a.queue_pair.post_send(send), max).octets, octets);
    let write = WriteWork { octets: octets.clone(), ..WriteWork::default() };
    assert_eq!(limit(pair.a.queue_pair.post_write(write), max).octets, octets);
    let sources = vec![RemoteSegment { handle: 1, length: u32::try_from(max + 1).unwrap_or(u32::MAX), offset: 0 }];
    let read = ReadWork { token: Token(1), sink: pair.ledger.buffer(max + 1), sources };
    assert_eq!(limit(pair.a.queue_pair.post_read(read), max).sink.capacity(), max + 1);
    drop(octets);
    pair.still_works().await;
    pair.finish().await;
    Verdict::Passed
}

async fn posted_work_is_limited(setup: Given) -> Verdict {
    let (max, room) = (setup.a.capabilities().max_posted, setup.b.capabilities().max_receives - 1);
    if max > PIECES_TO_TRY {
        return Verdict::Skipped("too much posted work is possible");
    }
    let mut pair = Pair::connect(&setup, Wish { at_b: room.min(max + 1), octets: 16, ..Wish::default() }).await;
    for _ in 0..max {
        pair.a.say(b"");
    }
    // A device that works by itself may have completed some of the work already, and then accepts this Send.
    let send = SendWork { token: Token(77), octets: vec![Bytes::from_static(b"more")].into(), ..SendWork::default() };
    if let Err(refused) = pair.a.queue_pair.post_send(send) {
        assert!(matches!(refused.reason, RefusedReason::Limit { max: m, .. } if m == max), "{:?}", refused.reason);
        assert_eq!(refused.returned.token, Token(77));
        assert_eq!(refused.returned.octets[..], [Bytes::from_static(b"more")]);
    }
    if room >= max {
        for _ in 0..max {
            assert!(pair.received(At::B).await.0.is_empty());
        }
    }
    pair.drop_and_settle().await;
    Verdict::Passed
}

async fn a_read_needs_room_in_its_sink(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let (_, source) = pair.b.expose(pair.ledger.source(&[1; 100]));
    let half = RemoteSegment { length: 50, ..source };
    for sources in [vec![source], vec![half, half], vec![RemoteSegment { length: u32::MAX, ..source }; 3]] {
        let count = sources.len();
        let refused = pair.a.queue_pair.post_read(ReadWork { token: Token(1), sink: pair.ledger.buffer(99), sources });
        let refused = refused.expect_err("the sink is too small");
        assert!(matches!(refused.reason, RefusedReason::Limit { .. }), "{:?}", refused.reason);
        assert_eq!((refused.returned.sink.capacity(), refused.returned.sources.len()), (99, count));
    }
    let read = pair.a.read(pair.ledger.buffer(100), vec![half, half]);
    assert_eq!(pair.read(At::A, read).await.filled(), [1; 100]);
    pair.finish().await;
    Verdict::Passed
}

async fn an_ord_of_zero_allows_no_read(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { reads: 0, ..Wish::default() }).await;
    assert_eq!(pair.b.queue_pair.info().ord, 0);
    let sources = vec![RemoteSegment { handle: 1, length: 1, offset: 0 }];
    let read = ReadWork { token: Token(1), sink: pair.ledger.buffer(9), sources };
    let refused = pair.b.queue_pair.post_read(read).expect_err("no Read is allowed");
    assert_eq!(refused.returned.sink.capacity(), 9);
    drop(refused);
    pair.still_works().await;
    pair.finish().await;
    Verdict::Passed
}

async fn an_invalidation_that_cannot_be_sent_is_refused(setup: Given) -> Verdict {
    if setup.a.capabilities().send_with_invalidate {
        return Verdict::Skipped("it can be sent");
    }
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let send = SendWork {
        token: Token(5),
        octets: vec![Bytes::from_static(b"x")].into(),
        invalidate: Some(9),
        ..SendWork::default()
    };
    let refused = pair.a.queue_pair.post_send(send).expect_err("there is no such operation");
    assert!(matches!(refused.reason, RefusedReason::Unsupported(_)), "{:?}", refused.reason);
    assert_eq!((refused.returned.token, refused.returned.invalidate), (Token(5), Some(9)));
    pair.still_works().await;
    pair.finish().await;
    Verdict::Passed
}
