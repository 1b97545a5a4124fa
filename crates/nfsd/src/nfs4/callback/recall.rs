//! Recalls of delegations: CB_RECALL, and the revocation of delegations that clients do not return (RFC 8881 sections
//! 10.4.4 to 10.4.6, 20.2).
//!
//! A task of the program ([`Tasks`](crate::nfs4::tasks::Tasks)) recalls each delegation once. If the holder was not
//! reached, or has not accepted the call, the server calls it again when it next looks for work that is due. A holder
//! that has not returned the delegation after a lease loses it, whatever it has answered. The client that wants the
//! file waits for none of this.

use crate::{
    Origin,
    claims::{self, FileKey, Recalls},
    nfs4::{
        delegations::{Key, Recall},
        service::{Pin, Shared},
        state::{Loss, lease::Standing, release::Why},
    },
};
use rpcrdma_nfs::v4::{
    ClientId, Status,
    callback::{Args, Outcome},
};
use std::sync::Arc;

impl Recalls for Shared {
    fn recall(self: Arc<Self>, client: claims::Client, file: FileKey) {
        if let Some(key) = Self::delegation_of(client, file) {
            self.recall_delegation(key);
        }
    }
}

impl Shared {
    /// Another user wants a delegated file.
    pub(in crate::nfs4) fn recall_delegation(self: &Arc<Self>, key: Key) {
        let (now, Some((client, id))) = (self.now(), self.delegations.holder(key)) else { return };
        if client.lease.standing(now, self.limits()) != Standing::Live {
            // The holder was silent for a whole lease: calling it gains nothing. It loses this delegation, and keeps
            // what no other client wants. If it has come back, the server calls it.
            self.delegations.recall(key, now, false);
            self.delegations.unheard(key);
            let (shared, loss) = (self.clone(), Loss { client, states: vec![id.other], why: Why::Expired });
            return self.tasks.spawn(async move {
                let _ = shared.on_worker(Origin::LOCAL, move |shared| shared.take_delegations(&[loss])).await;
            });
        }
        if self.delegations.recall(key, now, true) {
            self.call_for(key.0);
        }
    }

    /// Makes the recalls of a client, one after the other.
    fn call_for(self: &Arc<Self>, client: ClientId) {
        let shared = self.clone();
        self.tasks.spawn(async move {
            while let Some(recall) = shared.delegations.next(client) {
                shared.make(recall).await;
            }
        });
    }

    async fn make(self: &Arc<Self>, recall: Recall) {
        let Recall { key, client, args, referring } = recall;
        let answer = self.call_back(&client, vec![Args::Recall(args)], referring).await;
        match answer.map(|outcomes| outcomes.first().map(Outcome::status)) {
            Ok(Some(Status::OK)) => {}
            // If the holder does not know the delegation, the reply to its OPEN may still be under way.
            Ok(status) => {
                tracing::debug!(
                    client = client.id().0,
                    status = status.map(|status| status.0),
                    "a client does not accept the recall of a delegation"
                );
                self.delegations.unheard(key);
            }
            Err(why) => {
                tracing::debug!(client = client.id().0, %why, "a delegation could not be called back");
                self.delegations.unheard(key);
            }
        }
    }

    /// Takes delegations from clients, on the disk first. Returns how many each client has lost. Sleeps.
    fn take_delegations(&self, losses: &[Loss<Pin>]) -> Result<Vec<usize>, Status> {
        let taken = self.state.revoke(losses, self.now())?;
        let give_back = |(released, loss): (Vec<_>, &Loss<Pin>)| {
            let count = released.len();
            if loss.why == Why::Expired {
                self.losses.count(&released);
            }
            self.release(Origin::LOCAL, released);
            count
        };
        let counts = taken.into_iter().zip(losses).map(give_back).collect();
        self.losses.tell(self.now());
        Ok(counts)
    }

    /// Calls holders again that were not reached, and takes away the delegations that were not returned in time.
    /// Sleeps.
    pub(in crate::nfs4) fn sweep_delegations(self: &Arc<Self>) {
        let now = self.now();
        // NFS4-8881-10.4.5-a
        let due = self.delegations.due(now, self.limits().lease);
        // NFS4-8881-10.4.6-a: on the disk before another client gets the files. If that fails, the next sweep tries
        // again.
        let counts = self.take_delegations(&due).unwrap_or_default();
        let mut away = Vec::new();
        for (Loss { client, .. }, count) in due.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
            let others = self.delegations.has_lost(client.id(), count, now);
            tracing::warn!(
                client = client.id().0,
                delegations = count,
                "a client has not returned delegations that others waited for: it has lost them"
            );
            // All at once, so that a client that wants another of these files does not wait for another lease.
            // NFS4-8881-10.4.5-c
            if client.lease.standing(now, self.limits()) == Standing::Live {
                others.into_iter().for_each(|(key, _)| self.recall_delegation(key));
            } else {
                let states = others.into_iter().map(|(_, id)| id.other).collect();
                away.push(Loss { client, states, why: Why::Expired });
            }
        }
        // No other client wants these yet: what cannot be taken now is taken when one does.
        let _ = self.take_delegations(&away);
        self.delegations.again().into_iter().for_each(|client| self.call_for(client));
    }
}
