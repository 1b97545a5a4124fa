//! Extended attributes of files in memory. They count as pages of the file system, rounded up for each file.

use super::{
    pages::PAGE_BYTES,
    tree::{READ, Tree, WRITE},
};
use crate::{Caller, Fault, ListingBudget, MAX_XATTR_BYTES, SetXattr, XattrNames};
use bytes::Bytes;
use rpcrdma_nfs::attr::{FileType, Time};
use siphasher::sip::SipHasher24;
use std::{collections::BTreeMap, hash::Hasher};

/// The longest name in bytes: what Linux's limit leaves beside the namespace.
const MAX_NAME_BYTES: usize = 250;
/// The most bytes of all names of a file, each with one byte more, as Linux counts them.
const MAX_LIST_BYTES: usize = 64 << 10;

/// Bytes of memory that an extended attribute takes besides its name and value.
const ENTRY_BYTES: usize = 128;

fn octets(name: &[u8], value: &[u8]) -> usize {
    ENTRY_BYTES + name.len() + value.len()
}

fn all_bytes(xattrs: &BTreeMap<Bytes, Bytes>) -> usize {
    xattrs.iter().map(|(name, value)| octets(name, value)).sum()
}

fn in_pages(octets: usize) -> u64 {
    octets.div_ceil(PAGE_BYTES) as u64
}

/// How many pages a file's extended attributes count as.
pub(super) fn pages(xattrs: &BTreeMap<Bytes, Bytes>) -> u64 {
    in_pages(all_bytes(xattrs))
}

/// The position of a name in a listing, independent of other names: never 0.
fn place(name: &[u8]) -> u64 {
    // A fixed key: positions only have to be spread.
    let mut hasher = SipHasher24::new_with_key(&[5; 16]);
    hasher.write(name);
    (hasher.finish() >> 1).max(1)
}

fn check_name(name: &[u8]) -> Result<(), Fault> {
    match name.len() {
        0 => Err(Fault::Invalid),
        octets if octets > MAX_NAME_BYTES => Err(Fault::NameTooLong),
        _ => Ok(()),
    }
}

impl Tree {
    /// The extended attributes of a file for a caller with these rights to it.
    fn xattrs(&self, caller: &Caller, number: u64, rights: u32) -> Result<&BTreeMap<Bytes, Bytes>, Fault> {
        let node = self.node(number)?;
        match node.file_type() {
            FileType::Regular | FileType::Directory => {}
            FileType::Symlink => return Err(Fault::IsSymlink),
            _ => return Err(Fault::IsSpecial),
        }
        self.check(caller, number, rights)?;
        Ok(&node.xattrs)
    }

    pub(super) fn xattr(&self, caller: &Caller, number: u64, name: &[u8]) -> Result<Bytes, Fault> {
        check_name(name)?;
        self.xattrs(caller, number, READ)?.get(name).cloned().ok_or(Fault::NoXattr)
    }

    pub(super) fn list_xattrs(
        &self,
        caller: &Caller,
        number: u64,
        cookie: u64,
        mut budget: ListingBudget,
    ) -> Result<XattrNames, Fault> {
        let names = self.xattrs(caller, number, READ)?.keys().cloned();
        Ok(XattrNames::after(cookie, names, place, |octets| budget.take(octets)))
    }

    pub(super) fn set_xattr(
        &mut self,
        caller: &Caller,
        number: u64,
        (name, value): (Bytes, Bytes),
        how: SetXattr,
        now: Time,
    ) -> Result<(), Fault> {
        check_name(&name)?;
        if value.len() > MAX_XATTR_BYTES {
            return Err(Fault::XattrTooLarge);
        }
        let xattrs = self.xattrs(caller, number, WRITE)?;
        let old = xattrs.get(&name);
        match (old.is_some(), how) {
            (true, SetXattr::Create) => return Err(Fault::Exists),
            (false, SetXattr::Replace) => return Err(Fault::NoXattr),
            _ => {}
        }
        let names: usize = xattrs.keys().map(|name| name.len() + 1).sum();
        if old.is_none() && names + name.len() + 1 > MAX_LIST_BYTES {
            return Err(Fault::NoSpace);
        }
        let was = all_bytes(xattrs);
        let freed = old.map_or(0, |value| octets(&name, value));
        self.count_xattrs(was, was - freed + octets(&name, &value))?;
        let node = self.node_mut(number)?;
        // Copied: otherwise the whole call would stay in memory with them.
        node.xattrs.insert(Bytes::copy_from_slice(&name), Bytes::copy_from_slice(&value));
        node.change(now);
        Ok(())
    }

