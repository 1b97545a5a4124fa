//! Host authentication: property 6 of the exchange, in both directions (draft section 5.2.6).
//!
//! The draft defines neither contents nor steps, so an embedder brings both. The engine carries any number of messages,
//! and neither sends nor delivers an RPC before the verdict. A connection whose peer is rejected is closed. Without an
//! authenticator the engine sends none, and ignores what comes. Owned bytes are copies.

use crate::side::Side;
use bytes::Bytes;
use std::{fmt::Debug, time::Duration};

/// How long authentication may take, from the first message of the peer.
pub const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes an authenticator for each connection.
pub trait HostAuthentication: Debug + Send + Sync {
    /// One for a connection, of which this end is `side`.
    fn begin(&self, side: Side) -> Box<dyn HostAuthenticator>;
}

/// One end of the authentication of one connection.
// V2-5.2.6-a, V2-5.2.6-b, V2-5.2.6-c, V2-11.1.1-c
pub trait HostAuthenticator: Debug + Send {
    /// What to send before the peer has sent anything.
    fn start(&mut self) -> Option<Bytes>;

    /// The peer has sent this. It is not called after a verdict.
    fn hear(&mut self, material: &Bytes) -> AuthenticationStep;

    /// The peer says nothing more, or speaks a version without authentication. Whether the connection may go on.
    fn silent(&mut self) -> bool;
}

/// How an authenticator reacts to what the peer has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationStep {
    /// Say this, and wait for an answer.
    Say(Bytes),
    /// The peer is who it should be. Say this, if anything, for the last time.
    Accept(Option<Bytes>),
    /// It is not: the connection is closed.
    Reject,
}

/// What is known of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is nothing to find out.
    NotAsked,
    Pending,
    Accepted,
    Rejected,
}
