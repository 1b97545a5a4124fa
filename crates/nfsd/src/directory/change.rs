//! Changing attributes and names.
//!
//! The server takes attributes before and after each change, and lets no other change of the same object go through it
//! meanwhile; it cannot exclude changes by other processes of the host. It closes removed files, so that their storage
//! is freed.

use super::{
    Cover, Inner, Object,
    access::Owner,
    attributes::{self, MODE_BITS, fault, stat, timestamps},
    object,
    opens::Open,
    resolve::{open_beneath, own_path},
};
use crate::{Caller, Changed, Failure, Fault, FileId, Linked, Renamed, Via, failed};
use rpcrdma_nfs::attr::{Attributes, Change, FileType, NewAttributes, SetTime, Time};
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, CWD, Mode, OFlags, Statx, chmod, chownat, fchmod, ftruncate, linkat, renameat, unlinkat, utimensat},
    io::Errno,
    process::{Gid, Uid},
};

/// A file that is about to lose a name.
struct Victim {
    id: FileId,
    fd: OwnedFd,
    stat: Statx,
    is_directory: bool,
}

impl Inner {
    pub(super) fn set_attributes(&self, via: &Via, new: &NewAttributes, guard: Option<Time>) -> Changed<Change> {
        if Cover::of(via.file()).is_some() {
            return Err(failed(Fault::ReadOnly));
        }
        let object = self.present(via.file()).map_err(failed)?;
        let ((), changed) = self.change_file(&object, || {
            if let Some(guard) = guard {
                let now = stat(&object.fd).map_err(fault)?;
                if attributes::attributes(&now, self.id).changed != guard {
                    return Err(Fault::Changed);
                }
            }
            self.apply(via, &object, new)
        })?;
        Ok(changed)
    }

    /// Sets attributes: the size first, since truncation changes the times, and the times last.
    pub(super) fn apply(&self, via: &Via, object: &Object, new: &NewAttributes) -> Result<(), Fault> {
        let caller = &via.caller;
        if let Some(size) = new.size {
            if i64::try_from(size).is_err() {
                return Err(Fault::TooLarge);
            }
            let opened = match via.opened_as::<Open>().and_then(|open| open.descriptor(object::Mode::Write)) {
                Some(opened) => opened,
                None => self.open(caller, object, object::Mode::Write, Owner::Always)?.0,
            };
            // As the caller, for the same reasons as in a write.
            let assumed = self.identity.assume(caller).map_err(fault)?;
            let cut = ftruncate(&opened, size);
            drop(assumed);
            cut.map_err(fault)?;
        }
        let sets_rights = new.mode.is_some() || new.uid.is_some() || new.gid.is_some();
        let renews = sets_rights && !self.identity.is_privileged();
        let before = renews.then(|| stat(&object.fd).map_err(fault)).transpose()?;
        let assumed = self.identity.assume(caller).map_err(fault)?;
        // The code sets even an owner that the file already has: only the owner may, and set-user-ID and set-group-ID
        // bits go.
        let (uid, gid) = (new.uid, new.gid);
        if uid.is_some() || gid.is_some() {
            if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
                return Err(Fault::Invalid);
            }
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            chownat(&object.fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(fault)?;
        }
        if let Some(mode) = new.mode
            && object.file_type != FileType::Symlink
        {
            let mode = Mode::from_raw_mode(mode & MODE_BITS);
            // By a descriptor if there is one: the kernel finds it faster than by a path.
            let set = match object.opens.descriptor() {
                Some(open) => fchmod(&open, mode),
                None => chmod(own_path(&object.fd), mode),
            };
            set.map_err(fault)?;
        }
        if (new.accessed, new.modified) != (SetTime::Keep, SetTime::Keep) {
            utimensat(&object.fd, "", &timestamps(new.accessed, new.modified), AtFlags::EMPTY_PATH).map_err(fault)?;
        }
        drop(assumed);
        if let Some(before) = before {
            // Some servers cannot take on other identities. If a caller then sets a mode while it has the file open,
            // its access goes on, as for a process.
            object.renew(caller, &before, &stat(&object.fd).map_err(fault)?);
        }
        Ok(())
    }

    pub(super) fn remove(
        &self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        is_directory: bool,
    ) -> Changed<Change> {
        let directory = self.found_directory(directory).map_err(failed)?;
        // Closed after the directory is free for others again: the storage of a large file takes time to free.
        let mut victim = None;
        let ((), changed) = self.change_directory(&directory, || {
            self.check_not_hidden(&directory, name, Fault::NotFound)?;
            victim = self.peek(&directory, name);
            let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            let assumed = self.identity.assume(caller).map_err(fault)?;
            let removed = unlinkat(&directory.fd, name, flags);
            drop(assumed);
            removed.map_err(fault)
        })?;
        if let Some(victim) = victim {
            self.unlinked(&victim, &directory, name);
        }
        Ok(changed)
    }

    /// The file that has a name, before the name is taken away.
    fn peek(&self, directory: &Object, name: &[u8]) -> Option<Victim> {
        self.try_peek(directory, name).ok()
    }

    fn try_peek(&self, directory: &Object, name: &[u8]) -> Result<Victim, Errno> {
        let fd = open_beneath(&directory.fd, name, OFlags::PATH)?;
        let stat = stat(&fd)?;
        let is_directory = attributes::file_type(&stat) == FileType::Directory;
        Ok(Victim { id: self.ids.of(&fd, &stat), fd, stat, is_directory })
    }

