//! Where `get` writes a file: a temporary file beside the target, which takes its name when it is whole, or the target.
//!
//! A temporary file that is not finished is removed when it is dropped, whatever the reason, so that a copy that fails
//! or is interrupted leaves only the old file. In a directory that this run has made, a small file has no name until it
//! is whole: it then gets its own, which costs less than a temporary one. Nothing is written through a symbolic link,
//! and only files are written to: a server that lists one name as a pipe and again as a file could make us wait for the
//! pipe's reader.

use super::{set_file, times};
use crate::{
    args::Placing,
    copy::data_runs,
    failure,
    partial::{NAMES_TRIED, RESUME_SPAN, part_name, resume_at, temporary_name},
};
use anyhow::{Context, Result, bail, ensure};
use rpcrdma_env::Random;
use rpcrdma_nfs::attr::{Attributes, Time};
use rustix::{
    fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, linkat},
    io::Errno,
};
use std::{
    cell::Cell,
    ffi::OsStr,
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
};

/// A local file that is being written.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// The name of the open file: a temporary one, or the target. `None` while it has no name.
    path: Option<PathBuf>,
    target: PathBuf,
    /// It was made by this copy.
    made: bool,
    /// It stays for `--resume` even if the copy fails.
    kept: bool,
    finished: bool,
    /// The position from which it is written.
    pub(super) offset: u64,
    /// Bytes that the file has so far.
    len: Cell<u64>,
    /// Why it is written in place although the user did not ask for that.
    pub(super) in_place: Option<&'static str>,
}

/// How a file is to be written.
enum Way {
    Beside,
    /// With the reason to report; none if the user asked for it.
    InPlace(Option<&'static str>),
}

/// The existing file, or `None`.
///
/// # Errors
/// If it is of a kind that is not written to.
pub(super) fn existing(target: &Path) -> Result<Option<Metadata>> {
    let found = match fs::symlink_metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    ensure!(!found.is_symlink(), "is a symbolic link here; nothing is written through it");
    ensure!(found.is_file(), "is not a file here");
    Ok(Some(found))
}

/// Where the part of a file lies that `--resume` goes on with.
pub(super) fn part_path(target: &Path) -> Option<PathBuf> {
    Some(target.with_file_name(OsStr::from_bytes(&part_name(target.file_name()?.as_bytes()))))
}

/// How an existing file is written to: in place, if its other names, its owner and its rights must stay.
fn way(found: Option<&Metadata>, placing: Placing) -> Way {
    match found {
        _ if placing.inplace => Way::InPlace(None),
        Some(found) if found.nlink() > 1 => Way::InPlace(Some("it has several names")),
        Some(found) if found.uid() != rustix::process::geteuid().as_raw() => {
            Way::InPlace(Some("it belongs to another user"))
        }
        _ => Way::Beside,
    }
}

/// With these options, opening a file does not wait, and follows no symbolic link.
fn careful(options: &mut OpenOptions) -> &mut OpenOptions {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    options.write(true).mode(0o600).custom_flags(flags)
}

impl Output {
    /// Opens the part of the file that becomes `target`, if it is to be written with `--resume` and not in place.
    pub(super) fn open_part(target: &Path, placing: Placing, source: &Attributes) -> Result<Option<Self>> {
        let beside = matches!(way(existing(target)?.as_ref(), placing), Way::Beside);
        // A file that is empty, or does not tell its size, has no part that is worth anything.
        if !placing.resume || !beside || source.size == 0 {
            return Ok(None);
        }
        let path = part_path(target).context("has no name of its own")?;
        match Self::part(target, path.clone(), source) {
            // Where no part can be made, the file may still be written in place.
            Err(error) if is_errno(&error, &[Errno::NAMETOOLONG]) || may_not_make(&error) && is_absent(&path) => {
                Ok(None)
            }
            part => part.map(Some),
        }
    }

    /// Opens the file that becomes `target` and has no name until then. `None` if the file system has no such files.
    pub(super) fn open_unnamed(target: &Path) -> Option<Self> {
        let directory = target.parent().filter(|directory| !directory.as_os_str().is_empty());
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(directory.unwrap_or(Path::new(".")), flags, Mode::RUSR | Mode::WUSR).ok()?;
        Some(Self::new(File::from(file), None, target))
    }

    /// Opens the file that becomes `target` in a directory that this run has made, in which no old file can be lost.
    pub(super) fn open_in_new(target: &Path, random: &dyn Random) -> Result<Self> {
        match Self::temporary(target, random) {
            Err(error) if is_errno(&error, &[Errno::NAMETOOLONG]) => {
                let file = careful(&mut OpenOptions::new()).create_new(true).open(target)?;
                Ok(Self::new(file, target.to_owned(), target))
            }
            other => other,
        }
    }

