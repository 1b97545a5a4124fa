//! What files have besides contents, mode and times: extended attributes and access control lists, which `--xattrs`
//! keeps.
//!
//! ```text
//! on a server, NFS version 4.2   colour        list of version 4
//! on a server, NFS version 3                   POSIX lists, by NFSACL
//! on this machine                user.colour   system.posix_acl_access, and system.posix_acl_default of a directory
//! ```
//!
//! If POSIX cannot express a list, the copy keeps one that may allow less and never allows more; the command names each
//! file for which it could keep none. A list that says no more than the mode is not kept. What servers send has limits.

use crate::failure;
use anyhow::Result;
use bytes::Bytes;
use rpcrdma_nfs::{
    attr::{Acls, PosixAcl},
    v4::Acl,
};
use rpcrdma_nfs_client::{Error, Files, Handle, Name, SetXattr};
use rpcrdma_nfsd::acls::{acl_of_posix, posix_acl_of_xattr, posix_of_acl, xattr_of_posix_acl};
use rustix::{
    fd::AsFd,
    fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr},
    io::Errno,
};

/// The most extended attributes of one file that are kept.
const MAX_NAMES: usize = 4_096;
/// The longest value: Linux has no room for more.
const MAX_VALUE_BYTES: usize = 64 << 10;
/// The most bytes of all values of one file.
const MAX_OCTETS: usize = 16 << 20;
/// Linux's name of a user's attribute begins with it; NFS's has no such beginning.
const USER: &[u8] = b"user.";
/// The longest name on Linux.
const MAX_NAME_BYTES: usize = 255;
/// The attributes in which Linux keeps lists.
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// The notice, given once, if a server has no protocol for lists.
const NO_NFSACL: &str =
    "the server does not serve NFSACL, which has NFS version 3's access control lists: no list is kept";

/// The reason why something is not kept, which ends nothing. An error that makes going on hopeless, or that may pass
/// soon, stays an error.
fn unkept(error: Error) -> Result<String> {
    match error.status() {
        Some(status) => Ok(status.to_string()),
        None if error.is_not_supported() || matches!(error, Error::Nonsense { .. }) => {
            Ok(format!("{:#}", anyhow::Error::from(error)))
        }
        None => Err(error.into()),
    }
}

/// The names of a file's attributes on a server, as far as they are names; none if the server has no attributes.
async fn names_of(files: &Files, file: &Handle, told: &mut Vec<String>) -> Result<Vec<Name>> {
    let mut names = match files.xattrs(file).await {
        Ok(names) => names,
        Err(error) if error.is_not_supported() => return Ok(Vec::new()),
        Err(error) => {
            told.push(format!("its extended attributes were not kept: {}", unkept(error)?));
            return Ok(Vec::new());
        }
    };
    if names.len() > MAX_NAMES {
        told.push(format!("{} of its extended attributes were not kept: there are too many", names.len() - MAX_NAMES));
        names.truncate(MAX_NAMES);
    }
    Ok(names)
}

fn not_kept(name: &[u8], why: &str) -> String {
    format!("its extended attribute {} was not kept: {why}", crate::names::escaped(name))
}

/// The values of a file's attributes on a server, one by one.
struct Values<'a> {
    files: &'a Files,
    file: &'a Handle,
    names: std::vec::IntoIter<Name>,
    octets: usize,
}

impl<'a> Values<'a> {
    async fn of(files: &'a Files, file: &'a Handle, told: &mut Vec<String>) -> Result<Self> {
        let names = names_of(files, file, told).await?.into_iter();
        Ok(Self { files, file, names, octets: 0 })
    }

    async fn next(&mut self, told: &mut Vec<String>) -> Result<Option<(Name, Bytes)>> {
        for name in self.names.by_ref() {
            let value = match self.files.xattr(self.file, &name).await {
                Ok(value) => value,
                Err(error) => {
                    told.push(not_kept(name.as_slice(), &unkept(error)?));
                    continue;
                }
            };
            self.octets = self.octets.saturating_add(value.len());
            if value.len() > MAX_VALUE_BYTES || self.octets > MAX_OCTETS {
                told.push(not_kept(name.as_slice(), "it is too large"));
                continue;
            }
            return Ok(Some((name, value)));
        }
        Ok(None)
    }
}

/// Gives a file on a server the extended attributes that another has. Returns what was not kept.
pub(crate) async fn across(from: &Files, source: &Handle, to: &Files, target: &Handle) -> Result<Vec<String>> {
    let mut told = Vec::new();
    let mut values = Values::of(from, source, &mut told).await?;
    while let Some((name, value)) = values.next(&mut told).await? {
        if let Err(error) = to.set_xattr(target, &name, value, SetXattr::Either).await {
            told.push(not_kept(name.as_slice(), &unkept(error)?));
        }
    }
    Ok(told)
}

