//! POSIX access control lists of files, which the kernel keeps as `system.posix_acl_access` and, for directories,
//! `system.posix_acl_default`.
//!
//! ```text
//! the kernel's format, little-endian:  2 (4 bytes), then for each entry  tag (2)  rights (2)  number (4)
//! tags: 1 owner, 2 user, 4 group, 8 further group, 16 mask, 32 others; numbers mean something for 2 and 8 alone
//! ```
//!
//! The disk, or a server behind a network file system, can hold anything: data that is not a list fails with `EIO`. If
//! a mode can express a list, the kernel keeps the mode alone. The server sets lists as the caller, so that the kernel
//! checks the rights.

use super::{
    Cover, Inner, Object,
    attributes::{MODE_BITS, fault, file_type, stat},
    resolve::own_path,
    xattr,
};
use crate::{Caller, Changed, Fault, FileId, Via, failed};
use rpcrdma_nfs::attr::{Acls, Change, FileType, MAX_NAMED, NewAttributes, PosixAcl};
use rustix::{
    fd::AsFd,
    fs::{XattrFlags, fgetxattr, getxattr_query, removexattr, setxattr},
    io::Errno,
};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// The version of the format: there is one.
const VERSION: u32 = 2;
/// Bytes before the entries.
const HEAD_OCTETS: usize = 4;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 8;
/// The most bytes of a list: as many named entries as it can have, and owner, group, mask and others.
const MAX_OCTETS: usize = HEAD_OCTETS + (MAX_NAMED + 4) * ENTRY_BYTES;
/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o777;
/// The number in entries without a user or group.
const NO_NUMBER: u32 = u32::MAX;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// Whether an open file has surely no list of who may do what, beyond its mode. A file system that knows no such lists
/// (`EOPNOTSUPP`) may know others, as ZFS does.
pub(super) fn is_absent(file: impl AsFd) -> bool {
    fgetxattr(file, ACCESS, &mut [0_u8; 0]) == Err(Errno::NODATA)
}

/// Reads a list in the kernel's format. `None` if it is not one.
pub fn parse(octets: &[u8]) -> Option<PosixAcl> {
    let (head, entries) = octets.split_first_chunk::<HEAD_OCTETS>()?;
    if u32::from_le_bytes(*head) != VERSION || entries.len() % ENTRY_BYTES != 0 || octets.len() > MAX_OCTETS {
        return None;
    }
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    // There is one entry each of owner, group, mask and others.
    let [mut owner, mut group, mut mask, mut others] = [None; 4];
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let [t0, t1, r0, r1, n0, n1, n2, n3] = *entry else { return None };
        let rights = u8::try_from(u16::from_le_bytes([r0, r1])).ok()?;
        let number = u32::from_le_bytes([n0, n1, n2, n3]);
        let single = match u16::from_le_bytes([t0, t1]) {
            USER => {
                users.push((number, rights));
                continue;
            }
            NAMED_GROUP => {
                groups.push((number, rights));
                continue;
            }
            OWNER => &mut owner,
            GROUP => &mut group,
            MASK => &mut mask,
            OTHERS => &mut others,
            _ => return None,
        };
        if single.replace(rights).is_some() {
            return None;
        }
    }
    PosixAcl::new([owner?, group?, others?], users, groups, mask)
}

/// Writes a list in the kernel's format.
pub fn written(acl: &PosixAcl) -> Vec<u8> {
    let mut octets = VERSION.to_le_bytes().to_vec();
    let mut entry = |tag: u16, rights: u8, number: u32| {
        octets.extend(tag.to_le_bytes());
        octets.extend(u16::from(rights).to_le_bytes());
        octets.extend(number.to_le_bytes());
    };
    entry(OWNER, acl.owner(), NO_NUMBER);
    acl.users().iter().for_each(|(number, rights)| entry(USER, *rights, *number));
    entry(GROUP, acl.group(), NO_NUMBER);
    acl.groups().iter().for_each(|(number, rights)| entry(NAMED_GROUP, *rights, *number));
    if let Some(mask) = acl.mask() {
        entry(MASK, mask, NO_NUMBER);
    }
    entry(OTHERS, acl.others(), NO_NUMBER);
    octets
}

/// The list of this name, if the file has one.
fn read(fd: impl AsFd, name: &str) -> Result<Option<PosixAcl>, Fault> {
    match xattr::read(&own_path(fd), name.as_bytes()) {
        Ok(octets) if octets.is_empty() => Ok(None),
        Ok(octets) => parse(&octets).map(Some).ok_or(Fault::Io),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(fault(error)),
    }
}

