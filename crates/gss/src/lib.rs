//! Kerberos by MIT's GSS-API library (RFC 2743, RFC 2744, RFC 4121): it proves who calls, and protects calls from
//! changes and from readers.
//!
//! [`Gss::load`] looks for `libgssapi_krb5.so.2` when a program first calls it, so a program that contains this crate
//! runs on machines without the library; [`LoadError`] says what is missing and what to do.
//!
//! A [`Credential`] comes from a keytab or from the user's cache. With one, an [`Initiator`] or an [`Acceptor`] makes a
//! [`Context`] by tokens that it exchanges with the peer: each step gives the next token to send, and either itself
//! back or the context. A context signs, checks, seals and opens messages, and knows the [`Name`] of the peer.
//!
//! ```no_run
//! # fn example(token: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma_gss::{Gss, Progress};
//! let gss = Gss::load()?;
//! let credential = gss.accept_with(Some("/etc/krb5.keytab".as_ref()))?;
//! match gss.acceptor(&credential).step(token)? {
//!     Progress::More { token, .. } => println!("{} bytes to send, and more to come", token.len()),
//!     Progress::Done { context, .. } => println!("{} calls", context.initiator()?.display()?),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Kerberos`] is the mechanism for RPCSEC_GSS of `rpcrdma-oncrpc` on a server, [`Tickets`] the one for a client, and
//! [`Accounts`] maps principals to the users of this machine.
//!
//! # What to know of it
//! - Functions may block: making a context reads files, and the initiator asks the KDC. Call them on worker threads.
//! - The library takes its settings from the process's environment (`KRB5_CONFIG`, `KRB5CCNAME`, `KRB5_KTNAME`).
//! - One thread at a time uses a context: it is `Send`, and not `Sync`.
//! - Messages may come in any order and twice. A caller that needs an order must keep it, as RPCSEC_GSS does.
//! - This crate only passes tokens of the peer to the library; the code that receives them limits their lengths.
//!
//! # Features
//!
//! * `realm` (off by default): a realm with a KDC of its own in a temporary directory, for tests.
//!
//! # Safety
//! All `unsafe` of the crate calls the GSS-API library or the C library's functions for users, or reads memory that
//! they have written. It is sound because of one rule: one value owns each object of the library, releases it, and
//! keeps alive what it depends on.

mod accounts;
mod advice;
mod context;
mod credential;
mod error;
mod establish;
mod kerberos;
mod keytab;
mod map;
mod name;
mod octets;
#[cfg(feature = "realm")]
pub mod realm;
mod sys;
mod tickets;

pub use accounts::{Accounts, MAX_GROUPS};
pub use context::{Context, Opened};
pub use credential::Credential;
pub use error::{Error, Kind, LoadError};
pub use establish::{Acceptor, Initiator, Progress};
pub use kerberos::Kerberos;
pub use keytab::principals;
pub use map::{MapError, PrincipalMap};
pub use name::{Name, NameKind};
pub use octets::Octets;
pub use tickets::Tickets;

use sys::Library;

/// The library, loaded.
#[derive(Clone, Copy)]
pub struct Gss(&'static Library);

impl Gss {
    /// Loads the library, or finds it loaded.
    ///
    /// # Errors
    /// If it is not installed, or too old.
    pub fn load() -> Result<Self, LoadError> {
        Library::get().map(Self)
    }
}

impl std::fmt::Debug for Gss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gss")
    }
}
