//! Which users of this machine principals are, by the machine's own databases (NSS).

use rpcrdma_oncrpc::gss::{GssUser, Names};
use std::{
    ffi::{CStr, CString, c_char, c_int},
    mem::MaybeUninit,
    ptr::null_mut,
};

/// The most groups of a user that count: Linux has no more (NGROUPS_MAX).
pub const MAX_GROUPS: usize = 65_536;
/// How many groups are asked for at first.
const USUAL_GROUPS: usize = 64;
/// The most memory for an entry of the database of users, in bytes.
const MAX_ENTRY: usize = 1 << 20;

/// Finds users by the names that the mechanism's rules give to principals, with all their groups.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accounts;

impl Names for Accounts {
    fn user(&self, principal: &str, local: Option<&str>) -> Option<GssUser> {
        let user = local.and_then(|local| CString::new(local).ok()).and_then(|local| find(&local));
        if user.is_none() {
            tracing::debug!(principal, local, "a principal is no user of this machine");
        }
        user
    }
}

fn find(name: &CStr) -> Option<GssUser> {
    let (uid, gid) = numbers(name)?;
    Some(GssUser { uid, gid, groups: groups(name, gid)?.into() })
}

/// The numbers of a user and of his group; `None` if there is none of that name, or nobody can tell.
fn numbers(name: &CStr) -> Option<(u32, u32)> {
    let mut memory: Vec<c_char> = vec![0; 1024];
    loop {
        let (mut entry, mut found) = (MaybeUninit::<libc::passwd>::uninit(), null_mut());
        // SAFETY: the name ends in a zero, and all that is written to is as long as is said.
        let status = unsafe {
            libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), memory.as_mut_ptr(), memory.len(), &mut found)
        };
        if status == libc::ERANGE && memory.len() < MAX_ENTRY {
            memory.resize(memory.len() * 2, 0);
            continue;
        }
        if status != 0 || found.is_null() {
            return None;
        }
        // SAFETY: the entry was found, and so is written.
        let entry = unsafe { entry.assume_init() };
        return Some((entry.pw_uid, entry.pw_gid));
    }
}

/// All groups of a user but the one that he has anyway.
fn groups(name: &CStr, gid: u32) -> Option<Vec<u32>> {
    let mut room = USUAL_GROUPS;
    loop {
        let mut groups = vec![0; room];
        let mut count = c_int::try_from(room).ok()?;
        // SAFETY: the name ends in a zero, and there is room for `count` groups.
        let status = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        if status < 0 {
            if room >= MAX_GROUPS {
                return None;
            }
            room = usize::try_from(count).unwrap_or(0).max(room * 2).min(MAX_GROUPS);
            continue;
        }
        groups.truncate(usize::try_from(count).ok()?);
        groups.retain(|group| *group != gid);
        return Some(groups);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What `id` says.
    fn id(option: &str, user: &str) -> Vec<u32> {
        let output = Command::new("id").args([option, user]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    #[test]
    fn users_are_who_the_machine_says_they_are() {
        for name in ["root", "daemon", "nobody"] {
            let user = Accounts.user("who@REALM", Some(name)).unwrap();
            assert_eq!((vec![user.uid], vec![user.gid]), (id("-u", name), id("-g", name)), "{name}");
            let mut all: Vec<_> = user.groups.iter().copied().chain([user.gid]).collect();
            let mut expected = id("-G", name);
            all.sort_unstable();
            expected.sort_unstable();
            assert_eq!(all, expected, "{name}");
        }
    }

    #[test]
    fn who_is_none_is_none() {
        for local in [None, Some(""), Some("nobody-of-that-name"), Some("ro\0ot"), Some(&*"a".repeat(1 << 20))] {
            assert_eq!(Accounts.user("who@REALM", local), None);
        }
    }
}
