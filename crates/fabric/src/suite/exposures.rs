//! Lending memory: fences from either end, and every way in which a peer can name memory that it may not reach.

use super::{
    Case, Given, Verdict, case,
    ledger::pattern,
    pair::{At, Pair, Wish, listen},
};
use crate::{Completion, FenceCause, Lent, RemoteSegment, WorkError, WorkKind};
use bytes::Bytes;
use std::collections::BTreeSet;

pub(super) const CASES: &[Case] = &[
    case!(an_exposure_ends_here_exactly_once),
    case!(the_peer_ends_an_exposure_with_its_send),
    case!(the_peer_cannot_end_what_is_not_exposed),
    case!(handles_are_many_and_as_unpredictable_as_claimed),
    case!(the_same_octets_can_be_exposed_twice),
    case!(a_write_to_an_unknown_handle_ends_the_connection),
    case!(a_read_of_an_unknown_handle_ends_the_connection),
    case!(a_write_one_past_the_end_ends_the_connection),
    case!(a_write_one_before_the_beginning_ends_the_connection),
    case!(a_write_that_wraps_around_ends_the_connection),
    case!(a_read_one_past_the_end_ends_the_connection),
    case!(a_read_one_before_the_beginning_ends_the_connection),
    case!(a_read_that_wraps_around_ends_the_connection),
    case!(a_write_to_what_may_be_read_ends_the_connection),
    case!(a_read_of_what_may_be_written_ends_the_connection),
    case!(a_write_that_is_refused_is_told_by_its_token),
    case!(a_handle_of_another_connection_ends_this_one_only),
    case!(a_write_after_the_fence_ends_the_connection),
    case!(a_read_after_the_fence_ends_the_connection),
];

async fn an_exposure_ends_here_exactly_once(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let mut lent = Vec::new();
    for n in 0..10 {
        let memory = if n % 2 == 0 { pair.ledger.sink(100) } else { pair.ledger.source(&[9; 100]) };
        lent.push(pair.b.expose(memory));
    }
    for (_, segment) in &lent {
        pair.b.invalidate(segment.handle);
        pair.b.invalidate(segment.handle);
    }
    for (token, _) in &lent {
        assert_eq!(pair.fenced(At::B, *token).await.1, FenceCause::Local);
    }
    // A handle that is no longer exposed, and one that never was: nothing happens.
    pair.b.invalidate(lent[0].1.handle);
    pair.b.invalidate(!lent[0].1.handle);
    pair.still_works().await;
    assert!(pair.b.events.is_empty(), "{:?}", pair.b.events);
    pair.finish().await;
    Verdict::Passed
}

fn remote_invalidation(setup: &Given) -> bool {
    setup.a.capabilities().send_with_invalidate && setup.b.capabilities().remote_invalidation
}

async fn the_peer_ends_an_exposure_with_its_send(setup: Given) -> Verdict {
    if !remote_invalidation(&setup) {
        return Verdict::Skipped("no remote invalidation");
    }
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let octets = pair.ledger.share(&pattern(1, 5000));
    for n in 0..3 {
        let memory = if n == 1 { pair.ledger.source(&[9; 5000]) } else { pair.ledger.sink(5000) };
        let (token, segment) = pair.b.expose(memory);
        if n != 1 {
            pair.a.write(vec![octets.clone()], segment.handle, segment.offset, false);
        }
        pair.a.send(vec![Bytes::from_static(b"done")], Some(segment.handle), false);
        let (message, invalidated) = pair.received(At::B).await;
        assert_eq!(message.filled(), b"done");
        assert_eq!(invalidated, Some(segment.handle));
        // The fence came before the message.
        let wanted = |c: &Completion| matches!(c, Completion::Fenced { token: t, .. } if *t == token);
        let Some(Completion::Fenced { mut memory, cause, .. }) = pair.b.take(wanted) else {
            panic!("the message came before the fence");
        };
        assert_eq!(cause, FenceCause::Remote);
        if let Lent::Sink(buffer) = &mut memory {
            assert!(buffer.bytes_mut() == &octets[..], "the bytes differ");
        }
        pair.b.invalidate(segment.handle);
    }
    drop(octets);
    pair.still_works().await;
    pair.finish().await;
    Verdict::Passed
}

async fn the_peer_cannot_end_what_is_not_exposed(setup: Given) -> Verdict {
    if !remote_invalidation(&setup) {
        return Verdict::Skipped("no remote invalidation");
    }
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let (_, segment) = pair.b.expose(pair.ledger.sink(10));
    pair.a.send(vec![Bytes::from_static(b"x")], Some(!segment.handle), true);
    pair.closed_by_violation().await;
    assert!(pair.b.take_received().is_none(), "the message was delivered");
    pair.finish().await;
    Verdict::Passed
}

