//! A server's calls over the connection that its client has made.
//!
//! [`ReverseTransport`] is the callers' end; [`Reverse`] belongs to the connection's driver and owns the calls that are
//! under way and those that wait for their turn. A call ends by its reply, by a deadline, or with the connection. A
//! reply that answers no call is dropped and counted: it may be late, or belong to another call. None of this ends the
//! connection.

use super::{
    calls::{self, Command},
    record::RecordWriter,
};
use crate::{ClientTransport, GivingUp, Limits, PendingCall, Reply, Request, TransportError, TransportKind, XidSource};
use rpcrdma_env::{BoxFuture, Clock, Timestamp};
use rpcrdma_xdr::Stream;
use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::mpsc;

/// Calls a client over its own connection.
#[derive(Debug)]
pub(super) struct ReverseTransport {
    /// Unbounded: each entry is a call of this server, whose caller provides its memory and waits for it.
    commands: mpsc::UnboundedSender<Command>,
    xids: XidSource,
    peer: SocketAddr,
    max_record: usize,
    giving_up: Arc<GivingUp>,
}

impl ClientTransport for ReverseTransport {
    fn next_xid(&self) -> u32 {
        self.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        calls::start(request, self.limits(), &self.commands)
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn limits(&self) -> Limits {
        Limits::new(self.max_record, self.max_record)
    }

    /// The client, because in this direction it answers.
    fn server(&self) -> SocketAddr {
        self.peer
    }

    fn give_up(&self, why: &'static str) {
        self.giving_up.say(why);
    }
}

/// What a connection's driver keeps of calls to its client.
pub(super) struct Reverse {
    commands: mpsc::UnboundedReceiver<Command>,
    /// Calls that were sent and are not answered, by XID. Those whose caller has gone away stay until their end, so
    /// that their replies are recognised.
    sent: HashMap<u32, Command>,
    /// Calls that wait until fewer are under way.
    waiting: VecDeque<Command>,
    /// Until when each sent call must be answered, in that order; some of them may have ended.
    due: VecDeque<(Timestamp, u32)>,
    timer: Option<BoxFuture<'static, ()>>,
    /// The most calls under way.
    limit: usize,
    deadline: Duration,
    peer: SocketAddr,
    /// Replies that answered no call.
    stray: Arc<AtomicU64>,
    giving_up: Arc<GivingUp>,
}

impl Reverse {
    /// For calls to `peer`, of which at most `limit` are under way, each for at most `deadline`.
    pub(super) fn new(
        (peer, connection): (SocketAddr, u64),
        max_record: usize,
        (limit, deadline): (usize, Duration),
        clock: &dyn Clock,
        stray: Arc<AtomicU64>,
    ) -> (Self, Arc<ReverseTransport>) {
        let (sender, commands) = mpsc::unbounded_channel();
        // Each connection begins at another XID, so that a client that remembers XIDs takes no call for an earlier one.
        let first = (clock.now().as_nanos() ^ connection.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 16;
        let xids = XidSource::starting_at(first as u32);
        let giving_up = Arc::<GivingUp>::default();
        let transport = ReverseTransport { commands: sender, xids, peer, max_record, giving_up: giving_up.clone() };
        let (sent, waiting, due) = Default::default();
        let reverse = Self { commands, sent, waiting, due, timer: None, limit, deadline, peer, stray, giving_up };
        (reverse, Arc::new(transport))
    }

    /// Ready when a caller wants the connection to be ended.
    pub(super) fn given_up(&self, cx: &mut Context<'_>) -> Poll<&'static str> {
        self.giving_up.poll(cx)
    }

    /// Whether a call is under way, so that its reply must be read.
    pub(super) fn awaits_reply(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Sends the calls of callers, as far as the limit allows, and ends calls that were not answered in time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, clock: &dyn Clock, writer: &mut RecordWriter) {
        while let Poll::Ready(Some(command)) = self.commands.poll_recv(cx) {
            self.waiting.push_back(command);
        }
        self.poll_due(cx, clock);
        while self.sent.len() < self.limit
            && let Some(command) = self.waiting.pop_front()
        {
            // A call whose caller has gone away is not sent.
            if command.sender.is_closed() {
                continue;
            }
            if self.sent.contains_key(&command.xid) {
                command.refuse();
                continue;
            }
            writer.push(&command.message);
            self.due.push_back((clock.now() + self.deadline, command.xid));
            self.sent.insert(command.xid, command);
        }
        // The call that is due first may just have been sent.
        self.poll_due(cx, clock);
    }

    fn poll_due(&mut self, cx: &mut Context<'_>, clock: &dyn Clock) {
        loop {
            while let Some((_, xid)) = self.due.front()
                && !self.sent.contains_key(xid)
            {
                self.due.pop_front();
                self.timer = None;
            }
            let Some((until, xid)) = self.due.front().copied() else { return };
            let timer = self.timer.get_or_insert_with(|| clock.sleep_until(until));
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
            self.timer = None;
            self.due.pop_front();
            if let Some(command) = self.sent.remove(&xid) {
                command.fail(TransportError::NotAnswered { server: self.peer, after: self.deadline });
            }
        }
    }

    /// A reply has come.
    pub(super) fn answered(&mut self, xid: u32, stream: Stream) {
        match self.sent.remove(&xid) {
            Some(command) => command.answer(Reply { stream, retransmitted: false }),
            None => {
                self.stray.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(peer = %self.peer, xid, "a reply to no call was dropped");
            }
        }
    }
}
