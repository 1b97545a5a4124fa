//! What the specifications of RPC-over-RDMA demand of the provider below it, on two real endpoints over TCP.

mod common;

use bytes::Bytes;
use common::{
    Pair, V4, buffer, iwarp, pattern, received,
    wire::{AGREED, endpoint, output, parse},
};
use rpcrdma_env::tokio_env;
use rpcrdma_fabric::{
    CloseReason, Completion, Fabric, Lent, ReadWork, RemoteSegment, SendWork, Token, WorkError, WorkKind, WriteWork,
    suite::{Setup, Verdict, cases},
};
use rpcrdma_iwarp::{
    Config,
    protocol::{Role, ddp::Placement, rdmap::ReadRequest},
};
use std::sync::Arc;

fn say(octets: impl Into<Bytes>) -> SendWork {
    SendWork { octets: vec![octets.into()].into(), ..SendWork::default() }
}

/// Runs the cases with these names from the suite for all providers.
async fn keeps(names: &[&str]) {
    let fabric = Arc::new(iwarp(Config::default()));
    let all = cases();
    for name in names {
        let case = all.iter().find(|case| case.name() == *name).unwrap_or_else(|| panic!("no promise {name}"));
        let env = tokio_env().unwrap();
        let setup = Setup { a: fabric.clone(), b: fabric.clone(), listen: V4.parse().unwrap(), env };
        assert_eq!(case.run(setup).await, Verdict::Passed, "{name}");
    }
}

/// A tag of 32 bits and an address of 64 bits arrive unchanged, and our own are no longer.
/// proves: V1-2.3.2-a, V2-3.2.2.1-a
#[test]
fn memory_is_named_by_32_and_64_bits() {
    for (handle, offset) in [(1, 0), (u32::MAX, 0), (0x8000_0001, u64::MAX - 7), (u32::MAX, 1 << 63)] {
        let mut here = endpoint(Role::Initiator, AGREED, 1, 1448);
        here.post_write(WriteWork {
            octets: vec![Bytes::from_static(b"8 octets")].into(),
            handle,
            offset,
            ..WriteWork::default()
        })
        .unwrap();
        let source = RemoteSegment { handle, length: 5, offset };
        here.post_read(ReadWork { token: Token(1), sink: buffer(5), sources: vec![source] }).unwrap();
        let sent = parse(&output(&mut here));
        assert_eq!(sent[0].0.placement, Placement::Tagged { stag: handle, offset });
        let asked = ReadRequest::decode(sent[1].1.first_chunk().unwrap());
        assert_eq!((asked.source_stag, asked.source_offset, asked.size), (handle, offset, 5));
    }
    let mut here = endpoint(Role::Initiator, AGREED, 1, 1448);
    let lent = here.expose(Token(1), Lent::Sink(buffer(100))).unwrap();
    let RemoteSegment { handle, offset, length } = lent;
    let (handle, offset): (u32, u64) = (handle, offset);
    assert!(handle != 0 && offset.checked_add(length.into()).is_some(), "its last byte has an address too");
}

/// proves: V1-2.3.2-b, V2-4.2.1-a, ULB-5.4.1-a, V2-3.2.2.2-a
#[tokio::test]
async fn sends_are_reliable_and_in_order() {
    const MESSAGES: usize = 400;
    let mut pair = Pair::open(V4, Config::default()).await;
    let sink = pair.there.qp.expose(Token(9), Lent::Sink(buffer(200_000))).unwrap();
    let mut got = 0;
    for n in 0..MESSAGES {
        // Large Writes between them do not let a Send overtake another.
        if n % 16 == 0 {
            let octets = vec![pattern(150_000, n)];
            pair.here
                .qp
                .post_write(WriteWork {
                    octets: octets.into(),
                    handle: sink.handle,
                    offset: sink.offset,
                    ..WriteWork::default()
                })
                .unwrap();
        }
        pair.here.qp.post_send(say([&(n as u32).to_be_bytes()[..], &pattern(n * 17 % 8000, n)].concat())).unwrap();
        // Send only as many at a time as there are receives.
        if n % 8 == 7 {
            while got <= n {
                let message = received(pair.next_there().await).0;
                assert_eq!(message.filled()[..4], (got as u32).to_be_bytes(), "each once, in order");
                assert!(message.filled()[4..] == pattern(got * 17 % 8000, got), "and whole");
                pair.there.qp.post_receive(message).unwrap();
                got += 1;
            }
        }
    }
    assert_eq!(got, MESSAGES);
    // The limits of receives: their size, and their number.
    keeps(&["one_octet_more_than_the_receive_ends_the_connection", "a_send_without_a_receive_ends_the_connection"])
        .await;
}

