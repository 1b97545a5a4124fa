//! Calling delegations back: CB_RECALL, and what becomes of those that are not returned (RFC 8881 sections 10.4.4 to
//! 10.4.6, 20.2).
//!
//! Each delegation is called back once, by a task of the program's ([`Tasks`](crate::nfs4::tasks::Tasks)). A holder
//! that was not reached, or did not take the call, is called again when the server next looks for what is due; one that
//! has not returned the delegation after a lease loses it, whatever it has answered. Who wants the file does not wait
//! for any of it.

use crate::{
    Origin,
    claims::{self, FileKey, Recalls},
    nfs4::{
        delegations::{Key, Recall},
        service::Shared,
        state::{lease::Standing, release::Why},
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
    /// A delegation is wanted back.
    pub(in crate::nfs4) fn recall_delegation(self: &Arc<Self>, key: Key) {
        let (now, Some(client)) = (self.now(), self.delegations.holder(key)) else { return };
        if client.lease.standing(now, self.limits()) != Standing::Live {
            // It has not been heard of for a lease: nothing is gained by calling it. If it has come back, it is called.
            self.delegations.recall(key, now, false);
            self.delegations.unheard(key);
            let shared = self.clone();
            return self.tasks.spawn(async move {
                let holder = claims::Client::V4(client.id().0);
                let _ = shared.take_from_later(Origin::LOCAL, vec![holder], key.1).await;
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
            // What it does not know it may not have learnt yet, since the answer to its OPEN is under way.
            Ok(status) => {
                tracing::debug!(
                    client = client.id().0,
                    status = status.map(|status| status.0),
                    "a client does not take the recall of a delegation"
                );
                self.delegations.unheard(key);
            }
            Err(why) => {
                tracing::debug!(client = client.id().0, %why, "a delegation could not be called back");
                self.delegations.unheard(key);
            }
        }
    }

    /// Calls those again who were not reached, and takes away what was not returned in time. Sleeps.
    pub(in crate::nfs4) fn sweep_delegations(self: &Arc<Self>) {
        let now = self.now();
        for (client, ids) in self.delegations.due(now, self.limits().lease) {
            let names: Vec<_> = ids.iter().map(|id| id.other).collect();
            // NFS4-8881-10.4.6-a: on the disk before anybody else gets the file. If that fails it is tried again.
            let Ok(released) = self.state.revoke(&client, &names, Why::NotReturned) else { continue };
            if !released.is_empty() {
                let others = self.delegations.has_lost(client.id(), released.len(), now);
                tracing::warn!(
                    client = client.id().0,
                    delegations = released.len(),
                    "a client has not returned delegations that others waited for: it has lost them"
                );
                // All at once, so that whoever wants another of its files does not wait for a lease of his own.
                others.into_iter().for_each(|key| self.recall_delegation(key));
            }
            self.release(Origin::LOCAL, released);
        }
        self.delegations.again().into_iter().for_each(|client| self.call_for(client));
    }
}
