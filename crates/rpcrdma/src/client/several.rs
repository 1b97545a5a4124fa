//! One connection to a server, or several that are used as one (`nconnect=`).
//!
//! The driver of the first connection is a task of the caller's runtime: its calls and replies cross no threads. Each
//! further one has a thread and a runtime of its own, so that checksums and copies of bytes take several processors;
//! they end when the connection does, or the runtime in which it was made.

use super::Result;
use super::Watch;
use crate::error::Context;
use futures_util::future::{Either, join_all, select};
use rpcrdma_env::{BoxFuture, Env};
use rpcrdma_oncrpc::{ClientTransport, Spread, XidSource};
use std::{sync::Arc, thread::JoinHandle};
use tokio::sync::oneshot;

/// The most connections of a URL: as many as Linux allows.
pub(super) const MAX_CONNECTIONS: u8 = 16;

/// A connected transport, and the future that drives it.
pub(super) struct Connected {
    pub(super) transport: Arc<dyn ClientTransport>,
    pub(super) driver: BoxFuture<'static, ()>,
}

/// Makes a connection. The argument is the source of its XIDs, if it does not have its own.
type Connect = dyn Fn(Option<Arc<XidSource>>) -> BoxFuture<'static, Result<Connected>> + Send + Sync;

/// Makes `count` connections. If the first one succeeds and others do not, it warns, and goes on without them.
pub(super) async fn connect(
    count: u8,
    env: &Env,
    watch: &dyn Watch,
    connect: impl Fn(Option<Arc<XidSource>>) -> BoxFuture<'static, Result<Connected>> + Send + Sync + 'static,
) -> Result<Arc<dyn ClientTransport>> {
    let xids = (count > 1).then(|| Arc::new(XidSource::new(&*env.random)));
    let Connected { transport: first, driver } = connect(xids.clone()).await?;
    tokio::spawn(driver);
    let Some(xids) = xids else { return Ok(first) };
    let connect: Arc<Connect> = Arc::new(connect);
    let others = join_all((1..count).map(|number| on_thread(number, connect.clone(), xids.clone()))).await;
    let (made, failed): (Vec<_>, Vec<_>) = others.into_iter().partition(Result::is_ok);
    if let Some(Err(error)) = failed.first() {
        let made = made.len() + 1;
        watch.warning(&format!("nconnect={count}: {made} of the connections are used: {error:#}"));
    }
    Ok(Arc::new(Spread::new(first, made.into_iter().flatten(), xids)))
}

/// A thread that ends when this is dropped.
struct Thread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it has panicked, the panic has been reported.
            let _ = thread.join();
        }
    }
}

/// Makes a connection on a thread of its own, and drives it there.
async fn on_thread(number: u8, connect: Arc<Connect>, xids: Arc<XidSource>) -> Result<Arc<dyn ClientTransport>> {
    let (made, when_made) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let (end, ended) = oneshot::channel::<()>();
    let work = move || {
        // Dropped when the thread ends, however it does.
        let _end = end;
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(made.send(Err(error.into()))),
        };
        runtime.block_on(async {
            let work = std::pin::pin!(async {
                match connect(Some(xids)).await {
                    Ok(Connected { transport, driver }) => {
                        let sent = made.send(Ok(transport));
                        // The runtime wakes its outermost future only after it has asked the system for events, a
                        // task at once.
                        if sent.is_ok() {
                            let _ = tokio::spawn(driver).await;
                        }
                    }
                    Err(error) => drop(made.send(Err(error))),
                }
            });
            match select(work, stopped).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        });
    };
    let thread = std::thread::Builder::new().name(format!("nconnect {number}")).spawn(work);
    let thread = Thread { stop: Some(stop), thread: Some(thread.context("starting a thread for a connection")?) };
    let connected = when_made.await.context("a connection's thread has died")??;
    tokio::spawn(async move {
        let _thread = thread;
        // The runtime drops this task if it ends before the connection.
        let _ = ended.await;
    });
    Ok(connected)
}
