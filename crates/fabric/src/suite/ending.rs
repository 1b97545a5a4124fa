//! The end of a connection: what comes back, and which work is still possible.

use super::{
    Case, Given, Verdict, case,
    pair::{At, Pair, Wish, drive},
};
use crate::{
    CloseReason, Completion, FenceCause, ReadWork, Refused, RefusedReason, RemoteSegment, SendWork, Token, WorkKind,
    WriteWork,
};
use bytes::Bytes;
use std::{future::poll_fn, task::Poll};

pub(super) const CASES: &[Case] = &[
    case!(a_disconnect_brings_back_receives_and_exposures),
    case!(the_accepting_side_disconnects),
    case!(a_disconnect_comes_after_what_was_posted),
    case!(both_sides_disconnect_at_once),
    case!(posting_after_a_disconnect_loses_nothing),
    case!(posting_after_the_end_is_refused),
    case!(nothing_follows_the_end),
    case!(a_dropped_queue_pair_ends_the_connection_and_frees_its_memory),
];

fn flushed(c: &Completion) -> bool {
    matches!(c, Completion::Failed { kind: WorkKind::Receive, buffer: Some(_), .. })
}

fn fenced(c: &Completion) -> bool {
    matches!(c, Completion::Fenced { cause: FenceCause::Closed, .. })
}

async fn ends_in_order(setup: Given, from: At) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { at_a: 5, at_b: 5, ..Wish::default() }).await;
    for at in [At::A, At::B] {
        for _ in 0..3 {
            let (sink, source) = (pair.ledger.sink(100), pair.ledger.source(b"octets"));
            pair.end(at).expose(sink);
            pair.end(at).expose(source);
        }
    }
    pair.end(from).disconnect();
    pair.closed_in_order(from).await;
    for at in [At::A, At::B] {
        let events = &pair.end(at).events;
        assert_eq!(events.iter().filter(|c| flushed(c)).count(), 5, "{at:?}: receives");
        assert_eq!(events.iter().filter(|c| fenced(c)).count(), 6, "{at:?}: exposures");
    }
    pair.finish().await;
    Verdict::Passed
}

async fn a_disconnect_brings_back_receives_and_exposures(setup: Given) -> Verdict {
    ends_in_order(setup, At::A).await
}

async fn the_accepting_side_disconnects(setup: Given) -> Verdict {
    ends_in_order(setup, At::B).await
}

async fn a_disconnect_comes_after_what_was_posted(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { at_b: 20, ..Wish::default() }).await;
    let (_, sink) = pair.b.expose(pair.ledger.sink(20_000));
    for n in 0..20_u8 {
        pair.a.write(vec![Bytes::from(vec![n; 1000])], sink.handle, sink.offset + 1000 * u64::from(n), false);
        pair.a.say(&[n]);
    }
    pair.a.disconnect();
    pair.closed_in_order(At::A).await;
    for n in 0..20_u8 {
        let (message, _) = pair.b.take_received().expect("every message that was posted arrived");
        assert_eq!(message.filled(), [n]);
    }
    let Some(Completion::Fenced { memory: crate::Lent::Sink(mut buffer), .. }) = pair.b.take(fenced) else {
        panic!("the sink did not come back");
    };
    assert!((0..20).all(|n| buffer.bytes_mut()[n * 1000..][..1000].iter().all(|octet| usize::from(*octet) == n)));
    drop(buffer);
    pair.finish().await;
    Verdict::Passed
}

async fn both_sides_disconnect_at_once(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    pair.a.expose(pair.ledger.sink(10));
    pair.b.expose(pair.ledger.sink(10));
    pair.a.disconnect();
    pair.b.disconnect();
    pair.a.disconnect();
    let (at_a, at_b) = pair.closed().await;
    for reason in [at_a, at_b] {
        let in_order = matches!(reason, CloseReason::Local | CloseReason::Remote);
        assert!(in_order || !pair.exact_reasons, "{reason:?}");
    }
    pair.finish().await;
    Verdict::Passed
}

