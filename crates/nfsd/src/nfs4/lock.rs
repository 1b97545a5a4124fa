//! Byte ranges: LOCK, LOCKT, LOCKU (RFC 8881 sections 9.1 to 9.6, 18.10 to 18.12).
//!
//! The table of claims, and through it the host, has the locked ranges; the client's state has the stateids of
//! lock-owners. LOCK asks the table first, and gives the range back if the open has ended meanwhile; LOCKU asks the
//! table, too, and then records what is left. A worker does everything that reaches the host.

use super::{
    compound::Compound,
    conflicts::{InTheWay, MAX_TAKEN},
    open::Pinned,
    service::{Pin, Shared},
    state::{checked::Wanted, owners::LockBy},
    tell::failure,
};
use crate::{
    Access, Origin,
    claims::{self, Client, Denied, FileKey, Holder, Kind, LockRefused, LockRequest, LockedBy, Range, Wake},
    opened::Opened,
};
use rpcrdma_nfs::{
    attr::FileType,
    v4::{
        ClientId, MAX_OPAQUE_BYTES, Owner, OwnerName, StateId, Status,
        ops::{self, Answer, LockDenied, LockFailure, LockKind, Locker},
    },
};
use rustix::io::Errno;
use std::sync::Arc;

/// A range that an owner wants.
struct Wish {
    file: FileKey,
    holder: Holder,
    range: Range,
    kind: Kind,
    /// The origin in whose turn the work is done.
    origin: Origin,
    /// The open through which the host's locks are taken.
    pin: Option<Pin>,
    /// What to notify when the range may be free.
    wake: Option<Arc<dyn Wake>>,
}

/// What the table is asked for.
#[derive(Clone, Copy)]
enum Ask {
    Lock,
    Test,
}

fn kind_of(kind: LockKind) -> Kind {
    if kind.excludes() { Kind::Write } else { Kind::Read }
}

fn range_of(offset: u64, length: u64) -> Result<Range, Status> {
    // NFS4-8881-18.10.3-a, NFS4-8881-18.10.3-b
    Range::new(offset, length).map_err(|_| Status::INVAL)
}

/// What a client learns of the holder of a conflicting lock.
// NFS4-8881-18.10.3-c
fn denied(denied: Denied) -> LockFailure {
    let owner = match &denied.by {
        LockedBy::Holder(holder) => {
            let client = match holder.client() {
                Client::V4(client) | Client::Nlm(client) => ClientId(client),
            };
            // The owner bytes of a host begin with a process, and may be longer than names may be here.
            let name = holder.owner().get(..MAX_OPAQUE_BYTES).unwrap_or(holder.owner());
            Owner { client, name: OwnerName(bytes::Bytes::copy_from_slice(name)) }
        }
        // No client has this number.
        LockedBy::Host => Owner { client: ClientId(0), name: OwnerName::from("host") },
    };
    let kind = match denied.kind {
        Kind::Read => LockKind::Read,
        Kind::Write => LockKind::Write,
    };
    LockFailure::Told(LockDenied { offset: denied.range.first(), length: denied.range.length(), kind, owner })
}

fn refused(refused: LockRefused) -> LockFailure {
    match refused {
        LockRefused::Denied(by) => denied(by),
        LockRefused::TooMany(_) => Status::DELAY.into(),
        LockRefused::Host(error) => LockFailure::Plain(match Errno::from_io_error(&error) {
            Some(Errno::BADF) => Status::OPENMODE,
            Some(Errno::NOLCK | Errno::NOMEM) => Status::DELAY,
            _ => Status::IO,
        }),
    }
}

impl Shared {
    /// Asks the table. If a client whose lease is over is in the way, takes its claims on the file and asks again.
    /// Sleeps.
    fn ask(&self, wish: &Wish, ask: Ask) -> Result<(), LockFailure> {
        let Wish { origin, file, holder, range, kind, pin, wake } = wish;
        let host = pin.as_ref().filter(|_| self.host_locks).and_then(|pin| pin.host_locks());
        let (host, wake) = (host.as_ref(), wake.clone());
        let request = LockRequest { file: *file, holder, range: *range, kind: *kind, host, wake };
        for _ in 0..MAX_TAKEN {
            let outcome = match ask {
                Ask::Lock => self.claims.lock(&request),
                Ask::Test => self.claims.test(&request),
            };
            let Err(failed) = outcome else { return Ok(()) };
            let LockRefused::Denied(Denied { by: LockedBy::Holder(other), .. }) = &failed else {
                return Err(refused(failed));
            };
            match self.take_from(*origin, &[other.client()], *file) {
                Ok(()) => {}
                Err(InTheWay::Holder) => return Err(refused(failed)),
                Err(InTheWay::Journal | InTheWay::Delegation) => return Err(Status::DELAY.into()),
            }
        }
        Err(Status::DELAY.into())
    }
}

