//! The seam to a mechanism of the GSS-API.

use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// Makes contexts: accepts them, with the keys of a service, or begins them, with a user's tickets.
pub trait Mechanism: Send + Sync {
    /// Begins a context: with the initiator that sends the first token, or with the service. Does not wait.
    fn begin(&self) -> Box<dyn Handshake>;

    /// The meaning of a status that the peer has sent, and what an administrator can do about it.
    fn explain(&self, major: u32, minor: u32) -> String {
        format!("GSS-API status {major:#010x}, mechanism's status {minor}")
    }
}

/// A context that is being made. It is dropped if a step fails.
pub trait Handshake: Send {
    /// Takes the peer's next token; an initiator takes an empty one first. May wait for files and other hosts.
    ///
    /// # Errors
    /// The failure that the initiator gets.
    fn step(self: Box<Self>, token: &[u8]) -> Result<Progress, Failure>;
}

/// How far a context is.
pub enum Progress {
    /// The peer has to send another token.
    More {
        /// The handshake that takes it.
        handshake: Box<dyn Handshake>,
        /// The token to send to the peer.
        token: Bytes,
    },
    /// It is made.
    Done {
        /// What protects its messages.
        protection: Box<dyn Protection>,
        /// Who began it.
        peer: Peer,
        /// The last token to send to the peer; it may be empty.
        token: Bytes,
    },
}

/// Who began a context, and with which service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The principal that has begun it, `user@REALM`.
    pub principal: Arc<str>,
    /// The service that it was begun with, `nfs/host@REALM`.
    pub acceptor: Arc<str>,
    /// The name of the local user that it is by the mechanism's rules, if there is one.
    pub local: Option<Arc<str>>,
    /// For how long the context is good; `None` if for ever.
    pub lifetime: Option<Duration>,
}

/// Signs and seals the messages of one context, which may come in any order and twice. An error has no details; the
/// mechanism knows them.
pub trait Protection: Send {
    /// The checksum that proves that this end has written a message.
    ///
    /// # Errors
    /// If the context cannot be used any more.
    fn sign(&mut self, message: &[u8]) -> Result<Bytes, Failure>;

    /// Checks that `checksum` is the peer's for `message`.
    ///
    /// # Errors
    /// If it is not, or the context cannot be used any more.
    fn verify(&mut self, message: &[u8], checksum: &[u8]) -> Result<(), Failure>;

    /// Seals a message, so that the peer alone can read it.
    ///
    /// # Errors
    /// If the context cannot be used any more.
    fn seal(&mut self, message: &[u8]) -> Result<Bytes, Failure>;

    /// Opens a sealed message of the peer.
    ///
    /// # Errors
    /// If it is malformed, not the peer's or was not sealed, or the context cannot be used any more.
    fn open(&mut self, message: &[u8]) -> Result<Bytes, Failure>;
}

/// What went wrong, in RPCSEC_GSS's terms (RFC 2203 appendix A).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// The major status.
    pub major: u32,
    /// The mechanism's own status.
    pub minor: u32,
    /// The same in words, for the log.
    pub text: String,
}

impl Failure {
    /// Whether the credential or the context has expired: GSS_S_CREDENTIALS_EXPIRED, GSS_S_CONTEXT_EXPIRED.
    pub fn is_expired(&self) -> bool {
        matches!(self.major >> 16 & 0xff, 11 | 12)
    }
}

/// Runs work that waits for files, on threads of the program. The library starts no thread.
pub trait Work: Send + Sync {
    /// Runs `job` on some thread, soon. If the job is dropped instead, the call that waits for it fails.
    fn run(&self, job: Box<dyn FnOnce() + Send>);
}
