//! Removing a directory and all below it.
//!
//! Everything is named by a directory's handle and one name in it, so no symbolic link is ever followed, whatever
//! happens on the server meanwhile. Names and types come from the server and are not trusted: a name that cannot stand
//! for one file is refused, and how deep a tree may be is bounded.

use super::Errors;
use crate::{
    depth::{MAX_DEPTH, TooDeep},
    failure::is_hopeless,
    get::checked_name,
    session::Session,
};
use anyhow::{Result, bail};
use futures_util::{StreamExt, stream::FuturesUnordered};
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::attr::FileType;
use rpcrdma_nfs_client::{Error, Handle, Listing, Name};

/// Files being removed at a time.
const REMOVALS: usize = 32;
/// How often a directory is read from its beginning, while files are removed from it: a server may overlook names when
/// others vanish.
const PASSES: u32 = 8;

/// A directory that is being emptied.
struct Level {
    /// The directory that it is in.
    above: Handle,
    name: Name,
    directory: Handle,
    listing: Listing,
    passes: u32,
    /// Something in it could not be removed, which has been reported.
    stuck: bool,
}

type Removal<'a> = BoxFuture<'a, (Name, Result<(), Error>)>;

/// Removes trees.
pub(super) struct Tree<'a> {
    session: &'a Session,
    /// The user's name for the top.
    shown: &'a [u8],
    errors: &'a mut Errors,
    levels: Vec<Level>,
    removals: FuturesUnordered<Removal<'a>>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(session: &'a Session, shown: &'a [u8], errors: &'a mut Errors) -> Self {
        Self { session, shown, errors, levels: Vec::new(), removals: FuturesUnordered::new() }
    }

    /// Removes `directory`, called `name` in `above`, and everything below it. What cannot be removed is reported and
    /// counted.
    ///
    /// # Errors
    /// Only if going on is hopeless.
    pub(super) async fn remove(mut self, above: Handle, name: Name, directory: Handle) -> Result<()> {
        self.enter(above, name, directory);
        while let Some(level) = self.levels.last_mut() {
            match level.listing.next().await {
                Ok(Some(entry)) => {
                    let (parent, name) = (level.directory.clone(), entry.name.clone());
                    let kind = entry.attributes.map(|attributes| attributes.file_type);
                    let done = self.entry(parent, &name, kind, entry.file).await;
                    self.check(&name, done)?;
                    while self.removals.len() >= REMOVALS {
                        self.removed().await?;
                    }
                }
                Ok(None) => self.leave(None).await?,
                Err(error) => self.leave(Some(error)).await?,
            }
        }
        Ok(())
    }

    fn enter(&mut self, above: Handle, name: Name, directory: Handle) {
        let listing = self.session.files.list(&directory, self.session.transfer);
        self.levels.push(Level { above, name, directory, listing, passes: 1, stuck: false });
    }

    /// Enters a directory, begins to remove anything else.
    async fn entry(&mut self, parent: Handle, name: &Name, kind: Option<FileType>, file: Option<Handle>) -> Result<()> {
        checked_name(name.as_slice())?;
        let nfs = &self.session.files;
        let (kind, file) = match (kind, file) {
            (Some(kind), Some(file)) => (kind, file),
            _ => match nfs.lookup(&parent, name).await {
                Ok(found) => (found.attributes.file_type, found.file),
                // Another program has removed it.
                Err(error) if error.is_absent() => return Ok(()),
                Err(error) => return Err(error.into()),
            },
        };
        if kind != FileType::Directory {
            let name = name.clone();
            self.removals.push(Box::pin(async move {
                let removed = nfs.remove(&parent, &name).await;
                (name, removed)
            }));
            return Ok(());
        }
        if self.levels.len() >= MAX_DEPTH {
            bail!(TooDeep);
        }
        // The removals under way belong to the directory above.
        self.settle().await?;
        self.enter(parent, name.clone(), file);
        Ok(())
    }

    /// The innermost directory has been read: it is removed, or read again if there is something left in it.
    async fn leave(&mut self, failure: Option<Error>) -> Result<()> {
        self.settle().await?;
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let again = match failure {
            Some(error) if error.is_bad_cookie() && level.passes < PASSES => true,
            Some(error) => {
                self.stuck_here(&error.into())?;
                false
            }
            None if level.stuck => false,
            None => match self.session.files.rmdir(&level.above, &level.name).await {
                Ok(()) => false,
                Err(error) if error.is_absent() => false,
                Err(error) if error.is_not_empty() && level.passes < PASSES => true,
                Err(error) => {
                    self.stuck_here(&error.into())?;
                    false
                }
            },
        };
        if again && let Some(level) = self.levels.last_mut() {
            level.passes += 1;
            level.listing = self.session.files.list(&level.directory, self.session.transfer);
            return Ok(());
        }
        let left = self.levels.pop();
        if let Some(above) = self.levels.last_mut() {
            above.stuck |= left.is_some_and(|level| level.stuck);
        }
        Ok(())
    }

    /// Waits for one file's removal.
    async fn removed(&mut self) -> Result<()> {
        match self.removals.next().await {
            Some((name, Err(error))) if !error.is_absent() => self.check(&name, Err(error.into())),
            _ => Ok(()),
        }
    }

    /// Waits for all.
    async fn settle(&mut self) -> Result<()> {
        while !self.removals.is_empty() {
            self.removed().await?;
        }
        Ok(())
    }

    /// Reports that a name in the innermost directory stays.
    fn check(&mut self, name: &Name, done: Result<()>) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        if is_hopeless(&error) {
            bail!(error);
        }
        let mut path = self.path();
        path.push(b'/');
        path.extend_from_slice(name.as_slice());
        self.errors.tell(&path, &error);
        if let Some(level) = self.levels.last_mut() {
            level.stuck = true;
        }
        Ok(())
    }

    /// Reports that the innermost directory stays.
    fn stuck_here(&mut self, error: &anyhow::Error) -> Result<()> {
        if is_hopeless(error) {
            bail!("{error:#}");
        }
        let path = self.path();
        self.errors.tell(&path, error);
        if let Some(level) = self.levels.last_mut() {
            level.stuck = true;
        }
        Ok(())
    }

    /// The innermost directory's path. Made only for messages: it may be long.
    fn path(&self) -> Vec<u8> {
        let mut path = self.shown.to_vec();
        while path.ends_with(b"/") {
            path.pop();
        }
        for level in self.levels.iter().skip(1) {
            path.push(b'/');
            path.extend_from_slice(level.name.as_slice());
        }
        path
    }
}
