//! A file system with the longest possible ids, with cookies of 64 bits, and which is not always ready.

use super::*;
use crate::{
    Caller, Changed, Fault, FileId, Found, Listing, ListingBudget, ListingEntry, MAX_FILE_ID_BYTES, ReadData, Told,
    Via, Written, failed,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer, Clock, Timestamp};
use rpcrdma_nfs::attr::{Attributes, Change, FileType, Stability};
use std::{
    future::ready,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Directory 0 with the files from 1 on; each has its number as its name.
pub(super) struct Long {
    pub(super) files: u64,
    /// How often it says "later" before it answers.
    pub(super) later: AtomicU64,
    /// For each call of write, how many bytes it had and how durable they had to be.
    written: Mutex<Vec<(usize, Stability)>>,
}

pub(super) fn long(files: u64) -> Arc<Long> {
    Arc::new(Long { files, later: AtomicU64::new(0), written: Mutex::default() })
}

const VERIFIER: [u8; 8] = *b"a-verify";

impl Long {
    fn file(number: u64) -> FileId {
        let mut octets = [0xEE; MAX_FILE_ID_BYTES];
        octets[..8].copy_from_slice(&number.to_be_bytes());
        FileId::new(&octets).unwrap()
    }

    fn number(&self, file: FileId) -> Result<u64, Fault> {
        let number = u64::from_be_bytes(*file.as_slice().first_chunk().ok_or(Fault::BadId)?);
        if number <= self.files { Ok(number) } else { Err(Fault::Stale) }
    }

    fn told(&self, number: u64) -> Attributes {
        let what = if number == 0 { FileType::Directory } else { FileType::Regular };
        let mut attributes = Attributes::new(what, self.id(), number);
        attributes.mode = 0o777;
        attributes
    }
}

/// Cookies in no order and far from zero.
fn cookie(place: u64) -> u64 {
    (place + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 << 63
}

impl FileSystem for Long {
    fn root(&self) -> FileId {
        Self::file(0)
    }

    fn id(&self) -> u64 {
        77
    }

    fn attributes(&self, _: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>> {
        let later = self.later.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let told = if later.is_ok() { Err(Fault::Later) } else { self.number(file).map(|number| self.told(number)) };
        Box::pin(ready(told))
    }

    fn lookup(&self, _: Caller, _: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>> {
        let number = std::str::from_utf8(&name).ok().and_then(|text| text.parse().ok());
        let found = number.filter(|number| (1..=self.files).contains(number)).ok_or_else(|| failed(Fault::NotFound));
        Box::pin(ready(found.map(|number| Found::new(Self::file(number), Some(self.told(number)), None))))
    }

    fn read(&self, _: Via, _: u64, _: usize, _: Buffer) -> BoxFuture<'_, Told<ReadData>> {
        Box::pin(ready(Err(failed(Fault::Io))))
    }

    /// Takes at most three bytes of a call.
    fn write(&self, _: Via, _: u64, data: Bytes, stability: Stability) -> BoxFuture<'_, Changed<Written>> {
        let count = data.len().min(3);
        self.written.lock().unwrap().push((count, stability));
        Box::pin(ready(Ok(Written::new(count, stability, Change::default()))))
    }

    fn list(
        &self,
        _: Caller,
        _: FileId,
        after: u64,
        verifier: [u8; 8],
        mut room: ListingBudget,
    ) -> BoxFuture<'_, Told<Listing>> {
        let begin = match after {
            0 => 0,
            _ if verifier != VERIFIER => return Box::pin(ready(Err(failed(Fault::BadCookie)))),
            _ => match (0..self.files).find(|place| cookie(*place) == after) {
                Some(place) => place + 1,
                None => return Box::pin(ready(Err(failed(Fault::BadCookie)))),
            },
        };
        let mut entries = Vec::new();
        for place in begin..self.files {
            let name = (place + 1).to_string();
            if !room.take(name.len()) {
                return Box::pin(ready(Ok(Listing::new(entries, false).with_verifier(VERIFIER))));
            }
            entries.push(ListingEntry::new(place + 1, name.into(), cookie(place)));
        }
        Box::pin(ready(Ok(Listing::new(entries, true).with_verifier(VERIFIER))))
    }
}

/// A clock whose time passes only when a task sleeps.
pub(super) struct Skipping(AtomicU64);

impl Clock for Skipping {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn unix_time(&self) -> Duration {
        Duration::from_secs(1 << 30)
    }

    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, ()> {
        let millis = deadline.since(Timestamp::ZERO).as_millis();
        self.0.fetch_max(u64::try_from(millis).unwrap(), Ordering::Relaxed);
        Box::pin(ready(()))
    }
}

/// proves: NFS2-FH-b
#[test]
fn handles_of_long_ids_survive_a_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let start = || Client::of(&serving(trusting(long(9)), scratch.path(), &env()));
    let client = start();
    let top = root(&client);
    let file = lookup(&client, top, "7").unwrap();
    assert_eq!((file.attributes.file_id, file.file.0[0]), (7, 3), "by the table");
    assert_eq!(lookup(&client, top, "7").unwrap().file, file.file);
    drop(client);
    let client = start();
    assert_eq!(attributes(&client, file.file).unwrap().file_id, 7);
    assert_eq!(lookup(&client, top, "8").unwrap().attributes.file_id, 8);
    std::fs::remove_dir_all(scratch.path()).unwrap();
    std::fs::create_dir(scratch.path()).unwrap();
    assert_eq!(attributes(&start(), file.file).map(drop), Err(Status::STALE), "without the table");
}

/// proves: NFS2-WRITE-a
#[test]
fn a_write_is_durable_and_whole_when_it_is_answered() {
    let scratch = tempfile::tempdir().unwrap();
    let file_system = long(9);
    let client = Client::of(&serving(trusting(file_system.clone()), scratch.path(), &env()));
    let file = lookup(&client, root(&client), "1").unwrap().file;
    write(&client, file, 5, b"12345678").unwrap();
    let durably = [3, 3, 2].map(|octets| (octets, Stability::FileSync));
    assert_eq!(*file_system.written.lock().unwrap(), durably);
}

/// proves: NFS2-LATER-a
#[test]
fn a_call_waits_where_version_3_would_be_told_to_come_later() {
    let scratch = tempfile::tempdir().unwrap();
    let clock = Arc::new(Skipping(AtomicU64::new(0)));
    let env = Env { clock: clock.clone(), ..env() };
    let file_system = long(9);
    let client = Client::of(&serving(trusting(file_system.clone()), scratch.path(), &env));
    let top = root(&client);
    let begun = clock.now();
    file_system.later.store(5, Ordering::Relaxed);
    assert!(attributes(&client, top).is_ok());
    let waited = clock.now().since(begun);
    assert!((Duration::from_millis(1500)..Duration::from_millis(1600)).contains(&waited), "{waited:?}");
    file_system.later.store(u64::MAX, Ordering::Relaxed);
    let begun = clock.now();
    assert_eq!(attributes(&client, top).map(drop), Err(Status::ACCES), "and not for ever");
    let waited = clock.now().since(begun);
    assert!((super::super::WAIT_LIMIT..super::super::WAIT_LIMIT * 2).contains(&waited), "{waited:?}");
}
