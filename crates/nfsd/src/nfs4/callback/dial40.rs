//! Calls to clients of minor version 0, over a TCP connection that the server makes (RFC 7530 sections 10.2, 15; draft
//! nfs-ulb-v2 section 6.1).
//!
//! Such a client says by SETCLIENTID where the server is to call it. A client could name any address, so the server
//! calls only the address from which the client calls, by `tcp` or `tcp6`, and within the limits of attempts and
//! connections here. The program makes the connections: [`Dial`]. CB_NULL shows whether a client answers there. The
//! server keeps a connection while it uses it, and for a while after that. If it has not reached a client, or the
//! client has not answered, it does not try again for a while, however many calls wait.

use super::{
    super::{
        service::{Pin, Shared},
        state::{clients::Client, clients40::Callback},
    },
    ANSWER_TIME, NoAnswer,
    message::matching,
};
use crate::CallbackEvent;
use futures_util::future::{Either, select};
use rpcrdma_env::{BoxFuture, Env, Heap, Timestamp};
use rpcrdma_nfs::v4::{
    Status,
    callback::{Args, Arguments, Outcome, Results, VERSION},
    ops::CallbackClient,
};
use rpcrdma_oncrpc::{
    CallError, Client as RpcClient, ClientFlavour, ClientNetwork, ClientTransport, Netid, NoAuth, ReplyShape, SysAuth,
    SysCredential, parse_universal_address,
    tcp::{self, Connector, Io},
};
use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The most connections to clients at a time: descriptors that the server spends on calls.
pub(crate) const MAX_DIALLED: usize = 64;
/// The most connections to one address: a host has one client, and a few clients behind one address share these.
pub(crate) const MAX_DIALLED_OF_ADDRESS: usize = 4;
/// The most connections to one network ([`ClientNetwork`]): one host may have all addresses of an IPv6 network, and has
/// to leave connections for others.
pub(crate) const MAX_DIALLED_OF_NETWORK: usize = MAX_DIALLED / 2;
/// The most attempts to connect to one address in a minute: so a client cannot make the server send more than that.
pub(crate) const MAX_DIALS_IN_MINUTE: usize = 10;
/// How long the server keeps a connection after its last call, in seconds: it often recalls several files of a client.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// How long the server does not call a client that it has not reached or that has not answered, in seconds. It doubles
/// each time, so that other clients at the same address get attempts, too.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest such pause, in seconds: shorter than the time between two RENEWs, after which the server tries again.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// If connecting has left a client less time than this for its answer, in seconds, its silence does not count.
const LEAST_TIME: Duration = Duration::from_secs(5);
/// How long after a failed attempt a RENEW leads to the next one, in seconds.
const NEXT_ATTEMPT: Duration = Duration::from_secs(30);
/// The largest record that is sent to a client or taken from it, in bytes: a handle, and attributes of a file.
const MAX_CALLBACK_BYTES: usize = 16 << 10;
const MINUTE: Duration = Duration::from_secs(60);

/// Makes connections to clients of minor version 0: the program's part, which has the sockets.
pub trait Dial: Send + Sync {
    /// Connects to a client's address over TCP, from the address of the server that the client knows.
    fn dial(&self, from: IpAddr, to: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Io>>>;
}

/// The address to call a client that calls from `peer`, if the server may call the address that the client names.
pub(in crate::nfs4) fn target(said: &CallbackClient, peer: IpAddr) -> Option<SocketAddr> {
    let address = parse_universal_address(std::str::from_utf8(said.address.address.as_slice()).ok()?)?;
    // ULB-6.1-a, ULB-6.1-b: the server makes no connection over RDMA.
    let is_tcp = said.address.netid.as_slice() == Netid::tcp(&address).as_str().as_bytes();
    // ULB-6.1-c
    let is_own = address.ip().to_canonical() == peer.to_canonical() && address.port() != 0;
    (is_tcp && is_own).then_some(address)
}

/// How many connections there are to each address, and how many attempts there were.
#[derive(Default)]
struct Counts {
    all: usize,
    of: HashMap<IpAddr, usize>,
    tried: HashMap<IpAddr, VecDeque<Timestamp>>,
}

/// Makes connections, within the limits.
#[derive(Default)]
pub(crate) struct Dialler {
    dial: Option<Arc<dyn Dial>>,
    counts: Arc<Mutex<Counts>>,
}

/// The right to have one connection.
struct Permit {
    counts: Arc<Mutex<Counts>>,
    address: IpAddr,
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.all = counts.all.saturating_sub(1);
        if let Some(count) = counts.of.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.of.remove(&self.address);
            }
        }
    }
}

impl Dialler {
    pub(in crate::nfs4) fn new(dial: Option<Arc<dyn Dial>>) -> Self {
        Self { dial, counts: Arc::default() }
    }

