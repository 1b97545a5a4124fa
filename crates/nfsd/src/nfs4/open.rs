//! Opening and closing: OPEN, OPEN_DOWNGRADE, CLOSE (RFC 8881 sections 18.2, 18.16, 18.18).
//!
//! The checks of an OPEN come in this order: whether the client may have state now, the file system (which may make the
//! file), the table of claims, the file system again if the file is truncated, and how much the client may hold. If a
//! later step fails, the guards of the earlier steps undo them; a file that was made stays.

use super::{
    compound::Compound,
    conflicts::MAX_TAKEN,
    delegate::{Done, Wish},
    security::{is_by_name, taken},
    service::Shared,
    state::{
        grace::Recorded,
        owners::{Opening, Share},
    },
    tell::{failure, status},
};
use crate::{
    Access, Caller, OpenFile, Via,
    claims::{self, FileKey, Holder, HostLocks, ShareRefused},
    opened::Opened,
};
use rpcrdma_nfs::{
    attr::NewAttributes,
    v4::{
        Bitmap, ChangeInfo, Owner, StateId, Status,
        ops::{self, Answer, Claim, Delegation, OpenHow, open_result, share},
    },
};
use std::{fmt, sync::Arc};

/// How often an OPEN begins anew because the file of its name was removed meanwhile. After that it fails with STALE, as
/// for a name whose file can never be opened.
const MAX_REMOVED: usize = 4;

/// What an open keeps alive.
pub(crate) struct Pinned {
    pub(super) open: Arc<dyn OpenFile>,
    /// The file with its owner, for the host's locks.
    file: Opened,
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("file", &self.open.file()).finish_non_exhaustive()
    }
}

impl Pinned {
    pub(super) fn new(open: Arc<dyn OpenFile>, file: Opened) -> Self {
        Self { open, file }
    }

    /// Whether this user has opened it.
    pub(super) fn is_of(&self, caller: &Caller) -> bool {
        self.file.caller.uid == caller.uid
    }

    /// The host's locks on the file. May sleep.
    pub(super) fn host_locks(&self) -> Option<Arc<dyn HostLocks>> {
        self.file.file_system.host_locks(&self.open)
    }
}

/// The file system's access for an open.
fn access_of(share: Share) -> Access {
    match share.access() {
        1 => Access::Read,
        2 => Access::Write,
        _ => Access::Both,
    }
}

/// The file of an OPEN, and what the OPEN does with it besides.
pub(super) struct Target {
    pub(super) file: Opened,
    pub(super) directory: ChangeInfo,
    /// Attributes that the OPEN sets.
    pub(super) set: Bitmap,
    /// The size that it sets.
    pub(super) size: Option<u64>,
    /// This call has made the file, or the client had it open before the server started: the mode does not bind the
    /// owner.
    pub(super) is_owners: bool,
}

impl Target {
    /// An existing file; its directory does not change.
    fn of(file: Opened) -> Self {
        let directory = ChangeInfo { atomic: false, before: 0, after: 0 };
        Self { file, directory, set: Bitmap::EMPTY, size: None, is_owners: false }
    }
}

