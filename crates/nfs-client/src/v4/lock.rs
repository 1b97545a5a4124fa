//! Byte-range locks: LOCK, LOCKT, LOCKU. An open file has one owner of locks; two opens of a file exclude each other.

use super::{
    Conflict, Error, Inner, Nfs4, Opened,
    compound::{Plan, put},
    finish::{Caller, Finishing},
    held::Held,
    ranges::{Range, Ranges},
    reply::{Reply, done},
    standing::Ground,
};
use futures_util::future::select;
use rpcrdma_nfs::v4::{
    Args, Op, Outcome, Owner, Status,
    ops::{self, LockDenied, LockFailure, LockKind},
};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How long to wait before a lock is tried again, if the server does not announce that it is free.
const FIRST_TRY: Duration = Duration::from_secs(1);
/// The pause doubles up to this.
const LAST_TRY: Duration = Duration::from_secs(15);

impl Nfs4 {
    /// LOCK: locks a range; a `length` with all bits set goes to the end of the file, wherever the end is.
    ///
    /// # Errors
    /// [`Error::Locked`] if another owner has locked a part of it. For other errors here and below see [`Error`].
    pub async fn lock(&self, opened: &Opened, kind: LockKind, offset: u64, length: u64) -> Result<(), Error> {
        self.inner.lock(&opened.held, kind, offset, length).await
    }

    /// LOCK: the same, but waits until the lock is free, however long that takes. The server announces it, or the
    /// client tries from time to time.
    pub async fn lock_when_free(&self, opened: &Opened, kind: LockKind, offset: u64, length: u64) -> Result<(), Error> {
        let (held, clock) = (&opened.held, &self.inner.env.clock);
        let waiting = match kind {
            LockKind::Read | LockKind::ReadWaiting => LockKind::ReadWaiting,
            LockKind::Write | LockKind::WriteWaiting => LockKind::WriteWaiting,
        };
        let free = self.inner.awaited.lock(&held.file, &held.locker);
        let mut pause = FIRST_TRY;
        loop {
            match self.inner.lock(held, waiting, offset, length).await {
                Err(Error::Locked { .. }) => {}
                locked => return locked,
            }
            let told = pin!(free.notified());
            select(told, clock.sleep_until(clock.now() + pause)).await;
            pause = (pause * 2).min(LAST_TRY);
        }
    }

    /// LOCKT: the lock that conflicts with such a lock, if there is one.
    pub async fn test_lock(
        &self,
        opened: &Opened,
        kind: LockKind,
        offset: u64,
        length: u64,
    ) -> Result<Option<Conflict>, Error> {
        let held = &opened.held;
        let mut build = |ground: &Ground| {
            let owner = Owner { client: ground.client, name: held.locker.clone() };
            Ok(vec![put(&held.file), Args::LockT(ops::LockT { kind, offset, length, owner })])
        };
        let mut reply = self.inner.perform(Plan::looks(Op::LockT), None, &mut build).await?;
        match reply.next_of(Op::LockT)? {
            Outcome::LockT(Ok(())) => Ok(None),
            Outcome::LockT(Err(LockFailure::Told(denied))) => Ok(Some(conflict(&denied))),
            _ => Err(reply.error()),
        }
    }

    /// Whether an open and its locks are held, as far as the client knows. Makes no call.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn is_held(&self, opened: &Opened) -> Result<(), Error> {
        self.inner.still_held(Op::Lock, &opened.held)
    }

    /// LOCKU: unlocks a range.
    pub async fn unlock(&self, opened: &Opened, offset: u64, length: u64) -> Result<(), Error> {
        let Some(range) = Range::new(LockKind::Write, offset, length) else {
            return Err(self.inner.refused(Op::LockU, Status::INVAL));
        };
        self.inner.unlock(&opened.held, range).await
    }
}

/// The kind to remember for a lock, without whether a caller waited for it.
fn remembered(kind: LockKind) -> LockKind {
    match kind {
        LockKind::Read | LockKind::ReadWaiting => LockKind::Read,
        LockKind::Write | LockKind::WriteWaiting => LockKind::Write,
    }
}

/// A conflicting lock, from the server's reply.
fn conflict(denied: &LockDenied) -> Conflict {
    let LockDenied { offset, length, kind, ref owner } = *denied;
    Conflict { offset, length, kind, owner: owner.name.clone() }
}