    /// The right to one more connection, if the limits allow it.
    fn permit(&self, to: SocketAddr, now: Timestamp) -> Option<Permit> {
        let address = to.ip().to_canonical();
        let network = ClientNetwork::of(address);
        let mut counts = lock(&self.counts);
        counts.tried.retain(|_, tried| {
            tried.retain(|when| now.since(*when) < MINUTE);
            !tried.is_empty()
        });
        let of_address = counts.of.get(&address).copied().unwrap_or(0);
        let beside = counts.of.iter().filter(|(other, _)| ClientNetwork::of(**other) == network);
        let of_network: usize = beside.map(|(_, count)| count).sum();
        let tried = counts.tried.get(&address).map_or(0, VecDeque::len);
        let is_many = of_address >= MAX_DIALLED_OF_ADDRESS || of_network >= MAX_DIALLED_OF_NETWORK;
        // NFS4-7530-15-c
        if counts.all >= MAX_DIALLED || is_many || tried >= MAX_DIALS_IN_MINUTE {
            return None;
        }
        counts.all += 1;
        *counts.of.entry(address).or_default() += 1;
        counts.tried.entry(address).or_default().push_back(now);
        Some(Permit { counts: self.counts.clone(), address })
    }
}

/// A connection to a client.
struct Line {
    transport: Arc<dyn ClientTransport>,
    to: SocketAddr,
    used: Timestamp,
    _permit: Permit,
}

/// A client's connection, and whether the client answers.
#[derive(Default)]
pub(crate) struct Calls {
    /// Held while the connection is made: other calls to the same client wait for it.
    line: tokio::sync::Mutex<Option<Line>>,
    is_proven: AtomicBool,
    is_probing: AtomicBool,
    probed: Mutex<Timestamp>,
    missed: Mutex<Option<Missed>>,
}

/// An address at which the server has not reached a client, or the client has not answered.
struct Missed {
    to: SocketAddr,
    until: Timestamp,
    pause: Duration,
}

impl Calls {
    fn missed(&self) -> MutexGuard<'_, Option<Missed>> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server must not try this address for now.
    fn rests(&self, to: SocketAddr, now: Timestamp) -> bool {
        self.missed().as_ref().is_some_and(|missed| missed.to == to && now < missed.until)
    }

    /// The client was not reached there, or did not answer.
    fn miss(&self, to: SocketAddr, now: Timestamp) {
        let mut missed = self.missed();
        // Another call that has waited for the same answer has already counted this.
        if missed.as_ref().is_some_and(|missed| missed.to == to && now < missed.until) {
            return;
        }
        let again = missed.as_ref().filter(|missed| missed.to == to);
        let pause = again.map_or(FIRST_PAUSE, |missed| missed.pause.saturating_mul(2).min(LONGEST_PAUSE));
        *missed = Some(Missed { to, until: now + pause, pause });
    }

    /// The client has answered.
    fn reached(&self) {
        *self.missed() = None;
    }
}

/// Connects once: if the connection is lost, the next call makes another, within the limits.
struct Once {
    dial: Arc<dyn Dial>,
    from: IpAddr,
    to: SocketAddr,
    was_asked: AtomicBool,
}

impl Connector for Once {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        if self.was_asked.swap(true, Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(io::ErrorKind::NotConnected.into())));
        }
        self.dial.dial(self.from, self.to)
    }

    fn server(&self) -> SocketAddr {
        self.to
    }
}

impl Shared {
    /// Whether a client of minor version 0 has shown that it answers.
    pub(super) fn can_dial(&self, client: &Client<Pin>) -> bool {
        client.zero().is_ok_and(|zero| zero.calls.is_proven.load(Ordering::Acquire))
    }

    /// Finds out whether a client answers at the address that it names now.
    pub(in crate::nfs4) fn begin_dialling(self: &Arc<Self>, client: &Arc<Client<Pin>>) {
        let Ok(zero) = client.zero() else { return };
        zero.calls.is_proven.store(false, Ordering::Release);
        self.probe_dialled(client);
    }

    /// The client has sent a call: if it did not answer before, it may answer now.
    pub(in crate::nfs4) fn dial_again(self: &Arc<Self>, client: &Arc<Client<Pin>>) {
        let Ok(zero) = client.zero() else { return };
        let probed = *zero.calls.probed.lock().unwrap_or_else(PoisonError::into_inner);
        if !zero.calls.is_proven.load(Ordering::Acquire) && self.now().since(probed) >= NEXT_ATTEMPT {
            self.probe_dialled(client);
        }
    }

