//! Share reservations: who has a file open for what, and what he denies others (RFC 8881 section 9.7).
//!
//! An owner has one share of a file, which each further open widens (section 9.9). [`Share`] is a guard: the share ends
//! with the last guard of it, or with [`Claims::release_client`], after which guards do nothing any more. So no way out
//! of a failed OPEN leaves a file denied. Conflicts are found from counts, never by going through shares.

use super::{
    Claims,
    clients::{Sort, TooMany},
    files::FileKey,
    holder::{Asker, Client, Holder},
    modes::{Access, Deny},
};
use std::{collections::HashMap, sync::atomic::Ordering};

/// A share reservation is in the way: of an open NFS4ERR_SHARE_DENIED; of reading or writing NFS4ERR_LOCKED, in version
/// 3 NFS3ERR_ACCES. Never JUKEBOX, with which a client asks again for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a share reservation is in the way")]
pub struct Conflict {
    /// A client whose share it is.
    pub client: Client,
}

/// Why a file is not opened so.
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
#[error("no downgrade")]
pub struct NoDowngrade;

/// How many shares have each bit.
#[derive(Clone, Copy, Default)]
struct Totals {
    access: [u32; 2],
    deny: [u32; 2],
}

impl Totals {
    fn change(&mut self, access: u8, deny: u8, count: impl Fn(u32) -> u32) {
        for (bit, mask) in [(0, 1), (1, 2)] {
            if access & mask != 0 {
                self.access[bit] = count(self.access[bit]);
            }
            if deny & mask != 0 {
                self.deny[bit] = count(self.deny[bit]);
            }
        }
    }

    fn add(&mut self, access: Access, deny: Deny) {
        self.change(access.0, deny.0, |count| count.saturating_add(1));
    }

    fn take(&mut self, access: Access, deny: Deny) {
        self.change(access.0, deny.0, |count| count.saturating_sub(1));
    }

    /// Whether these exclude an open or, with nothing denied, reading or writing.
    fn exclude(&self, access: Access, deny: Deny) -> bool {
        let held = |counts: [u32; 2]| u8::from(counts[0] > 0) | u8::from(counts[1] > 0) << 1;
        access.0 & held(self.deny) != 0 || deny.0 & held(self.access) != 0
    }
}

/// The share of one owner.
struct Open {
    access: Access,
    deny: Deny,
    /// How many guards there are of it.
    guards: usize,
    /// Tells it from an earlier one of the same owner.
    generation: u64,
}

/// The shares of one file.
#[derive(Default)]
pub(super) struct Shares {
    totals: Totals,
    clients: HashMap<Client, Totals>,
    holders: HashMap<Holder, Open>,
}

impl Shares {
    fn conflicts(&self, access: Access, deny: Deny) -> Vec<Client> {
        if !self.totals.exclude(access, deny) {
            return Vec::new();
        }
        self.clients.iter().filter(|(_, totals)| totals.exclude(access, deny)).map(|(client, _)| *client).collect()
    }

    /// Whose shares are in the way of reading or writing.
    fn in_the_way(&self, access: Access, asker: Asker<'_>) -> Vec<Client> {
        let own = match asker {
            Asker::Anonymous => None,
            Asker::Holder(holder) => self.holders.get(holder).map(|open| (holder.client(), open)),
        };
        let Some((client, open)) = own else { return self.conflicts(access, Deny::NONE) };
        let without = |mut totals: Totals| {
            totals.take(open.access, open.deny);
            totals
        };
        if !without(self.totals).exclude(access, Deny::NONE) {
            return Vec::new();
        }
        let others = self.clients.iter().filter(|(of, totals)| {
            let totals = if **of == client { without(**totals) } else { **totals };
            totals.exclude(access, Deny::NONE)
        });
        others.map(|(client, _)| *client).collect()
    }

    /// Replaces what an owner has, if anything, by this, if anything.
    fn count(&mut self, client: Client, before: Option<(Access, Deny)>, after: Option<(Access, Deny)>) {
        let of_client = self.clients.entry(client).or_default();
        for totals in [of_client, &mut self.totals] {
            if let Some((access, deny)) = before {
                totals.take(access, deny);
            }
            if let Some((access, deny)) = after {
                totals.add(access, deny);
            }
        }
        if self.clients.get(&client).is_some_and(|totals| totals.access == [0; 2]) {
            self.clients.remove(&client);
        }
    }
}

/// An owner's share of a file, which ends when the last of its guards is dropped.
#[must_use = "the share ends when its guard is dropped"]
pub struct Share {
    claims: Claims,
    file: FileKey,
    holder: Holder,
    generation: u64,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share").field("file", &self.file).field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl Share {
    /// What the owner has the file open for, and what he denies: the union over his opens. `None` if his client was
    /// released.
    pub fn modes(&self) -> Option<(Access, Deny)> {
        self.with(|open| (open.access, open.deny))
    }

    /// The file.
    pub fn file(&self) -> FileKey {
        self.file
    }

