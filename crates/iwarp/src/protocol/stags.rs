//! The connection's own table of exposed memory, and the source of its steering tags.
//!
//! It owns the memory that is lent to the peer. A look-up takes constant time, whatever tags the peer has named before.
//! Tags come from a 32-bit permutation under a key drawn for the connection (Speck32/64, a published block cipher, over
//! a counter): without the key a peer cannot know the next tag, all 32 bits vary, and no tag comes again before all
//! others have been used (RFC 5042 section 6.1.1).

use rpcrdma_env::Random;
use rpcrdma_fabric::{Access, Lent, Token};
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// Memory that the peer can reach.
#[derive(Debug)]
pub(crate) struct Exposure {
    pub(crate) token: Token,
    pub(crate) memory: Lent,
    /// The offset in a sink from which on no Write has touched it.
    pub(crate) touched: usize,
    /// Numbers the exposures, which come back in this order at the connection's end.
    serial: u64,
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No such tag.
    Unknown,
    /// The memory was lent for the other kind of access.
    Access,
    /// The access goes beyond the memory.
    Bounds,
    /// The end of the access exceeds 64-bit offsets.
    Wrap,
}

/// Hashes a tag to itself: tags are already as good as random, and the peer does not choose those in the table.
#[derive(Default)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.0 = self.0 << 8 | u64::from(*octet);
        }
    }

    fn write_u32(&mut self, tag: u32) {
        // The table takes bits from both ends of the hash.
        self.0 = u64::from(tag) << 32 | u64::from(tag);
    }
}

pub(crate) struct Stags {
    table: HashMap<u32, Exposure, BuildHasherDefault<TagHasher>>,
    tags: Tags,
    serial: u64,
}

