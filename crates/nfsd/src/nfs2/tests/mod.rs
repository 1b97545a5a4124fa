//! Version 2 as its clients see it.

mod directories;
mod files;
mod limits;
mod long;
mod rooms;

use crate::{
    DirectoryFs, Export, FileSystem, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory,
    testing::{Client, SECRET, env},
};
use rpcrdma_env::Env;
use rpcrdma_nfs::{
    Call,
    mount::{DirectoryPath, Mount1, MountReply1},
    v2::{self, Answer, Handle, LookupOk, Name, NewAttributes, Status},
};
use std::{path::Path, sync::Arc};

/// A server of one export, in versions 2 and 3, with its state in a directory.
fn serving(export: Export, state: &Path, env: &Env) -> Nfsd {
    let state = StateDirectory::open(state, &*env.random).unwrap();
    let nfsd = Nfsd::new(vec![export], SECRET, env).unwrap();
    nfsd.with_version_2((&state, 1, Queue::in_place()), true, env).unwrap()
}

fn trusting(file_system: Arc<dyn FileSystem>) -> Export {
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    Export::new("/", file_system).with_identities(identities)
}

/// A client of a file system in memory that may do everything.
fn in_memory() -> Client {
    let scratch = tempfile::tempdir().unwrap();
    let tree = Arc::new(MemoryFs::new(64 << 20, &env()));
    Client::of(&serving(trusting(tree), scratch.path(), &env()))
}

/// The same of each file system in turn.
fn on_each(test: impl Fn(&Client)) {
    test(&in_memory());
    let scratch = tempfile::tempdir().unwrap();
    let (state, served) = (scratch.path().join("state"), scratch.path().join("served"));
    std::fs::create_dir(&served).unwrap();
    let opened = StateDirectory::open(&state, &*env().random).unwrap();
    let directory = DirectoryFs::open(&served, &opened, Queue::in_place(), &env()).unwrap();
    test(&Client::of(&serving(trusting(Arc::new(directory)), &state, &env())));
}

fn mounted(client: &Client, path: &'static str) -> Result<Handle, u32> {
    match client.ask(Mount1 { path: DirectoryPath(path.into()) }) {
        MountReply1::Ok(root) => Ok(Handle(root)),
        MountReply1::Failed(error) => Err(error),
    }
}

fn root(client: &Client) -> Handle {
    mounted(client, "/").unwrap()
}

fn mode(mode: u32) -> NewAttributes {
    NewAttributes { mode: Some(mode), ..NewAttributes::default() }
}

/// Calls, and takes the results or the status.
fn ask<T, C: Call<Reply = Answer<T>>>(client: &Client, call: C) -> Result<T, Status> {
    client.ask(call).into_result()
}

fn create(client: &Client, directory: Handle, name: &str, attributes: NewAttributes) -> Result<LookupOk, Status> {
    ask(client, v2::Create { directory, name: Name::from(name), attributes })
}

fn lookup(client: &Client, directory: Handle, name: &str) -> Result<LookupOk, Status> {
    ask(client, v2::Lookup { directory, name: Name::from(name) })
}

fn attributes(client: &Client, file: Handle) -> Result<v2::Attributes, Status> {
    ask(client, v2::GetAttributes { file })
}

fn set(client: &Client, file: Handle, attributes: NewAttributes) -> Result<v2::Attributes, Status> {
    ask(client, v2::SetAttributes { file, attributes })
}

fn write(client: &Client, file: Handle, offset: u32, data: &'static [u8]) -> Result<v2::Attributes, Status> {
    ask(client, v2::Write { file, offset, data: data.into() })
}

fn read(client: &Client, file: Handle, offset: u32, count: u32) -> Result<Vec<u8>, Status> {
    let read = ask(client, v2::Read { file, offset, count })?;
    assert!(read.data.as_slice().len() <= count as usize);
    Ok(read.data.as_slice().to_vec())
}

/// All entries of a directory, from replies of `count` bytes, and the number of replies.
fn list(client: &Client, directory: Handle, count: u32) -> Result<(Vec<v2::Entry>, usize), Status> {
    let (mut entries, mut answers, mut cookie) = (Vec::<v2::Entry>::new(), 0, 0);
    loop {
        let listing = ask(client, v2::ReadDirectory { directory, cookie, count })?;
        answers += 1;
        entries.extend(listing.entries);
        if listing.end {
            return Ok((entries, answers));
        }
        cookie = entries.last().expect("an answer has an entry or is the end").cookie;
    }
}

fn names(client: &Client, directory: Handle, count: u32) -> Vec<String> {
    let text = |entry: v2::Entry| String::from_utf8(entry.name.as_slice().to_vec()).unwrap();
    let mut names: Vec<_> = list(client, directory, count).unwrap().0.into_iter().map(text).collect();
    names.sort();
    names
}
