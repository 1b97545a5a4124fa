//! What the command line says of connections.

use crate::{args::ClientArgs, capture::CaptureArgs, waiting::Watch};
use anyhow::Result;
use rpcrdma::client;
use rpcrdma_env::BusyPoll;
use rpcrdma_iwarp::Tap;
use rpcrdma_transport::Observer;
use std::sync::Arc;

/// What the user has asked of the transport.
#[derive(Clone, Default)]
pub(crate) struct Options {
    /// Do not ask for iWARP's CRC.
    pub(crate) no_crc: bool,
    /// When a thread looks for the next message before it sleeps.
    pub(crate) busy_poll: BusyPoll,
    /// Where to capture what passes over RDMA.
    pub(crate) capture: CaptureArgs,
    /// Sees what passes over RDMA.
    pub(crate) tap: Option<Arc<dyn Tap>>,
    /// Shows the user when a server does not answer.
    pub(crate) watch: Watch,
    /// Gets the events of connections over RDMA.
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl Options {
    /// Starts the capture, if one is asked for; clones share it.
    pub(crate) fn open_capture(&mut self) -> Result<()> {
        if let Some(capturing) = std::mem::take(&mut self.capture).start()? {
            self.tap = Some(capturing.tap());
        }
        Ok(())
    }
}

impl From<ClientArgs> for Options {
    fn from(args: ClientArgs) -> Self {
        Options { no_crc: args.no_crc, capture: args.capture, ..Options::default() }
    }
}

impl From<Options> for client::Options {
    fn from(given: Options) -> Self {
        let mut options = Self::default();
        options.crc = !given.no_crc;
        options.busy_poll = given.busy_poll;
        options.tap = given.tap;
        options.watch = Arc::new(given.watch);
        options.observer = given.observer;
        options.remember = true;
        options
    }
}
