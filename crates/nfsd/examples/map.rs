//! A map of names to texts, served over TCP: `cargo run -p rpcrdma-nfsd --example map`, and then
//! `rpcrdma cat 'nfs://127.0.0.1:12049/greeting?transport=tcp&mountport=12048'`.

use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer, Env, Heap, tokio_env};
use rpcrdma_nfs::attr::{Attributes, FileType};
use rpcrdma_nfsd::*;
use rpcrdma_oncrpc::{Handler, tcp};
use std::{collections::BTreeMap, error::Error, future::ready, sync::Arc};

/// Names and texts. The root is file 0; the texts are files from 1 on, in the order of their names.
pub(crate) struct Map(pub(crate) BTreeMap<&'static str, &'static str>);

impl Map {
    fn file(number: usize) -> FileId {
        FileId::new(&number.to_be_bytes()).expect("eight octets fit an id")
    }

    /// A file's attributes and its text, which the root has not.
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

async fn serve(port: u16, handler: Arc<dyn Handler>, env: &Env) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, peer) = listener.accept().await?;
        let endpoint = tcp::Endpoint { peer, local: stream.local_addr()?, id: 0, allocator: Arc::new(Heap) };
        tokio::spawn(tcp::serve(stream, endpoint, handler.clone(), env.clock.clone(), Default::default()).1);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (env, map) = (tokio_env()?, Map(BTreeMap::from([("greeting", "hello\n"), ("question", "who is there?\n")])));
    let nfsd = Nfsd::new(vec![Export::new("/", Arc::new(map))], *b"sixteen octets :", &env)?;
    tokio::try_join!(serve(12049, nfsd.nfs(), &env), serve(12048, nfsd.mount(), &env)).map(drop).map_err(Into::into)
}
