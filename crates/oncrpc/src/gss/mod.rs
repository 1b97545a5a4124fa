//! RPCSEC_GSS version 1 (RFC 2203): callers that prove who they are, and calls and replies that are protected from
//! changes and from readers.
//!
//! [`AcceptGss`] is the flavour on the server's side, [`GssAuth`] on the client's. They know no mechanism: a
//! [`Mechanism`] makes contexts from tokens, and a [`Protection`] signs and seals. Contexts are made on the threads of
//! [`Work`], because that reads files and asks other hosts; a call is signed and sealed on the thread that handles it.
//!
//! A server limits its callers in four ways. Tokens wait for threads, in turn for each client, and so do look-ups of
//! principals. Unfinished contexts, which cost an attacker one message each, are limited to a few: a new one displaces
//! the oldest. Finished contexts have a limit for each address, and a limit in all: a new one displaces the least used
//! of its address. The server tells a caller that its context is gone, and the caller makes a new one. A context ends
//! with its ticket.
//!
//! A client's calls share one context. The client makes it for the first call, and makes a new one before it ends, or
//! when the server has lost it.
//!
//! A server that calls its client back does so in a context that the client has made: [`BackAuth`] signs such calls,
//! and [`AcceptBack`] checks them.
//!
//! Version 3 (RFC 7861) and version 2's channel bindings (RFC 5403) are refused like every unknown version.

mod back;
mod body;
mod caller;
mod client;
mod credential;
mod making;
mod mechanism;
mod observer;
mod queue;
mod server;
mod table;
mod transmissions;
mod window;

pub use crate::credential::{GssCaller, GssService, GssUser};
pub use back::{AcceptBack, BackAuth, BackHandles};
pub use caller::{Known, Names};
pub use client::{AboutContext, GssAuth};
pub use credential::{GssCredential, MAX_SEQUENCE, Procedure as GssProcedure, RPCSEC_GSS};
pub use making::{TOKENS_AT_ONCE, USERS_AT_ONCE, Workshop};
pub use mechanism::{Failure, Handshake, Mechanism, Peer, Progress, Protection, Work};
pub use observer::{GssObserver, Refused};
pub use server::{AcceptGss, MAX_TOKEN_BYTES};
pub use table::{CONTEXTS, CONTEXTS_OF_CLIENT, UNFINISHED};
pub use window::WINDOW;
