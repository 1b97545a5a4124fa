//! Finds the users of this machine that stand for principals, in the machine's own databases (NSS).

use rpcrdma_oncrpc::gss::{GssUser, Names};
use std::{
    ffi::{CStr, CString, c_char, c_int},
    io,
    mem::MaybeUninit,
    ptr::null_mut,
};

/// The most groups of a user that count: Linux has no more (NGROUPS_MAX).
pub const MAX_GROUPS: usize = 65_536;
/// How many groups are asked for at first.
const USUAL_GROUPS: usize = 64;
/// The most memory for an entry of the databases of users and groups, in bytes. A group's entry lists its members.
const MAX_ENTRY: usize = 1 << 20;

/// Finds users by the names that the mechanism's rules give to principals, with all their groups.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accounts;

/// A longer string is not a name of a user or group (LOGIN_NAME_MAX).
const MAX_NAME: usize = 256;

impl Names for Accounts {
    fn user(&self, principal: &str, local: Option<&str>) -> io::Result<Option<GssUser>> {
        let user = match local.and_then(name) {
            Some(local) => find(&local)?,
            None => None,
        };
        if user.is_none() {
            tracing::debug!(principal, local, "a principal is no user of this machine");
        }
        Ok(user)
    }
}

/// Each function fails if the databases cannot be asked, or do not answer.
impl Accounts {
    /// All groups of the user with this number, the primary one first; none if there is no such user.
    ///
    /// # Errors
    /// If the databases do not answer.
    pub fn groups_of(self, uid: u32) -> io::Result<Vec<u32>> {
        match user(uid, |entry, name| (entry.pw_gid, name.to_owned()))? {
            Some((gid, name)) => Ok([&[gid], &groups(&name, gid)?[..]].concat()),
            None => Ok(Vec::new()),
        }
    }

    /// The name of the user with this number; `None` if there is none, or the name is not UTF-8.
    ///
    /// # Errors
    /// If the databases do not answer.
    pub fn user_name(self, uid: u32) -> io::Result<Option<String>> {
        let name = user(uid, |_, name| name.to_owned())?;
        Ok(name.and_then(|name| name.into_string().ok()))
    }

    /// The name of the group with this number; `None` as for users.
    ///
    /// # Errors
    /// If the databases do not answer.
    pub fn group_name(self, gid: u32) -> io::Result<Option<String>> {
        // SAFETY: all memory that is written to is as long as the arguments say.
        let ask = |entry, memory, len, found| unsafe { libc::getgrgid_r(gid, entry, memory, len, found) };
        // SAFETY: the name of an entry that was found ends in a zero.
        let name = entry(ask, |entry: &libc::group| unsafe { CStr::from_ptr(entry.gr_name) }.to_owned())?;
        Ok(name.and_then(|name| name.into_string().ok()))
    }

    /// The number of the user of this name; `None` if there is none.
    ///
    /// # Errors
    /// If the databases do not answer.
    pub fn uid_of(self, user: &str) -> io::Result<Option<u32>> {
        let Some(user) = name(user) else { return Ok(None) };
        Ok(numbers(&user)?.map(|(uid, _)| uid))
    }

    /// The number of the group of this name; `None` if there is none.
    ///
    /// # Errors
    /// If the databases do not answer.
    pub fn gid_of(self, group: &str) -> io::Result<Option<u32>> {
        let Some(name) = name(group) else { return Ok(None) };
        // SAFETY: the name ends in a zero, and all memory that is written to is as long as the arguments say.
        let ask = |entry, memory, len, found| unsafe { libc::getgrnam_r(name.as_ptr(), entry, memory, len, found) };
        entry(ask, |entry: &libc::group| entry.gr_gid)
    }
}

/// A text in the form that the databases take, if it can be a name.
fn name(text: &str) -> Option<CString> {
    if text.len() <= MAX_NAME { CString::new(text).ok() } else { None }
}

fn find(name: &CStr) -> io::Result<Option<GssUser>> {
    match numbers(name)? {
        Some((uid, gid)) => Ok(Some(GssUser { uid, gid, groups: groups(name, gid)?.into() })),
        None => Ok(None),
    }
}

/// The result of `take` for the entry and the name of the user with this number.
fn user<T>(uid: u32, take: impl FnOnce(&libc::passwd, &CStr) -> T) -> io::Result<Option<T>> {
    // SAFETY: all memory that is written to is as long as the arguments say.
    let ask = |entry, memory, len, found| unsafe { libc::getpwuid_r(uid, entry, memory, len, found) };
    // SAFETY: the name of an entry that was found ends in a zero.
    entry(ask, |entry: &libc::passwd| take(entry, unsafe { CStr::from_ptr(entry.pw_name) }))
}

/// The numbers of a user and of the user's primary group; `None` if there is no user of that name.
fn numbers(name: &CStr) -> io::Result<Option<(u32, u32)>> {
    // SAFETY: the name ends in a zero, and all memory that is written to is as long as the arguments say.
    let ask = |entry, memory, len, found| unsafe { libc::getpwnam_r(name.as_ptr(), entry, memory, len, found) };
    entry(ask, |entry: &libc::passwd| (entry.pw_uid, entry.pw_gid))
}

