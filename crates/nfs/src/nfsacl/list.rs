//! Lists as they are sent, and the POSIX lists that they mean.
//!
//! A decoded list has as many entries as it says, and at most as many as the program allows. [`List::posix`] checks
//! whether its entries make a valid list.

use crate::attr::PosixAcl;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// The most entries of one list (`NFS_ACL_MAX_ENTRIES`).
pub const MAX_ENTRIES: usize = 1024;

/// Octets of an entry.
const ENTRY_BYTES: usize = 12;
/// Octets of a list without its entries.
const COUNTS_BYTES: usize = 8;

/// The parts of a file's lists that a call asks for or sets.
pub mod mask {
    /// The entries of the access list.
    pub const ACCESS: u32 = 0x1;
    /// Their number.
    pub const ACCESS_COUNT: u32 = 0x2;
    /// The entries of the default list.
    pub const DEFAULT: u32 = 0x4;
    /// Their number.
    pub const DEFAULT_COUNT: u32 = 0x8;
    /// All parts.
    pub const ALL: u32 = 0xF;
}

/// Types of entries: the class of users that an entry is about.
pub mod entry {
    /// The file's owner.
    pub const OWNER: u32 = 0x01;
    /// A user.
    pub const USER: u32 = 0x02;
    /// The file's group.
    pub const GROUP: u32 = 0x04;
    /// A further group.
    pub const NAMED_GROUP: u32 = 0x08;
    /// The most that users and groups get.
    pub const MASK: u32 = 0x10;
    /// All others.
    pub const OTHERS: u32 = 0x20;
    /// A flag beside one of the others: the entry belongs to a default list.
    pub const OF_DEFAULT: u32 = 0x1000;
}

/// All rights: to read, to write, to execute.
const RIGHTS: u32 = 7;

xdr_struct! {
    /// An entry, as it was sent.
    #[derive(Copy)]
    pub struct Entry {
        /// Its type, of those in [`entry`].
        pub kind: u32,
        /// The user or group, where the type has one.
        pub id: u32,
        /// The rights.
        pub rights: u32,
    }
}

/// A list: how many entries it has and, unless the call asks only for that, the entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    count: u32,
    entries: Vec<Entry>,
}

impl List {
    /// A list of these entries. `None` if there are more than [`MAX_ENTRIES`].
    pub fn new(entries: Vec<Entry>) -> Option<Self> {
        let count = u32::try_from(entries.len()).ok().filter(|_| entries.len() <= MAX_ENTRIES)?;
        Some(Self { count, entries })
    }

    /// A POSIX list of a file of this owner and group, as servers send it: a list that a mode can express has a mask as
    /// well, as with Linux and Solaris. `None` if it is too long.
    pub fn of(acl: &PosixAcl, (owner, group): (u32, u32)) -> Option<Self> {
        Self::with_flags(acl, (owner, group), 0)
    }

    /// The same for a default list.
    pub fn of_default(acl: &PosixAcl, (owner, group): (u32, u32)) -> Option<Self> {
        Self::with_flags(acl, (owner, group), entry::OF_DEFAULT)
    }

    fn with_flags(acl: &PosixAcl, (owner, group): (u32, u32), flags: u32) -> Option<Self> {
        let of = |kind: u32, id: u32, rights: u8| Entry { kind: kind | flags, id, rights: rights.into() };
        let users = acl.users().iter().map(|(id, rights)| of(entry::USER, *id, *rights));
        let groups = acl.groups().iter().map(|(id, rights)| of(entry::NAMED_GROUP, *id, *rights));
        // NFSACL-LINUX-b
        let mask = acl.mask().unwrap_or(acl.group());
        let entries = [of(entry::OWNER, owner, acl.owner())]
            .into_iter()
            .chain(users)
            .chain([of(entry::GROUP, group, acl.group())])
            .chain(groups)
            .chain([of(entry::MASK, 0, mask), of(entry::OTHERS, 0, acl.others())]);
        Self::new(entries.collect())
    }

    /// The same without its entries.
    pub fn counted(self) -> Self {
        Self { count: self.count, entries: Vec::new() }
    }

