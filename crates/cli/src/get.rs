//! `rpcrdma get`: copies files from a server, as `cp -r` does.
//!
//! Names come from the server and are not trusted: a name with a slash, `.` or `..` is refused, and nothing is written
//! through a symbolic link. Links made by this run are made last, so that no later file can pass through them.

use crate::{
    args::GetArgs,
    copy::{DEPTH, FILES, Tally, block_size, data_runs},
    session::{Session, Sessions},
};
use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt, stream::FuturesUnordered};
use rpcrdma_nfs::v3::{Attributes, FileType, Handle, Status};
use rpcrdma_nfs_client::{Listing, Reader};
use rustix::fs::{AtFlags, CWD, FileType as LocalType, Mode, Timespec, Timestamps};
use std::{
    cell::RefCell,
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) async fn run(args: GetArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.client.clone().into())?;
    let into_directory = args.local.is_dir();
    ensure!(
        into_directory || args.urls.len() == 1,
        "{} is no directory: several files can be copied only into one",
        args.local.display()
    );
    let copier = Copier { tally: RefCell::new(Tally::new(args.quiet || args.client.json)), ..Copier::default() };
    for url in &args.urls {
        let (session, path) = sessions.open(url).await?;
        let found = session.find(&path, !args.recursive).await?;
        let local = match url.last_name() {
            Some(name) if into_directory => args.local.join(checked_name(name)?),
            _ => args.local.clone(),
        };
        if found.attributes.file_type == FileType::Directory && !args.recursive {
            let error = anyhow::anyhow!("is a directory; copy it with -r");
            copier.tally.borrow_mut().failed(&url.path, &error);
            continue;
        }
        copier.tree(&session, found.file, found.attributes, local).await?;
    }
    copier.finish();
    copier.tally.into_inner().finish(args.client.json, args.quiet)
}

/// Something to be made when everything else is there.
enum Later {
    HardLink { first: PathBuf, local: PathBuf },
    Symlink { target: Vec<u8>, local: PathBuf, attributes: Attributes },
}

#[derive(Default)]
struct Copier {
    tally: RefCell<Tally>,
    /// Where a file with several names was copied to first, by file system and file number.
    first_names: RefCell<HashMap<(u64, u64), PathBuf>>,
    later: RefCell<Vec<Later>>,
    /// Directories and what they shall have when they are full.
    directories: RefCell<Vec<(PathBuf, Attributes)>>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally::new(true)
    }
}

/// A name that can stand for one file in one directory.
pub(crate) fn checked_name(name: &[u8]) -> Result<&OsStr> {
    ensure!(
        !name.is_empty() && !matches!(name, b"." | b"..") && !name.contains(&b'/') && !name.contains(&0),
        "the server has sent {:?} as a name",
        crate::names::escaped(name)
    );
    Ok(OsStr::from_bytes(name))
}

impl Copier {
    /// Copies a file, or a directory and all below it. What cannot be copied is told and counted.
    ///
    /// # Errors
    /// Only if going on is hopeless.
    async fn tree(&self, session: &Arc<Session>, file: Handle, attributes: Attributes, local: PathBuf) -> Result<()> {
        let mut files = FuturesUnordered::new();
        let mut directories = Vec::new();
        if attributes.file_type == FileType::Directory {
            directories.push((file, attributes, local));
        } else if let Some(copy) = self.other(session, file, attributes, local) {
            files.push(copy);
        }
        while let Some((directory, attributes, local)) = directories.pop() {
            if let Err(error) = make_directory(&local) {
                self.failed(&local, &error);
                continue;
            }
            self.tally.borrow_mut().directories += 1;
            self.directories.borrow_mut().push((local.clone(), attributes));
            let mut listing = Listing::new(session.nfs.clone(), directory.clone(), session.transfer);
            loop {
                let next = async {
                    let Some(entry) = listing.next().await? else { return Ok(None) };
                    let local = local.join(checked_name(entry.name.as_slice())?);
                    let (file, attributes) = match (entry.file, entry.attributes) {
                        (Some(file), Some(attributes)) => (file, attributes),
                        _ => {
                            let found = session.nfs.lookup(&directory, &entry.name).await?;
                            let attributes = match found.attributes {
                                Some(attributes) => attributes,
                                None => session.nfs.getattr(&found.file).await?,
                            };
                            (found.file, attributes)
                        }
                    };
                    anyhow::Ok(Some((file, attributes, local)))
                };
                let (file, attributes, local) = match next.await {
                    Ok(Some(next)) => next,
                    Ok(None) => break,
                    Err(error) => {
                        self.check(&local, error)?;
                        // A listing that has failed does not go on; a single bad name or lost file does.
                        if listing.has_failed() { break } else { continue }
                    }
                };
                if attributes.file_type == FileType::Directory {
                    directories.push((file, attributes, local));
                } else if let Some(copy) = self.other(session, file, attributes, local) {
                    files.push(copy);
                }
                while files.len() >= FILES {
                    if let Some(done) = files.next().await {
                        self.done(done)?;
                    }
                }
            }
        }
        while let Some(done) = files.next().await {
            self.done(done)?;
        }
        Ok(())
    }

