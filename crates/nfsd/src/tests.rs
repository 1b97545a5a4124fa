//! Tests that every file system behind the server has to pass.

mod calls;
mod claims;
mod content;
mod names;
mod opens;
mod rights;
mod security;
pub(crate) mod warnings;

use crate::{
    DirectoryFs, Export, FileSystem, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory,
    testing::{Client, SECRET, env},
};
use rpcrdma_nfs::v3::NewAttributes;
use std::sync::Arc;

/// A client that may do everything, of each file system in turn.
pub(crate) fn on_each(test: impl Fn(&Client)) {
    let trusting = |file_system: Arc<dyn FileSystem>| {
        let identities = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", file_system).with_identities(identities);
        Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap())
    };
    test(&trusting(Arc::new(MemoryFs::new(64 << 20, &env()))));
    let scratch = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(scratch.path().join("state"), &*env().random).unwrap();
    let served = scratch.path().join("served");
    std::fs::create_dir(&served).unwrap();
    test(&trusting(Arc::new(DirectoryFs::open(&served, &state, Queue::in_place(), &env()).unwrap())));
}

pub(crate) fn mode(mode: u32) -> NewAttributes {
    NewAttributes { mode: Some(mode), ..NewAttributes::default() }
}
