//! Making files.
//!
//! The kernel makes each file as the caller. If the process's mask has changed the mode, the server then sets the mode
//! that the caller asked for. A default access control list of the directory replaces any mask, and its effect stays: a
//! program of the host would get no other mode. The new file's times keep the verifier of an exclusive creation, as is
//! usual: it survives a restart, and the client's first SETATTR replaces it.

use super::{
    Inner, Object,
    attributes::{MODE_BITS, fault, file_type, stat, timestamps},
    object,
    resolve::{open_beneath, own_path, reopen},
};
use crate::{Caller, Changed, CreateHow, Fault, FileId, Made, New, NodeKind, Via, failed};
use rpcrdma_nfs::attr::{Device, FileType, NewAttributes, SetTime, Time};
use rustix::{
    fd::OwnedFd,
    fs::{self, Mode, OFlags, ResolveFlags, Statx, chmod, futimens, makedev, mkdirat, mknodat, openat2, symlinkat},
    io::Errno,
};
use std::sync::Arc;

/// The mode of a file if the client asks for none.
const DEFAULT_FILE_MODE: u32 = 0o644;
/// The mode of a directory if the client asks for none.
const DEFAULT_DIRECTORY_MODE: u32 = 0o755;
/// The mode of a file from an exclusive creation, until the client sets another.
const EXCLUSIVE_MODE: u32 = 0o600;
/// In a mode: the rights to read, write and execute.
const PERMISSIONS: u32 = 0o777;
/// In a mode: the owner may read.
const OWNER_READS: u32 = 0o400;
/// On a directory: new files in it get its group, and new directories this bit, too.
const SET_GROUP_ID: u32 = 0o2000;

impl Inner {
    pub(super) fn make(&self, caller: &Caller, directory: FileId, name: &[u8], new: New) -> Changed<Made> {
        let directory = self.found_directory(directory).map_err(failed)?;
        // NFS4-8881-18.16-b
        let is_change = |(.., is_new): &(_, _, bool)| *is_new;
        let ((object, attributes, is_new), changed) = self.change_directory_if(&directory, is_change, || {
            let (object, stat) = match new {
                New::File(how) => {
                    let (object, stat, is_new) = self.make_file(caller, &directory, name, how)?;
                    let attributes = object.told(&stat, self.id);
                    return Ok((object, attributes, is_new));
                }
                New::Directory(new) => {
                    let mode = self.first_mode(&directory, &new, DEFAULT_DIRECTORY_MODE);
                    self.as_caller(caller, || mkdirat(&directory.fd, name, Mode::from_raw_mode(mode)))?;
                    self.finish(caller, &directory, name, (FileType::Directory, Some(mode)), new)?
                }
                New::Symlink(new, path) => {
                    self.as_caller(caller, || symlinkat(&path[..], &directory.fd, name))?;
                    self.finish(caller, &directory, name, (FileType::Symlink, None), new)?
                }
                New::Node(kind, new) => self.make_node(caller, &directory, name, kind, new)?,
            };
            let attributes = object.told(&stat, self.id);
            Ok((object, attributes, true))
        })?;
        Ok(Made { is_new, ..Made::new(object.id, Some(attributes), changed) })
    }