/// Lists that say more than a mode, as a server has sent them or as this machine has them.
pub(crate) enum Lists {
    /// Of version 4, with the POSIX lists that say the same, or why there are none.
    V4(Acl, Result<Acls, String>),
    /// POSIX lists: from version 3, which has NFSACL beside it, or from this machine.
    Posix(Acls),
}

impl Lists {
    /// The POSIX lists, or why there are none.
    fn posix(self) -> Result<Acls, String> {
        match self {
            Self::V4(_, posix) => posix,
            Self::Posix(acls) => Ok(acls),
        }
    }

    /// The list of version 4, or why there is none.
    fn version_4(self, is_directory: bool) -> Result<Acl, String> {
        match self {
            Self::V4(acl, _) => Ok(acl),
            Self::Posix(acls) => acl_of_posix(&acls, is_directory).ok_or_else(|| "it is too long".into()),
        }
    }
}

/// A file's lists on a server, unless its mode says the same.
///
/// # Errors
/// `Ok(Err)` with the message.
async fn lists_of(files: &Files, file: &Handle, is_directory: bool) -> Result<Result<Option<Lists>, String>> {
    let told = match files.version_3() {
        Some(_) => files.posix_acls(file).await.map(Lists::Posix),
        None => files.acl(file).await.map(|acl| {
            let posix = posix_of_acl(&acl, is_directory);
            let posix = posix.map_err(|status| format!("POSIX has no list that says the same ({status})"));
            Lists::V4(acl, posix)
        }),
    };
    Ok(match told {
        Ok(Lists::V4(_, Ok(acls)) | Lists::Posix(acls)) if acls.is_mode() => Ok(None),
        Ok(lists) => Ok(Some(lists)),
        // There is no list that could be kept.
        Err(error) if error.is_not_supported() => {
            if error.status().is_none() && files.version_3().is_some() {
                failure::warning_once(NO_NFSACL);
            }
            Ok(None)
        }
        Err(error) => Err(unkept(error)?),
    })
}

fn list_not_kept(why: impl std::fmt::Display) -> String {
    format!("its access control list was not kept: {why}")
}

/// Gives a file on a server the list that another has. Returns what was not kept.
pub(crate) async fn acl_across(
    (from, source): (&Files, &Handle),
    (to, target): (&Files, &Handle),
    is_directory: bool,
) -> Result<Vec<String>> {
    match lists_of(from, source, is_directory).await? {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(lists)) => lists_sent(to, target, lists, is_directory).await,
        Err(why) => Ok(vec![list_not_kept(why)]),
    }
}

/// Gives an open file of this machine what a file on a server has. Returns what was not kept.
pub(crate) async fn fetched(files: &Files, file: &Handle, is_directory: bool, here: impl AsFd) -> Result<Vec<String>> {
    let mut told = Vec::new();
    let mut values = Values::of(files, file, &mut told).await?;
    while let Some((name, value)) = values.next(&mut told).await? {
        let local = [USER, name.as_slice()].concat();
        if name.as_slice().is_empty() || name.as_slice().contains(&0) || local.len() > MAX_NAME_BYTES {
            told.push(not_kept(name.as_slice(), "it is not a valid name here"));
        } else if let Err(error) = fsetxattr(&here, &local[..], &value, XattrFlags::empty()) {
            told.push(not_kept(name.as_slice(), &std::io::Error::from(error).to_string()));
        }
    }
    match lists_of(files, file, is_directory).await?.and_then(|lists| lists.map(Lists::posix).transpose()) {
        Ok(None) => {}
        Ok(Some(acls)) => {
            if let Err(error) = set_local(&here, &acls) {
                told.push(list_not_kept(std::io::Error::from(error)));
            }
        }
        Err(why) => told.push(list_not_kept(why)),
    }
    Ok(told)
}

fn set_local(here: &impl AsFd, acls: &Acls) -> Result<(), Errno> {
    fsetxattr(here, ACCESS, &xattr_of_posix_acl(&acls.access), XattrFlags::empty())?;
    match &acls.default {
        Some(default) => fsetxattr(here, DEFAULT, &xattr_of_posix_acl(default), XattrFlags::empty()),
        None => match fremovexattr(here, DEFAULT) {
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS) => Ok(()),
            removed => removed,
        },
    }
}

