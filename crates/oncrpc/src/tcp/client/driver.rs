//! A transport's connections, of which it has one at a time, and the outstanding calls.

use super::{
    ClientOptions, Command,
    link::{End, Link, Lost},
    serving::Serving,
};
use crate::{
    CallHeader, CallId, Listener, OpaqueAuth, TransportError, XidSource,
    outage::{Ended, Failure, Met, Next, Outage, Sought, Standing, not_spoken},
    tcp::{Connector, Io},
};
use foldhash::HashMap;
use futures_util::future::{Either, select};
use rpcrdma_env::{Allocator, Env};
use rpcrdma_xdr::{Decoder, Encoder, Payload, Stream};
use std::{collections::BTreeMap, io, sync::Arc};
use tokio::sync::mpsc;

/// A call that was not answered yet.
pub(super) struct Outstanding {
    pub(super) command: Command,
    /// On how many connections it was sent.
    pub(super) sent: u32,
}

/// A rule of record marking that the server broke before it had ever answered.
#[derive(Debug, thiserror::Error)]
#[error("what it sent is not an RPC record: {0}")]
struct NoRecord(&'static str);

pub(super) struct Driver {
    pub(super) connector: Arc<dyn Connector>,
    pub(super) allocator: Arc<dyn Allocator>,
    pub(super) env: Env,
    pub(super) options: ClientOptions,
    pub(super) sought: Sought,
    pub(super) outage: Outage,
    pub(super) listener: Listener,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) xids: Arc<XidSource>,
    /// In first-sent order.
    pub(super) calls: BTreeMap<u64, Outstanding>,
    pub(super) by_xid: HashMap<u32, u64>,
    pub(super) next_call: u64,
    /// Calls of the server.
    pub(super) serving: Serving,
}

impl Driver {
    pub(super) async fn run(mut self, io: Box<dyn Io>) {
        let mut io = Some(io);
        loop {
            let next = match io.take() {
                Some(io) => match self.connection(io).await {
                    Some(next) => next,
                    None => return,
                },
                None => match self.attempt().await {
                    Ok(connected) => {
                        io = Some(connected);
                        continue;
                    }
                    Err(error) => {
                        let failure = Failure { met: Met::Nobody, source: Some(Arc::new(error)) };
                        self.outage.failed(failure, self.env.clock.now(), &*self.env.random)
                    }
                },
            };
            match next {
                Next::Now => {}
                Next::After(pause) => {
                    let server = self.sought.server;
                    tracing::debug!(%server, pause_ms = pause.as_millis(), "connecting again after a pause");
                    self.tell_silence(None);
                    self.env.clock.sleep_until(self.env.clock.now() + pause).await;
                }
                Next::Fail(error) => {
                    self.take_commands();
                    self.fail(&error);
                }
            }
            self.tell_silence(None);
            if !self.is_wanted().await {
                return;
            }
            self.tell_silence(None);
        }
    }

    /// Runs one connection to its end. Returns what to do next; `None` if there is no caller left.
    async fn connection(&mut self, io: Box<dyn Io>) -> Option<Next> {
        let server = self.sought.server;
        let started = self.env.clock.now();
        let (end, answered) = Link::new(self, io).run().await;
        let failure = match end {
            End::Finished => return None,
            End::Lost(lost) => {
                tracing::debug!(%server, error = %lost, answered, "connection lost");
                let met = if matches!(lost, Lost::Mute) { Met::Silence } else { Met::Ended };
                Failure { met, source: Some(Arc::new(lost)) }
            }
            End::Violation(rule) => {
                tracing::debug!(%server, rule, answered, "the server broke a rule");
                self.take_commands();
                match answered || self.outage.has_answered() {
                    true => self.fail(&TransportError::Violation { server, rule }),
                    // One attempt is enough to know that it speaks another protocol.
                    false => self.fail(&not_spoken(self.sought, Arc::new(NoRecord(rule)))),
                }
                Failure { met: Met::Ended, source: Some(Arc::new(NoRecord(rule))) }
            }
        };
        self.take_commands();
        self.forget_dropped();
        let ended = Ended { started, answered, waited_for: !self.calls.is_empty() };
        Some(self.outage.ended(ended, failure, self.env.clock.now(), &*self.env.random))
    }

