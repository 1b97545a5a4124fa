//! What a file system does so that programs of the host do not get a file behind a client's back to which it is
//! delegated.

use std::{any::Any, fmt};

/// What is called, once, when a program of the host wants a file that is leased: it waits until the lease is given
/// back.
pub type Broken = Box<dyn FnOnce() + Send>;

/// Programs of the host wait for a file until this is dropped, or for as long as the host lets them wait.
#[must_use = "the lease ends when this is dropped"]
pub struct HostLease(Option<Box<dyn Any + Send + Sync>>);

impl HostLease {
    /// The lease that ends when `guard` is dropped.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(guard)))
    }

    /// None is needed: all users of the files go through this server.
    pub fn needless() -> Self {
        Self(None)
    }
}

impl fmt::Debug for HostLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostLease").field("is_needed", &self.0.is_some()).finish()
    }
}
