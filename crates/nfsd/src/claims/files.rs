//! The keys of files, and the maps by file and by client.
//!
//! A map is cut into shards. Each shard has its own lock, held for one look-up and never across a call of the host, of
//! a client or of the file system: so clients that use different files seldom meet, and none can block another.

use crate::FileId;
use foldhash::{HashMap, fast::RandomState};
use std::{
    hash::{BuildHasher, Hash},
    sync::{Mutex, PoisonError},
};

/// A file among all served files. Two exports of one file system give a file the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// [`FileSystem::id`](crate::FileSystem::id).
    pub file_system: u64,
    /// The file there.
    pub file: FileId,
}

/// How many parts a map has: enough that the threads of a large server seldom want the same one.
const SHARDS: usize = 64;

pub(super) struct Sharded<K, V> {
    shards: Vec<Mutex<HashMap<K, V>>>,
    /// Has a new key in each process, so that no client can choose files that all lie in one shard.
    hasher: RandomState,
}

impl<K, V> Default for Sharded<K, V> {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }
}

impl<K: Hash + Eq, V> Sharded<K, V> {
    /// The part of the map in which `key` is, if it exists.
    pub(super) fn with<R>(&self, key: &K, look: impl FnOnce(&mut HashMap<K, V>) -> R) -> R {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        look(&mut self.shards[at].lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}
