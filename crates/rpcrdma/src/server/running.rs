//! A server that runs, and its end.
//!
//! A server ends in two steps. First the watch says that it is to stop: accept loops end, and connections end when
//! their calls are answered. Then the sender of the watch is dropped: the serving threads cut what is left, and end.

use super::{
    ports::{Ports, Spoken},
    register::Registered,
    served::Temporary,
    serving::Serving,
    threads::Ended,
};
use crate::Error;
use rpcrdma_nfsd::Nfsd;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet, time::timeout};

/// How long [`Running::shutdown`] waits for threads to end whose connections are cut: only a thread that is blocked
/// takes longer.
const CUT_TIME: Duration = Duration::from_secs(1);

/// A server that runs. [`shutdown`](Self::shutdown) lets it finish its calls, and completes when it has stopped.
///
/// If this value is dropped instead, or the future of `shutdown`, the server stops at once, in the background: it cuts
/// calls under way, and closes its ports a moment later. The programs that it has registered with rpcbind stay
/// registered.
#[must_use]
pub struct Running {
    pub(super) stop: watch::Sender<bool>,
    pub(super) serving: Serving,
    pub(super) registered: Option<Registered>,
    pub(super) nfsd: Option<Arc<Nfsd>>,
    /// The threads that work on files, if files are served.
    pub(super) files: Option<Ended>,
    pub(super) ports: Ports,
    pub(super) drain: Duration,
    /// The work next to the serving threads, which ends when this is dropped.
    pub(super) tasks: JoinSet<()>,
    pub(super) temporary: Option<Temporary>,
}

/// How a server has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All calls have finished.
    Drained,
    /// Some calls had not finished in time, and were cut.
    TimedOut,
}

impl Running {
    /// The addresses at which a protocol is served, with the ports that the system has chosen; none if it is not
    /// served. The server goes on without MOUNT, for instance, if the port that MOUNT has by default is taken, and
    /// warns of it.
    pub fn addresses(&self, spoken: Spoken) -> Vec<SocketAddr> {
        self.ports.of(spoken).collect()
    }

    /// Completes with the error when a serving thread has ended by itself, which happens only if the server has a
    /// defect.
    pub async fn failed(&self) -> Error {
        Error::message(format!("a serving thread has ended: {}", self.serving.first_end().await))
    }

    /// Accepts no more connections, lets calls under way finish for as long as
    /// [`Options::drain`](super::Options::drain) says, cuts those that have not, and stops. When this completes, the
    /// ports are closed and the state directory is free, so that the same server can be started again. Only a thread
    /// that does not come back, from a disk or from a service of the program's own, may still hold some of that.
    pub async fn shutdown(self) -> Stopped {
        let Self { stop, serving, registered, nfsd, files, ports, drain, mut tasks, temporary } = self;
        stop.send_replace(true);
        let finish = async {
            if let Some(registered) = &registered {
                registered.remove().await;
            }
            serving.all_ended().await;
            if let Some(nfsd) = &nfsd {
                nfsd.settle().await;
            }
        };
        let finished = timeout(drain, finish).await;
        drop(stop);
        let end = async {
            serving.all_ended().await;
            // An aborted task holds what it has until it is dropped.
            tasks.shutdown().await;
            drop((nfsd, ports));
            if let Some(files) = files {
                files.wait().await;
            }
        };
        let _ = timeout(CUT_TIME, end).await;
        drop(temporary);
        if finished.is_ok() { Stopped::Drained } else { Stopped::TimedOut }
    }
}
