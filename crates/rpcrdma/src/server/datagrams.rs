//! The programs that are served over UDP: one socket for each address, all of them on the first serving thread.
//!
//! The server counts datagrams that it does not answer, and reports them in the log once a minute, so that a flood of
//! datagrams does not flood the log. A client whose address is not allowed gets an answer that says so, which is
//! shorter than its call.

use super::{
    gate::Gate,
    metrics,
    ports::Spoken,
    seldom::Seldom,
    thread::{self, Shared},
};
use rpcrdma_env::{BoxFuture, Heap};
use rpcrdma_oncrpc::{
    CallContext, Handler, Outcome,
    udp::{self, Dropped},
};
use rpcrdma_xdr::Stream;
use std::{
    net::{SocketAddr, UdpSocket},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

/// How often the server reports dropped datagrams.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Serves a socket until the server is to stop.
pub(super) async fn serve(socket: UdpSocket, spoken: Spoken, handler: Arc<dyn Handler>, shared: Shared) {
    let (local, socket) = match socket.local_addr().and_then(|local| Ok((local, udp::Socket::new(socket)?))) {
        Ok(opened) => opened,
        Err(error) => return tracing::error!(over = spoken.name(), %error, "cannot serve over UDP"),
    };
    let endpoint = udp::Endpoint { local, id: shared.connection_ids.next_id(), allocator: Arc::new(Heap) };
    let guarded = Arc::new(Guarded { handler, stranger: shared.stranger.clone(), gate: shared.gate.clone() });
    let (handle, driver) = udp::serve(socket, endpoint, guarded, &shared.env, udp::ServerOptions::default());
    let (mut driver, mut stopping) = (pin!(driver), shared.stopping.clone());
    let mut watched = Watched { local, spoken, seen: Dropped::default(), answered: 0, seldom: Seldom::default() };
    loop {
        let is_over = tokio::select! {
            biased;
            () = &mut driver => true,
            () = thread::stopped(&mut stopping) => {
                handle.drain();
                driver.as_mut().await;
                true
            }
            // Not a timer of the runtime, with which the thread's connections would wait with a time limit.
            () = shared.env.clock.sleep_until(shared.env.clock.now() + LOOK_INTERVAL) => false,
        };
        watched.look(&handle);
        if is_over {
            return;
        }
    }
}

/// Serves clients whose addresses are allowed, and tells the others that theirs are not.
struct Guarded {
    handler: Arc<dyn Handler>,
    stranger: Arc<dyn Handler>,
    gate: Arc<Gate>,
}

impl Handler for Guarded {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        let peer = context.connection.peer;
        if self.gate.allows(peer.ip()) {
            return self.handler.handle(context, message);
        }
        tracing::debug!(%peer, "a call over UDP is not served: its address is not in --allow");
        self.stranger.handle(context, message)
    }
}

/// What the log has already reported of a socket.
struct Watched {
    local: SocketAddr,
    spoken: Spoken,
    seen: Dropped,
    answered: u64,
    seldom: Seldom,
}

impl Watched {
    /// Counts what has happened since the last look, and reports what was dropped.
    fn look(&mut self, handle: &udp::ServerHandle) {
        let (dropped, answered) = (handle.dropped(), handle.answered());
        metrics::datagrams_answered(answered - std::mem::replace(&mut self.answered, answered));
        let before = std::mem::replace(&mut self.seen, dropped);
        let mut news = Vec::new();
        for ((reason, now), (_, before)) in dropped.by_reason().into_iter().zip(before.by_reason()) {
            if now > before {
                metrics::datagrams_dropped(reason, now - before);
                news.push(format!("{reason} {now}"));
            }
        }
        if !news.is_empty()
            && let Some(untold) = self.seldom.tell(Instant::now())
        {
            let (local, over) = (self.local, self.spoken.name());
            tracing::warn!(%local, over, dropped = news.join(", "), untold, "calls over UDP were dropped");
        }
    }
}
