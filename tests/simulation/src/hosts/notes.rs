//! Records the transport's own events beside what the run sees of it, and counts them.

use crate::{ledger::Process, lock, program::Judges};
use rpcrdma_transport::{Event, MessageKind, Observer};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

/// Watches one process.
pub(super) struct Notes {
    judges: Arc<Judges>,
    process: Process,
    /// The version with each peer.
    versions: Mutex<BTreeMap<SocketAddr, u32>>,
}

impl Notes {
    pub(super) fn new(judges: Arc<Judges>, process: Process) -> Self {
        Self { judges, process, versions: Mutex::default() }
    }

    fn count(&self, peer: SocketAddr, event: &Event) {
        let tally = &self.judges.tally;
        if let Event::Negotiated(negotiated) = event {
            lock(&self.versions).insert(peer, negotiated.version);
        }
        let version = lock(&self.versions).get(&peer).copied().unwrap_or_default();
        let direction = if self.process.is_server() { "reverse" } else { "forward" };
        match event {
            Event::Negotiated(negotiated) => tally.count(format!("version {} was settled", negotiated.version)),
            Event::NoVersion2(why) => tally.count(format!("no version 2: {why:?}")),
            Event::Sent(sent) => tally.count(format!("{:?} was sent in version {version}, {direction}", sent.kind)),
            Event::Answered { retransmitted, .. } => {
                tally.count(format!("answered in version {version}, {direction}"));
                if *retransmitted {
                    tally.count(format!("answered after it was sent again, version {version}, {direction}"));
                }
            }
            Event::Invalidated { by_peer, .. } => {
                let by = if *by_peer { "by the peer" } else { "by its owner or the end" };
                tally.count(format!("fenced {by} in version {version}"));
            }
            Event::Discarded { .. } => tally.count("a message was discarded"),
            Event::Stalled(what) => tally.count(format!("stalled: {what:?}")),
            Event::Closed { error: Some(error) } => {
                let text = format!("{error:?}");
                let name = text.split(['(', ' ', '{']).next().unwrap_or_default();
                tally.count(format!("closed: {name}"));
            }
            _ => {}
        }
    }
}

impl Observer for Notes {
    fn event(&self, peer: SocketAddr, event: &Event) {
        self.count(peer, event);
        match event {
            // The network's log has these.
            Event::Received { .. } | Event::ReceivesPosted { .. } | Event::Invalidated { .. } => {}
            Event::Sent(sent) if sent.kind == MessageKind::Call => {
                self.judges.record.note(format!("{:?} calls {peer}: {sent:?}", self.process));
            }
            Event::Sent(_) => {}
            _ => self.judges.record.note(format!("{:?} with {peer}: {event:?}", self.process)),
        }
    }
}
