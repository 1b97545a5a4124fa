//! A simulated host's provider: connecting, listening, accepting.

use crate::{config::SimConfig, executor::lock, queue_pair::SimQueuePair, state::Shared};
use bytes::Bytes;
use rpcrdma_env::{Allocator, BoxFuture};
use rpcrdma_fabric::{
    AcceptError, Capabilities, ConnectError, Connected, ConnectionInfo, ConnectionParams, Fabric, Incoming,
    ListenError, Listener, Pending, ReceivePool, Receives, RefusedReason, SharedReceives, pool::Pool,
};
use std::{
    future::{Future, poll_fn},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// The time-out for setting a connection up, in seconds.
pub(crate) const SETUP_SECONDS: u64 = 10;

/// One host's provider. Clones are providers of the same host.
#[derive(Clone)]
pub struct SimFabric {
    shared: Arc<Shared>,
    ip: IpAddr,
    config: Arc<SimConfig>,
    pool: Pool,
}

impl SimFabric {
    pub(crate) fn new(shared: Arc<Shared>, ip: IpAddr, config: SimConfig) -> Self {
        lock(&shared.state).host(ip);
        Self { shared, ip, config: Arc::new(config), pool: Pool::new() }
    }

    /// The host's address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }
}

impl std::fmt::Debug for SimFabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimFabric").field("ip", &self.ip).finish_non_exhaustive()
    }
}

/// Whether the provider can do what a new connection's parameters ask for.
fn check(capabilities: &Capabilities, params: &ConnectionParams) -> Result<(), RefusedReason> {
    check_private_data(capabilities, &params.private_data)?;
    match &params.receives {
        Receives::Own(buffers) if buffers.len() > capabilities.max_receives => {
            Err(RefusedReason::Limit { what: "receives", max: capabilities.max_receives })
        }
        Receives::Shared(_) if !capabilities.shared_receives => Err(RefusedReason::Unsupported("a receive pool")),
        _ => Ok(()),
    }
}

fn check_private_data(capabilities: &Capabilities, private_data: &Bytes) -> Result<(), RefusedReason> {
    let max = capabilities.max_private_data;
    if private_data.len() > max {
        return Err(RefusedReason::Limit { what: "private data", max });
    }
    Ok(())
}

