//! A queue pair that reports what happens on it, and changes nothing.

use super::{Event, EventKind, Tracer, is_writable};
use crate::{
    Capabilities, Completion, Connected, ConnectionInfo, Lent, QueuePair, ReadWork, Refused, RemoteSegment, SendWork,
    Token, WriteWork,
};
use rpcrdma_env::{Buffer, Env};
use std::{
    sync::Arc,
    task::{Context, Poll},
};

pub(super) struct TraceQueuePair {
    inner: Connected,
    tracer: Arc<dyn Tracer>,
    env: Env,
    connection: u64,
}

impl TraceQueuePair {
    pub(super) fn new(inner: Connected, tracer: Arc<dyn Tracer>, env: Env, connection: u64) -> Self {
        Self { inner, tracer, env, connection }
    }

    pub(super) fn announce(&self, accepted: bool) {
        self.tell(EventKind::Connected { accepted, info: self.inner.info() });
    }

    fn tell(&self, kind: EventKind<'_>) {
        self.tracer.event(&Event { at: self.env.clock.now(), connection: self.connection, kind });
    }

    fn outcome<T, U>(&self, outcome: Result<T, Refused<U>>) -> Result<T, Refused<U>> {
        outcome.inspect_err(|refused| self.tell(EventKind::Refused(refused.reason)))
    }
}

impl QueuePair for TraceQueuePair {
    fn info(&self) -> &ConnectionInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn post_receive(&mut self, buffer: Buffer) -> Result<(), Refused<Buffer>> {
        self.tell(EventKind::PostReceive { octets: buffer.capacity() });
        let outcome = self.inner.post_receive(buffer);
        self.outcome(outcome)
    }

    fn posted_receives(&self) -> usize {
        self.inner.posted_receives()
    }

    fn post_send(&mut self, send: SendWork) -> Result<(), Refused<SendWork>> {
        self.tell(EventKind::PostSend(&send));
        let outcome = self.inner.post_send(send);
        self.outcome(outcome)
    }

    fn post_write(&mut self, write: WriteWork) -> Result<(), Refused<WriteWork>> {
        self.tell(EventKind::PostWrite(&write));
        let outcome = self.inner.post_write(write);
        self.outcome(outcome)
    }

    fn post_read(&mut self, read: ReadWork) -> Result<(), Refused<ReadWork>> {
        self.tell(EventKind::PostRead(&read));
        let outcome = self.inner.post_read(read);
        self.outcome(outcome)
    }

    fn expose(&mut self, token: Token, memory: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        let writable = is_writable(&memory);
        let outcome = self.inner.expose(token, memory);
        let outcome = self.outcome(outcome);
        if let Ok(segment) = &outcome {
            self.tell(EventKind::Exposed { token, segment: *segment, writable });
        }
        outcome
    }

    fn invalidate(&mut self, handle: u32) {
        self.tell(EventKind::Invalidating { handle });
        self.inner.invalidate(handle);
    }

    fn disconnect(&mut self) {
        self.tell(EventKind::Disconnecting);
        self.inner.disconnect();
    }

    fn has_completion(&self) -> bool {
        self.inner.has_completion()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        let polled = self.inner.poll(cx);
        if let Poll::Ready(completion) = &polled {
            self.tell(EventKind::Completed(completion));
        }
        polled
    }
}

impl Drop for TraceQueuePair {
    fn drop(&mut self) {
        self.tell(EventKind::Dropped);
    }
}
