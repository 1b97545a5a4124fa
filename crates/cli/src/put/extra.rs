//! What `put --xattrs` keeps besides contents, mode and times.

use super::{Copier, source::Local, upload::Upload};
use crate::extras::{self, Lists};
use anyhow::Result;
use rpcrdma_nfs_client::Handle;
use std::{fs::File, os::unix::ffi::OsStrExt, path::PathBuf};

/// The list of a directory, which it gets when it is full: before, new entries would inherit it.
pub(super) struct Full {
    local: PathBuf,
    made: Handle,
    lists: Lists,
}

impl Copier<'_> {
    /// Keeps a file's extended attributes, if that is asked for, before it gets its mode.
    pub(super) async fn file_extras(&self, local: &Local, here: &File, upload: &Upload) -> Result<()> {
        if self.xattrs {
            let told = extras::sent(here, &self.session.files, &upload.file.handle()).await?;
            self.tally.borrow_mut().extras_not_kept(local.path.as_os_str().as_bytes(), &told);
        }
        Ok(())
    }

    /// Keeps a file's list, which says more than the mode, after the file has its mode.
    pub(super) async fn file_list(&self, local: &Local, here: &File, upload: &Upload) -> Result<()> {
        if self.xattrs {
            let told = match extras::local_lists(here, false) {
                None => Vec::new(),
                Some(lists) => extras::lists_sent(&self.session.files, &upload.file.handle(), lists, false).await?,
            };
            self.tally.borrow_mut().extras_not_kept(local.path.as_os_str().as_bytes(), &told);
        }
        Ok(())
    }

    /// Keeps a directory's extended attributes, and takes its list for later.
    pub(super) async fn directory_extras(&self, local: &Local, made: &Handle) -> Result<()> {
        if !self.xattrs {
            return Ok(());
        }
        let here = local.open_directory_alone()?;
        let told = extras::sent(&here, &self.session.files, made).await?;
        if let Some(lists) = extras::local_lists(&here, true) {
            self.full.borrow_mut().push(Full { local: local.path.clone(), made: made.clone(), lists });
        }
        self.tally.borrow_mut().extras_not_kept(local.path.as_os_str().as_bytes(), &told);
        Ok(())
    }

    /// Gives directories their lists, after their modes.
    pub(super) async fn directory_lists(&self) -> Result<()> {
        for Full { local, made, lists } in self.full.take() {
            match extras::lists_sent(&self.session.files, &made, lists, true).await {
                Ok(told) => self.tally.borrow_mut().extras_not_kept(local.as_os_str().as_bytes(), &told),
                Err(error) => self.check(&local, error)?,
            }
        }
        Ok(())
    }
}