    /// Whose it is.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Leaves only these (OPEN_DOWNGRADE, RFC 8881 section 18.18). That they are those of some of the opens is for the
    /// protocol to check, which knows them.
    ///
    /// # Errors
    /// If one of them is not there, or the client was released.
    pub fn downgrade(&self, access: Access, deny: Deny) -> Result<(), NoDowngrade> {
        let table = &self.claims.table;
        table.shares.with(&self.file, |files| {
            let shares = files.get_mut(&self.file).ok_or(NoDowngrade)?;
            let open = shares.holders.get_mut(&self.holder).filter(|open| open.generation == self.generation);
            let open = open.ok_or(NoDowngrade)?;
            if !open.access.contains(access) || !open.deny.contains(deny) {
                return Err(NoDowngrade);
            }
            let before = (open.access, open.deny);
            (open.access, open.deny) = (access, deny);
            shares.count(self.holder.client(), Some(before), Some((access, deny)));
            table.count_denying(Some(before.1), Some(deny));
            Ok(())
        })
    }

    fn with<R>(&self, look: impl FnOnce(&mut Open) -> R) -> Option<R> {
        self.claims.table.shares.with(&self.file, |files| {
            let open = files.get_mut(&self.file)?.holders.get_mut(&self.holder)?;
            (open.generation == self.generation).then(|| look(open))
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let last = self.with(|open| {
            open.guards = open.guards.saturating_sub(1);
            open.guards == 0
        });
        if last == Some(true) {
            self.claims.end_share(self.file, &self.holder, Some(self.generation));
        }
    }
}

impl Claims {
    /// Opens a file for an owner, or widens his share by a further open. His own opens are no exception: what he denied
    /// by an earlier one is denied to him too (RFC 8881 section 9.7).
    ///
    /// # Errors
    /// If another open denies it, what would be denied is open, or there are too many shares.
    pub fn share(&self, file: FileKey, holder: &Holder, access: Access, deny: Deny) -> Result<Share, ShareRefused> {
        self.unless_expired(
            Some(holder.client()),
            || self.try_share(file, holder, access, deny),
            |outcome| match outcome {
                Err((ShareRefused::Denied(_), clients)) => clients.clone(),
                _ => Vec::new(),
            },
        )
        .map_err(|(refused, _)| refused)
    }

    fn try_share(
        &self,
        file: FileKey,
        holder: &Holder,
        access: Access,
        deny: Deny,
    ) -> Result<Share, (ShareRefused, Vec<Client>)> {
        let (table, client) = (&self.table, holder.client());
        table.shares.with(&file, |files| {
            if let Some(shares) = files.get(&file) {
                let clients = shares.conflicts(access, deny);
                if let Some(client) = clients.first() {
                    return Err((ShareRefused::Denied(Conflict { client: *client }), clients));
                }
            }
            let before = files.get(&file).and_then(|shares| shares.holders.get(holder)).map(|o| (o.access, o.deny));
            if before.is_none() {
                table.clients.take(client, Sort::Share, 1).map_err(|error| (error.into(), Vec::new()))?;
                table.clients.note(Sort::Share, file, holder, true);
            }
            let shares = files.entry(file).or_default();
            let after = before.map_or((access, deny), |before| (before.0.union(access), before.1.union(deny)));
            shares.count(client, before, Some(after));
            table.count_denying(before.map(|before| before.1), Some(after.1));
            let open = shares.holders.entry(holder.clone()).or_insert_with(|| Open {
                access,
                deny,
                guards: 0,
                generation: table.generations.fetch_add(1, Ordering::Relaxed),
            });
            (open.access, open.deny) = after;
            open.guards += 1;
            Ok(Share { claims: self.clone(), file, holder: holder.clone(), generation: open.generation })
        })
    }

    /// Ends a share, if it is the one of this generation.
    pub(super) fn end_share(&self, file: FileKey, holder: &Holder, generation: Option<u64>) {
        let table = &self.table;
        table.shares.with(&file, |files| {
            let Some(shares) = files.get_mut(&file) else { return };
            let open = shares.holders.get(holder);
            // Without a guard the last time this was looked at: a new one may have come since.
            let ends = |open: &&Open| generation.is_none_or(|it| open.generation == it && open.guards == 0);
            let Some((access, deny)) = open.filter(ends).map(|open| (open.access, open.deny)) else { return };
            shares.holders.remove(holder);
            shares.count(holder.client(), Some((access, deny)), None);
            if shares.holders.is_empty() {
                files.remove(&file);
            }
            table.count_denying(Some(deny), None);
            table.clients.note(Sort::Share, file, holder, false);
            table.clients.give(holder.client(), Sort::Share, 1);
        });
    }

    /// Whether a file may be read or written, as far as share reservations go; a change of its size is a write. Costs
    /// nothing as long as nobody denies anything. Byte ranges are advisory: they never refuse reading or writing, as
    /// with Linux's nfsd.
    ///
    /// # Errors
    /// If somebody has denied it.
    pub fn may(&self, file: FileKey, access: Access, asker: Asker<'_>) -> Result<(), Conflict> {
        if self.table.denying.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let look = || {
            let shares = |files: &mut HashMap<FileKey, Shares>| {
                files.get(&file).map(|shares| shares.in_the_way(access, asker)).unwrap_or_default()
            };
            self.table.shares.with(&file, shares)
        };
        let own = match asker {
            Asker::Anonymous => None,
            Asker::Holder(holder) => Some(holder.client()),
        };
        match self.unless_expired(own, look, Clone::clone).first() {
            None => Ok(()),
            Some(client) => Err(Conflict { client: *client }),
        }
    }
}