impl Stags {
    // V1-8.1.1-a, V2-11.1.1-a
    pub(crate) fn new(random: &dyn Random) -> Self {
        Stags { table: HashMap::default(), tags: Tags::new(random), serial: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// A tag that is not in the table.
    pub(crate) fn fresh_tag(&mut self) -> u32 {
        loop {
            let tag = self.tags.next();
            // Some peers read zero as "no tag".
            if tag != 0 && !self.table.contains_key(&tag) {
                return tag;
            }
        }
    }

    /// Lends `memory`. Offsets in it count from zero: they give away no address.
    pub(crate) fn expose(&mut self, token: Token, memory: Lent) -> u32 {
        let tag = self.fresh_tag();
        self.serial += 1;
        self.table.insert(tag, Exposure { token, memory, touched: 0, serial: self.serial });
        tag
    }

    pub(crate) fn get(&self, tag: u32) -> Option<&Exposure> {
        self.table.get(&tag)
    }

    pub(crate) fn get_mut(&mut self, tag: u32) -> Option<&mut Exposure> {
        self.table.get_mut(&tag)
    }

    pub(crate) fn remove(&mut self, tag: u32) -> Option<Exposure> {
        self.table.remove(&tag)
    }

    /// Takes all exposures out, in the order in which they were exposed.
    pub(crate) fn drain(&mut self) -> Vec<(u32, Exposure)> {
        let mut all: Vec<_> = self.table.drain().collect();
        all.sort_unstable_by_key(|(_, exposure)| exposure.serial);
        all
    }

    /// The offset in the memory of `tag` at which an access of `octets` at `offset` begins, if it is allowed.
    // V2-11.1-a, V2-11.1.1-b, V1-8.1-b, V2-11.1-b, V1-8.2.2.4-a, V2-11.2.2.4-a
    pub(crate) fn check(&self, tag: u32, offset: u64, octets: usize, access: Access) -> Result<usize, Denied> {
        let end = offset.checked_add(octets as u64).ok_or(Denied::Wrap)?;
        let exposure = self.table.get(&tag).ok_or(Denied::Unknown)?;
        // V1-8.1-a
        if exposure.memory.access() != access {
            return Err(Denied::Access);
        }
        // DDP-5041-7.1-b, V1-8.1-a
        if end > exposure.memory.octets() as u64 {
            return Err(Denied::Bounds);
        }
        usize::try_from(offset).map_err(|_| Denied::Bounds)
    }
}

/// Rounds of Speck32/64.
const ROUNDS: usize = 22;

/// The sequence of tags.
struct Tags {
    keys: [u16; ROUNDS],
    counter: u32,
}

impl Tags {
    // V1-8.1.2-a, V2-11.1.2-a
    fn new(random: &dyn Random) -> Self {
        let key = random.next_u64();
        let words = [key as u16, (key >> 16) as u16, (key >> 32) as u16, (key >> 48) as u16];
        Tags { keys: schedule(words), counter: random.next_u32() }
    }

    fn next(&mut self) -> u32 {
        self.counter = self.counter.wrapping_add(1);
        let (x, y) =
            self.keys.iter().fold(((self.counter >> 16) as u16, self.counter as u16), |(x, y), &key| round(x, y, key));
        u32::from(x) << 16 | u32::from(y)
    }
}

fn round(x: u16, y: u16, key: u16) -> (u16, u16) {
    let x = x.rotate_right(7).wrapping_add(y) ^ key;
    (x, y.rotate_left(2) ^ x)
}

/// The round keys that follow from the key words, lowest first.
fn schedule([k, l0, l1, l2]: [u16; 4]) -> [u16; ROUNDS] {
    let mut keys = [0; ROUNDS];
    let (mut key, mut l) = (k, [l0, l1, l2]);
    for (i, slot) in (0..).zip(&mut keys) {
        *slot = key;
        let (next_l, next_key) = round(l[0], key, i);
        key = next_key;
        l = [l[1], l[2], next_l];
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use rpcrdma_env::{Buffer, SeededRandom};
    use std::collections::HashSet;

    fn stags() -> Stags {
        Stags::new(&SeededRandom::new(1))
    }

    /// The vector that the cipher's authors published.
    #[test]
    fn the_permutation_is_speck() {
        let keys = schedule([0x0100, 0x0908, 0x1110, 0x1918]);
        let (x, y) = keys.iter().fold((0x6574, 0x694c), |(x, y), &key| round(x, y, key));
        assert_eq!((x, y), (0xa868, 0x42f2));
    }

    /// proves: V2-11.1.2-a, V1-8.1.2-a
    #[test]
    fn tags_do_not_repeat_and_all_their_bits_vary() {
        let mut stags = stags();
        let mut seen = HashSet::new();
        let (mut ones, mut zeros) = (0, 0);
        for _ in 0..100_000 {
            let tag = stags.expose(Token(0), Lent::Source(Bytes::from_static(b"x")));
            assert!(seen.insert(tag));
            ones |= tag;
            zeros |= !tag;
            stags.remove(tag);
        }
        assert_eq!((ones, zeros), (u32::MAX, u32::MAX));
        let mut other = Stags::new(&SeededRandom::new(2));
        assert!((0..100).filter(|_| seen.contains(&other.fresh_tag())).count() < 5, "another key, other tags");
    }

    /// proves: DDP-5041-7.1-b
    #[test]
    fn accesses_end_at_the_bounds() {
        let mut stags = stags();
        let sink = stags.expose(Token(1), Lent::Sink(Buffer::from_vec(vec![0; 100])));
        let source = stags.expose(Token(2), Lent::Source(Bytes::from_static(&[0; 50])));
        let check = |tag, offset, octets, access| stags.check(tag, offset, octets, access);
        assert_eq!(check(sink, 0, 100, Access::Write), Ok(0));
        assert_eq!(check(sink, 100, 0, Access::Write), Ok(100));
        assert_eq!(check(sink, 1, 100, Access::Write), Err(Denied::Bounds));
        assert_eq!(check(sink, u64::MAX, 1, Access::Write), Err(Denied::Wrap));
        assert_eq!(check(sink, u64::MAX - 1, 1, Access::Write), Err(Denied::Bounds));
        assert_eq!(check(sink, 0, 1, Access::Read), Err(Denied::Access));
        assert_eq!(check(source, 49, 1, Access::Read), Ok(49));
        assert_eq!(check(source, 50, 1, Access::Read), Err(Denied::Bounds));
        assert_eq!(check(source, 0, 1, Access::Write), Err(Denied::Access));
        let other = sink ^ source ^ 1;
        assert_eq!(check(other, 0, 1, Access::Read), Err(Denied::Unknown));
    }

    #[test]
    fn what_is_left_comes_back_in_order() {
        let mut stags = stags();
        let tags: Vec<u32> = (0..100).map(|i| stags.expose(Token(i), Lent::Source(Bytes::from_static(b"x")))).collect();
        stags.remove(tags[40]);
        let back: Vec<u64> = stags.drain().into_iter().map(|(_, e)| e.token.0).collect();
        assert_eq!(back, (0..100).filter(|i| *i != 40).collect::<Vec<u64>>());
        assert_eq!(stags.len(), 0);
    }
}
