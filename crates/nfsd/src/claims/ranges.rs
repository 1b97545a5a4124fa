//! The locked byte ranges of one file.
//!
//! An owner has each byte at most once, for reading or for writing. A new lock replaces what its owner had there:
//! ranges are split at the edges, and joined where they touch and are of one kind (RFC 8881 sections 9.2, 9.3; POSIX
//! has the same rules). A change is first planned, then applied. The plan says how many ranges it adds, and applying it
//! cannot fail: so the code that counts or asks the host can still refuse in between.

use super::{
    holder::{Client, Holder},
    range::{Kind, Range},
    tree::{Owner, Tree},
};
use std::collections::{BTreeMap, HashMap};

/// A number that no owner has: in a look-up with it, all ranges belong to other owners.
const NO_OWNER: Owner = 0;

#[derive(Default)]
pub(super) struct Ranges {
    /// The ranges of all owners, by kind.
    index: Index,
    owners: HashMap<Holder, Owned>,
    holders: HashMap<Owner, Holder>,
    /// How many ranges each client has.
    clients: HashMap<Client, usize>,
    /// The number of the newest owner.
    numbered: Owner,
    count: usize,
}

/// The ranges of one owner: last byte and kind by first byte.
struct Owned {
    number: Owner,
    ranges: BTreeMap<u64, (u64, Kind)>,
}

/// Ranges by kind, of locks or of waiting clients.
#[derive(Default)]
pub(super) struct Index {
    reads: Tree,
    writes: Tree,
}

impl Index {
    pub(super) fn insert(&mut self, range: Range, kind: Kind, owner: Owner) {
        self.of(kind).insert(range, owner);
    }

    fn of(&mut self, kind: Kind) -> &mut Tree {
        match kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
        }
    }

    /// A range of another owner that excludes this range.
    pub(super) fn conflict(&self, range: Range, kind: Kind, owner: Owner) -> Option<(Range, Kind, Owner)> {
        let found = self.writes.find(range, owner).map(|(range, of)| (range, Kind::Write, of));
        found.or_else(|| {
            let read = || self.reads.find(range, owner).map(|(range, of)| (range, Kind::Read, of));
            (kind == Kind::Write).then(read).flatten()
        })
    }
}

/// How an owner's ranges change.
pub(super) struct Plan {
    remove: Vec<(Range, Kind)>,
    add: Vec<(Range, Kind)>,
}

impl Plan {
    /// By how many ranges the table grows.
    pub(super) fn growth(&self) -> usize {
        // NFS4-LIMIT-a
        self.add.len().saturating_sub(self.remove.len())
    }

    /// By how many ranges it shrinks.
    pub(super) fn shrinkage(&self) -> usize {
        self.remove.len().saturating_sub(self.add.len())
    }
}

impl Ranges {
    /// How many ranges there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// How many ranges a client has.
    pub(super) fn len_of(&self, client: Client) -> usize {
        self.clients.get(&client).copied().unwrap_or(0)
    }

    pub(super) fn has(&self, holder: &Holder) -> bool {
        self.owners.contains_key(holder)
    }

    /// Whether no other owner has a range.
    pub(super) fn is_only(&self, holder: &Holder) -> bool {
        self.owners.len() == usize::from(self.has(holder))
    }

    fn number(&self, holder: &Holder) -> Owner {
        self.owners.get(holder).map_or(NO_OWNER, |owned| owned.number)
    }

    /// A range of another owner that excludes this range.
    pub(super) fn conflict(&self, holder: &Holder, range: Range, kind: Kind) -> Option<(Range, Kind, &Holder)> {
        let (range, kind, owner) = self.index.conflict(range, kind, self.number(holder))?;
        self.holders.get(&owner).map(|holder| (range, kind, holder))
    }

    /// All ranges.
    pub(super) fn all(&self) -> impl Iterator<Item = (Range, Kind)> {
        let of = |owned: &Owned| within(owned, Range::ALL).collect::<Vec<_>>();
        self.owners.values().flat_map(of)
    }

    #[cfg(test)]
    pub(super) fn owned(&self) -> Vec<(Holder, Range, Kind)> {
        let of = |(holder, owned): (&Holder, &Owned)| {
            within(owned, Range::ALL).map(|(range, kind)| (holder.clone(), range, kind)).collect::<Vec<_>>()
        };
        self.owners.iter().flat_map(of).collect()
    }

    /// The parts of a range that this owner has, ordered.
    pub(super) fn of(&self, holder: &Holder, range: Range) -> Vec<(Range, Kind)> {
        let Some(owned) = self.owners.get(holder) else { return Vec::new() };
        within(owned, range).filter_map(|(own, kind)| Some((own.common(range)?, kind))).collect()
    }

