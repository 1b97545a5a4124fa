//! The queue pair.
//!
//! The tables here own the memory of posted work until the device is done with it. A queue in memory feeds the device's
//! send queue, so callers need not know its length; RDMA Reads wait in a queue of their own, so that Reads beyond the
//! agreed number delay nothing else. All work happens when the queue pair is polled: post, take completions, look for
//! events, sleep until either descriptor is ready.

mod ending;
mod exposures;
mod keepalive;
mod kind;
mod receives;
mod work;

use crate::{
    channel::Id,
    completions::Completions,
    domain::{Domain, Region},
    error::REMOVED,
    shared::Shared,
    shared_receives::SharedReceives,
    sys::{cm, verbs},
    window::Window,
};
use bytes::Bytes;
use exposures::Exposure;
use kind::wanted;
use receives::PostedReceive;
use rpcrdma_env::{Buffer, Pause, Spin, Timestamp};
use rpcrdma_fabric::{
    BoxFuture, Capabilities, CloseReason, Completion, ConnectionInfo, Lent, QueuePair, ReadWork, Receives, Refused,
    RefusedReason, RemoteSegment, SendWork, Token, WriteWork,
};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
};
use work::{Posted, ReadPart, Reading, Work};

/// The phase of the connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The handshake is not finished: only receives can be posted.
    Setup,
    Open,
    /// We disconnect when the posted work is done, or at this time.
    Draining(Timestamp),
    /// We have disconnected; until this time the peer may do the same.
    Leaving(Timestamp),
    /// Work was flushed. Until this time an event may show why.
    Suspect(Timestamp),
    /// Everything has been handed back.
    Over,
}

/// The connection's objects of the device.
struct Hardware {
    id: Id,
    completions: Completions,
}

pub(crate) struct VerbsQueuePair {
    shared: Arc<Shared>,
    domain: Arc<Domain>,
    info: ConnectionInfo,
    /// `None` after the connection's end.
    hardware: Option<Hardware>,
    phase: Phase,
    /// Why the connection ends: set once; the next poll ends it.
    reason: Option<CloseReason>,
    /// Work that the device does not have yet,
    waiting: VecDeque<Work>,
    /// and parts of Reads, which follow as their agreed number allows.
    reads_waiting: VecDeque<ReadPart>,
    /// Work that the device has, in the order of posting.
    posted: VecDeque<Posted>,
    reads_posted: usize,
    /// How many of the last posted pieces of work are unsignaled.
    unreported: usize,
    reads: BTreeMap<u64, Reading>,
    receives: BTreeMap<u64, PostedReceive>,
    /// The source of receives if they are not the connection's own. Kept longer than the device's queue pair, which
    /// points to it.
    pool: Option<Arc<SharedReceives>>,
    exposures: BTreeMap<u32, Exposure>,
    /// Windows that are not bound, the one that is free for the longest time first.
    windows: VecDeque<Window>,
    next_number: u64,
    out: VecDeque<Completion>,
    taken: Vec<verbs::WorkCompletion>,
    timer: Option<(Timestamp, BoxFuture<'static, ()>)>,
    /// When to ask an idle peer for a sign of life,
    alive: Option<BoxFuture<'static, ()>>,
    /// unless the device has reported something since the last check.
    heard: bool,
    spin: Spin,
}

impl VerbsQueuePair {
    /// A queue pair for a connection in set-up, with receives of its own or from a pool.
    fn new(shared: Arc<Shared>, mut id: Id, pool: Option<Arc<SharedReceives>>) -> io::Result<Self> {
        let domain = shared.domain()?;
        let limits = &shared.limits;
        // One connection may take all receives of a pool.
        let own = if pool.is_some() { 0 } else { limits.capabilities.max_receives };
        let receives = if pool.is_some() { limits.shared_receives } else { own };
        let completions = Completions::new(&shared.context, limits.send_queue + receives)?;
        let shared_queue = pool.as_ref().map(|pool| pool.raw());
        let mut init = wanted(&shared.limits, completions.queue(), own, shared_queue);
        id.create_queue_pair(domain.raw(), &mut init)?;
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let info = ConnectionInfo { local: nowhere, peer: nowhere, private_data: Bytes::new(), ird: 0, ord: 0 };
        let spin = Spin::new(shared.config.busy_poll);
        Ok(Self {
            shared,
            domain,
            info,
            hardware: Some(Hardware { id, completions }),
            phase: Phase::Setup,
            reason: None,
            waiting: VecDeque::new(),
            reads_waiting: VecDeque::new(),
            posted: VecDeque::new(),
            reads_posted: 0,
            unreported: 0,
            reads: BTreeMap::new(),
            receives: BTreeMap::new(),
            pool,
            exposures: BTreeMap::new(),
            windows: VecDeque::new(),
            next_number: 0,
            out: VecDeque::new(),
            taken: Vec::new(),
            timer: None,
            alive: None,
            heard: false,
            spin,
        })
    }

