//! Setting connections up: listeners, requests, answers.
//!
//! If a connection is not made, its receives are dropped.

use crate::{
    config::{SimConfig, nanos},
    endpoint::{Channel, Endpoint, side},
    fabric::SETUP_SECONDS,
    log::Event,
    state::{Route, State},
};
use bytes::Bytes;
use rpcrdma_env::{Buffer, Random};
use rpcrdma_fabric::{ConnectError, ConnectionInfo, ConnectionParams, ReceivePool, Receives};
use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// Requests that wait at a listener. A listener refuses more requests, as TCP does when its backlog is full.
const MAX_BACKLOG: usize = 128;

/// The lowest port that callers get who do not ask for a certain port.
const FIRST_EPHEMERAL_PORT: u16 = 49_152;

/// A listener and the requests that wait at it.
#[derive(Default)]
pub(crate) struct ListenerState {
    /// Distinguishes this listener from an earlier one at the same port.
    pub(crate) number: u64,
    pub(crate) backlog: VecDeque<u64>,
    pub(crate) waker: Option<Waker>,
}

/// A connection that is being set up, as its initiator sees it.
pub(crate) struct Connecting {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    config: Arc<SimConfig>,
    private_data: Bytes,
    ird: u16,
    ord: u16,
    /// Taken when the answer comes.
    receives: Option<Receives>,
    outcome: Option<Result<(), ConnectError>>,
    waker: Option<Waker>,
}

impl State {
    /// A port that nothing on the host uses.
    pub(crate) fn free_port(&mut self, ip: std::net::IpAddr) -> u16 {
        let host = self.host(ip);
        loop {
            host.last_port = host.last_port.checked_add(1).unwrap_or(0).max(FIRST_EPHEMERAL_PORT);
            if !host.listeners.contains_key(&host.last_port) {
                return host.last_port;
            }
        }
    }

    /// Sends a connection request. From here on, the connection's number identifies it.
    pub(crate) fn request(
        &mut self,
        local: SocketAddr,
        peer: SocketAddr,
        config: Arc<SimConfig>,
        params: ConnectionParams,
    ) -> u64 {
        let connection = self.next_connection;
        self.next_connection += 1;
        let ConnectionParams { private_data, ird, ord, receives } = params;
        let ird = ird.min(config.capabilities.max_ird);
        let ord = ord.min(config.capabilities.max_ord);
        self.record(Event::Connecting { connection, from: local, to: peer });
        let delay = config.link.delay(&self.random, private_data.len());
        let receives = Some(receives);
        self.connecting.insert(
            connection,
            Connecting { local, peer, config, private_data, ird, ord, receives, outcome: None, waker: None },
        );
        let route = Route { from: local.ip(), to: peer.ip(), sender: None };
        self.after(delay, move |state| {
            state.arrive(route, Box::new(move |state| state.request_arrives(connection)));
        });
        self.after(nanos(Duration::from_secs(SETUP_SECONDS)), move |state| {
            state.not_connected(connection, |peer| ConnectError::TimedOut { peer, seconds: SETUP_SECONDS });
        });
        connection
    }

    fn request_arrives(&mut self, connection: u64) {
        let Some(peer) = self.awaiting(connection).map(|c| c.peer) else { return };
        match self.host(peer.ip()).listeners.get_mut(&peer.port()) {
            Some(listener) if listener.backlog.len() < MAX_BACKLOG => {
                listener.backlog.push_back(connection);
                if let Some(waker) = listener.waker.take() {
                    waker.wake();
                }
            }
            _ => self.answer_not(connection, |peer| ConnectError::Refused { peer }),
        }
    }

    /// The connection, if its initiator still waits for an answer.
    pub(crate) fn awaiting(&mut self, connection: u64) -> Option<&mut Connecting> {
        self.connecting.get_mut(&connection).filter(|c| c.outcome.is_none())
    }

    /// Tells the initiator, by a message, that the connection is not made.
    pub(crate) fn answer_not(
        &mut self,
        connection: u64,
        why: impl FnOnce(SocketAddr) -> ConnectError + Send + 'static,
    ) {
        let Some(connecting) = self.connecting.get(&connection) else { return };
        let route = Route { from: connecting.peer.ip(), to: connecting.local.ip(), sender: None };
        let delay = connecting.config.link.delay(&self.random, 0);
        self.after(delay, move |state| {
            state.arrive(route, Box::new(move |state| state.not_connected(connection, why)));
        });
    }