    /// Opens the file that becomes `target`. An existing file is changed only if it is written in place, and its old
    /// contents are then gone: call this when the first bytes have come.
    pub(super) fn open(target: &Path, placing: Placing, source: &Attributes, random: &dyn Random) -> Result<Self> {
        let found = existing(target)?;
        match way(found.as_ref(), placing) {
            Way::InPlace(reason) => Self::in_place(target, found.is_some(), source, reason),
            Way::Beside => match Self::temporary(target, random) {
                // A user who may not make a file there may still be allowed to write to this one.
                Err(error) if found.is_some() && may_not_make(&error) => {
                    Self::in_place(target, true, source, Some("its directory cannot be written to"))
                }
                // The name of a temporary file may be too long where the target's is not.
                Err(error) if is_errno(&error, &[Errno::NAMETOOLONG]) => Self::in_place(
                    target,
                    found.is_some(),
                    source,
                    Some("the longer name of a temporary file would be too long"),
                ),
                other => other,
            },
        }
    }

    fn new(file: File, path: impl Into<Option<PathBuf>>, target: &Path) -> Self {
        let target = target.to_owned();
        Self {
            file,
            path: path.into(),
            target,
            made: true,
            kept: false,
            finished: false,
            offset: 0,
            len: Cell::new(0),
            in_place: None,
        }
    }

    fn temporary(target: &Path, random: &dyn Random) -> Result<Self> {
        let name = target.file_name().context("has no name of its own")?;
        for _ in 0..NAMES_TRIED {
            let path = target.with_file_name(OsStr::from_bytes(&temporary_name(name.as_bytes(), random)));
            match careful(&mut OpenOptions::new()).create_new(true).open(&path) {
                Ok(file) => return Ok(Self::new(file, path, target)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).context("cannot make a temporary file beside it"),
            }
        }
        bail!("cannot find a free name for a temporary file beside it")
    }

    fn in_place(target: &Path, exists: bool, source: &Attributes, reason: Option<&'static str>) -> Result<Self> {
        let file = careful(&mut OpenOptions::new()).create_new(!exists).open(target)?;
        let here = file.metadata()?;
        ensure!(here.is_file(), "is not a file here");
        ensure!(!is_same_file(&here, source), "is the same file as its source");
        if exists {
            narrow(&file, &here, source)?;
        }
        file.set_len(0)?;
        let mut output = Self::new(file, target.to_owned(), target);
        (output.made, output.in_place) = (!exists, reason);
        Ok(output)
    }

    /// The part that an earlier copy has left, or a new one.
    fn part(target: &Path, path: PathBuf, source: &Attributes) -> Result<Self> {
        let shown = path.display();
        let open = |path: &Path| careful(&mut OpenOptions::new()).create(true).truncate(false).open(path);
        let file = locked(&path, open).with_context(|| format!("cannot write to {shown}"))?;
        let here = file.metadata()?;
        let own = here.is_file() && here.nlink() == 1 && here.uid() == rustix::process::geteuid().as_raw();
        ensure!(own, "{shown} is in the way: it is not a regular file of yours with a single name");
        file.set_permissions(Permissions::from_mode(0o600))?;
        let mark = Time { seconds: here.atime(), nanoseconds: u32::try_from(here.atime_nsec()).unwrap_or(0) };
        let offset = resume_at(here.len(), mark, source.size, source.modified).unwrap_or(0);
        file.set_len(offset)?;
        let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let marked = Timestamps { last_access: times(source).last_modification, last_modification: omitted };
        rustix::fs::futimens(&file, &marked).context("setting the times")?;
        let mut output = Self::new(file, path.clone(), target);
        (output.kept, output.offset, output.len) = (true, offset, Cell::new(offset));
        Ok(output)
    }

    /// The file that is open.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    fn write_all_at(&self, octets: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(octets, offset)?;
        self.len.set(self.len.get().max(offset + octets.len() as u64));
        Ok(())
    }

    /// Writes the data of the source except its holes: a file that uses less storage than its size has some.
    pub(super) fn write_data(&self, octets: &[u8], offset: u64, source: &Attributes) -> io::Result<()> {
        if source.used >= source.size {
            return self.write_all_at(octets, offset);
        }
        data_runs(octets).into_iter().try_for_each(|run| {
            let at = offset + run.start as u64;
            self.write_all_at(&octets[run], at)
        })
    }

