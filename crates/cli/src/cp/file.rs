//! One regular file: to a temporary name beside the target, which gets the target's name when the file is whole. If the
//! existing file has several names or belongs to another user, it is written into, so that these stay.

use super::{ATTRIBUTES_NOT_KEPT, Copier, Item, default_mode, mode_and_times};
use crate::{
    copy::close_after,
    extras,
    failure::is_hopeless,
    links::Unfinished,
    partial::{NAMES_TRIED, temporary_name},
};
use anyhow::{Context, Result, bail, ensure};
use rpcrdma_nfs::attr::{Attributes, FileType, NewAttributes, Who};
use rpcrdma_nfs_client::{Access, Cause, CreateHow, Error, File, Found, Handle, Name};
use std::{sync::Arc, time::Duration};

/// How long the removal of unfinished files may take when a copy fails or is interrupted: the server may be the cause.
const CLEAN_UP_TIME: Duration = Duration::from_secs(5);

/// A file that is being written.
pub(super) struct Written {
    pub(super) file: File,
    /// The file that is removed if the copy fails; `None` if it existed before.
    unfinished: Option<Unfinished>,
    /// It has the target's name already.
    has_name: bool,
    /// The mode that it has, or gets if it does not get its source's.
    mode: u32,
}

impl Written {
    fn is_in_place(&self) -> bool {
        self.unfinished.is_none()
    }
}

fn cause(error: &anyhow::Error) -> Option<Cause> {
    crate::failure::cause(error).and_then(Error::cause)
}

