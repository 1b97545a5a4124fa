//! The host's locks for the ranges that protocols have locked.
//!
//! One [`HostLocks`] for each file holds the union of all owners' ranges on the host, which sees a single owner: so
//! clients never exclude each other there, and clients exclude programs of the host that use `fcntl` or `lockf` as they
//! exclude each other. A lock costs one system call, and an unlock one for each part that no other owner has. The table
//! asks the host first: if the host refuses a lock, neither has it; if the host does not unlock a range, both keep it.
//!
//! The end of a client cannot fail: if the host does not unlock a range then, the range is owed, and every later
//! operation on the file first asks for it again. With the last range the [`HostLocks`] themselves are dropped.

use super::{
    holder::Holder,
    range::{Kind, Range},
    ranges::Ranges,
};
use std::{io, sync::Arc};

/// A lock of one of the host's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLock {
    /// What is locked.
    pub range: Range,
    /// How.
    pub kind: Kind,
}

/// Why the host does not lock or unlock.
#[derive(Debug, thiserror::Error)]
pub enum HostDenied {
    /// A program of the host has a lock that excludes this one.
    #[error("locked on the host")]
    Conflict(HostLock),
    /// The host cannot do it: no memory for locks, or a descriptor that does not allow this kind.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// Locks on one file of the host, all of one owner (one open file description). Dropping them unlocks all that is left.
///
/// No call waits for a lock. Calls come one at a time.
pub trait HostLocks: Send + Sync {
    /// Locks a range in this kind, in place of what this owner has there, or unlocks it. Changes all of the range or
    /// nothing.
    ///
    /// # Errors
    /// If a program of the host has a lock that excludes this one, or the host cannot.
    fn set(&self, range: Range, kind: Option<Kind>) -> Result<(), HostDenied>;

    /// The lock of a program that conflicts with this range and kind.
    ///
    /// # Errors
    /// If the host cannot answer.
    fn test(&self, range: Range, kind: Kind) -> io::Result<Option<HostLock>>;

    /// Whether ranges can be locked for writing, because the file is open for writing. For reading they always can.
    fn can_write(&self) -> bool {
        true
    }
}

/// The host's side of one file.
#[derive(Default)]
pub(super) struct Mirror {
    locks: Option<Arc<dyn HostLocks>>,
    /// Owed ranges: no owner has them any more, and the host still holds them.
    owed: Vec<Range>,
}

impl Mirror {
    /// Whether the host knows of this file's ranges.
    pub(super) fn is_there(&self) -> bool {
        self.locks.is_some()
    }

    /// Makes sure that the host knows all ranges and can lock in this kind, if necessary through `offered`, which then
    /// takes all ranges before the former locks end. Former locks are only replaced if they cannot be for writing: so
    /// all of them are for reading, and do not exclude those of `offered`.
    pub(super) fn adopt(
        &mut self,
        offered: Option<&Arc<dyn HostLocks>>,
        kind: Kind,
        ranges: &Ranges,
    ) -> Result<(), HostDenied> {
        self.pay(ranges);
        let Some(offered) = offered else { return Ok(()) };
        let serves = |locks: &Arc<dyn HostLocks>| kind == Kind::Read || locks.can_write();
        if self.locks.as_ref().is_some_and(|locks| serves(locks) || !serves(offered)) {
            return Ok(());
        }
        for (range, kind) in ranges.all() {
            if let Err(error) = offered.set(range, Some(kind)) {
                // `offered` may outlive this call, and must not keep the locks that it has taken.
                let _ = offered.set(Range::ALL, None);
                return Err(error);
            }
        }
        if let Some(before) = self.locks.replace(offered.clone()) {
            let _ = before.set(Range::ALL, None);
        }
        self.owed.clear();
        Ok(())
    }

    /// Locks a range, which no other owner excludes.
    pub(super) fn lock(&self, range: Range, kind: Kind) -> Result<(), HostDenied> {
        self.locks.as_ref().map_or(Ok(()), |locks| locks.set(range, Some(kind)))
    }

    /// The conflicting lock of a program of the host.
    // NFS4-HOST-b
    pub(super) fn test(
        &self,
        offered: Option<&Arc<dyn HostLocks>>,
        range: Range,
        kind: Kind,
    ) -> io::Result<Option<HostLock>> {
        self.locks.as_ref().or(offered).map_or(Ok(None), |locks| locks.test(range, kind))
    }

    /// Unlocks the parts of a range that this owner has and no other. On failure everything before the returned byte is
    /// unlocked.
    pub(super) fn unlock(&mut self, ranges: &Ranges, holder: &Holder, range: Range) -> Result<(), (u64, HostDenied)> {
        self.pay(ranges);
        let Some(locks) = &self.locks else { return Ok(()) };
        for part in parts(ranges, holder, range) {
            locks.set(part, None).map_err(|error| (part.first(), error))?;
        }
        Ok(())
    }

    /// The same, whatever the host answers: the ranges that it keeps are owed.
    pub(super) fn give_up(&mut self, ranges: &Ranges, holder: &Holder, range: Range) {
        let Some(locks) = &self.locks else { return };
        let kept = parts(ranges, holder, range).into_iter().filter(|part| locks.set(*part, None).is_err());
        self.owed.extend(kept);
    }

    /// Asks again for the owed ranges, except those that an owner has locked since.
    fn pay(&mut self, ranges: &Ranges) {
        let Some(locks) = &self.locks else { return };
        let owed = std::mem::take(&mut self.owed);
        let parts = owed.into_iter().flat_map(|owed| ranges.free(owed));
        self.owed = parts.filter(|part| locks.set(*part, None).is_err()).collect();
    }

    /// Gives everything back: no owner has any range.
    pub(super) fn close(&mut self) {
        if let Some(locks) = self.locks.take() {
            // An open of the file may keep this; if none does, dropping it unlocks the rest.
            let _ = locks.set(Range::ALL, None);
        }
        self.owed.clear();
    }
}

/// The ranges that the host has to unlock when an owner unlocks.
fn parts(ranges: &Ranges, holder: &Holder, range: Range) -> Vec<Range> {
    // One call for any number of ranges, if no other owner has any. NFS4-HOST-a
    if ranges.is_only(holder) { vec![range] } else { ranges.alone(holder, range) }
}
