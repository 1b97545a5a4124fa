//! Extended attributes of users, which Linux has under `user.`; clients reach no others.
//!
//! All calls run as the caller, so that the kernel checks the rights; only regular files and directories have such
//! attributes. The kernel returns all names of a file at once, at most 64 KiB: a listing takes that much memory while
//! it runs. Positions are hashes of the names, as in directories without stable positions: so names that come and go
//! hide no others.

use super::{
    Cover, Inner, Object,
    attributes::fault,
    resolve::{name_hash, own_path},
};
use crate::{Caller, Changed, Fault, FileId, ListingBudget, MAX_XATTR_BYTES, SetXattr, XattrNames, failed};
use bytes::Bytes;
use rpcrdma_nfs::attr::{Change, FileType};
use rustix::{
    buffer::spare_capacity,
    fd::AsFd,
    fs::{Access, AtFlags, CWD, XattrFlags, accessat, getxattr, getxattr_query, listxattr, removexattr, setxattr},
    io::Errno,
};
use std::sync::Arc;

/// The prefix of the names in the kernel.
const NAMESPACE: &[u8] = b"user.";
/// The longest name with its namespace: Linux's `XATTR_NAME_MAX`.
const MAX_NAME_BYTES: usize = 255;
/// The most bytes of all names of a file: Linux's `XATTR_LIST_MAX`.
const MAX_LIST_BYTES: usize = 64 << 10;

/// The kernel's name.
fn full_name(name: &[u8]) -> Result<Vec<u8>, Fault> {
    let full = [NAMESPACE, name].concat();
    match full.len() {
        _ if name.is_empty() || name.contains(&0) => Err(Fault::Invalid),
        octets if octets > MAX_NAME_BYTES => Err(Fault::NameTooLong),
        _ => Ok(full),
    }
}

/// The fault of a failed call for extended attributes. In other calls ENODATA means that a medium has lost its data.
fn cause(error: Errno) -> Fault {
    match error {
        Errno::NODATA => Fault::NoXattr,
        Errno::TOOBIG => Fault::XattrTooLarge,
        error => fault(error),
    }
}

/// The value of an extended attribute by its full name.
pub(super) fn read(path: &str, name: &[u8]) -> Result<Vec<u8>, Errno> {
    // A buffer without room would only ask for the size.
    let mut value = Vec::with_capacity(getxattr_query(path, name)?.max(1));
    match getxattr(path, name, spare_capacity(&mut value)) {
        // Another program has set a longer value meanwhile.
        Err(Errno::RANGE) => {
            value.reserve(MAX_XATTR_BYTES);
            getxattr(path, name, spare_capacity(&mut value))?;
        }
        got => {
            got?;
        }
    }
    Ok(value)
}

/// Whether the file system of an open file supports such attributes.
pub(super) fn has_xattrs(fd: impl AsFd) -> bool {
    matches!(getxattr_query(own_path(fd), "user.rpcrdma.probe"), Ok(_) | Err(Errno::NODATA))
}

/// The names in the kernel's list, where each ends with NUL.
fn names(list: &[u8]) -> impl Iterator<Item = Bytes> {
    let full = list.split(|octet| *octet == 0);
    full.filter_map(|full| full.strip_prefix(NAMESPACE)).filter(|name| !name.is_empty()).map(Bytes::copy_from_slice)
}

/// The position of a name in a listing: positive as a file offset, and never 0.
fn place(name: &[u8]) -> u64 {
    (name_hash(name) >> 1).max(1)
}

impl Inner {
    /// The file of an id, if such a file can have extended attributes here.
    fn with_xattrs(&self, file: FileId) -> Result<Arc<Object>, Fault> {
        let object = self.present(file)?;
        match object.file_type {
            _ if !self.xattrs => Err(Fault::Unsupported),
            FileType::Regular | FileType::Directory => Ok(object),
            FileType::Symlink => Err(Fault::IsSymlink),
            _ => Err(Fault::IsSpecial),
        }
    }

