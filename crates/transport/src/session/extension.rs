//! Messages of an extension of version 2, between the engine and the embedder that knows the extension.

use super::Session;
use crate::{Event, ExtensionError, ExtensionSent, calls::Calls, extension::Outgoing};
use rpcrdma_engine::v2::Received;
use std::task::Context;

impl Session {
    /// Passes a message of the peer to the embedder that knows the extension.
    pub(super) fn extension(&mut self, received: Received, calls: &mut Calls) {
        self.observer.event(self.peer, &Event::Extension(received.clone()));
        let Some(port) = &mut self.port else { return };
        let unanswered = match received {
            Received::Message { xid, response: false, .. } => Some(xid),
            _ => None,
        };
        if port.deliver(received) {
            return;
        }
        self.observer.event(self.peer, &Event::ExtensionDropped { total: port.dropped });
        if let Some(xid) = unanswered {
            let now = self.env.clock.now();
            let (engine, mut host) = self.host(calls);
            engine.refuse_extension(xid, now, &mut host);
        }
    }

    /// Sends the embedder's messages for the extension, once the version is settled. Returns whether there were any.
    pub(super) fn extend(&mut self, cx: &mut Context<'_>, calls: &mut Calls) -> bool {
        let mut extended = false;
        while self.negotiated.is_some() && self.closing.is_none() && self.engine.extension_room() {
            let Some(port) = &mut self.port else { break };
            let Some(Outgoing { to, body, sender }) = port.poll(cx) else { break };
            let connection = port.connection;
            extended = true;
            let response = to.is_some();
            let sent = to.unwrap_or_else(|| ExtensionSent { connection, xid: calls.free_xid() });
            if sent.connection != connection {
                let _ = sender.send(Err(ExtensionError::NotConnected));
                continue;
            }
            let now = self.env.clock.now();
            let (engine, mut host) = self.host(calls);
            let taken = engine.send_extension(sent.xid, response, body, now, &mut host);
            let _ = sender.send(taken.map(|()| sent).map_err(ExtensionError::from));
        }
        extended
    }
}