/// Whether the file system of an open file supports such lists.
pub(super) fn has_acls(fd: impl AsFd) -> bool {
    matches!(getxattr_query(own_path(fd), ACCESS), Ok(_) | Err(Errno::NODATA))
}

impl Inner {
    /// Whether new files in a directory get their list from the directory.
    pub(super) fn has_default(&self, directory: &Object) -> bool {
        self.acls && getxattr_query(own_path(&directory.fd), DEFAULT).is_ok_and(|octets| octets > 0)
    }

    pub(super) fn acl(&self, file: FileId) -> Result<Acls, Fault> {
        if let Some(cover) = Cover::of(file) {
            return Ok(Acls::of_mode(cover.attributes(self.id).mode));
        }
        let object = self.present(file)?;
        let stat = stat(&object.fd).map_err(fault)?;
        self.check_there(&object, &stat)?;
        let mut acls = Acls::of_mode(stat.stx_mode.into());
        if self.acls && object.file_type != FileType::Symlink {
            if let Some(access) = self.read_list(&object, ACCESS)? {
                acls.access = access;
            }
            if file_type(&stat) == FileType::Directory {
                acls.default = self.read_list(&object, DEFAULT)?;
            }
        }
        Ok(acls)
    }

    fn read_list(&self, object: &Object, name: &str) -> Result<Option<PosixAcl>, Fault> {
        read(&object.fd, name).inspect_err(|fault| {
            if let Some(failures) = self.acl_failures.count() {
                let file = std::fs::read_link(own_path(&object.fd)).unwrap_or_default();
                tracing::warn!(file = %file.display(), name, %fault, failures, "an access control list cannot be read");
            }
        })
    }

    pub(super) fn set_acl(&self, caller: &Caller, file: FileId, acls: &Acls) -> Changed<Change> {
        if Cover::of(file).is_some() {
            return Err(failed(Fault::ReadOnly));
        }
        let object = self.present(file).map_err(failed)?;
        let ((), changed) = self.change_file(&object, || {
            let is_directory = object.file_type == FileType::Directory;
            let before = stat(&object.fd).map_err(fault)?;
            if object.file_type == FileType::Symlink || acls.default.is_some() && !is_directory {
                return Err(Fault::Unsupported);
            }
            if !self.acls {
                if !acls.is_mode() {
                    return Err(Fault::Unsupported);
                }
                let mode = u32::from(before.stx_mode) & MODE_BITS & !PERMISSIONS | acls.access.mode();
                let new = NewAttributes { mode: Some(mode), ..NewAttributes::default() };
                return self.apply(&Via::caller(caller.clone(), file), &object, &new);
            }
            let path = own_path(&object.fd);
            let assumed = self.identity.assume(caller).map_err(fault)?;
            setxattr(&*path, ACCESS, &written(&acls.access), XattrFlags::empty()).map_err(fault)?;
            match &acls.default {
                Some(default) => setxattr(&*path, DEFAULT, &written(default), XattrFlags::empty()).map_err(fault)?,
                // NFS4-8881-6.4-b
                None if is_directory => match removexattr(&*path, DEFAULT) {
                    Err(Errno::NODATA) => {}
                    done => done.map_err(fault)?,
                },
                None => {}
            }
            drop(assumed);
            if !self.identity.is_privileged() {
                // As after a change of the mode: a caller that has the file open may go on.
                object.renew(caller, &before, &stat(&object.fd).map_err(fault)?);
            }
            Ok(())
        })?;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn entry(tag: u16, rights: u16, number: u32) -> Vec<u8> {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &number.to_le_bytes()].concat()
    }

    fn list(entries: &[(u16, u16, u32)]) -> Option<PosixAcl> {
        let entries = entries.iter().flat_map(|(tag, rights, number)| entry(*tag, *rights, *number));
        parse(&VERSION.to_le_bytes().into_iter().chain(entries).collect::<Vec<_>>())
    }

    const BASE: [(u16, u16, u32); 3] = [(OWNER, 6, NO_NUMBER), (GROUP, 4, NO_NUMBER), (OTHERS, 0, NO_NUMBER)];

    fn with(more: &[(u16, u16, u32)]) -> Option<PosixAcl> {
        list(&[&BASE[..], more].concat())
    }

    #[test]
    fn a_file_system_without_posix_lists_may_have_others() {
        assert!(!is_absent(File::open("/proc/self/stat").unwrap()));
        let file = tempfile::tempfile().unwrap();
        let has_lists = fgetxattr(&file, ACCESS, &mut [0_u8; 0]) != Err(Errno::OPNOTSUPP);
        assert_eq!(is_absent(&file), has_lists);
    }

