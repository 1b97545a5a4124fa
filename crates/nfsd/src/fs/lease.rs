//! Leases on the host: they keep programs of the host from using a file behind the back of the client that it is
//! delegated to.

use std::{any::Any, fmt};

/// Called once, when a program of the host wants a leased file: the program waits until the lease is given back.
pub type Broken = Box<dyn FnOnce() + Send>;

/// Programs of the host wait for a file until this is dropped, or as long as the host lets them wait.
#[must_use = "the lease ends when this is dropped"]
pub struct HostLease(Option<Box<dyn Any + Send + Sync>>);

impl HostLease {
    /// The lease that ends when `guard` is dropped.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(guard)))
    }

    /// For a file system that needs no lease: all users of its files go through this server.
    pub fn needless() -> Self {
        Self(None)
    }
}

impl fmt::Debug for HostLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostLease").field("is_needed", &self.0.is_some()).finish()
    }
}
