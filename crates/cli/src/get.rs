//! `rpcrdma get`: copies files from a server, as `cp -r` does.
//!
//! Names come from the server and are not trusted: a name with a slash, `.` or `..` is refused, and nothing is written
//! through a symbolic link. Links made by this run are made last, so that no later file can pass through them. A file
//! takes its place when it is whole: until then, and if anything fails, the old file stays ([`target`]).

mod extra;
mod later;
mod regular;
mod small;
mod target;
mod writing;

use crate::{
    args::{CopyArgs, Placing},
    copy::{FILES, Tally},
    counterpart::Counterparts,
    depth::{MAX_DEPTH, TooDeep},
    failure::At,
    interrupt::Signals,
    session::{Session, Sessions},
};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use futures_util::{
    Stream, StreamExt,
    future::{Either, LocalBoxFuture, select},
    stream::{self, FuturesUnordered},
};
use later::{FileId, Known, Later, Turn};
use rpcrdma::client::NfsUrl;
use rpcrdma_env::Random;
use rpcrdma_nfs::attr::{Attributes, FileType, Time};
use rpcrdma_nfs_client::{Found, Handle};
use rustix::{
    fs::{CWD, FileType as LocalType, Mode, Timespec, Timestamps},
    io::Errno,
};
use small::{CALLS, Done, Wanted};
use std::{
    cell::{OnceCell, RefCell},
    collections::VecDeque,
    ffi::OsStr,
    fs::{self, File, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
};
use writing::Writing;

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Files and directories to copy
    #[arg(required = true)]
    pub(crate) urls: Vec<NfsUrl>,
    /// Target: a directory that exists, or the new name
    pub(crate) local: PathBuf,
    #[command(flatten)]
    pub(crate) copy: CopyArgs,
}

pub(crate) async fn run(args: GetArgs) -> Result<()> {
    let mut signals = Signals::new()?;
    let mut sessions = Sessions::new(args.copy.client.clone().into())?;
    let tally =
        Tally::new(args.copy.quiet || args.copy.client.json).of_tree(args.copy.recursive).shared_with(sessions.watch());
    sessions.watch().set_quiet(args.copy.quiet);
    let mut copier = Copier::new(args.copy.placing, sessions.random(), tally);
    copier.xattrs = args.copy.xattrs;
    let done = tokio::select! {
        biased;
        // When the other future is dropped, it removes its temporary files.
        interrupted = signals.next() => Err(interrupted.into()),
        done = copier.all(&args, &mut sessions) => done,
    };
    if done.is_err() {
        copier.leave_out_later();
    }
    copier.tally.into_inner().finish(args.copy.client.json, args.copy.quiet, done)
}

/// How many names of a directory are known before their files are copied, so that neither waits for the other.
const LISTED_AHEAD: usize = 512;

struct Copier {
    placing: Placing,
    /// Extended attributes and lists are kept, too.
    xattrs: bool,
    random: Arc<dyn Random>,
    tally: RefCell<Tally>,
    known: RefCell<Known>,
    later: RefCell<Vec<Later>>,
    /// Directories, and the attributes that they get when they are full.
    directories: RefCell<Vec<(PathBuf, Attributes)>>,
    counterparts: RefCell<Counterparts>,
    /// Directories whose extended attributes are to come.
    full: RefCell<Vec<extra::Full>>,
    writing: OnceCell<Writing>,
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
    fn new(placing: Placing, random: Arc<dyn Random>, tally: Tally) -> Self {
        let (known, later, directories, counterparts, full) = Default::default();
        let writing = OnceCell::new();
        let tally = RefCell::new(tally.placed(placing));
        Self { placing, xattrs: false, full, random, tally, known, later, directories, counterparts, writing }
    }

    /// Copies everything that is asked for.
    async fn all(&self, args: &GetArgs, sessions: &mut Sessions) -> Result<()> {
        let into_directory = args.local.is_dir();
        ensure!(
            into_directory || args.urls.len() == 1,
            "{} is not a directory: several files can be copied only into one",
            args.local.display()
        );
        for url in &args.urls {
            let copied = self.argument(args, url, into_directory, sessions).await;
            copied.or_else(|error| {
                // What was copied before gets its links and modes all the same.
                let checked = self.tally.borrow_mut().check_remote(&url.path, error);
                checked.with_context(|| At::new(&url.path))
            })?;
        }
        self.directory_extras().await?;
        self.finish();
        Ok(())
    }

