//! A client's callback program that does what a test says, the network to it, and a clock that a test moves.

use super::*;
use crate::nfs4::testing::back;
use rpcrdma_env::{Clock, SeededRandom};
use rpcrdma_oncrpc::{
    Answer, CallContext, Credential, Router, Service,
    tcp::{Endpoint, ServerOptions},
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder};
use std::{
    pin::Pin as Pinned,
    sync::atomic::{AtomicU64, AtomicUsize},
    task::{Context, Poll, Waker},
};

pub(super) const PROGRAM: u32 = 0x4000_0000;

/// How the client behaves when the server calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Answers,
    /// It refuses connections.
    Away,
    /// It accepts connections and answers nothing.
    Silent,
    /// It ends each connection with the first call.
    HangsUp,
    /// It sends a wrong answer.
    Lies,
    /// It does not speak this minor version.
    Refuses,
    /// It does what the call asks; the other kinds know no file.
    Honest,
    /// It neither accepts nor refuses connections.
    Lost,
    /// It accepts a connection after nine seconds, and takes two for each answer.
    Slow,
}

/// A client's callback program, and the network to it.
#[derive(Clone)]
pub(super) struct Called {
    pub(super) manner: Arc<Mutex<Manner>>,
    /// Attempts to connect, and connections that stand.
    pub(super) dialled: Arc<Mutex<Vec<(IpAddr, SocketAddr)>>>,
    pub(super) standing: Arc<AtomicUsize>,
    pub(super) heard: Arc<Mutex<Vec<(Arguments, Credential)>>>,
    pub(super) steps: Arc<Steps>,
}

impl Called {
    pub(super) fn new(manner: Manner, steps: Arc<Steps>) -> Self {
        Self {
            manner: Arc::new(Mutex::new(manner)),
            dialled: Arc::default(),
            standing: Arc::default(),
            heard: Arc::default(),
            steps,
        }
    }

    pub(super) fn after(&self, seconds: u64) -> Sleep {
        let until = self.steps.nanos.load(Ordering::SeqCst) + seconds * 1_000_000_000;
        Sleep(self.steps.clone(), Timestamp::from_nanos(until))
    }

    pub(super) fn manner(&self) -> Manner {
        *self.manner.lock().unwrap()
    }

    pub(super) fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub(super) fn dials(&self) -> usize {
        self.dialled.lock().unwrap().len()
    }

    pub(super) fn standing(&self) -> usize {
        self.standing.load(Ordering::SeqCst)
    }
}

impl Dial for Called {
    fn dial(&self, from: IpAddr, to: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        self.dialled.lock().unwrap().push((from, to));
        if self.manner() == Manner::Away {
            return Box::pin(std::future::ready(Err(io::ErrorKind::ConnectionRefused.into())));
        }
        if self.manner() == Manner::Lost {
            return Box::pin(std::future::pending());
        }
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        // A silent client holds the other end of this connection, and reads it.
        let (ours, mut silent) =
            if self.manner() == Manner::Silent { tokio::io::duplex(1 << 16) } else { (ours, tokio::io::duplex(1).0) };
        let env = Env { clock: Arc::new(StepClock(Arc::default())), random: Arc::new(SeededRandom::new(1)) };
        let handler = Arc::new(Router::new(&env).with_service(Arc::new(self.clone())));
        let endpoint = Endpoint { peer: to, local: to, id: 1, allocator: Arc::new(Heap) };
        let (_, serving) = tcp::serve(theirs, endpoint, handler, env.clock.clone(), ServerOptions::default());
        let called = self.clone();
        called.standing.fetch_add(1, Ordering::SeqCst);
        let manner = called.manner();
        tokio::spawn(async move {
            match manner {
                Manner::HangsUp => {}
                Manner::Silent => drop(tokio::io::copy(&mut silent, &mut tokio::io::sink()).await),
                _ => drop(serving.await),
            }
            called.standing.fetch_sub(1, Ordering::SeqCst);
        });
        let taken = self.after(if manner == Manner::Slow { 9 } else { 0 });
        Box::pin(async move {
            taken.await;
            Ok(Box::new(ours) as Box<dyn Io>)
        })
    }
}

impl Service for Called {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn is_idempotent(&self, _: u32) -> bool {
        true
    }

    fn call(&self, context: CallContext, _: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        let manner = self.manner();
        let call = Arguments::decode(&mut args).unwrap();
        let outcomes = match manner {
            Manner::Lies => vec![Outcome::failed(rpcrdma_nfs::v4::callback::Op::GetAttr, Status::OK)],
            Manner::Honest => call.ops.iter().map(|op| back::outcome(op.op(), Status::OK)).collect(),
            _ => call.ops.iter().map(|op| Outcome::failed(op.op(), Status::BADHANDLE)).take(1).collect(),
        };
        let mut results = Results::of(call.tag.clone(), outcomes);
        if manner == Manner::Refuses {
            results = Results { status: Status::MINOR_VERS_MISMATCH, results: Vec::new(), ..results };
        }
        self.heard.lock().unwrap().push((call, context.credential));
        let mut encoder = Encoder::new();
        results.encode(&mut encoder);
        let (answer, ready) = (encoder.finish(), self.after(if manner == Manner::Slow { 2 } else { 0 }));
        Box::pin(async move {
            ready.await;
            Answer::Results(answer)
        })
    }
}

/// A clock that a test moves.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) nanos: AtomicU64,
    pub(super) sleepers: Mutex<Vec<Waker>>,
}

impl Steps {
    pub(super) fn step(&self, seconds: u64) {
        self.nanos.fetch_add(seconds * 1_000_000_000, Ordering::SeqCst);
        self.sleepers.lock().unwrap().drain(..).for_each(Waker::wake);
    }
}

/// Completes when it is time.
pub(super) struct Sleep(Arc<Steps>, Timestamp);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pinned<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.sleepers.lock().unwrap().push(cx.waker().clone());
        if self.0.nanos.load(Ordering::SeqCst) >= self.1.as_nanos() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The clock of a server.
pub(super) struct StepClock(pub(super) Arc<Steps>);

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.nanos.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(Sleep(self.0.clone(), when))
    }

    fn unix_time(&self) -> Duration {
        Duration::from_secs(1_000_000_000)
    }
}
