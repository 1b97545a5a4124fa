//! The local files that `put` reads: looked at and opened without following links that an attacker has put in their
//! place.
//!
//! Below the directories that are named on the command line everything is opened by one name in a directory that is
//! open, so that no link on the way leads elsewhere; files are opened without waiting, and looked at again when they
//! are open. Only what the user himself names, without `-r`, may be a symbolic link.

use super::small::SMALL_BYTES;
use crate::copy::{DEPTH, block_size};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use rpcrdma_env::{Allocator, Buffer};
use rpcrdma_fabric::pool::Pool;
use rpcrdma_nfs::attr::{Device, NewAttributes, SetTime, Time};
use rpcrdma_nfs_client::Name;
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Stat},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    ops::Range,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    rc::Rc,
};

/// A local name.
#[derive(Clone, Debug)]
pub(super) struct Local {
    /// Its path for messages.
    pub(super) path: PathBuf,
    /// The directory that it stands in; `None` for a name of the command line.
    directory: Option<Rc<OwnedFd>>,
    name: OsString,
    /// The name may be a symbolic link, which is followed.
    follow: bool,
}

/// What is known of a local file.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) kind: FileType,
    pub(super) mode: u32,
    pub(super) links: u64,
    /// Device and inode.
    pub(super) id: (u64, u64),
    pub(super) size: u64,
    /// The numbers of a device.
    pub(super) device: Device,
    blocks: u64,
    accessed: SetTime,
    pub(super) modified: Time,
    pub(super) changed: Time,
}

impl From<Stat> for Facts {
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion, reason = "the types depend on the architecture")]
    fn from(stat: Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            mode: stat.st_mode & 0o7777,
            links: u64::from(stat.st_nlink),
            id: (stat.st_dev as u64, stat.st_ino as u64),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            device: Device {
                major: rustix::fs::major(stat.st_rdev.into()),
                minor: rustix::fs::minor(stat.st_rdev.into()),
            },
            blocks: stat.st_blocks as u64,
            accessed: SetTime::Client(time(stat.st_atime as i64, stat.st_atime_nsec as i64)),
            modified: time(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: time(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

fn time(seconds: i64, nanoseconds: i64) -> Time {
    // Version 3 knows no time before 1970, and none after 2106: what was kept is compared with what was sent.
    Time::new(seconds.clamp(0, u32::MAX.into()), u32::try_from(nanoseconds).unwrap_or(0))
}

impl Facts {
    pub(super) fn times(&self) -> NewAttributes {
        let modified = SetTime::Client(self.modified);
        NewAttributes { accessed: self.accessed, modified, ..Default::default() }
    }

    pub(super) fn mode_and_times(&self) -> NewAttributes {
        NewAttributes { mode: Some(self.mode), ..self.times() }
    }
}

impl Local {
    /// A name of the command line.
    pub(super) fn named(path: &Path, follow: bool) -> Self {
        Self { path: path.to_owned(), directory: None, name: path.as_os_str().to_owned(), follow }
    }

    fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_ref().map_or(CWD, |directory| directory.as_fd())
    }

    /// The last name, for a file in a directory.
    pub(super) fn own_name(&self) -> Name {
        Name::from(self.name.as_bytes())
    }

    pub(super) fn facts(&self) -> Result<Facts> {
        let flags = if self.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        Ok(rustix::fs::statat(self.directory(), &self.name, flags)?.into())
    }

    pub(super) fn link_target(&self) -> Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(self.directory(), &self.name, Vec::new())?.into_bytes())
    }

    fn open(&self, more: OFlags) -> Result<OwnedFd> {
        let follow = if self.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | follow | more;
        match rustix::fs::openat(self.directory(), &self.name, flags, Mode::empty()) {
            Err(Errno::LOOP) if !self.follow => Err(Errno::LOOP).context("a symbolic link has taken its place"),
            opened => Ok(opened?),
        }
    }

    /// Opens a regular file.
    pub(super) fn open_file(&self) -> Result<(File, Facts)> {
        let file = self.open(OFlags::empty())?;
        let facts = Facts::from(rustix::fs::fstat(&file)?);
        ensure!(facts.kind == FileType::RegularFile, "something that is not a file has taken its place");
        Ok((File::from(file), facts))
    }

    /// Opens a directory, without its entries.
    pub(super) fn open_directory_alone(&self) -> Result<OwnedFd> {
        self.open(OFlags::DIRECTORY)
    }

    /// Opens a directory. Gives its entries one by one.
    pub(super) fn open_directory(&self) -> Result<impl Iterator<Item = Result<Local>> + use<>> {
        let directory = Rc::new(self.open(OFlags::DIRECTORY)?);
        let entries = Dir::read_from(&directory)?;
        let path = self.path.clone();
        Ok(entries.filter_map(move |entry| {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let name = entry.file_name().to_bytes();
            (!matches!(name, b"." | b"..")).then(|| {
                let name = OsStr::from_bytes(name).to_owned();
                Ok(Local { path: path.join(&name), directory: Some(directory.clone()), name, follow: false })
            })
        }))
    }
}

