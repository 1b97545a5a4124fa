//! Requests of a device's listeners, dealt out to the serving threads.
//!
//! A socket can be shared by threads that each accept from it; a device's listener cannot. So the main thread takes the
//! requests and gives each thread the next in turn; the connection is made there, and stays. A thread that is far
//! behind makes the others wait, because the connection manager keeps requests that are not taken.

use super::thread::stopped;
use rpcrdma_fabric::{AcceptError, Listener, Pending};
use std::{
    future::poll_fn,
    net::{Ipv4Addr, SocketAddr},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

/// Requests that wait for one thread.
const WAITING: usize = 64;
/// How long a task waits before it takes requests again after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// One thread's share of the requests.
pub(super) struct Handed(mpsc::Receiver<Box<dyn Pending>>);

impl Listener for Handed {
    fn local_addr(&self) -> SocketAddr {
        // It represents all listeners of the device.
        SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Pending>, AcceptError>> {
        match self.0.poll_recv(cx) {
            Poll::Ready(Some(pending)) => Poll::Ready(Ok(pending)),
            // Without listeners nothing comes any more.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

/// Starts to take requests, as a task for each listener.
pub(super) fn deal(
    listeners: Vec<Box<dyn Listener>>,
    threads: usize,
    stopping: &watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> Vec<Handed> {
    let (senders, shares): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::channel(WAITING)).unzip();
    for listener in listeners {
        tasks.spawn(take(listener, senders.clone(), stopping.clone()));
    }
    shares.into_iter().map(Handed).collect()
}

async fn take(
    mut listener: Box<dyn Listener>,
    threads: Vec<mpsc::Sender<Box<dyn Pending>>>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut next = threads.iter().cycle();
    loop {
        let taken = tokio::select! {
            biased;
            () = stopped(&mut stopping) => return,
            taken = poll_fn(|cx| listener.poll_accept(cx)) => taken,
        };
        match taken {
            Ok(pending) => {
                let Some(thread) = next.next() else { return };
                if thread.send(pending).await.is_err() {
                    // The thread has ended, and the server is about to.
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(address = %listener.local_addr(), error = super::thread::describe(&error), "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
