//! `rpcrdma cp`: copies files between URLs, as `cp -r` does.
//!
//! Within a server of version 4.2 the server does it, so that the bytes need not come here and go back ([`data`]);
//! else, and from server to server, they go through this command. A file takes its place when it is whole, as with
//! `put` ([`mod@file`]). Names come from the source and are not trusted.

mod data;
mod file;
mod finish;

use crate::{
    args::ClientArgs,
    copy::{FILES, Tally, beside},
    depth::{MAX_DEPTH, TooDeep},
    failure::At,
    files::umask,
    get::checked_name,
    interrupt::Signals,
    links::Unfinished,
    names::{escaped, join},
    place::{Target, split_last},
    session::{Session, Sessions},
};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use futures_util::{
    StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use rpcrdma::client::NfsUrl;
use rpcrdma_env::Random;
use rpcrdma_nfs::attr::{Attributes, FileType, NewAttributes, SetTime, Who};
use rpcrdma_nfs_client::{Found, Handle, Name};
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    pin::pin,
    sync::Arc,
};

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// Copy directories and everything in them
    #[arg(short)]
    recursive: bool,
    /// Do not try to give files the modes and times of their sources. Existing files keep their modes; new files and
    /// directories get the modes of their sources without the bits of the umask
    #[arg(long)]
    no_attributes: bool,
    /// Also keep extended attributes and access control lists, if both servers have them; the command names each file
    /// whose attributes it could not keep
    #[arg(long)]
    xattrs: bool,
    /// Files and directories to copy
    #[arg(required = true)]
    urls: Vec<NfsUrl>,
    /// Target: a directory that exists, or the new name
    target: NfsUrl,
    /// Show no progress, no summary, and no messages about a server that does not answer; errors are still shown
    #[arg(short, long)]
    quiet: bool,
    /// Show for each file whether the server copied it or this command read and wrote it; at the end, show how many
    /// bytes went each way
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

pub(crate) async fn run(args: CpArgs) -> Result<()> {
    let mut signals = Signals::new()?;
    let mut sessions = Sessions::new(args.client.clone().into())?;
    let tally = Tally::new(args.quiet || args.client.json).of_tree(args.recursive || args.verbose);
    let tally = tally.with_servers().shared_with(sessions.watch());
    sessions.watch().set_quiet(args.quiet);
    let opened = signals.unless_interrupted(sessions.open(&args.target)).await?;
    let (to, path) = opened.with_context(|| At::new(&args.target.path))?;
    let copier = Copier {
        to: &to,
        args: &args,
        random: sessions.random(),
        tally: RefCell::new(tally),
        ways: data::Ways::default(),
        own: RefCell::default(),
        unfinished: RefCell::default(),
        places: RefCell::default(),
        first_names: RefCell::default(),
        later: RefCell::default(),
        made: RefCell::default(),
        directories: RefCell::default(),
    };
    let done = signals.unless_interrupted(copier.all(&mut sessions, &path)).await;
    let done = done.unwrap_or_else(|interrupted| Err(interrupted.into()));
    let _ = signals.unless_interrupted(copier.clean_up()).await;
    if done.is_err() {
        copier.tell_undone();
    }
    copier.tally.into_inner().finish(args.client.json, args.quiet, done)
}

/// The notice for a file that keeps its mode and times.
const ATTRIBUTES_NOT_KEPT: &str =
    "mode and times were not kept: what is at the target belongs to somebody else (--no-attributes skips the attempt)";

/// A file of a server: its session, file system and file number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileId(usize, u64, u64);

impl FileId {
    /// The sessions of a command live as long as it does, so that their addresses identify them.
    fn new(session: &Session, attributes: &Attributes) -> Self {
        Self(std::ptr::from_ref(session).addr(), attributes.file_system, attributes.file_id)
    }
}

/// Something that is to be copied, and where to.
#[derive(Clone)]
struct Item {
    from: Arc<Session>,
    found: Found,
    /// The path that the user knows it by.
    shown: Vec<u8>,
    directory: Handle,
    name: Name,
}

impl Item {
    fn id(&self) -> FileId {
        FileId::new(&self.from, &self.found.attributes)
    }
}

/// A directory that has been filled.
#[derive(Clone)]
struct Filled {
    item: Item,
    made: Handle,
    attributes: Option<NewAttributes>,
}

struct Copier<'a> {
    /// Where everything goes.
    to: &'a Arc<Session>,
    args: &'a CpArgs,
    random: Arc<dyn Random>,
    tally: RefCell<Tally>,
    /// What the server has shown that it does not do.
    ways: data::Ways,
    /// Who we are to the target's server, once that is known.
    own: RefCell<Option<Who>>,
    /// Files to be removed if they do not become whole.
    unfinished: RefCell<Vec<Unfinished>>,
    /// Where each file goes.
    places: RefCell<HashMap<(Handle, Name), FileId>>,
    /// The first copy of a file with several names; without a handle until it is made.
    first_names: RefCell<HashMap<FileId, Option<Handle>>>,
    /// Further names of files that are copied.
    later: RefCell<Vec<Item>>,
    /// The directories of the target that this run has made, or found there and goes into.
    made: RefCell<HashSet<Handle>>,
    /// Directories that get their attributes when they are full.
    directories: RefCell<Vec<Filled>>,
}