impl Copier<'_> {
    /// Copies a regular file. Nothing is made or changed before the source could be opened.
    pub(super) async fn regular(&self, item: &Item) -> Result<Handle> {
        let existing = self.existing(item).await?;
        if let Some(existing) = &existing {
            let is_itself = self.is_one(&item.from, &item.found.attributes, &existing.attributes);
            ensure!(!is_itself, "is the same file as its target");
        }
        let source = item.from.files.open(&item.found, Access::Read).await?;
        let copied = self.copy_opened(item, &source, existing).await;
        close_after(source, copied).await
    }

    async fn copy_opened(&self, item: &Item, source: &File, existing: Option<Found>) -> Result<Handle> {
        let written = self.open(item, existing).await?;
        let filled = self.fill(item, source, &written).await;
        let filled = close_after(written.file.clone(), filled).await;
        let placed = match (filled, &written.unfinished) {
            (Ok(()), Some(Unfinished { name: beside, .. })) if !written.has_name => {
                let renamed = self.to.files.rename(&item.directory, beside, &item.directory, &item.name).await;
                renamed.context("cannot replace the file that is there")
            }
            (filled, _) => filled,
        };
        match placed {
            Ok(()) => {
                self.settle(written.unfinished.as_ref());
                self.tally.borrow_mut().file_done();
                Ok(written.file.handle())
            }
            Err(error) => {
                self.abandon(item, &written, &error).await;
                Err(error)
            }
        }
    }

    /// The existing file with the target's name.
    ///
    /// # Errors
    /// If it is of a kind that is not written to.
    async fn existing(&self, item: &Item) -> Result<Option<Found>> {
        let found = match self.to.files.lookup(&item.directory, &item.name).await {
            Err(error) if error.is_absent() => return Ok(None),
            found => found?,
        };
        match found.attributes.file_type {
            FileType::Regular => Ok(Some(found)),
            FileType::Symlink => bail!("is a symbolic link at the target; nothing is written through it"),
            other => bail!("is a {} at the target", crate::names::file_type(other)),
        }
    }

    /// Makes the file that is written, or opens the existing one.
    async fn open(&self, item: &Item, existing: Option<Found>) -> Result<Written> {
        let source_mode = item.found.attributes.mode;
        let reason = match (&existing, self.temporary(item).await) {
            (None, Ok(written)) => return Ok(Written { mode: default_mode(source_mode), ..written }),
            (None, Err(error)) if cause(&error) == Some(Cause::NameTooLong) => {
                let (file, unfinished, _) = self.make(item, item.name.clone()).await?;
                let mode = default_mode(source_mode);
                return Ok(Written { file, unfinished: Some(unfinished), has_name: true, mode });
            }
            (None, Err(error)) => return Err(error),
            (Some(there), Ok(written)) => {
                let Attributes { links, mode, .. } = there.attributes;
                let is_own = self.own.borrow().as_ref() == Some(&there.attributes.owner());
                let reason = match (links > 1, is_own) {
                    (true, _) => "it has several names",
                    (false, false) => "it belongs to another user",
                    (false, true) => return Ok(Written { mode: mode & 0o7777, ..written }),
                };
                let removed = self.remove(written.unfinished.as_ref()).await;
                close_after(written.file, removed).await?;
                reason
            }
            // A user who may not make a file there may still be allowed to write to this one.
            (Some(_), Err(error)) => match cause(&error) {
                Some(Cause::Denied | Cause::NotOwner) => "its directory cannot be written to",
                Some(Cause::NameTooLong) => "the longer name of a temporary file would be too long",
                _ => return Err(error),
            },
        };
        let Some(there) = existing else { bail!("does not exist and could not be made") };
        self.note(&item.shown, &format!("is written in place at the target: {reason}"));
        let mode = there.attributes.mode & 0o7777;
        let file = self.to.files.open(there, Access::Write).await?;
        Ok(Written { file, unfinished: None, has_name: true, mode })
    }

    /// Makes a file under a fresh name beside the target.
    async fn temporary(&self, item: &Item) -> Result<Written> {
        for _ in 0..NAMES_TRIED {
            let name = Name::from(temporary_name(item.name.as_slice(), &*self.random).as_slice());
            match self.make(item, name).await {
                Err(error) if cause(&error) == Some(Cause::Exists) => {}
                Err(error) => return Err(error.context("cannot make a temporary file beside it")),
                Ok((file, unfinished, owner)) => {
                    self.own.replace(Some(owner));
                    return Ok(Written { file, unfinished: Some(unfinished), has_name: false, mode: 0o600 });
                }
            }
        }
        bail!("cannot find a free name for a temporary file beside it")
    }

    /// Makes a file, which is removed if it does not become whole, and says to whom it belongs.
    async fn make(&self, item: &Item, name: Name) -> Result<(File, Unfinished, Who)> {
        let unfinished = Unfinished { directory: item.directory.clone(), name, unsure: false };
        let is_fresh = unfinished.name != item.name;
        // Noted before it exists: an interruption must not come between. A name that is not fresh may become another
        // program's.
        if is_fresh {
            self.unfinished.borrow_mut().push(unfinished.clone());
        }
        // Nobody else opens it before it is whole.
        let attributes = NewAttributes { mode: Some(0o600), ..Default::default() };
        let how = CreateHow::Guarded(attributes);
        let made = match self.to.files.create(&item.directory, &unfinished.name, how).await {
            Ok(made) => made,
            Err(error) => {
                // The server has not made the file, so it is not ours to remove.
                if error.has_made_nothing() {
                    self.settle(Some(&unfinished));
                }
                return Err(error.into());
            }
        };
        if !is_fresh {
            self.unfinished.borrow_mut().push(unfinished.clone());
        }
        let owner = match made.attributes {
            Some(attributes) => attributes.owner(),
            None => made.file.getattr().await?.owner(),
        };
        Ok((made.file, unfinished, owner))
    }

    /// Copies the bytes, and then the other properties of the file.
    async fn fill(&self, item: &Item, source: &File, written: &Written) -> Result<()> {
        let (target, attributes) = (&written.file, &item.found.attributes);
        if written.is_in_place() {
            // The new bytes may be secret: users who could read the old ones must not read them.
            let mode = (!self.args.no_attributes).then_some(written.mode & attributes.mode);
            let shorter = NewAttributes { size: Some(0), ..Default::default() };
            match target.setattr(NewAttributes { mode, ..shorter }).await {
                Err(error) if error.is_denied() => target.setattr(shorter).await?,
                set => set?,
            };
        }
        let size = self.octets(item, source, target).await?;
        if self.args.xattrs {
            let told = extras::across(&item.from.files, &source.handle(), &self.to.files, &target.handle()).await?;
            self.tally.borrow_mut().extras_not_kept(&item.shown, &told);
        }
        let is_one_server = Arc::ptr_eq(&item.from, self.to);
        let size_alone = NewAttributes { size: Some(size), ..Default::default() };
        let all = match (self.args.no_attributes, written.is_in_place()) {
            (false, _) => NewAttributes { size: Some(size), ..mode_and_times(attributes, is_one_server) },
            (true, true) => size_alone,
            (true, false) => NewAttributes { mode: Some(written.mode), ..size_alone },
        };
        let set = match target.setattr(all).await {
            Err(error) if written.is_in_place() && error.is_denied() => {
                self.tally.borrow_mut().attributes_not_kept(&item.shown, ATTRIBUTES_NOT_KEPT);
                target.setattr(size_alone).await?
            }
            set => set?,
        };
        let now = match set {
            Some(after) => after.size,
            None => target.getattr().await?.size,
        };
        ensure!(now == size, "{size} bytes were copied, the file at the target has {now}");
        if self.args.xattrs {
            // The list comes last: it says more than the mode, and setting the mode would change it.
            let (source, target) = (source.handle(), target.handle());
            let told = extras::acl_across((&item.from.files, &source), (&self.to.files, &target), false).await?;
            self.tally.borrow_mut().extras_not_kept(&item.shown, &told);
        }
        Ok(())
    }

    /// A copy has failed: removes a file that is of no use.
    async fn abandon(&self, item: &Item, written: &Written, error: &anyhow::Error) {
        if written.is_in_place() {
            self.note(&item.shown, "was written in place at the target, and may not be whole now");
        } else if !is_hopeless(error) {
            // If this fails, it is tried once more at the end, and reported.
            let _ = tokio::time::timeout(CLEAN_UP_TIME, self.remove(written.unfinished.as_ref())).await;
        }
    }

    async fn remove(&self, unfinished: Option<&Unfinished>) -> Result<()> {
        if let Some(Unfinished { directory, name, .. }) = unfinished {
            self.to.files.remove(directory, name).await?;
            self.settle(unfinished);
        }
        Ok(())
    }

    /// A file is whole, or gone.
    pub(super) fn settle(&self, settled: Option<&Unfinished>) {
        self.unfinished.borrow_mut().retain(|unfinished| Some(unfinished) != settled);
    }

    /// Removes files that have not become whole.
    pub(super) async fn clean_up(&self) {
        let unfinished = self.unfinished.take();
        let left = |name: &Name, why: &str| {
            self.note(name.as_slice(), &format!("may be left at the target: {why}"));
        };
        let removed = async {
            for Unfinished { directory, name, .. } in &unfinished {
                match self.to.files.remove(directory, name).await {
                    Err(error) if !error.is_absent() => left(name, &format!("{:#}", anyhow::Error::from(error))),
                    _ => {}
                }
            }
        };
        if tokio::time::timeout(CLEAN_UP_TIME, removed).await.is_err() {
            unfinished.iter().for_each(|unfinished| left(&unfinished.name, "the server does not answer"));
        }
    }
}
