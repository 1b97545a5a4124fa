//! The host's side: one fcntl at a time, edges, descriptors that cannot write, and another process.

use super::*;
use crate::OfdLocks;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::OwnedFd,
    path::Path,
    process::Command,
};

fn open(path: &Path, write: bool) -> File {
    OpenOptions::new().read(true).write(write).open(path).unwrap()
}

fn ofd(path: &Path, write: bool) -> OfdLocks {
    OfdLocks::new(OwnedFd::from(open(path, write))).unwrap()
}

struct Fixture {
    _directory: tempfile::TempDir,
    path: std::path::PathBuf,
    claims: Claims,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        File::create(&path).unwrap();
        Self { _directory: directory, path, claims: claims() }
    }

    fn lock(&self, holder: &Holder, range: Range, kind: Kind, write: bool) -> Result<(), LockRefused> {
        let host: Arc<dyn HostLocks> = Arc::new(ofd(&self.path, write));
        self.claims.lock(&LockRequest { host: Some(&host), ..request(file(1), holder, range, kind) })
    }

    /// The lock of this server that a program of the host finds in its way.
    fn seen(&self, range: Range, kind: Kind) -> Option<HostLock> {
        ofd(&self.path, true).test(range, kind).unwrap()
    }
}

/// proves: NFS4-HOST-a
#[test]
fn a_program_is_excluded_until_the_last_reader_has_gone() {
    let it = Fixture::new();
    let (first, second) = (owner(1, "a"), owner(2, "a"));
    it.lock(&first, range(0, 9), Kind::Read, true).unwrap();
    it.lock(&second, range(5, 14), Kind::Read, true).unwrap();
    let lock = |first, last| Some(HostLock { range: range(first, last), kind: Kind::Read });
    assert_eq!(it.seen(Range::ALL, Kind::Write), lock(0, 14));
    assert_eq!(it.seen(Range::ALL, Kind::Read), None);
    it.claims.unlock(file(1), &first, Range::ALL).unwrap();
    assert_eq!(it.seen(Range::ALL, Kind::Write), lock(5, 14));
    // The locks that programs take with fcntl and lockf, in this process and another.
    let program = open(&it.path, true);
    assert_eq!(fcntl_lock(&program, FlockOperation::NonBlockingLockExclusive), Err(rustix::io::Errno::AGAIN));
    it.claims.unlock(file(1), &second, Range::ALL).unwrap();
    assert_eq!(it.seen(Range::ALL, Kind::Write), None);
    assert_eq!(fcntl_lock(&program, FlockOperation::NonBlockingLockExclusive), Ok(()));
}