async fn handles_are_many_and_as_unpredictable_as_claimed(setup: Given) -> Verdict {
    let count = setup.b.capabilities().max_exposures.min(256);
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let mut handles = BTreeSet::new();
    let mut tokens = Vec::new();
    for _ in 0..count {
        let (token, segment) = pair.b.expose(pair.ledger.sink(1));
        handles.insert(segment.handle);
        tokens.push(token);
    }
    assert_eq!(handles.len(), count, "each has its own");
    if count >= 64 {
        // Among so many random handles, each unpredictable bit must have both values.
        let (any, all) = handles.iter().fold((0, u32::MAX), |(any, all), handle| (any | handle, all & handle));
        let change = (any & !all).count_ones();
        assert!(change >= setup.b.capabilities().unpredictable_handle_bits.into(), "only {change} bits ever change");
    }
    for handle in &handles {
        pair.b.invalidate(*handle);
    }
    for token in tokens {
        pair.fenced(At::B, token).await;
    }
    // Used again as late as possible: not at once.
    let (_, again) = pair.b.expose(pair.ledger.sink(1));
    assert!(!handles.contains(&again.handle), "a handle was used again at once");
    pair.finish().await;
    Verdict::Passed
}

async fn the_same_octets_can_be_exposed_twice(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let octets = pair.ledger.share(&pattern(2, 600));
    let (first, one) = pair.b.expose(Lent::Source(octets.slice(..400)));
    let (_, two) = pair.b.expose(Lent::Source(octets.slice(200..)));
    pair.b.invalidate(one.handle);
    pair.fenced(At::B, first).await;
    let read = pair.a.read(pair.ledger.buffer(400), vec![two]);
    assert_eq!(pair.read(At::A, read).await.filled(), &octets[200..]);
    drop(octets);
    pair.finish().await;
    Verdict::Passed
}

/// What a hostile or faulty peer does with an exposure of 100 bytes.
#[derive(Clone, Copy)]
struct Attempt {
    /// Whether the peer may write to the exposure; else it may read.
    sink: bool,
    /// Whether the attempt is a Write; else it is a Read.
    write: bool,
    /// Bits of the handle that the attempt inverts.
    handle: u32,
    /// Where it starts, relative to the exposure's beginning.
    at: i64,
    /// How many bytes it names.
    length: u32,
    /// Whether the exposure is fenced before.
    fenced: bool,
}

const WITHIN_BOUNDS: Attempt = Attempt { sink: true, write: true, handle: 0, at: 0, length: 100, fenced: false };
const READ: Attempt = Attempt { sink: false, write: false, ..WITHIN_BOUNDS };

async fn attempt(setup: Given, attempt: Attempt) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let lent = if attempt.sink { pair.ledger.sink(100) } else { pair.ledger.source(&[9; 100]) };
    let (token, segment) = pair.b.expose(lent);
    if attempt.fenced {
        pair.b.invalidate(segment.handle);
        pair.fenced(At::B, token).await;
    }
    let target = RemoteSegment {
        handle: segment.handle ^ attempt.handle,
        length: attempt.length,
        offset: segment.offset.wrapping_add_signed(attempt.at),
    };
    try_it(&mut pair, target, attempt.write).await;
    pair.finish().await;
    Verdict::Passed
}

/// Tries to reach `target`, and checks that this ends the connection.
async fn try_it(pair: &mut Pair, target: RemoteSegment, write: bool) {
    let token = if write {
        let octets = pair.ledger.share(&vec![0xAA; target.length as usize]);
        pair.a.write(vec![octets], target.handle, target.offset, true)
    } else {
        pair.a.read(pair.ledger.buffer(target.length as usize), vec![target])
    };
    // Behind it, a message that the provider must not deliver.
    pair.a.say(b"behind");
    pair.closed_by_violation().await;
    if write {
        assert!(pair.b.take_received().is_none(), "a message behind the bad Write was delivered");
    } else {
        let failed =
            |c: &Completion| matches!(c, Completion::Failed { token: t, kind: WorkKind::Read, .. } if *t == token);
        assert!(pair.a.take(failed).is_some(), "the Read did not fail");
    }
}

async fn a_write_to_an_unknown_handle_ends_the_connection(setup: Given) -> Verdict {
    attempt(setup, Attempt { handle: 0x8000_0001, ..WITHIN_BOUNDS }).await
}

async fn a_read_of_an_unknown_handle_ends_the_connection(setup: Given) -> Verdict {
    attempt(setup, Attempt { handle: 0x8000_0001, ..READ }).await
}