    fn probe_dialled(self: &Arc<Self>, client: &Arc<Client<Pin>>) {
        let Ok(zero) = client.zero() else { return };
        let is_called = self.dialler.dial.is_some() && zero.callback().is_some_and(|said| said.to.is_some());
        if !is_called || zero.calls.is_probing.swap(true, Ordering::AcqRel) {
            return;
        }
        *zero.calls.probed.lock().unwrap_or_else(PoisonError::into_inner) = self.now();
        let (shared, client) = (self.clone(), client.clone());
        self.tasks.spawn(async move {
            let Ok(zero) = client.zero() else { return };
            let said = zero.callback();
            let answers = shared.answers_dialled(&client, said.as_deref()).await;
            zero.calls.is_proven.store(answers, Ordering::Release);
            zero.calls.is_probing.store(false, Ordering::Release);
            // The client has named another address meanwhile.
            if zero.callback() != said {
                shared.begin_dialling(&client);
            }
        });
    }

    /// CB_NULL.
    async fn answers_dialled(self: &Arc<Self>, client: &Arc<Client<Pin>>, said: Option<&Callback>) -> bool {
        let Some(said) = said else { return false };
        let until = self.now() + ANSWER_TIME;
        let (Ok(zero), Ok((transport, _))) = (client.zero(), self.line(client, said, until).await) else {
            return false;
        };
        let begun = self.now();
        self.observe(|observer| observer.callback(None, CallbackEvent::Sent));
        let rpc = RpcClient::new(transport.clone(), Arc::new(NoAuth), said.client.program, VERSION);
        let answered = match select(pin!(rpc.null()), self.clock.sleep_until(until)).await {
            Either::Left((answer, _)) => answer.is_ok(),
            Either::Right(_) => false,
        };
        self.observe(|observer| {
            observer.callback(None, if answered { CallbackEvent::Answered } else { CallbackEvent::Lost })
        });
        if answered {
            zero.calls.reached();
        } else if self.now() < until || until.since(begun) >= LEAST_TIME {
            self.missed(client, said, &transport).await;
        }
        answered
    }

    /// CB_COMPOUND.
    // NFS4-7530-15-a
    pub(super) async fn call_dialled(
        self: &Arc<Self>,
        client: &Arc<Client<Pin>>,
        ops: &[Args],
    ) -> Result<Vec<Outcome>, NoAnswer> {
        let zero = client.zero().map_err(|_| NoAnswer::NoPath)?;
        let said = zero.callback().ok_or(NoAnswer::NoPath)?;
        let until = self.now() + ANSWER_TIME;
        let mut is_first = true;
        loop {
            let (transport, is_new) = match self.line(client, &said, until).await {
                Ok(line) => line,
                Err(why) => {
                    // The client answered before, and cannot be reached now: RENEW reports that, and then the server
                    // tries again.
                    zero.calls.is_proven.store(false, Ordering::Release);
                    return Err(why);
                }
            };
            for op in ops {
                self.observe(|observer| observer.callback(Some(op.op()), CallbackEvent::Sent));
            }
            let begun = self.now();
            match self.exchange_dialled(transport.clone(), &said, ops, until).await {
                Ok(outcomes) => {
                    zero.calls.is_proven.store(true, Ordering::Release);
                    zero.calls.reached();
                    return Ok(outcomes);
                }
                Err(Failed::Refused(status)) => return Err(NoAnswer::Refused(status)),
                // The client may have ended an idle connection. The operations of this call may be executed twice.
                Err(Failed::Lost) if is_first && !is_new => {
                    Self::hang_up(client, &transport).await;
                    is_first = false;
                }
                // Connecting took most of the time.
                Err(Failed::Late) if until.since(begun) < LEAST_TIME => return Err(NoAnswer::Lost),
                Err(Failed::Lost | Failed::Late) => {
                    self.missed(client, &said, &transport).await;
                    zero.calls.is_proven.store(false, Ordering::Release);
                    return Err(NoAnswer::Lost);
                }
            }
        }
    }

    // NFS4-7530-15-b
    async fn exchange_dialled(
        &self,
        transport: Arc<dyn ClientTransport>,
        said: &Callback,
        ops: &[Args],
        until: Timestamp,
    ) -> Result<Vec<Outcome>, Failed> {
        let arguments = Arguments::new(0, said.ident, ops.to_vec());
        let shape = ReplyShape::inline(arguments.largest_results());
        let mut encoder = rpcrdma_xdr::Encoder::new();
        rpcrdma_xdr::Encode::encode(&arguments, &mut encoder);
        // Linux's client wants a user for all but CB_NULL.
        let flavour: Arc<dyn ClientFlavour> = Arc::new(SysAuth::new(SysCredential::default()));
        let rpc = RpcClient::new(transport, flavour, said.client.program, VERSION);
        let calling = rpc.call(Arguments::PROCEDURE, encoder.finish(), shape);
        let answer = match select(pin!(calling), self.clock.sleep_until(until)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => return Err(Failed::Late),
        };
        let results = match answer.and_then(|results| results.decode::<Results>()) {
            Ok(results) => results,
            Err(CallError::Rejected(_)) => return Err(Failed::Refused(Status::SERVERFAULT)),
            Err(_) => return Err(Failed::Lost),
        };
        if results.results.is_empty() && results.status != Status::OK {
            return Err(Failed::Refused(results.status));
        }
        matching(ops, results.status, results.results).ok_or(Failed::Lost)
    }