impl Inner {
    /// LOCK. If this is dropped while the call is under way, the driver gives back the lock.
    async fn lock(self: &Arc<Self>, held: &Arc<Held>, kind: LockKind, offset: u64, length: u64) -> Result<(), Error> {
        let Some(range) = Range::new(remembered(kind), offset, length) else {
            return Err(self.refused(Op::Lock, Status::INVAL));
        };
        let (inner, held) = (self.clone(), held.clone());
        Finishing::new(&self.duties, |caller| async move {
            let _turn = held.owner.turn.lock().await;
            let before = held.ranges();
            inner.lock_in_turn(&held, kind, range, Some(&caller)).await?;
            if caller.has_left() {
                inner.as_before(&held, range, &before).await;
            }
            Ok(())
        })
        .await
    }

    /// The same for a caller that has the owner's turn.
    async fn lock_in_turn(
        &self,
        held: &Arc<Held>,
        kind: LockKind,
        range: Range,
        caller: Option<&Caller>,
    ) -> Result<(), Error> {
        let by_open = AtomicBool::new(false);
        let mut is_tried = false;
        let mut build = |ground: &Ground| {
            if caller.is_some_and(Caller::has_left) && !is_tried {
                return Err(Error::Unsettled { operation: Op::Lock, times: 0 });
            }
            is_tried = true;
            self.still_held(Op::Lock, held)?;
            let (locker, first) = held.locker(ground);
            by_open.store(first, Ordering::Relaxed);
            let lock = ops::Lock { kind, reclaim: false, offset: range.offset(), length: range.length(), locker };
            Ok(vec![put(&held.file), Args::Lock(Box::new(lock))])
        };
        let mut seen = |reply: &Reply| held.counted(reply, Op::Lock, by_open.load(Ordering::Relaxed));
        let plan = Plan::changes(Op::Lock);
        let mut reply = self.perform_with(plan, Some(held), None, &mut build, &mut seen).await?;
        match reply.next_of(Op::Lock)? {
            Outcome::Lock(Ok(locked)) if locked.state.is_special() => {
                Err(Error::nonsense(Op::Lock, "named the lock by a stateid that stands for no lock"))
            }
            Outcome::Lock(Ok(locked)) => {
                held.locked_again(locked.state);
                held.add(range);
                Ok(())
            }
            Outcome::Lock(Err(LockFailure::Told(denied))) => {
                Err(Error::Locked { operation: Op::Lock, denied: conflict(&denied) })
            }
            _ => Err(reply.error()),
        }
    }

    /// No caller waits for the lock any more: restores the former state of the range.
    async fn as_before(&self, held: &Arc<Held>, range: Range, before: &Ranges) {
        let (kept, gone) = before.split(range);
        for range in kept {
            if let Err(error) = self.lock_in_turn(held, range.kind, range, None).await {
                tracing::debug!(%error, "a lock whose caller has gone could not be restored");
            }
        }
        for range in gone {
            if let Err(error) = self.unlock_in_turn(held, range).await {
                tracing::debug!(%error, "a lock whose caller has gone could not be given back");
            }
        }
    }

    /// LOCKU. If this is dropped while the call is under way, the driver finishes it.
    async fn unlock(self: &Arc<Self>, held: &Arc<Held>, range: Range) -> Result<(), Error> {
        let (inner, held) = (self.clone(), held.clone());
        Finishing::new(&self.duties, |_| async move {
            let _turn = held.owner.turn.lock().await;
            inner.unlock_in_turn(&held, range).await
        })
        .await
    }

    /// The same for a caller that has the owner's turn.
    async fn unlock_in_turn(&self, held: &Arc<Held>, range: Range) -> Result<(), Error> {
        if held.locked().is_empty() {
            return self.still_held(Op::LockU, held);
        }
        let has_locks = AtomicBool::new(true);
        let mut build = |ground: &Ground| {
            self.still_held(Op::LockU, held)?;
            let Some((state, sequence)) = held.unlocker(ground) else {
                has_locks.store(false, Ordering::Relaxed);
                return Ok(vec![put(&held.file)]);
            };
            let (offset, length) = (range.offset(), range.length());
            let unlock = ops::LockU { kind: range.kind, sequence, state, offset, length };
            Ok(vec![put(&held.file), Args::LockU(unlock)])
        };
        let mut seen = |reply: &Reply| has_locks.load(Ordering::Relaxed) && held.counted(reply, Op::LockU, false);
        let plan = Plan::changes(Op::LockU);
        let mut reply = self.perform_with(plan, Some(held), None, &mut build, &mut seen).await?;
        if has_locks.into_inner() {
            held.locked_again(done!(reply, LockU)?.state);
        }
        held.remove(range);
        Ok(())
    }

    /// Unlocks all that is locked, since some servers do not close a file with locks.
    pub(super) async fn unlock_all(self: &Arc<Self>, held: &Arc<Held>) -> Result<(), Error> {
        for range in held.locked() {
            match self.unlock(held, range).await {
                Ok(()) => {}
                Err(error @ Error::Call { .. }) => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "a lock could not be given up before its file is closed");
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
