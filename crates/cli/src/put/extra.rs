//! What `put --xattrs` keeps besides contents, mode and times.

use super::{Copier, source::Local, upload::Upload};
use crate::extras;
use anyhow::Result;
use rpcrdma_nfs::v4::Acl;
use rpcrdma_nfs_client::Handle;
use std::{fs::File, os::unix::ffi::OsStrExt, path::PathBuf};

/// The list of a directory, which it gets when it is full: before, what is made in it would inherit it.
pub(super) struct Full {
    local: PathBuf,
    made: Handle,
    acl: Acl,
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

    /// Keeps its list, which says more than the mode, after it has that.
    pub(super) async fn file_list(&self, local: &Local, here: &File, upload: &Upload) -> Result<()> {
        if self.xattrs {
            let told = match extras::local_list(here, false) {
                Ok(None) => Vec::new(),
                Ok(Some(acl)) => extras::list_sent(&self.session.files, &upload.file.handle(), &acl).await?,
                Err(why) => vec![why],
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
        let mut told = extras::sent(&here, &self.session.files, made).await?;
        match extras::local_list(&here, true) {
            Ok(None) => {}
            Ok(Some(acl)) => {
                self.full.borrow_mut().push(Full { local: local.path.clone(), made: made.clone(), acl });
            }
            Err(why) => told.push(why),
        }
        self.tally.borrow_mut().extras_not_kept(local.path.as_os_str().as_bytes(), &told);
        Ok(())
    }

    /// Gives directories their lists, after their modes.
    pub(super) async fn directory_lists(&self) -> Result<()> {
        for Full { local, made, acl } in self.full.take() {
            match extras::list_sent(&self.session.files, &made, &acl).await {
                Ok(told) => self.tally.borrow_mut().extras_not_kept(local.as_os_str().as_bytes(), &told),
                Err(error) => self.check(&local, error)?,
            }
        }
        Ok(())
    }
}
