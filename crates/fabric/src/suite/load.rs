//! Much at once: large transfers, both directions, many connections, shared receives.

use super::{
    Case, Given, Verdict, case,
    end::End,
    ledger::{Ledger, number, pattern},
    pair::{At, Pair, Wish, drive, join, listen, params},
};
use crate::{Completion, ConnectionParams, Lent, Receives, RemoteSegment, Token};
use bytes::Bytes;
use std::collections::BTreeSet;

pub(super) const CASES: &[Case] = &[
    case!(eight_mebibytes_are_written),
    case!(eight_mebibytes_are_read),
    case!(everything_at_once_in_both_directions),
    case!(many_connections_side_by_side),
    case!(connections_share_receives),
    case!(a_shared_pool_that_is_empty_ends_the_connection),
];

const LARGE_BYTES: usize = 8 << 20;

/// A checksum of `octets` that changes if bytes are wrong, missing or misplaced (FNV-1a).
fn checksum(octets: &[u8]) -> u64 {
    octets.iter().fold(0xCBF2_9CE4_8422_2325, |sum, octet| (sum ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01B3))
}

/// How much one exposure and one message can carry, at most [`LARGE_BYTES`].
fn piece_bytes(setup: &Given) -> usize {
    let (a, b) = (setup.a.capabilities(), setup.b.capabilities());
    b.max_exposure_bytes.min(a.max_message_bytes).min(LARGE_BYTES)
}

async fn eight_mebibytes_are_written(setup: Given) -> Verdict {
    let piece = piece_bytes(&setup);
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let octets = pair.ledger.share(&pattern(1, LARGE_BYTES));
    for at in (0..LARGE_BYTES).step_by(piece) {
        let part = octets.slice(at..(at + piece).min(LARGE_BYTES));
        let (token, sink) = pair.b.expose(pair.ledger.sink(part.len()));
        let write = pair.a.write(vec![part.clone()], sink.handle, sink.offset, true);
        pair.a.say(b"");
        pair.b.receive(pair.ledger.buffer(16));
        pair.received(At::B).await;
        pair.done(At::A, write).await;
        assert_eq!(checksum(&pair.take_sink(At::B, token, sink.handle).await), checksum(&part), "bytes from {at}");
    }
    drop(octets);
    pair.finish().await;
    Verdict::Passed
}

async fn eight_mebibytes_are_read(setup: Given) -> Verdict {
    let piece = piece_bytes(&setup);
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let octets = pair.ledger.share(&pattern(2, LARGE_BYTES));
    for at in (0..LARGE_BYTES).step_by(piece) {
        let part = octets.slice(at..(at + piece).min(LARGE_BYTES));
        let (_, source) = pair.b.expose(Lent::Source(part.clone()));
        let read = pair.a.read(pair.ledger.buffer(part.len()), vec![source]);
        assert_eq!(checksum(pair.read(At::A, read).await.filled()), checksum(&part), "bytes from {at}");
        pair.b.invalidate(source.handle);
    }
    drop(octets);
    pair.finish().await;
    Verdict::Passed
}

const ROUNDS: usize = 20;
const EACH_BYTES: usize = 70_000;

/// Writes, reads and messages of one end, all posted at once.
fn post_everything(end: &mut End, ledger: &Ledger, to: RemoteSegment, from: RemoteSegment) -> Vec<Token> {
    let mut reads = Vec::new();
    for n in 0..ROUNDS {
        end.write(vec![ledger.share(&pattern(n as u64, EACH_BYTES))], to.handle, to.offset, false);
        reads.push(end.read(ledger.buffer(EACH_BYTES), vec![from]));
        end.say(&pattern(n as u64, n * 10));
    }
    reads
}

async fn everything_at_once_in_both_directions(setup: Given) -> Verdict {
    let wish = Wish { at_a: ROUNDS, at_b: ROUNDS, ..Wish::default() };
    let mut pair = Pair::connect(&setup, wish).await;
    let source = pattern(99, EACH_BYTES);
    let (sink_at_a, into_a) = pair.a.expose(pair.ledger.sink(EACH_BYTES));
    let (sink_at_b, into_b) = pair.b.expose(pair.ledger.sink(EACH_BYTES));
    let (_, of_a) = pair.a.expose(pair.ledger.source(&source));
    let (_, of_b) = pair.b.expose(pair.ledger.source(&source));
    let by_a = post_everything(&mut pair.a, &pair.ledger, into_b, of_b);
    let by_b = post_everything(&mut pair.b, &pair.ledger, into_a, of_a);
    for (at, reads) in [(At::A, by_a), (At::B, by_b)] {
        for n in 0..ROUNDS {
            assert_eq!(pair.received(at).await.0.filled(), pattern(n as u64, n * 10), "{at:?}: message {n}");
        }
        for read in reads {
            assert!(pair.read(at, read).await.filled() == source, "{at:?}: the bytes read differ");
        }
    }
    // The last Write has won, because the message behind it has arrived.
    let last = pattern(ROUNDS as u64 - 1, EACH_BYTES);
    assert!(pair.take_sink(At::A, sink_at_a, into_a.handle).await == last, "a's sink");
    assert!(pair.take_sink(At::B, sink_at_b, into_b.handle).await == last, "b's sink");
    pair.finish().await;
    Verdict::Passed
}

