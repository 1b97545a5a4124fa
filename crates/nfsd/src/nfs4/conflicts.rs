//! Conflicts with callers that have nothing open, and the claims that the server takes from clients whose leases are
//! over.

use super::service::Shared;
use crate::{
    Origin,
    claims::{Access, Asker, Client, FileKey, Holder, Kind, Using},
};
use futures_util::future::{Either, select};
use rpcrdma_nfs::v4::Status;
use std::{pin::pin, sync::Arc};

/// How often a claim is tried again after a conflict with a client whose lease is over: after that the client must ask
/// again.
pub(super) const MAX_TAKEN: usize = 8;

/// Why a client does not get what another client holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InTheWay {
    /// That client's lease runs, and it keeps its claim.
    Holder,
    /// That client's lease is over, but it keeps its claim: the server cannot write the journal of clients, as the log
    /// says, or there are too many such clients for one call. The next try may succeed.
    Journal,
    /// That client has the file delegated, and the server has recalled the delegation.
    Delegation,
}

impl InTheWay {
    /// The status for the caller; `denied` is the status if the other client keeps its claim.
    pub(super) fn status(self, denied: Status) -> Status {
        match self {
            Self::Holder => denied,
            Self::Journal | Self::Delegation => Status::DELAY,
        }
    }
}

impl Shared {
    /// Takes conflicting claims from clients whose leases are over, on a worker, in the turn of the client that wants
    /// the file.
    ///
    /// # Errors
    /// If a conflicting claim stays.
    pub(super) async fn take_from_later(
        self: &Arc<Self>,
        origin: Origin,
        holders: Vec<Client>,
        file: FileKey,
    ) -> Result<(), InTheWay> {
        self.on_worker(origin, move |shared| Ok(shared.take_from(origin, &holders, file)))
            .await
            .unwrap_or(Err(InTheWay::Journal))
    }

    /// A client or an unknown user is about to use a file. Recalls conflicting delegations, and waits for a moment:
    /// most clients return a delegation at once, while a client that gets DELAY asks again only after 100 ms, or 5 s in
    /// version 3 (Linux).
    ///
    /// # Errors
    /// If a delegation has not come back.
    pub(crate) async fn using(
        self: &Arc<Self>,
        file: FileKey,
        user: Option<Client>,
        kind: Kind,
    ) -> Result<Using, InTheWay> {
        match self.claims.recall(file, user, kind) {
            Ok(using) => Ok(using),
            // Boxed, so that the future of each READ and WRITE has no room for what seldom happens.
            Err(recalling) => {
                Box::pin(async move {
                    let pause = self.clock.sleep_until(self.now() + self.limits().recall_wait);
                    let returned = pin!(recalling.returned());
                    match select(returned, pause).await {
                        Either::Left(_) => self.claims.recall(file, user, kind).map_err(|_| InTheWay::Delegation),
                        Either::Right(_) => Err(InTheWay::Delegation),
                    }
                })
                .await
            }
        }
    }

    /// Whether share reservations permit an owner, or an unknown user, to read or write a file.
    ///
    /// # Errors
    /// If they do not permit it.
    pub(crate) async fn may(
        self: &Arc<Self>,
        origin: Origin,
        file: FileKey,
        access: Access,
        holder: Option<&Holder>,
    ) -> Result<(), InTheWay> {
        let asker = holder.map_or(Asker::Anonymous, Asker::Holder);
        for _ in 0..MAX_TAKEN {
            let Err(conflict) = self.claims.may(file, access, asker) else { return Ok(()) };
            // Boxed, so that the future of each READ and WRITE has no room for what seldom happens.
            Box::pin(self.take_from_later(origin, vec![conflict.client], file)).await?;
        }
        Err(InTheWay::Journal)
    }
}
