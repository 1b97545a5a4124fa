//! The end of sessions of version 4 and of contexts of Kerberos: if a command does not end them, its server keeps what
//! it held until the lease or the ticket ends.
//!
//! A command can end anywhere, by an error or a signal. So the sessions and contexts of each connection are noted, and
//! are ended when the command is over, whatever has ended it.

use crate::failure::is_hopeless;
use anyhow::Result;
use rpcrdma::client::command::Ending;
use std::cell::RefCell;

tokio::task_local! {
    static MADE: RefCell<Vec<Ending>>;
}

/// Ends a client's sessions and contexts at servers when the command is over.
pub(crate) fn later(ending: &Ending) {
    // Outside a command, leases end them.
    let _ = MADE.try_with(|made| made.borrow_mut().push(ending.clone()));
}

/// Runs a command, and then ends its sessions and contexts.
pub(crate) async fn after<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    let ended = async {
        let done = command.await;
        let made = MADE.with(RefCell::take);
        if !done.as_ref().is_err_and(is_hopeless) {
            for ending in made {
                ending.end().await;
            }
        }
        done
    };
    MADE.scope(RefCell::default(), ended).await
}
