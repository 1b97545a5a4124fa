//! Periodic work: it closes what is not used, commits what was left alone, and finds the delegated files for which
//! programs of the host wait.
//!
//! The library starts no task: the program polls [`DirectoryFs::upkeep`]. The upkeep does not keep the file system
//! open, and ends with it.

use super::{
    DirectoryFs, Inner,
    attributes::stat,
    object::IDLE,
    uncommitted::{For, Held},
};
use crate::{Caller, FileId, queue::Lane};
use rpcrdma_env::BoxFuture;
use std::{sync::Weak, time::Duration};

/// How often the upkeep runs; anything that closes after some time closes up to this much later.
const INTERVAL: Duration = Duration::from_secs(1);
const _: () = assert!(INTERVAL.as_secs() * 4 <= IDLE.as_secs());

impl DirectoryFs {
    pub(super) fn tend(&self) -> BoxFuture<'static, ()> {
        let (clock, inner) = (self.inner.clock.clone(), std::sync::Arc::downgrade(&self.inner));
        let (queue, answers) = (self.queue.clone(), self.answers);
        Box::pin(async move {
            loop {
                clock.sleep_until(clock.now() + INTERVAL).await;
                let Some(inner) = Weak::upgrade(&inner) else { return };
                let directory = Self { inner, queue: queue.clone(), answers };
                let tidied = directory.run::<_, ()>(&Caller::root(), Lane::Look, |inner| Ok(inner.tidy()));
                // The job was dropped: the program is about to end.
                let Ok(left_alone) = tidied.await else { return };
                for held in left_alone {
                    // One job each: a job that hangs on its disk delays nothing else. The clients that have written
                    // there learn of a failure.
                    drop(directory.run::<_, ()>(&Caller::root(), Lane::Data, move |inner| {
                        let _ = inner.settle(&held, For::All);
                        Ok(())
                    }));
                }
            }
        })
    }
}

#[cfg(test)]
impl DirectoryFs {
    /// Does at once the work of every second, except committing.
    pub(crate) fn tidy_now(&self) {
        self.inner.tidy();
    }
}

impl Inner {
    /// Closes what is not used and what was removed, finds the files for which programs of the host wait, and returns
    /// the files that were left alone and must be committed.
    pub(super) fn tidy(&self) -> Vec<Held> {
        // NFS4-HOST-d
        self.look_for_broken_leases();
        for file in self.cache.sweep() {
            self.uncommitted.forget(file);
        }
        for held in self.uncommitted.all() {
            if stat(held.fd()).is_ok_and(|stat| stat.stx_nlink == 0) && self.cache.peek(held.file).is_none() {
                self.uncommitted.forget(held.file);
            }
        }
        self.uncommitted.left_alone(self.clock.now())
    }

    /// A file has no name any more: its storage must be freed, unless a client has it open.
    pub(super) fn gone(&self, file: FileId) {
        if self.cache.peek(file).is_some_and(|object| object.is_open()) {
            return;
        }
        self.cache.remove(file);
        self.uncommitted.forget(file);
    }
}
