//! A delegated file is kept from programs of the host, but not from callers of this server.

use super::*;
use crate::{Access, OpenFile, Via, claims::Kind, testing::wait};
use rustix::{
    fs::{Mode as FileMode, OFlags, open},
    io::Errno,
};
use std::sync::{
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

/// A directory with the file `f`.
struct Rig {
    scratch: Scratch,
    directory: DirectoryFs,
    file: FileId,
    told: Arc<AtomicUsize>,
}

impl Rig {
    fn new() -> Self {
        let scratch = Scratch::new(Ways::default());
        host::write(scratch.served().join("f"), "content").unwrap();
        let directory = scratch.open();
        let file = wait(directory.lookup(Caller::root(), directory.root(), Bytes::from_static(b"f"))).unwrap().file;
        Self { scratch, directory, file, told: Arc::default() }
    }

    fn open(&self, access: Access) -> Arc<dyn OpenFile> {
        wait(self.directory.open(Caller::root(), self.file, access)).unwrap()
    }

    fn lease(&self, open: &Arc<dyn OpenFile>, kind: Kind) -> Result<HostLease, Fault> {
        let told = self.told.clone();
        self.directory.host_lease(
            open,
            kind,
            Box::new(move || {
                told.fetch_add(1, Ordering::SeqCst);
            }),
        )
    }

    /// The result for a program of the host that does not wait.
    fn program(&self, flags: OFlags) -> Result<(), Errno> {
        open(self.scratch.served().join("f"), flags | OFlags::NONBLOCK, FileMode::empty()).map(drop)
    }

    /// How many holders learned that their lease is broken, after a look.
    fn told(&self) -> usize {
        self.directory.inner.tidy();
        self.told.load(Ordering::SeqCst)
    }
}

/// proves: NFS4-HOST-d
#[test]
fn a_program_that_writes_has_what_is_delegated_for_reading_called_back() {
    let rig = Rig::new();
    let open = rig.open(Access::Read);
    let leases = [rig.lease(&open, Kind::Read).unwrap(), rig.lease(&open, Kind::Read).unwrap()];
    assert_eq!(rig.program(OFlags::RDONLY), Ok(()));
    assert_eq!(rig.told(), 0, "who reads is not in the way");
    assert_eq!(rig.program(OFlags::WRONLY), Err(Errno::AGAIN));
    assert_eq!(rig.told(), 2, "all of them are told");
    assert_eq!(rig.told(), 2, "once");
    assert_eq!(rig.lease(&open, Kind::Read).err(), Some(Fault::Later), "nobody gets it now");
    let [first, second] = leases;
    drop(first);
    assert_eq!(rig.program(OFlags::WRONLY), Err(Errno::AGAIN), "the other has not returned it");
    drop(second);
    assert_eq!(rig.program(OFlags::WRONLY), Ok(()));
    assert!(rig.lease(&open, Kind::Read).is_ok());
}

/// proves: NFS4-HOST-d
#[test]
fn a_program_waits_until_what_is_delegated_for_writing_is_returned() {
    let rig = Rig::new();
    let open = rig.open(Access::Both);
    let lease = rig.lease(&open, Kind::Write).unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let path = rig.scratch.served().join("f");
        scope.spawn(move || tell.send(host::read(path)).unwrap());
        let is_told = (0..10_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            rig.told() > 0
        });
        assert!(told.try_recv().is_err(), "it waits");
        let data = Bytes::from_static(b"CONTENT");
        let via = Via::open(Caller::root(), open.clone());
        wait(rig.directory.write(via, 0, data, Stability::Unstable)).unwrap();
        drop(lease);
        assert_eq!(told.recv().unwrap().unwrap(), b"CONTENT", "and sees what its holder has written");
        assert!(is_told);
    });
}

/// Access through this server shares the descriptor: it does not wait, and recalls nothing.
#[test]
fn what_goes_through_the_server_breaks_no_lease_for_writing() {
    let rig = Rig::new();
    let open = rig.open(Access::Both);
    let lease = rig.lease(&open, Kind::Write).unwrap();
    let (caller, via) = (Caller::root(), || Via::caller(Caller::root(), rig.file));
    for access in [Access::Read, Access::Write, Access::Both] {
        assert_eq!(rig.open(access).access(), access);
    }
    let buffer = || rpcrdma_env::Buffer::from_vec(vec![0; 7]);
    wait(rig.directory.read(via(), 0, 7, buffer())).unwrap();
    wait(rig.directory.write(via(), 0, Bytes::from_static(b"change"), Stability::FileSync)).unwrap();
    wait(rig.directory.commit(via(), 0, 0)).unwrap();
    let new = rpcrdma_nfs::attr::NewAttributes { size: Some(3), mode: Some(0o640), ..Default::default() };
    wait(rig.directory.set_attributes(via(), new, None)).unwrap();
    wait(rig.directory.access(caller, rig.file, Rights::READ)).unwrap();
    assert_eq!(rig.told(), 0);
    assert_eq!(rig.program(OFlags::RDONLY), Err(Errno::AGAIN), "it is still there");
    drop(lease);
    assert_eq!(rig.program(OFlags::RDONLY), Ok(()));
}

