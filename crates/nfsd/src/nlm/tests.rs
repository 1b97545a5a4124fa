//! Locks of hosts, on whole servers.

mod again;
mod granted;
mod hostile;
mod limits;
mod locks;
mod messages;
mod recovery;
mod rights;
mod shares;

use super::{
    NlmLimits,
    testing::{READ, TestHost, WRITE, World, no_answer},
};
use rpcrdma_nfs::{
    nlm::{Procedure, Status},
    v3::Handle,
};

/// A server of a file system in memory, and one of a directory.
fn on_each(test: impl Fn(&World)) {
    test(&World::memory());
    test(&World::directory());
}

/// Two hosts and a file.
fn two(world: &World) -> (TestHost, TestHost, Handle) {
    (world.host(1, "alpha"), world.host(2, "beta"), world.file("f"))
}
