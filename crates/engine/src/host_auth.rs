//! Host authentication: property 6 of the exchange, in both directions (draft section 5.2.6).
//!
//! The draft defines neither contents nor steps, so the embedder provides both. The engine carries any number of
//! messages, and neither sends nor delivers an RPC before the verdict. It closes the connection if the peer is
//! rejected. Without an authenticator the engine sends no material, and ignores the peer's. Passed-on bytes are copies.

use crate::side::Side;
use bytes::Bytes;
use std::{fmt::Debug, time::Duration};

/// How long authentication may take, counted from the peer's first message.
pub const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes an authenticator for each connection.
pub trait HostAuthentication: Debug + Send + Sync {
    /// An authenticator for one connection, of which this end is `side`.
    fn begin(&self, side: Side) -> Box<dyn HostAuthenticator>;
}

/// One end of the authentication of one connection.
// V2-5.2.6-a, V2-5.2.6-b, V2-5.2.6-c, V2-11.1.1-c
pub trait HostAuthenticator: Debug + Send {
    /// The material to send before the peer has sent any.
    fn start(&mut self) -> Option<Bytes>;

    /// The peer has sent this material. The engine does not call it after a verdict.
    fn hear(&mut self, material: &Bytes) -> AuthenticationStep;

    /// The peer sends nothing more, or speaks a version without authentication. Returns whether the connection may
    /// continue.
    fn silent(&mut self) -> bool;
}

/// How an authenticator reacts to the peer's material.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationStep {
    /// Send this material, and wait for an answer.
    Say(Bytes),
    /// The peer is who it should be. Send this material, if any, as the last.
    Accept(Option<Bytes>),
    /// The peer is not who it should be: the engine closes the connection.
    Reject,
}

/// What we know of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No authenticator, or it lets a silent peer continue.
    NotAsked,
    Pending,
    Accepted,
    Rejected,
}
