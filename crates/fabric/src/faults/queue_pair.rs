//! A queue pair on which faults happen.
//!
//! Memory that the fabric below hands back waits here in a queue, or among withheld completions, until its owner gets
//! it. A cut ends the connection below in an orderly manner and turns all its further completions into flushes.

use super::{Fault, Plan, Point, Step, flip};
use crate::{
    Capabilities, CloseReason, Completion, Connected, ConnectionInfo, FenceCause, Lent, QueuePair, ReadWork, Refused,
    RefusedReason, RemoteSegment, SendWork, Token, WorkError, WorkKind, WriteWork,
};
use rpcrdma_env::{BoxFuture, Buffer, Env};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

/// The reason with which the plan's refusals are reported.
const REFUSED: RefusedReason = RefusedReason::Limit { what: "injected fault", max: 0 };

/// A completion on its way to the owner.
struct Waiting {
    completion: Completion,
    delay: Option<Duration>,
}

pub(super) struct FaultQueuePair {
    inner: Connected,
    plan: Arc<dyn Plan>,
    env: Env,
    connection: u64,
    injected: Arc<AtomicU64>,
    counts: BTreeMap<Point, u64>,
    steps: u64,
    /// The connection has been cut.
    cut: bool,
    /// The fabric below has closed the connection. Nothing may come behind that.
    over: bool,
    waiting: VecDeque<Waiting>,
    /// Runs while the first waiting completion is delayed.
    sleep: Option<BoxFuture<'static, ()>>,
    withheld: Vec<Completion>,
    invalidations: Vec<(BoxFuture<'static, ()>, u32)>,
}

impl FaultQueuePair {
    pub(super) fn new(
        inner: Connected,
        plan: Arc<dyn Plan>,
        env: Env,
        connection: u64,
        injected: &Arc<AtomicU64>,
    ) -> Self {
        Self {
            inner,
            plan,
            env,
            connection,
            injected: injected.clone(),
            counts: BTreeMap::new(),
            steps: 0,
            cut: false,
            over: false,
            waiting: VecDeque::new(),
            sleep: None,
            withheld: Vec::new(),
            invalidations: Vec::new(),
        }
    }

    /// Takes a step, and returns its fault, if any.
    fn step(&mut self, point: Point) -> Option<Fault> {
        if self.cut || self.over {
            return None;
        }
        let nth = self.counts.entry(point).or_default();
        *nth += 1;
        self.steps += 1;
        let step = Step { connection: self.connection, point, nth: *nth, of_all: self.steps };
        let fault = self.plan.fault(&step)?;
        self.injected.fetch_add(1, Ordering::Relaxed);
        Some(fault)
    }

    fn cut(&mut self) {
        self.cut = true;
        self.invalidations.clear();
        self.inner.disconnect();
    }

    /// The connection ends, and this work fails with `why`.
    fn fail(&mut self, completion: Completion, why: &WorkError) {
        self.cut();
        let mut completion = flushed(completion);
        if let Completion::Failed { error, .. } = &mut completion {
            *error = why.clone();
        }
        self.queue(completion, None);
    }

    fn queue(&mut self, completion: Completion, delay: Option<Duration>) {
        self.waiting.push_back(Waiting { completion, delay });
    }

    /// Posts work, unless a fault prevents it. `failed` makes a completion of work that was cut off.
    fn post<T>(
        &mut self,
        point: Point,
        work: T,
        failed: impl FnOnce(T, WorkError) -> Completion,
        post: impl FnOnce(&mut dyn QueuePair, T) -> Result<(), Refused<T>>,
    ) -> Result<(), Refused<T>> {
        if self.cut {
            return Err(Refused { reason: RefusedReason::Closed, returned: work });
        }
        let error = match self.step(point) {
            Some(Fault::Refuse) => return Err(Refused { reason: REFUSED, returned: work }),
            Some(Fault::Fail) => WorkError::Fabric,
            Some(Fault::FailAs(error)) => error.clone(),
            Some(Fault::Cut) => WorkError::Flushed,
            Some(Fault::Delay(_) | Fault::Withhold | Fault::Corrupt) | None => return post(&mut *self.inner, work),
        };
        self.cut();
        self.queue(failed(work, error), None);
        Ok(())
    }

    /// Passes a completion of the fabric below to the owner, or withholds it.
    fn pass(&mut self, mut completion: Completion) {
        if let Completion::Closed { reason } = completion {
            self.over = true;
            // After the end nothing may be missing, so withheld completions come first.
            for completion in std::mem::take(&mut self.withheld) {
                self.queue(flushed(completion), None);
            }
            let reason = if self.cut { CloseReason::Broken("injected fault".to_owned()) } else { reason };
            return self.queue(Completion::Closed { reason }, None);
        }
        if self.cut {
            return self.queue(flushed(completion), None);
        }
        let Some(point) = point_of(&completion) else { return self.queue(completion, None) };
        match self.step(point) {
            None => self.queue(completion, None),
            Some(Fault::Delay(delay)) => self.queue(completion, Some(delay)),
            Some(Fault::Withhold) => self.withheld.push(completion),
            Some(Fault::Corrupt) => {
                if let Completion::Received { buffer, .. } | Completion::Read { sink: buffer, .. } = &mut completion {
                    let len = buffer.len();
                    if let Some(octets) = buffer.bytes_mut().get_mut(..len) {
                        flip(&self.env, octets);
                    }
                }
                self.queue(completion, None);
            }
            Some(Fault::Fail) => self.fail(completion, &WorkError::Fabric),
            Some(Fault::FailAs(error)) => self.fail(completion, error),
            Some(Fault::Refuse | Fault::Cut) => {
                self.cut();
                self.queue(flushed(completion), None);
            }
        }
    }

