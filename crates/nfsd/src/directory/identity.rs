//! Acting as the caller.
//!
//! A server that runs as the superuser does each caller's work with the caller's user, group and groups, so that the
//! kernel checks the rights. On Linux these belong to the thread; when it changes them, it loses the superuser's
//! capabilities, and when it changes them back, it regains them. Jobs that need this run only on file system threads:
//! the kernel lets no thread use an RDMA device if it has changed its identity since the device was opened, even after
//! it has changed back. A server that runs as any other user acts as itself.
//!
//! Each change of a user, a group or the groups takes the kernel more than a microsecond, with the change back six of
//! them. A write to a file that is open can do with two ([`Extent::User`]).

use super::object::Keeping;
use crate::Caller;
use rustix::{
    io::Errno,
    process::{Gid, Uid, getegid, geteuid, getgroups},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::cell::Cell;

thread_local! {
    /// The thread could not take the server's identity back.
    static LEFT: Cell<bool> = const { Cell::new(false) };
}

/// The user as which the server runs.
#[derive(Debug)]
pub(super) struct Identity {
    privileged: bool,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

/// As what of the caller a thread acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// As its user, with its group and groups.
    All,
    /// As its user, which takes the superuser's capabilities away, and with the server's own groups.
    User,
}

/// While this exists, the thread acts as the caller.
#[must_use]
pub(super) struct Assumed<'a>(Option<(&'a Identity, Extent)>);

impl Identity {
    /// The identity of the calling thread.
    pub(super) fn current() -> Result<Self, Errno> {
        let uid = geteuid();
        Ok(Self { privileged: uid.is_root(), uid, gid: getegid(), groups: getgroups()? })
    }

    pub(super) fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// The user whose callers own what this server makes, if it is not the superuser.
    pub(super) fn owner(&self) -> Option<u32> {
        (!self.privileged).then(|| self.uid.as_raw())
    }

    /// For which callers opened files stay open when a file's rights change.
    pub(super) fn keeping(&self) -> Keeping {
        if self.privileged { Keeping::Strictly } else { Keeping::OfOwner { uid: self.uid.as_raw() } }
    }

    /// Whether the server is in no group but the superuser's, to which nothing is reserved.
    pub(super) fn has_no_other_group(&self) -> bool {
        self.gid.is_root() && self.groups.iter().all(|gid| gid.is_root())
    }

    /// Whether the thread need not change its identity to act as `caller`.
    pub(super) fn is_of(&self, caller: &Caller) -> bool {
        !self.privileged || caller.is_same_user(&Caller::root())
    }

    /// Acts as `caller` from now on.
    pub(super) fn assume(&self, caller: &Caller) -> Result<Assumed<'_>, Errno> {
        self.assume_to(caller, Extent::All)
    }

    /// Acts as so much of `caller` from now on.
    pub(super) fn assume_to(&self, caller: &Caller, extent: Extent) -> Result<Assumed<'_>, Errno> {
        if LEFT.get() {
            self.restore(Extent::All)?;
            LEFT.set(false);
        }
        // The thread already is the superuser with no other group.
        if self.is_of(caller) {
            return Ok(Assumed(None));
        }
        // u32::MAX would mean "no change". Callers never have this number; this is the last check.
        if caller.uid == u32::MAX || caller.gid == u32::MAX || caller.groups.contains(&u32::MAX) {
            return Err(Errno::PERM);
        }
        // From here on, dropping this restores all that was changed.
        let assumed = Assumed(Some((self, extent)));
        if extent == Extent::All {
            let groups: Vec<_> = caller.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            set_thread_groups(&groups)?;
            set_thread_res_gid(None, Gid::from_raw(caller.gid), None)?;
        }
        set_thread_res_uid(None, Uid::from_raw(caller.uid), None)?;
        Ok(assumed)
    }

    /// Acts as the server again.
    fn restore(&self, extent: Extent) -> Result<(), Errno> {
        set_thread_res_uid(None, Uid::ROOT, None)?;
        if extent == Extent::All {
            set_thread_res_gid(None, self.gid, None)?;
            set_thread_groups(&self.groups)?;
        }
        Ok(())
    }
}

impl Drop for Assumed<'_> {
    fn drop(&mut self) {
        let Some((identity, extent)) = self.0 else { return };
        if let Err(error) = identity.restore(extent) {
            // The thread has fewer rights than it should have. Calls that need its identity fail until it has it back.
            LEFT.set(true);
            tracing::error!(%error, "a thread could not take the server's identity back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> (u32, u32, Vec<Gid>) {
        (geteuid().as_raw(), getegid().as_raw(), getgroups().unwrap())
    }

    /// proves: NFS3-ID-c
    #[test]
    fn a_thread_acts_as_the_caller_and_then_as_itself_again() {
        let identity = Identity::current().unwrap();
        let before = now();
        let caller = Caller::new(1234, 567).with_groups([8, 9]);
        let (ask, asked) = std::sync::mpsc::channel();
        let beside = std::thread::spawn(move || {
            asked.recv().unwrap();
            now()
        });
        let assumed = identity.assume(&caller).unwrap();
        if identity.is_privileged() {
            assert_eq!(now(), (1234, 567, vec![Gid::from_raw(8), Gid::from_raw(9)]));
            let elsewhere = std::thread::spawn(now).join().unwrap();
            assert_eq!(elsewhere.0, 1234, "a thread inherits from its maker");
        } else {
            assert_eq!(now(), before);
        }
        ask.send(()).unwrap();
        assert_eq!(beside.join().unwrap(), before, "no other thread is changed meanwhile");
        drop(assumed);
        assert_eq!(now(), before);
        let assumed = identity.assume_to(&caller, Extent::User).unwrap();
        if identity.is_privileged() {
            assert_eq!(now(), (1234, before.1, before.2.clone()), "its user alone");
        }
        drop(assumed);
        assert_eq!(now(), before);
    }

    /// The system may refuse to change an identity back, as it does here to a thread that has given up the superuser's
    /// for ever. Then the thread would be half a caller.
    #[test]
    fn a_thread_that_has_not_its_own_identity_back_takes_no_other() {
        let identity = Identity::current().unwrap();
        if !identity.is_privileged() {
            return;
        }
        let caller = Caller::new(1234, 567);
        let thread = std::thread::spawn(move || {
            let assumed = identity.assume(&caller).unwrap();
            let user = Uid::from_raw(1234);
            set_thread_res_uid(user, user, user).unwrap();
            drop(assumed);
            [Extent::User, Extent::All].map(|extent| identity.assume_to(&caller, extent).map(drop))
        });
        assert_eq!(thread.join().unwrap(), [Err(Errno::PERM); 2]);
    }

    /// proves: NFS3-ID-b
    #[test]
    fn the_number_that_means_no_change_is_refused() {
        let identity = Identity { privileged: true, ..Identity::current().unwrap() };
        let before = now();
        for (uid, gid, group) in [(u32::MAX, 1, 1), (1, u32::MAX, 1), (1, 1, u32::MAX)] {
            let caller = Caller::new(uid, gid).with_groups([group]);
            assert!(identity.assume(&caller).is_err());
        }
        assert_eq!(now(), before);
    }
}
