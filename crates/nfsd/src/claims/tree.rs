//! A tree of the ranges of many owners, which finds those that overlap a range.
//!
//! A balanced search tree (AVL), ordered by a range's first byte. Each node knows how far the ranges below it reach:
//! those of the owner that reaches furthest, and those of all other owners. So each node shows whether an owner other
//! than the asker has a byte there, and a search takes as many steps as the tree is high, however many ranges the asker
//! has. Owns the ranges; nothing fails.

use super::range::Range;
use std::cmp::Ordering;

/// The number of an owner within its file.
pub(super) type Owner = u64;

type Link = Option<Box<Node>>;

#[derive(Default)]
pub(super) struct Tree {
    root: Link,
}

struct Node {
    range: Range,
    owner: Owner,
    reach: Reach,
    height: u8,
    left: Link,
    right: Link,
}

/// The last byte of an owner's ranges.
#[derive(Clone, Copy)]
struct End {
    last: u64,
    owner: Owner,
}

/// How far ranges reach.
#[derive(Clone, Copy)]
struct Reach {
    furthest: End,
    /// The furthest reach of all other owners.
    other: Option<End>,
}

impl Reach {
    fn add(&mut self, end: End) {
        if end.owner == self.furthest.owner {
            self.furthest.last = self.furthest.last.max(end.last);
        } else if end.last > self.furthest.last {
            // NFS4-8881-9.5-a
            self.other = Some(self.furthest);
            self.furthest = end;
        } else if self.other.is_none_or(|other| end.last > other.last) {
            self.other = Some(end);
        }
    }

    fn join(&mut self, other: Reach) {
        self.add(other.furthest);
        if let Some(end) = other.other {
            self.add(end);
        }
    }

    /// Whether an owner other than `owner` reaches `octet`.
    fn beyond(&self, octet: u64, owner: Owner) -> bool {
        let end = if self.furthest.owner == owner { self.other } else { Some(self.furthest) };
        end.is_some_and(|end| end.last >= octet)
    }
}