    pub(super) fn xattr(&self, caller: &Caller, file: FileId, name: &[u8]) -> Result<Bytes, Fault> {
        let name = full_name(name)?;
        if Cover::of(file).is_some() {
            return Err(Fault::NoXattr);
        }
        let object = self.with_xattrs(file)?;
        let path = own_path(&object.fd);
        let assumed = self.identity.assume(caller).map_err(fault)?;
        let value = read(&path, &name);
        drop(assumed);
        value.map(Bytes::from).map_err(cause)
    }

    pub(super) fn list_xattrs(
        &self,
        caller: &Caller,
        file: FileId,
        cookie: u64,
        mut budget: ListingBudget,
    ) -> Result<XattrNames, Fault> {
        if Cover::of(file).is_some() {
            return Ok(XattrNames { cookie, end: true, ..XattrNames::default() });
        }
        let object = self.with_xattrs(file)?;
        let path = own_path(&object.fd);
        let assumed = self.identity.assume(caller).map_err(fault)?;
        // The kernel shows names to all users; a caller that may not read the values gets none, as with Linux's server.
        accessat(CWD, &*path, Access::READ_OK, AtFlags::EACCESS).map_err(fault)?;
        let mut list = Vec::with_capacity(MAX_LIST_BYTES);
        listxattr(&*path, spare_capacity(&mut list)).map_err(fault)?;
        drop(assumed);
        Ok(XattrNames::after(cookie, names(&list), place, |octets| budget.take(octets)))
    }

    pub(super) fn set_xattr(
        &self,
        caller: &Caller,
        file: FileId,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Changed<Change> {
        let name = full_name(name).map_err(failed)?;
        if value.len() > MAX_XATTR_BYTES {
            return Err(failed(Fault::XattrTooLarge));
        }
        let flags = match how {
            SetXattr::Either => XattrFlags::empty(),
            SetXattr::Create => XattrFlags::CREATE,
            SetXattr::Replace => XattrFlags::REPLACE,
        };
        self.change_xattr(caller, file, |path| setxattr(path, &name[..], value, flags))
    }

    pub(super) fn remove_xattr(&self, caller: &Caller, file: FileId, name: &[u8]) -> Changed<Change> {
        let name = full_name(name).map_err(failed)?;
        self.change_xattr(caller, file, |path| removexattr(path, &name[..]))
    }

    fn change_xattr(
        &self,
        caller: &Caller,
        file: FileId,
        change: impl FnOnce(&str) -> Result<(), Errno>,
    ) -> Changed<Change> {
        if Cover::of(file).is_some() {
            return Err(failed(Fault::ReadOnly));
        }
        let object = self.with_xattrs(file).map_err(failed)?;
        let ((), changed) = self.change_file(&object, || {
            let assumed = self.identity.assume(caller).map_err(fault)?;
            let changed = change(&own_path(&object.fd));
            drop(assumed);
            changed.map_err(cause)
        })?;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_namespace_and_a_limit() {
        assert_eq!(full_name(b"a").unwrap(), b"user.a");
        let longest = [b'n'; MAX_NAME_BYTES - NAMESPACE.len()];
        assert!(full_name(&longest).is_ok());
        assert_eq!(full_name(&[&longest[..], b"n"].concat()), Err(Fault::NameTooLong));
        assert_eq!((full_name(b""), full_name(b"a\0b")), (Err(Fault::Invalid), Err(Fault::Invalid)));
    }

    #[test]
    fn names_of_other_namespaces_are_not_told() {
        let list = b"security.capability\0user.a\0system.posix_acl_access\0user.user.b\0trusted.x\0user.\0users\0";
        assert_eq!(names(list).collect::<Vec<_>>(), ["a", "user.b"]);
        assert_eq!(names(b"").count(), 0);
    }
}