    /// Waits until what was written is on the disk, if a later copy will rely on it.
    pub(super) async fn checkpoint(&self) -> Result<()> {
        if self.kept {
            let file = self.file.try_clone()?;
            // Answers of the server are taken meanwhile.
            tokio::task::spawn_blocking(move || file.sync_data()).await??;
        }
        Ok(())
    }

    /// Gives the whole file of `len` bytes its attributes and its name. Returns what to report.
    pub(super) async fn finish(self, len: u64, attributes: &Attributes) -> Result<Option<&'static str>> {
        let tells_late = self.tells_late()?;
        if tells_late {
            let attributes = attributes.clone();
            return tokio::task::spawn_blocking(move || self.finish_here(len, &attributes, tells_late)).await?;
        }
        self.finish_here(len, attributes, tells_late)
    }

    /// Whether its file system may report that there is no room, or another error, only after a write has succeeded.
    pub(super) fn tells_late(&self) -> Result<bool> {
        Ok(tells_late(rustix::fs::fstatfs(&self.file)?.f_type))
    }

    /// The same on this thread, which may wait for the disk.
    pub(super) fn finish_here(
        mut self,
        len: u64,
        attributes: &Attributes,
        tells_late: bool,
    ) -> Result<Option<&'static str>> {
        if self.len.get() != len {
            self.file.set_len(len)?;
        }
        let note = match set_file(&self.file, attributes) {
            Err(error) if self.is_somebody_elses()? && is_errno(&error, &[Errno::PERM]) => {
                Some("mode and times were not kept: the file belongs to somebody else")
            }
            set => set.map(|()| None)?,
        };
        if tells_late {
            self.file.sync_data().context("writing it to the disk")?;
        }
        match &self.path {
            None => self.give_name().context("cannot give the copy its name")?,
            Some(path) if *path != self.target => {
                fs::rename(path, &self.target).context("cannot replace the file that is there")?;
            }
            Some(_) => {}
        }
        self.finished = true;
        Ok(note)
    }

    /// Gives a file that has no name its own, unless something has it.
    fn give_name(&self) -> Result<(), Errno> {
        match linkat(&self.file, "", CWD, &self.target, AtFlags::EMPTY_PATH) {
            // A process without the capability for that may do the same in this way.
            Err(Errno::NOENT) => {
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, own, CWD, &self.target, AtFlags::SYMLINK_FOLLOW)
            }
            linked => linked,
        }
    }

    fn is_somebody_elses(&self) -> Result<bool> {
        Ok(!self.made && self.file.metadata()?.uid() != rustix::process::geteuid().as_raw())
    }

    /// Marks what was written as useless for a later copy.
    pub(super) fn spoil(&mut self) {
        self.kept = false;
    }

    /// What a failed copy leaves.
    pub(super) fn remains(&self) -> Option<String> {
        if !self.made {
            return Some("it was written in place, and is not whole now".into());
        }
        let path = self.path.as_ref().filter(|_| self.has_kept())?;
        Some(format!("the part that has arrived is kept in {} for --resume", path.display()))
    }

    fn has_kept(&self) -> bool {
        self.kept && self.file.metadata().is_ok_and(|metadata| metadata.len() > RESUME_SPAN)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.made
            && !self.finished
            && !self.has_kept()
            && let Some(path) = &self.path
            && let Err(error) = fs::remove_file(path)
        {
            let path = crate::names::escaped(path.as_os_str().as_bytes());
            failure::warning(&format!("{path}: cannot be removed: {error}"));
        }
    }
}

/// Opens and locks a file, and checks that it still has this name: the holder of the lock before may have renamed it.
fn locked(path: &Path, open: impl Fn(&Path) -> io::Result<File>) -> Result<File> {
    for _ in 0..NAMES_TRIED {
        let file = open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => bail!("another copy is writing to it"),
            locked => locked?,
        }
        let here = file.metadata()?;
        match fs::symlink_metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (here.dev(), here.ino()) => return Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    bail!("other copies write to it again and again")
}

/// Whether a local file is the very file that is to be copied into it: of the same number, size and times.
fn is_same_file(here: &Metadata, source: &Attributes) -> bool {
    let time = |time: Time| (time.seconds, i64::from(time.nanoseconds));
    (here.ino(), here.len()) == (source.file_id, source.size)
        && (here.mtime(), here.mtime_nsec()) == time(source.modified)
        && (here.ctime(), here.ctime_nsec()) == time(source.changed)
}