async fn posting_after_a_disconnect_loses_nothing(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish { at_a: 0, ..Wish::default() }).await;
    pair.a.disconnect();
    let mut back = 0;
    // Each post is refused with what was given, or its memory comes back with the flush: the ledger counts it, and this
    // test.
    let receive = pair.ledger.buffer(10);
    let mut receives = 1;
    if let Err(refused) = pair.a.queue_pair.post_receive(receive) {
        assert_eq!(refused.returned.capacity(), 10);
        receives = 0;
    }
    let send = SendWork { token: Token(901), octets: vec![Bytes::from_static(b"late")].into(), ..SendWork::default() };
    if let Err(refused) = pair.a.queue_pair.post_send(send) {
        assert_eq!(refused.reason, RefusedReason::Closed);
        assert_eq!(refused.returned.octets[..], [Bytes::from_static(b"late")]);
    }
    let closed = super::pair::within(&pair.env.clone(), "the end", |cx| {
        pair.b.poll(cx);
        while let Poll::Ready(completion) = pair.a.queue_pair.poll(cx) {
            match completion {
                Completion::Failed { kind: WorkKind::Receive, buffer: Some(buffer), .. } => {
                    back += usize::from(buffer.capacity() == 10);
                }
                Completion::Closed { reason } => return Poll::Ready(reason),
                _ => {}
            }
        }
        Poll::Pending
    })
    .await;
    assert!(closed == CloseReason::Local || !pair.exact_reasons, "{closed:?}");
    assert_eq!(back, receives, "the late receive comes back once");
    pair.drop_and_settle().await;
    Verdict::Passed
}

/// What was given with a post after the end. Nothing but the refusal could bring it back.
fn refused<T, U: std::fmt::Debug>(result: Result<U, Refused<T>>) -> T {
    match result {
        Ok(_) => panic!("the connection has ended"),
        Err(refused) => {
            assert_eq!(refused.reason, RefusedReason::Closed);
            refused.returned
        }
    }
}

async fn posting_after_the_end_is_refused(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    pair.b.disconnect();
    pair.closed().await;
    let buffer = || pair.ledger.buffer(10);
    let (receive, sink, lent) = (buffer(), buffer(), pair.ledger.sink(10));
    let queue_pair = &mut pair.a.queue_pair;
    assert_eq!(refused(queue_pair.post_receive(receive)).capacity(), 10);
    let send = SendWork { octets: vec![Bytes::from_static(b"late")].into(), ..SendWork::default() };
    assert_eq!(refused(queue_pair.post_send(send)).octets.len(), 1);
    let write = WriteWork { octets: vec![Bytes::from_static(b"late")].into(), ..WriteWork::default() };
    assert_eq!(refused(queue_pair.post_write(write)).octets.len(), 1);
    let sources = vec![RemoteSegment { handle: 1, length: 1, offset: 0 }];
    assert_eq!(refused(queue_pair.post_read(ReadWork { token: Token(1), sink, sources })).sink.capacity(), 10);
    assert_eq!(refused(queue_pair.expose(Token(2), lent)).octets(), 10);
    queue_pair.invalidate(7);
    queue_pair.disconnect();
    pair.drop_and_settle().await;
    Verdict::Passed
}

async fn nothing_follows_the_end(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    pair.a.disconnect();
    pair.closed().await;
    poll_fn(|cx| {
        assert!(pair.a.queue_pair.poll(cx).is_pending());
        assert!(pair.b.queue_pair.poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    pair.drop_and_settle().await;
    Verdict::Passed
}

async fn a_dropped_queue_pair_ends_the_connection_and_frees_its_memory(setup: Given) -> Verdict {
    let mut pair = Pair::connect(&setup, Wish::default()).await;
    pair.a.expose(pair.ledger.sink(100));
    pair.b.expose(pair.ledger.sink(100));
    let (_, source) = pair.b.expose(pair.ledger.source(&[1; 100]));
    pair.a.read(pair.ledger.buffer(100), vec![source]);
    let Pair { a, mut b, ledger, env, exact_reasons } = pair;
    drop(a);
    let reason = drive(&env, &mut [&mut b], "the end", |ends| ends.first().and_then(|b| b.closed.clone())).await;
    assert!(reason != CloseReason::Local || !exact_reasons);
    drop(b);
    ledger.settle(&env).await;
    Verdict::Passed
}
