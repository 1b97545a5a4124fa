//! Calls that the server makes to programs of its clients: lockd's answers and its GRANTED, statd's notices.
//!
//! This library opens no sockets: the program that serves does, and hands in an [`Outside`]. The caller says where,
//! what and for how long; nothing here is retried, and of the peer's answer only the fact counts that it has answered.

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
    /// The server's address that the client knows, from which the call comes.
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
    /// How long it may take in all, with the question for the port.
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
    /// The program makes no more calls at a time, to this host or in all.
    #[error("too many calls to clients are under way")]
    Busy,
}

/// Calls that the server makes to programs of its clients, each with a time limit; the program's sockets do it.
pub trait Outside: Send + Sync {
    /// One call of a procedure without results that matter beyond `Ok`: `arguments` are the encoded XDR, the answer is
    /// the encoded results. Which port: the client's portmapper is asked (over the same kind of transport), and
    /// remembered for a while. `from` is the server's address that the client knows. Fails after the time limit, and by
    /// refusals (RPC errors), in words.
    fn call(&self, to: OutsideCall) -> BoxFuture<'static, Result<Bytes, OutsideError>>;
}
