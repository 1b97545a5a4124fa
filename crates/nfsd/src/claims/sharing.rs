//! Share reservations on the table: opening, downgrading, closing, and whether a caller may read or write.
//!
//! A [`Share`] is the guard of one open, which ends when the guard is dropped. An owner has the union of its guards on
//! a file (RFC 8881 section 9.9). A further guard is [merged](Share::merge) into the first when nothing can fail any
//! more: so a failed OPEN never leaves a file denied.

use super::{
    Claims,
    clients::{Sort, TooMany},
    files::FileKey,
    holder::{Asker, Client, Holder},
    modes::{Access, Deny},
    shares::Shares,
};
use std::sync::atomic::Ordering;

/// A share reservation conflicts. With an open: NFS4ERR_SHARE_DENIED. With reading or writing: NFS4ERR_LOCKED, in
/// version 3 NFS3ERR_ACCES. Never JUKEBOX: a client would ask again for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lock or a share reservation forbids the access")]
pub struct Conflict {
    /// The client that has the share.
    pub client: Client,
}

/// Why an open is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareRefused {
    /// As [`Conflict`] says.
    #[error(transparent)]
    Denied(#[from] Conflict),
    /// NFS4ERR_RESOURCE, in minor versions from 1 on NFS4ERR_DELAY.
    #[error(transparent)]
    TooMany(#[from] TooMany),
}

/// The bits are not among those of the opens: NFS4ERR_INVAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no opens of the owner have these access and deny modes")]
pub struct NoDowngrade;

/// An open of a file by an owner. It ends when this is dropped, or with [`Claims::release_client`]; after that this
/// does nothing.
#[must_use = "the share ends when its guard is dropped"]
pub struct Share {
    claims: Claims,
    file: FileKey,
    holder: Holder,
    access: Access,
    deny: Deny,
    /// Distinguishes the owner's share from a share that it had before its client was released.
    generation: u64,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Share");
        debug.field("file", &self.file).field("holder", &self.holder);
        debug.field("access", &self.access).field("deny", &self.deny).finish_non_exhaustive()
    }
}

impl Share {
    /// What the owner has the file open for, and what it denies: the union over all its guards. `None` if its client
    /// was released.
    pub fn modes(&self) -> Option<(Access, Deny)> {
        self.claims.on_shares(self.file, |shares| shares.modes(&self.holder, self.generation))
    }

    /// The file.
    pub fn file(&self) -> FileKey {
        self.file
    }

    /// The owner of the share.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Takes over a further open of the same owner and file. If one of the guards has outlived its client, or they are
    /// of different files or owners, this guard ends, and `other` takes its place.
    pub fn merge(&mut self, other: Share) {
        let same = (self.file, self.generation) == (other.file, other.generation) && self.holder == other.holder;
        if same {
            let union = (self.access.union(other.access), self.deny.union(other.deny));
            // First the union, then the end of the other guard: every mode of either stays in force all the while.
            self.change(union);
        } else {
            *self = other;
        }
    }

    /// Reduces this guard to these bits (OPEN_DOWNGRADE, RFC 8881 section 18.18). The protocol knows the merged opens,
    /// and checks that some of them together have exactly these bits.
    ///
    /// # Errors
    /// If the guard does not have all of these bits, or its client was released.
    pub fn downgrade(&mut self, access: Access, deny: Deny) -> Result<(), NoDowngrade> {
        let is_less = self.access.contains(access) && self.deny.contains(deny);
        if is_less && self.change((access, deny)) { Ok(()) } else { Err(NoDowngrade) }
    }

    fn change(&mut self, after: (Access, Deny)) -> bool {
        let before = (self.access, self.deny);
        let change = |shares: &mut Shares| shares.change(&self.holder, self.generation, before, Some(after));
        let is_there = self.claims.on_shares(self.file, change);
        if is_there {
            (self.access, self.deny) = after;
        }
        is_there
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let modes = (self.access, self.deny);
        self.claims.on_share(self.file, &self.holder, |shares| {
            shares.change(&self.holder, self.generation, modes, None);
        });
    }
}