/// The result of `take` for the entry that a function of C finds, with as much memory as that needs. The function gets
/// a place for the entry, memory for the data that the entry points to, the length of this memory, and a place where it
/// notes whether it has found the entry.
fn entry<E, T>(
    ask: impl Fn(*mut E, *mut c_char, usize, *mut *mut E) -> c_int,
    take: impl FnOnce(&E) -> T,
) -> io::Result<Option<T>> {
    let mut memory: Vec<c_char> = vec![0; 1024];
    loop {
        let (mut entry, mut found) = (MaybeUninit::<E>::uninit(), null_mut());
        let status = ask(entry.as_mut_ptr(), memory.as_mut_ptr(), memory.len(), &mut found);
        match status {
            libc::ERANGE if memory.len() < MAX_ENTRY => memory.resize(memory.len() * 2, 0),
            // SAFETY: the entry was found, and so is written; the memory that it points to exists until `take` is done.
            0 if !found.is_null() => return Ok(Some(take(unsafe { entry.assume_init_ref() }))),
            // Some databases report by an error that there is no entry.
            0 | libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// All groups of a user but the primary one. The C library does not report that a database failed: its groups are then
/// missing.
fn groups(name: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let too_many = || io::Error::other("a user has too many groups");
    let mut room = USUAL_GROUPS;
    loop {
        let mut groups = vec![0; room];
        let mut count = c_int::try_from(room).map_err(|_| too_many())?;
        // SAFETY: the name ends in a zero, and there is room for `count` groups.
        let status = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        if status < 0 {
            if room >= MAX_GROUPS {
                return Err(too_many());
            }
            room = usize::try_from(count).unwrap_or(0).max(room * 2).min(MAX_GROUPS);
            continue;
        }
        groups.truncate(usize::try_from(count).map_err(|_| too_many())?);
        groups.retain(|group| *group != gid);
        return Ok(groups);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The numbers that the command `id` prints.
    fn id(option: &str, user: &str) -> Vec<u32> {
        let output = Command::new("id").args([option, user]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    #[test]
    fn users_are_who_the_machine_says_they_are() {
        for name in ["root", "daemon", "nobody"] {
            let user = Accounts.user("who@REALM", Some(name)).unwrap().unwrap();
            assert_eq!((vec![user.uid], vec![user.gid]), (id("-u", name), id("-g", name)), "{name}");
            let mut all: Vec<_> = user.groups.iter().copied().chain([user.gid]).collect();
            let mut expected = id("-G", name);
            all.sort_unstable();
            expected.sort_unstable();
            assert_eq!(all, expected, "{name}");
        }
    }

    #[test]
    fn groups_are_found_by_number() {
        for name in ["root", "daemon", "nobody"] {
            let mut groups = Accounts.groups_of(id("-u", name)[0]).unwrap();
            let mut expected = id("-G", name);
            assert_eq!(groups.first(), expected.first(), "{name}: his own first");
            groups.sort_unstable();
            expected.sort_unstable();
            assert_eq!(groups, expected, "{name}");
        }
        assert_eq!(Accounts.groups_of(3_999_999_999).unwrap(), Vec::<u32>::new());
    }

    #[test]
    fn names_and_numbers_are_each_others() {
        for name in ["root", "daemon", "nobody"] {
            let (uid, gid) = (id("-u", name)[0], id("-g", name)[0]);
            let user = Accounts.user_name(uid).unwrap();
            assert_eq!((user.as_deref(), Accounts.uid_of(name).unwrap()), (Some(name), Some(uid)));
            let group = Accounts.group_name(gid).unwrap().unwrap();
            assert_eq!(Accounts.gid_of(&group).unwrap(), Some(gid), "{group}");
        }
        let none = 3_999_999_999;
        assert_eq!((Accounts.user_name(none).unwrap(), Accounts.group_name(none).unwrap()), (None, None));
        for none in ["", "nobody-of-that-name", "ro\0ot", &"a".repeat(1 << 20)] {
            assert_eq!((Accounts.uid_of(none).unwrap(), Accounts.gid_of(none).unwrap()), (None, None));
        }
    }

    /// If a database does not answer, that does not mean that there is no such user.
    #[test]
    fn an_error_is_not_nobody() {
        let fails = |status| entry(move |_: *mut libc::passwd, _, _, _| status, |_| ());
        for status in [libc::EIO, libc::EAGAIN, libc::EMFILE, libc::ERANGE] {
            assert_eq!(fails(status).unwrap_err().raw_os_error(), Some(status));
        }
        for status in [0, libc::ENOENT, libc::ESRCH] {
            assert!(fails(status).unwrap().is_none(), "{status}");
        }
    }

    #[test]
    fn who_is_none_is_none() {
        for local in [None, Some(""), Some("nobody-of-that-name"), Some("ro\0ot"), Some(&*"a".repeat(1 << 20))] {
            assert_eq!(Accounts.user("who@REALM", local).unwrap(), None);
        }
    }
}
