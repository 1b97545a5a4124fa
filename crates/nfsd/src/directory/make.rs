//! Making files.
//!
//! The kernel makes each file as the caller; its mode is then set to what was asked where the process's mask or the
//! directory's defaults made another of it. The verifier of an exclusive creation is kept in the new file's times, as is
//! usual: it survives a restart, and the client's first SETATTR replaces it.

use super::{
    Inner, Object,
    attributes::{self, MODE_BITS, file_type, stat, status, timestamps},
    object,
    resolve::{open_beneath, own_path, reopen},
};
use crate::{Caller, Changed, FileId, Made, New, failed};
use rpcrdma_nfs::v3::{
    Attributes, CreateHow, FileType, NewAttributes, NodeKind, SetTime, Specification, Status, Time, Verifier,
};
use rustix::{
    fd::OwnedFd,
    fs::{self, Mode, OFlags, ResolveFlags, chmod, futimens, makedev, mkdirat, mknodat, openat2, symlinkat},
    io::Errno,
};
use std::sync::Arc;

/// The mode of a file where the client asks for none.
const DEFAULT_FILE_MODE: u32 = 0o644;
/// The mode of a directory where the client asks for none.
const DEFAULT_DIRECTORY_MODE: u32 = 0o755;
/// The mode of a file that was made exclusively, until the client sets another.
const EXCLUSIVE_MODE: u32 = 0o600;
/// On a directory: what is made in it gets its group, and directories this bit, too.
const SET_GROUP_ID: u32 = 0o2000;

impl Inner {
    pub(super) fn make(&self, caller: &Caller, directory: FileId, name: &[u8], new: New) -> Changed<Made> {
        let directory = self.directory(directory).map_err(failed)?;
        let ((object, attributes), changed) = self.change_file(&directory, || {
            let object = match new {
                New::File(how) => self.make_file(caller, &directory, name, how)?,
                New::Directory(new) => {
                    let mode = new.mode.unwrap_or(DEFAULT_DIRECTORY_MODE) & MODE_BITS;
                    self.as_caller(caller, || mkdirat(&directory.fd, name, Mode::from_raw_mode(mode)))?;
                    self.finish(caller, &directory, name, (FileType::Directory, Some(mode)), new)?
                }
                New::Symlink(new, path) => {
                    self.as_caller(caller, || symlinkat(&path[..], &directory.fd, name))?;
                    self.finish(caller, &directory, name, (FileType::Symlink, None), new)?
                }
                New::Node(kind) => self.make_node(caller, &directory, name, kind)?,
            };
            let stat = stat(&object.fd).map_err(status)?;
            Ok((object, attributes::attributes(&stat, self.id)))
        })?;
        let attributes: Option<Attributes> = Some(attributes);
        Ok(Made { file: object.id, attributes, directory: changed })
    }