impl Claims {
    /// Opens a file for an owner, perhaps once more. The owner's own opens count too: what an earlier open denies, it
    /// denies to its own owner as well (RFC 8881 section 9.7).
    ///
    /// # Errors
    /// If another open denies this access, if an open has the access that this one denies, or if there are too many
    /// shares.
    pub fn share(&self, file: FileKey, holder: &Holder, access: Access, deny: Deny) -> Result<Share, ShareRefused> {
        let attempt = || self.on_share(file, holder, |shares| self.try_share(file, holder, (access, deny), shares));
        self.unless_expired((file, Some(holder.client())), attempt, |outcome| match outcome {
            Err((_, clients)) => clients.clone(),
            Ok(_) => Vec::new(),
        })
        .map_err(|(refused, _)| refused)
    }

    /// The clients that conflict with such an open of a file, each once.
    pub fn in_the_way_of_share(&self, file: FileKey, access: Access, deny: Deny) -> Vec<Client> {
        self.table.shares.with(&file, |files| {
            files.get(&file).map(|shares| shares.in_the_way_of_open((access, deny))).unwrap_or_default()
        })
    }

    fn try_share(
        &self,
        file: FileKey,
        holder: &Holder,
        (access, deny): (Access, Deny),
        shares: &mut Shares,
    ) -> Result<Share, (ShareRefused, Vec<Client>)> {
        let table = &self.table;
        let clients = shares.in_the_way_of_open((access, deny));
        if let Some(client) = clients.first() {
            return Err((ShareRefused::Denied(Conflict { client: *client }), clients));
        }
        if !shares.has(holder) {
            table.clients.take(holder.client(), Sort::Share, 1).map_err(|error| (error.into(), Vec::new()))?;
        }
        let next = table.generations.fetch_add(1, Ordering::Relaxed);
        let generation = shares.add(holder, (access, deny), next);
        Ok(Share { claims: self.clone(), file, holder: holder.clone(), access, deny, generation })
    }

    /// Ends all opens of an owner on a file.
    pub(super) fn end_share(&self, file: FileKey, holder: &Holder) {
        self.on_share(file, holder, |shares| shares.end(holder));
    }

    /// Whether share reservations let a file be read or written; a change of its size is a write. Costs nothing while
    /// no open denies anything. Byte ranges are advisory: they never refuse reading or writing, as with Linux's nfsd.
    ///
    /// # Errors
    /// If an open denies it.
    pub fn may(&self, file: FileKey, access: Access, asker: Asker<'_>) -> Result<(), Conflict> {
        // NFS4-8881-9.1.2-a
        if self.table.denying.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let own = match asker {
            Asker::Anonymous => None,
            Asker::Holder(holder) => Some(holder.client()),
        };
        let look = || {
            self.table.shares.with(&file, |files| {
                files.get(&file).map(|shares| shares.in_the_way(access, asker)).unwrap_or_default()
            })
        };
        match self.unless_expired((file, own), look, Clone::clone).first() {
            None => Ok(()),
            Some(client) => Err(Conflict { client: *client }),
        }
    }

    /// The clients that deny reading or writing a file to callers that have not opened it, each once.
    pub fn in_the_way_of_use(&self, file: FileKey, access: Access) -> Vec<Client> {
        self.table.shares.with(&file, |files| {
            files.get(&file).map(|shares| shares.in_the_way(access, Asker::Anonymous)).unwrap_or_default()
        })
    }

    /// The same as [`on_shares`](Self::on_shares) for one owner: it also records by client whether the owner has a
    /// share.
    fn on_share<R>(&self, file: FileKey, holder: &Holder, act: impl FnOnce(&mut Shares) -> R) -> R {
        let clients = &self.table.clients;
        self.on_shares(file, |shares| {
            let had = shares.has(holder);
            let result = act(shares);
            let has = shares.has(holder);
            if had != has {
                clients.note(Sort::Share, file, holder, has);
            }
            if had && !has {
                clients.give(holder.client(), Sort::Share, 1);
            }
            result
        })
    }

    /// Does something with the shares of a file.
    fn on_shares<R>(&self, file: FileKey, act: impl FnOnce(&mut Shares) -> R) -> R {
        let denying = &self.table.denying;
        self.table.shares.with(&file, |files| {
            let shares = files.entry(file).or_default();
            let denied = shares.denies();
            let result = act(shares);
            match (denied, shares.denies()) {
                (false, true) => denying.fetch_add(1, Ordering::Release),
                (true, false) => denying.fetch_sub(1, Ordering::Release),
                _ => 0,
            };
            if shares.is_empty() {
                files.remove(&file);
            }
            result
        })
    }
}
