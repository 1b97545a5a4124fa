//! The share reservations of one file: who has it open, for what, and what each open denies others (RFC 8881 section
//! 9.7).
//!
//! The table counts opens by owner, by client and in all: three counts show whether an open conflicts, without a loop
//! over the shares. Nothing fails.

use super::{
    holder::{Asker, Client, Holder},
    modes::{Access, Deny},
};
use std::collections::HashMap;

/// What one open may do, and what it denies.
pub(super) type Modes = (Access, Deny);

/// How many opens have each bit: one for reading, one for writing.
#[derive(Clone, Copy, Default)]
struct Counts {
    access: [u32; 2],
    deny: [u32; 2],
}

impl Counts {
    fn change(&mut self, (access, deny): Modes, count: impl Fn(u32) -> u32) {
        for (bit, mask) in [(0, 1), (1, 2)] {
            if access.bits() & mask != 0 {
                self.access[bit] = count(self.access[bit]);
            }
            if deny.bits() & mask != 0 {
                self.deny[bit] = count(self.deny[bit]);
            }
        }
    }

    /// Replaces one open, if there was one, by another, if there is one.
    fn replace(&mut self, before: Option<Modes>, after: Option<Modes>) {
        if let Some(before) = before {
            self.change(before, |count| count.saturating_sub(1));
        }
        if let Some(after) = after {
            self.change(after, |count| count.saturating_add(1));
        }
    }

    fn without(mut self, other: &Counts) -> Self {
        for bit in 0..2 {
            self.access[bit] = self.access[bit].saturating_sub(other.access[bit]);
            self.deny[bit] = self.deny[bit].saturating_sub(other.deny[bit]);
        }
        self
    }

    /// Whether these opens exclude another open, or reading or writing (which deny nothing).
    fn exclude(&self, access: Access, deny: Deny) -> bool {
        // NFS4-8881-9.7-c
        access.bits() & bits(self.deny) != 0 || deny.bits() & bits(self.access) != 0
    }

    fn is_empty(&self) -> bool {
        self.access == [0; 2]
    }
}

fn bits(counts: [u32; 2]) -> u32 {
    u32::from(counts[0] > 0) | u32::from(counts[1] > 0) << 1
}

/// All opens of one owner.
struct Open {
    counts: Counts,
    /// How many guards it has.
    guards: usize,
    /// Distinguishes it from an earlier share of the same owner.
    generation: u64,
}

#[derive(Default)]
pub(super) struct Shares {
    all: Counts,
    clients: HashMap<Client, Counts>,
    holders: HashMap<Holder, Open>,
}

impl Shares {
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Whether any open denies something.
    pub(super) fn denies(&self) -> bool {
        self.all.deny != [0; 2]
    }

    pub(super) fn has(&self, holder: &Holder) -> bool {
        self.holders.contains_key(holder)
    }

    /// The union of an owner's modes, if its share is of this generation.
    pub(super) fn modes(&self, holder: &Holder, generation: u64) -> Option<Modes> {
        let counts = self.holders.get(holder).filter(|open| open.generation == generation)?.counts;
        Some((Access::from_bits(bits(counts.access))?, Deny::from_bits(bits(counts.deny))?))
    }

    /// The clients whose shares conflict with an open, including the opener's own.
    pub(super) fn in_the_way_of_open(&self, (access, deny): Modes) -> Vec<Client> {
        self.excluding(access, deny, None)
    }

    /// The clients whose shares conflict with reading or writing, except the asker's own shares.
    // NFS4-8881-9.1.2-b, NFS4-8881-9.7-v3
    pub(super) fn in_the_way(&self, access: Access, asker: Asker<'_>) -> Vec<Client> {
        let own = match asker {
            Asker::Anonymous => None,
            Asker::Holder(holder) => self.holders.get(holder).map(|open| (holder.client(), &open.counts)),
        };
        self.excluding(access, Deny::NONE, own)
    }

    fn excluding(&self, access: Access, deny: Deny, but: Option<(Client, &Counts)>) -> Vec<Client> {
        if !but.map_or(self.all, |(_, own)| self.all.without(own)).exclude(access, deny) {
            return Vec::new();
        }
        let excludes = |client: &Client, counts: &Counts| match but {
            Some((own, of_own)) if own == *client => counts.without(of_own).exclude(access, deny),
            _ => counts.exclude(access, deny),
        };
        let excluding = self.clients.iter().filter(|(client, counts)| excludes(client, counts));
        excluding.map(|(client, _)| *client).collect()
    }

    /// Adds an open and its guard to an owner. If that begins a share, it is of this `generation`. Returns the
    /// generation of the share.
    pub(super) fn add(&mut self, holder: &Holder, modes: Modes, generation: u64) -> u64 {
        let new = || Open { counts: Counts::default(), guards: 0, generation };
        let open = self.holders.entry(holder.clone()).or_insert_with(new);
        open.guards += 1;
        let generation = open.generation;
        self.replace(holder, None, Some(modes));
        generation
    }

    /// Replaces an open of an owner by another, or ends it. Does nothing if its share is of another generation.
    pub(super) fn change(&mut self, holder: &Holder, generation: u64, before: Modes, after: Option<Modes>) -> bool {
        // NFS4-8881-9.7-c
        let Some(open) = self.holders.get_mut(holder).filter(|open| open.generation == generation) else {
            return false;
        };
        if after.is_none() {
            open.guards = open.guards.saturating_sub(1);
        }
        let is_last = open.guards == 0;
        self.replace(holder, Some(before), after);
        if is_last {
            self.holders.remove(holder);
        }
        true
    }

    /// Ends all opens of an owner, even if guards still exist.
    pub(super) fn end(&mut self, holder: &Holder) {
        let Some(open) = self.holders.remove(holder) else { return };
        self.all = self.all.without(&open.counts);
        if let Some(of_client) = self.clients.get_mut(&holder.client()) {
            *of_client = of_client.without(&open.counts);
        }
        self.forget(holder.client());
    }

    fn replace(&mut self, holder: &Holder, before: Option<Modes>, after: Option<Modes>) {
        let client = holder.client();
        let of_holder = self.holders.get_mut(holder).map(|open| &mut open.counts);
        let of_client = self.clients.entry(client).or_default();
        for counts in [&mut self.all, of_client].into_iter().chain(of_holder) {
            counts.replace(before, after);
        }
        self.forget(client);
    }

    fn forget(&mut self, client: Client) {
        if self.clients.get(&client).is_some_and(Counts::is_empty) {
            self.clients.remove(&client);
        }
    }
}
