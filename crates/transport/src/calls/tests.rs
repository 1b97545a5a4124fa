//! The table of calls alone: what callers learn, and where memory goes.

use super::*;
use rpcrdma_engine::{PeerFault, PlacedItem};
use rpcrdma_env::{Heap, Random};
use rpcrdma_oncrpc::{ContextError, ItemRoom, ReplyShape};
use std::{net::Ipv4Addr, ops::Range, sync::Mutex};

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 20049);
const XID: u32 = 7;
const CALL: CallId = CallId(1 << 32 | XID as u64);

struct Same;

impl Random for Same {
    fn fill(&self, out: &mut [u8]) {
        out.fill(1);
    }
}

/// A table with one call of `call` bytes, with this shape of its largest reply.
fn table(call: usize, reply: ReplyShape) -> (Calls, oneshot::Receiver<Answered>) {
    let mut calls = Calls::new(Arc::new(Heap), SERVER, Arc::new(XidSource::new(&Same)));
    let (sender, receiver) = oneshot::channel();
    let message = Payload::from(bytes::Bytes::from(vec![0; call]));
    assert!(calls.add(Call::new(CALL, Request { xid: XID, message, reply, repeatable: false, anew: None }, sender)));
    (calls, receiver)
}

fn told(call: usize, reply: usize, error: CallError) -> TransportError {
    let (mut calls, mut receiver) = table(call, ReplyShape::inline(reply));
    assert_eq!(calls.fail(CALL, error), Some(Event::Failed { xid: XID }));
    assert!(calls.is_empty());
    receiver.try_recv().unwrap().unwrap_err()
}

#[test]
fn callers_learn_what_the_peer_has_said() {
    let remote = |error: CallError| match told(100, 100, error) {
        TransportError::Remote { server: SERVER, source } => source,
        other => panic!("{other:?}"),
    };
    let range = RemoteError::Version { low: 3, high: 4 };
    assert_eq!(remote(CallError::Remote(v1::ErrorBody::Version { low: 3, high: 4 })), range);
    assert_eq!(remote(CallError::Rejected(v2::ErrorBody::Version { low: 3, high: 4 })), range);
    assert_eq!(remote(CallError::Remote(v1::ErrorBody::Chunk)), RemoteError::Chunk);
    assert_eq!(remote(CallError::Rejected(v2::ErrorBody::BadXdr)), RemoteError::Chunk);
    let other = RemoteError::Other { code: 100, name: "RDMA2_ERR_SYSTEM" };
    assert_eq!(remote(CallError::Rejected(v2::ErrorBody::System)), other);
    let fault = told(100, 100, CallError::Peer(PeerFault::NoCredits));
    assert!(matches!(fault, TransportError::Violation { server: SERVER, rule } if rule == PeerFault::NoCredits.rule()));
}

#[test]
fn callers_learn_why_a_call_cannot_be_sent() {
    let misuse = |call, reply, refused| match told(call, reply, CallError::Refused(refused)) {
        TransportError::Misuse(misuse) => misuse,
        other => panic!("{other:?}"),
    };
    assert_eq!(misuse(1, 1, CallRefused::XidInUse { xid: XID }), Misuse::XidInUse { xid: XID });
    let max = 1000;
    for refused in [
        CallRefused::TooLargeInline { len: 1001, max },
        CallRefused::HeaderTooLarge { len: 1001, max },
        CallRefused::ChunkTooLarge { len: 1001, max },
    ] {
        assert_eq!(misuse(1001, 1, refused), Misuse::CallTooLarge { len: 1001, max });
        assert_eq!(misuse(1001, 1001, refused), Misuse::CallTooLarge { len: 1001, max });
        assert_eq!(misuse(1000, 1001, refused), Misuse::ReplyTooLarge { len: 1001, max });
        // With its header the call is too large, or its reply, or both.
        assert_eq!(misuse(1000, 1000, refused), Misuse::CallTooLarge { len: 1000, max });
    }
    assert!(matches!(told(1, 1, ExposeError::Refused.into()), TransportError::NotLent { server: SERVER }));
    assert!(matches!(told(1, 1, CallRefused::NotEnabled.into()), TransportError::Closed));
}

#[test]
fn memory_that_is_too_small_for_the_next_attempt_is_not_lent_again() {
    let (mut calls, _receiver) = table(1, ReplyShape::inline(1));
    let lend = |calls: &mut Calls, octets| calls.lend(CALL, SinkPlace::Reply, octets).unwrap();
    let mut buffer = lend(&mut calls, 4096);
    buffer.bytes_mut()[0] = 0xAB;
    calls.restore(CALL, SinkPlace::Reply, buffer);
    let mut same = lend(&mut calls, 4096);
    assert_eq!(same.bytes_mut()[0], 0xAB, "what is large enough is used again");
    calls.restore(CALL, SinkPlace::Reply, same);
    assert!(lend(&mut calls, 5000).capacity() >= 5000);
    assert_eq!(calls.lend(CALL, SinkPlace::Item(0), 1).unwrap_err(), ExposeError::Refused, "there is no such result");
}

