//! The options of a client that a URL does not have.

use super::{Unwatched, Watch};
use rpcrdma_env::BusyPoll;
use rpcrdma_fabric::Fabric;
use rpcrdma_iwarp::Tap;
use rpcrdma_transport::Observer;
use std::sync::Arc;

/// The options of a client that a URL does not have.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// A provider of the program's own, instead of the one that the URL names.
    pub fabric: Option<Arc<dyn Fabric>>,
    /// Whether iWARP's CRC is asked for; yes by default.
    pub crc: bool,
    /// When a thread looks for the next message again and again before it sleeps; while it pays, by default.
    pub busy_poll: BusyPoll,
    /// Sees all data that software iWARP sends and receives.
    pub tap: Option<Arc<dyn Tap>>,
    /// Receives what a person may want to know.
    pub watch: Arc<dyn Watch>,
    /// Receives the events of connections over RDMA.
    pub observer: Option<Arc<dyn Observer>>,
    /// Whether the client remembers servers without version 2 of RPC-over-RDMA in the user's cache directory, and does
    /// not ask them again for a day; no by default.
    pub remember: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fabric: None,
            crc: true,
            busy_poll: BusyPoll::default(),
            tap: None,
            watch: Arc::new(Unwatched),
            observer: None,
            remember: false,
        }
    }
}

impl Options {
    /// The given options that only RDMA has, by their names in the command.
    pub(super) fn of_rdma(&self) -> impl Iterator<Item = &'static str> {
        let given = [(!self.crc, "--no-crc"), (self.tap.is_some(), "--capture")];
        given.into_iter().filter_map(|(is_given, option)| is_given.then_some(option))
    }
}
