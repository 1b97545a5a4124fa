//! Walking a directory.
//!
//! A directory may change while it is read. Where the server can no longer tell where a cookie pointed to, the walk
//! ends with its error: beginning again could show names twice.

use crate::{Error, Nfs3, Transfer};
use rpcrdma_nfs::v3::{EntryPlus, Handle, Status, Verifier};
use std::collections::VecDeque;

/// The entries of a directory with attributes and handles, without `.` and `..`.
pub struct Listing {
    nfs: Nfs3,
    directory: Handle,
    octets: u32,
    cookie: u64,
    verifier: Verifier,
    ready: VecDeque<EntryPlus>,
    end: bool,
    plus: bool,
    failed: bool,
}

impl Listing {
    /// Lists `directory`.
    pub fn new(nfs: Nfs3, directory: Handle, transfer: Transfer) -> Self {
        Self {
            nfs,
            directory,
            octets: transfer.directory,
            cookie: 0,
            verifier: Verifier::default(),
            ready: VecDeque::new(),
            end: false,
            plus: true,
            failed: false,
        }
    }

    /// The next entry, or `None` at the end. Attributes and handle are absent where the server has not told them.
    ///
    /// # Errors
    /// As [`Nfs3::readdirplus`]; a server without READDIRPLUS is asked by READDIR.
    pub async fn next(&mut self) -> Result<Option<EntryPlus>, Error> {
        loop {
            while let Some(entry) = self.ready.pop_front() {
                if !matches!(entry.name.as_slice(), b"." | b"..") {
                    return Ok(Some(entry));
                }
            }
            if self.end {
                return Ok(None);
            }
            if let Err(error) = self.fetch().await {
                self.failed = true;
                self.end = true;
                return Err(error);
            }
        }
    }

    /// Whether the walk has ended with an error.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    async fn fetch(&mut self) -> Result<(), Error> {
        if self.plus {
            match self.nfs.readdirplus(&self.directory, self.cookie, self.verifier, self.octets).await {
                Ok(ok) => return self.take(ok.entries, ok.verifier, ok.end),
                Err(error) if error.status() == Some(Status::NOTSUPP) => self.plus = false,
                Err(error) => return Err(error),
            }
        }
        let ok = self.nfs.readdir(&self.directory, self.cookie, self.verifier, self.octets).await?;
        let entries = ok.entries.into_iter().map(|entry| EntryPlus {
            file_id: entry.file_id,
            name: entry.name,
            cookie: entry.cookie,
            attributes: None,
            file: None,
        });
        self.take(entries.collect(), ok.verifier, ok.end)
    }

    fn take(&mut self, entries: Vec<EntryPlus>, verifier: Verifier, end: bool) -> Result<(), Error> {
        match entries.last() {
            Some(last) if last.cookie == self.cookie && !end => {
                return Err(Error::Nonsense { procedure: "READDIRPLUS", what: "does not advance in the directory" });
            }
            Some(last) => self.cookie = last.cookie,
            None if !end => {
                return Err(Error::Nonsense { procedure: "READDIRPLUS", what: "returned no entry before the end" });
            }
            None => {}
        }
        self.verifier = verifier;
        self.end = end;
        self.ready = entries.into();
        Ok(())
    }
}