    /// The initiator learns that the connection is not made.
    pub(crate) fn not_connected(&mut self, connection: u64, why: impl FnOnce(SocketAddr) -> ConnectError) {
        let Some(connecting) = self.awaiting(connection) else { return };
        connecting.outcome = Some(Err(why(connecting.peer)));
        connecting.receives = None;
        if let Some(waker) = connecting.waker.take() {
            waker.wake();
        }
        self.record(Event::NotConnected { connection });
    }

    /// The contents of a request, seen from the side that receives it.
    pub(crate) fn request_info(&self, connection: u64) -> Option<ConnectionInfo> {
        let connecting = self.connecting.get(&connection)?;
        Some(ConnectionInfo {
            local: connecting.peer,
            peer: connecting.local,
            private_data: connecting.private_data.clone(),
            ird: connecting.ord,
            ord: connecting.ird,
        })
    }

    /// Makes the accepting end, and sends the answer. `None` if the initiator has gone.
    pub(crate) fn answer(
        &mut self,
        connection: u64,
        config: &SimConfig,
        params: ConnectionParams,
    ) -> Option<ConnectionInfo> {
        let request = self.request_info(connection)?;
        self.awaiting(connection)?;
        let ird = request.ird.min(params.ird).min(config.capabilities.max_ird);
        let ord = request.ord.min(params.ord).min(config.capabilities.max_ord);
        let id = 2 * connection + 1;
        let answer = params.private_data;
        self.connected(id, ConnectionInfo { ird, ord, ..request.clone() }, config, params.receives);
        let octets = answer.len();
        self.transmit(id, Channel::Ordered, octets, move |state| {
            let Some(connecting) = state.awaiting(connection) else { return state.reset_initiator(connection) };
            let Some(receives) = connecting.receives.take() else { return };
            let info = ConnectionInfo {
                local: connecting.local,
                peer: connecting.peer,
                private_data: answer,
                ird: ord,
                ord: ird,
            };
            connecting.outcome = Some(Ok(()));
            if let Some(waker) = connecting.waker.take() {
                waker.wake();
            }
            let config = connecting.config.clone();
            state.connected(2 * connection, info, &config, receives);
        });
        Some(ConnectionInfo { ird, ord, ..request })
    }

    /// The answer has found no initiator any more.
    fn reset_initiator(&mut self, connection: u64) {
        self.end(2 * connection + 1, rpcrdma_fabric::CloseReason::Broken("the initiator has gone".to_owned()), None);
    }

    fn connected(&mut self, id: u64, info: ConnectionInfo, config: &SimConfig, receives: Receives) {
        let (own, shared): (Vec<Buffer>, Option<Arc<dyn ReceivePool>>) = match receives {
            Receives::Own(buffers) => (buffers, None),
            Receives::Shared(pool) => (Vec::new(), Some(pool)),
        };
        let quirks = self.random.next_u64();
        let capabilities = Arc::new(config.capabilities.clone());
        self.endpoints.insert(id, Endpoint::new(info, config.link, capabilities, own, shared, quirks));
        self.record(Event::Connected { connection: id / 2, side: side(id) });
    }

    /// How the set-up has ended, for the initiator's future: on success with the number of its end.
    pub(crate) fn poll_connect(
        &mut self,
        connection: u64,
        cx: &Context<'_>,
    ) -> Poll<Result<(u64, ConnectionInfo), ConnectError>> {
        let Some(connecting) = self.connecting.get_mut(&connection) else { return Poll::Pending };
        let Some(outcome) = connecting.outcome.take() else {
            connecting.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let peer = connecting.peer;
        self.connecting.remove(&connection);
        let id = 2 * connection;
        Poll::Ready(outcome.and_then(|()| match self.endpoints.get(&id) {
            Some(end) => Ok((id, end.info.clone())),
            None => Err(ConnectError::Io { peer, error: io::ErrorKind::ConnectionReset.into() }),
        }))
    }

    /// The initiator's future was dropped.
    pub(crate) fn stop_connecting(&mut self, connection: u64) {
        if let Some(connecting) = self.connecting.remove(&connection) {
            drop(connecting);
            self.abandon(2 * connection);
        }
    }
}
