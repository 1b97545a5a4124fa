//! Sends and receives.

use super::{
    Case, Given, Verdict, case,
    ledger::{number, pattern},
    pair::{At, Pair, RECEIVE_BYTES, Wish},
};
use crate::{Completion, WorkError, WorkKind};
use bytes::Bytes;

pub(super) const CASES: &[Case] = &[
    case!(messages_of_every_length_up_to_the_receive_arrive),
    case!(a_message_gathers_its_slices),
    case!(one_octet_more_than_the_receive_ends_the_connection),
    case!(a_send_without_a_receive_ends_the_connection),
    case!(sends_arrive_in_order),
    case!(receives_are_used_in_order),
    case!(only_what_is_signaled_is_reported),
    case!(both_sides_send),
    case!(posted_receives_are_counted),
];

async fn messages_of_every_length_up_to_the_receive_arrive(setup: Given) -> Verdict {
    let lengths = [0, 1, 2, 3, 4, 5, RECEIVE_BYTES - 1, RECEIVE_BYTES];
    let mut pair = Pair::connect(&setup, Wish { at_b: lengths.len(), ..Wish::default() }).await;
    for length in lengths {
        let octets = pair.ledger.share(&pattern(length as u64, length));
        pair.a.send(vec![octets.clone()], None, false);
        let (message, invalidated) = pair.received(At::B).await;
        assert_eq!(message.filled(), &octets[..], "{length} bytes");
        assert_eq!(message.capacity(), RECEIVE_BYTES);
        assert_eq!(invalidated, None);
    }
    pair.finish().await;
    Verdict::Passed
}

async fn a_message_gathers_its_slices(setup: Given) -> Verdict {
    let slices = setup.a.capabilities().max_gather.min(9);
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    let whole = pair.ledger.share(&pattern(5, RECEIVE_BYTES));
    let mut octets = Vec::new();
    let mut at = 0;
    for n in 0..slices {
        // Lengths 0, 1, 2, ...; the last slice has the rest.
        let next = if n + 1 == slices { whole.len() } else { at + n };
        octets.push(whole.slice(at..next));
        at = next;
    }
    pair.a.send(octets, None, false);
    let (message, _) = pair.received(At::B).await;
    assert_eq!(message.filled(), &whole[..]);
    drop((message, whole));
    pair.finish().await;
    Verdict::Passed
}

async fn one_octet_more_than_the_receive_ends_the_connection(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { at_b: 3, ..Wish::default() }).await;
    pair.a.send(vec![Bytes::from(vec![1; RECEIVE_BYTES + 1])], None, true);
    pair.closed_by_violation().await;
    let failed = |wanted: Option<WorkError>| {
        move |c: &&Completion| match c {
            Completion::Failed { kind: WorkKind::Receive, error, buffer: Some(_), .. } => {
                wanted.as_ref().is_none_or(|wanted| wanted == error)
            }
            _ => false,
        }
    };
    let count = |wanted| pair.b.events.iter().filter(failed(wanted)).count();
    assert_eq!(count(None), 3, "all receives come back");
    if pair.exact_reasons {
        assert_eq!(count(Some(WorkError::LocalLength)), 1, "one receive was too short");
        assert_eq!(count(Some(WorkError::Flushed)), 2, "the others were not used");
    }
    pair.finish().await;
    Verdict::Passed
}

async fn a_send_without_a_receive_ends_the_connection(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { at_b: 1, ..Wish::default() }).await;
    pair.a.say(b"one");
    pair.a.say(b"two");
    pair.closed_by_violation().await;
    let received = pair.b.take_received().expect("the first message found its receive");
    assert_eq!(received.0.filled(), b"one");
    assert!(pair.b.take_received().is_none());
    drop(received);
    pair.finish().await;
    Verdict::Passed
}

async fn sends_arrive_in_order(setup: Given) -> Verdict {
    let count = 200.min(setup.a.capabilities().max_posted).min(setup.b.capabilities().max_receives - 1);
    let mut pair = Pair::connect(&setup, Wish { at_b: count, ..Wish::default() }).await;
    for n in 0..count {
        let message = pattern(n as u64, n % RECEIVE_BYTES);
        pair.a.say(&message);
    }
    for n in 0..count {
        let (message, _) = pair.received(At::B).await;
        assert_eq!(message.filled(), pattern(n as u64, n % RECEIVE_BYTES), "message {n}");
    }
    pair.finish().await;
    Verdict::Passed
}

async fn receives_are_used_in_order(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { at_b: 0, ..Wish::default() }).await;
    let buffers: Vec<_> = (0..10).map(|n| pair.ledger.buffer(100 - n)).collect();
    let numbers: Vec<_> = buffers.iter().map(number).collect();
    buffers.into_iter().for_each(|buffer| pair.b.receive(buffer));
    for (n, expected) in numbers.into_iter().enumerate() {
        pair.a.say(&vec![7; 100 - n]);
        let (message, _) = pair.received(At::B).await;
        assert_eq!(number(&message), expected);
        assert_eq!(message.len(), 100 - n);
    }
    pair.finish().await;
    Verdict::Passed
}

async fn only_what_is_signaled_is_reported(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { at_b: 20, ..Wish::default() }).await;
    let mut signaled = Vec::new();
    for n in 0..20 {
        let token = pair.a.send(vec![Bytes::from_static(b"x")], None, n % 3 == 0);
        if n % 3 == 0 {
            signaled.push(token);
        }
    }
    for _ in 0..20 {
        pair.received(At::B).await;
    }
    for token in signaled {
        // In the order of posting: the first completion that arrives is this one.
        let next = pair.event(At::A, "a completion", |c| matches!(c, Completion::Done { .. })).await;
        let in_order = matches!(next, Completion::Done { token: t, kind: WorkKind::Send } if t == token);
        assert!(in_order, "{next:?} instead of {token:?}");
    }
    assert!(pair.a.events.is_empty(), "{:?}", pair.a.events);
    pair.finish().await;
    Verdict::Passed
}

async fn both_sides_send(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { at_a: 50, at_b: 50, ..Wish::default() }).await;
    let mut tokens = Vec::new();
    for n in 0..50_u8 {
        let by_a = pair.a.send(vec![Bytes::from(vec![n; 100])], None, true);
        let by_b = pair.b.send(vec![Bytes::from(vec![n; 200])], None, true);
        tokens.push((by_a, by_b));
    }
    for n in 0..50_u8 {
        assert_eq!(pair.received(At::A).await.0.filled(), [n; 200]);
        assert_eq!(pair.received(At::B).await.0.filled(), [n; 100]);
    }
    for (by_a, by_b) in tokens {
        pair.done(At::A, by_a).await;
        pair.done(At::B, by_b).await;
    }
    pair.finish().await;
    Verdict::Passed
}

async fn posted_receives_are_counted(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { at_b: 3, ..Wish::default() }).await;
    assert_eq!(pair.b.queue_pair.posted_receives(), 3);
    pair.b.receive(pair.ledger.buffer(10));
    assert_eq!(pair.b.queue_pair.posted_receives(), 4);
    pair.a.say(b"x");
    pair.received(At::B).await;
    assert_eq!(pair.b.queue_pair.posted_receives(), 3);
    pair.finish().await;
    Verdict::Passed
}
