//! One regular file to a server: to a temporary name beside the target, which becomes the target's name when the file
//! is whole, or into the target ([`target`](super::target)).
//!
//! A temporary file is removed when the copy fails, and when the command is interrupted ([`Copier::clean_up`]). With
//! `--resume` it has a name by which the next copy finds it, and stays.

use super::{
    Copier, default_mode,
    small::{SMALL_BYTES, Small},
    source::{Facts, Local, Octets},
};
use crate::{
    copy::{DEPTH, close_after},
    failure::is_hopeless,
    links::Unfinished,
    names::escaped,
    partial::RESUME_SPAN,
};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use rpcrdma_nfs::attr::NewAttributes;
use rpcrdma_nfs_client::{File, Handle, Name, Writer};
use std::time::Duration;

/// How long the removal of unfinished files may take when a copy fails or is interrupted: the server may be the cause.
pub(super) const CLEAN_UP_TIME: Duration = Duration::from_secs(5);

/// A file on the server that is being written.
pub(super) struct Upload {
    pub(super) file: File,
    /// The name that it has, if that is not the target's.
    pub(super) beside: Option<Name>,
    /// The file that is removed if the copy fails.
    pub(super) unfinished: Option<Unfinished>,
    /// It stays for `--resume`.
    pub(super) kept: bool,
    /// The size of the file into which we write.
    pub(super) old_size: u64,
    /// The position from which it is written.
    pub(super) offset: u64,
    /// The mode that a new file gets if it does not get its source's.
    pub(super) mode: u32,
}

impl Upload {
    /// Whether it existed before, and is written under its own name.
    fn is_in_place(&self) -> bool {
        self.beside.is_none() && self.unfinished.is_none()
    }
}

/// All bytes of a small file, if the first are all.
fn all_of_small(octets: &Octets, first: Option<&(u64, Bytes)>) -> Option<Bytes> {
    let data = match first {
        None => Bytes::new(),
        Some((0, data)) => data.clone(),
        Some(_) => return None,
    };
    let is_all = octets.size() == Some(data.len() as u64) && data.len() as u64 <= SMALL_BYTES;
    is_all.then_some(data)
}