/// With the reply, a caller gets back its own memory, and the table's memory only if a result is in it.
#[test]
fn a_reply_comes_with_the_memory_that_belongs_to_it() {
    let lent = |lent: bool| ItemRoom { max_len: 100, buffer: lent.then(|| Buffer::from_vec(vec![0; 100])) };
    let shape = ReplyShape { max_len: 1000, items: vec![lent(true), lent(false), lent(false)].into() };
    let (mut calls, mut receiver) = table(1, shape);
    for index in 1..3 {
        let buffer = calls.lend(CALL, SinkPlace::Item(index), 100).unwrap();
        calls.restore(CALL, SinkPlace::Item(index), buffer);
    }
    calls.sent(XID);
    let item = |offered, returned| PlacedItem { offered, returned };
    let base = ReplyBase::Inline(bytes::Bytes::from_static(&[0; 12]));
    let reply = ReplyParts { base, items: vec![item(0, 0), item(0, 0), item(100, 60)].into() };
    let answered = Event::Answered { xid: XID, inline_bytes: 12, placed_bytes: 60, retransmitted: false };
    assert_eq!(calls.complete(CALL, reply), Some(answered));
    let reply = receiver.try_recv().unwrap().unwrap();
    assert!(!reply.retransmitted, "it was sent once");
    let placed: Vec<_> = reply.stream.into_placed().map(|placed| placed.buffer.map(|buffer| buffer.len())).collect();
    assert_eq!(placed, [Some(0), None, Some(60)]);
}

/// The numbers in names begin again after 2^32 calls.
#[test]
fn calls_stay_in_their_order_and_apart_when_names_come_again() {
    let mut calls = Calls::new(Arc::new(Heap), SERVER, Arc::new(XidSource::new(&Same)));
    let ids = [name(u32::MAX, 9), name(0, 8), name(1, 7)];
    let request = |xid| Request {
        xid,
        message: Payload::from(bytes::Bytes::from_static(&[0])),
        reply: ReplyShape::inline(1),
        repeatable: false,
        anew: None,
    };
    let mut receivers = Vec::new();
    for id in ids {
        let (sender, receiver) = oneshot::channel();
        assert!(calls.add(Call::new(id, request(xid_of(id)), sender)));
        receivers.push(receiver);
    }
    assert_eq!(calls.ids(), ids);
    let (sender, mut refused) = oneshot::channel();
    let other = name(2, 8);
    assert!(!calls.add(Call::new(other, request(8), sender)));
    assert!(matches!(refused.try_recv().unwrap(), Err(TransportError::Misuse(Misuse::XidInUse { xid: 8 }))));
    calls.released(other);
    assert!(calls.wanted(other).is_none() && calls.wanted(ids[1]).is_some(), "another call with its XID");
}

/// Counts messages, and makes only as many as it may.
#[derive(Debug)]
struct Counted(Mutex<Range<u8>>);

impl Anew for Counted {
    fn message(&self) -> Result<Payload, TransportError> {
        let next = self.0.lock().unwrap().next();
        let source = ContextError::new("no more");
        let octet = next.ok_or(TransportError::NotSigned { server: SERVER, source })?;
        Ok(Payload::from(bytes::Bytes::from(vec![octet])))
    }
}

/// The engine itself sends a repeatable call again, with the same bytes: it must not do so if no message may be sent
/// twice.
#[test]
fn a_call_whose_messages_differ_is_made_anew_for_each_connection() {
    let mut calls = Calls::new(Arc::new(Heap), SERVER, Arc::new(XidSource::new(&Same)));
    let (sender, mut receiver) = oneshot::channel();
    let message = Payload::from(bytes::Bytes::from_static(&[0]));
    let anew: Option<Arc<dyn Anew>> = Some(Arc::new(Counted(Mutex::new(1..3))));
    let reply = ReplyShape::inline(1);
    assert!(calls.add(Call::new(CALL, Request { xid: XID, message, reply, repeatable: true, anew }, sender)));
    for octet in 0..3 {
        let wanted = calls.wanted(CALL).unwrap();
        assert_eq!((&wanted.message.to_bytes()[..], wanted.repeatable), (&[octet][..], false));
        let failed = (octet == 2).then_some(Event::Failed { xid: XID });
        assert_eq!(calls.renew(CALL), failed);
    }
    assert!(matches!(receiver.try_recv().unwrap(), Err(TransportError::NotSigned { server: SERVER, .. })));
    assert!(calls.wanted(CALL).is_none());
}
