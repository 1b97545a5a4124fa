//! Listening, and the responder's side of the set-up.
//!
//! The connection manager reads a request before it reports it, so a slow peer delays nothing here. A request that
//! waits for its answer costs an identifier; until it is accepted, its events come on the listener's channel, so it
//! keeps that channel.
//!
//! When the device is removed, the listener reports this once, and then waits until the device comes back at the same
//! address.

use crate::{
    channel::{Bring, Channel, Id},
    config::LISTEN_BACKLOG,
    error::REMOVED,
    events::Watch,
    opener::Opener,
    queue_pair::VerbsQueuePair,
    shared::Shared,
    sys::cm,
};
use bytes::Bytes;
use rpcrdma_env::BoxFuture;
use rpcrdma_fabric::{
    AcceptError, Connected, ConnectionInfo, ConnectionParams, Incoming, Listener, Pending, check_private_data, within,
};
use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

/// How often the listener looks for a device that was removed.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct VerbsListener {
    opener: Arc<Opener>,
    local: SocketAddr,
    state: State,
}

enum State {
    Listening(Listening),
    /// The device is gone, and the listener has reported it. The future waits until it is back.
    Away(BoxFuture<'static, Listening>),
}

/// The listener's objects of the device.
struct Listening {
    shared: Arc<Shared>,
    id: Id,
    /// `None` if the device's own events cannot be watched: then its connections report most of them.
    watch: Option<Watch>,
}

impl Listening {
    async fn new(opener: &Opener, local: SocketAddr) -> io::Result<Self> {
        let shared = opener.shared().await.map_err(io::Error::other)?;
        let channel = Channel::new(shared.context.library())?;
        let id = Id::new(&channel)?;
        id.bind(local)?;
        if !id.device().is_null() && !shared.context.is(id.device()) {
            if !shared.context.is_listed() {
                shared.context.leave();
            }
            let device = shared.context.name();
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                format!("{} is not an address of {device}", local.ip()),
            ));
        }
        id.listen(LISTEN_BACKLOG)?;
        let watch = Watch::new(&shared.context)
            .inspect_err(|error| tracing::debug!(%error, "the device's events are not watched"))
            .ok();
        Ok(Self { shared, id, watch })
    }

    /// Listens again when the device is back.
    async fn again(opener: Arc<Opener>, local: SocketAddr) -> Self {
        let mut said = String::new();
        loop {
            let next = opener.env.clock.now() + LOOK;
            opener.env.clock.sleep_until(next).await;
            match Self::new(&opener, local).await {
                Ok(listening) => {
                    let device = listening.shared.context.name();
                    tracing::info!(
                        device, address = %local,
                        "the RDMA device is back, and the server listens on it again"
                    );
                    return listening;
                }
                // Each new reason why the device is not back is logged once.
                Err(error) => {
                    let why = error.to_string();
                    if why != said {
                        tracing::warn!(address = %local, why, "the RDMA device is not back");
                        said = why;
                    }
                }
            }
        }
    }
}

impl VerbsListener {
    pub(crate) async fn bind(opener: Arc<Opener>, local: SocketAddr) -> io::Result<Self> {
        let listening = Listening::new(&opener, local).await?;
        let local = listening.id.addresses().0.unwrap_or(local);
        Ok(Self { opener, local, state: State::Listening(listening) })
    }
}

impl Listener for VerbsListener {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Pending>, AcceptError>> {
        loop {
            let listening = match &mut self.state {
                State::Listening(listening) => listening,
                State::Away(back) => {
                    let listening = ready!(back.as_mut().poll(cx));
                    self.state = State::Listening(listening);
                    continue;
                }
            };
            let failed = listening.watch.as_mut().is_some_and(|watch| watch.poll_gone(cx).is_ready());
            let event = match listening.id.channel().poll_next(cx) {
                Poll::Pending if !failed => return Poll::Pending,
                Poll::Pending => None,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(AcceptError::Io(error))),
                Poll::Ready(Ok(event)) => Some(event),
            };
            let Some(event) = event.filter(|event| event.kind != cm::DEVICE_REMOVAL) else {
                // The removal can finish only when all objects of the device are freed.
                listening.shared.context.leave();
                self.state = State::Away(Box::pin(Listening::again(self.opener.clone(), self.local)));
                let error = io::Error::new(io::ErrorKind::NotConnected, format!("{REMOVED}; the server waits for it"));
                return Poll::Ready(Err(AcceptError::Io(error)));
            };
            // Events about an unanswered request are ignored: its answer will fail and report them.
            let Some(raw) = event.request else { continue };
            let id = Id::of_request(raw, listening.id.channel());
            let (Some(local), Some(peer)) = id.addresses() else { continue };
            if !listening.shared.context.is(id.device()) {
                tracing::debug!(%peer, "a request came over another device");
                continue;
            }
            // The connection manager has already swapped the numbers: they are seen from our end.
            let info = ConnectionInfo {
                local,
                peer,
                private_data: event.private_data,
                ird: event.responder_resources.into(),
                ord: event.initiator_depth.into(),
            };
            return Poll::Ready(Ok(Box::new(Asked { shared: listening.shared.clone(), id, info })));
        }
    }
}

/// A request that awaits its answer.
struct Asked {
    shared: Arc<Shared>,
    id: Id,
    info: ConnectionInfo,
}

impl Pending for Asked {
    fn peer(&self) -> SocketAddr {
        self.info.peer
    }

    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Incoming>, AcceptError>> {
        Box::pin(std::future::ready(Ok(self as Box<dyn Incoming>)))
    }
}

impl Incoming for Asked {
    fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    fn accept(self: Box<Self>, params: ConnectionParams) -> BoxFuture<'static, Result<Connected, AcceptError>> {
        let Asked { shared, mut id, info } = *self;
        Box::pin(async move {
            params.check(shared.capabilities()).map_err(AcceptError::Misuse)?;
            let channel = Channel::new(shared.context.library()).map_err(AcceptError::Io)?;
            id.migrate(&channel).map_err(AcceptError::Io)?;
            // The kernel does not choose the lower of both ends' wishes, so this end does.
            let (ird, ord) = shared.depths(&params);
            let (ird, ord) = (ird.min(info.ird), ord.min(info.ord));
            // Receives first, then the answer: the peer may send as soon as it has the answer.
            let mut queue_pair =
                VerbsQueuePair::with_receives(&shared, id, params.receives).map_err(AcceptError::Io)?;
            let bring = Bring { private_data: &params.private_data, ird, ord };
            let gone = || AcceptError::Io(io::ErrorKind::NotConnected.into());
            queue_pair.id().ok_or_else(gone)?.accept(&bring).map_err(AcceptError::Io)?;
            let limit = shared.config.setup_timeout;
            match within(&*shared.env.clock, limit, channel.wait()).await {
                Some(Ok(event)) if event.kind == cm::ESTABLISHED => {
                    queue_pair.open(ConnectionInfo { ird, ord, ..info });
                    Ok(Box::new(queue_pair) as Connected)
                }
                Some(Ok(event)) => Err(AcceptError::Io(event.error(shared.context.library()))),
                Some(Err(error)) => Err(AcceptError::Io(error)),
                None => Err(AcceptError::TimedOut { seconds: limit.as_secs() }),
            }
        })
    }

    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), AcceptError>> {
        let Asked { shared, id, .. } = *self;
        Box::pin(async move {
            check_private_data(&private_data, shared.capabilities()).map_err(AcceptError::Misuse)?;
            id.reject(&private_data).map_err(AcceptError::Io)
        })
    }
}
