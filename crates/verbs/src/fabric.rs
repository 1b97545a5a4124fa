//! The provider: choosing a device, connecting, and what all connections share.

use crate::{
    abandoned::Abandoned,
    channel::{Bring, Event, Id},
    config::Config,
    context::Context,
    device::ports,
    domain::Domain,
    error::OpenError,
    events,
    limits::Limits,
    listener::VerbsListener,
    opener::Opener,
    queue_pair::VerbsQueuePair,
    resolve::resolved,
    shared_receives::SharedReceives,
    slabs::{SLAB_OCTETS, SlabPool, Slabs},
    sys::{Library, cm},
};
use rpcrdma_env::{Allocator, BoxFuture, Env};
use rpcrdma_fabric::{
    Capabilities, ConnectError, Connected, ConnectionInfo, ConnectionParams, Fabric, ListenError, Listener,
    ReceivePool, Receives, within,
};
use rustix::process::{Resource, getrlimit};
use std::{
    ffi::c_int,
    io,
    net::{Ipv4Addr, SocketAddr},
    ptr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// What ends with its device says so.
pub(crate) const REMOVED: &str = "the RDMA device was removed";

/// What all connections of one [`Verbs`] share.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) config: Config,
    pub(crate) context: Context,
    pub(crate) limits: Limits,
    slabs: Arc<Slabs>,
    /// Memory that the device did not let go of.
    pub(crate) abandoned: Arc<Abandoned>,
    /// The domain of all connections, where a handle is tied to its connection by a window.
    domain: Option<Arc<Domain>>,
    /// The pools of receives that were made and are still in use.
    pools: Mutex<Vec<Weak<SharedReceives>>>,
}

/// An RDMA device. Cloning is cheap and shares everything.
///
/// It starts no task: connecting and set-up happen in the futures that it returns, and a queue pair is driven when it
/// is polled. All of it wants to be polled within a tokio runtime with I/O enabled, and each connection in the runtime
/// in which it was made.
///
/// When the device is removed its connections end. It is opened anew by the next who connects or listens; listeners
/// wait for it to come back.
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

    /// The device's name when it was opened.
    pub fn device(&self) -> String {
        self.opener.name.clone()
    }
}

/// The limit on locked memory, in words, unless there is none.
pub(crate) fn memory_lock_limit() -> Option<String> {
    getrlimit(Resource::Memlock).current.map(|octets| format!("{octets} bytes"))
}

/// Whether registering failed for want of memory that may be locked.
pub(crate) fn is_memory_lock(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::OutOfMemory)
        || error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error())
}

/// An event that is not the one that was waited for.
pub(crate) fn event_error(library: &Library, event: &Event) -> io::Error {
    let name = library.event(event.kind);
    if event.kind == cm::DEVICE_REMOVAL {
        return io::Error::new(io::ErrorKind::NotConnected, REMOVED);
    }
    if event.status < 0 {
        let error = io::Error::from_raw_os_error(event.status.saturating_neg());
        return io::Error::new(error.kind(), format!("{name}: {error}"));
    }
    io::Error::other(format!("{name}, status {}", event.status))
}

impl Shared {
    /// A device that is open, if it can be used. Its connections' memory comes from the slabs, which outlive it.
    pub(crate) fn over(env: Env, config: Config, context: Context, slabs: Arc<Slabs>) -> Result<Self, OpenError> {
        let device = context.name();
        let failed = |what| {
            let device = device.clone();
            move |error| OpenError::Device { device, what, error }
        };
        let attributes = context.attributes().map_err(failed("asking for its attributes"))?;
        let ports = ports(&context, &attributes);
        if !ports.iter().any(|port| port.active) {
            let states: Vec<_> = ports.iter().map(|port| format!("port {}: {}", port.number, port.state)).collect();
            return Err(OpenError::PortDown { device, states: states.join(", ") });
        }
        let limits = Limits::of(&context, &attributes, &config);
        let few = |what| OpenError::Unfit { device: device.clone(), what };
        let capabilities = &limits.capabilities;
        if limits.send_queue < 2 || capabilities.max_receives < 2 {
            return Err(few("its queues are too short"));
        }
        if capabilities.max_gather == 0 || capabilities.max_exposures == 0 {
            return Err(few("it can register no memory"));
        }
        events::prepare(&context).map_err(failed("watching it"))?;
        let abandoned = Arc::new(Abandoned::default());
        let domain = |windows| Domain::new(context.clone(), slabs.clone(), abandoned.clone(), windows);
        let shared_domain = domain(limits.windows).map_err(failed("making a protection domain"))?;
        // The first slab shows whether memory can be registered.
        let mut probe = SlabPool(slabs.clone()).try_allocate(SLAB_OCTETS);
        if let Some(octets) = probe.as_mut().map(|probe| probe.octets_mut().as_ptr() as usize)
            && let Some(Err(error)) = shared_domain.slab_key(octets, SLAB_OCTETS)
        {
            return Err(match memory_lock_limit() {
                Some(limit) if is_memory_lock(&error) => OpenError::MemoryLock { device, octets: SLAB_OCTETS, limit },
                _ => failed("registering memory")(error),
            });
        }
        tracing::debug!(device, windows = limits.windows, iwarp = limits.iwarp, "opened");
        let domain = limits.windows.then_some(shared_domain);
        Ok(Shared { env, config, context, limits, slabs, abandoned, domain, pools: Mutex::default() })
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.limits.capabilities
    }