    /// How many entries the file's list has, whether or not they are here.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The POSIX list that the entries mean, in any order. `None` if they mean none: two entries of one user, group or
    /// class, a class or a mask that is missing, a type or rights that do not exist, a number that stands for nobody.
    ///
    /// A mask that removes no rights, in a list that names no user or group, is one that [`List::of`] has added, and is
    /// left out.
    pub fn posix(&self) -> Option<PosixAcl> {
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        let [mut owner, mut group, mut mask, mut others] = [None; 4];
        for Entry { kind, id, rights } in self.entries.iter().copied() {
            // Solaris sets further bits of the mask, which have no meaning.
            let rights = if kind & !entry::OF_DEFAULT == entry::MASK { rights & RIGHTS } else { rights };
            let rights = u8::try_from(rights).ok()?;
            let single = match kind & !entry::OF_DEFAULT {
                entry::USER => {
                    users.push((id, rights));
                    continue;
                }
                entry::NAMED_GROUP => {
                    groups.push((id, rights));
                    continue;
                }
                entry::OWNER => &mut owner,
                entry::GROUP => &mut group,
                entry::MASK => &mut mask,
                entry::OTHERS => &mut others,
                _ => return None,
            };
            if single.replace(rights).is_some() {
                return None;
            }
        }
        let mask = mask.filter(|mask| !users.is_empty() || !groups.is_empty() || Some(*mask) != group);
        PosixAcl::new([owner?, group?, others?], users, groups, mask)
    }
}

impl Encode for List {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.count);
        encoder.array(&self.entries);
    }
}

impl Decode for List {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let count = decoder.u32()?;
        let most = usize::try_from(count).ok().filter(|most| *most <= MAX_ENTRIES);
        let most = most.ok_or_else(|| decoder.bad_value(count, "number of access control entries"))?;
        let entries: Vec<Entry> = decoder.array(most)?;
        // NFSACL-LINUX-a
        if !entries.is_empty() && entries.len() != most {
            return Err(decoder.bad_value(count, "number of the access control entries that follow"));
        }
        Ok(Self { count, entries })
    }
}

/// Both lists of a file, and which of them are present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    mask: u32,
    access: List,
    default: List,
}

impl Lists {
    /// The parts of two lists that `mask` names.
    pub fn new(mask: u32, access: List, default: List) -> Self {
        let named = |list: List, entries: u32, count: u32| match mask {
            mask if mask & entries != 0 => list,
            mask if mask & count != 0 => list.counted(),
            _ => List::default(),
        };
        let access = named(access, mask::ACCESS, mask::ACCESS_COUNT);
        Self { mask, access, default: named(default, mask::DEFAULT, mask::DEFAULT_COUNT) }
    }

    /// The parts that are meant: bits of [`mask`], and perhaps others.
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// The access list, if its entries are present.
    pub fn access(&self) -> Option<&List> {
        Some(&self.access).filter(|_| self.mask & mask::ACCESS != 0)
    }

    /// The default list, if its entries are present. One without entries means that the directory has none.
    pub fn default(&self) -> Option<&List> {
        Some(&self.default).filter(|_| self.mask & mask::DEFAULT != 0)
    }

    /// How many entries the access list and the default list have, as far as the message says it.
    pub fn counts(&self) -> [u32; 2] {
        [self.access.count, self.default.count]
    }

    /// The most octets of the lists that a mask asks for, with the mask.
    pub(super) const fn most_bytes(mask: u32) -> usize {
        let mut octets = 4 + 2 * COUNTS_BYTES;
        if mask & mask::ACCESS != 0 {
            octets += MAX_ENTRIES * ENTRY_BYTES;
        }
        if mask & mask::DEFAULT != 0 {
            octets += MAX_ENTRIES * ENTRY_BYTES;
        }
        octets
    }
}

impl Encode for Lists {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.mask);
        self.access.encode(encoder);
        self.default.encode(encoder);
    }
}

