//! Calls that open, lock or unlock a file: they are finished even if their caller goes away.
//!
//! Suppose the future of such a call is dropped after the call may have been sent: nobody would learn what the server
//! did. An open without an owner would stay until the lease ends, or a lock would exclude all others. So the driver
//! continues the call in place of the caller, with the same slot or the same number of the owner, and gives back what
//! it brings.

use super::duties::Duties;
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

/// Tells a call whether its caller still waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller(Arc<AtomicBool>);

impl Caller {
    pub(super) fn has_left(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A call that goes to the driver if it is dropped before its end.
pub(super) struct Finishing<T: Send + 'static> {
    /// `None` before the first poll and after the end.
    call: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    is_begun: bool,
    caller: Caller,
    duties: Arc<Duties>,
}

impl<T: Send + 'static> Finishing<T> {
    pub(super) fn new<F>(duties: &Arc<Duties>, call: impl FnOnce(Caller) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let caller = Caller::default();
        let call: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(call(caller.clone()));
        Self { call: Some(call), is_begun: false, caller, duties: duties.clone() }
    }
}

impl<T: Send + 'static> Future for Finishing<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.is_begun = true;
        // A call that has ended is not polled again, like any future.
        let Some(call) = self.call.as_mut() else { return Poll::Pending };
        let polled = call.as_mut().poll(cx);
        if polled.is_ready() {
            self.call = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Finishing<T> {
    fn drop(&mut self) {
        let Some(call) = self.call.take().filter(|_| self.is_begun) else { return };
        self.caller.0.store(true, Ordering::Relaxed);
        self.duties.finish(Box::pin(async move { drop(call.await) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::sync::oneshot;

    fn poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_was_begun_is_left_to_the_driver_if_there_is_one() {
        let duties = Arc::new(Duties::default());
        let call = |(sender, receiver): (oneshot::Sender<bool>, oneshot::Receiver<()>)| {
            Finishing::new(&duties, |caller| async move {
                let _ = receiver.await;
                let _ = sender.send(caller.has_left());
            })
        };
        let (go, end) = (oneshot::channel(), oneshot::channel());
        // There is no driver: the call ends here.
        let mut dropped = call((end.0, go.1));
        let mut ended = end.1;
        assert!(poll(&mut dropped).is_pending());
        drop(dropped);
        assert!(matches!(poll(&mut ended), Poll::Ready(Err(_))));
        assert!(duties.take().unfinished.is_empty());
        drop(go.0);

        let driven = duties.driven();
        let (go, end) = (oneshot::channel(), oneshot::channel());
        drop(call((end.0, go.1)));
        assert!(duties.take().unfinished.is_empty(), "it was never begun");
        drop((go.0, end.1));

        let (go, mut end) = (oneshot::channel(), oneshot::channel());
        let mut left = call((end.0, go.1));
        assert!(poll(&mut left).is_pending());
        drop(left);
        let mut unfinished = duties.take().unfinished;
        assert_eq!(unfinished.len(), 1);
        go.0.send(()).unwrap();
        assert!(poll(&mut unfinished[0]).is_ready());
        assert_eq!(poll(&mut end.1), Poll::Ready(Ok(true)), "it learns that nobody waits for it");

        let (go, end) = (oneshot::channel(), oneshot::channel());
        let mut left = call((end.0, go.1));
        assert!(poll(&mut left).is_pending());
        drop(left);
        drop(driven);
        assert!(duties.take().unfinished.is_empty(), "the driver has gone");
        drop((go.0, end.1));
    }
}
