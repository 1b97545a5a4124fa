//! `rpcrdma put`: copies files to a server, as `cp -r` does.
//!
//! A file takes its place when it is whole: until then, and if anything fails, the old file stays ([`upload`]). The
//! command reads only files that the user has named, or that lie below those, even if an attacker replaces them
//! meanwhile ([`source`]).

mod extra;
mod node;
mod small;
mod source;
mod target;
mod upload;

use crate::{
    args::{CopyArgs, Placing},
    copy::{FILES, Tally, beside},
    counterpart::Counterparts,
    depth::MAX_DEPTH,
    failure::At,
    files::umask,
    interrupt::Signals,
    links::{Links, Unfinished},
    names::join,
    place::Target,
    session::{Session, Sessions},
};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use futures_util::{
    StreamExt,
    stream::{self, FuturesUnordered},
};
use rpcrdma::client::NfsUrl;
use rpcrdma_env::Random;
use rpcrdma_nfs::attr::{FileType, NewAttributes, Who};
use rpcrdma_nfs_client::{Handle, Name};
use rustix::fs::FileType as LocalType;
use small::{SMALL_BYTES, SMALL_FILES};
use source::{Facts, Local};
use std::{
    cell::RefCell,
    collections::HashMap,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// Do not try to give files the modes and times of their sources. Existing files on the server keep their modes;
    /// new files and directories get the modes of their sources without the bits of the umask
    #[arg(long, conflicts_with = "resume")]
    pub(crate) no_attributes: bool,
    /// Files and directories to copy
    #[arg(required = true)]
    pub(crate) local: Vec<PathBuf>,
    /// Target: a directory that exists, or the new name
    pub(crate) url: NfsUrl,
    #[command(flatten)]
    pub(crate) copy: CopyArgs,
}

pub(crate) async fn run(args: PutArgs) -> Result<()> {
    let mut signals = Signals::new()?;
    let mut sessions = Sessions::new(args.copy.client.clone().into())?;
    let tally =
        Tally::new(args.copy.quiet || args.copy.client.json).placed(args.copy.placing).of_tree(args.copy.recursive);
    let tally = tally.shared_with(sessions.watch());
    sessions.watch().set_quiet(args.copy.quiet);
    if let Some(ahead) = tally.ahead() {
        ahead.walk_local(args.local.clone());
    }
    let opened = signals.unless_interrupted(sessions.open(&args.url)).await?;
    let (session, path) = opened.with_context(|| At::new(&args.url.path))?;
    let copier = Copier {
        session: &session,
        placing: args.copy.placing,
        no_attributes: args.no_attributes,
        xattrs: args.copy.xattrs,
        full: RefCell::default(),
        random: sessions.random(),
        tally: RefCell::new(tally),
        own: RefCell::default(),
        unfinished: RefCell::default(),
        first_names: RefCell::default(),
        later: RefCell::default(),
        directories: RefCell::default(),
        counterparts: RefCell::default(),
    };
    let done = signals.unless_interrupted(copier.all(&args, &path)).await;
    let done = done.unwrap_or_else(|interrupted| Err(interrupted.into()));
    let _ = signals.unless_interrupted(copier.clean_up()).await;
    if done.is_err() {
        copier.tell_undone();
    }
    copier.tally.into_inner().finish(args.copy.client.json, args.copy.quiet, done)
}

/// The notice for a file that keeps its mode and times.
const ATTRIBUTES_NOT_KEPT: &str =
    "mode and times were not kept: what is on the server belongs to somebody else (--no-attributes skips the attempt)";

