//! The end of a client's connection on which the server calls: it does at once what the server asks, and remembers it.

use rpcrdma_env::{BoxFuture, Clock, SeededRandom, Timestamp};
use rpcrdma_nfs::v4::{
    SessionId,
    callback::{Args, Arguments, CbSequenceOk, Outcome, Results},
};
use rpcrdma_oncrpc::{
    CallHeader, CallInFlight, Cancelled, ClientTransport, Limits, OpaqueAuth, PendingCall, Reply, ReplyHeader, Request,
    TransportError, TransportKind, XidSource,
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

/// The received calls, and the last sequence number of each slot of a session.
#[derive(Default)]
struct Inner {
    heard: Vec<Args>,
    /// When it answered last.
    answered: Option<Timestamp>,
    slots: BTreeMap<([u8; 16], u32), u32>,
}

/// A client that the server can call.
pub(super) struct Called {
    inner: Mutex<Inner>,
    xids: XidSource,
    clock: Arc<dyn Clock>,
}

impl Called {
    pub(super) fn new(seed: u64, clock: Arc<dyn Clock>) -> Self {
        Self { inner: Mutex::default(), xids: XidSource::new(&SeededRandom::new(seed)), clock }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the operations received since the last call of this function, without CB_SEQUENCE.
    pub(super) fn heard(&self) -> Vec<Args> {
        std::mem::take(&mut self.inner().heard)
    }

    /// When it answered a call of the server last.
    pub(super) fn answered(&self) -> Option<Timestamp> {
        self.inner().answered
    }

    fn results(&self, call: Arguments) -> Results {
        let mut inner = self.inner();
        inner.answered = Some(self.clock.now());
        let mut outcomes = Vec::new();
        for op in &call.ops {
            outcomes.push(match op {
                Args::Sequence(asked) => {
                    let (session, slot, sequence) = (asked.session, asked.slot, asked.sequence);
                    let SessionId(name) = session;
                    let before = inner.slots.insert((name, slot), sequence).unwrap_or(0);
                    assert_eq!(sequence, before.wrapping_add(1), "the number of the server's slot {slot}");
                    Outcome::Sequence(Ok(CbSequenceOk {
                        session,
                        sequence,
                        slot,
                        highest_slot: asked.highest_slot,
                        target_highest_slot: asked.highest_slot,
                    }))
                }
                Args::Recall(_) => Outcome::Recall(Ok(())),
                Args::Offload(_) => Outcome::Offload(Ok(())),
                other => panic!("nobody is asked for {other:?} here"),
            });
        }
        // CB_SEQUENCE alone tests whether the client answers.
        assert!(matches!(call.ops[..], [Args::Sequence(_)] | [Args::Sequence(_), _]), "one at a time: {:?}", call.ops);
        inner.heard.extend(call.ops.into_iter().skip(1));
        Results::of(call.tag, outcomes)
    }
}

impl ClientTransport for Called {
    fn next_xid(&self) -> u32 {
        self.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        let mut decoder = Decoder::new(Stream::from(request.message.to_bytes()));
        let header = CallHeader::decode(&mut decoder).expect("a call");
        let mut encoder = Encoder::new();
        ReplyHeader { xid: header.id.xid, verifier: OpaqueAuth::none(), status: Ok(()) }.encode(&mut encoder);
        if header.id.procedure == Arguments::PROCEDURE {
            self.results(Arguments::decode(&mut decoder).expect("CB_COMPOUND")).encode(&mut encoder);
        }
        decoder.finish().expect("nothing behind it");
        PendingCall::new(Answered(Some(encoder.finish().to_bytes().into())))
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn limits(&self) -> Limits {
        Limits::new(1 << 20, 1 << 20)
    }

    fn server(&self) -> SocketAddr {
        ([192, 0, 2, 1], 700).into()
    }
}

/// A reply that is ready.
struct Answered(Option<Stream>);

impl Future for Answered {
    type Output = Result<Reply, TransportError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let stream = self.0.take().ok_or(TransportError::Closed);
        Poll::Ready(stream.map(|stream| Reply { stream, retransmitted: false }))
    }
}

impl CallInFlight for Answered {
    fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        Box::pin(std::future::ready(Cancelled::default()))
    }
}
