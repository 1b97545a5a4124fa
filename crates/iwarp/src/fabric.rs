//! The provider: it connects, and holds what all its connections share.

use crate::{
    config::Config,
    listener::IwarpListener,
    net::{FrameError, Wire},
    protocol::{
        Endpoint, Fault, ReceiveQueue, Role, Setup,
        mpa::Kind,
        negotiation::{self, Agreed, Offer},
        terminate_fpdu,
    },
    queue_pair::IwarpQueuePair,
};
use bytes::Bytes;
use rpcrdma_env::{Allocator, BoxFuture, Env};
use rpcrdma_fabric::{
    Capabilities, ConnectError, Connected, ConnectionInfo, ConnectionParams, Fabric, ListenError, Listener,
    ReceivePool, Receives, SharedReceives, pool::Pool, within,
};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::net::TcpStream;

/// What all connections of one [`Iwarp`] share.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) config: Config,
    pub(crate) capabilities: Arc<Capabilities>,
    pool: Arc<Pool>,
}

/// A software RNIC over TCP. Clones are cheap and share everything.
///
/// It starts no task: the futures that it returns connect and set up, and a queue pair moves octets when it is polled.
/// Poll all of them within a tokio runtime with I/O enabled.
#[derive(Clone)]
pub struct Iwarp {
    shared: Arc<Shared>,
}

impl Iwarp {
    /// A provider with time and randomness from `env`.
    pub fn new(env: Env, config: Config) -> Iwarp {
        let capabilities = Arc::new(config.capabilities());
        Iwarp { shared: Arc::new(Shared { env, config, capabilities, pool: Arc::new(Pool::new()) }) }
    }

    /// Listens on a TCP socket that already listens and does not block, so that several threads can share a port, each
    /// with its own provider and runtime.
    ///
    /// # Errors
    /// If the socket cannot be registered with this thread's runtime.
    pub fn listen_on(&self, listener: std::net::TcpListener) -> io::Result<Box<dyn Listener>> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        Ok(Box::new(IwarpListener::over(self.shared.clone(), listener)?))
    }
}

impl Fabric for Iwarp {
    fn name(&self) -> &'static str {
        "iwarp"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn pool(&self) -> Arc<dyn Allocator> {
        self.shared.pool.clone()
    }

    fn receive_pool(&self) -> Option<Arc<dyn ReceivePool>> {
        Some(SharedReceives::new())
    }

    fn connect(&self, peer: SocketAddr, params: ConnectionParams) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            params.check(&shared.capabilities).map_err(ConnectError::Misuse)?;
            let limit = shared.config.setup_timeout;
            let accepted = AtomicBool::new(false);
            match within(&*shared.env.clock, limit, dial(&shared, peer, params, &accepted)).await {
                Some(result) => result,
                None if accepted.into_inner() => Err(ConnectError::Silent { peer, seconds: limit.as_secs() }),
                None => Err(ConnectError::TimedOut { peer, seconds: limit.as_secs() }),
            }
        })
    }

    fn listen(&self, local: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, ListenError>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let listener = IwarpListener::bind(shared, local);
            match listener {
                Ok(listener) => Ok(Box::new(listener) as Box<dyn Listener>),
                Err(error) => Err(ListenError::Io { local, error }),
            }
        })
    }
}

impl Shared {
    /// This end's part of the negotiation.
    pub(crate) fn offer(&self, ird: u16, ord: u16) -> Offer {
        let limits = &self.capabilities;
        Offer { crc: self.config.crc, ird: ird.min(limits.max_ird), ord: ord.min(limits.max_ord) }
    }

    /// The protocol's part of a new connection. Its receives are posted before this end sends the peer anything more.
    pub(crate) fn endpoint(&self, wire: &Wire, role: Role, agreed: Agreed, receives: Receives) -> io::Result<Endpoint> {
        let setup = Setup {
            role,
            agreed,
            segmentation: wire.segmentation(&self.config)?,
            receives: ReceiveQueue::new(receives),
            capabilities: self.capabilities.clone(),
        };
        Ok(Endpoint::new(setup, &*self.env.random))
    }

    /// Completes a connection after its set-up.
    pub(crate) fn connected(
        self: &Arc<Self>,
        wire: Wire,
        endpoint: Endpoint,
        agreed: Agreed,
        private_data: Bytes,
    ) -> io::Result<Connected> {
        let info = ConnectionInfo {
            local: wire.stream.local_addr()?,
            peer: wire.stream.peer_addr()?,
            private_data,
            ird: agreed.ird,
            ord: agreed.ord,
        };
        tracing::debug!(
            local = %info.local, peer = %info.peer, crc = agreed.crc, ird = info.ird, ord = info.ord, "connected"
        );
        Ok(Box::new(IwarpQueuePair::new(self.clone(), wire, endpoint, info)))
    }
}

/// Sets a connection up. `accepted` becomes true as soon as the peer has accepted it in TCP.
async fn dial(
    shared: &Arc<Shared>,
    peer: SocketAddr,
    params: ConnectionParams,
    accepted: &AtomicBool,
) -> Result<Connected, ConnectError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Refused { peer },
        _ => ConnectError::Io { peer, error },
    };
    let broken = |fault: Fault| ConnectError::Violation { peer, violation: fault.violation() };
    let stream = TcpStream::connect(peer).await.map_err(failed)?;
    accepted.store(true, Ordering::Relaxed);
    let mut wire = Wire::new(stream, &shared.config, true).map_err(failed)?;
    let offer = shared.offer(params.ird, params.ord);
    let request = negotiation::request(offer, &params.private_data);
    wire.write_all(&request.encode(Kind::Request)).await.map_err(failed)?;
    let reply = wire.read_frame(Kind::Reply).await.map_err(|error| match error {
        FrameError::Io(error) => failed(error),
        FrameError::Fault(fault) => broken(fault),
    })?;
    let private_data = Bytes::from(reply.private_data.clone());
    if reply.head.reject {
        return Err(ConnectError::Rejected { peer, private_data });
    }
    let agreed = match negotiation::conclude(&reply, offer, shared.capabilities.max_ird) {
        Ok(agreed) => agreed,
        Err(fault) => {
            if let Some(terminate) = terminate_fpdu(&fault, offer.crc || reply.head.crc) {
                wire.write_all(&terminate).await.map_err(failed)?;
            }
            return Err(broken(fault));
        }
    };
    let endpoint = shared.endpoint(&wire, Role::Initiator, agreed, params.receives).map_err(failed)?;
    shared.connected(wire, endpoint, agreed, private_data).map_err(failed)
}
