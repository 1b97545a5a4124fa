//! Connections to programs of clients: one to each, kept for a while after its last call.
//!
//! The server calls lockd often while clients wait for locks, and a connection for each call would use up the ports
//! below 1024. If a connection ends or a call on it gets no answer, the next call makes a new one.

use super::reserved;
use rpcrdma_env::{BoxFuture, Env, Heap};
use rpcrdma_oncrpc::{
    ClientTransport, TransportError,
    tcp::{self, ClientOptions, Connector, Io},
};
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a connection is kept after its last call, in seconds.
const IDLE_TIME: Duration = Duration::from_secs(20);
/// The most connections that are kept, in number.
const MAX_LINES: usize = 256;
/// The largest record that is sent to a client or taken from it, in bytes.
const MAX_RECORD_BYTES: usize = 16 << 10;

type Key = (IpAddr, SocketAddr);
type Transport = Arc<dyn ClientTransport>;

#[derive(Default)]
struct Line {
    /// Held while the connection is made: other calls to the same program wait for it.
    transport: tokio::sync::Mutex<Option<Transport>>,
}

struct Kept {
    line: Arc<Line>,
    used: Instant,
}

/// The connections.
#[derive(Default)]
pub(super) struct Lines(Mutex<HashMap<Key, Kept>>);

/// Connects once: a lost connection is not made again without the knowledge of its callers.
struct Once {
    from: IpAddr,
    to: SocketAddr,
    reserved: bool,
    was_asked: AtomicBool,
}

impl Connector for Once {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        if self.was_asked.swap(true, Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(io::ErrorKind::NotConnected.into())));
        }
        Box::pin(async {
            let stream = reserved::stream(self.from, self.to, self.reserved).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }

    fn server(&self) -> SocketAddr {
        self.to
    }
}

async fn connect((from, to): Key, reserved: bool, env: &Env, limit: Duration) -> Result<Transport, TransportError> {
    let connector = Arc::new(Once { from, to, reserved, was_asked: AtomicBool::new(false) });
    let mut options = ClientOptions::default();
    options.max_record = MAX_RECORD_BYTES;
    (options.connect, options.outage) = (limit, Duration::ZERO);
    (options.first_answer, options.first_sign) = (limit, limit);
    options.service = "NLM or NSM";
    let (transport, driver) = tcp::connect(connector, Arc::new(Heap), env, options).await?;
    tokio::spawn(driver);
    Ok(transport)
}

impl Lines {
    fn kept(&self) -> MutexGuard<'_, HashMap<Key, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for one question, from any port.
    pub(super) async fn once(
        &self,
        from: IpAddr,
        to: SocketAddr,
        env: &Env,
        limit: Duration,
    ) -> Result<Transport, rpcrdma_oncrpc::CallError> {
        Ok(connect((from, to), false, env, limit).await?)
    }

    /// The connection to a program.
    pub(super) async fn get(
        self: &Arc<Self>,
        from: IpAddr,
        to: SocketAddr,
        env: &Env,
        limit: Duration,
    ) -> Result<Transport, rpcrdma_oncrpc::CallError> {
        let key = (from, to);
        let line = self.line(key);
        let mut transport = line.transport.lock().await;
        if let Some(transport) = &*transport {
            return Ok(transport.clone());
        }
        Ok(transport.insert(connect(key, true, env, limit).await?).clone())
    }

    fn line(self: &Arc<Self>, key: Key) -> Arc<Line> {
        let mut kept = self.kept();
        if let Some(known) = kept.get_mut(&key) {
            known.used = Instant::now();
            return known.line.clone();
        }
        if kept.len() >= MAX_LINES {
            // Unused connections are closed now to make room. There are always fewer calls under way than connections.
            kept.retain(|_, kept| Arc::strong_count(&kept.line) > 1);
        }
        let line = Arc::<Line>::default();
        kept.insert(key, Kept { line: line.clone(), used: Instant::now() });
        tokio::spawn(end_when_idle(self.clone(), key, line.clone()));
        line
    }

    /// Ends a connection that is of no use.
    pub(super) async fn end(&self, from: IpAddr, to: SocketAddr, transport: &Transport) {
        let line = self.kept().get(&(from, to)).map(|kept| kept.line.clone());
        let Some(line) = line else { return };
        let mut current = line.transport.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, transport)) {
            *current = None;
        }
    }
}

async fn end_when_idle(lines: Arc<Lines>, key: Key, line: Arc<Line>) {
    let line = {
        let weak = Arc::downgrade(&line);
        drop(line);
        weak
    };
    loop {
        tokio::time::sleep(IDLE_TIME).await;
        let mut kept = lines.kept();
        let is_this = |kept: &Kept| Arc::as_ptr(&kept.line) == line.as_ptr();
        match kept.get(&key).filter(|kept| is_this(kept)).map(|kept| kept.used.elapsed()) {
            // It was closed to make room, or a newer connection has its place.
            None => return,
            Some(idle) if idle >= IDLE_TIME => {
                kept.remove(&key);
                return;
            }
            Some(_) => {}
        }
    }
}