    fn as_caller<T>(&self, caller: &Caller, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Status> {
        let assumed = self.identity.assume(caller).map_err(status)?;
        let result = call();
        drop(assumed);
        result.map_err(status)
    }

    fn make_file(
        &self,
        caller: &Caller,
        directory: &Object,
        name: &[u8],
        how: CreateHow,
    ) -> Result<Arc<Object>, Status> {
        let mode = match &how {
            CreateHow::Unchecked(new) | CreateHow::Guarded(new) => new.mode.unwrap_or(DEFAULT_FILE_MODE),
            CreateHow::Exclusive(_) => EXCLUSIVE_MODE,
        };
        let mode = mode & MODE_BITS;
        match self.as_caller(caller, || create(&directory.fd, name, mode)) {
            Ok(file) => {
                let new = match how {
                    CreateHow::Unchecked(new) | CreateHow::Guarded(new) => new,
                    CreateHow::Exclusive(verifier) => {
                        futimens(&file, &verifier_times(verifier)).map_err(status)?;
                        NewAttributes::default()
                    }
                };
                let fd = reopen(&file, OFlags::PATH).map_err(status)?;
                let (object, _) = self.learn(directory, name, fd)?;
                self.set_mode(caller, &object, mode)?;
                // Whoever makes a file may write to it, whatever its mode.
                let stat = stat(&object.fd).map_err(status)?;
                object.keep(caller, object::Mode::Write, &stat, Arc::new(file));
                self.set_others(caller, &object, new)?;
                Ok(object)
            }
            Err(Status::EXIST) => self.use_existing(caller, directory, name, how),
            Err(status) => Err(status),
        }
    }

    fn use_existing(
        &self,
        caller: &Caller,
        directory: &Object,
        name: &[u8],
        how: CreateHow,
    ) -> Result<Arc<Object>, Status> {
        let fd = self.as_caller(caller, || open_beneath(&directory.fd, name, OFlags::PATH))?;
        let found = stat(&fd).map_err(status)?;
        match how {
            CreateHow::Unchecked(new) if file_type(&found) == FileType::Regular => {
                let (object, _) = self.learn(directory, name, fd)?;
                if new.size.is_some() {
                    self.apply(caller, &object, &NewAttributes { size: new.size, ..NewAttributes::default() })?;
                }
                Ok(object)
            }
            CreateHow::Exclusive(verifier) if file_type(&found) == FileType::Regular && found.stx_size == 0 => {
                let [accessed, modified] = verifier_seconds(verifier).map(i64::from);
                if (found.stx_atime.tv_sec, found.stx_mtime.tv_sec) != (accessed, modified) {
                    return Err(Status::EXIST);
                }
                self.learn(directory, name, fd).map(|(object, _)| object)
            }
            _ => Err(Status::EXIST),
        }
    }

    fn make_node(
        &self,
        caller: &Caller,
        directory: &Object,
        name: &[u8],
        kind: NodeKind,
    ) -> Result<Arc<Object>, Status> {
        let none = Specification::default();
        let (kind, told, new, device) = match kind {
            NodeKind::Block(new, device) => (fs::FileType::BlockDevice, FileType::Block, new, device),
            NodeKind::Character(new, device) => (fs::FileType::CharacterDevice, FileType::Character, new, device),
            NodeKind::Socket(new) => (fs::FileType::Socket, FileType::Socket, new, none),
            NodeKind::Fifo(new) => (fs::FileType::Fifo, FileType::Fifo, new, none),
            NodeKind::Other(_) => return Err(Status::BADTYPE),
        };
        let mode = new.mode.unwrap_or(DEFAULT_FILE_MODE) & MODE_BITS;
        let device = makedev(device.major, device.minor);
        self.as_caller(caller, || mknodat(&directory.fd, name, kind, Mode::from_raw_mode(mode), device))?;
        self.finish(caller, directory, name, (told, Some(mode)), new)
    }

    /// Finds what was just made by its name, and gives it its attributes. Somebody may have put something else in its
    /// place meanwhile: what is not of the kind that was made, or would be given away without being the superuser's, is
    /// left alone.
    fn finish(
        &self,
        caller: &Caller,
        directory: &Object,
        name: &[u8],
        (kind, mode): (FileType, Option<u32>),
        new: NewAttributes,
    ) -> Result<Arc<Object>, Status> {
        let fd = open_beneath(&directory.fd, name, OFlags::PATH).map_err(status)?;
        let found = stat(&fd).map_err(status)?;
        let is_other = file_type(&found) != kind || kind != FileType::Directory && found.stx_nlink != 1;
        let given_away = self.gives_away(caller) && (new.uid.is_some() || new.gid.is_some());
        if is_other || given_away && found.stx_uid != 0 {
            return Err(Status::NOENT);
        }
        let (object, _) = self.learn(directory, name, fd)?;
        if let Some(mode) = mode {
            self.set_mode(caller, &object, mode)?;
        }
        self.set_others(caller, &object, NewAttributes { size: None, ..new })?;
        Ok(object)
    }

    fn set_mode(&self, caller: &Caller, object: &Object, mode: u32) -> Result<(), Status> {
        let now = stat(&object.fd).map_err(status)?;
        let has = u32::from(now.stx_mode) & MODE_BITS;
        // A directory may inherit its set-group-id bit.
        let inherited = match file_type(&now) {
            FileType::Directory => has & SET_GROUP_ID,
            _ => 0,
        };
        // Setting what is there already is not harmless: the kernel takes an inherited bit from a directory when a
        // caller who is not in its group sets its mode. The server itself, which sets it for the owner, keeps the bit.
        if has == mode | inherited {
            return Ok(());
        }
        let change = || chmod(own_path(&object.fd), Mode::from_raw_mode(mode | inherited));
        if inherited != 0 && now.stx_uid == caller.uid {
            return change().map_err(status);
        }
        self.as_caller(caller, change)
    }

    /// Whether the caller may make files for others.
    fn gives_away(&self, caller: &Caller) -> bool {
        caller.uid == 0 && self.identity.is_privileged()
    }

    /// All attributes but the mode. Only the superuser makes files for others; who else asks gets his own.
    fn set_others(&self, caller: &Caller, object: &Object, new: NewAttributes) -> Result<(), Status> {
        let (uid, gid) = if self.gives_away(caller) { (new.uid, new.gid) } else { (None, None) };
        // A new file has no octets: cutting it to none would only change its times.
        let size = new.size.filter(|size| *size != 0);
        self.apply(caller, object, &NewAttributes { mode: None, uid, gid, size, ..new })
    }
}

fn create(directory: &OwnedFd, name: &[u8], mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(directory, name, flags, Mode::from_raw_mode(mode), resolve)
}

/// The verifier as two times; the highest bits are left out, because not every file system keeps seconds beyond 2038.
fn verifier_seconds(Verifier([a, b, c, d, e, f, g, h]): Verifier) -> [u32; 2] {
    [[a, b, c, d], [e, f, g, h]].map(|octets| u32::from_be_bytes(octets) & 0x7FFF_FFFF)
}

fn verifier_times(verifier: Verifier) -> fs::Timestamps {
    let [accessed, modified] =
        verifier_seconds(verifier).map(|seconds| SetTime::Client(Time { seconds, nanoseconds: 0 }));
    timestamps(accessed, modified)
}