    #[test]
    fn a_list_is_read_as_the_kernel_writes_it() {
        assert_eq!(list(&BASE), Some(PosixAcl::of_mode(0o640)));
        // Made by setfacl -m u:1000:rwx,g:50:x,m:rx on a file of mode 640.
        let entries = [
            (OWNER, 6, NO_NUMBER),
            (USER, 7, 1000),
            (GROUP, 4, NO_NUMBER),
            (NAMED_GROUP, 1, 50),
            (MASK, 5, NO_NUMBER),
            (OTHERS, 0, NO_NUMBER),
        ];
        let acl = PosixAcl::new([6, 4, 0], vec![(1000, 7)], vec![(50, 1)], Some(5)).unwrap();
        assert_eq!(list(&entries).as_ref(), Some(&acl));
        let octets: Vec<u8> = entries.iter().flat_map(|(tag, rights, number)| entry(*tag, *rights, *number)).collect();
        assert_eq!(written(&acl), [&VERSION.to_le_bytes()[..], &octets].concat());
    }

    #[test]
    fn what_a_disk_may_hold_is_no_list() {
        assert_eq!(parse(b""), None);
        assert_eq!(parse(&VERSION.to_le_bytes()), None, "no entries");
        let whole = written(&PosixAcl::new([7; 3], vec![(1, 2)], vec![], Some(3)).unwrap());
        assert!((0..whole.len()).all(|end| parse(&whole[..end]).is_none()), "cut");
        assert_eq!(parse(&[&3u32.to_le_bytes()[..], &whole[4..]].concat()), None, "another version");
        assert_eq!(with(&[(OWNER, 1, 0)]), None, "two owners");
        assert_eq!(with(&[(USER, 1, 5)]), None, "a name without a mask");
        assert_eq!(with(&[(MASK, 7, 0), (USER, 1, 5), (USER, 2, 5)]), None, "a user twice");
        assert_eq!(with(&[(MASK, 0x107, 0)]), None, "rights that there are not");
        assert_eq!(with(&[(0x40, 0, 0)]), None, "an unknown tag");
        assert_eq!(list(&BASE[..2]), None, "no others");
        assert!(with(&[(MASK, 7, 0)]).is_some());
    }

    #[test]
    fn arbitrary_octets_are_survived() {
        let random = rpcrdma_env::SeededRandom::new(1);
        let draw = || rpcrdma_env::Random::next_u64(&random) as usize;
        let whole = written(&PosixAcl::new([7, 5, 0], vec![(1, 2), (3, 4)], vec![(5, 6)], Some(7)).unwrap());
        let mut lists = 0;
        for _ in 0..50_000 {
            let mut octets = whole.clone();
            for _ in 0..1 + draw() % 3 {
                let at = draw() % octets.len();
                octets[at] = draw() as u8;
            }
            octets.truncate(octets.len() - 4 * (draw() % 3));
            if let Some(acl) = parse(&octets) {
                assert_eq!(parse(&written(&acl)).as_ref(), Some(&acl));
                lists += 1;
            }
        }
        assert!(lists > 1000, "some are lists: {lists}");
    }

    #[test]
    fn the_longest_list_is_read_and_one_entry_more_is_not() {
        let named = |count: usize| (0..count as u32).map(|number| (USER, 4, number));
        let of = |count| with(&named(count).chain([(MASK, 4, NO_NUMBER)]).collect::<Vec<_>>());
        let longest = of(MAX_NAMED).unwrap();
        assert_eq!(written(&longest).len(), MAX_OCTETS);
        const { assert!(MAX_OCTETS <= 64 << 10, "the kernel tells no more of one attribute") };
        assert_eq!(of(MAX_NAMED + 1), None);
    }

    #[test]
    fn the_kernel_takes_what_is_written_and_tells_it_again() {
        let scratch = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(scratch.path()).unwrap();
        assert!(has_acls(&file), "{} lies on a file system without access control lists", scratch.path().display());
        let acl = PosixAcl::new([6, 4, 0], vec![(1000, 7), (2, 0)], vec![(50, 1)], Some(5)).unwrap();
        setxattr(own_path(&file), ACCESS, &written(&acl), XattrFlags::empty()).unwrap();
        assert_eq!(read(&file, ACCESS), Ok(Some(acl.clone())));
        assert_eq!(u32::from(stat(&file).unwrap().stx_mode) & PERMISSIONS, acl.mode());
    }
}
