//! The server's calls to lockd and statd of its clients, with sockets of the host: [`Outside`].
//!
//! Each call first asks the client's portmapper for the port, over the same transport, unless it has asked not long
//! ago. Then it calls, from the address by which the client knows the server. It uses only the port of the portmapper's
//! answer: a call always goes to the client's own address. Linux's lockd checks the address from which a GRANTED comes
//! and not the port; its statd checks the address or the name in a notice. Other clients want a port below 1024, so
//! that calls come from such a port if this process may bind one.
//!
//! Calls under way are limited, in total and for each address and network ([`places`]); a call above the limit fails at
//! once. All of this runs on the main threads, so that no serving thread waits for it.

mod lines;
mod places;
mod reserved;

use bytes::Bytes;
use lines::Lines;
use places::Places;
use rpcrdma_env::{BoxFuture, Env};
use rpcrdma_nfsd::{Outside, OutsideCall, OutsideError, OutsideTransport};
use rpcrdma_oncrpc::{
    CallError, Client, ClientTransport, Netid, Rejection, ReplyShape, SysAuth, SysCredential, TransportError,
    rpcbind::{Protocol, RPCBIND_PORT, Rpcbind},
    udp::{UdpClientOptions, UdpTransport},
};
use rpcrdma_xdr::Payload;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, task::JoinHandle};

/// How long a port is remembered: a client's lockd may have another one after a restart.
const PORT_LIFETIME: Duration = Duration::from_secs(60);
/// The most ports that are remembered, in number.
const MAX_PORTS: usize = 512;
/// The largest results that are taken from a client, in bytes: a name, a cookie and some numbers.
const MAX_RESULT_BYTES: usize = 4096;

/// A service of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    host: IpAddr,
    transport: OutsideTransport,
    program: u32,
    version: u32,
}

impl Asked {
    fn of(call: &OutsideCall) -> Self {
        let OutsideCall { transport, program, version, .. } = *call;
        Self { host: call.to, transport, program, version }
    }
}

/// Calls with sockets of the host.
pub(super) struct Sockets {
    /// The runtime in which they run.
    runtime: Handle,
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    places: Arc<Places>,
    lines: Arc<Lines>,
    ports: Mutex<HashMap<Asked, (u16, Instant)>>,
    /// The port of the portmappers.
    portmapper: u16,
    /// The identity with which the server calls, for clients that check it.
    flavour: Arc<SysAuth>,
}

/// Aborts the task when the caller no longer waits for it.
struct Running(JoinHandle<Result<Bytes, OutsideError>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Sockets {
    /// Calls that run in this runtime, and whose credential names this host.
    pub(super) fn new(runtime: Handle, name: Bytes, env: &Env) -> Self {
        Self::with_portmapper(runtime, name, env, RPCBIND_PORT)
    }

    fn with_portmapper(runtime: Handle, name: Bytes, env: &Env, portmapper: u16) -> Self {
        let credential = SysCredential { machine: name, ..SysCredential::default() };
        let inner = Inner {
            env: env.clone(),
            places: Arc::default(),
            lines: Arc::default(),
            ports: Mutex::default(),
            portmapper,
            flavour: Arc::new(SysAuth::new(credential)),
        };
        Self { runtime, inner: Arc::new(inner) }
    }
}

impl Outside for Sockets {
    fn call(&self, mut to: OutsideCall) -> BoxFuture<'static, Result<Bytes, OutsideError>> {
        to.to = to.to.to_canonical();
        let Some(place) = self.inner.places.enter(to.to) else {
            return Box::pin(std::future::ready(Err(OutsideError::Busy)));
        };
        let inner = self.inner.clone();
        let mut running = Running(self.runtime.spawn(async move {
            let _place = place;
            let done = tokio::time::timeout(to.limit, inner.call(&to)).await;
            done.unwrap_or(Err(OutsideError::NoAnswer(to.limit)))
        }));
        Box::pin(async move {
            let done = (&mut running.0).await;
            done.unwrap_or_else(|_| Err(OutsideError::Unreachable("the server is about to end".into())))
        })
    }
}