async fn many_connections_side_by_side(setup: Given) -> Verdict {
    const CONNECTIONS: usize = 50;
    const EXCHANGES: usize = 5;
    let mut listener = listen(&setup).await;
    let mut pairs = Vec::new();
    for _ in 0..CONNECTIONS {
        let wish = Wish { at_a: EXCHANGES, at_b: EXCHANGES, ..Wish::default() };
        pairs.push(Pair::connect_at(&setup, &mut *listener, wish).await);
    }
    let mut lent = Vec::new();
    for (n, pair) in pairs.iter_mut().enumerate() {
        let (token, sink) = pair.b.expose(pair.ledger.sink(1000));
        for exchange in 0..EXCHANGES {
            let octets = pair.ledger.share(&pattern((n * 100 + exchange) as u64, 1000));
            pair.a.write(vec![octets], sink.handle, sink.offset, false);
            pair.a.say(&[n as u8, exchange as u8]);
        }
        lent.push((token, sink));
    }
    // Every message gets an answer, on all connections at once.
    let mut seen = [(0, 0); CONNECTIONS];
    {
        let mut ends: Vec<&mut End> = pairs.iter_mut().flat_map(|pair| [&mut pair.a, &mut pair.b]).collect();
        drive(&setup.env, &mut ends, "all answers", |ends| {
            for (n, ends) in ends.chunks_mut(2).enumerate() {
                let [a, b] = ends else { continue };
                while let Some((message, _)) = b.take_received() {
                    assert_eq!(message.filled(), [n as u8, seen[n].0], "connection {n}");
                    seen[n].0 += 1;
                    b.say(message.filled());
                }
                while let Some((message, _)) = a.take_received() {
                    assert_eq!(message.filled(), [n as u8, seen[n].1], "connection {n}, answer");
                    seen[n].1 += 1;
                }
            }
            seen.iter().all(|(_, answers)| usize::from(*answers) == EXCHANGES).then_some(())
        })
        .await;
    }
    for (n, (mut pair, (token, sink))) in pairs.into_iter().zip(lent).enumerate() {
        let got = pair.take_sink(At::B, token, sink.handle).await;
        assert!(got == pattern((n * 100 + EXCHANGES - 1) as u64, 1000), "connection {n}: the bytes differ");
        pair.finish().await;
    }
    Verdict::Passed
}

async fn connections_share_receives(setup: Given) -> Verdict {
    let Some(pool) = setup.b.receive_pool() else {
        assert!(!setup.b.capabilities().shared_receives, "a pool is claimed, and there is none");
        return Verdict::Skipped("no shared receives");
    };
    assert!(setup.b.capabilities().shared_receives, "a pool is there that is not claimed");
    let ledger = Ledger::default();
    for buffer in ledger.buffers(8, 100) {
        pool.post(buffer);
    }
    let mut listener = listen(&setup).await;
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let of_b = ConnectionParams { receives: Receives::Shared(pool.clone()), ..params(Vec::new(), 1) };
        let (a, b) = join(&setup, &mut *listener, params(Vec::new(), 1), of_b).await;
        let (a, b) = (End::new("a", a, BTreeSet::new(), false), End::new("b", b, BTreeSet::new(), true));
        pairs.push(Pair::of(&setup, a, b, ledger.clone()));
    }
    let mut used = BTreeSet::new();
    for n in 0..4_u8 {
        for pair in &mut pairs {
            pair.a.say(&[n]);
            let (message, _) = pair.received(At::B).await;
            assert_eq!(message.filled(), [n]);
            assert!(used.insert(number(&message)), "a receive was used twice");
            assert_eq!(pair.b.queue_pair.posted_receives(), 0, "those of a pool are not counted");
        }
    }
    // The connections end; the buffers in the pool stay there.
    for buffer in ledger.buffers(2, 100) {
        pool.post(buffer);
    }
    for mut pair in pairs {
        pair.a.disconnect();
        pair.closed_in_order(At::A).await;
        let back = |c: &Completion| matches!(c, Completion::Failed { .. });
        assert!(pair.b.take(back).is_none(), "a receive of the pool was flushed with a connection");
    }
    assert_eq!(pool.posted(), 2);
    drop(pool);
    ledger.settle(&setup.env).await;
    Verdict::Passed
}

async fn a_shared_pool_that_is_empty_ends_the_connection(setup: Given) -> Verdict {
    let Some(pool) = setup.b.receive_pool() else { return Verdict::Skipped("no shared receives") };
    let ledger = Ledger::default();
    pool.post(ledger.buffer(100));
    let mut listener = listen(&setup).await;
    let of_b = ConnectionParams { receives: Receives::Shared(pool.clone()), ..params(Vec::new(), 1) };
    let (a, b) = join(&setup, &mut *listener, params(Vec::new(), 1), of_b).await;
    let (a, b) = (End::new("a", a, BTreeSet::new(), false), End::new("b", b, BTreeSet::new(), true));
    let mut pair = Pair::of(&setup, a, b, ledger);
    pair.a.send(vec![Bytes::from_static(b"one")], None, false);
    pair.a.send(vec![Bytes::from_static(b"two")], None, false);
    pair.closed_by_violation().await;
    assert_eq!(pool.posted(), 0);
    pair.finish().await;
    Verdict::Passed
}
