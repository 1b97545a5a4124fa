//! One regular file from a server.

use super::{
    Copier,
    target::{Output, existing},
};
use crate::{
    copy::close_after,
    octets::Octets,
    partial::{RESUME_SPAN, same_time},
    session::Session,
};
use anyhow::{Result, bail, ensure};
use rpcrdma_nfs::attr::{Attributes, Time};
use rpcrdma_nfs_client::{Access, File, Found};
use std::{fs::Metadata, os::unix::fs::MetadataExt, path::Path};

/// Whether a local file has the size and the time of its source.
pub(super) fn is_copy(here: &Metadata, source: &Attributes) -> bool {
    let modified = Time::new(here.mtime(), u32::try_from(here.mtime_nsec()).unwrap_or(0));
    here.len() == source.size && same_time(modified, source.modified)
}

/// A copy under way.
struct Download<'a> {
    copier: &'a Copier,
    session: &'a Session,
    file: &'a File,
    source: &'a Attributes,
    local: &'a Path,
    /// `None` until the first bytes have come.
    output: Option<Output>,
}

impl Copier {
    pub(super) async fn regular(&self, session: &Session, found: &Found, local: &Path) -> Result<()> {
        let source = &found.attributes;
        let here = existing(local)?;
        if self.placing.resume && here.is_some_and(|here| is_copy(&here, source)) {
            self.tally.borrow_mut().passed_over(source.size);
            return Ok(());
        }
        let output = Output::open_part(local, self.placing, source)?;
        let file = session.files.open(found, Access::Read).await?;
        let mut download = Download { copier: self, session, file: &file, source, local, output };
        let copied = download.run().await;
        if copied.is_err()
            && let Some(remains) = download.output.as_ref().and_then(Output::remains)
        {
            self.note(local, &remains);
        }
        close_after(file, copied).await
    }
}

impl Download<'_> {
    async fn run(&mut self) -> Result<()> {
        let begin = self.output.as_ref().map_or(0, |output| output.offset);
        let mut octets = Octets::of(self.session, self.file.clone(), self.source, begin);
        let (mut len, mut checkpoint) = (begin, begin);
        while let Some(block) = octets.next().await? {
            let source = self.source;
            let output = self.output()?;
            len = block.offset + block.data.len() as u64;
            if len - checkpoint > RESUME_SPAN {
                output.checkpoint().await?;
                checkpoint = block.offset;
            }
            output.write_data(&block.data, block.offset, source)?;
            self.copier.tally.borrow_mut().moved(block.data.len());
        }
        self.output()?;
        len = octets.len(len).await?;
        self.compare(len, begin).await?;
        if let Some(output) = &self.output {
            self.copier.file_extras(self.session, &self.file.handle(), output.file(), self.local).await?;
        }
        if let Some(output) = self.output.take()
            && let Some(note) = output.finish(len, self.source).await?
        {
            self.copier.note(self.local, note);
        }
        self.copier.tally.borrow_mut().file_done();
        Ok(())
    }

    /// The file that is written, from now on.
    fn output(&mut self) -> Result<&Output> {
        if self.output.is_none() {
            let output = Output::open(self.local, self.copier.placing, self.source, &*self.copier.random)?;
            if let Some(reason) = output.in_place {
                self.copier.note(self.local, &format!("is written in place: {reason}"));
            }
            self.output = Some(output);
        }
        match &self.output {
            Some(output) => Ok(output),
            None => bail!("is not open"),
        }
    }

    /// Whether the copy, of which a part may be older, equals the file.
    async fn compare(&mut self, len: u64, begin: u64) -> Result<()> {
        if len == self.source.size && begin == 0 {
            return Ok(());
        }
        // The listing may be older than the file.
        let now = self.file.getattr().await?;
        let is_unsized = self.source.size == 0 && now.size == 0;
        // If the source was only appended to, the copy is a whole state of it; if it was cut off, data is missing or
        // mixed with newer data.
        let may_have_grown = begin == 0 && len >= self.source.size;
        let is_same = len == now.size && (may_have_grown || now.modified == self.source.modified);
        if !is_same
            && !is_unsized
            && let Some(output) = &mut self.output
        {
            output.spoil();
        }
        ensure!(is_same || is_unsized, "{len} bytes came, the file has {}: it changed while it was copied", now.size);
        Ok(())
    }
}