/// The block size with which a file of unknown size is read.
const UNSIZED_BLOCK_BYTES: u32 = 64 << 10;

/// The unit in which the kernel counts storage.
const STAT_BLOCK_BYTES: u64 = 512;

/// The bytes of an open file, without its holes.
pub(super) struct Octets {
    file: File,
    /// Bytes read at a time.
    pub(super) block: u32,
    /// The size, or `None` while it is unknown: files of /proc say that they are empty, others of the kernel say that
    /// they are longer than they are. They have no storage.
    size: Option<u64>,
    /// The range that is read next.
    run: Range<u64>,
}

impl Octets {
    pub(super) fn new(file: File, facts: &Facts, largest: u32) -> Result<Self> {
        let is_unsized = facts.blocks == 0 && (facts.size == 0 || next_data(&file, 0, facts.size)?.is_some());
        let (size, block) = match is_unsized {
            true => (None, largest.clamp(1, UNSIZED_BLOCK_BYTES)),
            false => (Some(facts.size), block_size(facts.size, largest, DEPTH).0),
        };
        // Holes are not looked for in a small file with as much storage as it has bytes: it hardly has any.
        let is_full = facts.size <= SMALL_BYTES && facts.blocks.saturating_mul(STAT_BLOCK_BYTES) >= facts.size;
        let run = if size.is_some() && is_full { 0..facts.size } else { 0..0 };
        Ok(Self { file, block, size, run })
    }

    /// The file that is read.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The size, once it is known: at the end at the latest.
    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }

    /// Begins again at `offset`.
    pub(super) fn go_to(&mut self, offset: u64) {
        self.run = offset..offset;
    }

    /// The next bytes and where they stand, or `None` at the end.
    pub(super) async fn next(&mut self, pool: &Pool) -> Result<Option<(u64, Bytes)>> {
        let len = match self.size {
            None => u64::from(self.block),
            Some(size) => {
                if self.run.is_empty() {
                    match next_data(&self.file, self.run.end, size)? {
                        Some(run) => self.run = run,
                        None => return Ok(None),
                    }
                }
                self.run.end - self.run.start
            }
        };
        let len = usize::try_from(len.min(u64::from(self.block))).unwrap_or(usize::MAX);
        let at = self.run.start;
        let mut buffer = pool.allocate(len).await;
        let read = read_full(&self.file, &mut buffer, len, at)?;
        let end = at + read as u64;
        if self.size.is_some() {
            ensure!(read == len, "became shorter while it was copied");
            self.run.start = end;
        } else {
            self.run = end..end;
            if read == 0 {
                self.size = Some(end);
                return Ok(None);
            }
        }
        Ok(Some((at, buffer.freeze())))
    }
}

/// The next run of data at or after `offset` that is not a hole.
fn next_data(file: &File, offset: u64, size: u64) -> Result<Option<Range<u64>>> {
    if offset >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that cannot tell: everything is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(offset..size)),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size);
    Ok((start < size).then(|| start..end.min(size)))
}