    /// As [`new`](Self::new), with its receives posted.
    pub(crate) fn with_receives(shared: &Arc<Shared>, id: Id, receives: Receives) -> io::Result<Self> {
        let (buffers, pool) = match receives {
            Receives::Own(buffers) => (buffers, None),
            Receives::Shared(pool) => (Vec::new(), Some(shared.own_pool(&*pool)?)),
        };
        let mut queue_pair = Self::new(shared.clone(), id, pool)?;
        for buffer in buffers {
            queue_pair.post_receive(buffer).map_err(|refused| io::Error::other(refused.reason))?;
        }
        Ok(queue_pair)
    }

    /// The connection manager's identifier, until the connection is over.
    pub(crate) fn id(&self) -> Option<&Id> {
        self.hardware.as_ref().map(|hardware| &hardware.id)
    }

    /// The handshake is finished.
    pub(crate) fn open(&mut self, info: ConnectionInfo) {
        tracing::debug!(local = %info.local, peer = %info.peer, ird = info.ird, ord = info.ord, "connected");
        self.info = info;
        self.phase = Phase::Open;
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Whether the connection accepts work.
    fn takes_work(&self) -> Result<(), RefusedReason> {
        match self.phase {
            Phase::Open | Phase::Suspect(_) => {}
            Phase::Setup | Phase::Draining(_) | Phase::Leaving(_) | Phase::Over => return Err(RefusedReason::Closed),
        }
        let max = self.shared.capabilities().max_posted;
        if self.waiting.len() + self.reads_waiting.len() + self.posted.len() >= max {
            return Err(RefusedReason::Limit { what: "the number of posted pieces of work", max });
        }
        Ok(())
    }

    /// Whether it accepts a message of these slices.
    fn takes_message(&self, octets: &[Bytes]) -> Result<(), RefusedReason> {
        self.takes_work()?;
        let limits = self.shared.capabilities();
        if octets.len() > limits.max_gather {
            return Err(RefusedReason::Limit { what: "the number of slices", max: limits.max_gather });
        }
        let total = octets.iter().try_fold(0_usize, |sum, slice| sum.checked_add(slice.len()));
        if total.is_none_or(|total| total > limits.max_message_bytes) {
            return Err(RefusedReason::Limit { what: "the length of a message", max: limits.max_message_bytes });
        }
        Ok(())
    }

    fn takes_read(&self, read: &ReadWork) -> Result<(), RefusedReason> {
        self.takes_work()?;
        if self.info.ord == 0 {
            return Err(RefusedReason::Unsupported("RDMA Read"));
        }
        let limits = self.shared.capabilities();
        let max = limits.max_message_bytes;
        if read.sources.iter().any(|source| source.length as usize > max) {
            return Err(RefusedReason::Limit { what: "the length of a message", max });
        }
        let total = read.sources.iter().try_fold(0_usize, |sum, source| sum.checked_add(source.length as usize));
        match total {
            Some(0) => Err(RefusedReason::Empty),
            Some(total) if total <= read.sink.capacity() => Ok(()),
            _ => Err(RefusedReason::Limit { what: "the number of bytes read", max: read.sink.capacity() }),
        }
    }

    /// Records why the connection ends, unless a reason is known already.
    fn end(&mut self, reason: CloseReason) {
        self.reason.get_or_insert(reason);
    }

    /// Handles an event of the connection manager.
    fn event(&mut self, kind: i32) {
        match kind {
            cm::DISCONNECTED => {
                // The peer's last Sends may still be in the queue.
                while self.take_completions() {}
                let leaves = matches!(self.phase, Phase::Draining(_) | Phase::Leaving(_));
                self.end(if leaves { CloseReason::Local } else { CloseReason::Remote });
            }
            cm::DEVICE_REMOVAL => {
                self.shared.context.leave();
                self.end(CloseReason::Broken(REMOVED.to_owned()));
            }
            _ => {}
        }
    }

    /// Takes the next step that is due. Returns whether there was one.
    fn step(&mut self) -> bool {
        let idle = self.posted.is_empty() && self.waiting.is_empty() && self.reads_waiting.is_empty();
        if self.reason.is_some() {
            self.finish();
            return true;
        }
        if matches!(self.phase, Phase::Draining(_)) && idle {
            self.leave();
            return true;
        }
        false
    }

    /// Disconnects from the peer.
    fn leave(&mut self) {
        let told = self.id().map(Id::disconnect);
        if let Some(Err(error)) = told {
            tracing::debug!(%error, "cannot tell the peer that the connection ends");
            self.end(CloseReason::Local);
        }
        self.phase = Phase::Leaving(self.shared.env.clock.now() + self.shared.config.linger);
    }

    /// Checks the phase's time limit. Returns whether it has passed.
    fn watch(&mut self, cx: &mut Context<'_>) -> bool {
        let when = match self.phase {
            Phase::Draining(when) | Phase::Leaving(when) | Phase::Suspect(when) => when,
            Phase::Open => return self.keep_alive(cx),
            Phase::Setup | Phase::Over => return false,
        };
        let clock = &self.shared.env.clock;
        let (_, sleep) = match &mut self.timer {
            Some(timer) if timer.0 == when => timer,
            timer => timer.insert((when, clock.sleep_until(when))),
        };
        if sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.timer = None;
        match self.phase {
            Phase::Draining(_) => self.leave(),
            Phase::Suspect(_) => self.end(CloseReason::Broken("the device gave its work back unfinished".to_owned())),
            _ => self.end(CloseReason::Local),
        }
        true
    }

    /// Checks both descriptors. Returns whether there is anything to do.
    fn listen(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(hardware) = &mut self.hardware else { return false };
        match hardware.id.channel().poll_next(cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(event)) => {
                self.event(event.kind);
                return true;
            }
            Poll::Ready(Err(error)) => {
                self.end(CloseReason::Broken(error.to_string()));
                return true;
            }
        }
        let armed = hardware.completions.arm();
        let told = match armed {
            // A completion may have come between the last poll and this.
            Ok(true) => return true,
            Ok(false) => hardware.completions.poll_told(cx),
            Err(error) => Poll::Ready(Err(error)),
        };
        match told {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => {
                self.end(CloseReason::Broken(error.to_string()));
                true
            }
        }
    }
}

// SAFETY: its pointers lead to objects of the libraries, which any thread may use, and to memory that it owns.
unsafe impl std::marker::Send for VerbsQueuePair {}

impl QueuePair for VerbsQueuePair {
    fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        self.shared.capabilities()
    }

