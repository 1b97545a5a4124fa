//! A client of NFS version 4, minor versions 0 to 2.
//!
//! * [`Nfs4`] has every operation as an async method. It agrees with the server on a minor version, keeps a session (in
//!   minor version 0 a client id), and repairs both. If a restart of the server, a lost session or a lost connection
//!   interrupts a call, it reclaims what the client holds and repeats the call. It reports what it could not reclaim
//!   ([`Error::Lost`]).
//! * [`Opened`] is an open file, with its locks. If it is dropped, the driver closes the file a little later.
//! * [`Nfs4::driver`] renews the lease and does what the server asks for. The library starts no task: the embedder
//!   polls the driver.
//! * [`Callbacks`] answers the calls of the server, which the transport brings in the reverse direction.
//!
//! The client trusts nothing that a server sends: results that do not fit the call are errors, and everything that it
//! keeps has a limit.

mod about;
mod acl;
mod attributes;
mod awaited;
mod callback;
mod close;
mod compound;
mod copy;
mod create;
mod data;
mod driver;
mod duties;
mod error;
mod exchange;
mod finish;
mod held;
mod list;
mod lock;
mod look;
mod mend;
mod names;
mod open;
mod options;
mod owner;
mod place;
mod ranges;
mod recover;
mod reply;
mod revoked;
mod security;
mod session;
mod slots;
mod small;
mod space;
mod standing;
mod transfer;
mod unanswered;
mod version;
mod works;
mod xattr;
mod zero;

pub use about::{About, AboutSession, BackChannel, Feature, served_minors};
pub use callback::{CALLBACK_SLOTS, Callbacks};
pub use copy::{Copied, Span};
pub use data::By;
pub use error::{Conflict, Error, Lost};
pub use list::{Entry, Page};
pub use look::{Found, Usage};
pub use open::{Access, How, Opened};
pub use options::Options;
pub use place::NewFile;
pub use small::Small;

use futures_util::future::WeakShared;
use rpcrdma_env::Env;
use rpcrdma_nfs::v4::{ClientName, Verifier};
use rpcrdma_oncrpc::Client;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// A client of NFS version 4. Cloning shares the session.
#[derive(Clone)]
pub struct Nfs4 {
    inner: Arc<Inner>,
}

/// What the clones of a client share.
struct Inner {
    client: Client,
    env: Env,
    options: Options,
    minor: u32,
    /// The name of this client: a new one each time, so that it takes over no other client's state.
    name: ClientName,
    verifier: Verifier,
    standing: Mutex<standing::Standing>,
    /// The repair that is in progress.
    repair: Mutex<Option<WeakShared<recover::Repairing>>>,
    me: Weak<Inner>,
    owners: owner::Owners,
    opens: held::Opens,
    duties: Arc<duties::Duties>,
    awaited: Arc<awaited::Awaited>,
    /// The server's first description of itself.
    server: Mutex<transfer::Server>,
}

impl Inner {
    fn standing(&self) -> MutexGuard<'_, standing::Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.duties.end();
    }
}

impl Nfs4 {
    /// The minor version in use.
    pub fn minor(&self) -> u32 {
        self.inner.minor
    }

    /// Whether both are clones of one client.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// How long the server certainly keeps what the client holds, counted from its last reply.
    pub fn lease_left(&self) -> Duration {
        let inner = &self.inner;
        let silent = inner.env.clock.now().since(inner.duties.last_heard());
        inner.server().lease.saturating_sub(silent)
    }

    /// The RPC client below.
    pub fn rpc(&self) -> &Client {
        &self.inner.client
    }

    /// The number by which the server names this client in its calls in minor version 0, if it can call.
    pub fn callback_ident(&self) -> Option<u32> {
        self.inner.options.callbacks.as_ref().map(Callbacks::ident)
    }

    /// How many calls the session may have under way at a time, if there is a session.
    pub fn session_slots(&self) -> Option<u32> {
        self.inner.standing().session.as_ref().map(|session| session.fore.max_requests)
    }
}

impl fmt::Debug for Nfs4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nfs4(minor version {} at {})", self.inner.minor, self.inner.client.transport().server())
    }
}