impl Copier<'_> {
    /// Copies a regular file. Nothing is made or changed on the server before its first bytes have been read here.
    /// `is_fresh`: this run has made the directory, and nothing has the name yet.
    pub(super) async fn regular(
        &self,
        local: &Local,
        directory: &Handle,
        name: &Name,
        is_fresh: bool,
    ) -> Result<Handle> {
        let (file, facts) = local.open_file()?;
        let mut octets = Octets::new(file, &facts, self.session.transfer.write)?;
        let existing = if is_fresh { None } else { self.existing(directory, name).await? };
        if let Some(existing) = existing.as_ref().filter(|existing| self.placing.resume && existing.is_copy(&facts)) {
            self.tally.borrow_mut().passed_over(facts.size);
            return Ok(existing.node.file.clone());
        }
        let first = octets.next(&self.session.pool).await?;
        if let Some(data) = all_of_small(&octets, first.as_ref())
            && let Some(placed) =
                self.place(Small { directory, name, facts: &facts, existing: existing.as_ref(), data }).await?
        {
            return Ok(placed);
        }
        let resumable = octets.size().is_some_and(|size| size > 0).then_some(&facts);
        let (is_source, old_mode) = (
            existing.as_ref().is_some_and(|existing| existing.is_source(&facts)),
            existing.as_ref().map(|existing| existing.attributes.mode & 0o7777),
        );
        let mut upload = self.open(local, directory, name, existing, resumable).await?;
        upload.mode = old_mode.unwrap_or_else(|| default_mode(facts.mode));
        let begun = self.begin(&upload, is_source, old_mode.unwrap_or(facts.mode), &facts).await;
        if let Err(error) = begun {
            return close_after(upload.file, Err(error)).await;
        }
        let sent = self.send(local, &upload, &facts, &mut octets, first).await;
        let sent = close_after(upload.file.clone(), sent).await;
        let placed = match (sent, &upload.beside) {
            (Ok(()), Some(beside)) => {
                let renamed = self.session.files.rename(directory, beside, directory, name).await;
                renamed.context("cannot replace the file that is there")
            }
            (sent, _) => sent,
        };
        match placed {
            Ok(()) => {
                self.settle(upload.unfinished.as_ref());
                self.tally.borrow_mut().file_done();
                Ok(upload.file.handle())
            }
            Err(error) => {
                self.abandon(local, &upload, &error).await;
                Err(error)
            }
        }
    }

    /// Looks at a file that is written in place, and takes rights from it, before anything is written.
    async fn begin(&self, upload: &Upload, is_source: bool, old_mode: u32, facts: &Facts) -> Result<()> {
        if !upload.is_in_place() {
            return Ok(());
        }
        ensure!(!is_source, "is the same file as its source");
        // --no-attributes: the user wants the mode to stay.
        if self.no_attributes { Ok(()) } else { self.narrow(upload, old_mode, facts).await }
    }

    /// Sends the data, makes it durable, and gives the file its attributes.
    async fn send(
        &self,
        local: &Local,
        upload: &Upload,
        facts: &Facts,
        octets: &mut Octets,
        first: Option<(u64, Bytes)>,
    ) -> Result<()> {
        let pool = &self.session.pool;
        let mut writer = Writer::new(upload.file.clone(), octets.block, DEPTH);
        if octets.size().is_some_and(|size| size <= octets.block.into()) {
            // One call to write it, and none to make it durable.
            writer = writer.durably();
        }
        let mut next = first;
        if upload.offset > 0 {
            octets.go_to(upload.offset);
            next = octets.next(pool).await?;
        }
        if upload.old_size > 0 {
            self.replace(upload, &mut writer, next.as_ref()).await?;
        }
        let mut checkpoint = upload.offset;
        while let Some((offset, data)) = next {
            let len = data.len();
            if upload.kept && offset + len as u64 - checkpoint > RESUME_SPAN {
                writer.checkpoint().await?;
                checkpoint = offset;
                // From now on the part is worth keeping.
                self.settle(upload.unfinished.as_ref());
            }
            writer.write(offset, data).await?;
            self.tally.borrow_mut().moved(len);
            next = octets.next(pool).await?;
        }
        writer.finish().await?;
        self.file_extras(local, octets.file(), upload).await?;
        let size = octets.size().context("has no end")?;
        let size_alone = NewAttributes { size: Some(size), ..Default::default() };
        let all = match (self.no_attributes, upload.is_in_place()) {
            (false, _) => NewAttributes { size: Some(size), ..facts.mode_and_times() },
            (true, true) => size_alone,
            (true, false) => NewAttributes { mode: Some(upload.mode), ..size_alone },
        };
        let set = match upload.file.setattr(all).await {
            Err(error) if upload.is_in_place() && error.is_denied() => {
                self.tell_attributes_not_kept(&local.path);
                upload.file.setattr(size_alone).await?
            }
            set => set?,
        };
        let now = match set {
            Some(after) => after.size,
            None => upload.file.getattr().await?.size,
        };
        ensure!(now == size, "{size} bytes were sent, the file on the server has {now}");
        self.file_list(local, octets.file(), upload).await
    }

    /// Takes rights from a file that is written in place which the source does not give: nobody should read private
    /// data through the old rights. A caller who does not own the file cannot do that, and writes for those who may
    /// read it.
    async fn narrow(&self, upload: &Upload, old_mode: u32, facts: &Facts) -> Result<()> {
        let mode = old_mode & facts.mode;
        if mode == old_mode {
            return Ok(());
        }
        let narrower = NewAttributes { mode: Some(mode), ..Default::default() };
        match upload.file.setattr(narrower).await {
            Err(error) if !error.is_denied() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Takes away the old contents of a file that is written in place, once the server has taken the first bytes of the
    /// new: if it refuses to write, the old contents must not be lost.
    async fn replace(&self, upload: &Upload, writer: &mut Writer, first: Option<&(u64, Bytes)>) -> Result<()> {
        let mut keep = 0;
        if let Some((offset, data)) = first {
            writer.write(*offset, data.clone()).await?;
            writer.checkpoint().await?;
            // Before the first bytes there may be a hole, where the old ones must not shine through; they come again.
            keep = if *offset == 0 { data.len() as u64 } else { 0 };
        }
        if keep < upload.old_size {
            let shorter = NewAttributes { size: Some(keep), ..Default::default() };
            upload.file.setattr(shorter).await?;
        }
        Ok(())
    }

    /// A copy has failed: removes a file that is of no use.
    async fn abandon(&self, local: &Local, upload: &Upload, error: &anyhow::Error) {
        let is_worthless = upload.unfinished.as_ref().is_some_and(|file| self.unfinished.borrow().contains(file));
        if let (true, false, Some(part)) = (upload.kept, is_worthless, &upload.beside) {
            let part = escaped(part.as_slice());
            self.note(&local.path, &format!("the part that the server has is kept in {part} for --resume"));
        } else if !is_worthless {
            self.note(&local.path, "was written in place on the server, and may not be whole now");
        } else if !is_hopeless(error) {
            // If this fails, it is tried once more at the end, and reported.
            let _ = tokio::time::timeout(CLEAN_UP_TIME, self.remove(upload)).await;
        }
    }

    /// Removes a file that is of no use after all.
    pub(super) async fn discard(&self, upload: Upload) -> Result<()> {
        let removed = self.remove(&upload).await;
        close_after(upload.file, removed).await
    }

    async fn remove(&self, upload: &Upload) -> Result<()> {
        if let Some(Unfinished { directory, name, .. }) = &upload.unfinished {
            self.session.files.remove(directory, name).await?;
            self.settle(upload.unfinished.as_ref());
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
        let removed = async {
            for Unfinished { directory, name, unsure } in &unfinished {
                if *unsure && !self.is_surely_ours(directory, name).await {
                    self.left(name, "it may have existed before, so the command did not remove it");
                    continue;
                }
                match self.session.files.remove(directory, name).await {
                    Err(error) if !error.is_absent() => self.left(name, &format!("{:#}", anyhow::Error::from(error))),
                    _ => {}
                }
            }
        };
        if tokio::time::timeout(CLEAN_UP_TIME, removed).await.is_err() {
            for Unfinished { name, .. } in &unfinished {
                self.left(name, "the server does not answer");
            }
        }
    }

    /// Whether an existing file can be removed without loss: it is gone, or an empty file of ours with one name.
    async fn is_surely_ours(&self, directory: &Handle, name: &Name) -> bool {
        match self.existing(directory, name).await {
            Ok(Some(found)) => found.is_empty_file_of(self.own.borrow().as_ref()),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    fn left(&self, name: &Name, why: &str) {
        self.tally.borrow().note(name.as_slice(), &format!("may be left on the server: {why}"));
    }
}
