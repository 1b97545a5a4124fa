//! Calls of the peer: memory for their chunks, execution, answers.
//!
//! Owns calls that wait for their turn or for memory, the bytes pulled for them, and the futures of the service. A
//! dispatched call runs to its end even if its connection has ended; its result is then dropped.

use crate::{
    refused::{Fingerprint, RefusedCall, RefusedCalls},
    requests::{Delivered, Requests, Wanted},
};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rpcrdma_engine::{Answer, Piece, Pieces, RequestId};
use rpcrdma_env::{Allocator, BoxFuture, Buffer, Clock, Timestamp};
use rpcrdma_fabric::{
    RemoteSegment,
    pool::{Budget, Pool},
};
use rpcrdma_oncrpc::{Arrivals, Begun, CallContext, GoneSignal, Handler, Outcome};
use rpcrdma_xdr::Stream;
use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// The memory of all connections of a server. Pulled arguments and results have a half each, so that calls that hold
/// memory of one half and wait for the other never wait for each other.
#[derive(Clone)]
pub struct ServerMemory {
    /// For arguments that the server pulls from clients.
    pub arguments: Arc<dyn Allocator>,
    /// For results: the services' allocator.
    pub results: Arc<dyn Allocator>,
    /// For receives, whose number credits limit.
    pub receives: Arc<dyn Allocator>,
}

impl ServerMemory {
    /// Memory for a software provider: `octets` for arguments and results together, without receives.
    pub fn budget(octets: usize) -> Self {
        let pool = Pool::new();
        let half = |octets: usize| -> Arc<Budget> { Arc::new(pool.budget(octets)) };
        Self { arguments: half(octets / 2), results: half(octets / 2), receives: Arc::new(pool.clone()) }
    }
}

impl std::fmt::Debug for ServerMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerMemory")
    }
}

/// Something for the session to do.
pub(crate) enum Ready {
    /// A call has a buffer for its chunks.
    Buffer { request: RequestId, sink: Buffer, sources: Vec<RemoteSegment> },
    /// The service has an answer.
    Answer(RequestId, Answer),
    /// The peer has not let us pull a call's chunks in this time.
    Overdue(Duration),
}

/// For how many calls a connection remembers the fingerprint, in case that it cannot write their results. By default it
/// has no more calls and untaken answers.
const REMEMBERED_CALLS: usize = 256;

/// The table of calls that cannot be answered, and the calls of this connection that may have to go there.
pub(crate) struct Refusals {
    table: RefusedCalls,
    clock: Arc<dyn Clock>,
    client: IpAddr,
    /// The last calls that the service got, by XID.
    handed_over: VecDeque<(u32, Fingerprint)>,
}

impl Refusals {
    pub(crate) fn new(table: RefusedCalls, clock: Arc<dyn Clock>, client: IpAddr) -> Self {
        Self { table, clock, client, handed_over: VecDeque::new() }
    }

    /// Whether a call uses memory that the peer has refused on an earlier connection. If so, the table forgets it.
    fn take(&self, xid: u32, call: Fingerprint) -> bool {
        // Reads the clock only if the table has entries.
        !self.table.is_empty() && self.table.take(self.clock.now(), &RefusedCall { client: self.client, xid, call })
    }

    fn hand_over(&mut self, xid: u32, call: Fingerprint) {
        if self.handed_over.len() == REMEMBERED_CALLS {
            self.handed_over.pop_front();
        }
        self.handed_over.push_back((xid, call));
    }
}

