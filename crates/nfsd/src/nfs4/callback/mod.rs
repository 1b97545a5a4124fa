//! Calls of the server to its clients (RFC 8881 sections 2.10.3, 20; RFC 8167).

mod holder;
mod recall;
#[cfg(test)]
pub(super) mod testing;

use super::{
    service::{Pin, Shared},
    state::clients::Client,
};
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::v4::{
    Status,
    callback::{Args, Outcome, ReferringCalls},
};
use std::sync::Arc;

/// Why a client's answer to a call of the server's is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// There is no connection over which the client can be called.
    #[error("the client has no connection for calls of the server's")]
    NoPath,
    /// The connection ended, or the client did not answer in time.
    #[error("the client did not answer")]
    Lost,
    /// The client answered that it executes nothing: the status of CB_SEQUENCE, or of the COMPOUND as a whole.
    #[error("the client refused the call ({0})")]
    Refused(Status),
}

impl Shared {
    /// Whether a client can be called now, and has shown it.
    pub(crate) fn can_call(&self, client: &Client<Pin>) -> bool {
        let _ = client;
        false
    }

    /// Calls a client: `ops` after CB_SEQUENCE, which is added here (for minor version 0 they go as they are). `referring` are the
    /// calls of the client's whose results these concern. The outcomes are those of `ops`, up to the first that failed. A call
    /// waits here for a slot of the client's back channel; whoever calls sees to it that not too many wait.
    ///
    /// # Errors
    /// As [`NoAnswer`] says. What the client has done is not known then, but for `Refused` and `NoPath`: nothing.
    pub(crate) fn call_back(
        self: &Arc<Self>,
        client: &Arc<Client<Pin>>,
        ops: Vec<Args>,
        referring: Vec<ReferringCalls>,
    ) -> BoxFuture<'static, Result<Vec<Outcome>, NoAnswer>> {
        let _ = (client, ops, referring);
        Box::pin(std::future::ready(Err(NoAnswer::NoPath)))
    }
}
