//! The journal `v4-clients` in the state directory: what a server knows after a restart (RFC 8881 section 8.4.3). Each
//! of the servers that share the directory has its own, `v4-clients-ID`.
//!
//! It holds the boot epoch with the announced lease, and the owners of clients that may hold state, each with its
//! principal and whether the server took state from it. When [`Journal::write`] returns, the disk has the records. If a
//! write fails, nothing has changed for the caller, and the next write begins with a new journal, written beside the
//! old one; opening does the same. A record that is cut off at the end was never acknowledged. If the journal is
//! damaged in another way, it is unknown what is missing: then no owner is known, the file is kept aside, and the
//! server reports it.
//!
//! ```text
//! a record: length of the body (2 bytes), its complement (2), the body, SipHash-2-4 of the body (8)
//! a body:   1, epoch (4), lease in seconds (4)
//!           2 (may reclaim) or 3 (state was taken away), flavour (4), user (8), owner
//!           4 (is forgotten), owner
//! ```

use super::{clients::Principal, limits::MAX_OBSOLETE_RECORDS};
use bytes::Bytes;
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use siphasher::sip::SipHasher24;
use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    hash::Hasher,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// The name of the journal.
pub(super) const NAME: &str = "v4-clients";
const HEAD_OCTETS: usize = 4;
const CHECK_BYTES: usize = 8;
/// The most bytes that the code reads of a journal: four times a full journal in which each owner has a name of 1 KiB.
const MAX_OCTETS: u64 = 64 << 20;

/// What the journal says of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) principal: Principal,
    /// The server took state from it, and it has not acknowledged that: it may not reclaim what it still holds.
    pub(super) revoked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A start of the server, with the lease that it announces.
    Boot { epoch: u32, lease: Duration },
    /// A client that may hold state.
    Owner(Bytes, Known),
    /// A client that holds nothing.
    Gone(Bytes),
}

/// What is at the end of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The end of a record.
    Whole,
    /// A record that is cut off, or zeroes that were never overwritten.
    Torn,
    /// Anything else.
    Damaged,
}

/// Where a journal is kept. [`Disk`] is a file; tests have other stores.
pub(super) trait Store: Send {
    /// All its bytes; none if there is no journal.
    fn read(&mut self) -> io::Result<Vec<u8>>;
    /// Appends bytes, and waits until the disk has them.
    fn append(&mut self, octets: &[u8]) -> io::Result<()>;
    /// Replaces all bytes at once, and waits until the disk has the new ones.
    fn replace(&mut self, octets: &[u8]) -> io::Result<()>;
    /// Keeps the file under another name, for people to look at.
    fn set_aside(&mut self) -> io::Result<()>;
}

/// A file in the state directory, and the lock beside it.
pub(super) struct Disk {
    path: PathBuf,
    file: Option<File>,
    _lock: File,
}

impl Disk {
    /// Takes a server's journal in a state directory, or `None` if another server has it: two servers would overwrite
    /// each other's records.
    pub(super) fn take(directory: &Path, server: Option<u64>) -> io::Result<Option<Self>> {
        let path = match server {
            // NFS4-JOURNAL-a
            Some(server) => directory.join(format!("{NAME}-{server:016x}")),
            None => directory.join(NAME),
        };
        let lock = path.with_extension("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            taken => {
                taken?;
                Ok(Some(Self { path, file: None, _lock: lock }))
            }
        }
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }
}

impl Store for Disk {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut octets = Vec::new();
        match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            file => drop(file?.take(MAX_OCTETS).read_to_end(&mut octets)?),
        }
        Ok(octets)
    }

    fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().append(true).open(&self.path)?),
        };
        file.write_all(octets)?;
        file.sync_data()
    }

    fn replace(&mut self, octets: &[u8]) -> io::Result<()> {
        let draft = self.path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(octets)?;
        file.sync_all()?;
        self.file = None;
        fs::rename(&draft, &self.path)?;
        self.sync_directory()
    }

    fn set_aside(&mut self) -> io::Result<()> {
        self.file = None;
        fs::rename(&self.path, self.path.with_extension("damaged"))?;
        self.sync_directory()
    }
}

