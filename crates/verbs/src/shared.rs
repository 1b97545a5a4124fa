//! An open device, and what all connections over it share.

use crate::{
    abandoned::Abandoned,
    config::Config,
    context::Context,
    device::ports,
    domain::Domain,
    error::OpenError,
    events,
    limits::Limits,
    memory_lock::{is_memory_lock, memory_lock_limit},
    shared_receives::SharedReceives,
    slabs::{SLAB_BYTES, SlabPool, Slabs},
};
use rpcrdma_env::{Allocator, Env};
use rpcrdma_fabric::{Capabilities, ConnectionParams, ReceivePool};
use std::{
    io, ptr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// What all connections of one [`Verbs`](crate::Verbs) share.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) config: Config,
    pub(crate) context: Context,
    pub(crate) limits: Limits,
    slabs: Arc<Slabs>,
    /// Memory given up because the device did not end its registration.
    pub(crate) abandoned: Arc<Abandoned>,
    /// The domain of all connections, if windows tie each handle to its connection.
    domain: Option<Arc<Domain>>,
    /// The pools of receives that are still in use.
    pools: Mutex<Vec<Weak<SharedReceives>>>,
}

impl Shared {
    /// Checks that an open device can be used. Its connections' memory comes from the slabs, which outlive it.
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
        events::prepare(&context).map_err(failed("watching its events"))?;
        let abandoned = Arc::new(Abandoned::default());
        let domain = |windows| Domain::new(context.clone(), slabs.clone(), abandoned.clone(), windows);
        let shared_domain = domain(limits.windows).map_err(failed("making a protection domain"))?;
        // Registering the first slab shows whether memory can be registered.
        let mut probe = SlabPool(slabs.clone()).try_allocate(SLAB_BYTES);
        if let Some(octets) = probe.as_mut().map(|probe| probe.bytes_mut().as_ptr() as usize)
            && let Some(Err(error)) = shared_domain.slab_key(octets, SLAB_BYTES)
        {
            return Err(match memory_lock_limit() {
                Some(limit) if is_memory_lock(&error) => OpenError::MemoryLock { device, octets: SLAB_BYTES, limit },
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

    /// The RDMA Reads of the peer, and our own, that can be under way at a time.
    pub(crate) fn depths(&self, params: &ConnectionParams) -> (u16, u16) {
        (params.ird.min(self.capabilities().max_ird), params.ord.min(self.capabilities().max_ord))
    }

    /// A new pool of receives, if the device has shared receive queues.
    pub(crate) fn new_pool(&self) -> Option<Arc<SharedReceives>> {
        let domain = self.domain.as_ref().filter(|_| self.limits.shared_receives > 0)?;
        let pool = SharedReceives::new(domain, self.limits.shared_receives)
            .inspect_err(|error| tracing::warn!(%error, "a pool of receives cannot be made"))
            .ok()?;
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        Some(pool)
    }

    /// This device's pool behind a pool of the contract, if it is one of this device's.
    pub(crate) fn own_pool(&self, pool: &dyn ReceivePool) -> io::Result<Arc<SharedReceives>> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let own = pools.iter().filter_map(Weak::upgrade).find(|own| ptr::addr_eq(Arc::as_ptr(own), pool));
        own.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the pool of receives is another provider's"))
    }
}
