//! Receives: the buffers for the peer's Sends.

use rpcrdma_env::Buffer;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// Receives that many queue pairs of one provider share, so that idle connections pin no memory. Each Send takes one.
pub trait ReceivePool: Send + Sync {
    /// Adds a receive.
    fn post(&self, buffer: Buffer);

    /// How many receives are posted.
    fn posted(&self) -> usize;

    /// Takes a receive for an arriving Send. For providers; hardware takes receives by itself, so its pools return
    /// `None`.
    fn take(&self) -> Option<Buffer>;
}

/// The receives that a connection starts with. They are in place before its set-up completes.
pub enum Receives {
    /// Receives of its own. More are posted with [`QueuePair::post_receive`](crate::QueuePair::post_receive).
    Own(Vec<Buffer>),
    /// The receives of a pool, if [`Capabilities::shared_receives`](crate::Capabilities::shared_receives) allows it.
    Shared(Arc<dyn ReceivePool>),
}

impl std::fmt::Debug for Receives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Receives::Own(buffers) => write!(f, "Own({})", buffers.len()),
            Receives::Shared(pool) => write!(f, "Shared({})", pool.posted()),
        }
    }
}

/// The receive pool of providers in software.
#[derive(Debug, Default)]
pub struct SharedReceives {
    buffers: Mutex<VecDeque<Buffer>>,
}

impl SharedReceives {
    /// An empty pool.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
}

impl ReceivePool for SharedReceives {
    fn post(&self, buffer: Buffer) {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push_back(buffer);
    }

    fn posted(&self) -> usize {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn take(&self) -> Option<Buffer> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