    fn as_caller<T>(&self, caller: &Caller, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Fault> {
        let assumed = self.identity.assume(caller).map_err(fault)?;
        let result = call();
        drop(assumed);
        result.map_err(fault)
    }

    /// Also returns the kernel's attributes of the file, and whether this call has made it.
    fn make_file(
        &self,
        caller: &Caller,
        directory: &Object,
        name: &[u8],
        how: CreateHow,
    ) -> Result<(Arc<Object>, Statx, bool), Fault> {
        let mode = match &how {
            CreateHow::Unchecked(new) | CreateHow::Guarded(new) => self.first_mode(directory, new, DEFAULT_FILE_MODE),
            CreateHow::Exclusive(_, new) => self.first_mode(directory, new, EXCLUSIVE_MODE),
        };
        match self.as_caller(caller, || create(&directory.fd, name, mode)) {
            Ok(file) => {
                let new = match how {
                    CreateHow::Unchecked(new) | CreateHow::Guarded(new) => new,
                    CreateHow::Exclusive(verifier, new) => {
                        futimens(&file, &verifier_times(verifier)).map_err(fault)?;
                        // The verifier is in the times.
                        NewAttributes { accessed: SetTime::Keep, modified: SetTime::Keep, ..new }
                    }
                };
                let fd = reopen(&file, OFlags::PATH).map_err(fault)?;
                let (object, stat) = self.learn(directory, name, fd)?;
                // The creator of a file may write to it, whatever its mode.
                let stat = self.set_mode(caller, directory, &object, (mode, stat))?;
                let file = Arc::new(file);
                // If the mode forbids its maker to read, and the server cannot override modes, it has no other
                // descriptor for reading.
                if mode & OWNER_READS == 0 && !self.identity.is_privileged() {
                    object.keep(caller, object::Mode::Read, &stat, file.clone());
                }
                object.keep(caller, object::Mode::Write, &stat, file);
                let stat = self.set_others(caller, &object, new, stat)?;
                Ok((object, stat, true))
            }
            Err(Fault::Exists) => self.use_existing(caller, directory, name, how),
            Err(fault) => Err(fault),
        }
    }

    /// Also returns whether this call has made the file.
    fn use_existing(
        &self,
        caller: &Caller,
        directory: &Object,
        name: &[u8],
        how: CreateHow,
    ) -> Result<(Arc<Object>, Statx, bool), Fault> {
        let fd = self.as_caller(caller, || open_beneath(&directory.fd, name, OFlags::PATH))?;
        let found = stat(&fd).map_err(fault)?;
        match how {
            CreateHow::Unchecked(new) if file_type(&found) == FileType::Regular => {
                let (object, mut told) = self.learn(directory, name, fd)?;
                if new.size.is_some() {
                    self.apply(
                        &Via::caller(caller.clone(), object.id),
                        &object,
                        &NewAttributes { size: new.size, ..NewAttributes::default() },
                    )?;
                    told = stat(&object.fd).map_err(fault)?;
                }
                Ok((object, told, false))
            }
            CreateHow::Exclusive(verifier, _) if file_type(&found) == FileType::Regular && found.stx_size == 0 => {
                let [accessed, modified] = verifier_seconds(verifier);
                if (found.stx_atime.tv_sec, found.stx_mtime.tv_sec) != (accessed, modified) {
                    return Err(Fault::Exists);
                }
                // This very call has made the file, when it was first sent.
                self.learn(directory, name, fd).map(|(object, told)| (object, told, true))
            }
            _ => Err(Fault::Exists),
        }
    }

    fn make_node(
        &self,
        caller: &Caller,
        directory: &Object,
        name: &[u8],
        kind: NodeKind,
        new: NewAttributes,
    ) -> Result<(Arc<Object>, Statx), Fault> {
        let none = Device::default();
        let (kind, told, device) = match kind {
            NodeKind::Block(device) => (fs::FileType::BlockDevice, FileType::Block, device),
            NodeKind::Character(device) => (fs::FileType::CharacterDevice, FileType::Character, device),
            NodeKind::Socket => (fs::FileType::Socket, FileType::Socket, none),
            NodeKind::Fifo => (fs::FileType::Fifo, FileType::Fifo, none),
        };
        let mode = self.first_mode(directory, &new, DEFAULT_FILE_MODE);
        let device = makedev(device.major, device.minor);
        self.as_caller(caller, || mknodat(&directory.fd, name, kind, Mode::from_raw_mode(mode), device))?;
        self.finish(caller, directory, name, (told, Some(mode)), new)
    }

    /// Finds the new file by its name, and sets its attributes. Another program may have put something else in its
    /// place meanwhile. So the code changes nothing if the file is not of the kind that was made, or if it would be
    /// given to another user and is not the superuser's.
    fn finish(
        &self,
        caller: &Caller,
        directory: &Object,
        name: &[u8],
        (kind, mode): (FileType, Option<u32>),
        new: NewAttributes,
    ) -> Result<(Arc<Object>, Statx), Fault> {
        let fd = open_beneath(&directory.fd, name, OFlags::PATH).map_err(fault)?;
        let found = stat(&fd).map_err(fault)?;
        let is_other = file_type(&found) != kind || kind != FileType::Directory && found.stx_nlink != 1;
        let given_away = self.gives_away(caller) && (new.uid.is_some() || new.gid.is_some());
        if is_other || given_away && found.stx_uid != 0 {
            return Err(Fault::NotFound);
        }
        let (object, mut stat) = self.learn(directory, name, fd)?;
        if let Some(mode) = mode {
            stat = self.set_mode(caller, directory, &object, (mode, stat))?;
        }
        let stat = self.set_others(caller, &object, NewAttributes { size: None, ..new }, stat)?;
        Ok((object, stat))
    }

    /// The mode with which a file is made: the requested one, without the bits in the maker's mask, unless a default
    /// list replaces the mask.
    fn first_mode(&self, directory: &Object, new: &NewAttributes, default: u32) -> u32 {
        let mode = new.mode.unwrap_or(default) & MODE_BITS;
        // RFC 8275 section 5.
        // NFS4-8275-b
        if new.umask == 0 || self.has_default(directory) { mode } else { mode & !new.umask }
    }

    /// Sets the new file's mode if the kernel has given it another. Takes and returns the kernel's attributes.
    fn set_mode(
        &self,
        caller: &Caller,
        directory: &Object,
        object: &Object,
        (mode, now): (u32, Statx),
    ) -> Result<Statx, Fault> {
        let has = u32::from(now.stx_mode) & MODE_BITS;
        // The bits that the directory's default list took away stay away: a program of the host would not get them
        // either.
        let mode =
            // NFS4-8275-b
            if has != mode && self.has_default(directory) { mode & !PERMISSIONS | has & PERMISSIONS } else { mode };
        // A directory may inherit its set-group-id bit.
        let inherited = match file_type(&now) {
            FileType::Directory => has & SET_GROUP_ID,
            _ => 0,
        };
        // The code does not set a mode that is already set, because that may do harm: when a caller sets a directory's
        // mode and is not in its group, the kernel clears an inherited bit. The server itself, which sets the mode for
        // the owner, keeps the bit.
        if has == mode | inherited {
            return Ok(now);
        }
        let change = || chmod(own_path(&object.fd), Mode::from_raw_mode(mode | inherited));
        match inherited != 0 && now.stx_uid == caller.uid {
            true => change().map_err(fault)?,
            false => self.as_caller(caller, change)?,
        }
        stat(&object.fd).map_err(fault)
    }

    /// Whether the caller may make files that belong to others.
    fn gives_away(&self, caller: &Caller) -> bool {
        caller.uid == 0 && self.identity.is_privileged()
    }

    /// Sets all attributes but the mode. Only the superuser makes files that belong to others; every other caller owns
    /// what it makes. Takes and returns the kernel's attributes.
    fn set_others(&self, caller: &Caller, object: &Object, new: NewAttributes, now: Statx) -> Result<Statx, Fault> {
        let (uid, gid) = if self.gives_away(caller) { (new.uid, new.gid) } else { (None, None) };
        // A new file has no bytes: cutting it to none would only change its times.
        let size = new.size.filter(|size| *size != 0);
        let new = NewAttributes { mode: None, uid, gid, size, umask: 0, ..new };
        if new == NewAttributes::default() {
            return Ok(now);
        }
        self.apply(&Via::caller(caller.clone(), object.id), object, &new)?;
        stat(&object.fd).map_err(fault)
    }
}

fn create(directory: &OwnedFd, name: &[u8], mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(directory, name, flags, Mode::from_raw_mode(mode), resolve)
}

/// The verifier as two times; without the highest bits, because not every file system keeps seconds beyond 2038.
fn verifier_seconds([a, b, c, d, e, f, g, h]: [u8; 8]) -> [i64; 2] {
    [[a, b, c, d], [e, f, g, h]].map(|octets| i64::from(u32::from_be_bytes(octets) & 0x7FFF_FFFF))
}

fn verifier_times(verifier: [u8; 8]) -> fs::Timestamps {
    let [accessed, modified] =
        verifier_seconds(verifier).map(|seconds| SetTime::Client(Time { seconds, nanoseconds: 0 }));
    timestamps(accessed, modified)
}
