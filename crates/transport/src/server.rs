//! A server's connections.
//!
//! Each connection has a driver, which owns it and the calls under way on it, and nothing of other connections. The
//! driver completes when the connection is over and every dispatched call has run to its end. A peer's mistake ends
//! only its own connection.

use crate::{
    ConnectionError, ExtensionChannel, Observer, RdmaTransport, ServerMemory, ServerOptions,
    calls::{Caller, Calls, Command},
    client::params,
    extension::{Port, Unclaimed, claim},
    service::{Refusals, Service, ServiceParts},
    session::{Parts, Session},
};
use rpcrdma_engine::Versions;
use rpcrdma_env::{BoxFuture, Env};
use rpcrdma_fabric::{AcceptError, Capabilities, Fabric, Pending};
use rpcrdma_oncrpc::{
    CallContext, Connection, GivingUp, GoneSignal, Handler, Limits, TransportError, TransportKind, XidSource,
};
use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::sync::{mpsc, watch};

/// What all connections of a server share.
pub struct Server {
    handler: Arc<dyn Handler>,
    memory: ServerMemory,
    capabilities: Capabilities,
    env: Env,
    options: ServerOptions,
    observer: Arc<dyn Observer>,
}

impl Server {
    /// A server whose calls `handler` executes.
    pub fn new(
        fabric: &dyn Fabric,
        handler: Arc<dyn Handler>,
        memory: ServerMemory,
        env: Env,
        options: ServerOptions,
        observer: Arc<dyn Observer>,
    ) -> Arc<Self> {
        Arc::new(Self { handler, memory, capabilities: fabric.capabilities().clone(), env, options, observer })
    }

    /// Sets up a connection, within the provider's time-out. Returns its handle, and the driver that serves it.
    ///
    /// # Errors
    /// If the peer does not finish the set-up, or breaks a rule of it, or if there is no memory for the connection's
    /// first receives. The peer is then refused.
    pub async fn accept(
        self: Arc<Self>,
        pending: Box<dyn Pending>,
    ) -> Result<(ConnectionHandle, ServerDriver), AcceptError> {
        let memory = self.memory.clone();
        self.accept_with(pending, memory).await
    }

    /// As [`accept`](Self::accept), with memory for this connection alone: a share of the server's memory, so that one
    /// client leaves some to others.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_with(
        self: Arc<Self>,
        pending: Box<dyn Pending>,
        memory: ServerMemory,
    ) -> Result<(ConnectionHandle, ServerDriver), AcceptError> {
        let observer = self.observer.clone();
        self.accept_observed(pending, memory, observer).await
    }

    /// As [`accept_with`](Self::accept_with), with an observer for this connection alone, which gets its events instead
    /// of the server's observer.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_observed(
        self: Arc<Self>,
        pending: Box<dyn Pending>,
        memory: ServerMemory,
        observer: Arc<dyn Observer>,
    ) -> Result<(ConnectionHandle, ServerDriver), AcceptError> {
        let incoming = pending.request().await?;
        let config = self.options.config(&self.capabilities);
        let params = params(&config, &self.capabilities, self.options.ord.max(1), &*memory.receives);
        let params = params.ok_or_else(|| AcceptError::Io(io::ErrorKind::OutOfMemory.into()))?;
        let qp = incoming.accept(params).await?;

        let info = qp.info().clone();
        let (signal, gone) = GoneSignal::new();
        let id = self.options.connection_ids.next_id();
        let limits = Limits::new(self.options.max_message, self.options.max_message);
        let results = memory.results;
        let mut connection = Connection::new(info.peer, info.local, id, TransportKind::Rdma, limits, results, gone);
        let xids = Arc::new(XidSource::new(&*self.env.random));
        let (mut commands, mut giving_up) = (None, None);
        if config.credits_wanted > 0 {
            let max_message = match config.versions {
                Versions::One => config.send_bytes as usize,
                _ => self.options.max_message,
            };
            let (caller, receiver) = Caller::new(xids.clone(), info.peer, max_message);
            giving_up = Some(caller.giving_up.clone());
            connection = connection.with_reverse(Arc::new(RdmaTransport::new(caller)));
            commands = Some(receiver);
        }
        let refusals = Refusals::new(self.options.refused.clone(), self.env.clock.clone(), info.peer.ip());
        let service = Service::new(ServiceParts {
            handler: self.handler.clone(),
            context: CallContext::new(Arc::new(connection)),
            arguments: memory.arguments.clone(),
            stall: self.options.stall,
            clock: self.env.clock.clone(),
            signal,
            refusals: Some(refusals),
        });
        let (extension, port) = self.options.extension.is_some().then(|| Port::new(id)).unzip();
        let session = Session::new(Parts {
            qp,
            config,
            receives: memory.receives.clone(),
            arguments: Some(memory.arguments.clone()),
            env: self.env.clone(),
            observer,
            stall: self.options.stall,
            service: Some(service),
            port,
        });
        let (drain, mut draining) = watch::channel(false);
        let driver = ServerDriver {
            session,
            calls: Calls::new(memory.receives.clone(), info.peer, xids),
            commands,
            giving_up,
            drain: Box::pin(async move {
                if draining.wait_for(|draining| *draining).await.is_err() {
                    // No handle is left that could ask the driver to drain.
                    std::future::pending::<()>().await;
                }
            }),
            draining: false,
            ended: None,
            client: info.peer.ip(),
            rest: None,
        };
        let extension = Arc::new(Unclaimed::new(extension));
        Ok((ConnectionHandle { drain: Arc::new(drain), peer: info.peer, id, extension }, driver))
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Controls a connection's driver. Dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct ConnectionHandle {
    drain: Arc<watch::Sender<bool>>,
    peer: SocketAddr,
    id: u64,
    extension: Arc<Unclaimed>,
}

