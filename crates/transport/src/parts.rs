//! Memory for messages that come in several parts (version 2).
//!
//! The engine joins such messages in memory that belongs to no receive and no allocator, within a limit for each
//! connection. So that many connections keep within the server's budget, each connection holds as much of the budget as
//! this limit, from before it handles the first part until no call that came in parts is left. It takes one block at
//! once: a connection that waits for it holds none of it.

use rpcrdma_engine::Config;
use rpcrdma_env::{Allocator, BoxFuture, Buffer};
use std::{
    sync::Arc,
    task::{Context, Poll},
};

/// The most that the engine holds, in halves of the largest message: one half for unanswered calls, and two for the
/// message that is coming.
const HALF_MESSAGES: usize = 3;

pub(crate) struct PartsMemory {
    /// `None` if there is no budget.
    budget: Option<Arc<dyn Allocator>>,
    octets: usize,
    held: Option<Buffer>,
    waiting: Option<BoxFuture<'static, Buffer>>,
}

/// Whether the connection holds the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    Yes,
    /// Not yet, since now; the task is woken when it does.
    Begins,
    /// Still not.
    Waits,
}

impl PartsMemory {
    pub(crate) fn new(budget: Option<Arc<dyn Allocator>>, config: &Config) -> Self {
        let octets = usize::try_from(config.limits.call_bytes).unwrap_or(usize::MAX) / 2;
        Self { budget, octets: octets.saturating_mul(HALF_MESSAGES), held: None, waiting: None }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Reserved {
        let Some(budget) = self.budget.as_ref().filter(|_| self.held.is_none()) else { return Reserved::Yes };
        let begins = self.waiting.is_none();
        let octets = self.octets;
        let waiting = self.waiting.get_or_insert_with(|| {
            let budget = budget.clone();
            Box::pin(async move { budget.allocate(octets).await })
        });
        match waiting.as_mut().poll(cx) {
            Poll::Ready(buffer) => {
                self.held = Some(buffer);
                self.waiting = None;
                Reserved::Yes
            }
            Poll::Pending if begins => Reserved::Begins,
            Poll::Pending => Reserved::Waits,
        }
    }

    /// Whether the connection waits for the memory.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Gives the memory back: no message in parts is left.
    pub(crate) fn release(&mut self) {
        if self.held.is_some() || self.waiting.is_some() {
            self.held = None;
            self.waiting = None;
        }
    }
}
