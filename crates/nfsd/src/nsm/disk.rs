//! Files of a directory that are either whole or absent, even if the machine stops at any moment.
//!
//! [`put`] writes a file beside its place, waits until the disk has it, moves it into place, and waits until the disk
//! has the directory: when it returns, the file is durable. An interruption leaves a draft behind, which is never read.
//! The system calls are behind [`Calls`], so that tests can stop between any two of them.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The end of a file's name while the file is not in its place yet.
const DRAFT: &str = ".new";

/// The system calls on one directory.
pub(super) trait Calls: Send + Sync {
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// At most `max` bytes of a file.
    fn read(&self, name: &str, max: u64) -> io::Result<Vec<u8>>;
    /// Makes a file, or empties it, and writes these bytes.
    fn write(&self, name: &str, octets: &[u8]) -> io::Result<()>;
    /// Waits until the disk has the contents of a file.
    fn sync(&self, name: &str) -> io::Result<()>;
    /// Moves a file, onto another if there is one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Waits until the disk has the names.
    fn sync_names(&self) -> io::Result<()>;
}

/// Puts a file with these bytes into its place. It is durable when this returns.
pub(super) fn put(calls: &dyn Calls, name: &str, octets: &[u8]) -> io::Result<()> {
    let draft = format!("{name}{DRAFT}");
    calls.write(&draft, octets)?;
    // NSM-1-b
    calls.sync(&draft)?;
    calls.rename(&draft, name)?;
    // NSM-1-b
    calls.sync_names()
}

/// Whether a file is a draft: after a restart drafts are useless.
pub(super) fn is_draft(name: &str) -> bool {
    name.ends_with(DRAFT)
}

/// A directory of the host.
pub(super) struct Directory(PathBuf);

impl Directory {
    /// Opens the directory; makes it if it does not exist.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
            Ok(()) => path.parent().map_or(Ok(()), |above| File::open(above)?.sync_all())?,
        }
        Ok(Self(path.to_owned()))
    }
}

impl Calls for Directory {
    fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn read(&self, name: &str, max: u64) -> io::Result<Vec<u8>> {
        let mut octets = Vec::new();
        File::open(self.0.join(name))?.take(max).read_to_end(&mut octets)?;
        Ok(octets)
    }

    fn write(&self, name: &str, octets: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).open(self.0.join(name))?.write_all(octets)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        File::open(self.0.join(name))?.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}
