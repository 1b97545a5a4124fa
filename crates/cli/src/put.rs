//! `rpcrdma put`: copies files to a server, as `cp -r` does.

use crate::{
    args::PutArgs,
    copy::{DEPTH, FILES, Tally, block_size},
    place::Target,
    session::{Session, Sessions},
};
use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt, stream::FuturesUnordered};
use rpcrdma_env::{Allocator, Buffer};
use rpcrdma_nfs::v3::{
    CreateHow, FileType, Handle, Name, NewAttributes, NodeKind, Path as LinkPath, SetTime, Status, Time,
};
use rpcrdma_nfs_client::{Error, Writer};
use rustix::fs::SeekFrom;
use std::{
    cell::RefCell,
    collections::HashMap,
    fs::{self, File, Metadata},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

pub(crate) async fn run(args: PutArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.client.clone().into())?;
    let (session, path) = sessions.open(&args.url).await?;
    let tally = RefCell::new(Tally::new(args.quiet || args.client.json));
    let target = Target::find(&session, &path).await?;
    ensure!(
        args.local.len() == 1 || matches!(target, Target::Directory(_)),
        "{} is no directory: several files can be copied only into one",
        crate::names::escaped(&args.url.path)
    );
    let copier = Copier {
        session: &session,
        tally,
        first_names: RefCell::default(),
        later: RefCell::default(),
        directories: RefCell::default(),
    };
    for local in &args.local {
        let metadata = if args.recursive { fs::symlink_metadata(local) } else { fs::metadata(local) };
        let metadata = metadata.with_context(|| local.display().to_string())?;
        if metadata.is_dir() && !args.recursive {
            let error = anyhow::anyhow!("is a directory; copy it with -r");
            copier.failed(local, &error);
            continue;
        }
        let (directory, name) = match &target {
            Target::Directory(directory) => (directory.clone(), own_name(local)?),
            Target::Name(directory, name) => (directory.clone(), name.clone()),
        };
        copier.tree(local.clone(), metadata, directory, name).await?;
    }
    copier.finish().await?;
    copier.tally.into_inner().finish(args.client.json, args.quiet)
}

/// The last name of a local path, also of `.` and `..`.
fn own_name(local: &Path) -> Result<Name> {
    let name = match local.file_name() {
        Some(name) => name.to_owned(),
        None => {
            let whole = fs::canonicalize(local)?;
            whole.file_name().with_context(|| format!("{} has no name of its own", local.display()))?.to_owned()
        }
    };
    Ok(Name::from(name.as_bytes()))
}

/// A further name of a file that has been copied.
struct LaterLink {
    first: (u64, u64),
    local: PathBuf,
    directory: Handle,
    name: Name,
}

struct Copier<'a> {
    session: &'a Session,
    tally: RefCell<Tally>,
    /// Where a file with several names was copied to first, by device and inode; without a handle until it is there.
    first_names: RefCell<HashMap<(u64, u64), Option<Handle>>>,
    later: RefCell<Vec<LaterLink>>,
    /// Directories and what they shall have when they are full.
    directories: RefCell<Vec<(PathBuf, Handle, NewAttributes)>>,
}

