//! Calls that the server makes to programs of its clients: replies and GRANTED of lockd, notices of statd.
//!
//! This library opens no sockets: the program that serves does, and hands in an [`Outside`]. Callers of this module
//! name the address, the call and the time limit; nothing here is retried.

use bytes::Bytes;
use rpcrdma_env::BoxFuture;
use std::{net::IpAddr, time::Duration};

/// What carries a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutsideTransport {
    /// Record-marked TCP.
    Tcp,
    /// One datagram each way.
    Udp,
}

/// One call to a program of a client's host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideCall {
    /// The server's address that the client knows; the call comes from it.
    pub from: IpAddr,
    /// The client's host.
    pub to: IpAddr,
    /// What carries it.
    pub transport: OutsideTransport,
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The encoded arguments.
    pub arguments: Bytes,
    /// How long the call may take in all, including the question for the port.
    pub limit: Duration,
}

/// Why a call has not been answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutsideError {
    /// There was no answer in time.
    #[error("the client's host did not answer within {} s", .0.as_secs())]
    NoAnswer(Duration),
    /// The client's portmapper knows no such program.
    #[error("the client's host has no such program")]
    NotRegistered,
    /// The host cannot be reached, or the connection ended before the answer.
    #[error("the client's host cannot be reached: {0}")]
    Unreachable(String),
    /// Its program did not execute the call.
    #[error("the client's host refused the call: {0}")]
    Refused(String),
    /// The program has no room for another call at this time, to this host or in all.
    #[error("too many calls to clients are under way")]
    Busy,
}

/// Calls that the server makes to programs of its clients, each with a time limit, over sockets of the program.
pub trait Outside: Send + Sync {
    /// Makes one call, and returns the encoded results. Asks the client's portmapper for the port (over the same kind
    /// of transport), and remembers the port for a while. Fails after the time limit, and if the client refuses the
    /// call (an RPC error).
    fn call(&self, to: OutsideCall) -> BoxFuture<'static, Result<Bytes, OutsideError>>;
}
