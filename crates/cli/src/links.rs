//! Links on a server that may take the place of something, and the names there that are removed if the links are not
//! made.

use crate::partial::temporary_name;
use anyhow::{Context, Result};
use rpcrdma_env::Random;
use rpcrdma_nfs_client::{Error, Files, Handle, Name};
use std::cell::RefCell;

/// The name on a server of a file that is not whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfinished {
    pub(crate) directory: Handle,
    pub(crate) name: Name,
    /// Another program may have made the existing file: the name is not fresh, and the server has not returned whether
    /// it made it.
    pub(crate) unsure: bool,
}

/// Makes links on a server.
pub(crate) struct Links<'a> {
    pub(crate) files: &'a Files,
    pub(crate) random: &'a dyn Random,
    /// Files to be removed if they do not become whole.
    pub(crate) unfinished: &'a RefCell<Vec<Unfinished>>,
}

impl Links<'_> {
    /// Gives a file another name.
    pub(crate) async fn hard_link(&self, first: &Handle, directory: &Handle, name: &Name) -> Result<()> {
        match self.files.link(first, directory, name).await {
            Err(error) if error.exists() => {
                let there = self.files.lookup(directory, name).await?;
                if there.file == *first {
                    return Ok(());
                }
                self.replace(directory, name, async |beside| self.files.link(first, directory, beside).await).await?;
                Ok(())
            }
            made => {
                made?;
                Ok(())
            }
        }
    }

    /// Makes something by `make`, which gets a name for it, in the place of the old file of that name. The old file
    /// stays until the new one exists.
    pub(crate) async fn replace<T>(
        &self,
        directory: &Handle,
        name: &Name,
        make: impl AsyncFnOnce(&Name) -> Result<T, Error>,
    ) -> Result<T> {
        let beside = self.new_name(directory, name);
        let made = make(&beside.name).await;
        // The server has made nothing, so nothing is ours to remove.
        if made.as_ref().is_err_and(Error::has_made_nothing) {
            self.settle(&beside);
        }
        let made = made?;
        self.take_place(&beside, name).await?;
        Ok(made)
    }

    /// A fresh name beside a target. It is cleaned up until it is settled.
    pub(crate) fn new_name(&self, directory: &Handle, target: &Name) -> Unfinished {
        let name = Name::from(temporary_name(target.as_slice(), self.random).as_slice());
        let beside = Unfinished { directory: directory.clone(), name, unsure: false };
        self.unfinished.borrow_mut().push(beside.clone());
        beside
    }

    /// Gives a link the name it is for. If that was one more name of the same file, RENAME has done nothing, and the
    /// temporary name is still there.
    async fn take_place(&self, beside: &Unfinished, name: &Name) -> Result<()> {
        let (files, directory) = (self.files, &beside.directory);
        let renamed = files.rename(directory, &beside.name, directory, name).await;
        renamed.context("cannot replace the file that is there")?;
        match files.remove(directory, &beside.name).await {
            Err(error) if !error.is_absent() => return Err(error.into()),
            _ => self.settle(beside),
        }
        Ok(())
    }

    fn settle(&self, settled: &Unfinished) {
        self.unfinished.borrow_mut().retain(|unfinished| unfinished != settled);
    }
}