    /// Copies what is no directory; links wait until the end.
    fn other(
        &self,
        session: &Arc<Session>,
        file: Handle,
        attributes: Attributes,
        local: PathBuf,
    ) -> Option<impl Future<Output = (PathBuf, Result<()>)> + use<'_>> {
        if attributes.links > 1 {
            let id = (attributes.file_system, attributes.file_id);
            let first = self.first_names.borrow().get(&id).cloned();
            if let Some(first) = first {
                self.later.borrow_mut().push(Later::HardLink { first, local });
                return None;
            }
            self.first_names.borrow_mut().insert(id, local.clone());
        }
        let session = session.clone();
        Some(async move {
            let result = match attributes.file_type {
                FileType::Regular => self.regular(&session, file, &attributes, &local).await,
                FileType::Symlink => self.symlink(&session, file, attributes, &local).await,
                FileType::Fifo => make_fifo(&local, &attributes),
                other => Err(anyhow::anyhow!("a {} is not copied", crate::names::file_type(other))),
            };
            (local, result)
        })
    }

    async fn symlink(&self, session: &Session, link: Handle, attributes: Attributes, local: &Path) -> Result<()> {
        let target = session.nfs.readlink(&link).await?.as_slice().to_vec();
        self.later.borrow_mut().push(Later::Symlink { target, local: local.to_owned(), attributes });
        Ok(())
    }

    async fn regular(&self, session: &Session, file: Handle, attributes: &Attributes, local: &Path) -> Result<()> {
        let out = create(local)?;
        // A file that uses less storage than it has octets has holes.
        let sparse = attributes.used < attributes.size;
        let (block, depth) = block_size(attributes.size, session.transfer.read, DEPTH);
        let mut reader =
            Reader::new(session.nfs.clone(), file.clone(), 0, u64::MAX, block, depth).expecting(attributes.size);
        let mut len = 0;
        while let Some(block) = reader.next().await? {
            if sparse {
                for run in data_runs(&block.data) {
                    let offset = block.offset + run.start as u64;
                    out.write_all_at(&block.data[run], offset)?;
                }
            } else {
                out.write_all_at(&block.data, block.offset)?;
            }
            len = block.offset + block.data.len() as u64;
            self.tally.borrow_mut().moved(block.data.len());
        }
        out.set_len(len)?;
        if len != attributes.size {
            // The listing may be older than the file.
            let now = session.nfs.getattr(&file).await?;
            ensure!(len == now.size, "{len} octets came, the file has {}: it changed while it was copied", now.size);
        }
        set_file(&out, attributes)?;
        self.tally.borrow_mut().file_done();
        Ok(())
    }

    fn done(&self, (local, result): (PathBuf, Result<()>)) -> Result<()> {
        result.or_else(|error| self.check(&local, error))
    }

    fn check(&self, local: &Path, error: anyhow::Error) -> Result<()> {
        self.tally.borrow_mut().check(local.as_os_str().as_bytes(), error)
    }

    fn failed(&self, local: &Path, error: &anyhow::Error) {
        self.tally.borrow_mut().failed(local.as_os_str().as_bytes(), error);
    }

    /// Makes the links, and gives directories their modes and times, the innermost first.
    fn finish(&self) {
        let mut later = self.later.take();
        // A symbolic link may be the first name of a hard link.
        later.sort_by_key(|later| matches!(later, Later::HardLink { .. }));
        for later in later {
            let (local, made) = match later {
                Later::HardLink { first, local } => {
                    let made = replace(&local, |local| fs::hard_link(&first, local));
                    (local, made)
                }
                Later::Symlink { target, local, attributes } => {
                    let made = replace(&local, |local| std::os::unix::fs::symlink(OsStr::from_bytes(&target), local))
                        .and_then(|()| {
                            Ok(rustix::fs::utimensat(CWD, &local, &times(&attributes), AtFlags::SYMLINK_NOFOLLOW)?)
                        });
                    (local, made)
                }
            };
            match made {
                Ok(()) => self.tally.borrow_mut().links += 1,
                Err(error) => self.failed(&local, &error),
            }
        }
        for (local, attributes) in self.directories.take().into_iter().rev() {
            let set = File::open(&local).map_err(Into::into).and_then(|directory| set_file(&directory, &attributes));
            if let Err(error) = set {
                self.failed(&local, &error);
            }
        }
    }
}

