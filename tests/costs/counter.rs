//! An allocator that counts allocations, separately for the client and for everything else.
//!
//! Code of the client runs within [`as_client`]; all other allocations count for the server.

use std::{
    alloc::System,
    sync::atomic::{AtomicU64, Ordering},
};
use tracking_allocator::{AllocationGroupId, AllocationGroupToken, AllocationRegistry, AllocationTracker, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator<System> = Allocator::system();

static CLIENT: AtomicU64 = AtomicU64::new(0);
static SERVER: AtomicU64 = AtomicU64::new(0);

struct Tracker;

impl AllocationTracker for Tracker {
    fn allocated(&self, _: usize, _: usize, _: usize, group: AllocationGroupId) {
        let counter = if group == AllocationGroupId::ROOT { &SERVER } else { &CLIENT };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn deallocated(&self, _: usize, _: usize, _: usize, _: AllocationGroupId, _: AllocationGroupId) {}
}

/// Allocations at each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) client: u64,
    pub(crate) server: u64,
}

impl Count {
    /// The counts since the process began.
    pub(crate) fn now() -> Self {
        Self { client: CLIENT.load(Ordering::Relaxed), server: SERVER.load(Ordering::Relaxed) }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self { client: self.client - before.client, server: self.server - before.server }
    }
}

/// Begins to count.
pub(crate) fn start() {
    AllocationRegistry::set_global_tracker(Tracker).unwrap();
    AllocationRegistry::enable_tracking();
}

/// Counts for the client what `work` allocates on this thread.
pub(crate) fn as_client<T>(work: impl FnOnce() -> T) -> T {
    let mut token = AllocationGroupToken::register().unwrap();
    let _guard = token.enter();
    work()
}
