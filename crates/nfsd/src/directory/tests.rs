//! Tests of a directory of the host alone, and what they share: a directory to serve, and the ways to serve it.

use super::{start::Ways, *};
use crate::{
    Cidr, Export, Identities, Nfsd, Queue, Squash, StateDirectory,
    testing::{Client, SECRET, env, plain},
};
use rpcrdma_env::Env;
use rpcrdma_nfs::v3::{self, Commit, CreateHow, Handle, NewAttributes, SetTime, Status, access};
use rustix::{
    process::{Gid, Resource, Uid, geteuid, getrlimit},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{
    fs as host,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

mod beside;
mod callers;
mod clones;
mod descriptors;
mod disk;
mod escapes;
mod handles;
mod hidden;
mod jobs;
mod kept_open;
mod leased;
mod lost_data;
mod owner;
mod recent;
mod stable;
mod took_its_place;

const NOBODY: u32 = 65_534;

/// A directory to serve, with a state directory beside it.
struct Scratch {
    directory: tempfile::TempDir,
    ways: Ways,
}

/// As an ordinary user's server finds files.
const INDEXED: Ways = Ways { kernel_handles: false, proofs: true, positions: true, lists_and_xattrs: true, part: 1 };
/// As if the file system had neither handles nor stable positions.
const PLAIN: Ways = Ways { kernel_handles: false, proofs: false, positions: false, lists_and_xattrs: false, part: 1 };

impl Scratch {
    fn new(ways: Ways) -> Self {
        let directory = tempfile::tempdir().unwrap();
        host::create_dir(directory.path().join("served")).unwrap();
        Self { directory, ways }
    }

    fn served(&self) -> PathBuf {
        self.directory.path().join("served")
    }

    fn open(&self) -> DirectoryFs {
        let state = StateDirectory::open(self.directory.path().join("state"), &*env().random).unwrap();
        DirectoryFs::open_with(&self.served(), &state, Queue::in_place(), &env(), self.ways).unwrap()
    }

    /// A server that was just started, and a client of it that may do everything.
    fn start(&self) -> Client {
        let identities = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", Arc::new(self.open())).with_identities(identities);
        Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap())
    }
}

/// With each way of finding files and of listing directories, as the user that runs the tests; and if that is the
/// superuser, as an ordinary user, too.
fn in_each_way(test: impl Fn(&Scratch) + Send + Sync) {
    for ways in [Ways::default(), INDEXED, PLAIN] {
        test(&Scratch::new(ways));
    }
    as_ordinary_user(|| test(&Scratch::new(Ways::default())));
}

/// On a thread of a user without any special rights.
fn as_ordinary_user(test: impl Fn() + Send + Sync) {
    if !geteuid().is_root() {
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            test();
        });
    });
}