impl Decode for Lists {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let mask = decoder.u32()?;
        let (access, default) = (List::decode(decoder)?, List::decode(decoder)?);
        for (list, bit) in [(&access, mask::ACCESS), (&default, mask::DEFAULT)] {
            let has_all = usize::try_from(list.count) == Ok(list.entries.len());
            if mask & bit != 0 && !has_all {
                return Err(decoder.bad_value(list.count, "number of access control entries of an empty list"));
            }
        }
        Ok(Self { mask, access, default })
    }
}

#[cfg(test)]
impl crate::sample::Sample for List {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        let entries = (0..draw.count(MAX_ENTRIES)).map(|_| Entry::sample(draw)).collect();
        Self::new(entries).expect("not too long")
    }
}

#[cfg(test)]
impl crate::sample::Sample for Lists {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        Self::new(u32::sample(draw), List::sample(draw), List::sample(draw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: &impl Encode) -> bytes::Bytes {
        let mut encoder = Encoder::new();
        value.encode(&mut encoder);
        encoder.finish().to_bytes()
    }

    fn decoded<T: Decode>(words: &[u32]) -> Result<T, DecodeError> {
        let octets: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let mut decoder = Decoder::new(bytes::Bytes::from(octets).into());
        let value = T::decode(&mut decoder)?;
        decoder.finish().map(|()| value)
    }

    fn list(entries: &[(u32, u32, u32)]) -> List {
        List::new(entries.iter().map(|&(kind, id, rights)| Entry { kind, id, rights }).collect()).unwrap()
    }

    const BASE: [(u32, u32, u32); 4] = [(1, 0, 6), (4, 0, 4), (16, 0, 4), (32, 0, 0)];

    fn with(more: &[(u32, u32, u32)]) -> Option<PosixAcl> {
        list(&[&BASE[..], more].concat()).posix()
    }

    /// As Linux's server sends them.
    #[test]
    fn a_mode_has_four_entries_and_a_list_stands_in_its_order() {
        let of_mode = List::of(&PosixAcl::of_mode(0o640), (1000, 50)).unwrap();
        assert_eq!(of_mode, list(&[(1, 1000, 6), (4, 50, 4), (16, 0, 4), (32, 0, 0)]));
        assert_eq!(of_mode.posix(), Some(PosixAcl::of_mode(0o640)), "the mask is left out again");
        let acl = PosixAcl::new([6, 4, 0], vec![(7, 7), (5, 2)], vec![(9, 1)], Some(5)).unwrap();
        let told = List::of_default(&acl, (1000, 50)).unwrap();
        let kinds: Vec<_> = told.entries().iter().map(|entry| (entry.kind, entry.id, entry.rights)).collect();
        let expected = [(1, 1000, 6), (2, 5, 2), (2, 7, 7), (4, 50, 4), (8, 9, 1), (16, 0, 5), (32, 0, 0)];
        assert_eq!(kinds, expected.map(|(kind, id, rights)| (kind | 0x1000, id, rights)));
        assert_eq!(told.posix(), Some(acl));
        let narrowed = PosixAcl::new([6, 6, 0], vec![], vec![], Some(4)).unwrap();
        assert_eq!(List::of(&narrowed, (0, 0)).unwrap().posix(), Some(narrowed), "a mask that takes something away");
    }

    #[test]
    fn entries_may_stand_in_any_order_and_mean_one_list() {
        let acl = PosixAcl::new([6, 4, 0], vec![(7, 7), (5, 2)], vec![(9, 1)], Some(5)).unwrap();
        let mut entries = List::of(&acl, (0, 0)).unwrap().entries().to_vec();
        for _ in 0..entries.len() {
            entries.rotate_left(1);
            assert_eq!(List::new(entries.clone()).unwrap().posix().as_ref(), Some(&acl));
        }
        entries.reverse();
        assert_eq!(List::new(entries).unwrap().posix(), Some(acl));
    }

    #[test]
    fn what_means_nothing_is_no_list() {
        assert_eq!(with(&[]), Some(PosixAcl::of_mode(0o640)));
        assert_eq!(list(&[(1, 9, 6), (4, 9, 4), (32, 9, 0)]).posix(), Some(PosixAcl::of_mode(0o640)), "without a mask");
        assert_eq!(List::default().posix(), None, "no entries");
        for missing in [0, 1, 3] {
            let mut entries = BASE.to_vec();
            entries.remove(missing);
            assert_eq!(list(&entries).posix(), None, "without entry {missing}");
        }
        for double in BASE {
            assert_eq!(with(&[double]), None, "twice {double:?}");
        }
        assert!(with(&[(2, 5, 7)]).is_some() && with(&[(8, 5, 7)]).is_some());
        assert_eq!(with(&[(2, 5, 7), (2, 5, 1)]), None, "a user twice");
        assert_eq!(with(&[(8, 5, 7), (8, 5, 7)]), None, "a group twice");
        assert_eq!(with(&[(2, u32::MAX, 7)]), None, "nobody");
        assert_eq!(with(&[(2, 5, 8)]), None, "a right that there is not");
        assert_eq!(with(&[(2, 5, 0x107)]), None);
        assert_eq!(list(&[(1, 0, 6), (4, 0, 0x104), (32, 0, 0)]).posix(), None);
        for kind in [0, 3, 64, 0x2000, 0x8000_0002, u32::MAX] {
            assert_eq!(with(&[(kind, 5, 7)]), None, "type {kind:#x}");
        }
        assert_eq!(list(&[(1, 0, 6), (4, 0, 4), (2, 5, 4), (32, 0, 0)]).posix(), None, "a user without a mask");
        // Solaris's masks have further bits.
        let wide = list(&[(1, 0, 6), (4, 0, 4), (16, 0, 0xFFFF_FFF5), (2, 5, 4), (32, 0, 0)]);
        assert_eq!(wide.posix().unwrap().mask(), Some(5));
    }

    #[test]
    fn a_list_has_as_many_entries_as_it_says() {
        let entry = |n: usize| std::iter::repeat_n([2, 7, 4], n).flatten().collect::<Vec<u32>>();
        let of = |count: u32, array: u32, entries: usize| {
            decoded::<List>(&[&[count, array][..], &entry(entries)].concat()).map(|list| list.entries().len())
        };
        assert_eq!(of(3, 3, 3), Ok(3));
        assert_eq!(of(3, 0, 0), Ok(0), "told is only how many there are");
        assert!(of(3, 2, 2).is_err() && of(3, 4, 4).is_err() && of(0, 1, 1).is_err(), "counts that differ");
        assert!(of(3, 3, 2).is_err() && of(1024, 1024, 0).is_err() && of(1024, 1024, 1023).is_err(), "entries missing");
        assert_eq!(of(1024, 1024, 1024), Ok(MAX_ENTRIES));
        assert!(of(1025, 1025, 1025).is_err() && of(1025, 0, 0).is_err() && of(u32::MAX, u32::MAX, 0).is_err());
        // A part that the mask names has its entries.
        let lists = |mask: u32, count: u32| decoded::<Lists>(&[mask, count, 0, 0, 0]);
        assert!(lists(mask::ACCESS, 3).is_err() && lists(mask::DEFAULT_COUNT, 3).is_ok());
        assert!(decoded::<Lists>(&[mask::DEFAULT, 3, 0, 3, 0]).is_err());
        assert!(decoded::<Lists>(&[mask::ACCESS, 0, 0, 3, 0]).is_ok());
    }

    #[test]
    fn a_list_that_is_too_long_cannot_be_made() {
        let of = |users: u32| PosixAcl::new([7; 3], (0..users).map(|id| (id, 4)).collect(), vec![], Some(7)).unwrap();
        let longest = List::of(&of(1020), (0, 0)).unwrap();
        assert_eq!((longest.count(), longest.entries().len()), (1024, MAX_ENTRIES));
        assert_eq!(List::of(&of(1021), (0, 0)), None);
        let both = Lists::new(mask::ALL, longest.clone(), longest.clone());
        assert_eq!(encoded(&both).len(), Lists::most_bytes(mask::ALL), "the room that clients offer is what they need");
        let counts = Lists::new(mask::ACCESS_COUNT | mask::DEFAULT_COUNT, longest.clone(), longest);
        assert_eq!(encoded(&counts).len(), Lists::most_bytes(0));
        assert_eq!(counts.counts(), [1024, 1024]);
        assert!(counts.access().is_none() && counts.default().is_none());
    }
}