impl Copier<'_> {
    /// Copies a file, or a directory and all below it. What cannot be copied is told and counted.
    ///
    /// # Errors
    /// Only if going on is hopeless.
    async fn tree(&self, local: PathBuf, metadata: Metadata, directory: Handle, name: Name) -> Result<()> {
        let mut files = FuturesUnordered::new();
        let mut directories = Vec::new();
        if metadata.is_dir() {
            directories.push((local, metadata, directory, name));
        } else if let Some(copy) = self.other(local, metadata, directory, name) {
            files.push(copy);
        }
        while let Some((local, metadata, directory, name)) = directories.pop() {
            let made = match self.make_directory(&directory, &name).await {
                Ok(made) => made,
                Err(error) => {
                    self.check(&local, error)?;
                    continue;
                }
            };
            self.tally.borrow_mut().directories += 1;
            self.directories.borrow_mut().push((local.clone(), made.clone(), all_attributes(&metadata)));
            let entries = match fs::read_dir(&local) {
                Ok(entries) => entries,
                Err(error) => {
                    self.failed(&local, &error.into());
                    continue;
                }
            };
            for entry in entries {
                let entry = match entry.and_then(|entry| Ok((entry.path(), entry.file_name(), entry.metadata()?))) {
                    Ok(entry) => entry,
                    Err(error) => {
                        self.failed(&local, &error.into());
                        continue;
                    }
                };
                let (path, name, metadata) = entry;
                let name = Name::from(name.as_bytes());
                if metadata.is_dir() {
                    directories.push((path, metadata, made.clone(), name));
                } else if let Some(copy) = self.other(path, metadata, made.clone(), name) {
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

    /// Copies what is no directory; further names of a file wait until the end.
    fn other(
        &self,
        local: PathBuf,
        metadata: Metadata,
        directory: Handle,
        name: Name,
    ) -> Option<impl Future<Output = (PathBuf, Result<()>)> + use<'_>> {
        let id = (metadata.dev(), metadata.ino());
        if metadata.nlink() > 1 {
            if self.first_names.borrow().contains_key(&id) {
                self.later.borrow_mut().push(LaterLink { first: id, local, directory, name });
                return None;
            }
            self.first_names.borrow_mut().insert(id, None);
        }
        Some(async move {
            let result = self.one(&local, &metadata, &directory, &name).await;
            let result = result.map(|file| {
                if metadata.nlink() > 1 {
                    self.first_names.borrow_mut().insert(id, Some(file));
                }
            });
            (local, result)
        })
    }

    async fn one(&self, local: &Path, metadata: &Metadata, directory: &Handle, name: &Name) -> Result<Handle> {
        let file_type = metadata.file_type();
        if file_type.is_file() {
            self.regular(local, metadata, directory, name).await
        } else if file_type.is_symlink() {
            let target = fs::read_link(local)?;
            let target = LinkPath::from(target.as_os_str().as_bytes());
            self.symlink(metadata, directory, name, &target).await
        } else if file_type.is_fifo() {
            let kind = NodeKind::Fifo(NewAttributes { mode: Some(metadata.mode() & 0o7777), ..Default::default() });
            let made = self.session.nfs.mknod(directory, name, kind).await?;
            self.handle_of(made.file, directory, name).await
        } else {
            bail!("only files, directories, links and named pipes are copied")
        }
    }

    async fn handle_of(&self, file: Option<Handle>, directory: &Handle, name: &Name) -> Result<Handle> {
        match file {
            Some(file) => Ok(file),
            None => Ok(self.session.nfs.lookup(directory, name).await?.file),
        }
    }

    async fn make_directory(&self, directory: &Handle, name: &Name) -> Result<Handle> {
        // Nobody else gets in before the directory has its own mode.
        let attributes = NewAttributes { mode: Some(0o700), ..Default::default() };
        match self.session.nfs.mkdir(directory, name, attributes).await {
            Ok(made) => self.handle_of(made.file, directory, name).await,
            Err(error) if error.status() == Some(Status::EXIST) => {
                let found = self.session.nfs.lookup(directory, name).await?;
                let attributes = match found.attributes {
                    Some(attributes) => attributes,
                    None => self.session.nfs.getattr(&found.file).await?,
                };
                ensure!(attributes.file_type == FileType::Directory, "exists on the server and is no directory");
                Ok(found.file)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn symlink(&self, metadata: &Metadata, directory: &Handle, name: &Name, target: &LinkPath) -> Result<Handle> {
        let nfs = &self.session.nfs;
        let made = match nfs.symlink(directory, name, NewAttributes::default(), target).await {
            Err(error) if error.status() == Some(Status::EXIST) => {
                nfs.remove(directory, name).await?;
                nfs.symlink(directory, name, NewAttributes::default(), target).await?
            }
            other => other?,
        };
        self.tally.borrow_mut().links += 1;
        let link = self.handle_of(made.file, directory, name).await?;
        match nfs.setattr(&link, times_of(metadata), None).await {
            // Some file systems keep no times of their own for links.
            Err(Error::Status { status: Status::NOTSUPP | Status::INVAL, .. }) | Ok(_) => Ok(link),
            Err(error) => Err(error.into()),
        }
    }

    async fn regular(&self, local: &Path, metadata: &Metadata, directory: &Handle, name: &Name) -> Result<Handle> {
        let nfs = &self.session.nfs;
        let from = File::open(local)?;
        let size = from.metadata()?.len();
        // Writable by us alone until it is whole, and cut to nothing if it is there.
        let how = CreateHow::Unchecked(NewAttributes { mode: Some(0o600), size: Some(0), ..Default::default() });
        let made = nfs.create(directory, name, how).await?;
        let file = self.handle_of(made.file, directory, name).await?;
        let (block, depth) = block_size(size, self.session.transfer.write, DEPTH);
        let mut writer = Writer::new(nfs.clone(), file.clone(), block, depth);
        let mut offset = 0;
        while let Some(run) = next_data(&from, offset, size)? {
            let mut at = run.start;
            while at < run.end {
                let len = usize::try_from(run.end - at).unwrap_or(usize::MAX).min(block as usize);
                let mut buffer = self.session.pool.allocate(len).await;
                let read = read_full(&from, &mut buffer, len, at)?;
                ensure!(read == len, "became shorter while it was copied");
                writer.write(at, buffer.freeze()).await?;
                self.tally.borrow_mut().moved(len);
                at += len as u64;
            }
            offset = run.end;
        }
        writer.finish().await?;
        let attributes = NewAttributes { size: Some(size), ..all_attributes(metadata) };
        let set = nfs.setattr(&file, attributes, None).await?;
        let now = match set.after {
            Some(after) => after.size,
            None => nfs.getattr(&file).await?.size,
        };
        ensure!(now == size, "{size} octets were sent, the file on the server has {now}");
        self.tally.borrow_mut().file_done();
        Ok(file)
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

    /// Makes further names, and gives directories their modes and times, the innermost first.
    async fn finish(&self) -> Result<()> {
        for link in self.later.take() {
            let first = self.first_names.borrow().get(&link.first).cloned().flatten();
            let made = match first {
                Some(first) => self.hard_link(&first, &link.directory, &link.name).await,
                None => Err(anyhow::anyhow!("the file of which it is another name was not copied")),
            };
            match made {
                Ok(()) => self.tally.borrow_mut().links += 1,
                Err(error) => self.check(&link.local, error)?,
            }
        }
        for (local, directory, attributes) in self.directories.take().into_iter().rev() {
            if let Err(error) = self.session.nfs.setattr(&directory, attributes, None).await {
                self.check(&local, error.into())?;
            }
        }
        Ok(())
    }

    async fn hard_link(&self, first: &Handle, directory: &Handle, name: &Name) -> Result<()> {
        let nfs = &self.session.nfs;
        match nfs.link(first, directory, name).await {
            Err(error) if error.status() == Some(Status::EXIST) => {
                let found = nfs.lookup(directory, name).await?;
                if found.file == *first {
                    return Ok(());
                }
                nfs.remove(directory, name).await?;
                nfs.link(first, directory, name).await?;
                Ok(())
            }
            other => Ok(other.map(drop)?),
        }
    }
}

/// The next run of octets at or after `offset` that is no hole.
fn next_data(file: &File, offset: u64, size: u64) -> Result<Option<std::ops::Range<u64>>> {
    if offset >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        // A file system that cannot tell: everything is data.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => return Ok(Some(offset..size)),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size);
    Ok((start < size).then(|| start..end.min(size)))
}

/// Reads `len` octets at `offset`, or fewer at the end of the file.
fn read_full(file: &File, buffer: &mut Buffer, len: usize, offset: u64) -> Result<usize> {
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut buffer.octets_mut()[filled..len], offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    buffer.set_len(filled);
    Ok(filled)
}

fn time(seconds: i64, nanoseconds: i64) -> SetTime {
    // The protocol knows no time before 1970.
    let seconds = u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
    SetTime::Client(Time { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) })
}

fn times_of(metadata: &Metadata) -> NewAttributes {
    NewAttributes {
        accessed: time(metadata.atime(), metadata.atime_nsec()),
        modified: time(metadata.mtime(), metadata.mtime_nsec()),
        ..Default::default()
    }
}

fn all_attributes(metadata: &Metadata) -> NewAttributes {
    NewAttributes { mode: Some(metadata.mode() & 0o7777), ..times_of(metadata) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(time(-5, 7), SetTime::Client(Time { seconds: 0, nanoseconds: 7 }));
    }
}