impl Compound {
    pub(super) async fn open(&mut self, args: ops::Open) -> Answer<ops::OpenOk> {
        let client = self.client()?;
        let current = self.file()?;
        let (share, wish) = Wish::of(args.access, args.deny, self.minor)?;
        let is_named = is_by_name(&args.claim);
        // NFS4-8881-2.6.3-b: a file has the security of its directory, because another export can only begin at a
        // directory.
        let current = if is_named { taken(current)? } else { current };
        if !is_named && matches!(args.how, OpenHow::Create(_)) {
            return Err(Status::INVAL);
        }
        let recovery = &self.shared.state.recovery;
        let is_reclaim = matches!(args.claim, Claim::Previous(_));
        let recorded = match &args.claim {
            // NFS4-7530-9.6.2-b
            Claim::Previous(_) => recovery.reclaim(&client, self.shared.now())?,
            // NFS4-8881-10.2.1-b: also while other clients reclaim. Later code checks that the client has the
            // delegation.
            Claim::DelegateCurrent(_) | Claim::DelegateCurrentHandle(_) => self.recorded().await?,
            Claim::DelegatePrevious(_) | Claim::DelegatePreviousHandle => return Err(Status::NOTSUPP),
            Claim::Null(_) | Claim::Handle => {
                recovery.fresh(&client)?;
                self.recorded().await?
            }
        };
        let (claim, wish) = match args.claim {
            Claim::DelegateCurrent(claim) => (Claim::Null(claim.name), (Wish::No, Some(claim.delegation))),
            Claim::DelegateCurrentHandle(delegation) => (Claim::Handle, (Wish::No, Some(delegation))),
            Claim::Previous(kind) => (Claim::Previous(kind), (Wish::again(kind), None)),
            claim => (claim, (wish, None)),
        };
        let (wish, delegation) = wish;
        let mut removed = 0;
        let (target, (state, delegation)) = loop {
            let target = self.find_target(&claim, args.how.clone(), &current).await?;
            if let Some(delegation) = delegation {
                self.check_claim(delegation, &target.file, share)?;
            }
            match self.open_target(&target, args.owner.clone(), (share, wish.clone()), recorded.clone()).await {
                // The file was removed after the look-up: the name now belongs to another file, or to none.
                Err(Status::STALE) if is_named && removed < MAX_REMOVED => removed += 1,
                opened => break (target, opened?),
            }
        };
        if is_reclaim {
            recovery.reclaimed(&client);
        }
        let Target { file, directory, set, .. } = target;
        // Linux itself decides on locks of a file that it has a write delegation for. If one of its processes waits for
        // another's lock, the flag makes it wait 30 s for a call of the server, which knows nothing of these locks;
        // without the flag it tries again after a second.
        let locks_alone = || self.shared.delegations.locks_alone((client.id(), Self::key(&file)));
        // NFS4-8881-20.11-a
        let tells = self.minor > 0 && self.shared.can_call(&client) && !locks_alone();
        let may_notify = if tells { open_result::MAY_NOTIFY_LOCK } else { 0 };
        self.go_to(file);
        self.set_state(state);
        let flags = open_result::LOCKTYPE_POSIX | may_notify;
        Ok(ops::OpenOk { state, directory, flags, set, delegation })
    }

    /// The file of an OPEN. Makes it, if the client wants that.
    async fn find_target(&self, claim: &Claim, how: OpenHow, current: &Opened) -> Result<Target, Status> {
        match (claim, how) {
            (Claim::Null(name), OpenHow::Create(how)) => self.create_for_open(current, name.clone(), how).await,
            (Claim::Null(name), OpenHow::NoCreate) => {
                let file = self.find(current, name.clone()).await?;
                let directory = self.unchanged(current).await?;
                Ok(Target { directory, ..Target::of(file) })
            }
            (Claim::Previous(_), _) => Ok(Target { is_owners: true, ..Target::of(current.clone()) }),
            // By the mode: Linux's client opens by handle a file that it has looked up before, and leaves the check to
            // the server.
            _ => Ok(Target::of(current.clone())),
        }
    }

    /// Makes sure that the client is on record.
    async fn recorded(&self) -> Result<Recorded, Status> {
        let client = self.client()?;
        match self.shared.state.recovery.recorded(&client) {
            Some(recorded) => Ok(recorded),
            None => self.shared.on_worker(self.origin(), move |shared| shared.state.recovery.record(&client)).await,
        }
    }

    /// The change information of a directory in which nothing was made.
    pub(super) async fn unchanged(&self, directory: &Opened) -> Result<ChangeInfo, Status> {
        let change = directory.attributes().await.map_err(status)?.change;
        Ok(ChangeInfo { atomic: true, before: change, after: change })
    }