    /// Begins the invalidations whose delay is over. Returns whether there was one.
    fn invalidate_due(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.invalidations.len();
        let inner = &mut self.inner;
        self.invalidations.retain_mut(|(sleep, handle)| {
            let due = sleep.as_mut().poll(cx).is_ready();
            if due {
                inner.invalidate(*handle);
            }
            !due
        });
        self.invalidations.len() < before
    }
}

/// The step to which a completion belongs.
fn point_of(completion: &Completion) -> Option<Point> {
    Some(match completion {
        Completion::Received { .. } => Point::Received,
        Completion::Done { .. } => Point::Done,
        Completion::Read { .. } => Point::Read,
        Completion::Fenced { .. } => Point::Fenced,
        // Work that has failed already cannot fail again.
        Completion::Failed { .. } | Completion::Closed { .. } => return None,
    })
}

/// The completion that would have come if the connection had ended before.
fn flushed(completion: Completion) -> Completion {
    let failed = |token, kind, buffer| Completion::Failed { token, kind, error: WorkError::Flushed, buffer };
    match completion {
        Completion::Received { mut buffer, .. } => {
            buffer.set_len(0);
            failed(Token::default(), WorkKind::Receive, Some(buffer))
        }
        Completion::Done { token, kind } => failed(token, kind, None),
        Completion::Read { token, mut sink } => {
            sink.set_len(0);
            failed(token, WorkKind::Read, Some(sink))
        }
        Completion::Fenced { token, handle, memory, .. } => {
            Completion::Fenced { token, handle, memory, cause: FenceCause::Closed }
        }
        Completion::Failed { token, kind, buffer, .. } => failed(token, kind, buffer),
        closed @ Completion::Closed { .. } => closed,
    }
}

impl QueuePair for FaultQueuePair {
    fn info(&self) -> &ConnectionInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn post_receive(&mut self, buffer: Buffer) -> Result<(), Refused<Buffer>> {
        if self.cut {
            return self.inner.post_receive(buffer);
        }
        let failed = |buffer, error| Completion::Failed {
            token: Token::default(),
            kind: WorkKind::Receive,
            error,
            buffer: Some(buffer),
        };
        self.post(Point::PostReceive, buffer, failed, |inner, buffer| inner.post_receive(buffer))
    }

    fn posted_receives(&self) -> usize {
        self.inner.posted_receives()
    }

    fn post_send(&mut self, send: SendWork) -> Result<(), Refused<SendWork>> {
        let failed =
            |send: SendWork, error| Completion::Failed { token: send.token, kind: WorkKind::Send, error, buffer: None };
        self.post(Point::PostSend, send, failed, |inner, send| inner.post_send(send))
    }

    fn post_write(&mut self, write: WriteWork) -> Result<(), Refused<WriteWork>> {
        let failed = |write: WriteWork, error| Completion::Failed {
            token: write.token,
            kind: WorkKind::Write,
            error,
            buffer: None,
        };
        self.post(Point::PostWrite, write, failed, |inner, write| inner.post_write(write))
    }

    fn post_read(&mut self, read: ReadWork) -> Result<(), Refused<ReadWork>> {
        let failed = |read: ReadWork, error| Completion::Failed {
            token: read.token,
            kind: WorkKind::Read,
            error,
            buffer: Some(read.sink),
        };
        self.post(Point::PostRead, read, failed, |inner, read| inner.post_read(read))
    }

    fn expose(&mut self, token: Token, memory: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        let refused = |reason| Err(reason);
        let outcome = match self.step(Point::Expose) {
            _ if self.cut => refused(RefusedReason::Closed),
            Some(Fault::Refuse | Fault::Fail | Fault::FailAs(_)) => refused(REFUSED),
            Some(Fault::Cut) => {
                self.cut();
                refused(RefusedReason::Closed)
            }
            Some(Fault::Delay(_) | Fault::Withhold | Fault::Corrupt) | None => Ok(()),
        };
        match outcome {
            Ok(()) => self.inner.expose(token, memory),
            Err(reason) => Err(Refused { reason, returned: memory }),
        }
    }

    fn invalidate(&mut self, handle: u32) {
        match self.step(Point::Invalidate) {
            // A cut connection fences everything.
            _ if self.cut => {}
            Some(Fault::Delay(delay)) => {
                let until = self.env.clock.now() + delay;
                self.invalidations.push((self.env.clock.sleep_until(until), handle));
            }
            Some(Fault::Withhold) => {}
            Some(Fault::Refuse | Fault::Fail | Fault::FailAs(_) | Fault::Cut) => self.cut(),
            Some(Fault::Corrupt) | None => self.inner.invalidate(handle),
        }
    }

    fn disconnect(&mut self) {
        self.inner.disconnect();
    }

    fn has_completion(&self) -> bool {
        self.sleep.is_none() && self.waiting.front().is_some_and(|first| first.delay.is_none())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        loop {
            // Also while completions wait in the queue: the fabric below moves bytes only when it is polled.
            while let Poll::Ready(completion) = self.inner.poll(cx) {
                self.pass(completion);
            }
            if !self.invalidate_due(cx) {
                break;
            }
        }
        let Some(first) = self.waiting.front_mut() else { return Poll::Pending };
        if let Some(delay) = first.delay.take() {
            self.sleep = Some(self.env.clock.sleep_until(self.env.clock.now() + delay));
        }
        if let Some(sleep) = &mut self.sleep {
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
        }
        match self.waiting.pop_front() {
            Some(Waiting { completion, .. }) => Poll::Ready(completion),
            None => Poll::Pending,
        }
    }
}
