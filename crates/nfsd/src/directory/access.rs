//! What a caller may do, and opening files for callers.

use super::{
    Cover, Inner, Object,
    attributes::{self, fault, stat},
    object::{self, Doubtful, Kept, Mode},
    posix_acl,
    resolve::{own_path, reopen},
};
use crate::{Caller, Failure, Fault, FileId, Rights, Told, failed};
use bytes::Bytes;
use rpcrdma_nfs::attr::{Attributes, FileType};
use rustix::{
    fd::OwnedFd,
    fs::{Access, AtFlags, CWD, OFlags, Statx, accessat, readlinkat},
    io::Errno,
};
use std::sync::Arc;

/// What the owner of a file may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// What its mode says, as for a program that opens the file.
    AsModeSays,
    /// Everything, as far as the server can: a program that opened a file before its mode forbade it may go on, and
    /// without an OPEN a call does not show whether it comes from such a program.
    Always,
}

impl Inner {
    pub(super) fn access(&self, caller: &Caller, file: FileId, rights: Rights) -> Told<(Rights, Option<Attributes>)> {
        if let Some(cover) = Cover::of(file) {
            return Ok((rights & (Rights::READ | Rights::LOOKUP), Some(cover.attributes(self.id))));
        }
        let object = self.present(file).map_err(failed)?;
        let granted = self.granted(caller, &object, rights);
        let attributes = stat(&object.fd).ok().map(|stat| object.told(&stat, self.id));
        match granted {
            Ok(granted) => Ok((granted, attributes)),
            Err(error) => Err(Failure { fault: fault(error), info: attributes }),
        }
    }

