//! Messages of an extension of version 2, between an embedder and a connection's driver.
//!
//! Owns what the peer has sent until the embedder reads it, within [`MAX_UNREAD`] and [`MAX_UNREAD_BYTES`]; the rest
//! is refused, so that neither a peer that floods nor an embedder that does not read costs more memory. Messages of the
//! embedder wait for credits in the connection, within the connection's limit; beyond it, they wait at the embedder.

use rpcrdma_engine::v2::{ExtensionRefused, OtherBody, Received};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};
use tokio::sync::{mpsc, oneshot};

/// The most messages, properties and errors of the peer that wait until the embedder reads them. It is the default
/// number of credits, so that an embedder that reads steadily loses no part of a burst.
pub const MAX_UNREAD: usize = 64;

/// The most bytes of these together. A property can be far longer than a message.
pub const MAX_UNREAD_BYTES: usize = 1 << 20;

/// Messages on their way from the embedder to a driver. A sender of more waits.
const MAX_UNSENT: usize = 16;

/// Something that a peer has sent for the extension.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtensionEvent {
    /// The number of the connection. A client's transport has another one after each reconnection; a server's channel
    /// belongs to a single connection.
    pub connection: u64,
    /// What the peer has sent.
    pub received: Received,
}

/// A message that a connection has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtensionSent {
    /// The number of the connection. When it ends, the message is lost.
    pub connection: u64,
    /// The message's XID. The peer's answer has the same XID, and is a message with RESPONSE set or an error.
    pub xid: u32,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtensionError {
    /// This connection cannot send it.
    #[error(transparent)]
    Refused(#[from] ExtensionRefused),
    /// There is no connection, or the named one has ended.
    #[error("there is no such connection")]
    NotConnected,
}

/// The embedder's end of its extension: what the peer sends, in order. After it is dropped, every further message is
/// refused.
#[derive(Debug)]
pub struct ExtensionChannel {
    sender: ExtensionSender,
    inbox: mpsc::Receiver<ExtensionEvent>,
    unread: Arc<AtomicUsize>,
}

impl ExtensionChannel {
    /// The next message of the peer; `None` when the driver has ended.
    pub async fn recv(&mut self) -> Option<ExtensionEvent> {
        let event = self.inbox.recv().await?;
        self.unread.fetch_sub(octets(&event.received), Ordering::Relaxed);
        Some(event)
    }

    /// The sender of messages to the peer.
    pub fn sender(&self) -> &ExtensionSender {
        &self.sender
    }
}

/// Sends messages of an extension.
#[derive(Clone, Debug)]
pub struct ExtensionSender {
    commands: mpsc::Sender<Outgoing>,
}

impl ExtensionSender {
    /// Sends a message of one of the extension's header types, as soon as the version is settled and the connection has
    /// room for it. The peer's answer may come later, as [`Received::Message`] or [`Received::Error`] with the returned
    /// XID.
    ///
    /// # Errors
    /// If there is no connection, or it cannot carry the message. A client's transport connects only for calls, not for
    /// such a message.
    pub async fn send(&self, body: OtherBody) -> Result<ExtensionSent, ExtensionError> {
        self.command(None, body).await
    }

    /// Sends an answer to a message of the peer, with its connection and XID, and RESPONSE set.
    ///
    /// # Errors
    /// As for [`send`](Self::send), and if that connection has ended.
    pub async fn respond(&self, connection: u64, xid: u32, body: OtherBody) -> Result<(), ExtensionError> {
        self.command(Some(ExtensionSent { connection, xid }), body).await.map(drop)
    }

    async fn command(&self, to: Option<ExtensionSent>, body: OtherBody) -> Result<ExtensionSent, ExtensionError> {
        let (sender, taken) = oneshot::channel();
        let outgoing = Outgoing { to, body, sender };
        self.commands.send(outgoing).await.map_err(|_| ExtensionError::NotConnected)?;
        taken.await.unwrap_or(Err(ExtensionError::NotConnected))
    }
}

/// The channel, until its owner takes it.
pub(crate) type Unclaimed = Mutex<Option<ExtensionChannel>>;

pub(crate) fn claim(unclaimed: &Unclaimed) -> Option<ExtensionChannel> {
    unclaimed.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A message for a driver.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The message that it answers, if it is an answer.
    pub(crate) to: Option<ExtensionSent>,
    pub(crate) body: OtherBody,
    pub(crate) sender: oneshot::Sender<Result<ExtensionSent, ExtensionError>>,
}

/// The driver's end of the channel.
#[derive(Debug)]
pub(crate) struct Port {
    /// The present connection.
    pub(crate) connection: u64,
    commands: mpsc::Receiver<Outgoing>,
    inbox: mpsc::Sender<ExtensionEvent>,
    unread: Arc<AtomicUsize>,
    /// How many messages could not be delivered.
    pub(crate) dropped: u64,
}

impl Port {
    pub(crate) fn new(connection: u64) -> (ExtensionChannel, Self) {
        let (outgoing, commands) = mpsc::channel(MAX_UNSENT);
        let (inbox, incoming) = mpsc::channel(MAX_UNREAD);
        let unread = Arc::new(AtomicUsize::new(0));
        let sender = ExtensionSender { commands: outgoing };
        let channel = ExtensionChannel { sender, inbox: incoming, unread: unread.clone() };
        (channel, Self { connection, commands, inbox, unread, dropped: 0 })
    }

    /// The next message to send.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Option<Outgoing> {
        match self.commands.poll_recv(cx) {
            Poll::Ready(outgoing) => outgoing,
            Poll::Pending => None,
        }
    }

    /// Answers all senders that the connection is gone.
    pub(crate) fn refuse_all(&mut self, cx: &mut Context<'_>) {
        while let Some(outgoing) = self.poll(cx) {
            let _ = outgoing.sender.send(Err(ExtensionError::NotConnected));
        }
    }

    /// Passes something from the peer to the embedder. Returns whether there was room.
    pub(crate) fn deliver(&mut self, received: Received) -> bool {
        let octets = octets(&received);
        // The embedder only lowers this number.
        let room = MAX_UNREAD_BYTES.saturating_sub(self.unread.load(Ordering::Relaxed));
        let event = ExtensionEvent { connection: self.connection, received };
        // Counted before the embedder can read it.
        self.unread.fetch_add(octets, Ordering::Relaxed);
        if octets <= room && self.inbox.try_send(event).is_ok() {
            return true;
        }
        self.unread.fetch_sub(octets, Ordering::Relaxed);
        self.dropped += 1;
        false
    }
}