    fn post_receive(&mut self, buffer: Buffer) -> Result<(), Refused<Buffer>> {
        self.give_receive(buffer)
    }

    fn posted_receives(&self) -> usize {
        self.receives.len()
    }

    fn post_send(&mut self, send: SendWork) -> Result<(), Refused<SendWork>> {
        let mut checked = self.takes_message(&send.octets);
        if send.invalidate.is_some() && !self.shared.capabilities().send_with_invalidate {
            checked = checked.and(Err(RefusedReason::Unsupported("Send with Invalidate")));
        }
        match checked {
            Ok(()) => {
                self.waiting.push_back(Work::Send(send));
                Ok(())
            }
            Err(reason) => Err(Refused { reason, returned: send }),
        }
    }

    fn post_write(&mut self, write: WriteWork) -> Result<(), Refused<WriteWork>> {
        match self.takes_message(&write.octets) {
            Ok(()) => {
                self.waiting.push_back(Work::Write(write));
                Ok(())
            }
            Err(reason) => Err(Refused { reason, returned: write }),
        }
    }

    fn post_read(&mut self, read: ReadWork) -> Result<(), Refused<ReadWork>> {
        match self.takes_read(&read) {
            Ok(()) => self.queue_read(read),
            Err(reason) => Err(Refused { reason, returned: read }),
        }
    }

    fn expose(&mut self, token: Token, memory: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        self.lend(token, memory)
    }

    fn invalidate(&mut self, handle: u32) {
        self.fence(handle);
    }

    fn disconnect(&mut self) {
        if matches!(self.phase, Phase::Open) {
            self.phase = Phase::Draining(self.shared.env.clock.now() + self.shared.config.drain_timeout);
        }
    }

    fn has_completion(&self) -> bool {
        !self.out.is_empty()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        loop {
            if let Some(completion) = self.out.pop_front() {
                return Poll::Ready(completion);
            }
            if self.phase == Phase::Over {
                return Poll::Pending;
            }
            self.post_waiting();
            if self.take_completions() {
                continue;
            }
            if self.step() || !self.out.is_empty() {
                continue;
            }
            // The time limits of an end are watched below, however quickly the peer's messages come. The device, which
            // costs no system call, was asked above: there is nothing to look at before others have had their way.
            if self.phase == Phase::Open && self.spin.pause(&*self.shared.env.clock) != Pause::Sleep {
                Spin::again(cx);
                return Poll::Pending;
            }
            if !self.listen(cx) && !self.watch(cx) {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A registration that is kept only because its memory is in use.
type Kept = Option<Region>;