impl Fabric for SimFabric {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.config.capabilities
    }

    fn pool(&self) -> Arc<dyn Allocator> {
        Arc::new(self.pool.clone())
    }

    fn receive_pool(&self) -> Option<Arc<dyn ReceivePool>> {
        self.config.capabilities.shared_receives.then(|| SharedReceives::new() as Arc<dyn ReceivePool>)
    }

    fn connect(&self, peer: SocketAddr, params: ConnectionParams) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        Box::pin(async move {
            check(&self.config.capabilities, &params).map_err(ConnectError::Misuse)?;
            let connection = {
                let mut state = lock(&self.shared.state);
                if state.is_down(self.ip) {
                    return Err(ConnectError::Io { peer, error: io::ErrorKind::NetworkDown.into() });
                }
                let local = SocketAddr::new(self.ip, state.free_port(self.ip));
                state.request(local, peer, self.config.clone(), params)
            };
            let connecting = ConnectFuture { shared: self.shared.clone(), connection };
            let (id, info) = connecting.await?;
            Ok(SimQueuePair::boxed(self.shared.clone(), id, info, self.config.clone()))
        })
    }

    fn listen(&self, local: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, ListenError>> {
        Box::pin(async move {
            let fail = |kind: io::ErrorKind| ListenError::Io { local, error: kind.into() };
            if !local.ip().is_unspecified() && local.ip() != self.ip {
                return Err(fail(io::ErrorKind::AddrNotAvailable));
            }
            let mut state = lock(&self.shared.state);
            if state.is_down(self.ip) {
                return Err(fail(io::ErrorKind::NetworkDown));
            }
            let port = if local.port() == 0 { state.free_port(self.ip) } else { local.port() };
            let number = state.next_connection;
            state.next_connection += 1;
            let host = state.host(self.ip);
            if host.listeners.contains_key(&port) {
                return Err(fail(io::ErrorKind::AddrInUse));
            }
            host.listeners.entry(port).or_default().number = number;
            drop(state);
            let local = SocketAddr::new(self.ip, port);
            let listener = SimListener { shared: self.shared.clone(), local, number, config: self.config.clone() };
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }
}

/// Waits for a connection's set-up. Dropping the future gives up the connection.
struct ConnectFuture {
    shared: Arc<Shared>,
    connection: u64,
}

impl Future for ConnectFuture {
    type Output = Result<(u64, ConnectionInfo), ConnectError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        lock(&self.shared.state).poll_connect(self.connection, cx)
    }
}

impl Drop for ConnectFuture {
    fn drop(&mut self) {
        lock(&self.shared.state).stop_connecting(self.connection);
    }
}

struct SimListener {
    shared: Arc<Shared>,
    local: SocketAddr,
    number: u64,
    config: Arc<SimConfig>,
}

impl Listener for SimListener {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Stays pending for ever once the host has crashed.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Pending>, AcceptError>> {
        let mut state = lock(&self.shared.state);
        let listeners = &mut state.host(self.local.ip()).listeners;
        let own = listeners.get_mut(&self.local.port()).filter(|listener| listener.number == self.number);
        let Some(listener) = own else { return Poll::Pending };
        let Some(connection) = listener.backlog.pop_front() else {
            listener.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let Some(info) = state.request_info(connection) else {
            return Poll::Ready(Err(AcceptError::Io(io::ErrorKind::ConnectionAborted.into())));
        };
        drop(state);
        let (shared, config) = (self.shared.clone(), self.config.clone());
        Poll::Ready(Ok(Box::new(Request { shared, connection, info, config, answered: false })))
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        let listeners = &mut state.host(self.local.ip()).listeners;
        if listeners.get(&self.local.port()).is_none_or(|listener| listener.number != self.number) {
            return;
        }
        let waiting = listeners.remove(&self.local.port()).map(|listener| listener.backlog).unwrap_or_default();
        for connection in waiting {
            state.answer_not(connection, |peer| ConnectError::Refused { peer });
        }
    }
}

/// A connection request, before and after it has been read.
struct Request {
    shared: Arc<Shared>,
    connection: u64,
    info: ConnectionInfo,
    config: Arc<SimConfig>,
    answered: bool,
}

impl Pending for Request {
    fn peer(&self) -> SocketAddr {
        self.info.peer
    }

    /// Takes some time, during which other requests can be accepted.
    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Incoming>, AcceptError>> {
        Box::pin(async move {
            let mut until = None;
            poll_fn(|cx| {
                let mut state = lock(&self.shared.state);
                let now = state.now;
                let until = *until.get_or_insert_with(|| now + self.config.link.delay(&state.random, 0));
                if now >= until {
                    return Poll::Ready(());
                }
                let waker = cx.waker().clone();
                state.after(until - now, move |_| waker.wake());
                Poll::Pending
            })
            .await;
            Ok(self as Box<dyn Incoming>)
        })
    }
}

impl Incoming for Request {
    fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    fn accept(mut self: Box<Self>, params: ConnectionParams) -> BoxFuture<'static, Result<Connected, AcceptError>> {
        Box::pin(async move {
            check(&self.config.capabilities, &params).map_err(AcceptError::Misuse)?;
            let info = lock(&self.shared.state)
                .answer(self.connection, &self.config, params)
                .ok_or_else(|| AcceptError::Io(io::ErrorKind::ConnectionReset.into()))?;
            self.answered = true;
            Ok(SimQueuePair::boxed(self.shared.clone(), 2 * self.connection + 1, info, self.config.clone()))
        })
    }

    fn reject(mut self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), AcceptError>> {
        Box::pin(async move {
            check_private_data(&self.config.capabilities, &private_data).map_err(AcceptError::Misuse)?;
            let mut state = lock(&self.shared.state);
            state.answer_not(self.connection, move |peer| ConnectError::Rejected { peer, private_data });
            drop(state);
            self.answered = true;
            Ok(())
        })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.answered {
            lock(&self.shared.state).answer_not(self.connection, |peer| ConnectError::Io {
                peer,
                error: io::ErrorKind::ConnectionReset.into(),
            });
        }
    }
}
