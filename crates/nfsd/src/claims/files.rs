//! Which file is meant, and the maps by file and by client.
//!
//! A map is cut into shards, each under a lock of its own that is held for one look-up and never across a call of the
//! host's, of a client's, or of the file system's: so clients who use different files seldom meet, and none can hold
//! another up.

use crate::FileId;
use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    sync::{Mutex, PoisonError},
};

/// A file of all that are served. Two exports of one file system name its files alike.
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
    /// Keyed anew in each process, so that nobody can choose files that lie in one shard.
    hasher: RandomState,
}

impl<K, V> Default for Sharded<K, V> {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
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