/// proves: V1-2.3.2-c, V2-3.2.2.4-a
#[tokio::test]
async fn writes_complete_here_only_and_stand_before_a_later_send() {
    let mut pair = Pair::open(V4, Config::default()).await;
    let sink = pair.there.qp.expose(Token(9), Lent::Sink(buffer(1 << 20))).unwrap();
    let octets = pattern(1 << 20, 3);
    for part in 0..16usize {
        let at = part << 16;
        let write = WriteWork {
            token: Token(part as u64),
            octets: vec![octets.slice(at..at + (1 << 16))].into(),
            handle: sink.handle,
            offset: sink.offset + at as u64,
            signaled: true,
        };
        pair.here.qp.post_write(write).unwrap();
    }
    for part in 0..16 {
        match pair.next_here().await {
            Completion::Done { token, kind: WorkKind::Write } => assert_eq!(token, Token(part)),
            other => panic!("{other:?}"),
        }
    }
    assert!(pair.there.seen.is_empty(), "nothing tells of a Write where it goes to");
    pair.here.qp.post_send(SendWork { invalidate: Some(sink.handle), ..say(&b"all is there"[..]) }).unwrap();
    pair.until(|_, there| there.seen.len() == 2).await;
    let Some(Completion::Fenced { memory: Lent::Sink(mut written), .. }) = pair.there.seen.pop_front() else {
        panic!("the fence, then the message")
    };
    assert!(written.bytes_mut() == &octets[..], "when the Send is there, so is all that was written before it");
    assert!(matches!(pair.there.seen.front(), Some(Completion::Received { .. })));
}

/// proves: V2-7.3-a
#[tokio::test]
async fn errors_of_rdma_come_up_at_both_ends_and_end_the_connection() {
    #[derive(Clone, Copy, Debug)]
    enum Wrong {
        Handle,
        Length,
        ReplyChunk,
        Receive,
    }
    for wrong in [Wrong::Handle, Wrong::Length, Wrong::ReplyChunk, Wrong::Receive] {
        let mut pair = Pair::open(V4, Config::default()).await;
        let sink = pair.there.qp.expose(Token(9), Lent::Sink(buffer(100))).unwrap();
        let source = pair.there.qp.expose(Token(8), Lent::Source(pattern(100, 1))).unwrap();
        match wrong {
            Wrong::Handle | Wrong::Length => {
                let segment = match wrong {
                    Wrong::Handle => RemoteSegment { handle: source.handle ^ 1, ..source },
                    _ => RemoteSegment { length: 101, ..source },
                };
                pair.here
                    .qp
                    .post_read(ReadWork { token: Token(1), sink: buffer(101), sources: vec![segment] })
                    .unwrap();
            }
            Wrong::ReplyChunk => {
                let octets = vec![pattern(101, 2)];
                pair.here
                    .qp
                    .post_write(WriteWork {
                        octets: octets.into(),
                        handle: sink.handle,
                        offset: sink.offset,
                        ..WriteWork::default()
                    })
                    .unwrap();
            }
            Wrong::Receive => pair.here.qp.post_send(say(vec![0; 8193])).unwrap(),
        }
        let (here, there) = pair.closed().await;
        assert!(matches!(here, CloseReason::Terminated(_)), "{wrong:?}: {here:?}");
        assert!(matches!(there, CloseReason::Violation(_)), "{wrong:?}: {there:?}");
        if matches!(wrong, Wrong::Handle | Wrong::Length) {
            let failed = |c: &Completion| {
                matches!(c, Completion::Failed { kind: WorkKind::Read, error: WorkError::RemoteAccess, .. })
            };
            assert!(pair.here.seen.iter().any(failed), "{wrong:?}: the Read itself says why");
        }
        assert!(!pair.there.seen.iter().any(|c| matches!(c, Completion::Received { .. })), "{wrong:?}");
    }
}

/// proves: V2-11.1.1-a, V2-11.1.1-b, V1-8.1.1-a
#[tokio::test]
async fn a_handle_is_good_on_its_own_connection_only() {
    keeps(&["a_handle_of_another_connection_ends_this_one_only"]).await;
}

/// What RFC 5042 asks of an implementation whose peer may be hostile: its sections 6.1.1 (tags that cannot be guessed
/// and do not work on another stream), 6.2.1 and 6.3.1 (bounds), 6.3.3 (nothing after the end), 6.3.5 (rights to read
/// or to write), 6.4.1 and 6.4.3 (a peer uses its own resources only). IPsec, which its section 5.4 asks for, is the
/// task of the system below TCP.
/// proves: V2-11.1-b, V2-11.2.2.4-a, V1-8.1-b, V1-8.2.2.4-a
#[tokio::test]
async fn what_rfc_5042_demands_is_kept() {
    let bits = iwarp(Config::default()).capabilities().unpredictable_handle_bits;
    assert_eq!(bits, 32, "no part of a tag can be guessed");
    keeps(&[
        "handles_are_many_and_as_unpredictable_as_claimed",
        "a_handle_of_another_connection_ends_this_one_only",
        "a_write_to_an_unknown_handle_ends_the_connection",
        "a_read_of_an_unknown_handle_ends_the_connection",
        "a_write_one_past_the_end_ends_the_connection",
        "a_write_one_before_the_beginning_ends_the_connection",
        "a_write_that_wraps_around_ends_the_connection",
        "a_read_one_past_the_end_ends_the_connection",
        "a_read_one_before_the_beginning_ends_the_connection",
        "a_read_that_wraps_around_ends_the_connection",
        "a_write_to_what_may_be_read_ends_the_connection",
        "a_read_of_what_may_be_written_ends_the_connection",
        "a_write_after_the_fence_ends_the_connection",
        "a_read_after_the_fence_ends_the_connection",
        "the_peer_cannot_end_what_is_not_exposed",
        "a_send_without_a_receive_ends_the_connection",
        "one_octet_more_than_the_receive_ends_the_connection",
        "exposures_are_limited",
        "posted_work_is_limited",
    ])
    .await;
}