    pub(crate) fn slab_pool(&self) -> SlabPool {
        SlabPool(self.slabs.clone())
    }

    /// The domain for a new connection.
    pub(crate) fn domain(&self) -> io::Result<Arc<Domain>> {
        match &self.domain {
            Some(domain) => Ok(domain.clone()),
            None => Domain::new(self.context.clone(), self.slabs.clone(), self.abandoned.clone(), false),
        }
    }

    /// The RDMA Reads, of the peer and our own, that can be under way.
    pub(crate) fn depths(&self, params: &ConnectionParams) -> (u16, u16) {
        (params.ird.min(self.capabilities().max_ird), params.ord.min(self.capabilities().max_ord))
    }

    /// The queue pair of a connection in the making, with its receives in place.
    pub(crate) fn queue_pair(self: &Arc<Self>, id: Id, receives: Receives) -> io::Result<VerbsQueuePair> {
        let (buffers, pool) = match receives {
            Receives::Own(buffers) => (buffers, None),
            Receives::Shared(pool) => (Vec::new(), Some(self.own_pool(&*pool)?)),
        };
        let mut queue_pair = VerbsQueuePair::new(self.clone(), id, pool)?;
        for buffer in buffers {
            rpcrdma_fabric::QueuePair::post_receive(&mut queue_pair, buffer)
                .map_err(|refused| io::Error::other(refused.reason))?;
        }
        Ok(queue_pair)
    }

    /// A new pool of receives, where there are some.
    fn new_pool(&self) -> Option<Arc<SharedReceives>> {
        let domain = self.domain.as_ref().filter(|_| self.limits.shared_receives > 0)?;
        let pool = SharedReceives::new(domain, self.limits.shared_receives)
            .inspect_err(|error| tracing::warn!(%error, "a pool of receives cannot be made"))
            .ok()?;
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        Some(pool)
    }

    /// The pool that stands behind the contract's, if it is one of this device's.
    fn own_pool(&self, pool: &dyn ReceivePool) -> io::Result<Arc<SharedReceives>> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let own = pools.iter().filter_map(Weak::upgrade).find(|own| ptr::addr_eq(Arc::as_ptr(own), pool));
        own.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the pool of receives is another provider's"))
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

/// Why a connection is not made.
fn broken(peer: SocketAddr, error: io::Error) -> ConnectError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Refused { peer },
        _ => ConnectError::Io { peer, error },
    }
}

/// The event that is waited for.
async fn expect(id: &Id, library: &Library, kind: c_int) -> io::Result<()> {
    let event = id.channel().wait().await?;
    if event.kind == kind { Ok(()) } else { Err(event_error(library, &event)) }
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
        // Without connections no event has announced that the device went away, and it may be back.
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
    let mut queue_pair = shared.queue_pair(id, params.receives).map_err(failed)?;
    let gone = || failed(io::ErrorKind::NotConnected.into());
    let bring = Bring { private_data: &params.private_data, ird, ord };
    queue_pair.id().ok_or_else(gone)?.connect(&bring).map_err(failed)?;
    let event = channel.wait().await.map_err(failed)?;
    match event.kind {
        cm::ESTABLISHED => {
            // Over iWARP the kernel gives the two numbers the other way round.
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
        _ => Err(failed(event_error(library, &event))),
    }
}

/// Whether TCP, below iWARP, was refused.
fn is_refusal(event: &Event) -> bool {
    event.status == -rustix::io::Errno::CONNREFUSED.raw_os_error()
}