pub(crate) struct Service {
    handler: Arc<dyn Handler>,
    context: CallContext,
    arguments: Arc<dyn Allocator>,
    waiting: FuturesUnordered<BoxFuture<'static, Ready>>,
    /// Whether an entry of `waiting` has not been polled yet, so that it cannot wake the task.
    unasked: bool,
    /// Calls that the handler does not have yet.
    requests: Requests,
    arrivals: Arrivals,
    clock: Arc<dyn Clock>,
    /// Fires when the first call's chunks are due.
    timer: Option<(Timestamp, BoxFuture<'static, ()>)>,
    executing: FuturesUnordered<BoxFuture<'static, (RequestId, Outcome)>>,
    ready: VecDeque<Ready>,
    refusals: Option<Refusals>,
    /// Dropped when the connection has ended.
    signal: Option<GoneSignal>,
    draining: bool,
}

/// What a service is made of.
pub(crate) struct ServiceParts {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) context: CallContext,
    /// Memory for pulled arguments.
    pub(crate) arguments: Arc<dyn Allocator>,
    /// How long the peer may make no progress.
    pub(crate) stall: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// Dropped when the connection has ended.
    pub(crate) signal: GoneSignal,
    pub(crate) refusals: Option<Refusals>,
}

/// A call that the handler has received.
pub(crate) struct Executed {
    pub(crate) xid: u32,
    /// Bytes that came with the message.
    pub(crate) inline_bytes: usize,
    /// Bytes that we pulled for it.
    pub(crate) pulled_bytes: usize,
    /// Bytes of the answer, if there is one at once.
    pub(crate) answer_bytes: usize,
}

impl Service {
    pub(crate) fn new(parts: ServiceParts) -> Self {
        let ServiceParts { handler, context, arguments, stall, clock, signal, refusals } = parts;
        Self {
            handler,
            context,
            arguments,
            waiting: FuturesUnordered::new(),
            unasked: false,
            requests: Requests::new(stall),
            arrivals: Arrivals::default(),
            clock,
            timer: None,
            executing: FuturesUnordered::new(),
            ready: VecDeque::new(),
            refusals,
            signal: Some(signal),
            draining: false,
        }
    }

    /// Finds memory for a call's chunks, when it is the call's turn. Returns whether a call has to wait for memory. If
    /// the peer refused the same chunks on an earlier connection, the server does not ask for them again: it answers
    /// the call with the error.
    pub(crate) fn pull(&mut self, request: RequestId, xid: u32, wanted: Wanted) -> bool {
        if self.refusals.as_ref().is_some_and(|refusals| refusals.take(xid, wanted.call)) {
            self.ready.push_back(Ready::Answer(request, Answer::Unreadable));
            return false;
        }
        self.requests.pull(request, xid, wanted);
        self.pull_next()
    }

    fn pull_next(&mut self) -> bool {
        let mut waits = false;
        while let Some((request, octets, sources)) = self.requests.next_pull() {
            // Calls that already wait come first.
            if self.waiting.is_empty()
                && let Some(sink) = self.arguments.try_allocate(octets)
            {
                self.ready.push_back(Ready::Buffer { request, sink, sources });
                continue;
            }
            let allocator = self.arguments.clone();
            self.waiting.push(Box::pin(async move {
                let sink = allocator.allocate(octets).await;
                Ready::Buffer { request, sink, sources }
            }));
            waits = true;
            self.unasked = true;
        }
        waits
    }

    /// A call's chunks have come; `is_call` says whether the engine will deliver them.
    pub(crate) fn pulled(&mut self, request: RequestId, octets: Bytes, is_call: bool) {
        self.requests.pulled(request, is_call.then_some(octets));
        self.pull_next();
    }

    /// A call's chunks will not come. If the peer has `denied` us its memory, the server does not try the same call
    /// again.
    pub(crate) fn not_pulled(&mut self, request: RequestId, denied: bool) {
        let known_by = self.requests.not_pulled(request);
        self.pull_next();
        if let Some((xid, call)) = known_by.filter(|_| denied) {
            self.refuse(xid, call);
        }
    }

    fn refuse(&self, xid: u32, call: Fingerprint) {
        if let Some(Refusals { table, clock, client, .. }) = &self.refusals {
            table.add(clock.now(), RefusedCall { client: *client, xid, call });
        }
    }

