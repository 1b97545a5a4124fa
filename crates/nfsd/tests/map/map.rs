//! A map from names to texts, as a read-only file system: like the one in the example `serve_map`, which is in a crate
//! above this one.

use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer};
use rpcrdma_nfs::attr::{Attributes, FileType};
use rpcrdma_nfsd::*;
use std::{collections::BTreeMap, future::ready};

/// Names and texts. The root is file 0; the texts are files from 1 on, in the order of their names.
pub(crate) struct Map(pub(crate) BTreeMap<&'static str, &'static str>);

impl Map {
    fn file(number: usize) -> FileId {
        FileId::new(&number.to_be_bytes()).expect("eight bytes fit an id")
    }

    /// A file's attributes and its text; the root has no text.
    fn node(&self, file: FileId) -> Result<(Attributes, Option<&'static str>), Fault> {
        let number = usize::from_be_bytes(file.as_slice().try_into().map_err(|_| Fault::BadId)?);
        let text = number.checked_sub(1).map(|place| self.0.values().nth(place).ok_or(Fault::Stale)).transpose()?;
        let file_type = if text.is_some() { FileType::Regular } else { FileType::Directory };
        let mut attributes = Attributes::new(file_type, self.id(), number as u64);
        (attributes.mode, attributes.size) = (0o555, text.map_or(0, |text| text.len() as u64));
        Ok((attributes, text.copied()))
    }

    fn entries(&self) -> impl Iterator<Item = (usize, &'static str)> {
        [(0, "."), (0, "..")].into_iter().chain((1..).zip(self.0.keys().copied()))
    }
}

impl FileSystem for Map {
    fn root(&self) -> FileId {
        Self::file(0)
    }

    fn id(&self) -> u64 {
        1
    }

    fn attributes(&self, _: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>> {
        Box::pin(ready(self.node(file).map(|(attributes, _)| attributes)))
    }

    fn lookup(&self, _: Caller, directory: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>> {
        let is_root = if directory == self.root() { Ok(()) } else { Err(Fault::NotDirectory) };
        let found = is_root.and(self.entries().find(|(_, own)| own.as_bytes() == name).ok_or(Fault::NotFound));
        Box::pin(ready(found.map(|(number, _)| Found::new(Self::file(number), None, None)).map_err(failed)))
    }

    fn read(&self, via: Via, offset: u64, count: usize, buffer: Buffer) -> BoxFuture<'_, Told<ReadData>> {
        let text = self.node(via.file()).and_then(|(_, text)| text.ok_or(Fault::IsDirectory)).map_err(failed);
        Box::pin(ready(text.map(|text| ReadData::of(text.as_bytes(), offset, count, buffer, None))))
    }

    fn list(&self, _: Caller, at: FileId, after: u64, _: [u8; 8], room: ListingBudget) -> BoxFuture<'_, Told<Listing>> {
        let all = self.entries().map(|(number, name)| ListingEntry::new(number as u64, name.into(), 0));
        let is_root = if at == self.root() { Ok(()) } else { Err(failed(Fault::NotDirectory)) };
        Box::pin(ready(is_root.map(|()| Listing::of(all, after, room))))
    }
}
