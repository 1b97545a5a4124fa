//! The server's disk: a file system in memory that forgets everything not durable when the server is killed, and that
//! reports every change it is asked for.
//!
//! Before the first unstable write to a file it saves the file's contents. A durable write, a COMMIT and every other
//! change of the file make the whole file durable. So the contents of the file show if a server calls bytes durable
//! that it has only written, or if a client does not send lost bytes again.

use super::checks::Checks;
use crate::lock;
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer, Env};
use rpcrdma_nfs::attr::{Attributes, Change, NewAttributes, Stability, Time};
use rpcrdma_nfsd::{
    Caller, Changed, CreateHow, Failure, Fault, Features, FileId, FileSystem, Found, Linked, Listing, ListingBudget,
    Made, MemoryFs, New, ReadData, Renamed, Rights, Told, Usage, Via, Written,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// The disk.
pub(super) struct Disk {
    inner: MemoryFs,
    checks: Arc<Checks>,
    /// The saved contents of files with uncommitted writes.
    unstable: Mutex<BTreeMap<FileId, Bytes>>,
}

impl Disk {
    pub(super) fn new(octets: u64, env: &Env, checks: Arc<Checks>) -> Self {
        Self { inner: MemoryFs::new(octets, env), checks, unstable: Mutex::default() }
    }

    /// Makes an empty file in the root, before clients come.
    pub(super) async fn prepare(&self, name: &'static str) {
        let new = New::File(CreateHow::Guarded(NewAttributes { mode: Some(0o666), ..NewAttributes::default() }));
        let made = self.inner.make(Caller::root(), self.inner.root(), name.into(), new).await;
        made.expect("an empty file system has room");
    }

    /// The server is killed: everything not durable is gone.
    pub(super) async fn loses_power(&self) {
        let lost = std::mem::take(&mut *lock(&self.unstable));
        for (file, before) in lost {
            let via = || Via::caller(Caller::root(), file);
            let size = NewAttributes { size: Some(before.len() as u64), ..NewAttributes::default() };
            // A file that was removed meanwhile stays so.
            if self.inner.set_attributes(via(), size, None).await.is_ok() {
                let written = self.inner.write(via(), 0, before, Stability::FileSync).await;
                self.checks.lost(written.is_ok());
            }
        }
    }

    /// The whole contents of a file.
    async fn contents(&self, file: FileId) -> Option<Bytes> {
        let size = self.inner.attributes(Caller::root(), file).await.ok()?.size;
        let size = usize::try_from(size).ok()?;
        let buffer = Buffer::from_vec(vec![0; size]);
        let read = self.inner.read(Via::caller(Caller::root(), file), 0, size, buffer).await.ok()?;
        Some(Bytes::copy_from_slice(read.buffer.filled()))
    }

    fn is_durable(&self, file: FileId) {
        lock(&self.unstable).remove(&file);
    }
}

/// A name in a directory as text, for people and for distinguishing calls.
fn place(directory: FileId, name: &Bytes) -> String {
    format!("{:?}/{}", directory, name.escape_ascii())
}

impl FileSystem for Disk {
    fn root(&self) -> FileId {
        self.inner.root()
    }

    fn id(&self) -> u64 {
        self.inner.id()
    }

    fn features(&self) -> Features {
        self.inner.features()
    }

    fn attributes(&self, caller: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>> {
        self.inner.attributes(caller, file)
    }

    fn lookup(&self, caller: Caller, directory: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>> {
        self.inner.lookup(caller, directory, name)
    }

    fn read(&self, via: Via, offset: u64, count: usize, buffer: Buffer) -> BoxFuture<'_, Told<ReadData>> {
        self.inner.read(via, offset, count, buffer)
    }

    fn list(
        &self,
        caller: Caller,
        directory: FileId,
        cookie: u64,
        verifier: [u8; 8],
        budget: ListingBudget,
    ) -> BoxFuture<'_, Told<Listing>> {
        self.inner.list(caller, directory, cookie, verifier, budget)
    }

    fn access(
        &self,
        caller: Caller,
        file: FileId,
        rights: Rights,
    ) -> BoxFuture<'_, Told<(Rights, Option<Attributes>)>> {
        self.inner.access(caller, file, rights)
    }

    fn read_link(&self, caller: Caller, link: FileId) -> BoxFuture<'_, Told<(Bytes, Option<Attributes>)>> {
        self.inner.read_link(caller, link)
    }

    fn usage(&self, caller: Caller) -> BoxFuture<'_, Result<Usage, Fault>> {
        self.inner.usage(caller)
    }

    fn set_attributes(&self, via: Via, new: NewAttributes, guard: Option<Time>) -> BoxFuture<'_, Changed<Change>> {
        self.is_durable(via.file());
        self.inner.set_attributes(via, new, guard)
    }

    fn write(&self, via: Via, offset: u64, data: Bytes, stability: Stability) -> BoxFuture<'_, Changed<Written>> {
        Box::pin(async move {
            let file = via.file();
            match stability {
                Stability::Unstable if !lock(&self.unstable).contains_key(&file) => {
                    if let Some(before) = self.contents(file).await {
                        lock(&self.unstable).insert(file, before);
                    }
                }
                Stability::Unstable => {}
                Stability::DataSync | Stability::FileSync => self.is_durable(file),
            }
            let written = self.inner.write(via, offset, data, stability).await?;
            Ok(Written::new(written.count, stability, written.file))
        })
    }

    fn commit(&self, via: Via, offset: u64, count: u32) -> BoxFuture<'_, Changed<Change>> {
        self.is_durable(via.file());
        self.inner.commit(via, offset, count)
    }

    fn make(&self, caller: Caller, directory: FileId, name: Bytes, new: New) -> BoxFuture<'_, Changed<Made>> {
        self.checks.asked(format!("make {} {new:?}", place(directory, &name)));
        self.inner.make(caller, directory, name, new)
    }

    fn remove(
        &self,
        caller: Caller,
        directory: FileId,
        name: Bytes,
        is_directory: bool,
    ) -> BoxFuture<'_, Changed<Change>> {
        self.checks.asked(format!("remove {}", place(directory, &name)));
        self.inner.remove(caller, directory, name, is_directory)
    }

    fn rename(
        &self,
        caller: Caller,
        from: (FileId, Bytes),
        to: (FileId, Bytes),
    ) -> BoxFuture<'_, Result<Renamed, Failure<Renamed>>> {
        self.checks.asked(format!("rename {} {}", place(from.0, &from.1), place(to.0, &to.1)));
        self.inner.rename(caller, from, to)
    }

    fn link(
        &self,
        caller: Caller,
        file: FileId,
        directory: FileId,
        name: Bytes,
    ) -> BoxFuture<'_, Result<Linked, Failure<Linked>>> {
        self.checks.asked(format!("link {file:?} {}", place(directory, &name)));
        self.inner.link(caller, file, directory, name)
    }
}