/// The journal of a running server.
pub(super) struct Journal {
    store: Box<dyn Store>,
    boot: Record,
    owners: HashMap<Bytes, Known>,
    max_owners: usize,
    /// How many records the store has.
    records: usize,
    /// The store may have an incomplete record, or lack one: the journal must be written anew.
    is_torn: bool,
    /// Records to write with the next record that cannot wait.
    waiting: Vec<Record>,
}

/// What a journal contained when it was opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Past {
    pub(super) owners: HashMap<Bytes, Known>,
    /// The last announced lease.
    pub(super) lease: Duration,
    pub(super) end: End,
}

impl Journal {
    /// Reads the journal and begins a new epoch: the number after the last one, but at least `unix_seconds`, which is
    /// used if the last one is unknown. The epoch is on the disk when this returns.
    ///
    /// # Errors
    /// If the journal can be neither read nor written.
    pub(super) fn open(
        mut store: Box<dyn Store>,
        unix_seconds: u64,
        lease: Duration,
        max_owners: usize,
    ) -> io::Result<(Self, u32, Past)> {
        let octets = store.read()?;
        let (records, end) = parse(&octets);
        let mut past = Past { owners: HashMap::new(), lease: Duration::ZERO, end };
        let mut last = 0;
        for record in records {
            if let Record::Boot { epoch, lease } = record {
                (last, past.lease) = (last.max(epoch), past.lease.max(lease));
            } else {
                note(&mut past.owners, record);
            }
        }
        if end == End::Damaged {
            past.owners.clear();
            store.set_aside()?;
        }
        let epoch = last.saturating_add(1).max(u32::try_from(unix_seconds).unwrap_or(u32::MAX));
        let mut journal = Self {
            store,
            boot: Record::Boot { epoch, lease },
            owners: past.owners.clone(),
            max_owners,
            records: 0,
            is_torn: true,
            waiting: Vec::new(),
        };
        journal.rewrite()?;
        Ok((journal, epoch, past))
    }

    /// What the journal says of an owner.
    pub(super) fn known(&self, owner: &Bytes) -> Option<Known> {
        self.owners.get(owner).copied()
    }

    /// Whether the disk already says this of an owner.
    pub(super) fn says(&self, record: &Record) -> bool {
        match record {
            Record::Owner(owner, known) => {
                let waits = |record: &Record| matches!(record, Record::Owner(of, _) | Record::Gone(of) if of == owner);
                !self.is_torn && !self.waiting.iter().any(waits) && self.known(owner) == Some(*known)
            }
            Record::Boot { .. } | Record::Gone(_) => false,
        }
    }