fn make_directory(local: &Path) -> Result<()> {
    match fs::create_dir(local) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            ensure!(fs::symlink_metadata(local)?.is_dir(), "exists and is no directory");
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Opens a file to write it anew. Not through a symbolic link, whoever made it, and nothing but a file: a server that
/// lists one name as a pipe and again as a file would have us wait for the pipe's reader.
fn create(local: &Path) -> Result<File> {
    use rustix::fs::OFlags;
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags);
    let file = options.open(local).map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
            anyhow::anyhow!("is a symbolic link here; nothing is written through it")
        }
        Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => anyhow::anyhow!("is no file here"),
        _ => error.into(),
    })?;
    ensure!(file.metadata()?.is_file(), "is no file here");
    Ok(file)
}

fn make_fifo(local: &Path, attributes: &Attributes) -> Result<()> {
    let mode = Mode::from_raw_mode(attributes.mode & 0o777);
    Ok(rustix::fs::mknodat(CWD, local, LocalType::Fifo, mode, 0)?)
}

/// Makes something under a name that may be taken, but not by a directory.
fn replace(local: &Path, make: impl Fn(&Path) -> io::Result<()>) -> Result<()> {
    match make(local) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::symlink_metadata(local)?.is_dir() {
                bail!("exists and is a directory");
            }
            fs::remove_file(local)?;
            Ok(make(local)?)
        }
        other => Ok(other?),
    }
}

/// Mode and times. A regular file gets no set-user-id or set-group-id bit: the server's word is not enough for that.
fn set_file(file: &File, attributes: &Attributes) -> Result<()> {
    let keep = if attributes.file_type == FileType::Directory { 0o7777 } else { 0o1777 };
    file.set_permissions(Permissions::from_mode(attributes.mode & keep)).context("setting the mode")?;
    rustix::fs::futimens(file, &times(attributes)).context("setting the times")?;
    Ok(())
}

fn times(attributes: &Attributes) -> Timestamps {
    let timespec = |time: rpcrdma_nfs::v3::Time| Timespec {
        tv_sec: i64::from(time.seconds),
        tv_nsec: i64::from(time.nanoseconds.min(999_999_999)),
    };
    Timestamps { last_access: timespec(attributes.accessed), last_modification: timespec(attributes.modified) }
}

/// Whether a server's error says that a name is not there.
pub(crate) fn is_absent(error: &rpcrdma_nfs_client::Error) -> bool {
    error.status() == Some(Status::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_file_is_written_to() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        rustix::fs::mknodat(CWD, path("pipe"), LocalType::Fifo, Mode::RWXU, 0).unwrap();
        std::os::unix::fs::symlink(path("new"), path("link")).unwrap();
        for not_a_file in [path("pipe"), path("link"), "/dev/null".into()] {
            assert!(create(&not_a_file).is_err(), "{not_a_file:?}");
        }
        // Somebody who reads the pipe makes it no file.
        let _reader = OpenOptions::new().read(true).write(true).open(path("pipe")).unwrap();
        assert!(create(&path("pipe")).is_err());
        assert!(create(&path("new")).is_ok() && create(&path("new")).is_ok());
    }

    fn sample_attributes() -> Attributes {
        use rpcrdma_nfs::v3::{Specification, Time};
        Attributes {
            file_type: FileType::Symlink,
            mode: 0o777,
            links: 2,
            uid: 0,
            gid: 0,
            size: 7,
            used: 0,
            device: Specification::default(),
            file_system: 1,
            file_id: 1,
            accessed: Time::default(),
            modified: Time::default(),
            changed: Time::default(),
        }
    }

    /// A symbolic link with two names, of which the second is known before the first one's target.
    #[test]
    fn a_symbolic_link_may_have_several_names() {
        let scratch = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| scratch.path().join(name));
        let copier = Copier::default();
        copier.later.borrow_mut().extend([
            Later::HardLink { first: first.clone(), local: second.clone() },
            Later::Symlink { target: b"nowhere".to_vec(), local: first, attributes: sample_attributes() },
        ]);
        copier.finish();
        assert_eq!(copier.tally.borrow().errors, 0);
        assert_eq!(fs::read_link(second).unwrap(), Path::new("nowhere"));
    }

    #[test]
    fn a_server_cannot_name_what_lies_elsewhere() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0b"] {
            assert!(checked_name(name).is_err(), "{name:?}");
        }
        for name in [&b"a"[..], b"...", b"\xff", b" "] {
            assert!(checked_name(name).is_ok(), "{name:?}");
        }
    }
}
