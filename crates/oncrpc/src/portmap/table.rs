//! What the portmapper knows: where each program listens, and which of several places to return to a caller.
//!
//! A program may listen at several addresses, and at all of them. The portmapper returns the place that the caller
//! reaches by the address by which it has reached the portmapper: that address itself if the program listens there or
//! everywhere. It does not return programs on loopback to other machines.

use crate::Netid;
use std::{
    cmp::Reverse,
    fmt,
    net::{IpAddr, SocketAddr},
};

/// The most entries of a table, in number: the answer to DUMP has all of them.
pub const MAX_ENTRIES: usize = 128;

/// A version of a program, at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// The transport.
    pub netid: Netid,
    /// Where it listens; maybe at all addresses of the machine.
    pub address: SocketAddr,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {} version {} over {}", self.program, self.version, self.netid.as_str())
    }
}

/// A table has more than [`MAX_ENTRIES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a portmapper's table has at most {MAX_ENTRIES} entries, not {0}")]
pub struct TooManyEntries(pub usize);

/// Which program is where.
#[derive(Clone, Debug)]
pub struct Table(Vec<Entry>);

/// How well a caller reaches a place: the last is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// At an address that the caller has not used.
    Elsewhere,
    /// At all addresses of this machine.
    Everywhere,
    /// At the address that the caller has used.
    Here,
}

impl Table {
    /// A table of these entries.
    ///
    /// # Errors
    /// If there are too many.
    pub fn new(entries: Vec<Entry>) -> Result<Self, TooManyEntries> {
        if entries.len() > MAX_ENTRIES {
            return Err(TooManyEntries(entries.len()));
        }
        Ok(Self(entries))
    }

    /// Its entries.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// All entries for a caller that has reached us at our address `local`: the best place for each program, version
    /// and transport, in the order of the table.
    pub(super) fn told(&self, local: IpAddr) -> impl Iterator<Item = Entry> {
        let key = |entry: &Entry| (entry.program, entry.version, entry.netid);
        let best = move |(at, entry): (usize, &Entry)| {
            let same = self.0.iter().enumerate().filter(|(_, other)| key(other) == key(entry));
            let reached = same.filter_map(|(at, other)| Some((reach(other, local)?, Reverse(at))));
            (reached.max()?.1.0 == at).then(|| merged(*entry, local))
        };
        self.0.iter().enumerate().filter_map(best)
    }

    /// Where a version of a program is. If that version does not exist, another, the newest first: the program then
    /// tells the caller which versions it has (RFC 1833 section 2.2.2, where GETVERSADDR differs).
    pub(super) fn find(&self, program: u32, version: u32, netid: Netid, local: IpAddr) -> Option<Entry> {
        let of_program = self.told(local).filter(|entry| (entry.program, entry.netid) == (program, netid));
        of_program.max_by_key(|entry| (entry.version == version, entry.version))
    }

    /// Where exactly this version is.
    pub(super) fn find_version(&self, program: u32, version: u32, netid: Netid, local: IpAddr) -> Option<Entry> {
        // RPC-1833-2.2.2-a
        self.find(program, version, netid, local).filter(|entry| entry.version == version)
    }
}

/// How a caller reaches an entry's place, if it does.
fn reach(entry: &Entry, local: IpAddr) -> Option<Reach> {
    let (local, listens) = (local.to_canonical(), entry.address.ip().to_canonical());
    if listens == local {
        return Some(Reach::Here);
    }
    if listens.is_unspecified() {
        return Some(Reach::Everywhere);
    }
    // Only this machine reaches its loopback.
    (!listens.is_loopback() || local.is_loopback()).then_some(Reach::Elsewhere)
}

/// The entry; if its program listens at all addresses, with the address by which the caller reaches it.
fn merged(mut entry: Entry, local: IpAddr) -> Entry {
    let local = local.to_canonical();
    // RPC-1833-2.2.1-b
    if entry.address.ip().is_unspecified() && entry.address.is_ipv4() == local.is_ipv4() {
        entry.address = SocketAddr::new(local, entry.address.port());
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(program: u32, version: u32, netid: Netid, address: &str) -> Entry {
        Entry { program, version, netid, address: address.parse().unwrap() }
    }

    fn table(all: &[(u32, u32, Netid, &str)]) -> Table {
        Table::new(all.iter().map(|(program, version, netid, at)| entry(*program, *version, *netid, at)).collect())
            .unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_caller_is_told_the_place_that_it_reaches() {
        let table = table(&[
            (1, 1, Netid::Tcp, "192.0.2.2:5"),
            (1, 1, Netid::Tcp, "0.0.0.0:6"),
            (1, 1, Netid::Tcp, "192.0.2.1:7"),
            (1, 1, Netid::Tcp6, "[::]:8"),
            (2, 1, Netid::Rdma, "127.0.0.1:9"),
            (3, 1, Netid::Rdma, "192.0.2.2:10"),
        ]);
        let told = |local: &str| table.told(ip(local)).map(|entry| entry.address.to_string()).collect::<Vec<_>>();
        assert_eq!(told("192.0.2.1"), ["192.0.2.1:7", "[::]:8", "192.0.2.2:10"], "the very address, no loopback");
        assert_eq!(told("192.0.2.2"), ["192.0.2.2:5", "[::]:8", "192.0.2.2:10"]);
        assert_eq!(told("192.0.2.9"), ["192.0.2.9:6", "[::]:8", "192.0.2.2:10"], "everywhere is also there");
        assert_eq!(told("127.0.0.1"), ["127.0.0.1:6", "[::]:8", "127.0.0.1:9", "192.0.2.2:10"]);
        assert_eq!(told("2001:db8::1")[1], "[2001:db8::1]:8");
        assert_eq!(told("::ffff:192.0.2.1")[0], "192.0.2.1:7", "as a socket of IPv6 tells it");
    }

    #[test]
    fn the_newest_version_stands_for_one_that_is_not_there() {
        let table = table(&[
            (1, 3, Netid::Tcp, "192.0.2.1:5"),
            (1, 4, Netid::Tcp, "192.0.2.1:6"),
            (1, 2, Netid::Rdma, "192.0.2.1:7"),
        ]);
        let local = ip("192.0.2.1");
        let found = |version, netid| table.find(1, version, netid, local).map(|entry| entry.address.port());
        assert_eq!([3, 4, 9].map(|version| found(version, Netid::Tcp)), [Some(5), Some(6), Some(6)]);
        assert_eq!([found(3, Netid::Rdma), found(3, Netid::Udp)], [Some(7), None]);
        assert_eq!(table.find(2, 3, Netid::Tcp, local), None);
        assert!(table.find_version(1, 3, Netid::Tcp, local).is_some());
        assert_eq!(table.find_version(1, 9, Netid::Tcp, local), None);
    }

    #[test]
    fn a_table_ends_at_its_limit() {
        let entries = |count| vec![entry(1, 1, Netid::Tcp, "192.0.2.1:5"); count];
        assert!(Table::new(entries(MAX_ENTRIES)).is_ok());
        assert_eq!(Table::new(entries(MAX_ENTRIES + 1)).err(), Some(TooManyEntries(MAX_ENTRIES + 1)));
    }
}
