//! Files without contents, and what is made when everything else exists: links, special files, and what directories
//! have besides their entries.

use super::{ATTRIBUTES_NOT_KEPT, Copier, Filled, Item, times};
use crate::{extras, links::Links};
use anyhow::{Result, bail, ensure};
use rpcrdma_nfs::attr::{FileType, NewAttributes};
use rpcrdma_nfs_client::{Handle, Name, NodeKind};

impl Copier<'_> {
    pub(super) async fn symlink(&self, item: &Item) -> Result<Handle> {
        let target = item.from.files.readlink(&item.found.file).await?;
        let (nfs, none) = (&self.to.files, NewAttributes::default());
        let make = async |name: &Name| nfs.symlink(&item.directory, name, none, target.clone()).await;
        let link = match make(&item.name).await {
            Err(error) if error.exists() => self.links().replace(&item.directory, &item.name, make).await?.file,
            made => made?.file,
        };
        self.tally.borrow_mut().links += 1;
        if self.args.no_attributes {
            return Ok(link);
        }
        match nfs.setattr(&link, times(&item.found.attributes), None).await {
            // Some file systems keep no times of their own for links.
            Err(error) if !error.is_not_supported() && !error.is_invalid() => Err(error.into()),
            _ => Ok(link),
        }
    }

    /// Makes a special file. An existing one of the same kind counts as made.
    pub(super) async fn node(&self, item: &Item) -> Result<Handle> {
        let source = &item.found.attributes;
        let kind = match source.file_type {
            FileType::Fifo => NodeKind::Fifo,
            FileType::Socket => NodeKind::Socket,
            FileType::Character => NodeKind::Character(source.device),
            FileType::Block => NodeKind::Block(source.device),
            other => bail!("a {} is not copied", crate::names::file_type(other)),
        };
        let attributes = NewAttributes { mode: Some(source.mode & 0o777), ..Default::default() };
        let file = match self.to.files.mknod(&item.directory, &item.name, kind, attributes).await {
            Err(error) if error.exists() => {
                let there = self.to.files.lookup(&item.directory, &item.name).await?;
                let is_device = matches!(kind, NodeKind::Character(_) | NodeKind::Block(_));
                let is_same = there.attributes.file_type == source.file_type
                    && (!is_device || there.attributes.device == source.device);
                let other = crate::names::file_type(there.attributes.file_type);
                ensure!(is_same, "exists at the target and is another {other}");
                there.file
            }
            made => made?.file,
        };
        self.tally.borrow_mut().special += 1;
        Ok(file)
    }

    /// Makes further names, and gives directories their attributes, the innermost first.
    pub(super) async fn finish(&self) -> Result<()> {
        loop {
            // Taken one by one: what is left when the command ends is reported.
            let Some(item) = self.later.borrow().last().cloned() else { break };
            let first = self.first_names.borrow().get(&item.id()).cloned().flatten();
            let made = match first {
                Some(first) => self.links().hard_link(&first, &item.directory, &item.name).await,
                None => Err(anyhow::anyhow!("is another name of a file that was not copied")),
            };
            match made {
                Ok(()) => self.tally.borrow_mut().links += 1,
                Err(error) => self.check(&item.shown, error)?,
            }
            self.later.borrow_mut().pop();
        }
        loop {
            let Some(filled) = self.directories.borrow().last().cloned() else { break };
            if let Err(error) = self.finish_directory(&filled).await {
                self.check(&filled.item.shown, error)?;
            }
            self.directories.borrow_mut().pop();
        }
        Ok(())
    }

    async fn finish_directory(&self, Filled { item, made, attributes }: &Filled) -> Result<()> {
        let (from, source) = (&item.from.files, &item.found.file);
        if self.args.xattrs {
            let told = extras::across(from, source, &self.to.files, made).await?;
            self.tally.borrow_mut().extras_not_kept(&item.shown, &told);
        }
        if let Some(attributes) = attributes {
            match self.to.files.setattr(made, *attributes, None).await {
                Err(error) if error.is_denied() => {
                    self.tally.borrow_mut().attributes_not_kept(&item.shown, ATTRIBUTES_NOT_KEPT);
                }
                set => {
                    set?;
                }
            }
        }
        if self.args.xattrs {
            let told = extras::acl_across((from, source), (&self.to.files, made), true).await?;
            self.tally.borrow_mut().extras_not_kept(&item.shown, &told);
        }
        Ok(())
    }

    /// The command has ended before [`Self::finish`] was done: reports what is missing.
    pub(super) fn tell_undone(&self) {
        for item in self.later.borrow().iter() {
            self.note(&item.shown, "this hard link was not made at the target, because the command ended early");
        }
        for filled in self.directories.borrow().iter() {
            self.note(
                &filled.item.shown,
                "did not get its mode and times at the target, because the command ended early",
            );
        }
    }

    fn links(&self) -> Links<'_> {
        Links { files: &self.to.files, random: &*self.random, unfinished: &self.unfinished }
    }
}