    /// Copies what one URL names.
    async fn argument(
        &self,
        args: &GetArgs,
        url: &NfsUrl,
        into_directory: bool,
        sessions: &mut Sessions,
    ) -> Result<()> {
        let (session, path) = sessions.open(url).await?;
        let found = session.find(&path, !args.copy.recursive).await?;
        let local = match url.last_name() {
            Some(name) if into_directory => args.local.join(checked_name(name)?),
            _ => args.local.clone(),
        };
        let is_directory = found.attributes.file_type == FileType::Directory;
        ensure!(!is_directory || args.copy.recursive, "is a directory; copy it with -r");
        let ahead = self.tally.borrow().ahead().filter(|_| args.urls.len() == 1);
        let walk = async {
            if let Some(ahead) = ahead {
                ahead.walk_remote(&session, &found.file, &found.attributes).await;
            }
        };
        self.counterparts.borrow_mut().add(&local, url.path.clone());
        let tree = self.tree(&session, found.clone(), local);
        // The walk ends with the copy, and not the other way round.
        match select(pin!(tree), pin!(walk)).await {
            Either::Left((copied, _)) => copied,
            Either::Right(((), tree)) => tree.await,
        }
    }

    /// Copies a file, or a directory and everything below it. What cannot be copied is reported and counted.
    /// Directories are listed while files are copied, [`LISTED_AHEAD`] names before them.
    ///
    /// # Errors
    /// Only if going on is hopeless.
    async fn tree(&self, session: &Arc<Session>, found: Found, local: PathBuf) -> Result<()> {
        let mut copies = Copies::new(self, session);
        let mut directories = Vec::new();
        if found.attributes.file_type == FileType::Directory {
            directories.push((found.file, found.attributes, local, 1));
        } else {
            copies.begin(found, local, false);
        }
        while let Some((directory, attributes, local, depth)) = directories.pop() {
            if depth > MAX_DEPTH {
                bail!(TooDeep);
            }
            let is_new = match make_directory(&local) {
                Ok(is_new) => is_new,
                Err(error) => {
                    self.failed(&local, &error);
                    continue;
                }
            };
            self.tally.borrow_mut().directories += 1;
            self.directories.borrow_mut().push((local.clone(), attributes));
            if self.xattrs {
                let (local, session, directory) = (local.clone(), session.clone(), directory.clone());
                self.full.borrow_mut().push(extra::Full { local, session, directory });
            }
            let mut entries = pin!(entries(session, &directory, &local));
            let (mut ahead, mut is_listed) = (VecDeque::new(), false);
            loop {
                while copies.has_room()
                    && let Some((found, local)) = ahead.pop_front()
                {
                    copies.begin(found, local, is_new);
                }
                if is_listed && ahead.is_empty() {
                    break;
                }
                tokio::select! {
                    biased;
                    next = entries.next(), if !is_listed && ahead.len() < LISTED_AHEAD => match next {
                        None => is_listed = true,
                        Some(Err(error)) => self.check(&local, error)?,
                        Some(Ok((found, local))) if found.attributes.file_type == FileType::Directory => {
                            directories.push((found.file, found.attributes, local, depth + 1));
                        }
                        Some(Ok(next)) => ahead.push_back(next),
                    },
                    Some(done) = copies.next() => self.done(done)?,
                }
            }
        }
        while let Some(done) = copies.next().await {
            self.done(done)?;
        }
        Ok(())
    }

    /// Begins with a file that is not a directory: links wait until the end.
    fn turn(&self, session: &Session, found: &Found, local: &Path) -> Option<FileId> {
        let id = FileId::new(session, &found.attributes);
        match self.known.borrow_mut().begin(id, found.attributes.links, local) {
            Ok(Turn::Copy) => return Some(id),
            Ok(Turn::Link) => self.later.borrow_mut().push(Later::HardLink { id, local: local.to_owned() }),
            Ok(Turn::Again) => self.note(local, "is named twice, and is copied once"),
            Err(error) => self.failed(local, &error),
        }
        None
    }

    /// Copies a file that is not [`small`].
    async fn large(&self, session: &Session, wanted: Wanted) -> Done {
        let Wanted { found, local, id, .. } = wanted;
        let is_link = found.attributes.file_type == FileType::Symlink;
        let copied = self.one(session, found, &local).await;
        match &copied {
            // A symbolic link is made later.
            Ok(()) if is_link => {}
            Ok(()) => self.known.borrow_mut().copied(id),
            Err(_) => self.known.borrow_mut().failed(id, &local),
        }
        (local, copied)
    }

    async fn one(&self, session: &Session, found: Found, local: &Path) -> Result<()> {
        match found.attributes.file_type {
            FileType::Regular => self.regular(session, &found, local).await,
            FileType::Symlink => self.symlink(session, found.file, found.attributes, local).await,
            FileType::Fifo => {
                make_fifo(local, &found.attributes)?;
                self.tally.borrow_mut().special += 1;
                Ok(())
            }
            other => bail!("a {} is not copied", crate::names::file_type(other)),
        }
    }

    async fn symlink(&self, session: &Session, link: Handle, attributes: Attributes, local: &Path) -> Result<()> {
        let target = session.files.readlink(&link).await?.to_vec();
        let id = FileId::new(session, &attributes);
        self.later.borrow_mut().push(Later::Symlink { target, id, local: local.to_owned(), attributes });
        Ok(())
    }