/// Reads `len` bytes at `offset`, or fewer at the end of the file.
fn read_full(file: &File, buffer: &mut Buffer, len: usize, offset: u64) -> Result<usize> {
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut buffer.bytes_mut()[filled..len], offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    buffer.set_len(filled);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn local(path: &Path) -> Local {
        Local::named(path, false)
    }

    async fn read(local: &Local) -> (Vec<u8>, u64) {
        let (file, facts) = local.open_file().unwrap();
        let mut octets = Octets::new(file, &facts, 1 << 20).unwrap();
        let (pool, mut all) = (Pool::new(), Vec::new());
        while let Some((offset, buffer)) = octets.next(&pool).await.unwrap() {
            all.resize(offset as usize, 0);
            all.extend_from_slice(&buffer);
        }
        (all, octets.size().unwrap())
    }

    #[tokio::test]
    async fn files_are_read_whole_whatever_size_they_tell() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::write(path("file"), "contents").unwrap();
        fs::write(path("empty"), "").unwrap();
        File::create(path("hole")).unwrap().set_len(1 << 20).unwrap();
        let sparse = File::create(path("sparse")).unwrap();
        sparse.write_all_at(b"x", 600_000).unwrap();
        sparse.set_len(1 << 20).unwrap();
        assert_eq!(read(&local(&path("file"))).await, (b"contents".to_vec(), 8));
        assert_eq!(read(&local(&path("empty"))).await, (vec![], 0));
        assert_eq!(read(&local(&path("hole"))).await, (vec![], 1 << 20));
        let (octets, size) = read(&local(&path("sparse"))).await;
        assert!(size == 1 << 20 && octets[600_000] == b'x');
        for kernel in ["/proc/self/cmdline", "/proc/filesystems", "/sys/kernel/mm/transparent_hugepage/enabled"] {
            let Ok(contents) = fs::read(kernel) else { continue };
            assert_eq!(read(&local(Path::new(kernel))).await, (contents.clone(), contents.len() as u64), "{kernel}");
        }
    }

    #[test]
    fn what_has_taken_a_files_place_is_not_opened() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::write(path("precious"), "precious").unwrap();
        fs::create_dir_all(path("tree/directory")).unwrap();
        fs::write(path("tree/directory/file"), "mine").unwrap();
        fs::create_dir(path("elsewhere")).unwrap();
        fs::write(path("elsewhere/file"), "not mine").unwrap();
        symlink(path("precious"), path("link")).unwrap();
        rustix::fs::mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for not_a_file in ["link", "pipe", "tree"] {
            assert!(local(&path(not_a_file)).open_file().is_err(), "{not_a_file}");
        }
        assert!(Local::named(&path("link"), true).open_file().is_ok(), "what the user names himself");

        let mut entries = local(&path("tree")).open_directory().unwrap();
        let directory = entries.next().unwrap().unwrap();
        let file = directory.open_directory().unwrap().next().unwrap().unwrap();
        fs::rename(path("tree/directory"), path("tree/moved")).unwrap();
        symlink(path("elsewhere"), path("tree/directory")).unwrap();
        assert!(directory.open_directory().is_err(), "a link has taken the directory's place");
        let (mut opened, _) = file.open_file().unwrap();
        assert_eq!(std::io::read_to_string(&mut opened).unwrap(), "mine", "what was meant, wherever it is now");
    }

    #[test]
    fn holes_of_local_files_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(b"x", 600_000).unwrap();
        let run = next_data(&file, 0, 1 << 20).unwrap().unwrap();
        assert!(run.contains(&600_000));
        let mut data = 0;
        let mut offset = 0;
        while let Some(run) = next_data(&file, offset, 1 << 20).unwrap() {
            data += run.end - run.start;
            offset = run.end;
        }
        assert!(data <= 1 << 20);
        assert_eq!(next_data(&file, 1 << 20, 1 << 20).unwrap(), None);
    }

    #[test]
    fn times_before_1970_become_1970() {
        assert_eq!(time(-5, 7), Time { seconds: 0, nanoseconds: 7 });
    }
}