/// The mode of something new that does not get its source's: what the umask leaves of it, as with cp.
fn default_mode(mode: u32) -> u32 {
    mode & 0o777 & !umask()
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

/// The file that an argument names, and where it is copied to.
fn argument(local: &Local, path: &Path, recursive: bool, target: &Target) -> Result<(Facts, Handle, Name)> {
    let facts = local.facts()?;
    ensure!(facts.kind != LocalType::Directory || recursive, "is a directory; copy it with -r");
    let (directory, name) = match target {
        Target::Directory(directory) => (directory.clone(), own_name(path)?),
        Target::Name(directory, name) => (directory.clone(), name.clone()),
    };
    Ok((facts, directory, name))
}

/// The next small or other copy that ends; `None` if there are none.
async fn next_of<F: Future>(small: &mut FuturesUnordered<F>, others: &mut FuturesUnordered<F>) -> Option<F::Output> {
    tokio::select! {
        Some(done) = small.next() => Some(done),
        Some(done) = others.next() => Some(done),
        else => None,
    }
}

/// A further name of a file that has been copied.
#[derive(Clone)]
struct LaterLink {
    first: (u64, u64),
    local: PathBuf,
    directory: Handle,
    name: Name,
}

struct Copier<'a> {
    session: &'a Session,
    placing: Placing,
    /// Files are not given the modes and times of their sources.
    no_attributes: bool,
    /// Extended attributes and lists are kept, too.
    xattrs: bool,
    /// Directories that get their lists when they are full.
    full: RefCell<Vec<extra::Full>>,
    random: Arc<dyn Random>,
    tally: RefCell<Tally>,
    /// Who we are to the server, once that is known.
    own: RefCell<Option<Who>>,
    /// Files to be removed if they do not become whole.
    unfinished: RefCell<Vec<Unfinished>>,
    /// The first copy of a file with several names, by device and inode; without a handle until it is made.
    first_names: RefCell<HashMap<(u64, u64), Option<Handle>>>,
    later: RefCell<Vec<LaterLink>>,
    /// Directories, and the attributes that they get when they are full.
    directories: RefCell<Vec<(PathBuf, Handle, NewAttributes)>>,
    counterparts: RefCell<Counterparts>,
}

