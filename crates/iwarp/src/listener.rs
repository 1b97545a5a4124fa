//! Listening, and the responder's side of the set-up.
//!
//! A listener waits only for TCP's accept. A slow or hostile peer can delay only the futures of its own [`Pending`] and
//! [`Incoming`], and each of them only for the set-up's time-out. Until then a peer costs one socket and at most one
//! frame.

use crate::{
    config::LISTEN_BACKLOG,
    fabric::Shared,
    net::{FrameError, Wire},
    protocol::{
        Fault, Role,
        mpa::{Frame, Kind},
        negotiation,
    },
};
use bytes::Bytes;
use rpcrdma_env::BoxFuture;
use rpcrdma_fabric::{
    AcceptError, Connected, ConnectionInfo, ConnectionParams, Incoming, Listener, Pending, check_private_data, within,
};
use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub(crate) struct IwarpListener {
    shared: Arc<Shared>,
    listener: TcpListener,
    local: SocketAddr,
}

impl IwarpListener {
    pub(crate) fn bind(shared: Arc<Shared>, local: SocketAddr) -> io::Result<Self> {
        let socket = if local.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A server that restarts finds its port free although TCP still knows old connections.
        socket.set_reuseaddr(true)?;
        socket.bind(local)?;
        Self::over(shared, socket.listen(LISTEN_BACKLOG)?)
    }

    pub(crate) fn over(shared: Arc<Shared>, listener: TcpListener) -> io::Result<Self> {
        let local = listener.local_addr()?;
        Ok(IwarpListener { shared, listener, local })
    }
}

impl Listener for IwarpListener {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Pending>, AcceptError>> {
        let (stream, peer) = ready!(self.listener.poll_accept(cx)).map_err(AcceptError::Io)?;
        Poll::Ready(Ok(Box::new(Knock { shared: self.shared.clone(), stream, peer })))
    }
}

/// A peer whose request we have not read yet.
struct Knock {
    shared: Arc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
}

/// The result of `future`, or an error after the set-up's time-out.
async fn timed<T>(shared: &Shared, future: impl Future<Output = Result<T, AcceptError>>) -> Result<T, AcceptError> {
    let limit = shared.config.setup_timeout;
    match within(&*shared.env.clock, limit, future).await {
        Some(result) => result,
        None => Err(AcceptError::TimedOut { seconds: limit.as_secs() }),
    }
}

fn broken(fault: Fault) -> AcceptError {
    AcceptError::Violation(fault.violation())
}

impl Pending for Knock {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Incoming>, AcceptError>> {
        let Knock { shared, stream, peer } = *self;
        Box::pin(async move {
            let mut wire = Wire::new(stream, &shared.config, false).map_err(AcceptError::Io)?;
            let read = async {
                let request = wire.read_frame(Kind::Request).await.map_err(|error| match error {
                    FrameError::Io(error) => AcceptError::Io(error),
                    FrameError::Fault(fault) => broken(fault),
                })?;
                if let Err(fault) = negotiation::check_request(&request) {
                    let reply = negotiation::reject(&request, &[]).encode(Kind::Reply);
                    wire.write_all(&reply).await.map_err(AcceptError::Io)?;
                    return Err(broken(fault));
                }
                Ok(request)
            };
            let mut request = timed(&shared, read).await?;
            let open = (shared.capabilities.max_ird, shared.capabilities.max_ord);
            let (ird, ord) = negotiation::wishes(&request, open);
            let info = ConnectionInfo {
                local: wire.stream.local_addr().map_err(AcceptError::Io)?,
                peer,
                private_data: Bytes::from(std::mem::take(&mut request.private_data)),
                ird,
                ord,
            };
            Ok(Box::new(Asked { shared, wire, request, info }) as Box<dyn Incoming>)
        })
    }
}

/// A request that awaits its answer.
struct Asked {
    shared: Arc<Shared>,
    wire: Wire,
    request: Frame,
    info: ConnectionInfo,
}

impl Incoming for Asked {
    fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    fn accept(self: Box<Self>, params: ConnectionParams) -> BoxFuture<'static, Result<Connected, AcceptError>> {
        let Asked { shared, mut wire, request, info } = *self;
        Box::pin(async move {
            params.check(&shared.capabilities).map_err(AcceptError::Misuse)?;
            let offer = shared.offer(params.ird, params.ord);
            let (reply, agreed) = negotiation::accept(&request, offer, &params.private_data);
            // Receives first, then the reply: the peer may send as soon as it has the reply.
            let endpoint = shared.endpoint(&wire, Role::Responder, agreed, params.receives).map_err(AcceptError::Io)?;
            let reply = reply.encode(Kind::Reply);
            timed(&shared, async { wire.write_all(&reply).await.map_err(AcceptError::Io) }).await?;
            shared.connected(wire, endpoint, agreed, info.private_data).map_err(AcceptError::Io)
        })
    }

    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), AcceptError>> {
        let Asked { shared, mut wire, request, .. } = *self;
        Box::pin(async move {
            check_private_data(&private_data, &shared.capabilities).map_err(AcceptError::Misuse)?;
            let reply = negotiation::reject(&request, &private_data).encode(Kind::Reply);
            timed(&shared, async { wire.write_all(&reply).await.map_err(AcceptError::Io) }).await
        })
    }
}
