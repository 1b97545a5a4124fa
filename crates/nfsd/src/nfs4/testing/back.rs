//! The client's end of a connection, which answers the server's calls: like an honest client, until a test says
//! otherwise.
//!
//! ```text
//! let back = Back::new();
//! let client = server.client_with("a", &back);       a session over which the server calls
//! server.drive();                                       what the server does by and by: CB_NULL is answered
//! back.answer_by(|call| Said::Nothing);                from now on no call is answered
//! back.calls()                                         what was called, without CB_NULL
//! ```

use rpcrdma_env::{BoxFuture, SeededRandom};
use rpcrdma_nfs::v4::{
    SessionId, Status,
    callback::{Args, Arguments, CbSequence, CbSequenceOk, Op, Outcome, Results},
};
use rpcrdma_oncrpc::{
    CallHeader, CallInFlight, Cancelled, ClientTransport, Gone, GoneSignal, Limits, OpaqueAuth, PendingCall, Rejection,
    Reply, ReplyHeader, Request, TransportError, TransportKind, XidSource,
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};
use std::{
    collections::HashMap,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};
use tokio::sync::oneshot;

/// A call that the server has made.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) procedure: u32,
    pub(crate) credential: OpaqueAuth,
    /// The arguments of CB_COMPOUND.
    pub(crate) args: Option<Arguments>,
    /// Bytes of the whole call, and of the largest possible reply.
    pub(crate) octets: usize,
    pub(crate) max_reply: usize,
}

impl Heard {
    pub(crate) fn sequence(&self) -> CbSequence {
        match self.args.as_ref().and_then(|args| args.ops.first()) {
            Some(Args::Sequence(sequence)) => sequence.clone(),
            other => panic!("CB_SEQUENCE comes first: {other:?}"),
        }
    }

    /// The operations after CB_SEQUENCE.
    pub(crate) fn ops(&self) -> &[Args] {
        self.args.as_ref().and_then(|args| args.ops.get(1..)).unwrap_or_default()
    }

    /// The reply of an honest client whose operations all succeed.
    pub(crate) fn well(&self) -> Results {
        let outcomes = self.ops().iter().map(|op| outcome(op.op(), Status::OK)).collect::<Vec<_>>();
        self.with(outcomes)
    }

    /// The results of CB_SEQUENCE, and these results.
    pub(crate) fn with(&self, outcomes: Vec<Outcome>) -> Results {
        let CbSequence { session, sequence, slot, .. } = self.sequence();
        let ok = CbSequenceOk { session, sequence, slot, highest_slot: 15, target_highest_slot: 15 };
        Results::of(Default::default(), [Outcome::Sequence(Ok(ok))].into_iter().chain(outcomes).collect())
    }

    /// The only operation after CB_SEQUENCE has this status.
    pub(crate) fn of_one(&self, status: Status) -> Results {
        self.with(self.ops().iter().map(|op| outcome(op.op(), status)).collect())
    }

    /// CB_SEQUENCE has failed.
    pub(crate) fn refused(&self, status: Status) -> Results {
        Results::of(Default::default(), vec![Outcome::Sequence(Err(status))])
    }
}

/// Results that have only a status.
pub(crate) fn outcome(op: Op, status: Status) -> Outcome {
    match (op, status) {
        (Op::Recall, Status::OK) => Outcome::Recall(Ok(())),
        (Op::NotifyLock, Status::OK) => Outcome::NotifyLock(Ok(())),
        (Op::Offload, Status::OK) => Outcome::Offload(Ok(())),
        (Op::RecallAny, Status::OK) => Outcome::RecallAny(Ok(())),
        (op, status) => Outcome::failed(op, status),
    }
}

/// The client's answer.
pub(crate) enum Said {
    /// As an honest client answers.
    Well,
    /// These results of CB_COMPOUND.
    Results(Results),
    /// These bytes, in place of results.
    Octets(Vec<u8>),
    /// The call was not executed.
    Rejected(Rejection),
    /// No answer until [`Back::let_go`].
    Nothing,
    /// The transport has failed.
    Failed(TransportError),
}

type Script = Box<dyn FnMut(&Heard) -> Said + Send>;
type Waiting = (Heard, oneshot::Sender<Result<Reply, TransportError>>);

struct Inner {
    heard: Vec<Heard>,
    held: Vec<Waiting>,
    script: Script,
    signal: Option<GoneSignal>,
    /// Why the server has ended the connection.
    given_up: Option<&'static str>,
    /// The last number of each slot of each session: if the next does not follow, the server has a fault.
    slots: HashMap<(SessionId, u32), u32>,
}

/// The client's end.
pub(crate) struct Back {
    inner: Mutex<Inner>,
    gone: Gone,
    xids: XidSource,
    pub(crate) kind: TransportKind,
    pub(crate) limits: Limits,
}

impl Back {
    pub(crate) fn new() -> Arc<Self> {
        Self::taking(1 << 20)
    }