    fn granted(&self, caller: &Caller, object: &Object, rights: Rights) -> Result<Rights, Errno> {
        let is_directory = object.file_type == FileType::Directory;
        let (read, write, execute) = match object.file_type {
            FileType::Directory => (Rights::READ, Rights::MODIFY | Rights::EXTEND | Rights::DELETE, Rights::LOOKUP),
            // Symbolic links have no rights of their own.
            FileType::Symlink => return Ok(rights & Rights::READ),
            _ => (Rights::READ, Rights::MODIFY | Rights::EXTEND, Rights::EXECUTE),
        };
        let path = own_path(&object.fd);
        let assumed = self.identity.assume(caller)?;
        let mut granted = Rights::NONE;
        for (asked, mode) in [(read, Access::READ_OK), (write, Access::WRITE_OK), (execute, Access::EXEC_OK)] {
            if (rights & asked).is_empty() {
                continue;
            }
            match accessat(CWD, &path, mode, AtFlags::EACCESS) {
                Ok(()) => granted |= rights & asked,
                Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => {}
                Err(error) => return Err(error),
            }
        }
        drop(assumed);
        // A change of a directory's entries takes both rights.
        if is_directory && (granted & execute).is_empty() && !(rights & write).is_empty() {
            let assumed = self.identity.assume(caller)?;
            if accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS).is_err() {
                granted = granted & !write;
            }
            drop(assumed);
        }
        Ok(granted)
    }

    pub(super) fn read_link(&self, _: &Caller, link: FileId) -> Told<(Bytes, Option<Attributes>)> {
        if Cover::of(link).is_some() {
            return Err(failed(Fault::Invalid));
        }
        let object = self.object(link).map_err(failed)?;
        let attributes = self.attributes(link).map_err(failed)?;
        if object.file_type != FileType::Symlink {
            return Err(Failure { fault: Fault::Invalid, info: Some(attributes) });
        }
        match readlinkat(&object.fd, "", Vec::new()) {
            Ok(path) => Ok((path.into_bytes().into(), Some(attributes))),
            Err(error) => Err(Failure { fault: fault(error), info: Some(attributes) }),
        }
    }

    /// Whether the mode of a file lets a caller open it, whatever the caller already has open.
    fn mode_allows(&self, caller: &Caller, object: &Object, mode: Mode) -> Result<bool, Fault> {
        // To execute a program, its file must be readable.
        let reads = Rights::READ | Rights::EXECUTE;
        let rights = match mode {
            Mode::Read => reads,
            Mode::Write => Rights::MODIFY,
            Mode::Both => reads | Rights::MODIFY,
        };
        let granted = self.granted(caller, object, rights).map_err(fault)?;
        let may_read = !(granted & reads).is_empty();
        let may_write = granted.contains(Rights::MODIFY);
        Ok((mode == Mode::Write || may_read) && (mode == Mode::Read || may_write))
    }

    /// Whether a caller may still use the descriptor that it has opened. `stat` is of now.
    ///
    /// If the file has no access control list, and had none when the kernel last allowed this, nothing has changed that
    /// would change the answer. To ask the kernel takes seven system calls, to look for a list takes one.
    fn still_allows(&self, caller: &Caller, object: &Object, stat: &Statx, asked: &Doubtful) -> Result<bool, Fault> {
        let is_unlisted = self.local && posix_acl::is_absent(&asked.file);
        let may = is_unlisted && asked.was_unlisted || self.mode_allows(caller, object, asked.mode)?;
        // Nothing has come and gone while the kernel was asked.
        let is_same = || {
            let is_as_before = |now: &Statx| object::is_unchanged(stat, now);
            posix_acl::is_absent(&asked.file) && attributes::stat(&object.fd).as_ref().is_ok_and(is_as_before)
        };
        let is_unlisted = is_unlisted && (asked.was_unlisted || is_same());
        object.answered(&asked.file, stat, may, is_unlisted);
        Ok(may)
    }

    /// A descriptor with which the caller may read or write the file now. If the mode does not let the server's user
    /// open the file, the server leaves the mode as it is, and refuses the call (NFS3-OWN-a).
    pub(super) fn open(
        &self,
        caller: &Caller,
        object: &Object,
        mode: Mode,
        owner: Owner,
    ) -> Result<(Arc<OwnedFd>, Statx), Fault> {
        let stat = stat(&object.fd).map_err(fault)?;
        self.check_there(object, &stat)?;
        self.open_as_of(&stat, caller, object, mode, owner).map(|file| (file, stat))
    }

    /// The same for a file that is there, with the kernel's attributes of now.
    pub(super) fn open_as_of(
        &self,
        stat: &Statx,
        caller: &Caller,
        object: &Object,
        mode: Mode,
        owner: Owner,
    ) -> Result<Arc<OwnedFd>, Fault> {
        match object.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Fault::IsDirectory),
            FileType::Symlink => return Err(Fault::IsSymlink),
            _ => return Err(Fault::IsSpecial),
        }
        match object.kept(caller, mode, stat, self.identity.keeping()) {
            Kept::Valid(file) => {
                // The caller's open descriptor may be older than the mode, or the caller may have made the file with a
                // mode that forbids opening it.
                let may = owner == Owner::Always || self.mode_allows(caller, object, mode)?;
                return if may { Ok(file) } else { Err(Fault::Denied) };
            }
            // Each WRITE changes the inode; to close the file and open it again for each takes longer than to ask.
            Kept::Doubtful(doubtful) => {
                if self.still_allows(caller, object, stat, &doubtful)? {
                    return Ok(doubtful.file);
                }
            }
            Kept::None => {}
        }
        // A further descriptor would break the lease that keeps programs of the host from the file.
        if let Some(shared) = object.leased.shared() {
            let is_owner = owner == Owner::Always && caller.uid == stat.stx_uid;
            let may = is_owner || self.mode_allows(caller, object, mode)?;
            return if may { Ok(shared) } else { Err(Fault::Denied) };
        }
        object.leased.give_up_for(mode);
        let flags = match mode {
            Mode::Read => OFlags::RDONLY,
            Mode::Write => OFlags::WRONLY,
            Mode::Both => OFlags::RDWR,
        };
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let assumed = self.identity.assume(caller).map_err(fault)?;
        let opened = reopen(&object.fd, flags);
        let executable = mode == Mode::Read
            && matches!(opened, Err(Errno::ACCESS))
            && accessat(CWD, own_path(&object.fd), Access::EXEC_OK, AtFlags::EACCESS).is_ok();
        drop(assumed);
        let may_as_owner = owner == Owner::Always && caller.uid == stat.stx_uid;
        let opened = match opened {
            // To execute a program, its file must be readable.
            Err(Errno::ACCESS) if self.identity.is_privileged() && (executable || may_as_owner) => {
                reopen(&object.fd, flags)
            }
            other => other,
        };
        let file = Arc::new(opened.map_err(fault)?);
        object.keep(caller, mode, stat, file.clone());
        Ok(file)
    }
}