/// Gives a file on a server the extended attributes that an open file of this machine has. Returns what was not kept.
pub(crate) async fn sent(here: impl AsFd, files: &Files, file: &Handle) -> Result<Vec<String>> {
    let mut told = Vec::new();
    let names = match local_names(&here) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP) => return Ok(told),
        Err(error) => {
            let why = std::io::Error::from(error);
            return Ok(vec![format!("its extended attributes were not kept: {why}")]);
        }
    };
    for name in names {
        let value = match local_value(&here, &name) {
            Ok(value) => value,
            // It has just been removed.
            Err(Errno::NODATA) => continue,
            Err(error) => {
                told.push(not_kept(&name, &std::io::Error::from(error).to_string()));
                continue;
            }
        };
        let there = Name::from(name.strip_prefix(USER).unwrap_or(&name));
        if let Err(error) = files.set_xattr(file, &there, value.into(), SetXattr::Either).await {
            told.push(not_kept(&name, &unkept(error)?));
        }
    }
    Ok(told)
}

/// The lists of an open file of this machine, unless its mode says the same.
pub(crate) fn local_lists(here: impl AsFd, is_directory: bool) -> Option<Lists> {
    let kept = |name: &str| local_value(&here, name.as_bytes()).ok().and_then(|octets| posix_acl_of_xattr(&octets));
    let (access, default) = (kept(ACCESS), if is_directory { kept(DEFAULT) } else { None });
    if access.is_none() && default.is_none() {
        return None;
    }
    let access = access.or_else(|| mode_of(&here).map(PosixAcl::of_mode))?;
    let acls = Acls { access, default };
    if acls.is_mode() { None } else { Some(Lists::Posix(acls)) }
}

/// Gives a file on a server lists. Returns what was not kept.
pub(crate) async fn lists_sent(files: &Files, file: &Handle, lists: Lists, is_directory: bool) -> Result<Vec<String>> {
    let sent = match files.version_3() {
        Some(_) => match lists.posix() {
            Ok(acls) => files.set_posix_acls(file, &acls).await,
            Err(why) => return Ok(vec![list_not_kept(why)]),
        },
        None => match lists.version_4(is_directory) {
            Ok(acl) => files.set_acl(file, &acl).await,
            Err(why) => return Ok(vec![list_not_kept(why)]),
        },
    };
    match sent {
        Ok(()) => Ok(Vec::new()),
        Err(error) => Ok(vec![list_not_kept(unkept(error)?)]),
    }
}

fn mode_of(here: &impl AsFd) -> Option<u32> {
    rustix::fs::fstat(here).ok().map(|stat| stat.st_mode)
}

/// The names of the user's attributes of an open file.
fn local_names(here: &impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    // The most that the system returns in one list.
    let mut list = vec![0; MAX_VALUE_BYTES];
    let len = flistxattr(here, &mut list)?;
    let names = list.get(..len).unwrap_or(&list).split(|octet| *octet == 0);
    Ok(names.filter(|name| name.len() > USER.len() && name.starts_with(USER)).map(<[u8]>::to_vec).collect())
}

fn local_value(here: &impl AsFd, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; MAX_VALUE_BYTES];
    let len = fgetxattr(here, name, &mut value)?;
    value.truncate(len);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only where the file system of the temporary file has such attributes.
    #[test]
    fn attributes_of_users_are_found_and_no_others() {
        let file = tempfile::tempfile().unwrap();
        let set = |name: &str, value: &[u8]| fsetxattr(&file, name, value, XattrFlags::empty());
        if set("user.b", b"two").is_err() {
            return;
        }
        set("user.a", b"").unwrap();
        // Only users with this right can set attributes of the system, if any user can.
        let _ = set("trusted.c", b"three");
        let mut names = local_names(&file).unwrap();
        names.sort();
        assert_eq!(names, [b"user.a".to_vec(), b"user.b".to_vec()]);
        assert_eq!(local_value(&file, b"user.b"), Ok(b"two".to_vec()));
        assert_eq!(local_value(&file, b"user.a"), Ok(vec![]));
        assert_eq!(local_value(&file, b"user.c"), Err(Errno::NODATA));
    }

    #[test]
    fn lists_are_set_with_the_default_of_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let here = std::fs::File::open(directory.path()).unwrap();
        let access = PosixAcl::new([7, 5, 0], vec![(4711, 7)], vec![], Some(7)).unwrap();
        let both = Acls { access: access.clone(), default: Some(access.clone()) };
        match set_local(&here, &both) {
            // The file system has no lists.
            Err(Errno::OPNOTSUPP) => return,
            set => set.unwrap(),
        }
        let kept = |name: &str| local_value(&here, name.as_bytes()).ok().and_then(|octets| posix_acl_of_xattr(&octets));
        assert_eq!((kept(ACCESS), kept(DEFAULT)), (Some(access.clone()), Some(access.clone())));
        set_local(&here, &Acls { access: access.clone(), default: None }).unwrap();
        assert_eq!((kept(ACCESS), kept(DEFAULT)), (Some(access), None));
    }
}