    // NFS4-8881-18.16-f
    async fn open_target(
        &self,
        target: &Target,
        owner: Owner,
        (share, wish): (Share, Wish),
        recorded: Recorded,
    ) -> Result<(StateId, Delegation), Status> {
        let client = self.client()?;
        let file = &target.file;
        let access = access_of(share);
        if file.read_only && (access.writes() || target.size.is_some()) {
            return Err(Status::ROFS);
        }
        // Before the file system opens the file, which would make others wait on the host; and until the table knows
        // the open.
        let denies_reading = share.deny() & 1 != 0;
        let changes = access.writes() || denies_reading || target.size.is_some();
        let kind = if changes { claims::Kind::Write } else { claims::Kind::Read };
        let using = self.using(file, kind).await?;
        let open = match target.is_owners {
            // NFS4-8881-18.16-g
            true => file.file_system.open_as_owner(file.caller.clone(), file.file, access).await,
            false => file.file_system.open(file.caller.clone(), file.file, access).await,
        };
        let open = open.map_err(failure)?;
        let (key, holder) = (Self::key(file), Shared::holder(client.id(), &owner.name));
        let guard = self.reserve(key, &holder, share).await?;
        // A truncation is not an open: its use lasts until it is done.
        let using = target.size.map(|_| using);
        if let Some(size) = target.size {
            // NFS4-8881-18.16-d: even if the file is opened for reading alone.
            let may = self.shared.may(self.origin(), key, claims::Access::WRITE, Some(&holder)).await;
            may.map_err(|in_the_way| in_the_way.status(Status::SHARE_DENIED))?;
            let via = match access.writes() {
                true => Via::open(file.caller.clone(), open.clone()),
                false => Via::caller(file.caller.clone(), file.file),
            };
            let new = NewAttributes { size: Some(size), ..NewAttributes::default() };
            file.file_system.set_attributes(via, new, None).await.map_err(failure)?;
        }
        drop(using);
        let pin = Arc::new(Pinned::new(open.clone(), file.clone()));
        let opening = Opening { owner: owner.name, file: key, share, pin };
        let opened = client.held.open(&recorded, opening)?;
        self.shared.reservations.keep(&client, opened.id.other, guard);
        let done = Done { file, share, open, recorded };
        Ok((opened.id, Box::pin(self.delegation(wish, done)).await))
    }

    /// Reserves an open's access and denials in the table of claims.
    async fn reserve(&self, key: FileKey, holder: &Holder, share: Share) -> Result<claims::Share, Status> {
        let access = claims::Access::from_bits(share.access().into()).ok_or(Status::INVAL)?;
        let deny = claims::Deny::from_bits(share.deny().into()).ok_or(Status::INVAL)?;
        for _ in 0..MAX_TAKEN {
            match self.shared.claims.share(key, holder, access, deny) {
                Ok(guard) => return Ok(guard),
                Err(ShareRefused::TooMany(_)) => return Err(Status::DELAY),
                Err(ShareRefused::Denied(_)) => {
                    // All at once: a client asks again only a few times.
                    // NFS4-COURTESY-a
                    let holders = self.shared.claims.in_the_way_of_share(key, access, deny);
                    let taken = self.shared.take_from_later(self.origin(), holders, key).await;
                    taken.map_err(|in_the_way| in_the_way.status(Status::SHARE_DENIED))?;
                }
            }
        }
        Err(Status::DELAY)
    }

    pub(super) fn open_downgrade(&mut self, args: ops::OpenDowngrade) -> Answer<ops::OpenDowngradeOk> {
        let (file, client) = (self.file()?, self.client()?);
        let id = self.state_of(args.state, true)?;
        let wishes = if self.minor == 0 { 0 } else { share::WANT_MASK };
        let to = Share::new(args.access & !wishes, args.deny)?;
        let (state, dropped) = client.held.downgrade(id, Self::key(&file), to)?;
        self.shared.reservations.downgraded(&client, Self::key(&file), state.other);
        self.shared.put_away(self.origin(), dropped);
        self.set_state(state);
        Ok(ops::OpenDowngradeOk { state })
    }

    /// CLOSE. Locks of the open end with it, as with Linux's server.
    pub(super) fn close(&mut self, args: ops::Close) -> Answer<ops::CloseOk> {
        let (file, client) = (self.file()?, self.client()?);
        let id = self.state_of(args.state, true)?;
        let released = client.held.close(id, Self::key(&file))?;
        self.shared.release(self.origin(), released);
        self.set_state(StateId::INVALID);
        Ok(ops::CloseOk { state: StateId::INVALID })
    }
}