    /// Completes when a call waits: the driver connects again only when it has a call. False if no call can come any
    /// more.
    async fn is_wanted(&mut self) -> bool {
        self.take_commands();
        self.forget_dropped();
        if self.calls.is_empty() {
            match self.commands.recv().await {
                Some(command) => {
                    self.add(command);
                }
                None => return false,
            }
        }
        true
    }

    /// Publishes whether calls wait, and until when at most.
    pub(super) fn tell_silence(&mut self, standing: Option<Standing>) {
        let until = self.outage.until(self.listener.since(), standing);
        let is_waited_for = self.calls.values().any(|call| !call.command.sender.is_closed());
        self.listener.tell(is_waited_for.then_some(until));
    }

    /// Calls that have been made in the meantime.
    fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.add(command);
        }
    }

    /// One attempt to connect, within its time.
    pub(super) async fn attempt(&mut self) -> io::Result<Box<dyn Io>> {
        let deadline = self.env.clock.sleep_until(self.env.clock.now() + self.options.connect);
        match select(self.connector.connect(), deadline).await {
            Either::Left((connected, _)) => connected,
            Either::Right(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    pub(super) fn add(&mut self, command: Command) -> Option<u64> {
        if self.by_xid.contains_key(&command.xid) {
            command.refuse();
            return None;
        }
        if self.calls.is_empty() {
            self.outage.asked(self.env.clock.now());
            self.listener.asked(self.env.clock.now());
        }
        let call = self.next_call;
        self.next_call += 1;
        self.by_xid.insert(command.xid, call);
        self.calls.insert(call, Outstanding { command, sent: 0 });
        Some(call)
    }

    pub(super) fn take(&mut self, xid: u32) -> Option<Outstanding> {
        let call = self.by_xid.remove(&xid)?;
        self.calls.remove(&call)
    }

    fn fail(&mut self, error: &TransportError) {
        self.by_xid.clear();
        for (_, call) in std::mem::take(&mut self.calls) {
            call.command.fail(error.clone());
        }
    }

    /// Forgets calls whose caller no longer waits.
    pub(super) fn forget_dropped(&mut self) {
        let by_xid = &mut self.by_xid;
        self.calls.retain(|_, call| {
            let waits = !call.command.sender.is_closed();
            if !waits {
                by_xid.remove(&call.command.xid);
            }
            waits
        });
    }

    /// Makes the messages of the calls again, in the order in which they are sent again, if each transmission has a
    /// message of its own. This includes calls that were not sent yet, so that no call is older than one that is sent
    /// before it. Ends calls whose message cannot be made again.
    pub(super) fn renew(&mut self) {
        let mut failed = Vec::new();
        for call in self.calls.values_mut() {
            if let Err(error) = call.command.renew() {
                failed.push((call.command.xid, error));
            }
        }
        for (xid, error) in failed {
            if let Some(Outstanding { command, .. }) = self.take(xid) {
                command.fail(error);
            }
        }
    }

    /// A NULL call to the program of the oldest call, and its XID.
    pub(super) fn null_call(&self) -> Option<(u32, Payload)> {
        let (_, oldest) = self.calls.first_key_value()?;
        let stream = Stream::from(oldest.command.message.slices().next()?);
        let oldest = CallHeader::decode(&mut Decoder::new(stream)).ok()?.id;
        let id = CallId { xid: self.xids.next_xid(), procedure: 0, ..oldest };
        let mut encoder = Encoder::new();
        CallHeader { id, credential: OpaqueAuth::none(), verifier: OpaqueAuth::none() }.encode(&mut encoder);
        Some((id.xid, encoder.finish()))
    }
}
