//! The errors of a connection when the device reports that work has failed: each cause that a software device can
//! produce.
//!
//! With RoCE both ends get a status. With iWARP only the end that sees the broken rule gets one; the other end gets its
//! work back, or learns that the connection was ended.

use super::in_use;
use bytes::Bytes;
use rpcrdma_env::{Buffer, tokio_env};
use rpcrdma_fabric::{
    CloseReason, Completion, Connected, ConnectionParams, Fabric, ReadWork, Receives, RemoteSegment, SendWork, Token,
    WorkError, WorkKind, WriteWork,
};
use rpcrdma_verbs::{Config, Device, Verbs};
use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    task::Poll,
    time::Duration,
};

/// Far longer than a device retries.
const PATIENCE: Duration = Duration::from_secs(60);

/// How one end saw the connection end.
#[derive(Debug, Default)]
struct Seen {
    failed: Vec<(WorkKind, WorkError)>,
    closed: Option<CloseReason>,
}

impl Seen {
    fn reason(&self) -> String {
        self.closed.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    fn failed(&self, kind: WorkKind, error: &WorkError) -> bool {
        self.failed.iter().any(|failed| failed.0 == kind && failed.1 == *error)
    }
}

fn buffer(octets: usize) -> Buffer {
    Buffer::from_vec(vec![0; octets])
}

fn send(octets: usize) -> SendWork {
    SendWork {
        token: Token(1),
        octets: vec![Bytes::from(vec![7; octets])].into(),
        signaled: true,
        ..SendWork::default()
    }
}

/// A connection whose two ends have receives of these lengths. The connecting end has sent the first Send.
async fn join(verbs: &Verbs, address: IpAddr, at_a: &[usize], at_b: &[usize]) -> (Connected, Connected) {
    let params = |receives: Vec<Buffer>| ConnectionParams {
        private_data: Bytes::new(),
        ird: 1,
        ord: 1,
        receives: Receives::Own(receives),
    };
    let mut listener = verbs.listen(SocketAddr::new(address, 0)).await.unwrap();
    let to = listener.local_addr();
    let of_b = std::iter::once(1).chain(at_b.iter().copied());
    let (of_a, of_b) = (params(at_a.iter().copied().map(buffer).collect()), params(of_b.map(buffer).collect()));
    let accept = async {
        let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        pending.request().await.unwrap().accept(of_b).await.unwrap()
    };
    let (a, mut b) = tokio::join!(verbs.connect(to, of_a), accept);
    let mut a = a.unwrap();
    a.post_send(send(1)).unwrap();
    let mut waits = [true, true];
    poll_fn(|cx| {
        for (qp, waits) in [&mut a, &mut b].into_iter().zip(&mut waits) {
            if *waits && let Poll::Ready(completion) = qp.poll(cx) {
                assert!(matches!(completion, Completion::Done { .. } | Completion::Received { .. }), "{completion:?}");
                *waits = false;
            }
        }
        if waits == [false, false] { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (a, b)
}

/// Drives both ends until both have ended.
async fn over(a: &mut Connected, b: &mut Connected) -> [Seen; 2] {
    let mut seen = [Seen::default(), Seen::default()];
    let both = poll_fn(|cx| {
        for (qp, seen) in [&mut *a, &mut *b].into_iter().zip(&mut seen) {
            while let Poll::Ready(completion) = qp.poll(cx) {
                match completion {
                    Completion::Failed { kind, error, .. } => seen.failed.push((kind, error)),
                    Completion::Closed { reason } => seen.closed = Some(reason),
                    _ => {}
                }
            }
        }
        if seen.iter().all(|seen| seen.closed.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    });
    tokio::time::timeout(PATIENCE, both).await.expect("both ends learn of it");
    seen
}

/// The provider asks an idle peer for signs of life, and the users of both ends see nothing of this.
#[tokio::test]
async fn signs_of_life_are_nobodys_business() {
    for (device, address) in in_use() {
        let mut config = Config::default();
        config.device = Device::Local(address);
        config.keepalive = Duration::from_millis(20);
        let verbs = Verbs::open(tokio_env().unwrap(), config).await.unwrap();
        let (mut a, mut b) = join(&verbs, address, &[8], &[8]).await;
        let quiet = poll_fn(|cx| {
            for qp in [&mut a, &mut b] {
                if let Poll::Ready(completion) = qp.poll(cx) {
                    panic!("{}: {completion:?}", device.name);
                }
            }
            Poll::<()>::Pending
        });
        tokio::time::timeout(Duration::from_secs(1), quiet).await.unwrap_err();
        a.post_send(send(8)).unwrap();
        let arrived = tokio::time::timeout(
            PATIENCE,
            poll_fn(|cx| {
                let _ = a.poll(cx);
                b.poll(cx)
            }),
        );
        assert!(matches!(arrived.await.unwrap(), Completion::Received { .. }));
        b.disconnect();
        over(&mut a, &mut b).await;
    }
}

/// The opened devices, and whether each reports errors to both ends by a status.
async fn opened() -> Vec<(Verbs, IpAddr, bool)> {
    let mut opened = Vec::new();
    for (device, address) in in_use() {
        let mut config = Config::default();
        config.device = Device::Local(address);
        let verbs = Verbs::open(tokio_env().unwrap(), config).await.unwrap();
        let iwarp = device.ports.iter().any(|port| port.link == rpcrdma_verbs::Link::Iwarp);
        opened.push((verbs, address, !iwarp));
    }
    opened
}

fn says(seen: &Seen, words: &[&str]) {
    let reason = seen.reason();
    assert!(words.iter().all(|word| reason.contains(word)), "{reason} does not say {words:?}");
}

/// With a handle that no end has given out, neither end can reach the other's bytes.
#[tokio::test]
async fn an_access_that_the_peer_does_not_allow() {
    for (verbs, address, told) in opened().await {
        for reads in [true, false] {
            let (mut a, mut b) = join(&verbs, address, &[8], &[8]).await;
            let (handle, offset) = (0x00BA_D500, 0);
            let (kind, refused) = if reads {
                let read = ReadWork {
                    token: Token(2),
                    sink: buffer(8),
                    sources: vec![RemoteSegment { handle, length: 8, offset }],
                };
                (WorkKind::Read, a.post_read(read).is_err())
            } else {
                let octets = vec![Bytes::from_static(b"12345678")];
                let write = WriteWork { token: Token(2), octets: octets.into(), handle, offset, signaled: true };
                (WorkKind::Write, a.post_write(write).is_err())
            };
            assert!(!refused);
            let [of_a, of_b] = over(&mut a, &mut b).await;
            println!("access, {kind:?}: {of_a:?} {of_b:?}");
            if told {
                assert!(of_a.failed(kind, &WorkError::RemoteAccess), "{of_a:?}");
                says(&of_a, &["does not allow an access", "peer's log"]);
            }
            assert!(!matches!(of_a.closed, Some(CloseReason::Local)), "{of_a:?}");
        }
    }
}

#[tokio::test]
async fn a_message_that_is_longer_than_the_receive() {
    for (verbs, address, told) in opened().await {
        let (mut a, mut b) = join(&verbs, address, &[8], &[8]).await;
        a.post_send(send(9)).unwrap();
        let [of_a, of_b] = over(&mut a, &mut b).await;
        println!("length: {of_a:?} {of_b:?}");
        assert!(of_b.failed(WorkKind::Receive, &WorkError::LocalLength), "{of_b:?}");
        assert!(matches!(&of_b.closed, Some(CloseReason::Violation(_))), "{of_b:?}");
        says(&of_b, &["longer than its buffer", "up to date"]);
        if told {
            assert!(of_a.failed(WorkKind::Send, &WorkError::RemoteOperation), "{of_a:?}");
            says(&of_a, &["the peer's device", "peer's log"]);
        }
    }
}

#[tokio::test]
async fn a_message_for_which_there_is_no_receive() {
    for (verbs, address, told) in opened().await {
        let (mut a, mut b) = join(&verbs, address, &[8], &[]).await;
        a.post_send(send(1)).unwrap();
        let [of_a, of_b] = over(&mut a, &mut b).await;
        println!("no receive: {of_a:?} {of_b:?}");
        if told {
            assert!(of_a.failed(WorkKind::Send, &WorkError::NoReceive), "{of_a:?}");
            says(&of_a, &["no receive ready", "credits"]);
        }
        assert!(!matches!(of_a.closed, Some(CloseReason::Local)), "{of_a:?}");
    }
}

/// Work still posted when a connection ends comes back, marked as not done.
#[tokio::test]
async fn what_is_given_back_with_the_end() {
    for (verbs, address, _) in opened().await {
        let (mut a, mut b) = join(&verbs, address, &[8, 8], &[8, 8, 8]).await;
        b.disconnect();
        let [of_a, of_b] = over(&mut a, &mut b).await;
        println!("flushed: {of_a:?} {of_b:?}");
        let flushed = (WorkKind::Receive, WorkError::Flushed);
        assert_eq!(of_a.failed, [flushed.clone(), flushed.clone()]);
        assert_eq!(of_b.failed, vec![flushed; 3]);
        assert_eq!(of_b.closed, Some(CloseReason::Local));
    }
}