    /// The parts of a range that this owner has and no other, ordered.
    pub(super) fn alone(&self, holder: &Holder, range: Range) -> Vec<Range> {
        let Some(owned) = self.owners.get(holder) else { return Vec::new() };
        let own = within(owned, range).filter_map(|(own, _)| own.common(range)).collect();
        self.without(own, owned.number)
    }

    /// The parts of a range that no owner has, ordered.
    pub(super) fn free(&self, range: Range) -> Vec<Range> {
        self.without(vec![range], NO_OWNER)
    }

    /// The parts that remain when the ranges of all owners but `but` are taken away.
    fn without(&self, mut parts: Vec<Range>, but: Owner) -> Vec<Range> {
        for tree in [&self.index.reads, &self.index.writes] {
            let mut left = Vec::new();
            for part in parts {
                let mut next = Some(part.first());
                tree.each(part, but, |other| {
                    let Some(from) = next else { return };
                    let gap = other.first().checked_sub(1).and_then(|last| Range::between(from, last));
                    left.extend(gap);
                    next = other.last().checked_add(1).map(|after| after.max(from));
                });
                left.extend(next.and_then(|from| Range::between(from, part.last())));
            }
            parts = left;
        }
        parts
    }

    /// Plans that an owner locks a range in this kind, or unlocks it.
    // NFS4-8881-9.2-a, NFS4-8881-9.3-a
    pub(super) fn plan(&self, holder: &Holder, range: Range, kind: Option<Kind>) -> Plan {
        let (mut remove, mut add) = (Vec::new(), Vec::new());
        let (mut first, mut last) = (range.first(), range.last());
        if let Some(owned) = self.owners.get(holder) {
            for (own, own_kind) in within(owned, touching(range)) {
                let joins = Some(own_kind) == kind;
                if !joins && !own.overlaps(range) {
                    continue;
                }
                remove.push((own, own_kind));
                if joins {
                    (first, last) = (first.min(own.first()), last.max(own.last()));
                    continue;
                }
                let before = range.first().checked_sub(1).and_then(|last| Range::between(own.first(), last));
                let after = range.last().checked_add(1).and_then(|first| Range::between(first, own.last()));
                add.extend([before, after].into_iter().flatten().map(|left| (left, own_kind)));
            }
        }
        add.extend(kind.and_then(|kind| Some((Range::between(first, last)?, kind))));
        Plan { remove, add }
    }

    /// Applies the plan. Nothing may have changed since it was made.
    pub(super) fn apply(&mut self, holder: &Holder, plan: &Plan) {
        let number = match self.owners.get(holder) {
            Some(owned) => owned.number,
            None if plan.add.is_empty() => return,
            None => {
                self.numbered += 1;
                self.owners.insert(holder.clone(), Owned { number: self.numbered, ranges: BTreeMap::new() });
                self.holders.insert(self.numbered, holder.clone());
                self.numbered
            }
        };
        let Some(owned) = self.owners.get_mut(holder) else { return };
        for (range, kind) in &plan.remove {
            owned.ranges.remove(&range.first());
            self.index.of(*kind).remove(range.first(), number);
        }
        for (range, kind) in &plan.add {
            owned.ranges.insert(range.first(), (range.last(), *kind));
            self.index.of(*kind).insert(*range, number);
        }
        if owned.ranges.is_empty() {
            self.owners.remove(holder);
            self.holders.remove(&number);
        }
        self.count = (self.count + plan.add.len()).saturating_sub(plan.remove.len());
        let of_client = self.clients.entry(holder.client()).or_default();
        *of_client = (*of_client + plan.add.len()).saturating_sub(plan.remove.len());
        if *of_client == 0 {
            self.clients.remove(&holder.client());
        }
    }
}

/// A range and the bytes directly beside it.
fn touching(range: Range) -> Range {
    Range::between(range.first().saturating_sub(1), range.last().saturating_add(1)).unwrap_or(range)
}

fn within(owned: &Owned, range: Range) -> impl Iterator<Item = (Range, Kind)> {
    // An owner's ranges do not overlap, so at most one begins before this range and reaches into it.
    let before = owned.ranges.range(..range.first()).next_back().filter(move |(_, (last, _))| *last >= range.first());
    before
        .into_iter()
        .chain(owned.ranges.range(range.first()..=range.last()))
        .filter_map(|(first, (last, kind))| Some((Range::between(*first, *last)?, *kind)))
}
