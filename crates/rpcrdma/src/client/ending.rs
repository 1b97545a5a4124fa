//! The end of sessions of version 4 and of contexts of Kerberos. If a client leaves without ending them, the server
//! keeps what it held until the lease or the ticket ends.

use rpcrdma_nfs_client::v4::Nfs4;
use rpcrdma_oncrpc::gss::GssAuth;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// How long the calls that end sessions and contexts may take. A server that does not answer in this time ends them
/// itself when the lease ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// The sessions and contexts that were made at servers, to be ended there. Clones share them.
#[derive(Clone, Default)]
pub struct Ending(Arc<Mutex<Made>>);

#[derive(Default)]
struct Made {
    sessions: Vec<Nfs4>,
    contexts: Vec<GssAuth>,
}

impl Ending {
    /// Ends this client's session at the end.
    pub(super) fn of_session(&self, nfs: &Nfs4) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sessions.push(nfs.clone());
    }

    /// Destroys the context of a flavour at the end, after the sessions that use it.
    pub(super) fn of_context(&self, auth: &GssAuth) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contexts.push(auth.clone());
    }

    /// Tells the servers that their clients leave. If a server does not answer within five seconds, its leases end what
    /// the client held.
    pub async fn end(&self) {
        let made = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for nfs in made.sessions {
            match tokio::time::timeout(PATIENCE, nfs.end()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a session could not be ended"),
                Err(_) => tracing::debug!("a session could not be ended: the server does not answer"),
            }
        }
        for auth in made.contexts {
            if tokio::time::timeout(PATIENCE, auth.close()).await.is_err() {
                tracing::debug!("a context could not be destroyed: the server does not answer");
            }
        }
    }
}
