//! RPC-over-RDMA: ONC RPC messages over any [`Fabric`](rpcrdma_fabric::Fabric), with large data placed directly.
//!
//! * A client [`connect`]s and gets an [`RdmaTransport`], which implements
//!   [`ClientTransport`](rpcrdma_oncrpc::ClientTransport), and a driver.
//! * A [`Server`] accepts each connection of a [`Listener`](rpcrdma_fabric::Listener) and gets a [`ConnectionHandle`] and a
//!   driver, which hands calls to a [`Handler`](rpcrdma_oncrpc::Handler).
//! * Both tell an [`Observer`] what they do.
//!
//! A driver is a future that the caller spawns; nothing happens unless it is polled. No thread, no timer and no runtime
//! is started here: time and randomness come from [`Env`](rpcrdma_env::Env).
//!
//! # Who owns memory
//!
//! A call's octets are shared, and its result buffers are lent: they belong to the connection from the moment of the
//! call, and come back with the reply, fenced, so that no late write can change what the caller reads. Dropping a call
//! leaves its buffers with the connection; cancelling it takes them back at once, and should the server write to them
//! later, the connection ends. On the server, received data are in the pool's buffers, and results are written straight
//! from the octets that the service returns.
//!
//! # Versions
//!
//! [`ClientOptions::versions`] and [`ServerOptions::versions`] say which versions of RPC-over-RDMA are spoken; version 1
//! alone unless told otherwise. With [`Versions::Auto`] a client asks for version 2 and goes on in version 1 where the
//! server has nothing else, and a server goes by its client's first message. [`Event::Negotiated`] says what was
//! settled, [`Event::NoVersion2`] that asking is not worth while.
//!
//! # When things go wrong
//!
//! A lost connection is made again and unanswered calls are sent again, in their order and with their XIDs. A peer that
//! breaks a rule loses its connection and nothing else.

mod calls;
mod client;
mod error;
mod event;
mod options;
mod pulls;
mod refused;
mod server;
mod service;
mod session;

pub use client::{ClientDriver, RdmaTransport, connect};
pub use error::ConnectionError;
pub use event::{Event, NoVersion2, Observer, Quiet, Stall, Tracing};
pub use options::{
    CLOSE_TIMEOUT, ClientOptions, DEFAULT_MAX_MESSAGE_OCTETS, DEFAULT_OUTAGE, DEFAULT_READS, Reverse, STALL_LIMIT,
    ServerOptions,
};
pub use pulls::{MAX_PULL_OCTETS, MAX_PULLS, PULL_STALLS};
pub use rpcrdma_engine::{
    CloseCause, Limits as EngineLimits, Link, MessageKind, Negotiated, PeerFault, Sent, Versions, v2,
};
pub use server::{ConnectionHandle, Server, ServerDriver};
pub use service::ServerMemory;
