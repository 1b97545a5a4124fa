//! The list of hosts to notify after a restart, in the directory `nsm-ID` of the state directory, and the state number
//! beside it.
//!
//! Each host has a file of its own, with a name that no other file has had: so removing one file never conflicts with
//! writing another. When [`List::put`] returns, the entry is on the disk. If a file is damaged, the list once had a
//! host whose name is now unknown: the server keeps the file under another name, for people to look at, and reports it.
//!
//! ```text
//! state:    state number (4 bytes), SipHash-2-4 of that (8)
//! host-ID:  its address (16), ours (16), its name, SipHash-2-4 of that (8)
//! ```

use super::disk::{self, Calls, Directory};
use bytes::Bytes;
use rpcrdma_nfs::nsm::MAX_NAME_BYTES;
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use siphasher::sip::SipHasher24;
use std::{
    fs::{File, OpenOptions},
    hash::Hasher,
    io,
    net::{IpAddr, Ipv6Addr},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

const STATE: &str = "state";
const HOST: &str = "host-";
/// The end of a damaged file's name.
const DAMAGED: &str = ".damaged";
const ADDRESS_BYTES: usize = 16;
const CHECK_BYTES: usize = 8;
/// The most bytes that the code reads of a file: one more than the largest has.
const MAX_OCTETS: usize = 2 * ADDRESS_BYTES + MAX_NAME_BYTES + CHECK_BYTES + 1;
/// State numbers stay within these bits: Linux and others take them for signed numbers.
const MASK: u32 = i32::MAX as u32;

/// A host that holds locks, as the list has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Listed {
    /// Its address.
    pub(super) address: IpAddr,
    /// Our address, by which it knows us.
    pub(super) local: IpAddr,
    /// The name that it gives itself.
    pub(super) name: Bytes,
}

/// The number of a host's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileNumber(pub(super) u64);

impl FileNumber {
    fn name(self) -> String {
        format!("{HOST}{:016x}", self.0)
    }
}

/// The list on the disk.
pub(super) struct List {
    calls: Box<dyn Calls>,
    /// No other process has the list while this is open.
    _lock: Option<File>,
}

/// The list's contents when it was opened.
pub(super) struct Past {
    pub(super) hosts: Vec<(FileNumber, Listed)>,
    /// Our present state number, which is already on the disk.
    pub(super) state: u32,
    /// How many files were damaged.
    pub(super) damaged: usize,
}

impl List {
    /// Opens a server's list in a state directory, or `None` if another server has it.
    pub(super) fn take(directory: &Path, server: Option<u64>) -> io::Result<Option<Self>> {
        let path = match server {
            Some(server) => directory.join(format!("nsm-{server:016x}")),
            None => directory.join("nsm"),
        };
        let calls = Directory::open(&path)?;
        let lock = path.with_extension("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            taken => {
                taken?;
                Ok(Some(Self { calls: Box::new(calls), _lock: Some(lock) }))
            }
        }
    }

    #[cfg(test)]
    pub(super) fn with_calls(calls: impl Calls + 'static) -> Self {
        Self { calls: Box::new(calls), _lock: None }
    }

    /// Reads the list, and raises the state number, which is on the disk when this returns. If the old number is
    /// unknown, `fallback` replaces it.
    pub(super) fn open(&self, fallback: u32) -> io::Result<Past> {
        let (mut hosts, mut last, mut damaged) = (Vec::new(), None, 0);
        for name in self.calls.names()? {
            if disk::is_draft(&name) {
                self.calls.remove(&name)?;
                continue;
            }
            let number = name.strip_prefix(HOST).and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let number = number.map(FileNumber).filter(|number| number.name() == name);
            if number.is_none() && name != STATE {
                continue;
            }
            let octets = self.calls.read(&name, MAX_OCTETS as u64)?;
            let is_whole = match (number, checked(&octets)) {
                (Some(number), Some(body)) => parse(body).map(|host| hosts.push((number, host))).is_some(),
                (None, Some(body)) => body.try_into().map(|body| last = Some(u32::from_be_bytes(body))).is_ok(),
                (_, None) => false,
            };
            if !is_whole {
                self.calls.rename(&name, &format!("{name}{DAMAGED}"))?;
                damaged += 1;
                if name == STATE {
                    last = Some(fallback);
                }
            }
        }
        // NSM-1-a
        let state = last.map_or(1, |last| (last.wrapping_add(2) & MASK) | 1);
        disk::put(&*self.calls, STATE, &with_check(state.to_be_bytes().to_vec()))?;
        hosts.sort_by(|(_, one), (_, other)| one.cmp(other));
        Ok(Past { hosts, state, damaged })
    }

    /// Puts a host on the list. The disk has it when this returns.
    pub(super) fn put(&self, number: FileNumber, host: &Listed) -> io::Result<()> {
        let mut body = Vec::with_capacity(2 * ADDRESS_BYTES + host.name.len() + CHECK_BYTES);
        for address in [host.address, host.local] {
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            body.extend_from_slice(&address.octets());
        }
        body.extend_from_slice(&host.name);
        disk::put(&*self.calls, &number.name(), &with_check(body))
    }

    /// Takes a host off the list. The disk need not have that at once: a superfluous notice does no harm.
    pub(super) fn remove(&self, number: FileNumber) -> io::Result<()> {
        match self.calls.remove(&number.name()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn check(body: &[u8]) -> [u8; CHECK_BYTES] {
    let mut hasher = SipHasher24::new();
    hasher.write(body);
    hasher.finish().to_be_bytes()
}

fn with_check(mut body: Vec<u8>) -> Vec<u8> {
    let check = check(&body);
    body.extend_from_slice(&check);
    body
}

/// The bytes before the check, if the check is right.
fn checked(octets: &[u8]) -> Option<&[u8]> {
    let (body, sum) = octets.split_last_chunk::<CHECK_BYTES>()?;
    (check(body) == *sum).then_some(body)
}

fn parse(body: &[u8]) -> Option<Listed> {
    let (address, rest) = body.split_first_chunk::<ADDRESS_BYTES>()?;
    let (local, name) = rest.split_first_chunk::<ADDRESS_BYTES>()?;
    let [address, local] = [address, local].map(|octets| IpAddr::V6(Ipv6Addr::from(*octets)).to_canonical());
    (name.len() <= MAX_NAME_BYTES).then(|| Listed { address, local, name: Bytes::copy_from_slice(name) })
}