impl Compound {
    pub(super) async fn lock(&mut self, args: ops::Lock) -> Answer<ops::LockOk, LockFailure> {
        let (file, client) = (self.file()?, self.client()?);
        let range = range_of(args.offset, args.length)?;
        let (key, kind) = (Self::key(&file), kind_of(args.kind));
        let (by, owner, checked) = match args.locker {
            Locker::New(new) => {
                let open = self.state_of(new.open_state, false)?;
                let checked = client.held.check(open, key, Wanted::Open)?;
                // From here on with any sequence number: only the open itself matters.
                let open = StateId { sequence: 0, ..open };
                (LockBy::New { open, owner: new.owner.name.clone() }, new.owner.name, checked)
            }
            Locker::Known(known) => {
                let state = self.state_of(known.state, false)?;
                let checked = client.held.check(state, key, Wanted::Lock)?;
                let owner = checked.owner.clone().ok_or(Status::BAD_STATEID)?;
                (LockBy::Known(StateId { sequence: 0, ..state }), owner, checked)
            }
        };
        let needed = if kind == Kind::Write { claims::Access::WRITE } else { claims::Access::READ };
        // NFS4-8881-18.10-a
        let pin = checked.pin(needed.bits() as u8).cloned().ok_or(Status::OPENMODE)?;
        if args.reclaim {
            self.shared.state.recovery.reclaim(&client, self.shared.now())?;
        } else {
            self.shared.state.recovery.fresh(&client)?;
        }
        let holder = Shared::holder(client.id(), &owner);
        let wake = self.lock_notice(args.kind, &file, &owner)?;
        let wish = Wish { origin: self.origin(), file: key, holder, range, kind, pin: Some(pin), wake };
        let locked = self.shared.on_worker(self.origin(), move |shared| {
            let asked = shared.ask(&wish, Ask::Lock);
            Ok(asked.map(|()| match client.held.locked(by, key) {
                Ok(state) => Ok(state),
                Err(status) => {
                    // The open has ended meanwhile: no other code would give the range back.
                    if shared.claims.unlock(key, &wish.holder, range).is_err() {
                        shared.claims.unlock_all(key, &wish.holder);
                    }
                    Err(status)
                }
            }))
        });
        let state = locked.await???;
        self.set_state(state);
        Ok(ops::LockOk { state })
    }

    // NFS4-8881-18.11.3-a
    pub(super) async fn test_lock(&mut self, args: ops::LockT) -> Answer<(), LockFailure> {
        let file = self.file()?;
        let client = if self.minor == 0 { self.client_of_id(args.owner.client)? } else { self.client()? };
        let range = range_of(args.offset, args.length)?;
        match self.file_type(&file).await? {
            FileType::Regular => {}
            FileType::Directory => return Err(Status::ISDIR.into()),
            FileType::Symlink => return Err(Status::SYMLINK.into()),
            _ => return Err(Status::WRONG_TYPE.into()),
        }
        if self.shared.state.recovery.is_grace() {
            return Err(Status::GRACE.into());
        }
        // If a client has a write delegation, it locks the file without calling the server.
        let _using = self.using(&file, Kind::Read).await?;
        let holder = Shared::holder(client.id(), &args.owner.name);
        let pin = self.pin_to_test(&file).await;
        let (origin, file, kind) = (self.origin(), Self::key(&file), kind_of(args.kind));
        let wish = Wish { origin, file, holder, range, kind, pin, wake: None };
        let tested = self.shared.on_worker(self.origin(), move |shared| Ok(shared.ask(&wish, Ask::Test)));
        tested.await?
    }

    /// The open for asking the host, if the caller may read the file.
    async fn pin_to_test(&self, file: &Opened) -> Option<Pin> {
        if !self.shared.host_locks {
            return None;
        }
        let open = file.file_system.open(file.caller.clone(), file.file, Access::Read).await.map_err(failure).ok()?;
        Some(Arc::new(Pinned::new(open, file.clone())))
    }

    pub(super) async fn unlock(&mut self, args: ops::LockU) -> Answer<ops::LockUOk> {
        let (file, client) = (self.file()?, self.client()?);
        let range = range_of(args.offset, args.length)?;
        let state = self.state_of(args.state, false)?;
        let key = Self::key(&file);
        let checked = client.held.check(state, key, Wanted::Lock)?;
        let owner = checked.owner.ok_or(Status::BAD_STATEID)?;
        let holder = Shared::holder(client.id(), &owner);
        let unlocked = self.shared.on_worker(self.origin(), move |shared| {
            if let Err(error) = shared.claims.unlock(key, &holder, range) {
                return Ok(Err(error));
            }
            let still_holds = shared.claims.has_locks(key, &holder);
            client.held.unlocked(StateId { sequence: 0, ..state }, key, still_holds).map(Ok)
        });
        let state = match unlocked.await? {
            Ok(state) => state,
            Err(LockRefused::Host(_)) => return Err(Status::IO),
            // An unlock in the middle of a range makes two ranges of one.
            Err(LockRefused::TooMany(_) | LockRefused::Denied(_)) => return Err(Status::DELAY),
        };
        self.set_state(state);
        Ok(ops::LockUOk { state })
    }
}
