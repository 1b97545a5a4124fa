//! What `get --xattrs` keeps besides contents, mode and times.

use super::Copier;
use crate::{extras, session::Session};
use anyhow::Result;
use rpcrdma_nfs_client::Handle;
use rustix::fs::{CWD, Mode, OFlags};
use std::{
    fs::File,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A directory whose attributes are set when it is full: before, new entries would inherit its list.
pub(super) struct Full {
    pub(super) local: PathBuf,
    pub(super) session: Arc<Session>,
    pub(super) directory: Handle,
}

impl Copier {
    /// Keeps a file's attributes and list, if that is asked for, before it gets its mode.
    pub(super) async fn file_extras(&self, session: &Session, file: &Handle, here: &File, local: &Path) -> Result<()> {
        if self.xattrs {
            let told = extras::fetched(&session.files, file, false, here).await?;
            self.tally.borrow_mut().extras_not_kept(local.as_os_str().as_bytes(), &told);
        }
        Ok(())
    }

    /// The same for all directories, before they get their modes.
    pub(super) async fn directory_extras(&self) -> Result<()> {
        for Full { local, session, directory } in self.full.take() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let kept = async {
                let here = rustix::fs::openat(CWD, &local, flags, Mode::empty())?;
                extras::fetched(&session.files, &directory, true, here).await
            };
            match kept.await {
                Ok(told) => self.tally.borrow_mut().extras_not_kept(local.as_os_str().as_bytes(), &told),
                Err(error) => self.check(&local, error)?,
            }
        }
        Ok(())
    }
}
