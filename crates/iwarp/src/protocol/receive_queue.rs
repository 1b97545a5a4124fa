//! The receives of one connection: its own, and those of a pool that it shares.

use rpcrdma_fabric::{Buffer, ReceivePool, Receives};
use std::{collections::VecDeque, sync::Arc};

/// Posted receives, first in, first out. The connection's own receives are used before those of the pool.
pub struct ReceiveQueue {
    own: VecDeque<Buffer>,
    pool: Option<Arc<dyn ReceivePool>>,
}

impl ReceiveQueue {
    /// The receives with which a connection starts.
    pub fn new(receives: Receives) -> Self {
        match receives {
            Receives::Own(buffers) => ReceiveQueue { own: buffers.into(), pool: None },
            Receives::Shared(pool) => ReceiveQueue { own: VecDeque::new(), pool: Some(pool) },
        }
    }

    /// Own receives.
    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// Whether there is no own receive.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Adds an own receive.
    pub fn post(&mut self, buffer: Buffer) {
        self.own.push_back(buffer);
    }

    /// The receive for the next Send.
    pub fn take(&mut self) -> Option<Buffer> {
        self.own.pop_front().or_else(|| self.pool.as_ref()?.take())
    }

    /// Takes out the connection's own receives. Those of the pool stay there.
    pub fn drain(&mut self) -> impl Iterator<Item = Buffer> + '_ {
        self.own.drain(..)
    }

    /// Gives back a receive that was taken and not used up: to the pool, or to the front of the own receives.
    pub fn give_back(&mut self, buffer: Buffer) {
        match &self.pool {
            Some(pool) => pool.post(buffer),
            None => self.own.push_front(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_fabric::SharedReceives;

    #[test]
    fn a_receive_goes_back_where_it_came_from() {
        let pool = SharedReceives::new();
        pool.post(Buffer::from_vec(vec![0; 8]));
        let mut shared = ReceiveQueue::new(Receives::Shared(pool.clone()));
        let buffer = shared.take().unwrap();
        assert!(shared.take().is_none());
        shared.give_back(buffer);
        assert_eq!((pool.posted(), shared.len()), (1, 0));

        let mut own = ReceiveQueue::new(Receives::Own(vec![Buffer::from_vec(vec![0; 4]), Buffer::from_vec(vec![])]));
        let buffer = own.take().unwrap();
        own.give_back(buffer);
        assert_eq!(own.take().map(|b| b.capacity()), Some(4));
        assert_eq!(own.drain().count(), 1);
    }
}
