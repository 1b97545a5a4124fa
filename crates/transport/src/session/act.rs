//! Carries out the engine's actions.
//!
//! Work goes to the queue pair, calls of the peer to the service when it is their turn, and the results of calls of
//! ours to their callers. If the queue pair refuses work within its limits, the session ends.

use super::{Session, UNTAKEN_BYTES};
use crate::{
    ConnectionError, Event, Stall,
    calls::Calls,
    client::VERSION_2,
    refused::Fingerprint,
    requests::Wanted,
    service::{Executed, Service},
};
use bytes::Bytes;
use rpcrdma_engine::{Action, Answer, CallError, CloseCause, MessageKind, Segment, v1};
use rpcrdma_fabric::{Refused, RefusedReason, RemoteSegment, SendWork, Token, WriteWork};
use std::task::Context;

/// So many bytes of answers are made before the first of them is posted.
const ANSWERS_BYTES: usize = 32 << 10;

impl Session {
    /// Carries out the engine's actions.
    pub(super) fn act(&mut self, calls: &mut Calls) {
        while let Some(action) = self.engine.poll() {
            match action {
                Action::PostReceives { count } => self.post_receives(count),
                Action::Send { octets, signaled, about } => {
                    if about.kind == MessageKind::Call {
                        calls.sent(about.xid);
                    }
                    self.observer.event(self.peer, &Event::Sent(about));
                    let send = SendWork {
                        token: Token(about.xid.into()),
                        octets,
                        invalidate: about.invalidates,
                        solicited: false,
                        signaled,
                    };
                    let posted = self.qp.post_send(send);
                    if signaled && posted.is_ok() {
                        self.owe();
                        self.untaken.signaled_send();
                    }
                    self.posted(posted);
                }
                Action::Write { xid, to, octets } => {
                    let token = Token(xid.into());
                    self.untaken.write(octets.iter().map(Bytes::len).sum());
                    let write = WriteWork { token, octets, handle: to.handle, offset: to.offset, signaled: false };
                    let posted = self.qp.post_write(write);
                    self.posted(posted);
                }
                Action::Pull { request, xid, head, octets, sources } => match &mut self.service {
                    Some(service) => {
                        let call = Fingerprint::new(&head, head.len().saturating_add(octets));
                        let sources = sources.into_iter().map(remote).collect();
                        if service.pull(request, xid, Wanted { call, octets, sources }) {
                            self.observer.event(self.peer, &Event::Stalled(Stall::Memory));
                        }
                    }
                    None => self.engine.answer(request, Answer::Unreadable),
                },
                Action::Deliver { request, xid, pieces } => match &mut self.service {
                    Some(service) => service.deliver(request, xid, pieces),
                    None => self.engine.answer(request, Answer::Nothing),
                },
                Action::Invalidate { handle, .. } => self.qp.invalidate(handle),
                Action::Alive => {
                    self.heard.alive += 1;
                    self.observer.event(self.peer, &Event::Alive);
                }
                Action::Negotiated(negotiated) => {
                    self.observer.event(self.peer, &Event::Negotiated(negotiated.clone()));
                    self.negotiated = Some(negotiated);
                }
                Action::Extension(received) => self.extension(received, calls),
                Action::Close(cause) => {
                    let error = match cause {
                        CloseCause::Peer(fault) => ConnectionError::Peer(fault),
                        CloseCause::NoAnswer => ConnectionError::NoAnswer,
                        CloseCause::Unauthenticated => ConnectionError::Unauthenticated,
                        CloseCause::NoCommonVersion { low, high } => ConnectionError::Version { low, high },
                        _ => ConnectionError::Silent,
                    };
                    tracing::debug!(peer = %self.peer, %error, "closing the connection");
                    self.close(Some(error));
                }
                other => self.report(other, calls),
            }
        }
    }

    /// Whether a call of the peer can be executed, because its answer would not have to wait behind others.
    pub(super) fn may_execute(&self) -> bool {
        self.service.as_ref().is_some_and(Service::has_delivered) && self.untaken.octets < UNTAKEN_BYTES
    }

    /// Passes the next calls to the service, if they may be executed now.
    pub(super) fn execute(&mut self, cx: &mut Context<'_>) {
        let mut answers = 0;
        while answers < ANSWERS_BYTES && self.may_execute() {
            let executed = self.service.as_mut().and_then(|service| service.execute(cx));
            let Some(Executed { xid, inline_bytes, pulled_bytes, answer_bytes }) = executed else { return };
            self.observer.event(self.peer, &Event::Called { xid, inline_bytes, pulled_bytes });
            answers += answer_bytes;
        }
    }

    /// Reports to callers how their calls ended.
    pub(super) fn report(&mut self, action: Action, calls: &mut Calls) {
        match action {
            Action::Complete { call, reply } => {
                self.replied = true;
                self.told.add(reply.octets());
                self.tell(calls.complete(call, reply));
            }
            // The next connection gets the call.
            Action::Fail { error: CallError::Remote(v1::ErrorBody::Version { low, high }), .. }
                if self.believes && (low..=high).contains(&VERSION_2) =>
            {
                self.close(Some(ConnectionError::Version { low, high }));
            }
            Action::Fail { call, error } => self.tell(calls.fail(call, error)),
            Action::Cancelled { call } | Action::Released { call } => calls.released(call),
            _ => {}
        }
    }

    pub(super) fn tell(&self, event: Option<Event>) {
        if let Some(event) = event {
            self.observer.event(self.peer, &event);
        }
    }

    pub(super) fn post_receives(&mut self, count: usize) {
        self.observer.event(self.peer, &Event::ReceivesPosted { count });
        for _ in 0..count {
            match self.inbox.receive(self.receive_bytes, &*self.receives) {
                Some(buffer) => {
                    let posted = self.qp.post_receive(buffer);
                    self.posted(posted);
                }
                None => self.close(Some(ConnectionError::NoMemory)),
            }
        }
    }

    /// We end the connection if the provider refuses work within its limits. A provider whose connection is closed will
    /// say so next.
    // V1-4.5.4-c, V2-7.4-c
    pub(super) fn posted<T>(&mut self, posted: Result<(), Refused<T>>) {
        if let Err(Refused { reason, .. }) = posted
            && reason != RefusedReason::Closed
        {
            self.close(Some(ConnectionError::Provider(reason)));
        }
    }
}

fn remote(Segment { handle, length, offset }: Segment) -> RemoteSegment {
    RemoteSegment { handle, length, offset }
}
