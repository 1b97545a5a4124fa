//! The provider: connecting, listening, and the pool.

use crate::{
    channel::{Bring, Event, Id},
    config::Config,
    error::OpenError,
    listener::VerbsListener,
    opener::Opener,
    queue_pair::VerbsQueuePair,
    resolve::resolved,
    shared::Shared,
    slabs::SlabPool,
    sys::{Library, cm},
};
use rpcrdma_env::{Allocator, BoxFuture, Env};
use rpcrdma_fabric::{
    Capabilities, ConnectError, Connected, ConnectionInfo, ConnectionParams, Fabric, ListenError, Listener,
    ReceivePool, within,
};
use std::{
    ffi::c_int,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

/// An RDMA device. Clones are cheap and share everything.
///
/// It starts no task: the futures that it returns connect and set up, and a queue pair works when it is polled. Poll
/// all of them within a tokio runtime with I/O enabled, and each connection in the runtime in which it was made.
///
/// When the device is removed, its connections end. The next caller that connects or listens opens it again; listeners
/// wait until it comes back.
#[derive(Clone)]
pub struct Verbs {
    opener: Arc<Opener>,
}

impl Verbs {
    /// Opens a device, with time and randomness from `env`.
    ///
    /// # Errors
    /// If the libraries are missing, the device does not exist, or it cannot be used. The error says what to do.
    pub async fn open(env: Env, config: Config) -> Result<Verbs, OpenError> {
        Ok(Verbs { opener: Arc::new(Opener::open(env, config).await?) })
    }

    /// The device's name when it was first opened.
    pub fn device(&self) -> String {
        self.opener.name.clone()
    }
}

impl Fabric for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.opener.capabilities
    }

    fn pool(&self) -> Arc<dyn Allocator> {
        Arc::new(SlabPool(self.opener.slabs.clone()))
    }

    fn receive_pool(&self) -> Option<Arc<dyn ReceivePool>> {
        Some(self.opener.still_open()?.new_pool()?)
    }

    fn connect(&self, peer: SocketAddr, params: ConnectionParams) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        let opener = self.opener.clone();
        Box::pin(async move {
            params.check(&opener.capabilities).map_err(ConnectError::Misuse)?;
            let limit = opener.config.setup_timeout;
            match within(&*opener.env.clock, limit, dial(&opener, peer, params)).await {
                Some(result) => result,
                None => Err(ConnectError::TimedOut { peer, seconds: limit.as_secs() }),
            }
        })
    }

    fn listen(&self, local: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, ListenError>> {
        let opener = self.opener.clone();
        Box::pin(async move {
            match VerbsListener::bind(opener, local).await {
                Ok(listener) => Ok(Box::new(listener) as Box<dyn Listener>),
                Err(error) => Err(ListenError::Io { local, error }),
            }
        })
    }
}

/// The error of a connection that could not be made.
fn broken(peer: SocketAddr, error: io::Error) -> ConnectError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Refused { peer },
        _ => ConnectError::Io { peer, error },
    }
}

/// Waits for an event of this kind; any other event is an error.
async fn expect(id: &Id, library: &Library, kind: c_int) -> io::Result<()> {
    let event = id.channel().wait().await?;
    if event.kind == kind { Ok(()) } else { Err(event.error(library)) }
}

/// The device, and an identifier for a connection over it.
async fn towards(opener: &Opener, peer: SocketAddr) -> io::Result<(Arc<Shared>, Id)> {
    loop {
        let shared = opener.shared().await.map_err(io::Error::other)?;
        let library = shared.context.library();
        let limit = shared.config.setup_timeout;
        let from = shared.config.local.map(|local| SocketAddr::new(local, 0));
        let resolved = resolved(library, &*shared.env.clock, (from, peer), limit).await;
        let resolved = match resolved {
            Ok(id) if shared.context.is(id.device()) => return Ok((shared, id)),
            other => other,
        };
        // Without connections, no event has announced that the device was removed, and it may be back.
        if !shared.context.is_listed() {
            tracing::warn!(device = shared.context.name(), "the RDMA device is gone");
            shared.context.leave();
            continue;
        }
        resolved?;
        let device = shared.context.name();
        return Err(io::Error::other(format!("the way to {} does not go through {device}", peer.ip())));
    }
}

async fn dial(opener: &Opener, peer: SocketAddr, params: ConnectionParams) -> Result<Connected, ConnectError> {
    let failed = |error| broken(peer, error);
    let (shared, id) = towards(opener, peer).await.map_err(failed)?;
    let (library, channel) = (shared.context.library(), id.channel().clone());
    let limit = shared.config.setup_timeout;
    id.resolve_route(limit).map_err(failed)?;
    expect(&id, library, cm::ROUTE_RESOLVED).await.map_err(failed)?;
    let (ird, ord) = shared.depths(&params);
    let mut queue_pair = VerbsQueuePair::with_receives(&shared, id, params.receives).map_err(failed)?;
    let gone = || failed(io::ErrorKind::NotConnected.into());
    let bring = Bring { private_data: &params.private_data, ird, ord };
    queue_pair.id().ok_or_else(gone)?.connect(&bring).map_err(failed)?;
    let event = channel.wait().await.map_err(failed)?;
    match event.kind {
        cm::ESTABLISHED => {
            // For iWARP the kernel swaps the two numbers.
            let (served, issued) = if shared.limits.iwarp {
                (event.responder_resources, event.initiator_depth)
            } else {
                (event.initiator_depth, event.responder_resources)
            };
            let (local, seen) = queue_pair.id().map_or((None, None), Id::addresses);
            let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
            queue_pair.open(ConnectionInfo {
                local: local.unwrap_or(nowhere),
                peer: seen.unwrap_or(peer),
                private_data: event.private_data,
                ird: ird.min(issued.into()),
                ord: ord.min(served.into()),
            });
            Ok(Box::new(queue_pair))
        }
        cm::REJECTED if event.status == cm::REJECT_NO_SERVICE || is_refusal(&event) => {
            Err(ConnectError::Refused { peer })
        }
        cm::REJECTED => Err(ConnectError::Rejected { peer, private_data: event.private_data }),
        _ => Err(failed(event.error(library))),
    }
}

/// Whether the peer refused the TCP connection below iWARP.
fn is_refusal(event: &Event) -> bool {
    event.status == -rustix::io::Errno::CONNREFUSED.raw_os_error()
}