    /// Writes records, and waits until the disk has them. If that fails, nothing has changed.
    ///
    /// # Errors
    /// The error of the disk, and `StorageFull` at the limit of owners.
    pub(super) fn write(&mut self, records: &[Record]) -> io::Result<()> {
        let new = |record: &&Record| matches!(record, Record::Owner(name, _) if !self.owners.contains_key(name));
        if self.owners.len() + records.iter().filter(new).count() > self.max_owners {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // NFS4-8881-8.4.3-c
        if self.is_torn || self.records > 2 * self.owners.len() + MAX_OBSOLETE_RECORDS {
            self.rewrite()?;
        }
        let mut octets = Vec::new();
        let all = self.waiting.iter().chain(records);
        all.clone().for_each(|record| put(&mut octets, record));
        let count = all.count();
        if count == 0 {
            return Ok(());
        }
        self.is_torn = true;
        self.store.append(&octets)?;
        self.is_torn = false;
        self.records += count;
        self.waiting.clear();
        records.iter().for_each(|record| note(&mut self.owners, record.clone()));
        Ok(())
    }

    /// Keeps a record that need not be on the disk before any reply; [`write`](Self::write) writes it.
    pub(super) fn write_later(&mut self, record: Record) {
        note(&mut self.owners, record.clone());
        if self.waiting.len() < MAX_OBSOLETE_RECORDS {
            self.waiting.push(record);
        } else {
            // There are too many to keep them separately.
            self.waiting.clear();
            self.is_torn = true;
        }
    }

    /// Whether something waits to be written.
    pub(super) fn has_waiting(&self) -> bool {
        self.is_torn || !self.waiting.is_empty()
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let mut octets = Vec::new();
        put(&mut octets, &self.boot);
        for (owner, known) in &self.owners {
            put(&mut octets, &Record::Owner(owner.clone(), *known));
        }
        self.is_torn = true;
        self.store.replace(&octets)?;
        self.waiting.clear();
        self.records = self.owners.len() + 1;
        self.is_torn = false;
        Ok(())
    }
}

fn note(owners: &mut HashMap<Bytes, Known>, record: Record) {
    match record {
        Record::Boot { .. } => {}
        Record::Owner(owner, known) => drop(owners.insert(owner, known)),
        Record::Gone(owner) => drop(owners.remove(&owner)),
    }
}

fn check(body: &[u8]) -> [u8; CHECK_BYTES] {
    let mut hasher = SipHasher24::new();
    hasher.write(body);
    hasher.finish().to_be_bytes()
}

fn put(out: &mut Vec<u8>, record: &Record) {
    let mut body = Vec::new();
    match record {
        Record::Boot { epoch, lease } => {
            body.push(1);
            body.extend_from_slice(&epoch.to_be_bytes());
            body.extend_from_slice(&u32::try_from(lease.as_secs()).unwrap_or(u32::MAX).to_be_bytes());
        }
        Record::Owner(owner, known) => {
            body.push(if known.revoked { 3 } else { 2 });
            body.extend_from_slice(&known.principal.flavor.to_be_bytes());
            body.extend_from_slice(&known.principal.user.to_be_bytes());
            body.extend_from_slice(owner);
        }
        Record::Gone(owner) => {
            body.push(4);
            body.extend_from_slice(owner);
        }
    }
    // Owners have at most 1,032 bytes: a name of 1,024, and the prefix of minor version 0.
    let Ok(len) = u16::try_from(body.len()) else { return };
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&(!len).to_be_bytes());
    out.extend_from_slice(&body);
    out.extend_from_slice(&check(&body));
}

/// The records of a journal, up to its end or to the first damage.
fn parse(mut octets: &[u8]) -> (Vec<Record>, End) {
    let mut records = Vec::new();
    let is_unwritten = |octets: &[u8]| octets.iter().all(|octet| *octet == 0);
    let end = loop {
        let Some(&[a, b, c, d]) = octets.first_chunk::<HEAD_OCTETS>() else {
            break if octets.is_empty() { End::Whole } else { End::Torn };
        };
        let (len, complement) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        if len != !complement {
            // NFS4-8881-8.4.3-c
            break if is_unwritten(octets) { End::Torn } else { End::Damaged };
        }
        let Some((record, rest)) = octets.split_at_checked(HEAD_OCTETS + usize::from(len) + CHECK_BYTES) else {
            break End::Torn;
        };
        let (body, sum) = record.split_at(record.len() - CHECK_BYTES);
        let body = body.get(HEAD_OCTETS..).unwrap_or_default();
        let Some(record) = Some(body).filter(|body| check(body)[..] == *sum).and_then(parse_body) else {
            break End::Damaged;
        };
        records.push(record);
        octets = rest;
    };
    (records, end)
}

fn parse_body(body: &[u8]) -> Option<Record> {
    let (kind, rest) = body.split_first()?;
    match kind {
        1 => {
            let (epoch, lease) = rest.split_first_chunk()?;
            let lease = Duration::from_secs(u32::from_be_bytes(lease.try_into().ok()?).into());
            Some(Record::Boot { epoch: u32::from_be_bytes(*epoch), lease })
        }
        2 | 3 => {
            let (flavor, rest) = rest.split_first_chunk()?;
            let (user, owner) = rest.split_first_chunk()?;
            let principal = Principal { flavor: u32::from_be_bytes(*flavor), user: u64::from_be_bytes(*user) };
            Some(Record::Owner(Bytes::copy_from_slice(owner), Known { principal, revoked: *kind == 3 }))
        }
        4 => Some(Record::Gone(Bytes::copy_from_slice(rest))),
        _ => None,
    }
}

#[cfg(test)]
#[path = "tests/journal.rs"]
pub(super) mod tests;