impl Copier<'_> {
    /// Copies everything that is asked for.
    async fn all(&self, args: &PutArgs, path: &[u8]) -> Result<()> {
        let target = Target::find(self.session, path).await.with_context(|| At::new(&args.url.path))?;
        ensure!(
            args.local.len() == 1 || matches!(target, Target::Directory(_)),
            "{} is not a directory: several files can be copied only into one",
            crate::names::escaped(&args.url.path)
        );
        for path in &args.local {
            let local = Local::named(path, !args.copy.recursive);
            // An error of one argument must not keep the others from their links, modes and times.
            match argument(&local, path, args.copy.recursive, &target) {
                Ok((facts, directory, name)) => {
                    let remote = match &target {
                        Target::Directory(_) => join(&args.url.path, name.as_slice()),
                        Target::Name(..) => args.url.path.clone(),
                    };
                    self.counterparts.borrow_mut().add(path, remote);
                    self.tree(local, facts, directory, name).await?;
                }
                Err(error) => self.failed(path, &error),
            }
        }
        self.finish().await
    }

    /// The command has ended before [`Self::finish`] was done: reports what is missing.
    fn tell_undone(&self) {
        for link in self.later.borrow().iter() {
            self.note(&link.local, "this hard link was not made on the server, because the command ended early");
        }
        for (local, ..) in self.directories.borrow().iter() {
            self.note(local, "did not get its mode and times on the server, because the command ended early");
        }
    }

    /// Copies a file, or a directory and everything below it. What cannot be copied is reported and counted.
    ///
    /// # Errors
    /// Only if going on is hopeless.
    async fn tree(&self, local: Local, facts: Facts, directory: Handle, name: Name) -> Result<()> {
        let (mut small, mut files) = (FuturesUnordered::new(), FuturesUnordered::new());
        let mut directories = Vec::new();
        if facts.kind == LocalType::Directory {
            directories.push((local, facts, directory, name, 1));
        } else if let Some(copy) = self.other(local, facts, directory, name, false) {
            files.push(copy);
        }
        while let Some((local, facts, directory, name, depth)) = directories.pop() {
            let opened = match local.open_directory() {
                Ok(_) if depth > MAX_DEPTH => Err(anyhow::anyhow!("is more than {MAX_DEPTH} directories deep")),
                opened => opened,
            };
            let entries = match opened {
                Ok(entries) => entries,
                Err(error) => {
                    self.failed(&local.path, &error);
                    continue;
                }
            };
            let mut ended = Vec::new();
            let making = async {
                let (made, is_new) = self.make_directory(&directory, &name).await?;
                self.tally.borrow_mut().directories += 1;
                Ok((self.directory_extras(&local, &made).await, made, is_new))
            };
            let made = beside(making, stream::select(&mut small, &mut files), &mut ended).await;
            ended.into_iter().try_for_each(|done| self.done(done))?;
            let (extras, made, is_new) = match made {
                Ok(made) => made,
                Err(error) => {
                    self.check(&local.path, error)?;
                    continue;
                }
            };
            if let Err(error) = extras {
                self.check(&local.path, error)?;
            }
            if let Some(attributes) = self.directory_attributes(&facts, is_new) {
                self.directories.borrow_mut().push((local.path.clone(), made.clone(), attributes));
            }
            for entry in entries {
                let (entry, facts) = match entry.and_then(|entry| Ok((entry.facts()?, entry))) {
                    Ok((facts, entry)) => (entry, facts),
                    Err(error) => {
                        self.failed(&local.path, &error);
                        continue;
                    }
                };
                let name = entry.own_name();
                if facts.kind == LocalType::Directory {
                    directories.push((entry, facts, made.clone(), name, depth + 1));
                } else {
                    let is_small = facts.kind == LocalType::RegularFile && facts.size <= SMALL_BYTES;
                    if let Some(copy) = self.other(entry, facts, made.clone(), name, is_new) {
                        if is_small { small.push(copy) } else { files.push(copy) }
                    }
                }
                while files.len() >= FILES || small.len() >= SMALL_FILES {
                    if let Some(done) = next_of(&mut small, &mut files).await {
                        self.done(done)?;
                    }
                }
            }
        }
        while let Some(done) = next_of(&mut small, &mut files).await {
            self.done(done)?;
        }
        Ok(())
    }

    /// Copies a file that is not a directory; further names of a file wait until the end. `is_fresh`: see
    /// [`regular`](Self::regular).
    fn other(
        &self,
        local: Local,
        facts: Facts,
        directory: Handle,
        name: Name,
        is_fresh: bool,
    ) -> Option<impl Future<Output = (PathBuf, Result<()>)> + use<'_>> {
        let id = facts.id;
        if facts.links > 1 {
            if self.first_names.borrow().contains_key(&id) {
                self.later.borrow_mut().push(LaterLink { first: id, local: local.path, directory, name });
                return None;
            }
            self.first_names.borrow_mut().insert(id, None);
        }
        Some(async move {
            let result = self.one(&local, &facts, &directory, &name, is_fresh).await;
            let result = result.map(|file| {
                if facts.links > 1 {
                    self.first_names.borrow_mut().insert(id, Some(file));
                }
            });
            (local.path, result)
        })
    }

    async fn one(
        &self,
        local: &Local,
        facts: &Facts,
        directory: &Handle,
        name: &Name,
        is_fresh: bool,
    ) -> Result<Handle> {
        match facts.kind {
            LocalType::RegularFile => self.regular(local, directory, name, is_fresh).await,
            LocalType::Symlink => {
                let target = Bytes::from(local.link_target()?);
                self.symlink(facts, directory, name, target).await
            }
            _ => self.node(facts, directory, name).await,
        }
    }

    /// The attributes that a directory gets when it is full.
    fn directory_attributes(&self, facts: &Facts, is_new: bool) -> Option<NewAttributes> {
        match (self.no_attributes, is_new) {
            (false, _) => Some(facts.mode_and_times()),
            (true, true) => Some(NewAttributes { mode: Some(default_mode(facts.mode)), ..Default::default() }),
            (true, false) => None,
        }
    }

    async fn make_directory(&self, directory: &Handle, name: &Name) -> Result<(Handle, bool)> {
        // Nobody else can enter before the directory has its own mode.
        let attributes = NewAttributes { mode: Some(0o700), ..Default::default() };
        match self.session.files.mkdir(directory, name, attributes).await {
            Ok(made) => Ok((made.file, true)),
            Err(error) if error.exists() => {
                let found = self.session.files.lookup(directory, name).await?;
                ensure!(
                    found.attributes.file_type == FileType::Directory,
                    "exists on the server and is not a directory"
                );
                Ok((found.file, false))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn symlink(&self, facts: &Facts, directory: &Handle, name: &Name, target: Bytes) -> Result<Handle> {
        let nfs = &self.session.files;
        let make = async |name: &Name| nfs.symlink(directory, name, NewAttributes::default(), target.clone()).await;
        let link = match make(name).await {
            Err(error) if error.exists() => self.links().replace(directory, name, make).await?.file,
            made => made?.file,
        };
        self.tally.borrow_mut().links += 1;
        if self.no_attributes {
            return Ok(link);
        }
        match nfs.setattr(&link, facts.times(), None).await {
            // Some file systems keep no times of their own for links.
            Err(error) if !error.is_not_supported() && !error.is_invalid() => Err(error.into()),
            _ => Ok(link),
        }
    }

    fn done(&self, (local, result): (PathBuf, Result<()>)) -> Result<()> {
        result.or_else(|error| self.check(&local, error))
    }

    fn check(&self, local: &Path, error: anyhow::Error) -> Result<()> {
        let error = self.counterparts.borrow().name(local, error);
        self.tally.borrow_mut().check(local.as_os_str().as_bytes(), error)
    }

    fn failed(&self, local: &Path, error: &anyhow::Error) {
        self.tally.borrow_mut().failed(local.as_os_str().as_bytes(), error);
    }

    /// The file on the server belongs to another user, who alone may change its mode and times.
    fn tell_attributes_not_kept(&self, local: &Path) {
        let mut tally = self.tally.borrow_mut();
        tally.attributes_not_kept(local.as_os_str().as_bytes(), ATTRIBUTES_NOT_KEPT);
    }

    fn note(&self, local: &Path, what: &str) {
        self.tally.borrow().note(local.as_os_str().as_bytes(), what);
    }

    /// Makes further names, and gives directories their modes and times, the innermost first.
    async fn finish(&self) -> Result<()> {
        loop {
            // Taken one by one: what is left when the command ends is reported.
            let Some(link) = self.later.borrow().last().cloned() else { break };
            let first = self.first_names.borrow().get(&link.first).cloned().flatten();
            let made = match first {
                Some(first) => self.links().hard_link(&first, &link.directory, &link.name).await,
                None => Err(anyhow::anyhow!("is another name of a file that was not copied")),
            };
            match made {
                Ok(()) => self.tally.borrow_mut().links += 1,
                Err(error) => self.check(&link.local, error)?,
            }
            self.later.borrow_mut().pop();
        }
        loop {
            let Some((local, directory, attributes)) = self.directories.borrow().last().cloned() else { break };
            match self.session.files.setattr(&directory, attributes, None).await {
                Err(error) if error.is_denied() => self.tell_attributes_not_kept(&local),
                Err(error) => self.check(&local, error.into())?,
                Ok(_) => {}
            }
            self.directories.borrow_mut().pop();
        }
        self.directory_lists().await
    }

    /// A fresh name beside a target. It is cleaned up until it is settled.
    fn new_name(&self, directory: &Handle, target: &Name) -> Unfinished {
        self.links().new_name(directory, target)
    }

    fn links(&self) -> Links<'_> {
        Links { files: &self.session.files, random: &*self.random, unfinished: &self.unfinished }
    }
}
