//! Work that goes on after the reply to its call: calls to clients, recalls, long copies.
//!
//! The library starts no task of its own: code with such work hands it over here, and the program drives all of it with
//! [`Nfsd::upkeep`](crate::Nfsd::upkeep). Each kind of work has a limit, which the code that hands it over enforces.
//! Work that is still under way when the server ends is dropped.

use futures_util::{
    FutureExt,
    stream::{FuturesUnordered, StreamExt},
};
use rpcrdma_env::BoxFuture;
use std::{
    panic::AssertUnwindSafe,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// A piece of work.
pub(crate) type Task = BoxFuture<'static, ()>;

/// Takes work that goes on later.
pub(crate) struct Tasks {
    sender: mpsc::UnboundedSender<Task>,
    /// The receiver, until a driver takes it.
    receiver: Mutex<Option<mpsc::UnboundedReceiver<Task>>>,
}

impl Default for Tasks {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Tasks {
    /// Hands work over. It does not begin before the program drives it.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // If a task panics, only this task fails: the same driver drives all others.
        let task = AssertUnwindSafe(task).catch_unwind().map(|ended| {
            if ended.is_err() {
                tracing::error!("a background task of the server has panicked: this is a bug in this program");
            }
        });
        // When the server ends, there is no receiver: the task is dropped.
        let _ = self.sender.send(Box::pin(task));
    }

    /// The future that does the work; only the first caller gets it. It completes when [`Tasks`] is dropped and all is
    /// done.
    pub(crate) fn driver(&self) -> Option<Driver> {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(Driver { receiver: Some(receiver), running: FuturesUnordered::new() })
    }
}

/// Does the work.
pub(crate) struct Driver {
    receiver: Option<mpsc::UnboundedReceiver<Task>>,
    running: FuturesUnordered<Task>,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(Poll::Ready(task)) = self.receiver.as_mut().map(|receiver| receiver.poll_recv(cx)) {
            match task {
                Some(task) => self.running.push(task),
                None => self.receiver = None,
            }
        }
        while let Poll::Ready(Some(())) = self.running.poll_next_unpin(cx) {}
        if self.receiver.is_none() && self.running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    #[tokio::test]
    async fn what_is_handed_over_is_done_whenever_it_came() {
        let (tasks, done) = (Tasks::default(), Arc::new(AtomicUsize::new(0)));
        let (tell, told) = tokio::sync::oneshot::channel::<()>();
        let count = done.clone();
        tasks.spawn(async { panic!("one that fails takes no other with it") });
        tasks.spawn(async move {
            let _ = told.await;
            count.fetch_add(1, Ordering::SeqCst);
        });
        let driver = tokio::spawn(tasks.driver().unwrap());
        assert!(tasks.driver().is_none(), "one drives it");
        let count = done.clone();
        tasks.spawn(async move {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = tell.send(());
        });
        drop(tasks);
        driver.await.unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 2);
    }
}