/// Takes away rights that the source does not give: the new contents may be secret. If the caller may not do that, the
/// rights are those that the owner has chosen.
fn narrow(file: &File, here: &Metadata, source: &Attributes) -> Result<()> {
    let mode = here.mode() & source.mode & 0o1777;
    match file.set_permissions(Permissions::from_mode(mode)) {
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => Ok(()),
        set => set.context("setting the mode"),
    }
}

/// Whether a file system may report that there is no room, or another error, only after a write has succeeded: all but
/// those that are known to take room when they are written to.
fn tells_late(file_system: rustix::fs::FsWord) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS, ZFS, tmpfs, overlayfs: their numbers in statfs(2).
    const AT_ONCE: [u32; 7] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1, 0x0102_1994, 0x794C_7630];
    // The word has 32 bits on some machines, with a sign.
    !AT_ONCE.contains(&(file_system as u32))
}

fn is_absent(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Whether the directory does not let us make files.
fn may_not_make(error: &anyhow::Error) -> bool {
    is_errno(error, &[Errno::ACCESS, Errno::PERM])
}

pub(super) fn is_errno(error: &anyhow::Error, errnos: &[Errno]) -> bool {
    let cause = error.root_cause();
    let code = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    let code = code.or_else(|| cause.downcast_ref::<Errno>().map(|errno| errno.raw_os_error()));
    code.is_some_and(|code| errnos.iter().any(|errno| errno.raw_os_error() == code))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::sample_attributes, *};
    use rpcrdma_env::SeededRandom;
    use rpcrdma_nfs::attr::FileType;
    use rustix::fs::FileType as LocalType;
    use std::os::unix::fs::symlink;

    const PLAIN: Placing = Placing { inplace: false, resume: false };
    const RESUME: Placing = Placing { inplace: false, resume: true };

    fn source(size: u64, seconds: i64) -> Attributes {
        let mut source = sample_attributes(FileType::Regular);
        (source.size, source.modified, source.mode) = (size, Time::new(seconds, 5), 0o640);
        source
    }

    fn open(path: &Path, placing: Placing, source: &Attributes) -> Result<Output> {
        match Output::open_part(path, placing, source)? {
            Some(part) => Ok(part),
            None => Output::open(path, placing, source, &SeededRandom::new(1)),
        }
    }

    fn finish(output: Output, len: u64, source: &Attributes) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(output.finish(len, source)).unwrap(), None);
    }

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_but_a_file_is_written_to() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        rustix::fs::mknodat(CWD, path("pipe"), LocalType::Fifo, Mode::RWXU, 0).unwrap();
        symlink(path("new"), path("link")).unwrap();
        // A reader of the pipe does not make it a file.
        let _reader = OpenOptions::new().read(true).write(true).open(path("pipe")).unwrap();
        let inplace = Placing { inplace: true, resume: false };
        for not_a_file in [path("pipe"), path("link"), "/dev/null".into()] {
            for placing in [PLAIN, RESUME, inplace] {
                assert!(open(&not_a_file, placing, &source(1, 1)).is_err(), "{not_a_file:?}");
            }
            // Also if it is put there at the last moment.
            assert!(Output::in_place(&not_a_file, true, &source(1, 1), None).is_err(), "{not_a_file:?}");
        }
        assert!(!path("new").exists());
        for placing in [PLAIN, inplace] {
            finish(open(&path("new"), placing, &source(1, 1)).unwrap(), 0, &source(0, 1));
        }
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("file");
        fs::write(&target, "old").unwrap();
        let output = open(&target, PLAIN, &source(3, 1)).unwrap();
        output.write_all_at(b"ne", 0).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        assert_eq!(names(scratch.path()).len(), 2);
        drop(output);
        assert_eq!(names(scratch.path()), ["file"], "no litter");
        let output = open(&target, PLAIN, &source(3, 1)).unwrap();
        output.write_all_at(b"new", 0).unwrap();
        finish(output, 3, &source(3, 1));
        assert_eq!((names(scratch.path()), fs::read(&target).unwrap()), (vec!["file".to_owned()], b"new".to_vec()));
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o640);
    }

    #[test]
    fn a_file_without_a_name_leaves_nothing_and_takes_no_name_that_is_taken() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("file");
        let Some(output) = Output::open_unnamed(&target) else { return };
        output.write_all_at(b"ne", 0).unwrap();
        assert!(names(scratch.path()).is_empty());
        drop(output);
        let write = || {
            let output = Output::open_unnamed(&target).unwrap();
            output.write_all_at(b"new", 0).unwrap();
            output.finish_here(3, &source(3, 1), false)
        };
        fs::write(&target, "old").unwrap();
        assert!(is_errno(&write().unwrap_err(), &[Errno::EXIST]));
        assert_eq!(fs::read(&target).unwrap(), b"old");
        fs::remove_file(&target).unwrap();
        assert_eq!(write().unwrap(), None);
        assert_eq!((names(scratch.path()), fs::read(&target).unwrap()), (vec!["file".to_owned()], b"new".to_vec()));
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o640);
    }

    #[test]
    fn files_with_several_names_are_written_in_place() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("file");
        fs::write(&target, "old").unwrap();
        fs::hard_link(&target, scratch.path().join("too")).unwrap();
        for placing in [PLAIN, RESUME] {
            let output = open(&target, placing, &source(3, 1)).unwrap();
            assert_eq!(output.in_place, Some("it has several names"));
            output.write_all_at(b"new", 0).unwrap();
            finish(output, 3, &source(3, 1));
            assert_eq!(fs::read(scratch.path().join("too")).unwrap(), b"new");
        }
    }

    #[test]
    fn a_part_is_kept_and_goes_on_if_the_source_is_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        let (target, part) = (scratch.path().join("file"), scratch.path().join(".file.rpcrdma-part"));
        let whole = RESUME_SPAN + 1000;
        let output = open(&target, RESUME, &source(whole, 7)).unwrap();
        drop(output);
        assert!(names(scratch.path()).is_empty(), "an empty part is of no use");
        let output = open(&target, RESUME, &source(whole, 7)).unwrap();
        output.write_all_at(b"x", RESUME_SPAN - 1).unwrap();
        drop(output);
        assert!(names(scratch.path()).is_empty(), "nor is one that would be copied again from its beginning");
        let output = open(&target, RESUME, &source(whole, 7)).unwrap();
        output.write_all_at(b"x", RESUME_SPAN + 499).unwrap();
        let busy = open(&target, RESUME, &source(whole, 7)).unwrap_err();
        assert!(format!("{busy:#}").contains("another copy"), "{busy:#}");
        assert!(output.remains().unwrap().contains("--resume"));
        drop(output);
        let output = open(&target, RESUME, &source(whole, 7)).unwrap();
        assert_eq!((output.offset, fs::metadata(&part).unwrap().len()), (500, 500), "the last of it comes again");
        output.write_all_at(b"x", RESUME_SPAN + 499).unwrap();
        drop(output);
        let output = open(&target, RESUME, &source(whole, 8)).unwrap();
        assert_eq!((output.offset, fs::metadata(&part).unwrap().len()), (0, 0), "another source");
        output.write_all_at(b"y", 0).unwrap();
        finish(output, 1, &source(1, 8));
        assert_eq!(names(scratch.path()), ["file"]);
        // An attacker might have put another file there.
        symlink(&target, &part).unwrap();
        assert!(open(&target, RESUME, &source(whole, 7)).is_err());
        fs::remove_file(&part).unwrap();
        fs::hard_link(&target, &part).unwrap();
        fs::remove_file(&target).unwrap();
        fs::hard_link(&part, scratch.path().join("precious")).unwrap();
        assert!(open(&target, RESUME, &source(whole, 7)).is_err());
        assert_eq!(fs::read(scratch.path().join("precious")).unwrap(), b"y");
    }

    /// Another run ends, and renames the part, between our opening it and our locking it.
    #[test]
    fn a_part_that_was_renamed_meanwhile_is_not_written_to() {
        let scratch = tempfile::tempdir().unwrap();
        let [part, target] = ["part", "target"].map(|name| scratch.path().join(name));
        fs::write(&part, "whole").unwrap();
        let file = locked(&part, |path| {
            let file = careful(&mut OpenOptions::new()).create(true).truncate(false).open(path)?;
            if !target.exists() {
                fs::rename(path, &target)?;
            }
            Ok(file)
        });
        file.unwrap().set_len(0).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"whole");
        let never = locked(&part, |path| {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            fs::remove_file(path).map(|()| file)
        });
        assert!(never.is_err());
    }

    #[test]
    fn file_systems_that_tell_errors_late_are_asked() {
        const NFS: rustix::fs::FsWord = 0x6969;
        const FUSE: rustix::fs::FsWord = 0x6573_5546;
        const EXT4: rustix::fs::FsWord = 0xEF53;
        assert!(tells_late(NFS) && tells_late(FUSE) && tells_late(0xFF53_4D42_u32 as _));
        assert!(!tells_late(EXT4) && !tells_late(0x9123_683E_u32 as _));
    }
}
