//! The end of sessions of version 4 and of contexts of Kerberos: if a command simply goes away, its server keeps what
//! the command held until the lease or the ticket ends.
//!
//! A command can end anywhere, by an error or a signal. It notes each connection where it makes it, and ends them when
//! it is over, for whatever reason.

use crate::copy::is_hopeless;
use anyhow::Result;
use rpcrdma_nfs_client::v4::Nfs4;
use rpcrdma_oncrpc::gss::GssAuth;
use std::{cell::RefCell, time::Duration};

/// How long that may take: a server that does not answer has leases for that.
const PATIENCE: Duration = Duration::from_secs(5);

tokio::task_local! {
    static MADE: RefCell<Made>;
}

/// What a command has made at servers.
#[derive(Default)]
struct Made {
    sessions: Vec<Nfs4>,
    contexts: Vec<GssAuth>,
}

/// Ends this client's session when the command is over.
pub(crate) fn later(nfs: &Nfs4) {
    // Where no command runs, leases end the session.
    let _ = MADE.try_with(|made| made.borrow_mut().sessions.push(nfs.clone()));
}

/// Destroys the context of a flavour when the command is over, after the sessions that use it.
pub(crate) fn destroyed_later(auth: &GssAuth) {
    // Where no command runs, tickets end the context.
    let _ = MADE.try_with(|made| made.borrow_mut().contexts.push(auth.clone()));
}

/// Runs a command, and then ends what it has begun.
pub(crate) async fn after<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    let ended = async {
        let done = command.await;
        let made = MADE.with(RefCell::take);
        if !done.as_ref().is_err_and(is_hopeless) {
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
        done
    };
    MADE.scope(RefCell::default(), ended).await
}