    /// The same; fails with `fault` if the name is the hidden one.
    fn peek_unless_hidden(&self, directory: &Object, name: &[u8], fault: Fault) -> Result<Option<Victim>, Fault> {
        let (is_hidden, victim) = match self.try_peek(directory, name) {
            Ok(victim) => (self.hidden.is(&victim.stat), Some(victim)),
            Err(Errno::NOENT) => (false, None),
            // A mount point, for example.
            Err(_) => (self.is_hidden_name(directory, name), None),
        };
        if is_hidden { Err(fault) } else { Ok(victim) }
    }

    /// A file has lost a name. Only now the code asks whether it was the last: the file may have got another meanwhile.
    fn unlinked(&self, victim: &Victim, directory: &Object, name: &[u8]) {
        self.forget(victim.id, directory, name);
        self.links_changed(victim);
        if victim.is_directory || stat(&victim.fd).is_ok_and(|stat| stat.stx_nlink == 0) {
            self.gone(victim.id);
        }
    }

    /// The file changes when one of its names is added, removed or changed.
    fn links_changed(&self, file: &Victim) {
        if let (Some(object), Ok(after)) = (self.cache.peek(file.id), stat(&file.fd)) {
            object.has_changed(&file.stat, &after);
        }
    }

    pub(super) fn rename(
        &self,
        caller: &Caller,
        (from_directory, from): (FileId, &[u8]),
        (to_directory, to): (FileId, &[u8]),
    ) -> Result<Renamed, Failure<Renamed>> {
        let first = self.found_directory(from_directory).map_err(failed)?;
        let second = match from_directory == to_directory {
            true => None,
            false => Some(self.found_directory(to_directory).map_err(failed)?),
        };
        // Always in the same order, so that two renames cannot block each other.
        let changing = match &second {
            None => (first.begin_change(), None),
            Some(second) if first.id < second.id => (first.begin_change(), Some(second.begin_change())),
            Some(second) => (second.begin_change(), Some(first.begin_change())),
        };
        let before_first = first.told(&self.present_stat(&first).map_err(failed)?, self.id).before();
        let before_second = match &second {
            None => before_first,
            Some(second) => second.told(&self.present_stat(second).map_err(failed)?, self.id).before(),
        };
        let second = second.as_ref().unwrap_or(&first);
        let moved = self.peek_unless_hidden(&first, from, Fault::NotFound).map_err(failed)?;
        let replaced = self.peek_unless_hidden(second, to, Fault::Exists).map_err(failed)?;
        if moved.as_ref().is_some_and(|moved| moved.is_directory && self.hidden.lies_below(&moved.fd)) {
            return Err(failed(Fault::Denied));
        }
        let renamed = self.identity.assume(caller).and_then(|assumed| {
            let renamed = renameat(&first.fd, from, &second.fd, to);
            drop(assumed);
            renamed
        });
        let after_first = self.now(&first);
        let after_second = if from_directory == to_directory { after_first.clone() } else { self.now(second) };
        let info = Renamed {
            from_directory: Change { before: Some(before_first), after: after_first },
            to_directory: Change { before: Some(before_second), after: after_second },
        };
        drop(changing);
        if let Err(error) = renamed {
            return Err(Failure { fault: fault_of_names(error), info });
        }
        // Both are names of one file: nothing has happened.
        if let Some(moved) = moved
            && let id = moved.id
            && replaced.as_ref().is_none_or(|other| other.id != id)
        {
            if let Some(replaced) = replaced {
                self.unlinked(&replaced, second, to);
            }
            self.links_changed(&moved);
            self.forget(id, &first, from);
            if let Err(fault) = self.remember(id, second, to) {
                return Err(Failure { fault, info });
            }
        }
        Ok(info)
    }

    pub(super) fn now(&self, object: &Object) -> Option<Attributes> {
        stat(&object.fd).ok().map(|stat| object.told(&stat, self.id))
    }

    pub(super) fn link(
        &self,
        caller: &Caller,
        file: FileId,
        directory: FileId,
        name: &[u8],
    ) -> Result<Linked, Failure<Linked>> {
        let object = self.object(file).map_err(failed)?;
        let directory = self.found_directory(directory).map_err(failed)?;
        let changed = self.change_directory(&directory, || {
            if object.file_type == FileType::Directory {
                return Err(Fault::NotOwner);
            }
            let before = stat(&object.fd).map_err(fault)?;
            let assumed = self.identity.assume(caller).map_err(fault)?;
            let linked = linkat(CWD, own_path(&object.fd), &directory.fd, name, AtFlags::SYMLINK_FOLLOW);
            drop(assumed);
            linked.map_err(fault_of_names)?;
            if let Ok(after) = stat(&object.fd) {
                object.has_changed(&before, &after);
            }
            self.remember(object.id, &directory, name)
        });
        let attributes = self.now(&object);
        match changed {
            Ok(((), directory)) => Ok(Linked { attributes, directory }),
            Err(Failure { fault, info: directory }) => Err(Failure { fault, info: Linked { attributes, directory } }),
        }
    }
}

/// The fault of an operation on two names, which may be on different file systems.
fn fault_of_names(error: Errno) -> Fault {
    match error {
        Errno::XDEV => Fault::OtherFileSystem,
        other => fault(other),
    }
}
