//! A server that runs, and its end.

use super::{
    ports::{Ports, Spoken},
    register::Registered,
    served::Temporary,
    thread::Serving,
};
use crate::Error;
use rpcrdma_nfsd::Nfsd;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

/// A server that runs. [`shutdown`](Self::shutdown) stops it and completes when it has stopped; if this value is
/// dropped, the server stops in the background.
#[must_use]
pub struct Running {
    pub(super) stop: watch::Sender<bool>,
    pub(super) serving: Serving,
    pub(super) registered: Option<Registered>,
    pub(super) nfsd: Option<Arc<Nfsd>>,
    pub(super) ports: Ports,
    pub(super) drain: Duration,
    /// The work next to the serving threads, which ends when this is dropped.
    pub(super) _tasks: JoinSet<()>,
    pub(super) _temporary: Option<Temporary>,
}

/// How a server has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All calls have finished.
    Drained,
    /// Some calls had not finished in time.
    TimedOut,
}

impl Running {
    /// The addresses at which a protocol is served, with the ports that the system has chosen.
    pub fn addresses(&self, spoken: Spoken) -> Vec<SocketAddr> {
        self.ports.of(spoken).collect()
    }

    /// Completes with the error when the server has ended by itself, which happens only if it has a defect.
    pub async fn failed(&self) -> Error {
        Error::message(format!("a serving thread has ended: {}", self.serving.wait().await))
    }

    /// Accepts no more connections, lets calls under way finish for as long as
    /// [`Options::drain`](super::Options::drain) says, and stops.
    pub async fn shutdown(self) -> Stopped {
        self.stop.send_replace(true);
        let finish = async {
            if let Some(registered) = &self.registered {
                registered.remove().await;
            }
            self.serving.wait().await;
            if let Some(nfsd) = &self.nfsd {
                nfsd.settle().await;
            }
        };
        match tokio::time::timeout(self.drain, finish).await {
            Ok(()) => Stopped::Drained,
            Err(_) => Stopped::TimedOut,
        }
    }
}
