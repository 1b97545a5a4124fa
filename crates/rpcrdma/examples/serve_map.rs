//! Serves a map of names to texts, read-only: `cargo run --example serve_map -- 127.0.0.1:20049`.

use rpcrdma::fs::*;
use std::{collections::BTreeMap, error::Error, future::ready, net::SocketAddr};

/// Names and texts. The root is file 0; the texts are files from 1 on, in the order of their names.
struct Map(BTreeMap<&'static str, &'static str>);

impl Map {
    /// A file's attributes and its text. The root has none.
    fn node(&self, file: FileId) -> Result<(Attributes, Option<&'static str>), Fault> {
        let number = file.number().ok_or(Fault::BadId)?;
        let text = |place| self.0.values().nth(place as usize).copied().ok_or(Fault::Stale);
        let text = number.checked_sub(1).map(text).transpose()?;
        let kind = if text.is_some() { FileType::Regular } else { FileType::Directory };
        let mut attributes = Attributes::new(kind, self.id(), number);
        (attributes.mode, attributes.size) = (0o555, text.map_or(0, |text| text.len() as u64));
        Ok((attributes, text))
    }

    /// The entries of the root, the only directory.
    fn entries(&self, at: FileId) -> Told<impl Iterator<Item = (u64, &'static str)>> {
        let is_root = if at == self.root() { Ok(()) } else { Err(failed(Fault::NotDirectory)) };
        is_root.map(|()| [(0, "."), (0, "..")].into_iter().chain((1..).zip(self.0.keys().copied())))
    }
}

impl FileSystem for Map {
    fn root(&self) -> FileId {
        FileId::from(0)
    }
    fn id(&self) -> u64 {
        1
    }
    fn attributes(&self, _: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>> {
        Box::pin(ready(self.node(file).map(|(attributes, _)| attributes)))
    }
    fn lookup(&self, _: Caller, at: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>> {
        let find = |(_, own): &(u64, &str)| own.as_bytes() == name;
        let found = self.entries(at).and_then(|mut all| all.find(find).ok_or(failed(Fault::NotFound)));
        Box::pin(ready(found.map(|(number, _)| Found::new(FileId::from(number), None, None))))
    }
    fn read(&self, via: Via, offset: u64, count: usize, buffer: Buffer) -> BoxFuture<'_, Told<ReadData>> {
        let text = self.node(via.file()).and_then(|(_, text)| text.ok_or(Fault::IsDirectory)).map_err(failed);
        Box::pin(ready(text.map(|text| ReadData::of(text.as_bytes(), offset, count, buffer, None))))
    }
    fn list(&self, _: Caller, at: FileId, after: u64, _: [u8; 8], n: ListingBudget) -> BoxFuture<'_, Told<Listing>> {
        let entry = |(number, name): (u64, &'static str)| ListingEntry::new(number, name.into(), 0);
        Box::pin(ready(self.entries(at).map(|all| Listing::of(all.map(entry), after, n))))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address: SocketAddr = std::env::args().nth(1).ok_or("ADDRESS:PORT")?.parse()?;
    let map = Map(BTreeMap::from([("greeting", "hello\n"), ("question", "who is there?\n")]));
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(rpcrdma::Server::builder().export("/", map).listen(address).serve_until(stop).await?)
}