    pub(super) fn remove_xattr(&mut self, caller: &Caller, number: u64, name: &[u8], now: Time) -> Result<(), Fault> {
        check_name(name)?;
        let xattrs = self.xattrs(caller, number, WRITE)?;
        let value = xattrs.get(name).ok_or(Fault::NoXattr)?;
        let was = all_bytes(xattrs);
        self.count_xattrs(was, was - octets(name, value))?;
        let node = self.node_mut(number)?;
        node.xattrs.remove(name);
        node.change(now);
        Ok(())
    }

    /// The extended attributes of a file took `was` bytes, and now take `now`.
    fn count_xattrs(&mut self, was: usize, now: usize) -> Result<(), Fault> {
        let taken = self.pages - in_pages(was) + in_pages(now);
        if taken > self.max_pages && taken > self.pages {
            return Err(Fault::NoSpace);
        }
        self.pages = taken;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tree::ROOT;

    const PAGES: u64 = 4;

    fn tree() -> Tree {
        Tree::new(1, PAGES * PAGE_BYTES as u64, Time::default())
    }

    fn set(tree: &mut Tree, number: u64, name: &[u8], octets: usize) -> Result<(), Fault> {
        let pair = (Bytes::copy_from_slice(name), Bytes::from(vec![0; octets]));
        tree.set_xattr(&Caller::root(), number, pair, SetXattr::Either, Time::default())
    }

    #[test]
    fn values_count_as_pages_and_are_given_back() {
        let mut tree = tree();
        const REST: usize = ENTRY_BYTES + 1;
        set(&mut tree, ROOT, b"a", PAGE_BYTES - REST).unwrap();
        assert_eq!(tree.pages, 1);
        set(&mut tree, ROOT, b"b", 3 * PAGE_BYTES - REST).unwrap();
        assert_eq!(tree.pages, PAGES, "all that there are");
        assert_eq!(set(&mut tree, ROOT, b"c", 0), Err(Fault::NoSpace));
        set(&mut tree, ROOT, b"b", 0).unwrap();
        tree.remove_xattr(&Caller::root(), ROOT, b"a", Time::default()).unwrap();
        assert_eq!(tree.pages, 1);
        // A removed file takes its attributes along.
        let number = tree.new_directory(ROOT, 0o700, &Caller::root(), Time::default());
        tree.enter(ROOT, Bytes::from_static(b"d"), number, Time::default()).unwrap();
        set(&mut tree, number, b"a", PAGE_BYTES).unwrap();
        assert_eq!(tree.pages, 3, "with its name it is more than a page");
        tree.leave(ROOT, b"d", Time::default()).unwrap();
        tree.unlink(number, Time::default()).unwrap();
        assert_eq!(tree.pages, 1);
    }

    #[test]
    fn names_end_at_their_limit() {
        let mut tree = Tree::new(1, 1 << 30, Time::default());
        let count = MAX_LIST_BYTES / (MAX_NAME_BYTES + 1);
        let name = |number: usize| format!("{number:0>MAX_NAME_BYTES$}").into_bytes();
        (0..count).for_each(|number| set(&mut tree, ROOT, &name(number), 0).unwrap());
        let left = MAX_LIST_BYTES % (MAX_NAME_BYTES + 1);
        assert_eq!(set(&mut tree, ROOT, &vec![b'n'; left], 0), Err(Fault::NoSpace), "with its end one byte too many");
        set(&mut tree, ROOT, &vec![b'n'; left - 1], 0).unwrap();
        assert_eq!(set(&mut tree, ROOT, &name(0), 7), Ok(()), "what is there can be set");
    }

    /// Names without values take memory, too.
    #[test]
    fn many_short_names_count_as_what_they_take() {
        let mut tree = Tree::new(1, 1 << 30, Time::default());
        (0..1000).for_each(|number| set(&mut tree, ROOT, format!("{number:03}").as_bytes(), 0).unwrap());
        assert_eq!(tree.pages, (1000 * (ENTRY_BYTES as u64 + 3)).div_ceil(PAGE_BYTES as u64));
    }
}
