//! The monitor without sockets: a list in a real directory, or on a disk that loses all that it may; and hosts that
//! answer as the test says.

mod crash;
mod limits;
mod notices;
mod notified;

use super::*;
use crate::{OutsideCall, OutsideError, OutsideTransport, nfs4::testing::TestClock};
use rpcrdma_env::{Heap, SeededRandom};
use rpcrdma_nfs::nsm;
use rpcrdma_oncrpc::{Answer, CallContext, Connection, GoneSignal, Limits, Service, TransportKind};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};
use std::{
    sync::atomic::AtomicU64,
    task::{Context, Waker},
    time::Duration,
};

/// Hosts that answer, or do not, and all calls to them.
#[derive(Default)]
pub(super) struct World {
    pub(super) calls: Mutex<Vec<OutsideCall>>,
    /// Which hosts answer, and over which transport.
    pub(super) answering: Mutex<Vec<(IpAddr, OutsideTransport)>>,
    /// Calls under way that have no answer yet.
    pub(super) under_way: Arc<AtomicU64>,
    pub(super) most_under_way: AtomicU64,
    pub(super) clock: Arc<TestClock>,
}

/// Counts a call under way until it is dropped.
struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Outside for World {
    fn call(&self, to: OutsideCall) -> BoxFuture<'static, Result<Bytes, OutsideError>> {
        let answers = self.answering.lock().unwrap().contains(&(to.to, to.transport));
        let (limit, clock) = (to.limit, self.clock.clone());
        self.calls.lock().unwrap().push(to);
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(now, Ordering::SeqCst);
        let counted = Counted(self.under_way.clone());
        Box::pin(async move {
            let _counted = counted;
            if answers {
                return Ok(Bytes::new());
            }
            clock.sleep_until(clock.now() + limit).await;
            Err(OutsideError::NoAnswer(limit))
        })
    }
}

impl World {
    pub(super) fn answers(&self, address: &str, transport: OutsideTransport) {
        self.answering.lock().unwrap().push((ip(address), transport));
    }

    pub(super) fn called(&self) -> Vec<OutsideCall> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

/// A holder of locks, which records which hosts' locks it has to free.
#[derive(Default)]
pub(super) struct Locks {
    pub(super) freed: Mutex<Vec<(IpAddr, Vec<u8>)>>,
    pub(super) held: Mutex<Vec<(IpAddr, Vec<u8>)>>,
}

impl Holders for Locks {
    fn rebooted(&self, address: IpAddr, name: &[u8]) {
        self.freed.lock().unwrap().push((address, name.to_vec()));
    }

    fn holds(&self, address: IpAddr, name: &[u8]) -> bool {
        self.held.lock().unwrap().contains(&(address, name.to_vec()))
    }
}

pub(super) fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

pub(super) const LOCAL: &str = "192.0.2.254";

/// One start of a server.
pub(super) struct Start {
    pub(super) monitor: Arc<Monitor>,
    pub(super) world: Arc<World>,
    pub(super) locks: Arc<Locks>,
    driver: BoxFuture<'static, ()>,
}

static STARTS: AtomicU64 = AtomicU64::new(1);

impl Start {
    pub(super) fn with_list(list: List, world: Arc<World>) -> io::Result<Self> {
        let random = Arc::new(SeededRandom::new(STARTS.fetch_add(1, Ordering::Relaxed)));
        let env = Env { clock: world.clock.clone(), random };
        let setup = Setup {
            directory: Path::new("/nowhere"),
            server: Some(7),
            name: Bytes::from_static(b"server1"),
            queue: Queue::in_place(),
            outside: world.clone(),
        };
        let monitor = Monitor::with_list(list, &setup, &env)?;
        let locks = Arc::new(Locks::default());
        let holders: Weak<dyn Holders> = Arc::<Locks>::downgrade(&locks);
        monitor.connect(holders);
        let driver = monitor.drive().unwrap();
        assert!(monitor.drive().is_none(), "one drives it");
        Ok(Self { monitor, world, locks, driver })
    }

    pub(super) fn at(directory: &Path, world: &Arc<World>) -> Self {
        let list = List::take(directory, Some(7)).unwrap().expect("no other server has it");
        Self::with_list(list, world.clone()).unwrap()
    }

    pub(super) fn monitor(&self, address: &str, name: &str) -> Result<(), NotMonitored> {
        now_or_never(self.monitor.monitor(ip(address), ip(LOCAL), name.as_bytes()))
    }

    /// Does what can be done now.
    pub(super) fn drive(&mut self) {
        for _ in 0..100 {
            assert!(self.driver.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    }

    /// Lets time pass, step by step.
    pub(super) fn pass(&mut self, time: Duration) {
        let step = Duration::from_millis(500);
        let mut passed = Duration::ZERO;
        while passed < time {
            self.world.clock.pass(step);
            passed += step;
            self.driver_once();
        }
        self.drive();
    }

    fn driver_once(&mut self) {
        for _ in 0..4 {
            assert!(self.driver.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    }

    /// The reply to a call to the service.
    pub(super) fn ask(&self, from: &str, kind: TransportKind, procedure: u32, args: &impl Encode) -> Answer {
        let mut encoder = Encoder::new();
        args.encode(&mut encoder);
        let decoder = Decoder::new(Stream::from(encoder.finish().to_bytes()));
        let (_signal, gone) = GoneSignal::new();
        let limits = Limits::new(1000, 1000);
        let local = SocketAddr::new(ip(LOCAL), 4045);
        let connection = Connection::new(from.parse().unwrap(), local, 1, kind, limits, Arc::new(Heap), gone);
        let context = CallContext::new(Arc::new(connection));
        now_or_never(NsmService(self.monitor.clone()).call(context, procedure, decoder))
    }

    /// Whether the server replies to a notice.
    pub(super) fn notify(&self, from: &str, kind: TransportKind, name: &str, state: i32) -> bool {
        let notice = nsm::Notify { name: name.into(), state };
        match self.ask(from, kind, nsm::procedure::NOTIFY, &notice) {
            Answer::Results(results) => {
                assert!(results.is_empty());
                true
            }
            Answer::Nothing => false,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn freed(&self) -> Vec<(IpAddr, Vec<u8>)> {
        std::mem::take(&mut *self.locks.freed.lock().unwrap())
    }
}

/// The results in a reply.
pub(super) fn results<T: Decode>(answer: Answer) -> T {
    let Answer::Results(results) = answer else { panic!("{answer:?}") };
    let mut decoder = Decoder::new(Stream::from(results.to_bytes()));
    let value = T::decode(&mut decoder).unwrap();
    decoder.finish().unwrap();
    value
}

/// The output of a future that need not wait.
pub(super) fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits"),
    }
}
