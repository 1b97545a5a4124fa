//! What a connection can do: its transport, its sizes, and what was negotiated on it.

use super::micros;
use rpcrdma_oncrpc::ClientTransport;
use rpcrdma_transport::{Event, Negotiated, NoVersion2, Observer, Versions};
use serde_json::{Value, json};
use std::{
    io::{self, Write},
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// What the last connection can do.
#[derive(Clone, Default)]
pub(super) struct Agreed {
    /// RDMA Reads that the server may have under way.
    ird: u16,
    negotiated: Option<Negotiated>,
    /// There was no answer to the question for version 2, on a connection before.
    unanswered: bool,
}

impl Agreed {
    /// The result of asking for version 2, if there is something to tell.
    fn version_2(&self, asked_for: Versions) -> Option<&'static str> {
        let negotiated = self.negotiated.as_ref()?;
        match (negotiated.version, asked_for) {
            (1, _) if negotiated.refused.is_some() => Some("refused"),
            (1, _) if self.unanswered => Some("unanswered"),
            // It is remembered from an earlier command.
            (1, Versions::Auto) => Some("not asked for"),
            (1, _) => None,
            _ => Some("spoken"),
        }
    }
}

/// Keeps what the last connection learned when it was made, and what was negotiated on it.
#[derive(Default)]
pub(super) struct LastConnected(Mutex<Agreed>);

impl LastConnected {
    pub(super) fn agreed(&self) -> Agreed {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for LastConnected {
    fn event(&self, peer: SocketAddr, event: &Event) {
        let mut agreed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Connected { ird, .. } => (agreed.ird, agreed.negotiated) = (*ird, None),
            Event::Negotiated(negotiated) => agreed.negotiated = Some(negotiated.clone()),
            Event::NoVersion2(why) => agreed.unanswered = *why != NoVersion2::Refused,
            _ => {}
        }
        drop(agreed);
        rpcrdma_transport::Tracing.event(peer, event);
    }
}

/// What the connection can do, as an object.
pub(super) fn object(
    transport: &dyn ClientTransport,
    connected: Duration,
    agreed: &Agreed,
    asked_for: Versions,
) -> Value {
    let (server, limits, time) = (transport.server(), transport.limits(), micros(connected));
    let mut line = json!({
        "server": server.to_string(), "connect_us": time, "transport": transport.kind().to_string().to_lowercase(),
        "max_call": limits.max_call, "max_reply": limits.max_reply, "connections": transport.members().len().max(1),
    });
    if let Some(negotiated) = &agreed.negotiated {
        line["rpcrdma"] = negotiated.version.into();
        line["call_inline"] = negotiated.link.send_inline.into();
        line["reply_inline"] = negotiated.link.receive_inline.into();
        line["remote_invalidation"] = negotiated.link.send_invalidates.into();
        line["ird"] = agreed.ird.into();
        line["version_2"] = agreed.version_2(asked_for).into();
        if let Some(peer) = &negotiated.peer {
            line["properties"] = json!({
                "send_size": peer.send_size, "receive_size": peer.receive_size,
                "segment_size": peer.segment_size, "segment_count": peer.segment_count,
                "reverse": format!("{:?}", peer.reverse).to_lowercase(),
            });
        }
    }
    line
}

/// The same for people.
pub(super) fn tell(
    transport: &dyn ClientTransport,
    connected: Duration,
    agreed: &Agreed,
    asked_for: Versions,
    out: &mut impl Write,
) -> io::Result<()> {
    let (server, limits, time) = (transport.server(), transport.limits(), micros(connected));
    write!(out, "connected to {server} over {} in {time:.0} us", transport.kind())?;
    match transport.members().len() {
        0 | 1 => writeln!(out)?,
        connections => writeln!(out, ", by {connections} connections")?,
    }
    writeln!(out, "largest call {} bytes, largest reply {} bytes", limits.max_call, limits.max_reply)?;
    if let Some(Negotiated { version, link, peer, .. }) = &agreed.negotiated {
        let (send, receive) = (link.send_inline, link.receive_inline);
        writeln!(out, "RPC-over-RDMA version {version}, inline up to {send} bytes to the server and {receive} back")?;
        match agreed.version_2(asked_for) {
            Some("refused") => writeln!(out, "version 2 was asked for and refused")?,
            Some("unanswered") => writeln!(out, "version 2 was asked for, and the server did not answer")?,
            Some("not asked for") => writeln!(
                out,
                "version 2 was not asked for: this program remembers that the server does not have it; rpcrdma=2 in \
                 the URL asks again"
            )?,
            _ => {}
        }
        if let Some(peer) = peer {
            writeln!(
                out,
                "the server sends up to {} bytes at once, receives {}, takes {} segments of up to {} bytes",
                peer.send_size, peer.receive_size, peer.segment_count, peer.segment_size
            )?;
        }
        writeln!(
            out,
            "remote invalidation {}; the server may have {} RDMA Reads under way",
            if link.send_invalidates { "agreed" } else { "not offered by the server" },
            agreed.ird
        )?;
    }
    Ok(())
}