    fn done(&self, (local, result): Done) -> Result<()> {
        result.or_else(|error| self.check(&local, error))
    }

    fn check(&self, local: &Path, error: anyhow::Error) -> Result<()> {
        let error = self.counterparts.borrow().name(local, error);
        self.tally.borrow_mut().check(local.as_os_str().as_bytes(), error)
    }

    fn failed(&self, local: &Path, error: &anyhow::Error) {
        self.tally.borrow_mut().failed(local.as_os_str().as_bytes(), error);
    }

    fn note(&self, local: &Path, what: &str) {
        self.tally.borrow().note(local.as_os_str().as_bytes(), what);
    }
}

/// The entries of a directory, and where each goes. A listing that has failed does not go on; a single bad name or lost
/// file does.
fn entries<'a>(
    session: &'a Session,
    directory: &'a Handle,
    local: &'a Path,
) -> impl Stream<Item = Result<(Found, PathBuf)>> + use<'a> {
    let listing = session.files.list(directory, session.transfer);
    stream::unfold(Some(listing), async move |listing| {
        let mut listing = listing?;
        let next = async {
            let Some(entry) = listing.next().await? else { return Ok(None) };
            let local = local.join(checked_name(entry.name.as_slice())?);
            anyhow::Ok(Some((session.files.found(directory, entry).await?, local)))
        };
        let next = next.await.transpose()?;
        let goes_on = next.is_ok() || !listing.has_failed();
        Some((next, goes_on.then_some(listing)))
    })
}

/// The copies that are under way: a few of large files, and many small ones.
struct Copies<'a> {
    copier: &'a Copier,
    session: &'a Arc<Session>,
    /// The most bytes of a file that one call brings.
    most: u32,
    large: FuturesUnordered<LocalBoxFuture<'a, Done>>,
    small: FuturesUnordered<LocalBoxFuture<'a, Done>>,
}

impl<'a> Copies<'a> {
    fn new(copier: &'a Copier, session: &'a Arc<Session>) -> Self {
        let (large, small) = Default::default();
        Self { copier, session, most: session.files.most_small(), large, small }
    }

    fn has_room(&self) -> bool {
        self.large.len() < FILES && self.small.len() < CALLS
    }

    /// Begins with a file. `is_in_new`: this run has made the directory that it goes into.
    fn begin(&mut self, found: Found, local: PathBuf, is_in_new: bool) {
        let copier = self.copier;
        let Some(id) = copier.turn(self.session, &found, &local) else { return };
        let wanted = Wanted { found, local, is_in_new, id };
        if !copier.is_small(&wanted.found, &wanted.local, self.most) {
            self.large.push(Box::pin(copier.large(self.session, wanted)));
        } else if copier.is_there(&wanted.found, &wanted.local) {
            copier.tally.borrow_mut().passed_over(wanted.found.attributes.size);
            copier.known.borrow_mut().copied(wanted.id);
        } else {
            self.small.push(Box::pin(copier.small(self.session, wanted)));
        }
    }

    /// The next copy that is done; `None` if none is under way.
    async fn next(&mut self) -> Option<Done> {
        tokio::select! {
            Some(done) = self.small.next() => Some(done),
            Some(done) = self.large.next() => Some(done),
            else => None,
        }
    }
}

/// Makes a directory that nobody else can enter before it has its own mode, at the end. Returns whether it is new.
fn make_directory(local: &Path) -> Result<bool> {
    match fs::DirBuilder::new().mode(0o700).create(local) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            ensure!(fs::symlink_metadata(local)?.is_dir(), "exists and is not a directory");
            Ok(false)
        }
        made => {
            made?;
            Ok(true)
        }
    }
}

fn make_fifo(local: &Path, attributes: &Attributes) -> Result<()> {
    let mode = Mode::from_raw_mode(attributes.mode & 0o777);
    match rustix::fs::mknodat(CWD, local, LocalType::Fifo, mode, 0) {
        Err(Errno::EXIST) if fs::symlink_metadata(local)?.file_type().is_fifo() => Ok(()),
        made => Ok(made?),
    }
}

/// Mode and times. A regular file gets no set-user-id or set-group-id bit: the server is not trusted with that.
fn set_file(file: &File, attributes: &Attributes) -> Result<()> {
    let keep = if attributes.file_type == FileType::Directory { 0o7777 } else { 0o1777 };
    file.set_permissions(Permissions::from_mode(attributes.mode & keep)).context("setting the mode")?;
    rustix::fs::futimens(file, &times(attributes)).context("setting the times")?;
    Ok(())
}

fn times(attributes: &Attributes) -> Timestamps {
    let timespec =
        |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds.min(999_999_999)) };
    Timestamps { last_access: timespec(attributes.accessed), last_modification: timespec(attributes.modified) }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn sample_attributes(file_type: FileType) -> Attributes {
        let mut attributes = Attributes::new(file_type, 1, 1);
        (attributes.mode, attributes.links, attributes.size) = (0o777, 2, 7);
        attributes
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