    /// The connection to a client, and whether it is new.
    async fn line(
        self: &Arc<Self>,
        client: &Arc<Client<Pin>>,
        said: &Callback,
        until: Timestamp,
    ) -> Result<(Arc<dyn ClientTransport>, bool), NoAnswer> {
        let (Some(to), Ok(zero)) = (said.to, client.zero()) else { return Err(NoAnswer::NoPath) };
        // The call that makes the connection may need all the time that this call has.
        let mut line = match select(pin!(zero.calls.line.lock()), self.clock.sleep_until(until)).await {
            Either::Left((line, _)) if self.now() < until => line,
            _ => return Err(NoAnswer::NoPath),
        };
        if let Some(known) = line.as_mut().filter(|known| known.to == to) {
            known.used = self.now();
            return Ok((known.transport.clone(), false));
        }
        *line = None;
        let dial = self.dialler.dial.clone().ok_or(NoAnswer::NoPath)?;
        // NFS4-7530-15-c
        if zero.calls.rests(to, self.now()) {
            return Err(NoAnswer::NoPath);
        }
        let permit = self.dialler.permit(to, self.now()).ok_or(NoAnswer::NoPath)?;
        let connector = Arc::new(Once { dial, from: said.from, to, was_asked: AtomicBool::new(false) });
        let mut options = tcp::ClientOptions::default();
        options.max_record = MAX_CALLBACK_BYTES;
        (options.connect, options.outage) = (ANSWER_TIME, Duration::ZERO);
        (options.first_answer, options.first_sign) = (ANSWER_TIME, ANSWER_TIME);
        options.service = "NFS callbacks";
        let env = Env { clock: self.clock.clone(), random: self.state.random() };
        let connecting = pin!(tcp::connect(connector, Arc::new(Heap), &env, options));
        let made = match select(connecting, self.clock.sleep_until(until)).await {
            Either::Left((made, _)) => made,
            Either::Right(_) => {
                zero.calls.miss(to, self.now());
                return Err(NoAnswer::NoPath);
            }
        };
        let (transport, driver) = made.map_err(|error| {
            tracing::debug!(%to, %error, "a client cannot be called");
            zero.calls.miss(to, self.now());
            NoAnswer::NoPath
        })?;
        self.tasks.spawn(driver);
        let transport: Arc<dyn ClientTransport> = transport;
        *line = Some(Line { transport: transport.clone(), to, used: self.now(), _permit: permit });
        drop(line);
        self.tasks.spawn(end_when_idle(self.clock.clone(), Arc::downgrade(client)));
        Ok((transport, true))
    }

    /// A client does not answer: the server does not call it for a while, and then over another connection.
    async fn missed(&self, client: &Client<Pin>, said: &Callback, transport: &Arc<dyn ClientTransport>) {
        if let (Ok(zero), Some(to)) = (client.zero(), said.to) {
            zero.calls.miss(to, self.now());
        }
        Self::hang_up(client, transport).await;
    }

    /// Ends a connection that is useless.
    async fn hang_up(client: &Client<Pin>, transport: &Arc<dyn ClientTransport>) {
        let Ok(zero) = client.zero() else { return };
        let mut line = zero.calls.line.lock().await;
        if line.as_ref().is_some_and(|known| Arc::ptr_eq(&known.transport, transport)) {
            *line = None;
        }
    }
}

/// Why there is no answer.
enum Failed {
    /// The connection has ended, or the client has sent something that is not a reply.
    Lost,
    /// The time is over.
    Late,
    Refused(Status),
}

/// Ends a client's connection when it was not used for a while.
async fn end_when_idle(clock: Arc<dyn rpcrdma_env::Clock>, client: Weak<Client<Pin>>) {
    let mut due = clock.now() + IDLE_TIME;
    loop {
        clock.sleep_until(due).await;
        let Some(client) = client.upgrade() else { return };
        let Ok(zero) = client.zero() else { return };
        let mut line = zero.calls.line.lock().await;
        match &*line {
            None => return,
            Some(known) if clock.now().since(known.used) >= IDLE_TIME => {
                *line = None;
                return;
            }
            Some(known) => due = known.used + IDLE_TIME,
        }
    }
}

#[cfg(test)]
mod tests;
