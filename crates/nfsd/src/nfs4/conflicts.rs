//! What is in the way of those who have nothing open, and what is taken from clients whose leases are over.

use super::service::Shared;
use crate::claims::{Access, Asker, Client, FileKey, Holder};
use std::sync::Arc;

/// How often a claim is tried again since a client was in its way whose lease is over: then the client asks again.
pub(super) const MAX_TAKEN: usize = 8;

impl Shared {
    /// Takes what is in the way from a client whose lease is over, on a worker. Says whether it was taken.
    pub(super) async fn take_from_later(self: &Arc<Self>, holder: Client, file: FileKey) -> bool {
        self.on_worker(move |shared| Ok(shared.take_from(holder, file))).await.unwrap_or(false)
    }

    /// Whether a file may be read or written as far as share reservations go, by an owner or by nobody in particular.
    pub(crate) async fn may(
        self: &Arc<Self>,
        file: FileKey,
        access: Access,
        holder: Option<&Holder>,
    ) -> Result<(), ()> {
        let asker = holder.map_or(Asker::Anonymous, Asker::Holder);
        for _ in 0..MAX_TAKEN {
            let Err(conflict) = self.claims.may(file, access, asker) else { return Ok(()) };
            // By itself, so that the future of each READ and WRITE has no room for what happens to few.
            if !Box::pin(self.take_from_later(conflict.client, file)).await {
                return Err(());
            }
        }
        Err(())
    }
}