async fn a_write_one_past_the_end_ends_the_connection(setup: Given) -> Verdict {
    attempt(setup, Attempt { at: 1, ..WITHIN_BOUNDS }).await
}

async fn a_write_one_before_the_beginning_ends_the_connection(setup: Given) -> Verdict {
    attempt(setup, Attempt { at: -1, length: 1, ..WITHIN_BOUNDS }).await
}

async fn a_write_that_wraps_around_ends_the_connection(setup: Given) -> Verdict {
    wraps_around(setup, true).await
}

async fn a_read_one_past_the_end_ends_the_connection(setup: Given) -> Verdict {
    attempt(setup, Attempt { length: 101, ..READ }).await
}

async fn a_read_one_before_the_beginning_ends_the_connection(setup: Given) -> Verdict {
    attempt(setup, Attempt { at: -1, length: 1, ..READ }).await
}

async fn a_read_that_wraps_around_ends_the_connection(setup: Given) -> Verdict {
    wraps_around(setup, false).await
}

/// The other Writes arrive, or the peer never examines them, and no completion reports them as failed. A provider that
/// cannot tell which Write failed reports nothing.
async fn a_write_that_is_refused_is_told_by_its_token(setup: Given) -> Verdict {
    for delay in [false, true] {
        let mut pair = Pair::connect(&setup, Wish::default()).await;
        let lent = pair.ledger.sink(100);
        let (_, segment) = pair.b.expose(lent);
        let octets = |pair: &Pair| vec![pair.ledger.share(&[0xAA; 100])];
        let good = octets(&pair);
        pair.a.write(good, segment.handle, segment.offset, false);
        if delay {
            pair.a.say(b"the first has come");
            pair.received(At::B).await;
        }
        let bad = octets(&pair);
        let refused = pair.a.write(bad, segment.handle ^ 0x8000_0001, segment.offset, false);
        let behind = octets(&pair);
        pair.a.write(behind, segment.handle, segment.offset, false);
        pair.closed_by_violation().await;
        let mut told = Vec::new();
        while let Some(Completion::Failed { token, .. }) = pair
            .a
            .take(|c| matches!(c, Completion::Failed { kind: WorkKind::Write, error: WorkError::RemoteAccess, .. }))
        {
            told.push(token);
        }
        assert!(told == [refused] || (told.is_empty() && !setup.exact_reasons), "{refused:?} was refused: {told:?}");
        pair.finish().await;
    }
    Verdict::Passed
}

/// The access looks allowed only to code that ignores the carry of the sum.
async fn wraps_around(setup: Given, write: bool) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let lent = if write { pair.ledger.sink(100) } else { pair.ledger.source(&[9; 100]) };
    let (_, segment) = pair.b.expose(lent);
    let target = RemoteSegment { offset: u64::MAX - 9, length: 20, ..segment };
    try_it(&mut pair, target, write).await;
    pair.finish().await;
    Verdict::Passed
}

async fn a_write_to_what_may_be_read_ends_the_connection(setup: Given) -> Verdict {
    attempt(setup, Attempt { sink: false, ..WITHIN_BOUNDS }).await
}

async fn a_read_of_what_may_be_written_ends_the_connection(setup: Given) -> Verdict {
    attempt(setup, Attempt { sink: true, ..READ }).await
}

async fn a_write_after_the_fence_ends_the_connection(setup: Given) -> Verdict {
    attempt(setup, Attempt { fenced: true, ..WITHIN_BOUNDS }).await
}

async fn a_read_after_the_fence_ends_the_connection(setup: Given) -> Verdict {
    attempt(setup, Attempt { fenced: true, ..READ }).await
}

async fn a_handle_of_another_connection_ends_this_one_only(setup: Given) -> Verdict {
    for write in [true, false] {
        let mut listener = listen(&setup).await;
        let mut owner = Pair::connect_at(&setup, &mut *listener, Wish::default()).await;
        let mut thief = Pair::connect_at(&setup, &mut *listener, Wish::default()).await;
        let lent = if write { owner.ledger.sink(100) } else { owner.ledger.source(&[9; 100]) };
        let (token, segment) = owner.b.expose(lent);
        try_it(&mut thief, segment, write).await;
        owner.still_works().await;
        owner.b.invalidate(segment.handle);
        let (memory, cause) = owner.fenced(At::B, token).await;
        assert_eq!(cause, FenceCause::Local);
        match memory {
            Lent::Sink(mut buffer) => {
                assert!(buffer.bytes_mut().iter().all(|octet| *octet == 0xEE), "the other connection reached it");
            }
            Lent::Source(octets) => assert_eq!(octets, [9; 100][..]),
        }
        thief.finish().await;
        owner.finish().await;
    }
    Verdict::Passed
}