/// The mode and the times of a source. Between servers a regular file gets no set-user-id or set-group-id bit: another
/// server is not trusted with that.
fn mode_and_times(attributes: &Attributes, is_one_server: bool) -> NewAttributes {
    let keep = if is_one_server || attributes.file_type == FileType::Directory { 0o7777 } else { 0o1777 };
    NewAttributes { mode: Some(attributes.mode & keep), ..times(attributes) }
}

fn times(attributes: &Attributes) -> NewAttributes {
    let (accessed, modified) = (SetTime::Client(attributes.accessed), SetTime::Client(attributes.modified));
    NewAttributes { accessed, modified, ..Default::default() }
}

/// The mode of something new that does not get its source's: what the umask leaves of it, as with cp.
fn default_mode(mode: u32) -> u32 {
    mode & 0o777 & !umask()
}

impl Copier<'_> {
    /// Copies everything that is asked for.
    async fn all(&self, sessions: &mut Sessions, path: &[u8]) -> Result<()> {
        let args = self.args;
        let target = Target::find(self.to, path).await.with_context(|| At::new(&args.target.path))?;
        ensure!(
            args.urls.len() == 1 || matches!(target, Target::Directory(_)),
            "{} is not a directory: several files can be copied only into one",
            escaped(&args.target.path)
        );
        for url in &args.urls {
            let copied = self.argument(url, &target, path, sessions).await;
            copied.or_else(|error| {
                // What was copied before gets its links and modes all the same.
                let checked = self.tally.borrow_mut().check_remote(&url.path, error);
                checked.with_context(|| At::new(&url.path))
            })?;
        }
        self.finish().await
    }

    /// Copies what one URL names.
    async fn argument(&self, url: &NfsUrl, target: &Target, path: &[u8], sessions: &mut Sessions) -> Result<()> {
        let (from, source) = sessions.open(url).await?;
        let found = from.find(&source, !self.args.recursive).await?;
        let is_directory = found.attributes.file_type == FileType::Directory;
        ensure!(!is_directory || self.args.recursive, "is a directory; copy it with -r");
        let (directory, name) = match target {
            Target::Name(directory, name) => (directory.clone(), name.clone()),
            Target::Directory(directory) => {
                let own = url.last_name().context("has no name of its own: give the copy a name in the target")?;
                checked_name(own)?;
                (directory.clone(), Name::from(own))
            }
        };
        if is_directory {
            self.refuse_into_itself(&from, &found, target, path).await?;
        }
        let ahead = self.tally.borrow().ahead().filter(|_| self.args.urls.len() == 1);
        let walk = async {
            if let Some(ahead) = ahead {
                ahead.walk_remote(&from, &found.file, &found.attributes).await;
            }
        };
        let shown = url.path.clone();
        let tree = self.tree(Item { from: from.clone(), found: found.clone(), shown, directory, name });
        // The walk ends with the copy, and not the other way round.
        match select(pin!(tree), pin!(walk)).await {
            Either::Left((copied, _)) => copied,
            Either::Right(((), tree)) => tree.await,
        }
    }

    /// Whether two files are the same, as far as is known. In two sessions, which may be of one server, their numbers
    /// and times are compared.
    fn is_one(&self, from: &Arc<Session>, source: &Attributes, there: &Attributes) -> bool {
        if Arc::ptr_eq(from, self.to) {
            return (source.file_system, source.file_id) == (there.file_system, there.file_id);
        }
        source.file_id == there.file_id
            && (source.size, source.modified, source.changed) == (there.size, there.modified, there.changed)
    }

    /// Refuses to copy a directory into itself, which would have no end.
    async fn refuse_into_itself(
        &self,
        from: &Arc<Session>,
        source: &Found,
        target: &Target,
        path: &[u8],
    ) -> Result<()> {
        // If the target is a name, existing or not, it may be the source itself.
        let mut above = match target {
            Target::Directory(_) => path,
            Target::Name(..) => split_last(path).0,
        };
        loop {
            let there = self.to.find(above, true).await?;
            ensure!(
                !self.is_one(from, &source.attributes, &there.attributes),
                "is a directory, and cannot be copied into itself"
            );
            if split_last(above).1.is_empty() {
                return Ok(());
            }
            above = split_last(above).0;
        }
    }

    /// Copies a file, or a directory and everything below it. What cannot be copied is reported and counted.
    ///
    /// # Errors
    /// Only if going on is hopeless.
    async fn tree(&self, top: Item) -> Result<()> {
        let mut files = FuturesUnordered::new();
        let mut directories = Vec::new();
        if top.found.attributes.file_type == FileType::Directory {
            directories.push((top, 1));
        } else if let Some(copy) = self.other(top) {
            files.push(copy);
        }
        while let Some((item, depth)) = directories.pop() {
            if depth > MAX_DEPTH {
                bail!(TooDeep);
            }
            let mut ended = Vec::new();
            let made = beside(self.enter(&item), &mut files, &mut ended).await;
            ended.drain(..).try_for_each(|done| self.done(done))?;
            let made = match made {
                Ok(made) => made,
                Err(error) => {
                    self.check(&item.shown, error)?;
                    continue;
                }
            };
            let (from, source) = (item.from.clone(), item.found.file.clone());
            let mut listing = from.files.list(&source, from.transfer);
            loop {
                let next = async {
                    let Some(entry) = listing.next().await? else { return Ok(None) };
                    checked_name(entry.name.as_slice())?;
                    let name = Name::from(entry.name.as_slice());
                    anyhow::Ok(Some((from.files.found(&source, entry).await?, name)))
                };
                let next = beside(next, &mut files, &mut ended).await;
                ended.drain(..).try_for_each(|done| self.done(done))?;
                let (found, name) = match next {
                    Ok(Some(next)) => next,
                    Ok(None) => break,
                    Err(error) => {
                        self.check(&item.shown, error)?;
                        // A listing that has failed does not go on; a single bad name or lost file does.
                        if listing.has_failed() { break } else { continue }
                    }
                };
                let shown = join(&item.shown, name.as_slice());
                let below = Item { from: from.clone(), found, shown, directory: made.clone(), name };
                if below.found.attributes.file_type == FileType::Directory {
                    directories.push((below, depth + 1));
                } else if let Some(copy) = self.other(below) {
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

    /// Makes the directory to which another is copied, or finds it there.
    async fn enter(&self, item: &Item) -> Result<Handle> {
        let is_new_one = Arc::ptr_eq(&item.from, self.to) && self.made.borrow().contains(&item.found.file);
        ensure!(!is_new_one, "is a directory that this run has made, and is left out");
        // Nobody else can enter before the directory has its own mode.
        let first = NewAttributes { mode: Some(0o700), ..Default::default() };
        let nfs = &self.to.files;
        let (made, is_new) = match nfs.mkdir(&item.directory, &item.name, first).await {
            Ok(made) => (made.file, true),
            Err(error) if error.exists() => {
                let there = nfs.lookup(&item.directory, &item.name).await?;
                ensure!(
                    there.attributes.file_type == FileType::Directory,
                    "exists at the target and is not a directory"
                );
                ensure!(
                    !self.is_one(&item.from, &item.found.attributes, &there.attributes),
                    "is a directory, and cannot be copied onto itself"
                );
                (there.file, false)
            }
            Err(error) => return Err(error.into()),
        };
        self.tally.borrow_mut().directories += 1;
        self.made.borrow_mut().insert(made.clone());
        let source = &item.found.attributes;
        let attributes = match (self.args.no_attributes, is_new) {
            (false, _) => Some(mode_and_times(source, Arc::ptr_eq(&item.from, self.to))),
            (true, true) => Some(NewAttributes { mode: Some(default_mode(source.mode)), ..Default::default() }),
            (true, false) => None,
        };
        self.directories.borrow_mut().push(Filled { item: item.clone(), made: made.clone(), attributes });
        Ok(made)
    }

    /// Copies a file that is not a directory; further names of a file wait until the end.
    fn other(&self, item: Item) -> Option<impl Future<Output = (Vec<u8>, Result<()>)> + use<'_>> {
        let id = item.id();
        let place = (item.directory.clone(), item.name.clone());
        let taken = self.places.borrow_mut().insert(place.clone(), id);
        match taken {
            Some(there) if there == id => {
                self.note(&item.shown, "is named twice, and is copied once");
                return None;
            }
            Some(there) => {
                self.places.borrow_mut().insert(place, there);
                self.failed(&item.shown, &anyhow::anyhow!("would overwrite what this run has just copied"));
                return None;
            }
            None => {}
        }
        let has_names = item.found.attributes.links > 1;
        if has_names {
            if self.first_names.borrow().contains_key(&id) {
                self.later.borrow_mut().push(item);
                return None;
            }
            self.first_names.borrow_mut().insert(id, None);
        }
        Some(async move {
            let copied = self.one(&item).await.map(|file| {
                if has_names {
                    self.first_names.borrow_mut().insert(id, Some(file));
                }
            });
            (item.shown, copied)
        })
    }

    async fn one(&self, item: &Item) -> Result<Handle> {
        match item.found.attributes.file_type {
            FileType::Regular => self.regular(item).await,
            FileType::Symlink => self.symlink(item).await,
            FileType::Directory => bail!("has become a directory"),
            _ => self.node(item).await,
        }
    }

    fn done(&self, (shown, result): (Vec<u8>, Result<()>)) -> Result<()> {
        result.or_else(|error| self.check(&shown, error))
    }

    fn check(&self, shown: &[u8], error: anyhow::Error) -> Result<()> {
        self.tally.borrow_mut().check_remote(shown, error)
    }

    fn failed(&self, shown: &[u8], error: &anyhow::Error) {
        self.tally.borrow_mut().failed(shown, error);
    }

    fn note(&self, shown: &[u8], what: &str) {
        self.tally.borrow().note(shown, what);
    }
}
