//! The end of sessions of version 4 and of contexts of Kerberos: a command that goes away without a word leaves its
//! server with what it held until the lease or the ticket ends.
//!
//! A command can end anywhere, by an error or a signal. What it has connected to is noted where it runs, and ended when
//! it is over, however that came.

use crate::failure::is_hopeless;
use anyhow::Result;
use rpcrdma::client::command::Ending;
use std::cell::RefCell;

tokio::task_local! {
    static MADE: RefCell<Vec<Ending>>;
}

/// Ends what a client has made at servers when the command is over.
pub(crate) fn later(ending: &Ending) {
    // Where no command runs, leases end it.
    let _ = MADE.try_with(|made| made.borrow_mut().push(ending.clone()));
}

/// Runs a command, and then ends what it has begun.
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