fn octets(received: &Received) -> usize {
    match received {
        Received::Message { body, .. } => body.octets().len(),
        Received::Property(property) => property.data().len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use rpcrdma_engine::v2::OtherProperty;

    fn message(len: usize) -> Received {
        let body = OtherBody::new(77, Bytes::from(vec![1; len])).unwrap();
        Received::Message { xid: 1, response: false, body }
    }

    #[tokio::test]
    async fn an_embedder_that_does_not_read_loses_what_is_above_the_limits() {
        let (mut channel, mut port) = Port::new(3);
        for _ in 0..MAX_UNREAD {
            assert!(port.deliver(message(8)));
        }
        assert!(!port.deliver(message(0)), "one more");
        assert_eq!(channel.recv().await, Some(ExtensionEvent { connection: 3, received: message(8) }));
        assert!(port.deliver(message(0)));
        assert_eq!(port.dropped, 1);
    }

    #[tokio::test]
    async fn octets_are_limited_too_and_come_back_when_they_are_read() {
        let (mut channel, mut port) = Port::new(0);
        let property = |len| Received::Property(OtherProperty::new(900, Bytes::from(vec![1; len])).unwrap());
        assert!(!port.deliver(property(MAX_UNREAD_BYTES + 1)));
        assert!(port.deliver(property(MAX_UNREAD_BYTES)));
        assert!(!port.deliver(message(1)));
        assert!(port.deliver(message(0)));
        channel.recv().await.unwrap();
        assert!(port.deliver(message(1)));
        assert_eq!(channel.recv().await.unwrap().received, message(0));
        drop(channel);
        assert!(!port.deliver(message(1)), "nobody is there");
    }

    #[tokio::test]
    async fn without_a_driver_nothing_is_sent_and_nothing_comes() {
        let (mut channel, port) = Port::new(0);
        drop(port);
        let body = OtherBody::new(77, Bytes::new()).unwrap();
        assert_eq!(channel.sender().send(body).await, Err(ExtensionError::NotConnected));
        assert_eq!(channel.recv().await, None);
    }
}
