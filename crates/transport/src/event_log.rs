//! Events as lines of a log: words and fields.
//!
//! Owns nothing; writing to the log cannot fail. A message of the peer is data: no line shows more of it than numbers.

use crate::{Event, NoVersion2, Observer, Stall};
use rpcrdma_engine::{MessageKind, Negotiated, Sent, v2::Received};
use std::{error::Error, net::SocketAddr};
use tracing::{debug, trace};

/// Writes every event to the log: connections at `DEBUG`, messages at `TRACE`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing;

impl Observer for Tracing {
    fn event(&self, peer: SocketAddr, event: &Event) {
        match event {
            Event::Connected { send_inline, receive_inline, send_invalidates, ord, ird } => {
                debug!(%peer, send_inline, receive_inline, send_invalidates, ord, ird, "RDMA connection made");
            }
            Event::Negotiated(made) => negotiated(peer, made),
            Event::NoVersion2(why) => debug!(%peer, why = no_version_2(*why), "the server has no version 2"),
            Event::Closed { error: None } => debug!(%peer, "RDMA connection ended in order"),
            Event::Closed { error: Some(error) } => {
                let cause = error.source().map(tracing::field::display);
                debug!(%peer, %error, cause, "RDMA connection ended");
            }
            Event::Alive => {
                debug!(%peer, "the peer has answered a health check: it is slow");
            }
            Event::Reconnecting { pause } => {
                debug!(%peer, pause_ms = pause.as_millis(), "connecting again after a pause");
            }
            message => traced(peer, message),
        }
    }
}

fn negotiated(peer: SocketAddr, made: &Negotiated) {
    let Negotiated { version, credits, peer_credits, authenticated, .. } = made;
    let version_2_refused = made.refused.is_some();
    debug!(%peer, version, version_2_refused, credits, peer_credits, authenticated, "version settled");
}

/// Events of single messages.
fn traced(peer: SocketAddr, event: &Event) {
    match event {
        Event::Sent(sent) => self::sent(peer, sent),
        Event::Received { octets } => trace!(%peer, bytes = octets, "message received"),
        Event::Discarded { total } => trace!(%peer, total, "message dropped without an answer"),
        Event::Called { xid, inline_bytes, pulled_bytes } => {
            trace!(%peer, xid, inline_bytes, pulled_bytes, "call taken");
        }
        Event::Answered { xid, inline_bytes, placed_bytes, retransmitted } => {
            trace!(%peer, xid, inline_bytes, placed_bytes, retransmitted, "call answered");
        }
        Event::Failed { xid } => trace!(%peer, xid, "call failed"),
        Event::Invalidated { handle, by_peer } => trace!(%peer, handle, by_peer, "memory is no longer exposed"),
        Event::Stalled(Stall::Credits) => trace!(%peer, "a call of ours waits for credits"),
        Event::Stalled(Stall::Memory) => trace!(%peer, "a call of the peer waits for memory"),
        Event::ReceivesPosted { count } => trace!(%peer, count, "receives posted"),
        Event::Extension(Received::Property(_)) => trace!(%peer, "property of the extension"),
        Event::Extension(Received::Message { xid, .. }) => trace!(%peer, xid, "message of the extension"),
        Event::Extension(Received::Error { xid, .. }) => trace!(%peer, xid, "error for the extension"),
        Event::ExtensionDropped { total } => trace!(%peer, total, "message of the extension dropped"),
        _ => {}
    }
}

fn sent(peer: SocketAddr, sent: &Sent) {
    let Sent { xid, credit, read_chunks, write_chunks, reply_chunk, invalidates, .. } = sent;
    trace!(
        %peer,
        kind = kind(sent.kind),
        xid,
        credit,
        inline_bytes = sent.inline_bytes,
        placed_bytes = sent.placed_bytes,
        read_chunks,
        write_chunks,
        reply_chunk,
        invalidates,
        "message sent"
    );
}

fn kind(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::Call => "call",
        MessageKind::Reply => "reply",
        MessageKind::Error => "error",
        MessageKind::Probe => "probe",
        MessageKind::Part => "part",
        MessageKind::Grant => "grant",
        MessageKind::Properties => "properties",
        _ => "other",
    }
}

fn no_version_2(why: NoVersion2) -> &'static str {
    match why {
        NoVersion2::Refused => "it refused version 2",
        NoVersion2::NoAnswer => "it did not answer in time",
        NoVersion2::Dropped => "it ended the connection without an answer",
    }
}