    /// The server could not write a call's results to the peer's memory, so it does not try the same call again.
    pub(crate) fn not_writable(&self, xid: u32) {
        let handed_over = self.refusals.as_ref().map(|refusals| &refusals.handed_over);
        // The latest call with this XID: an XID may be used again.
        let found = handed_over.and_then(|calls| calls.iter().rev().find(|(of, _)| *of == xid));
        if let Some(&(xid, call)) = found {
            self.refuse(xid, call);
        }
    }

    /// The engine has put a call together.
    pub(crate) fn deliver(&mut self, request: RequestId, xid: u32, pieces: Pieces) {
        self.arrivals.came();
        self.requests.deliver(request, xid, pieces);
    }

    /// Whether there is a call to execute.
    pub(crate) fn has_delivered(&self) -> bool {
        self.requests.has_delivered()
    }

    /// Passes the next call to the handler, which answers most at once.
    pub(crate) fn execute(&mut self, cx: &mut Context<'_>) -> Option<Executed> {
        let Delivered { request, xid, pieces, pulled } = self.requests.take_delivered()?;
        let call = Fingerprint::of_pieces(&pieces, &pulled);
        let mut inline_bytes = 0;
        let mut stream = Stream::with_parts(pieces.len());
        for piece in pieces {
            // The engine has made these ranges, within the bytes that it asked for.
            match piece {
                Piece::Inline(octets) => {
                    inline_bytes += octets.len();
                    stream.push_run(octets);
                }
                Piece::Run(range) => stream.push_run(part(&pulled, range)),
                Piece::Item(range) => stream.push_chunk(part(&pulled, range)),
            }
        }
        let mut executed = Executed { xid, inline_bytes, pulled_bytes: pulled.len(), answer_bytes: 0 };
        if self.draining {
            self.ready.push_back(Ready::Answer(request, Answer::Nothing));
            return Some(executed);
        }
        if let Some(refusals) = &mut self.refusals {
            if refusals.take(xid, call) {
                self.ready.push_back(Ready::Answer(request, Answer::Unreadable));
                return Some(executed);
            }
            refusals.hand_over(xid, call);
        }
        let context = self.context.clone().arrived(self.arrivals.passed_on());
        match self.handler.begin(context, stream, cx) {
            Begun::Done(outcome) => {
                if let Outcome::Reply(reply) = &outcome {
                    executed.answer_bytes = reply.len();
                }
                self.ready.push_back(Ready::Answer(request, answer(outcome)));
            }
            Begun::Waits(call) => self.executing.push(Box::pin(async move { (request, call.await) })),
        }
        Some(executed)
    }

    /// What the session has to do next.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Option<Ready> {
        let ready = self.next_ready(cx).or_else(|| self.poll_due(cx));
        if let Some(Ready::Buffer { request, .. }) = &ready {
            self.requests.asked(*request, self.clock.now());
        }
        ready
    }

    fn next_ready(&mut self, cx: &mut Context<'_>) -> Option<Ready> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        // An empty set would take the waker for nothing, which costs more than the rest of this step.
        if !self.executing.is_empty()
            && let Poll::Ready(Some((request, outcome))) = self.executing.poll_next_unpin(cx)
        {
            return Some(Ready::Answer(request, answer(outcome)));
        }
        self.unasked = false;
        if self.waiting.is_empty() {
            return None;
        }
        match self.waiting.poll_next_unpin(cx) {
            Poll::Ready(ready) => ready,
            Poll::Pending => None,
        }
    }

    /// Whether the first chunks that are due have not come in time.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Option<Ready> {
        loop {
            let due = self.requests.due()?;
            // A timer that fires too early is kept: a timer for each call would cost too much.
            if self.timer.as_ref().is_none_or(|(when, _)| *when > due) {
                self.timer = Some((due, self.clock.sleep_until(due)));
            }
            let (_, timer) = self.timer.as_mut()?;
            if timer.as_mut().poll(cx).is_pending() {
                return None;
            }
            self.timer = None;
            if self.clock.now() >= due {
                self.requests.stop_pulling();
                return Some(Ready::Overdue(self.requests.limit()));
            }
        }
    }

    /// Whether there is anything to do or to wait for.
    pub(crate) fn may_be_ready(&self) -> bool {
        !self.ready.is_empty() || !self.executing.is_empty() || !self.waiting.is_empty() || self.requests.is_pulling()
    }

    /// Whether there is something to do without waiting.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.unasked
    }

    /// No further call is executed.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// The connection has ended: nothing is pulled or answered any more.
    pub(crate) fn gone(&mut self) {
        self.signal = None;
        self.waiting.clear();
        self.unasked = false;
        self.requests.clear();
        self.timer = None;
        self.ready.clear();
    }

    /// Runs dispatched calls to their end. Ready when none is left.
    pub(crate) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(done) = std::task::ready!(self.executing.poll_next_unpin(cx)) {
            drop(done);
        }
        Poll::Ready(())
    }
}