/// proves: NFS4-HOST-b
#[test]
fn a_lock_of_a_program_is_told() {
    let it = Fixture::new();
    let holder = owner(1, "a");
    let program = ofd(&it.path, true);
    program.set(range(10, 19), Some(Kind::Read)).unwrap();
    program.set(range(30, u64::MAX), Some(Kind::Write)).unwrap();
    it.lock(&holder, range(0, 29), Kind::Read, true).unwrap();
    let by_host = |first, last, kind| Denied { range: range(first, last), kind, by: LockedBy::Host };
    assert_eq!(denied(it.lock(&holder, range(15, 15), Kind::Write, true)), by_host(10, 19, Kind::Read));
    assert_eq!(denied(it.lock(&holder, range(0, 40), Kind::Read, true)), by_host(30, u64::MAX, Kind::Write));
    let test = it.claims.test(&request(file(1), &holder, range(35, 36), Kind::Read));
    assert_eq!(denied(test), by_host(30, u64::MAX, Kind::Write));
    assert_eq!(it.claims.owned(file(1)), [(holder.clone(), range(0, 29), Kind::Read)]);
    assert_eq!(it.claims.held_by(holder.client()), (0, 1));
    // Without any lock of ours, the claims ask the file's own descriptor.
    it.claims.unlock_all(file(1), &holder);
    let host: Arc<dyn HostLocks> = Arc::new(ofd(&it.path, true));
    let asked = LockRequest { host: Some(&host), ..request(file(1), &holder, range(15, 15), Kind::Write) };
    assert_eq!(denied(it.claims.test(&asked)), by_host(10, 19, Kind::Read));
    // Locks of the old kind, too: the program holds them until it closes the file.
    drop(program);
    let program = open(&it.path, true);
    fcntl_lock(&program, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(denied(it.lock(&holder, range(15, 15), Kind::Read, true)), by_host(0, u64::MAX, Kind::Write));
    drop(program);
    it.lock(&holder, range(15, 15), Kind::Read, true).unwrap();
}

/// docs/exceptions.md says so.
#[test]
fn flock_is_not_excluded() {
    let it = Fixture::new();
    it.lock(&owner(1, "a"), Range::ALL, Kind::Write, true).unwrap();
    assert_eq!(flock(open(&it.path, true), FlockOperation::NonBlockingLockExclusive), Ok(()));
}

/// proves: NFS4-HOST-a
#[test]
fn the_kernel_knows_63_bits() {
    let it = Fixture::new();
    let holder = owner(1, "a");
    let last = i64::MAX as u64;
    for beyond in [range(last + 1, last + 1), range(last + 1, u64::MAX), range(u64::MAX, u64::MAX)] {
        it.lock(&holder, beyond, Kind::Write, true).unwrap();
        assert_eq!(it.seen(Range::ALL, Kind::Read), None, "{beyond:?} is of no concern to the host");
        it.claims.unlock(file(1), &holder, beyond).unwrap();
    }
    for (wanted, seen) in [
        (range(last, last), range(last, u64::MAX)),
        (range(7, last), range(7, u64::MAX)),
        (range(7, last + 5), range(7, u64::MAX)),
        (range(7, last - 1), range(7, last - 1)),
        (range(0, u64::MAX), range(0, u64::MAX)),
    ] {
        it.lock(&holder, wanted, Kind::Write, true).unwrap();
        assert_eq!(it.seen(Range::ALL, Kind::Read), Some(HostLock { range: seen, kind: Kind::Write }), "{wanted:?}");
        it.claims.unlock(file(1), &holder, wanted).unwrap();
        assert_eq!(it.seen(Range::ALL, Kind::Read), None, "{wanted:?}");
    }
}

/// A file first opened for reading gets its locks through another descriptor once a client writes, and stays locked all
/// the while.
#[test]
fn a_descriptor_that_can_write_takes_the_place_of_one_that_cannot() {
    let it = Fixture::new();
    let (reader, writer) = (owner(1, "a"), owner(2, "a"));
    it.lock(&reader, range(0, 9), Kind::Read, false).unwrap();
    let refused = it.lock(&writer, range(20, 29), Kind::Write, false).unwrap_err();
    assert!(matches!(&refused, LockRefused::Host(error) if error.raw_os_error() == Some(libc::EBADF)), "{refused:?}");
    assert_eq!(it.claims.held_by(writer.client()), (0, 0));
    it.lock(&writer, range(20, 29), Kind::Write, true).unwrap();
    assert_eq!(it.seen(range(0, 9), Kind::Write), Some(HostLock { range: range(0, 9), kind: Kind::Read }));
    assert_eq!(it.seen(range(10, 40), Kind::Read), Some(HostLock { range: range(20, 29), kind: Kind::Write }));
    // A descriptor that comes later is not needed.
    it.lock(&reader, range(40, 49), Kind::Read, false).unwrap();
    it.claims.unlock_all(file(1), &writer);
    it.claims.unlock_all(file(1), &reader);
    assert_eq!(it.seen(Range::ALL, Kind::Write), None);
}

#[test]
fn only_a_descriptor_that_reads_holds_locks() {
    let it = Fixture::new();
    let write_only = OpenOptions::new().write(true).open(&it.path).unwrap();
    let bad = Some(libc::EBADF);
    assert_eq!(OfdLocks::new(OwnedFd::from(write_only)).unwrap_err().raw_os_error(), bad);
    let path = rustix::fs::open(&it.path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(OfdLocks::new(path).unwrap_err().raw_os_error(), bad);
    assert!(!ofd(&it.path, false).can_write() && ofd(&it.path, true).can_write());
}

/// Another process locks as programs do: with Python's `lockf`, if there is a Python. Its locks end with the process.
#[test]
fn another_process_is_excluded_and_excludes() {
    let it = Fixture::new();
    let script =
        "import fcntl, sys\nf = open(sys.argv[1], 'r+b')\nfcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)\n";
    let run = || Command::new("python3").args(["-c", script]).arg(&it.path).output();
    let free = match run() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        output => output.unwrap(),
    };
    assert!(free.status.success(), "{free:?}");
    it.lock(&owner(1, "a"), range(14, 14), Kind::Read, true).unwrap();
    let excluded = run().unwrap();
    let said = String::from_utf8_lossy(&excluded.stderr);
    assert!(!excluded.status.success() && said.contains("BlockingIOError"), "{said}");
    it.claims.unlock_all(file(1), &owner(1, "a"));
    it.lock(&owner(1, "a"), range(15, 15), Kind::Read, true).unwrap();
    assert!(run().unwrap().status.success(), "what is beside it is free");
}
