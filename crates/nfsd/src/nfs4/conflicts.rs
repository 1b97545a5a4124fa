//! What conflicts with callers that have nothing open, and what is taken from clients whose leases are over.

use super::service::Shared;
use crate::{
    Origin,
    claims::{Access, Asker, Client, FileKey, Holder, Kind, Using},
};
use futures_util::future::{Either, select};
use rpcrdma_nfs::v4::Status;
use std::{pin::pin, sync::Arc};

/// How often a claim is tried again because it conflicts with a client whose lease is over: then the client asks again.
pub(super) const MAX_TAKEN: usize = 8;

/// Why a client does not get what another client holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InTheWay {
    /// That client's lease runs, and it keeps it.
    Holder,
    /// Its lease is over, and it was not taken from it: the journal of clients cannot be written, as the log says, or
    /// there are too many such clients for one call. It may be different the next time.
    Journal,
    /// It has the file delegated, and was asked for it.
    Delegation,
}

impl InTheWay {
    /// The status to answer, where `denied` is the one for a client that keeps what it holds.
    pub(super) fn status(self, denied: Status) -> Status {
        match self {
            Self::Holder => denied,
            Self::Journal | Self::Delegation => Status::DELAY,
        }
    }
}

impl Shared {
    /// Takes what conflicts from clients whose leases are over, on a worker, in the turn of the client that wants it.
    ///
    /// # Errors
    /// If it stays.
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

    /// A file is about to be used: by a client, or by an unknown user. Conflicting delegations are recalled, and the
    /// call waits for a moment: most clients return a delegation at once, while a client that has to ask again does so
    /// after 100 ms, or 5 s in version 3 (Linux).
    ///
    /// # Errors
    /// If it has not come back.
    pub(crate) async fn using(
        self: &Arc<Self>,
        file: FileKey,
        user: Option<Client>,
        kind: Kind,
    ) -> Result<Using, InTheWay> {
        match self.claims.recall(file, user, kind) {
            Ok(using) => Ok(using),
            // By itself, so that the future of each READ and WRITE has no room for what happens to few.
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
    /// If they do not.
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
            // By itself, so that the future of each READ and WRITE has no room for what happens to few.
            Box::pin(self.take_from_later(origin, vec![conflict.client], file)).await?;
        }
        Err(InTheWay::Journal)
    }
}