#[cfg(test)]
thread_local! {
    /// Nodes looked at, for tests that count the work.
    pub(super) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

impl Node {
    fn new(range: Range, owner: Owner) -> Self {
        let reach = Reach { furthest: End { last: range.last(), owner }, other: None };
        Self { range, owner, reach, height: 1, left: None, right: None }
    }

    /// How a range is ordered against this node. An owner's ranges do not overlap, so no two are equal.
    fn order(&self, first: u64, owner: Owner) -> Ordering {
        step();
        (first, owner).cmp(&(self.range.first(), self.owner))
    }

    /// Computes the reach and height of this node from the nodes below.
    fn renew(&mut self) {
        self.reach = Reach { furthest: End { last: self.range.last(), owner: self.owner }, other: None };
        for child in [&self.left, &self.right].into_iter().flatten() {
            self.reach.join(child.reach);
        }
        self.height = 1 + height(&self.left).max(height(&self.right));
    }
}

fn height(link: &Link) -> u8 {
    link.as_ref().map_or(0, |node| node.height)
}

fn rotate_right(link: &mut Link) {
    let Some(mut top) = link.take() else { return };
    let Some(mut left) = top.left.take() else {
        *link = Some(top);
        return;
    };
    top.left = left.right.take();
    top.renew();
    left.right = Some(top);
    left.renew();
    *link = Some(left);
}

fn rotate_left(link: &mut Link) {
    let Some(mut top) = link.take() else { return };
    let Some(mut right) = top.right.take() else {
        *link = Some(top);
        return;
    };
    top.right = right.left.take();
    top.renew();
    right.left = Some(top);
    right.renew();
    *link = Some(right);
}

/// Renews a node and balances it. Its subtrees are balanced, and their heights differ by at most two.
fn balance(link: &mut Link) {
    let Some(node) = link else { return };
    let (left, right) = (height(&node.left), height(&node.right));
    if left > right + 1 {
        if node.left.as_ref().is_some_and(|left| height(&left.right) > height(&left.left)) {
            rotate_left(&mut node.left);
        }
        rotate_right(link);
    } else if right > left + 1 {
        if node.right.as_ref().is_some_and(|right| height(&right.left) > height(&right.right)) {
            rotate_right(&mut node.right);
        }
        rotate_left(link);
    } else {
        node.renew();
    }
}

fn insert(link: &mut Link, new: Box<Node>) {
    match link {
        None => *link = Some(new),
        Some(node) => {
            let side = match node.order(new.range.first(), new.owner) {
                Ordering::Less => &mut node.left,
                _ => &mut node.right,
            };
            insert(side, new);
            balance(link);
        }
    }
}

/// Takes out the first node.
fn take_first(link: &mut Link) -> Option<Box<Node>> {
    step();
    let node = link.as_mut()?;
    let taken = match take_first(&mut node.left) {
        Some(taken) => taken,
        None => {
            let mut taken = link.take()?;
            *link = taken.right.take();
            taken
        }
    };
    balance(link);
    Some(taken)
}

fn remove(link: &mut Link, first: u64, owner: Owner) {
    let Some(node) = link else { return };
    match node.order(first, owner) {
        Ordering::Less => remove(&mut node.left, first, owner),
        Ordering::Greater => remove(&mut node.right, first, owner),
        Ordering::Equal => {
            let (left, mut right) = (node.left.take(), node.right.take());
            *link = match take_first(&mut right) {
                None => left,
                Some(mut next) => {
                    (next.left, next.right) = (left, right);
                    Some(next)
                }
            };
        }
    }
    balance(link);
}

fn visit(link: &Link, within: Range, but: Owner, each: &mut dyn FnMut(Range)) {
    let Some(node) = link else { return };
    step();
    if !node.reach.beyond(within.first(), but) {
        return;
    }
    visit(&node.left, within, but, each);
    if node.owner != but && node.range.overlaps(within) {
        each(node.range);
    }
    if node.range.first() <= within.last() {
        visit(&node.right, within, but, each);
    }
}

impl Tree {
    /// Adds a range, which overlaps no other of the same owner.
    pub(super) fn insert(&mut self, range: Range, owner: Owner) {
        insert(&mut self.root, Box::new(Node::new(range, owner)));
    }

    /// Removes an owner's range that begins at `first`.
    pub(super) fn remove(&mut self, first: u64, owner: Owner) {
        remove(&mut self.root, first, owner);
    }

    /// A range that overlaps `within`, of an owner other than `but`.
    pub(super) fn find(&self, within: Range, but: Owner) -> Option<(Range, Owner)> {
        let mut link = &self.root;
        while let Some(node) = link {
            step();
            // Suppose that an owner on the left reaches that far, and yet none of its ranges overlaps: then its range
            // begins behind `within`, and so does everything on the right.
            if node.left.as_ref().is_some_and(|left| left.reach.beyond(within.first(), but)) {
                link = &node.left;
            } else if node.owner != but && node.range.overlaps(within) {
                return Some((node.range, node.owner));
            } else {
                link = &node.right;
            }
        }
        None
    }

    /// Each range that overlaps `within`, of an owner other than `but`, ordered by its first byte.
    pub(super) fn each(&self, within: Range, but: Owner, mut each: impl FnMut(Range)) {
        visit(&self.root, within, but, &mut each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Checks that the tree is in order and balanced, and that each node knows its reach. Returns the ranges.
    fn check(link: &Link) -> Vec<(u64, Owner, u64)> {
        let Some(node) = link else { return Vec::new() };
        let (mut all, right) = (check(&node.left), check(&node.right));
        assert!(height(&node.left).abs_diff(height(&node.right)) <= 1);
        assert_eq!(node.height, 1 + height(&node.left).max(height(&node.right)));
        all.push((node.range.first(), node.owner, node.range.last()));
        all.extend(right);
        assert!(all.is_sorted());
        for owner in 0..5 {
            let last = all.iter().filter(|range| range.1 != owner).map(|range| range.2).max();
            assert!(last.is_none_or(|last| node.reach.beyond(last, owner)));
            assert!(!node.reach.beyond(last.map_or(0, |last| last + 1), owner));
        }
        all
    }

    proptest! {
        #[test]
        fn it_finds_what_a_list_finds(
            steps in prop::collection::vec((0u64..60, 0u64..20, 0u64..4, any::<bool>()), 0..120),
        ) {
            let (mut tree, mut list) = (Tree::default(), Vec::<(Range, Owner)>::new());
            for (first, more, owner, adds) in steps {
                let range = Range::between(first, first + more).unwrap();
                if adds && !list.iter().any(|(other, of)| *of == owner && other.overlaps(range)) {
                    tree.insert(range, owner);
                    list.push((range, owner));
                } else if !adds {
                    tree.remove(first, owner);
                    list.retain(|(other, of)| (other.first(), *of) != (first, owner));
                }
                prop_assert_eq!(check(&tree.root).len(), list.len());
                for but in 0..5 {
                    let mut expected: Vec<_> =
                        list.iter().filter(|(other, of)| *of != but && other.overlaps(range)).copied().collect();
                    match tree.find(range, but) {
                        Some(found) => prop_assert!(expected.contains(&found)),
                        None => prop_assert!(expected.is_empty()),
                    }
                    let mut seen = Vec::new();
                    tree.each(range, but, |range| seen.push(range));
                    expected.sort_by_key(|(range, of)| (range.first(), *of));
                    prop_assert_eq!(seen, expected.into_iter().map(|(range, _)| range).collect::<Vec<_>>());
                }
            }
        }
    }
}
