//! Small files to a server: made, written and put in their places by one call each, many of them at a time.
//!
//! This is a short cut if the version has such a call (from 4.1 on) and nothing prevents it. A file that was not made
//! in this way is sent like every other ([`Copier::regular`]), which also reports what is wrong with it.

use super::{Copier, default_mode, source::Facts, target::Existing, upload::CLEAN_UP_TIME};
use anyhow::Result;
use bytes::Bytes;
use rpcrdma_nfs::attr::NewAttributes;
use rpcrdma_nfs_client::{Handle, Name, NewFile};

/// The largest file that counts as small.
pub(super) const SMALL_BYTES: u64 = 64 << 10;
/// Small files under way, beside [`FILES`](crate::copy::FILES) others: 6 MiB at most.
pub(super) const SMALL_FILES: usize = 96;
/// The mode of a file that is not whole: nobody else opens it.
const UNFINISHED_MODE: u32 = 0o600;

/// A small file and where it goes.
pub(super) struct Small<'a> {
    pub(super) directory: &'a Handle,
    pub(super) name: &'a Name,
    pub(super) facts: &'a Facts,
    /// The file that has the name, if there is one.
    pub(super) existing: Option<&'a Existing>,
    /// All of it.
    pub(super) data: Bytes,
}

impl Copier<'_> {
    /// Makes a small file in one call. Returns its handle, or `None` if it must be sent in the usual way.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub(super) async fn place(&self, small: Small<'_>) -> Result<Option<Handle>> {
        let Small { directory, name, facts, existing, data } = small;
        let may_replace =
            existing.is_none_or(|existing| self.own.borrow().as_ref().is_some_and(|own| existing.is_alone_of(own)));
        let is_plain = !self.xattrs && !self.placing.inplace && !self.placing.resume;
        if !may_replace || !is_plain || !self.session.files.can_place() {
            return Ok(None);
        }
        let attributes = match (self.no_attributes, existing) {
            (false, _) => facts.mode_and_times(),
            (true, Some(existing)) => {
                NewAttributes { mode: Some(existing.attributes.mode & 0o7777), ..Default::default() }
            }
            (true, None) => NewAttributes { mode: Some(default_mode(facts.mode)), ..Default::default() },
        };
        // Cleaned up from now on: an interruption must not come between.
        let unfinished = self.new_name(directory, name);
        let (temporary, len) = (&unfinished.name, data.len());
        let new = NewFile { directory, temporary, name, mode: UNFINISHED_MODE, attributes, data };
        match self.session.files.place(new).await {
            Ok((file, attributes)) => {
                self.settle(Some(&unfinished));
                if self.own.borrow().is_none() {
                    self.own.replace(Some(attributes.owner()));
                }
                let mut tally = self.tally.borrow_mut();
                tally.moved(len);
                tally.file_done();
                Ok(Some(file))
            }
            Err(error) if error.is_unreachable() => Err(error.into()),
            Err(error) => {
                tracing::debug!(%error, "a small file could not be made in one call, and is sent in several");
                if error.has_made_nothing() {
                    self.settle(Some(&unfinished));
                } else if let Ok(removed) =
                    tokio::time::timeout(CLEAN_UP_TIME, self.session.files.remove(directory, temporary)).await
                    && removed.as_ref().map_or_else(|error| error.is_absent(), |()| true)
                {
                    self.settle(Some(&unfinished));
                }
                Ok(None)
            }
        }
    }
}