fn part(pulled: &Bytes, range: std::ops::Range<usize>) -> Bytes {
    if range.end <= pulled.len() { pulled.slice(range) } else { Bytes::new() }
}

fn answer(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Reply(payload) => Answer::Reply(payload),
        Outcome::NotEligible => Answer::NotEligible,
        Outcome::Nothing => Answer::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::{Heap, TokioClock};
    use rpcrdma_oncrpc::{Arrival, Connection, Limits, TransportKind};
    use std::{net::Ipv4Addr, sync::Mutex, task::Waker};

    /// Notes the marks of its calls.
    #[derive(Default)]
    struct Marks(Mutex<Vec<Option<Arrival>>>);

    impl Handler for Marks {
        fn handle(&self, context: CallContext, _: Stream) -> BoxFuture<'static, Outcome> {
            self.0.lock().unwrap().push(context.arrival);
            Box::pin(std::future::ready(Outcome::Nothing))
        }
    }

    #[test]
    fn calls_that_came_before_the_first_was_executed_have_one_mark() {
        let (signal, gone) = GoneSignal::new();
        let at = (Ipv4Addr::LOCALHOST, 9).into();
        let limits = Limits::new(4096, 4096);
        let connection = Connection::new(at, at, 1, TransportKind::Rdma, limits, Arc::new(Heap), gone);
        let marks = Arc::new(Marks::default());
        let mut service = Service::new(ServiceParts {
            handler: marks.clone(),
            context: CallContext::new(Arc::new(connection)),
            arguments: Arc::new(Heap),
            stall: Duration::from_secs(1),
            clock: Arc::new(TokioClock::new()),
            signal,
            refusals: None,
        });
        let cx = &mut Context::from_waker(Waker::noop());
        let mut next = 0;
        for (come, executed) in [(3, 2), (1, 2), (1, 1)] {
            for _ in 0..come {
                next += 1;
                let piece = Piece::Inline(Bytes::from_static(b"call"));
                service.deliver(RequestId(next), next as u32, [piece].into_iter().collect());
            }
            for _ in 0..executed {
                service.execute(cx).expect("it has come");
            }
        }
        let marks = marks.0.lock().unwrap();
        assert!(marks.len() == 5 && marks.iter().all(Option::is_some));
        assert_eq!((marks[0], marks[2]), (marks[1], marks[3]));
        assert!(marks[1] != marks[2] && marks[3] != marks[4]);
    }

    #[test]
    fn arguments_and_results_have_half_of_the_memory_each() {
        const HALF: usize = 1 << 20;
        let ServerMemory { arguments, results, .. } = ServerMemory::budget(2 * HALF);
        for (half, other) in [(&arguments, &results), (&results, &arguments)] {
            let all = half.try_allocate(HALF).expect("there is so much");
            assert!(half.try_allocate(1).is_none(), "and no more");
            assert!(other.try_allocate(HALF).is_some(), "the other half is as it was");
            drop(all);
        }
    }
}
