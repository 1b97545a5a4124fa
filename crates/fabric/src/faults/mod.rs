//! Faults around any provider: whatever can go wrong on a fabric goes wrong where a [`Plan`] says.
//!
//! [`FaultFabric`] wraps a fabric. Each action of a queue pair is a [`Step`]; the plan sees it and may answer with a
//! [`Fault`]. A [`Script`] names steps by number, [`Chance`] draws from a seed.
//!
//! The wrapper keeps the contract of the fabric below: everything that was posted or lent comes back exactly once and
//! before [`Completion::Closed`](crate::Completion::Closed), and refused memory is in the error. It breaks only what a
//! network may break.
//!
//! ```
//! use rpcrdma_env::Env;
//! use rpcrdma_fabric::{Fabric, faults::{Fault, FaultFabric, Point, Script}};
//! use std::sync::Arc;
//!
//! /// Breaks every connection when it posts its third Send.
//! fn fragile(fabric: Arc<dyn Fabric>, env: Env) -> FaultFabric {
//!     FaultFabric::new(fabric, Arc::new(Script::new().at(Point::PostSend, 3, Fault::Cut)), env)
//! }
//! ```

mod plan;
mod queue_pair;

pub use plan::{Chance, Fault, Plan, Point, Script, Step};

use crate::{
    AcceptError, Capabilities, ConnectError, Connected, ConnectionInfo, ConnectionParams, Fabric, ListenError,
    Listener, ReceivePool,
    layer::{Layer, Layered},
};
use bytes::Bytes;
use queue_pair::FaultQueuePair;
use rpcrdma_env::{Allocator, BoxFuture, Env};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A fabric on which a plan makes things go wrong.
pub struct FaultFabric {
    layered: Layered<Faults>,
}

/// The plan, and what all connections share.
struct Faults {
    plan: Arc<dyn Plan>,
    env: Env,
    connections: AtomicU64,
    injected: Arc<AtomicU64>,
}

impl FaultFabric {
    /// Wraps `inner`. The environment's clock times delays, and its random source chooses the bits to corrupt.
    pub fn new(inner: Arc<dyn Fabric>, plan: Arc<dyn Plan>, env: Env) -> Self {
        let faults = Faults { plan, env, connections: AtomicU64::new(0), injected: Arc::default() };
        Self { layered: Layered::new(inner, Arc::new(faults)) }
    }

    /// How many faults there have been.
    pub fn injected(&self) -> u64 {
        self.layered.layer().injected.load(Ordering::Relaxed)
    }
}

impl Faults {
    /// The fault, if any, with which the next connection begins. That connection is not counted yet.
    fn set_up(&self, point: Point) -> Option<Fault> {
        let connection = self.connections.load(Ordering::Relaxed) + 1;
        let fault = self.plan.fault(&Step { connection, point, nth: 1, of_all: 0 })?;
        self.injected.fetch_add(1, Ordering::Relaxed);
        Some(fault)
    }

    fn corrupt(&self, octets: &mut Bytes) {
        let mut changed = octets.to_vec();
        flip(&self.env, &mut changed);
        *octets = changed.into();
    }
}

/// Inverts one random bit, if there is any.
fn flip(env: &Env, octets: &mut [u8]) {
    let bit = env.random.below(octets.len() as u64 * 8);
    if let Some(octet) = octets.get_mut((bit / 8) as usize) {
        *octet ^= 1 << (bit % 8);
    }
}

impl Layer for Faults {
    fn connecting(&self, peer: SocketAddr, params: &mut ConnectionParams) -> Result<(), ConnectError> {
        match self.set_up(Point::Connect) {
            Some(Fault::Corrupt) => self.corrupt(&mut params.private_data),
            Some(_) => return Err(ConnectError::Io { peer, error: io::ErrorKind::ConnectionReset.into() }),
            None => {}
        }
        Ok(())
    }

    fn not_connected(&self, _peer: SocketAddr, _error: &ConnectError) {}

    fn requested(&self, _info: &ConnectionInfo) {}

    fn accepting(&self, _peer: SocketAddr, params: &mut ConnectionParams) -> Result<(), AcceptError> {
        match self.set_up(Point::Accept) {
            Some(Fault::Corrupt) => self.corrupt(&mut params.private_data),
            Some(_) => return Err(AcceptError::Io(io::ErrorKind::ConnectionReset.into())),
            None => {}
        }
        Ok(())
    }

    fn rejecting(&self, _peer: SocketAddr, _private_data: &mut Bytes) {}

    fn connected(&self, _accepted: bool, queue_pair: Connected) -> Connected {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        Box::new(FaultQueuePair::new(queue_pair, self.plan.clone(), self.env.clone(), connection, &self.injected))
    }
}

impl Fabric for FaultFabric {
    fn name(&self) -> &'static str {
        self.layered.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.layered.capabilities()
    }

    fn pool(&self) -> Arc<dyn Allocator> {
        self.layered.pool()
    }

    fn receive_pool(&self) -> Option<Arc<dyn ReceivePool>> {
        self.layered.receive_pool()
    }

    fn connect(&self, peer: SocketAddr, params: ConnectionParams) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        self.layered.connect(peer, params)
    }

    fn listen(&self, local: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, ListenError>> {
        self.layered.listen(local)
    }
}
