//! What a caller knows of its directory, in which only this caller changes anything.

use crate::lock;
use rpcrdma_env::{Random, SeededRandom};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    File(Vec<u8>),
    /// A symbolic link, and what it points to.
    Symlink(String),
    Directory,
    Pipe,
}

#[derive(Default)]
struct Inner {
    /// Names and what they stand for, as the server has acknowledged.
    names: BTreeMap<String, Content>,
    /// Names whose state is unknown: the caller works on them, or has stopped in the middle.
    unsure: BTreeSet<String>,
    count: u64,
}

/// A directory as its caller knows it.
pub(super) struct Directory {
    number: u64,
    inner: Mutex<Inner>,
}

impl Directory {
    pub(super) fn new(number: u64) -> Self {
        Self { number, inner: Mutex::default() }
    }

    pub(super) fn name(&self) -> String {
        format!("caller-{}", self.number)
    }

    /// A unique name, so that no two calls ask for the same. Its state is unknown until `is_known` is called.
    pub(super) fn fresh(&self) -> String {
        let mut inner = lock(&self.inner);
        inner.count += 1;
        let name = format!("{}-{}", self.number, inner.count);
        inner.unsure.insert(name.clone());
        name
    }

    /// One of the names with a wanted content, if any. Its state is unknown until `is_known` is called again.
    pub(super) fn some(
        &self,
        random: &SeededRandom,
        is_wanted: impl Fn(&Content) -> bool,
    ) -> Option<(String, Content)> {
        let inner = &mut *lock(&self.inner);
        let wanted: Vec<_> =
            inner.names.iter().filter(|(_, content)| is_wanted(content)).map(|(name, _)| name).collect();
        let name = wanted.get(random.below(wanted.len().max(1) as u64) as usize).copied()?.clone();
        inner.unsure.insert(name.clone());
        let content = inner.names.remove(&name)?;
        Some((name, content))
    }

    /// Records what a name stands for, or that it is gone.
    pub(super) fn is_known(&self, name: String, content: Option<Content>) {
        let mut inner = lock(&self.inner);
        inner.unsure.remove(&name);
        if let Some(content) = content {
            inner.names.insert(name, content);
        }
    }

    /// All that is known.
    pub(super) fn known(&self) -> BTreeMap<String, Content> {
        lock(&self.inner).names.clone()
    }

    /// What is wrong with a list of names, if anything.
    pub(super) fn differs(&self, listed: &[String]) -> Option<String> {
        let inner = lock(&self.inner);
        let once: BTreeSet<_> = listed.iter().cloned().collect();
        if once.len() != listed.len() {
            return Some(format!("{} lists names twice: {listed:?}", self.name()));
        }
        let missing: Vec<_> = inner.names.keys().filter(|name| !once.contains(*name)).collect();
        let is_odd = |name: &&String| !inner.names.contains_key(*name) && !inner.unsure.contains(*name);
        let odd: Vec<_> = once.iter().filter(is_odd).collect();
        let is_right = missing.is_empty() && odd.is_empty();
        (!is_right).then(|| format!("{} lacks {missing:?} and has {odd:?} too many", self.name()))
    }
}
