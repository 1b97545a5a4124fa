//! SHARE and UNSHARE: reservations of programs that open files as DOS does.
//!
//! They are among the share reservations of version 4, and each protocol sees the other's. They deny reading and
//! writing by version 3, except to hosts at the reserving host's address: a call of version 3 does not say which
//! program reads.

use super::{
    Call, Lockd,
    hosts::{Host, Reserved},
    locks::{failed, key_of},
};
use crate::{
    Access, OpenFile,
    claims::{self, Deny, Holder, Kind, ShareRefused, Using},
    opened::Opened,
};
use rpcrdma_nfs::nlm::{Share, ShareAccess, ShareArguments, Status};
use std::sync::Arc;

/// The table's modes for a reservation. An open without access that denies something counts as an open for reading; an
/// open without access that denies nothing has no modes.
// NLM-SHARE-a
fn modes(share: &Share) -> Option<(claims::Access, Deny)> {
    let deny = Deny::from_bits(share.deny as u32)?;
    match claims::Access::from_bits(share.access as u32) {
        Some(access) => Some((access, deny)),
        None if deny == Deny::NONE => None,
        None => Some((claims::Access::READ, deny)),
    }
}

/// All that a reservation needs.
struct Asked {
    file: Opened,
    holder: Holder,
    modes: (claims::Access, Deny),
    open: Arc<dyn OpenFile>,
    _using: Using,
}

impl Lockd {
    pub(super) async fn share(self: &Arc<Self>, call: &Call, args: ShareArguments) -> Result<Status, Status> {
        let ShareArguments { share, reclaim, .. } = args;
        let file = self.open(call, &share.file)?;
        let writes = matches!(share.access, ShareAccess::Write | ShareAccess::Both);
        // NLM-RIGHTS-b
        if writes && file.read_only {
            return Err(Status::ReadOnly);
        }
        self.admit(reclaim)?;
        let Some(modes) = modes(&share) else { return Ok(Status::Granted) };
        let host = self.enter(call, &share.caller).ok_or(Status::DeniedNoLocks)?;
        let access = match share.access {
            ShareAccess::Write => Access::Write,
            ShareAccess::Both => Access::Both,
            ShareAccess::None | ShareAccess::Read => Access::Read,
        };
        let opened = file.file_system.open_as_owner(file.caller.clone(), file.file, access).await;
        let open = opened.map_err(|failure| failed(failure.fault))?;
        let kind = if writes || modes.1 != Deny::NONE { Kind::Write } else { Kind::Read };
        let using = self.server.using(&file, None, kind).await.map_err(|_| Status::Denied)?;
        let holder = Holder::new(host.client(), share.owner.as_slice());
        let asked = Asked { file, holder, modes, open, _using: using };
        self.on_worker(call.origin(), move |lockd| lockd.share_now(&host, asked)).await?
    }

    /// Reserves a file, and replaces the owner's earlier reservation of it. Sleeps.
    // NLM-SHARE-a
    fn share_now(&self, host: &Host, asked: Asked) -> Result<Status, Status> {
        let Asked { file, holder, modes: (access, deny), open, _using } = asked;
        let (key, mut held) = (key_of(&file), host.held());
        if held.is_over {
            return Err(Status::DeniedNoLocks);
        }
        let place_key = (key, holder.clone());
        if let Some(known) = held.shares.get_mut(&place_key) {
            if known.share.downgrade(access, deny).is_ok() {
                return Ok(Status::Granted);
            }
        } else if held.owners() >= self.limits.owners_of_host {
            return Err(Status::DeniedNoLocks);
        }
        // What an owner denies, the table denies to this owner, too: so its earlier reservation goes first, and comes
        // back if the new one is refused.
        let known = held.shares.remove(&place_key);
        let before = known.as_ref().and_then(|known| known.share.modes());
        let (known_open, place) = match known {
            Some(Reserved { share, _open, _place }) => {
                drop(share);
                (_open, _place)
            }
            None => (None, self.owners.take().ok_or(Status::DeniedNoLocks)?),
        };
        match self.claims().share(key, &holder, access, deny) {
            Ok(share) => {
                held.shares.insert(place_key, Reserved { share, _open: Some(open), _place: place });
                Ok(Status::Granted)
            }
            Err(refused) => {
                let again = before.and_then(|(access, deny)| self.claims().share(key, &holder, access, deny).ok());
                if let Some(share) = again {
                    held.shares.insert(place_key, Reserved { share, _open: known_open, _place: place });
                }
                Err(match refused {
                    ShareRefused::Denied(_) => Status::Denied,
                    ShareRefused::TooMany(_) => Status::DeniedNoLocks,
                })
            }
        }
    }

    pub(super) async fn unshare(self: &Arc<Self>, call: &Call, args: ShareArguments) -> Result<Status, Status> {
        let share = args.share;
        let file = self.open(call, &share.file)?;
        let Some(host) = self.hosts.find(call.client(), share.caller.as_slice()) else { return Ok(Status::Granted) };
        let holder = Holder::new(host.client(), share.owner.as_slice());
        self.on_worker(call.origin(), move |_| {
            let ended = host.held().shares.remove(&(key_of(&file), holder));
            // After the lock is released: a file without a name is freed with its last open.
            drop(ended);
            Ok(Status::Granted)
        })
        .await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::{
        nlm::{CallerName, OwnerHandle, ShareDeny},
        v3::Handle,
    };

    #[test]
    fn modes_have_the_bits_of_version_4() {
        let share = |access, deny| Share {
            caller: CallerName::default(),
            file: Handle::new(b"").unwrap(),
            owner: OwnerHandle::default(),
            deny,
            access,
        };
        let told = |access, deny| modes(&share(access, deny)).map(|(access, deny)| (access.bits(), deny.bits()));
        assert_eq!(told(ShareAccess::Both, ShareDeny::Write), Some((3, 2)));
        assert_eq!(told(ShareAccess::Read, ShareDeny::None), Some((1, 0)));
        assert_eq!(told(ShareAccess::None, ShareDeny::Read), Some((1, 1)));
        assert_eq!(told(ShareAccess::None, ShareDeny::None), None);
    }
}