impl ConnectionHandle {
    /// The connection's channel of the extension of version 2 in the options. Only the first caller gets it.
    pub fn take_extension(&self) -> Option<ExtensionChannel> {
        claim(&self.extension)
    }

    /// Executes no further call of the peer; answers dispatched calls, and then closes the connection.
    pub fn drain(&self) {
        self.drain.send_replace(true);
    }

    /// The client's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection's number among all that share [`ServerOptions::connection_ids`].
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// Serves a connection. Dropping it closes the connection and drops its calls.
#[must_use = "nothing happens unless the driver is polled"]
pub struct ServerDriver {
    session: Session,
    /// Calls of ours in the reverse direction.
    calls: Calls,
    commands: Option<mpsc::UnboundedReceiver<Command>>,
    /// Whether a caller wants to end the connection.
    giving_up: Option<Arc<GivingUp>>,
    drain: BoxFuture<'static, ()>,
    draining: bool,
    ended: Option<Result<(), ConnectionError>>,
    client: IpAddr,
    /// After the connection's end: the service, which still executes dispatched calls.
    rest: Option<Service>,
}

impl ServerDriver {
    fn command(&mut self, command: Command) {
        match command {
            Command::Call(call) => {
                let id = call.id;
                if self.calls.add(call) {
                    self.session.call(id, &mut self.calls);
                }
            }
            Command::Cancel(id, canceller) => {
                self.calls.cancelling(id, canceller);
                self.session.cancel(id);
            }
            Command::Forget(id) => self.session.forget(id),
        }
    }

    fn poll_session(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        while let Some(Poll::Ready(command)) = self.commands.as_mut().map(|commands| commands.poll_recv(cx)) {
            match command {
                Some(command) => self.command(command),
                None => self.commands = None,
            }
        }
        if let Some(Poll::Ready(why)) = self.giving_up.as_ref().map(|giving_up| giving_up.poll(cx)) {
            self.giving_up = None;
            self.session.close(Some(ConnectionError::GivenUp(why)));
        }
        if !self.draining && self.drain.as_mut().poll(cx).is_ready() {
            self.draining = true;
            self.session.drain();
        }
        loop {
            let polled = self.session.poll(cx, &mut self.calls);
            if polled.is_pending() && self.draining && self.session.is_quiet() && !self.session.is_closing() {
                self.session.close(None);
                continue;
            }
            return polled;
        }
    }
}

impl Future for ServerDriver {
    type Output = Result<(), ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.ended.is_none() {
            let ended = ready!(this.poll_session(cx));
            this.session.unanswered(&mut this.calls);
            this.calls.fail_all(&TransportError::Closed);
            // Callers in the reverse direction now find the channel closed.
            this.commands = None;
            let (service, port) = this.session.give_back();
            drop(port);
            this.rest = service;
            this.ended = Some(ended);
        }
        if let Some(service) = &mut this.rest {
            ready!(service.poll_rest(cx));
        }
        Poll::Ready(this.ended.take().unwrap_or(Ok(())))
    }
}

impl std::fmt::Debug for ServerDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServerDriver({})", self.client)
    }
}