impl Inner {
    fn ports(&self) -> MutexGuard<'_, HashMap<Asked, (u16, Instant)>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(&self, call: &OutsideCall) -> Result<Bytes, OutsideError> {
        let (asked, begun) = (Asked::of(call), Instant::now());
        let known = self.ports().get(&asked).filter(|(_, when)| when.elapsed() < PORT_LIFETIME).map(|(port, _)| *port);
        if let Some(port) = known {
            // The host may have restarted: then the port is asked for again.
            match self.call_at(call, port, call.limit / 2).await {
                Err(error) if is_of_the_port(&error) => drop(self.ports().remove(&asked)),
                done => return done.map_err(|error| told(&error, call.limit)),
            }
        }
        let port = self.ask(call).await?;
        self.remember(asked, port);
        // The call must fail before the caller's time is over, so that its connection ends, too.
        let left = call.limit.saturating_sub(begun.elapsed()) * 9 / 10;
        self.call_at(call, port, left).await.map_err(|error| {
            if is_of_the_port(&error) {
                self.ports().remove(&asked);
            }
            told(&error, call.limit)
        })
    }

    fn remember(&self, asked: Asked, port: u16) {
        let mut ports = self.ports();
        if ports.len() >= MAX_PORTS {
            ports.retain(|_, (_, when)| when.elapsed() < PORT_LIFETIME);
        }
        if ports.len() < MAX_PORTS {
            ports.insert(asked, (port, Instant::now()));
        }
    }

    /// The port of the program that is called, by the host's portmapper. Its version 2 knows no IPv6.
    async fn ask(&self, call: &OutsideCall) -> Result<u16, OutsideError> {
        let OutsideCall { from, to, transport, program, version, limit, .. } = *call;
        let at = SocketAddr::new(to, self.portmapper);
        let failed = |error: CallError| told(&error, limit);
        let (transport, protocol, netid) = match transport {
            OutsideTransport::Udp => {
                (self.datagrams(from, at, limit / 2, false).map_err(failed)?, Protocol::Udp, Netid::udp(&at))
            }
            OutsideTransport::Tcp => {
                (self.lines.once(from, at, &self.env, limit).await.map_err(failed)?, Protocol::Tcp, Netid::tcp(&at))
            }
        };
        let portmapper = Rpcbind::new(transport);
        let by_address = || async {
            let found = portmapper.address(program, version, netid).await;
            found.map(|found| found.map(|at| at.port()))
        };
        let port = match to {
            IpAddr::V4(_) => match portmapper.port_over(protocol, program, version).await {
                Err(CallError::Rejected(Rejection::ProgramMismatch { .. })) => by_address().await,
                other => other,
            },
            IpAddr::V6(_) => by_address().await,
        };
        port.map_err(failed)?.filter(|port| *port != 0).ok_or(OutsideError::NotRegistered)
    }

    fn datagrams(
        &self,
        from: IpAddr,
        to: SocketAddr,
        limit: Duration,
        reserved: bool,
    ) -> Result<Arc<dyn ClientTransport>, CallError> {
        let mut options = UdpClientOptions::default();
        options.limit = limit;
        let socket = reserved::datagrams(from, to, reserved);
        let socket = socket.map_err(|error| TransportError::Unreachable { server: to, source: Arc::new(error) })?;
        Ok(Arc::new(UdpTransport::new(socket, to, &self.env, options)))
    }

    async fn call_at(&self, call: &OutsideCall, port: u16, limit: Duration) -> Result<Bytes, CallError> {
        let at = SocketAddr::new(call.to, port);
        let (transport, line) = match call.transport {
            OutsideTransport::Udp => (self.datagrams(call.from, at, limit, true)?, None),
            OutsideTransport::Tcp => {
                let line = self.lines.get(call.from, at, &self.env, limit).await?;
                (line.clone(), Some(line))
            }
        };
        let client = Client::new(transport, self.flavour.clone(), call.program, call.version);
        let mut arguments = Payload::new();
        arguments.push_run(call.arguments.clone());
        let calling = client.call(call.procedure, arguments, ReplyShape::inline(MAX_RESULT_BYTES));
        // A silent connection is of no use to the next call either.
        let done = match tokio::time::timeout(limit, calling).await {
            Ok(done) => done,
            Err(_) => Err(TransportError::NotAnswered { server: at, after: limit }.into()),
        };
        let is_lost = matches!(done, Err(CallError::Transport(_)));
        if let Some(line) = line.filter(|_| is_lost) {
            self.lines.end(call.from, at, &line).await;
        }
        let mut results = done?.decoder;
        Ok(results.opaque_fixed(results.remaining())?)
    }
}

/// Whether the port may be out of date, so that the portmapper should be asked again.
fn is_of_the_port(error: &CallError) -> bool {
    matches!(error, CallError::Transport(_) | CallError::Rejected(Rejection::ProgramUnavailable))
}

fn told(error: &CallError, limit: Duration) -> OutsideError {
    match error {
        CallError::Transport(TransportError::NotAnswered { .. } | TransportError::SaysNothing { .. }) => {
            OutsideError::NoAnswer(limit)
        }
        CallError::Transport(error) => OutsideError::Unreachable(super::thread::describe(error)),
        error => OutsideError::Refused(super::thread::describe(error)),
    }
}

#[cfg(test)]
mod tests;
