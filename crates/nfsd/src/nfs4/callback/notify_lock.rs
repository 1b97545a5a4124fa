//! CB_NOTIFY_LOCK: notifies a client that a lock for which it waits may be free (RFC 8881 sections 9.6, 20.11).
//!
//! It is a hint and grants nothing: the client asks again, as it would without it. If the client does not reply, the
//! server does not repeat the notice. At most as many notices are under way to a client as it may wait for locks;
//! further notices are left out.

use super::super::{
    compound::Compound,
    service::{Pin, Shared},
    state::clients::Client,
};
use crate::{claims::Wake, opened::Opened};
use rpcrdma_nfs::v4::{
    Handle, Owner, OwnerName, Status,
    callback::{Args, CbNotifyLock},
    ops::LockKind,
};
use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

/// The most notices under way to a client: it may wait for as many locks.
pub(crate) const MAX_LOCK_NOTICES: usize = crate::claims::MAX_WAITING_LOCKS;

/// A client that waits for a lock. It keeps neither the server nor the client alive.
struct NotifyLock {
    shared: Weak<Shared>,
    client: Weak<Client<Pin>>,
    file: Handle,
    owner: OwnerName,
}

/// How many notices are under way to a client.
#[derive(Debug, Default)]
pub(crate) struct Notices(AtomicUsize);

#[cfg(test)]
impl Notices {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A notice under way.
struct Notice(Arc<Client<Pin>>);

impl Notice {
    fn begin(client: &Arc<Client<Pin>>) -> Option<Self> {
        let more = |count: usize| (count < MAX_LOCK_NOTICES).then_some(count + 1);
        client.notices.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(client.clone()))
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        self.0.notices.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Compound {
    /// What to notify when a lock may be free: the client, if it waits for the lock and the server can call it.
    pub(in crate::nfs4) fn lock_notice(
        &self,
        kind: LockKind,
        file: &Opened,
        owner: &OwnerName,
    ) -> Result<Option<Arc<dyn Wake>>, Status> {
        let client = self.client()?;
        let waits = matches!(kind, LockKind::ReadWaiting | LockKind::WriteWaiting);
        // Minor version 0 has no such call.
        if !waits || client.is_zero() || !self.shared.can_call(&client) {
            return Ok(None);
        }
        let (shared, client) = (Arc::downgrade(&self.shared), Arc::downgrade(&client));
        // Copied: the name is part of a whole message, which would stay in memory.
        let owner = OwnerName(bytes::Bytes::copy_from_slice(&owner.0));
        Ok(Some(Arc::new(NotifyLock { shared, client, file: self.handle(file)?, owner })))
    }
}

impl Wake for NotifyLock {
    // NFS4-8881-20.11-b
    fn wake(&self) {
        let (Some(shared), Some(client)) = (self.shared.upgrade(), self.client.upgrade()) else { return };
        let Some(notice) = Notice::begin(&client) else { return };
        let owner = Owner { client: client.id(), name: self.owner.clone() };
        let ops = vec![Args::NotifyLock(CbNotifyLock { file: self.file.clone(), owner })];
        let call = shared.call_back(&client, ops, Vec::new());
        shared.tasks.spawn(async move {
            // It was a hint: a client that does not get it asks again all the same.
            let _ = call.await;
            drop(notice);
        });
    }
}