    /// An end that takes messages of at most this many bytes.
    pub(crate) fn taking(octets: usize) -> Arc<Self> {
        let (signal, gone) = GoneSignal::new();
        let inner = Inner {
            heard: Vec::new(),
            held: Vec::new(),
            script: Box::new(|_| Said::Well),
            signal: Some(signal),
            given_up: None,
            slots: HashMap::new(),
        };
        let xids = XidSource::new(&SeededRandom::new(octets as u64));
        let limits = Limits::new(octets, octets);
        Arc::new(Self { inner: Mutex::new(inner), gone, xids, kind: TransportKind::Tcp, limits })
    }

    pub(crate) fn gone(&self) -> Gone {
        self.gone.clone()
    }

    /// From now on `script` answers calls.
    pub(crate) fn answer_by(&self, script: impl FnMut(&Heard) -> Said + Send + 'static) {
        self.inner.lock().unwrap().script = Box::new(script);
    }

    /// The calls since this was last asked, without CB_NULL.
    pub(crate) fn calls(&self) -> Vec<Heard> {
        let all = std::mem::take(&mut self.inner.lock().unwrap().heard);
        all.into_iter().filter(|heard| heard.procedure != 0).collect()
    }

    /// Why the server has ended the connection, if it has.
    pub(crate) fn given_up(&self) -> Option<&'static str> {
        self.inner.lock().unwrap().given_up
    }

    /// How many calls are unanswered.
    pub(crate) fn held(&self) -> usize {
        self.inner.lock().unwrap().held.len()
    }

    /// Answers the unanswered calls, in order.
    pub(crate) fn let_go(&self, mut script: impl FnMut(&Heard) -> Said) {
        let held = std::mem::take(&mut self.inner.lock().unwrap().held);
        for (heard, sender) in held {
            if let Some(answer) = self.answer(&heard, script(&heard)) {
                let _ = sender.send(answer);
            }
        }
    }

    /// Ends the connection, with all unanswered calls. The server learns it in its own way.
    pub(crate) fn end(&self) {
        let mut inner = self.inner.lock().unwrap();
        inner.signal = None;
        for (_, sender) in std::mem::take(&mut inner.held) {
            let _ = sender.send(Err(TransportError::Closed));
        }
    }

    fn answer(&self, heard: &Heard, said: Said) -> Option<Result<Reply, TransportError>> {
        let mut body = Encoder::new();
        let mut status = Ok(());
        match said {
            Said::Well if heard.procedure == 0 => {}
            Said::Well => {
                self.check_number(heard);
                heard.well().encode(&mut body);
            }
            Said::Results(results) => results.encode(&mut body),
            Said::Octets(octets) => body.payload(rpcrdma_xdr::Payload::from(bytes::Bytes::from(octets))),
            Said::Rejected(rejection) => status = Err(rejection),
            Said::Nothing => return None,
            Said::Failed(error) => return Some(Err(error)),
        }
        let mut encoder = Encoder::new();
        ReplyHeader { xid: heard.xid, verifier: OpaqueAuth::none(), status }.encode(&mut encoder);
        encoder.payload(body.finish());
        Some(Ok(Reply { stream: Stream::from(encoder.finish().to_bytes()), retransmitted: false }))
    }

    /// RFC 8881 section 20.9.3
    fn check_number(&self, heard: &Heard) {
        let CbSequence { session, slot, sequence, .. } = heard.sequence();
        let last = self.inner.lock().unwrap().slots.insert((session, slot), sequence).unwrap_or(0);
        assert_eq!(sequence, last.wrapping_add(1), "the number of slot {slot}");
    }
}

impl ClientTransport for Back {
    fn next_xid(&self) -> u32 {
        self.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        let octets = request.message.len();
        let mut decoder = Decoder::new(Stream::from(request.message.to_bytes()));
        let header = CallHeader::decode(&mut decoder).unwrap();
        let args = (header.id.procedure == Arguments::PROCEDURE).then(|| Arguments::decode(&mut decoder).unwrap());
        decoder.finish().unwrap();
        let heard = Heard {
            xid: header.id.xid,
            program: header.id.program,
            procedure: header.id.procedure,
            credential: header.credential,
            args,
            octets,
            max_reply: request.reply.max_len,
        };
        let (sender, receiver) = oneshot::channel();
        let said = {
            let mut inner = self.inner.lock().unwrap();
            if inner.signal.is_none() {
                return PendingCall::failed(TransportError::Closed);
            }
            inner.heard.push(heard.clone());
            (inner.script)(&heard)
        };
        match self.answer(&heard, said) {
            Some(answer) => _ = sender.send(answer),
            None => self.inner.lock().unwrap().held.push((heard, sender)),
        }
        PendingCall::new(Calling(receiver))
    }

    fn kind(&self) -> TransportKind {
        self.kind
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn server(&self) -> SocketAddr {
        ([127, 0, 0, 1], 700).into()
    }

    fn give_up(&self, why: &'static str) {
        self.inner.lock().unwrap().given_up = Some(why);
        self.end();
    }
}

struct Calling(oneshot::Receiver<Result<Reply, TransportError>>);

impl Future for Calling {
    type Output = Result<Reply, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or(Err(TransportError::Closed)))
    }
}

impl CallInFlight for Calling {
    fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        Box::pin(std::future::ready(Cancelled::default()))
    }
}