/// A file that was opened for reading while it was delegated for writing does not keep programs of the host from it.
#[test]
fn who_only_reads_gives_the_leases_descriptor_back() {
    let rig = Rig::new();
    let both = rig.open(Access::Both);
    let lease = rig.lease(&both, Kind::Write).unwrap();
    let reading = rig.open(Access::Read);
    drop((lease, both));
    rig.directory.inner.cache.get(rig.file).unwrap().forget_opened();
    assert!(rig.lease(&reading, Kind::Read).is_ok(), "nobody has it open for writing");
    let buffer = rpcrdma_env::Buffer::from_vec(vec![0; 7]);
    let read = wait(rig.directory.read(Via::open(Caller::root(), reading), 0, 7, buffer)).unwrap();
    assert_eq!(read.buffer.filled(), b"content");
}

#[test]
fn rights_are_asked_though_the_descriptor_is_shared() {
    let rig = Rig::new();
    if !geteuid().is_root() {
        eprintln!("not run: only root acts as others");
        return;
    }
    host::set_permissions(rig.scratch.served().join("f"), host::Permissions::from_mode(0o604)).unwrap();
    let open = rig.open(Access::Both);
    let lease = rig.lease(&open, Kind::Write).unwrap();
    let may = |access| wait(rig.directory.open(Caller::new(1_000, 1_000), rig.file, access)).map(drop);
    assert_eq!(may(Access::Read).map_err(|failure| failure.fault), Ok(()));
    for access in [Access::Write, Access::Both] {
        assert_eq!(may(access).map_err(|failure| failure.fault), Err(Fault::Denied));
    }
    assert_eq!(rig.told(), 0);
    drop(lease);
}

#[test]
fn who_opens_for_writing_what_is_delegated_to_him_for_reading_gives_the_lease_up() {
    let rig = Rig::new();
    let open = rig.open(Access::Read);
    let lease = rig.lease(&open, Kind::Read).unwrap();
    let written = rig.open(Access::Write);
    assert_eq!(rig.told(), 1, "those who have it are asked for it");
    drop((lease, written));
}

#[test]
fn what_is_in_use_is_not_leased() {
    let rig = Rig::new();
    let path = rig.scratch.served().join("f");
    let open = rig.open(Access::Both);
    let reader = host::File::open(&path).unwrap();
    assert_eq!(rig.lease(&open, Kind::Write).err(), Some(Fault::Later));
    drop(reader);
    assert!(rig.lease(&open, Kind::Write).is_ok());
    drop(open);
    rig.directory.inner.cache.get(rig.file).unwrap().forget_opened();
    let open = rig.open(Access::Read);
    assert_eq!(rig.lease(&open, Kind::Write).err(), Some(Fault::Unsupported), "it is not open for writing");
    let writer = host::OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(rig.lease(&open, Kind::Read).err(), Some(Fault::Later));
    drop(writer);
    assert!(rig.lease(&open, Kind::Read).is_ok());
    assert!(rig.directory.inner.leases.is_empty(), "nothing is left of any");
}

/// A signal would end the process.
#[test]
fn no_signal_comes_of_a_lease_that_is_broken() {
    let rig = Rig::new();
    let open = rig.open(Access::Both);
    for _ in 0..50 {
        let lease = rig.lease(&open, Kind::Write).unwrap();
        assert_eq!(rig.program(OFlags::WRONLY), Err(Errno::AGAIN));
        drop(lease);
    }
}

#[test]
fn an_ordinary_user_leases_files_of_his_own() {
    as_ordinary_user(|| {
        let rig = Rig::new();
        let open = rig.open(Access::Read);
        let lease = rig.lease(&open, Kind::Read).unwrap();
        assert_eq!(rig.program(OFlags::WRONLY), Err(Errno::AGAIN));
        assert_eq!(rig.told(), 1);
        drop(lease);
    });
}

/// proves: NFS4-HOST-a
#[test]
fn locks_on_the_host_are_for_reading_alone_as_long_as_the_file_is_leased_for_that() {
    let rig = Rig::new();
    let open = rig.open(Access::Read);
    let lease = rig.lease(&open, Kind::Read).unwrap();
    let locks = rig.directory.host_locks(&open).unwrap();
    assert!(!locks.can_write() && rig.told() == 0);
    drop(lease);
    assert!(rig.directory.host_locks(&open).unwrap().can_write(), "now they can be for writing");
    let both = rig.open(Access::Both);
    drop((open, locks));
    rig.directory.inner.cache.get(rig.file).unwrap().forget_opened();
    let lease = rig.lease(&both, Kind::Write).unwrap();
    assert!(rig.directory.host_locks(&both).unwrap().can_write());
    assert_eq!(rig.told(), 1, "it is called back from who locks");
    drop(lease);
}
