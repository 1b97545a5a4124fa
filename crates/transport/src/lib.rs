//! RPC-over-RDMA: ONC RPC messages over any [`Fabric`](rpcrdma_fabric::Fabric), with large data placed directly.
//!
//! * A client [`connect`]s and gets an [`RdmaTransport`], which implements
//!   [`ClientTransport`](rpcrdma_oncrpc::ClientTransport), and a driver.
//! * A [`Server`] accepts each connection of a [`Listener`](rpcrdma_fabric::Listener) and gets a [`ConnectionHandle`]
//!   and a driver, which passes calls to a [`Handler`](rpcrdma_oncrpc::Handler).
//! * Both report what they do to an [`Observer`].
//!
//! A driver is a future that the caller spawns; it works only when it is polled. The crate starts no thread, no timer
//! and no runtime: time and randomness come from [`Env`](rpcrdma_env::Env).
//!
//! In a runtime with one thread, spawn tasks for callers that have many calls under way. Tokio polls the outermost
//! future (`block_on`) only after the tasks that are ready. Callers in it get all replies that came together at once,
//! and both ends of the connection work in turn.
//!
//! # Who owns memory
//!
//! A call's bytes are shared, and its result buffers are lent: they belong to the connection from the moment of the
//! call, and come back with the reply, fenced, so that no late write can change what the caller reads. If a call is
//! dropped, the connection keeps its buffers. If it is cancelled, the caller gets them back at once; should the server
//! write to them later, the connection ends. On the server, received data are in the pool's buffers, and results are
//! written straight from the bytes that the service returns.
//!
//! # Versions
//!
//! [`ClientOptions::versions`] and [`ServerOptions::versions`] say which versions of RPC-over-RDMA an end uses; the
//! default is version 1 alone. With [`Versions::Auto`] a client asks for version 2, and goes on in version 1 if the
//! server has no other; a server follows its client's first message. [`Event::Negotiated`] reports the agreed version,
//! [`Event::NoVersion2`] that the server has no version 2, so that the next client need not ask.
//!
//! # Extending version 2
//!
//! Version 2 can be extended with properties and header types (draft appendix B). To extend it, implement
//! [`v2::Extension`], put it into the options of an end, and take the end's [`ExtensionChannel`]: a client's from its
//! transport, a server's from the handle of each connection. At most [`MAX_UNREAD`] messages of the peer wait there to
//! be read; further ones are refused.
//!
//! ```
//! use bytes::Bytes;
//! use rpcrdma_transport::{ClientOptions, ExtensionChannel, ExtensionError, Versions, v2};
//! use std::sync::Arc;
//!
//! /// Property 0x10000 says what time it is at the other end; header type 0x10000 asks for it, and answers.
//! const TIME: u32 = 0x1_0000;
//!
//! #[derive(Debug)]
//! struct Clocks;
//!
//! impl v2::Extensions for Clocks {
//!     fn header_type(&self, code: u32) -> bool {
//!         code == TIME
//!     }
//!     fn property(&self, property: &v2::OtherProperty) -> v2::Fit {
//!         match (property.code(), property.data().len()) {
//!             (TIME, 8) => v2::Fit::Fits,
//!             (TIME, _) => v2::Fit::Unfit,
//!             _ => v2::Fit::Unknown,
//!         }
//!     }
//! }
//!
//! impl v2::Extension for Clocks {
//!     fn announced(&self) -> Vec<v2::OtherProperty> {
//!         v2::OtherProperty::new(TIME, Bytes::from_static(&[0; 8])).into_iter().collect()
//!     }
//! }
//!
//! let mut options = ClientOptions::default();
//! options.versions = Versions::Two;
//! options.extension = Some(Arc::new(Clocks));
//!
//! /// The client: asks, and reads on until the answer to that comes.
//! async fn ask(channel: &mut ExtensionChannel) -> Result<Option<Bytes>, ExtensionError> {
//!     let Some(question) = v2::OtherBody::new(TIME, Bytes::new()) else { return Ok(None) };
//!     let asked = channel.sender().send(question).await?;
//!     while let Some(event) = channel.recv().await {
//!         match event.received {
//!             v2::Received::Message { xid, response: true, body } if xid == asked.xid => {
//!                 return Ok(Some(body.octets().clone()));
//!             }
//!             v2::Received::Error { xid, .. } if xid == asked.xid => return Ok(None),
//!             _ => {}
//!         }
//!     }
//!     Ok(None)
//! }
//!
//! /// The server: answers.
//! async fn tell(mut channel: ExtensionChannel) {
//!     while let Some(event) = channel.recv().await {
//!         if let v2::Received::Message { xid, response: false, .. } = event.received
//!             && let Some(answer) = v2::OtherBody::new(TIME, Bytes::from_static(b"12:00:00"))
//!         {
//!             let _ = channel.sender().respond(event.connection, xid, answer).await;
//!         }
//!     }
//! }
//! ```
//!
//! # When things go wrong
//!
//! The client replaces a lost connection, and sends unanswered calls again, in their order and with their XIDs. A peer
//! that breaks a rule loses its connection, and nothing else ends.

mod calls;
mod client;
mod error;
mod event;
mod event_log;
mod extension;
mod options;
mod parts;
mod refused;
mod requests;
mod server;
mod service;
mod session;

pub use client::{ClientDriver, RdmaTransport, connect};
pub use error::ConnectionError;
pub use event::{Event, NoVersion2, Observer, Quiet, Stall};
pub use event_log::Tracing;
pub use extension::{
    ExtensionChannel, ExtensionError, ExtensionEvent, ExtensionSender, ExtensionSent, MAX_UNREAD, MAX_UNREAD_BYTES,
};
pub use options::{
    CLOSE_TIMEOUT, ClientOptions, DEFAULT_MAX_MESSAGE_BYTES, DEFAULT_READS, Reverse, STALL_LIMIT, ServerOptions,
};
pub use refused::RefusedCalls;
pub use requests::{MAX_PULL_BYTES, MAX_PULLS, PULL_STALLS};
pub use rpcrdma_engine::{
    CloseCause, Limits as EngineLimits, Link, MessageKind, Negotiated, PeerFault, Sent, Versions, v2,
};
pub use rpcrdma_oncrpc::outage::DEFAULT_OUTAGE;
pub use server::{ConnectionHandle, Server, ServerDriver};
pub use service::ServerMemory;
