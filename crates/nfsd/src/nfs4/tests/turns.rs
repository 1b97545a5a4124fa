//! Work that waits for a disk takes its client's turn, and uses no more than its client's share of the threads.

use crate::{Origin, Queue, Workers, nfs4::testing::TestServer};
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::v4::Status;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

/// Threads that get their work when a test says so.
#[derive(Default)]
struct Later(Mutex<Vec<Box<dyn FnOnce() + Send>>>);

impl Workers for Later {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.lock().unwrap().push(job);
    }

    fn threads(&self) -> usize {
        8
    }
}

impl Later {
    /// How many threads the queue asks for.
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn work(&self) {
        let jobs = std::mem::take(&mut *self.0.lock().unwrap());
        jobs.into_iter().for_each(|job| job());
    }
}

fn origin(client: u8) -> Origin {
    Origin::at(SocketAddr::from(([192, 0, 2, client], 700)))
}

fn poll<T>(future: &mut BoxFuture<'static, T>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn what_waits_for_a_disk_takes_its_clients_turn() {
    let workers = Arc::new(Later::default());
    let server = TestServer::waiting_in(Queue::new(workers.clone()));
    let asks = |client: u8| -> BoxFuture<'static, Result<u8, Status>> {
        let shared = server.shared().clone();
        Box::pin(async move { shared.on_worker(origin(client), move |_| Ok(client)).await })
    };
    let mut many: Vec<_> = (0..100).map(|_| asks(1)).collect();
    assert!(many.iter_mut().all(|call| poll(call).is_pending()));
    // Six of the eight threads move data or wait for the disk, and one client may use three quarters of those.
    assert_eq!(workers.count(), 5, "one client's part of the threads");
    let mut other = asks(2);
    assert!(poll(&mut other).is_pending());
    assert_eq!(workers.count(), 6, "another client has a thread at once");
    workers.work();
    assert_eq!(poll(&mut other), Poll::Ready(Ok(2)));
    assert!(many.iter_mut().all(|call| poll(call) == Poll::Ready(Ok(1))));
}
