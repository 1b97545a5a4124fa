//! Which files the server keeps open, and for how long.

use super::*;
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::{
    attr::PosixAcl,
    v3::{Stability, Write},
};
use rustix::io::Errno;
use std::{
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A clock that a test sets, and that wakes no task.
#[derive(Default)]
struct Hands(AtomicU64);

impl Clock for Hands {
    fn now(&self) -> rpcrdma_env::Timestamp {
        rpcrdma_env::Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: rpcrdma_env::Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn unix_time(&self) -> Duration {
        Duration::ZERO
    }
}

struct Rig {
    scratch: Scratch,
    hands: Arc<Hands>,
    directory: DirectoryFs,
    client: Client,
}

impl Rig {
    fn new() -> Self {
        let scratch = Scratch::new(Ways::default());
        let hands = Arc::new(Hands::default());
        let env = Env { clock: hands.clone(), ..env() };
        let state = StateDirectory::open(scratch.directory.path().join("state"), &*env.random).unwrap();
        let directory = DirectoryFs::open(&scratch.served(), &state, Queue::in_place(), &env).unwrap();
        let identities = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", Arc::new(directory.clone())).with_identities(identities);
        let client = Client::of(&Nfsd::new(vec![export], SECRET, &env).unwrap());
        Self { scratch, hands, directory, client }
    }

    fn pass(&self, time: Duration) {
        self.hands.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
        for held in self.directory.inner.tidy() {
            self.directory.inner.settle(&held, uncommitted::For::All).unwrap();
        }
    }

    /// How many descriptors of this process lead to the file. Once the file is gone, a file of another test may have
    /// its inode number, but not its birth time.
    fn descriptors(&self, file: &host::Metadata) -> usize {
        let is_it = |found: host::Metadata| {
            (found.dev(), found.ino()) == (file.dev(), file.ino())
                && found.created().unwrap() == file.created().unwrap()
        };
        let entries = host::read_dir("/proc/self/fd").unwrap();
        entries.filter(|entry| host::metadata(entry.as_ref().unwrap().path()).is_ok_and(is_it)).count()
    }
}

#[test]
fn a_program_that_was_copied_can_be_executed() {
    let rig = Rig::new();
    let client = &rig.client;
    let program = |name: &str, stability| {
        let attributes = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
        let file = client.create(&client.root(), name, CreateHow::Guarded(attributes)).unwrap().file.unwrap();
        let data = host::read("/bin/true").unwrap().into();
        plain(client.ask(Write { file: file.clone(), offset: 0, stability, data })).unwrap();
        file
    };
    let run = |name: &str| Command::new(rig.scratch.served().join(name)).status().map(|status| status.success());
    // A program that another test is just starting has all descriptors of this process for a moment.
    let runs = |name: &str| {
        (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            run(name).is_ok_and(|success| success)
        })
    };
    let committed = program("committed", Stability::Unstable);
    assert_eq!(run("committed").unwrap_err().raw_os_error(), Some(Errno::TXTBSY.raw_os_error()), "it is being written");
    plain(client.ask(Commit { file: committed, offset: 0, count: 0 })).unwrap();
    assert!(runs("committed"));
    program("stable", Stability::FileSync);
    assert!(runs("stable"));
    // Its client has vanished.
    program("left alone", Stability::Unstable);
    rig.pass(uncommitted::UNCOMMITTED_AGE);
    assert!(runs("left alone"));
}

/// Made and never written to, so no client commits it.
#[test]
fn a_file_that_was_only_made_is_not_kept_open_for_writing() {
    let rig = Rig::new();
    rig.client.new_file(&rig.client.root(), "empty");
    let path = rig.scratch.served().join("empty");
    let made = host::metadata(&path).unwrap();
    assert!(rig.descriptors(&made) > 1);
    rig.pass(object::WRITER_IDLE);
    assert_eq!(rig.descriptors(&made), 1, "the one that names it");
    rig.pass(object::IDLE);
    assert_eq!(rig.descriptors(&made), 0);
}

#[test]
fn what_is_removed_on_the_host_does_not_keep_its_storage() {
    let rig = Rig::new();
    let client = &rig.client;
    for name in ["read", "written"] {
        let file = client.new_file(&client.root(), name);
        client.write(&file, 0, vec![1; 4096]).unwrap();
        if name == "read" {
            plain(client.ask(Commit { file: file.clone(), offset: 0, count: 0 })).unwrap();
            client.read(&file, 0, 10).unwrap();
        }
        let path = rig.scratch.served().join(name);
        let made = host::metadata(&path).unwrap();
        assert!(rig.descriptors(&made) > 0);
        host::remove_file(&path).unwrap();
        rig.pass(Duration::from_secs(1));
        assert_eq!(rig.descriptors(&made), 0, "{name}");
        assert_eq!(client.attributes(&file).map(|_| ()), Err(Status::STALE));
    }
}

/// Each WRITE changes the inode, and so would a change of an access control list, which must count at once.
#[test]
fn who_does_not_own_the_file_goes_on_with_its_descriptor_until_the_kernel_says_no() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let rig = Rig::new();
    let attributes = NewAttributes { mode: Some(0o666), ..NewAttributes::default() };
    let how = CreateHow::Guarded(attributes);
    let file = rig.client.create(&rig.client.root(), "shared", how).unwrap().file.unwrap();
    let path = rig.scratch.served().join("shared");
    let user = Caller::new(2000, 2000);
    let client = rig.client.as_user(2000, 2000, &[]);
    let opened = |mode| {
        let found = rig.directory.inner.cache.objects().into_iter().find_map(|object| object.opened(&user, mode));
        found.map(|file| Arc::as_ptr(&file) as usize)
    };
    let write = || client.write(&file, 0, "x").map(|_| ());
    assert_eq!(write(), Ok(()));
    let first = opened(object::Mode::Write).unwrap();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(write(), Ok(()));
        assert_eq!(opened(object::Mode::Write), Some(first), "the same descriptor");
    }
    let list = PosixAcl::new([6, 6, 6], vec![(2000, 0)], vec![], Some(6)).unwrap();
    let name = "system.posix_acl_access";
    match rustix::fs::setxattr(&path, name, &posix_acl::written(&list), rustix::fs::XattrFlags::empty()) {
        // This file system has no such lists.
        Err(Errno::OPNOTSUPP) => return,
        set => set.unwrap(),
    }
    assert_eq!(host::metadata(&path).unwrap().mode() & 0o777, 0o666, "the mode shows nothing of it");
    assert_eq!(write(), Err(Status::ACCES));
    assert_eq!(opened(object::Mode::Write), None);
    rustix::fs::removexattr(&path, name).unwrap();
    assert_eq!(write(), Ok(()));
    // What a list has allowed ends with the list, although the mode shows nothing of that either.
    let list = PosixAcl::new([6, 0, 0], vec![(2000, 6)], vec![], Some(6)).unwrap();
    rustix::fs::setxattr(&path, name, &posix_acl::written(&list), rustix::fs::XattrFlags::empty()).unwrap();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(write(), Ok(()));
    }
    assert_eq!(host::metadata(&path).unwrap().mode() & 0o777, 0o660);
    rustix::fs::removexattr(&path, name).unwrap();
    assert_eq!(host::metadata(&path).unwrap().mode() & 0o777, 0o660);
    assert_eq!(write(), Err(Status::ACCES));
}
