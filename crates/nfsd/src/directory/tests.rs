//! What holds for a directory of the host alone: nothing outside is reached, handles survive a restart, and a server of
//! an ordinary user does as well as one of the superuser's.

use super::{
    start::{Ways, object_limit, open_limit},
    *,
};
use crate::{
    Cidr, Export, Identities, Nfsd, Queue, Squash, StateDirectory, Workers,
    testing::{Client, SECRET, env, plain},
};
use rpcrdma_env::Env;
use rpcrdma_nfs::v3::{self, Commit, CreateHow, Handle, NewAttributes, SetTime, Status, access};
use rustix::{
    io::Errno,
    process::{Gid, Resource, Uid, geteuid, getrlimit},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{
    fs as host, io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

mod clones;
mod disk;
mod hidden;
mod kept_open;
mod leased;
mod lost_data;
mod owner;
mod stable;
mod took_its_place;

const NOBODY: u32 = 65_534;

/// A directory to serve, with a state directory beside it.
struct Scratch {
    directory: tempfile::TempDir,
    ways: Ways,
}

/// As an ordinary user's server, as far as files are found.
const INDEXED: Ways = Ways { kernel_handles: false, proofs: true, positions: true, lists_and_xattrs: true, part: 1 };
/// As if the file system had neither handles nor stable positions.
const PLAIN: Ways = Ways { kernel_handles: false, proofs: false, positions: false, lists_and_xattrs: false, part: 1 };

impl Scratch {
    fn new(ways: Ways) -> Self {
        let directory = tempfile::tempdir().unwrap();
        host::create_dir(directory.path().join("served")).unwrap();
        Self { directory, ways }
    }

    fn served(&self) -> PathBuf {
        self.directory.path().join("served")
    }

    fn open(&self) -> DirectoryFs {
        let state = StateDirectory::open(self.directory.path().join("state"), &*env().random).unwrap();
        DirectoryFs::open_with(&self.served(), &state, Queue::in_place(), &env(), self.ways).unwrap()
    }

    /// A server that was just started, and a client of it that may do everything.
    fn start(&self) -> Client {
        let identities = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", Arc::new(self.open())).with_identities(identities);
        Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap())
    }
}

/// With each way of finding files and of listing directories, as the user that the tests run as; and as an ordinary
/// user, if that is the superuser.
fn in_each_way(test: impl Fn(&Scratch) + Send + Sync) {
    for ways in [Ways::default(), INDEXED, PLAIN] {
        test(&Scratch::new(ways));
    }
    as_ordinary_user(|| test(&Scratch::new(Ways::default())));
}

/// On a thread that belongs to nobody in particular.
fn as_ordinary_user(test: impl Fn() + Send + Sync) {
    if !geteuid().is_root() {
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            test();
        });
    });
}

/// proves: NFS3-FH-b
#[test]
fn handles_survive_a_restart() {
    in_each_way(|scratch| {
        let client = scratch.start();
        let root = client.root();
        let a = client.new_directory(&root, "a");
        let b = client.new_directory(&a, "b");
        let file = client.new_file(&b, "file");
        client.write(&file, 0, "before").unwrap();
        // Moved by name, by directory and found by a second name: the server is told of all this.
        client.rename((&b, "file"), (&b, "renamed")).unwrap();
        client.rename((&root, "a"), (&root, "moved")).unwrap();
        let link = v3::Link { file: file.clone(), directory: root.clone(), name: "link".into() };
        plain(client.ask(link)).unwrap();
        client.remove(&b, "renamed").unwrap();
        let gone = client.new_file(&root, "gone");
        client.remove(&root, "gone").unwrap();
        drop(client);
        let client = scratch.start();
        assert_eq!(client.root(), root);
        assert_eq!(client.contents(&file), b"before");
        client.write(&file, 6, " and after").unwrap();
        assert_eq!(client.lookup(&b, "..").unwrap().file, a);
        assert_eq!(client.walk("moved/b"), Ok(b));
        assert_eq!(host::read(scratch.served().join("link")).unwrap(), b"before and after");
        assert_eq!(client.attributes(&gone).map(|_| ()), Err(Status::STALE));
    });
}

/// proves: NFS3-FH-c
#[test]
fn what_took_the_place_of_a_file_is_not_taken_for_it() {
    in_each_way(|scratch| {
        let client = scratch.start();
        let file = client.new_file(&client.root(), "file");
        drop(client);
        let path = scratch.served().join("file");
        for _ in 0..3 {
            // The file system may well use the same inode number again.
            host::remove_file(&path).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            host::write(&path, "another").unwrap();
        }
        let client = scratch.start();
        assert_eq!(client.read(&file, 0, 10).map(|_| ()), Err(Status::STALE));
        assert_eq!(client.contents(&client.walk("file").unwrap()), b"another");
    });
}

/// proves: NFS3-1813-3.3.8-a
#[test]
fn an_exclusive_creation_is_recognised_after_a_restart() {
    in_each_way(|scratch| {
        let how = || CreateHow::Exclusive(v3::Verifier(*b"\xFF\xFE\xFD\xFC1234"));
        let client = scratch.start();
        let file = client.create(&client.root(), "file", how()).unwrap().file;
        drop(client);
        let client = scratch.start();
        let root = client.root();
        assert_eq!(client.create(&root, "file", how()).unwrap().file, file);
        let now = NewAttributes { modified: SetTime::Server, accessed: SetTime::Server, ..NewAttributes::default() };
        client.set(&file.unwrap(), now).unwrap();
        assert_eq!(client.create(&root, "file", how()).map(|_| ()), Err(Status::EXIST));
    });
}

/// proves: NFS3-ESC-a
#[test]
fn nothing_outside_the_directory_is_reached() {
    in_each_way(|scratch| {
        let (inside, outside) = (scratch.served(), scratch.directory.path().join("outside"));
        host::create_dir(&outside).unwrap();
        host::write(outside.join("secret"), "secret").unwrap();
        symlink(&outside, inside.join("absolute")).unwrap();
        symlink("../outside", inside.join("relative")).unwrap();
        symlink("/proc/self/cwd", inside.join("magic")).unwrap();
        symlink("../outside/secret", inside.join("file")).unwrap();
        let modes = || [&outside, &outside.join("secret")].map(|path| host::metadata(path).unwrap().mode());
        let before = modes();
        let client = scratch.start();
        let root = client.root();
        assert_eq!(client.lookup(&root, "..").unwrap().file, root);
        for name in ["absolute", "relative", "magic", "file"] {
            let link = client.lookup(&root, name).unwrap();
            assert_eq!(link.attributes.unwrap().file_type, v3::FileType::Symlink);
            assert_eq!(client.lookup(&link.file, "secret").map(|_| ()), Err(Status::NOTDIR));
            assert!(client.read(&link.file, 0, 10).is_err());
            assert!(client.write(&link.file, 0, "x").is_err());
            let cut = NewAttributes { size: Some(0), ..NewAttributes::default() };
            assert!(client.set(&link.file, cut).is_err());
            let open = NewAttributes { mode: Some(0o777), ..NewAttributes::default() };
            let _ = client.set(&link.file, open);
            assert!(client.create(&link.file, "x", CreateHow::Guarded(NewAttributes::default())).is_err());
            assert!(client.create(&root, name, CreateHow::Unchecked(cut)).is_err());
            let list =
                v3::ReadDirectory { directory: link.file, cookie: 0, verifier: v3::Verifier::default(), count: 999 };
            assert_eq!(plain(client.ask(list)).map(|_| ()), Err(Status::NOTDIR));
            assert!(client.mount(&format!("/{name}")).is_err());
        }
        assert_eq!(host::read(outside.join("secret")).unwrap(), b"secret");
        assert_eq!(modes(), before, "nothing is set through a link");
        assert_eq!(host::read_dir(&outside).unwrap().count(), 1, "and nothing made");
        // A directory that its owner moves out is no way out.
        let moved = client.new_directory(&root, "moved");
        client.new_file(&moved, "file");
        let deep = client.new_directory(&moved, "deep");
        host::rename(inside.join("moved"), outside.join("moved")).unwrap();
        for (directory, name) in [(&moved, ".."), (&moved, "file"), (&moved, "."), (&deep, ".."), (&deep, "x")] {
            assert_eq!(client.lookup(directory, name).map(|_| ()), Err(Status::STALE));
        }
        assert!(client.create(&deep, "x", CreateHow::Guarded(NewAttributes::default())).is_err());
        assert!(client.rename((&moved, "file"), (&root, "stolen")).is_err());
        drop(client);
        let client = scratch.start();
        assert_eq!(client.lookup(&deep, "..").map(|_| ()), Err(Status::STALE), "after a restart neither");
    });
}

/// proves: NFS3-ESC-b
#[test]
fn handles_of_one_directory_do_not_work_in_another() {
    let scratch = Scratch::new(Ways::default());
    let client = scratch.start();
    let file = client.new_file(&client.root(), "file");
    drop(client);
    let aside = scratch.directory.path().join("aside");
    host::rename(scratch.served(), &aside).unwrap();
    host::create_dir(scratch.served()).unwrap();
    let client = scratch.start();
    assert_eq!(client.read(&file, 0, 1).map(|_| ()), Err(Status::STALE));
}

/// proves: NFS3-ESC-c
#[test]
fn a_mount_point_below_shows_as_an_empty_directory() {
    let scratch = Scratch::new(Ways::default());
    let state = StateDirectory::open(scratch.directory.path().join("state"), &*env().random).unwrap();
    let whole = DirectoryFs::open(Path::new("/"), &state, Queue::in_place(), &env()).unwrap();
    let client = Client::serving(Arc::new(whole));
    let root = client.root();
    let found = client.lookup(&root, "proc").unwrap();
    assert_eq!(found.attributes.as_ref().unwrap().mode, 0o555);
    assert_eq!(client.attributes(&found.file).ok(), found.attributes);
    assert_eq!(client.names(&found.file, 1000), [b".".to_vec(), b"..".to_vec()]);
    assert_eq!(client.lookup(&found.file, "self").map(|_| ()), Err(Status::NOENT));
    assert_eq!(client.lookup(&found.file, "..").map(|_| ()), Err(Status::NOENT));
    assert_eq!(client.access(&found.file, 0x3F), Ok(access::READ | access::LOOKUP));
    assert_eq!(
        client.create(&found.file, "x", CreateHow::Guarded(NewAttributes::default())).map(|_| ()),
        Err(Status::ROFS)
    );
    assert_eq!(client.set(&found.file, NewAttributes::default()).map(|_| ()), Err(Status::ROFS));
    assert_eq!(client.read(&found.file, 0, 1).map(|_| ()), Err(Status::ISDIR));
    assert!(client.mount("/proc/self").is_err());
    let (cookie, verifier) = (0, v3::Verifier::default());
    let list =
        v3::ReadDirectoryPlus { directory: root, cookie, verifier, directory_count: 1 << 18, max_count: 1 << 18 };
    let listing = plain(client.ask(list)).unwrap();
    let entry = listing.entries.iter().find(|entry| entry.name.as_slice() == b"proc").unwrap();
    assert_eq!(entry.file.as_ref(), Some(&found.file));
}

#[test]
fn cookies_stay_valid_across_a_restart_and_a_verifier_of_another_kind_does_not() {
    in_each_way(|scratch| {
        for n in 0..100 {
            host::write(scratch.served().join(format!("file-{n}")), "").unwrap();
        }
        let client = scratch.start();
        let root = client.root();
        let part = |client: &Client, cookie, verifier, count| {
            plain(client.ask(v3::ReadDirectory { directory: root.clone(), cookie, verifier, count }))
        };
        let first = part(&client, 0, v3::Verifier::default(), 1000).unwrap();
        let last = first.entries.last().unwrap().cookie;
        drop(client);
        for n in 0..100 {
            let _ = host::remove_file(scratch.served().join(format!("file-{}", n * 3)));
        }
        let client = scratch.start();
        let rest = part(&client, last, first.verifier, 1 << 20).unwrap();
        assert!(rest.end);
        let names = |entries: &[v3::Entry]| -> Vec<_> { entries.iter().map(|entry| entry.name.clone()).collect() };
        let (told, more) = (names(&first.entries), names(&rest.entries));
        assert!(more.iter().all(|name| !told.contains(name)), "nothing twice");
        for n in (1..100).filter(|n| n % 3 != 0) {
            let name = v3::Name::from(format!("file-{n}").as_str());
            assert!(told.contains(&name) || more.contains(&name), "{name:?} is missing");
        }
        assert_eq!(part(&client, last, v3::Verifier([7; 8]), 1000).map(|_| ()), Err(Status::BAD_COOKIE));
    });
}

#[test]
fn the_superusers_server_acts_as_the_caller_and_squashes_root() {
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new(Ways::default());
    host::set_permissions(scratch.served(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    host::write(scratch.served().join("private"), "x").unwrap();
    host::set_permissions(scratch.served().join("private"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    let allow: Vec<Cidr> = vec!["127.0.0.0/8".parse().unwrap()];
    let export = Export::new("/", Arc::new(scratch.open())).with_allow(allow);
    let root_user = Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap());
    let root = root_user.root();
    let private = root_user.lookup(&root, "private").unwrap().file;
    assert_eq!(root_user.read(&private, 0, 1).map(|_| ()), Err(Status::ACCES));
    let made = |client: &Client, name: &str| client.attributes(&client.new_file(&root, name)).unwrap();
    let squashed = made(&root_user, "by-root");
    assert_eq!((squashed.uid, squashed.gid), (NOBODY, NOBODY));
    let user = made(&root_user.as_user(1234, 567, &[8]), "by-user");
    assert_eq!((user.uid, user.gid), (1234, 567));
    let trick = made(&root_user.as_user(u32::MAX, u32::MAX, &[]), "by-trick");
    assert_eq!((trick.uid, trick.gid), (NOBODY, NOBODY));
    let device = v3::NodeKind::Character(NewAttributes::default(), v3::Specification { major: 1, minor: 3 });
    for caller in [&root_user, &root_user.as_user(1234, 567, &[])] {
        let node = v3::MakeNode { directory: root.clone(), name: "null".into(), kind: device.clone() };
        assert_eq!(plain(caller.ask(node)).map(|_| ()), Err(Status::PERM));
    }
    assert_eq!(geteuid(), Uid::ROOT);
}

#[test]
fn an_ordinary_users_server_acts_as_itself() {
    as_ordinary_user(|| {
        let scratch = Scratch::new(Ways::default());
        let client = scratch.start();
        let root = client.root();
        let attributes = client.attributes(&client.new_file(&root, "file")).unwrap();
        assert_eq!(attributes.uid, NOBODY);
        let frozen = NewAttributes { mode: Some(0o444), ..NewAttributes::default() };
        let file = client.create(&root, "frozen", CreateHow::Guarded(frozen)).unwrap().file.unwrap();
        client.write(&file, 0, "ice").unwrap();
        plain(client.ask(Commit { file: file.clone(), offset: 0, count: 0 })).unwrap();
        client.write(&file, 3, "berg").unwrap();
        assert_eq!(client.contents(&file), b"iceberg");
        assert_eq!(client.attributes(&file).unwrap().mode, 0o444);
        let give = NewAttributes { uid: Some(1), ..NewAttributes::default() };
        assert_eq!(client.set(&file, give).map(|_| ()), Err(Status::PERM));
    });
}

#[test]
fn files_that_change_on_the_host_are_seen() {
    in_each_way(|scratch| {
        let client = scratch.start();
        let root = client.root();
        let file: Handle = client.new_file(&root, "file");
        assert_eq!(client.contents(&file), b"");
        host::write(scratch.served().join("file"), "from the host").unwrap();
        assert_eq!(client.contents(&file), b"from the host");
        host::remove_file(scratch.served().join("file")).unwrap();
        assert_eq!(client.read(&file, 0, 1).map(|_| ()), Err(Status::STALE));
        assert_eq!(client.attributes(&file).map(|_| ()), Err(Status::STALE));
        assert_eq!(client.lookup(&root, "file").map(|_| ()), Err(Status::NOENT));
    });
}

#[test]
fn many_files_do_not_use_many_descriptors() {
    let scratch = Scratch::new(INDEXED);
    let client = scratch.start();
    let root = client.root();
    let mut above = root.clone();
    for depth in 0..60 {
        above = client.new_directory(&above, format!("d{depth}").as_str());
    }
    let files: Vec<_> = (0..2000).map(|n| client.new_file(&above, format!("f{n}").as_str())).collect();
    let descriptors = host::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    assert!(descriptors < limit / 2 || limit > 40_000, "{descriptors} of {limit}");
    drop(client);
    let client = scratch.start();
    for file in files.iter().step_by(97) {
        assert!(client.attributes(file).is_ok());
    }
}

#[test]
fn a_file_is_found_as_deep_as_the_limit_says() {
    let scratch = Scratch::new(INDEXED);
    let client = scratch.start();
    let mut way = vec![client.root()];
    for depth in 0..=resolve::MAX_DEPTH {
        way.push(client.new_directory(&way[depth], "d"));
    }
    drop(client);
    for (depth, found) in [(resolve::MAX_DEPTH + 1, false), (resolve::MAX_DEPTH, true)] {
        // What is in the cache would be found at any depth.
        let client = scratch.start();
        assert_eq!(client.attributes(&way[depth]).is_ok(), found, "{depth}");
    }
}

#[test]
fn one_state_serves_a_directory_once_at_a_time() {
    let scratch = Scratch::new(Ways::default());
    let first = scratch.open();
    let state = StateDirectory::open(scratch.directory.path().join("state"), &*env().random).unwrap();
    let second = DirectoryFs::open(&scratch.served(), &state, Queue::in_place(), &env());
    assert!(matches!(second.map(|_| ()), Err(OpenError::InUse { .. })));
    drop(first);
    assert!(DirectoryFs::open(&scratch.served(), &state, Queue::in_place(), &env()).is_ok());
    let missing = DirectoryFs::open(&scratch.served().join("none"), &state, Queue::in_place(), &env());
    assert!(matches!(missing.map(|_| ()), Err(OpenError::Directory { .. })));
}

/// Counts the jobs.
#[derive(Default)]
struct Counted(std::sync::atomic::AtomicUsize);

impl Workers for Counted {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        job();
    }
}

#[test]
fn what_is_in_memory_is_told_without_another_thread() {
    let scratch = Scratch::new(Ways::default());
    let state = StateDirectory::open(scratch.directory.path().join("state"), &*env().random).unwrap();
    let workers = Arc::new(Counted::default());
    let directory = DirectoryFs::open(&scratch.served(), &state, Queue::new(workers.clone()), &env()).unwrap();
    host::write(scratch.served().join("probe"), "probe").unwrap();
    let probe = host::File::open(scratch.served().join("probe")).unwrap();
    let mut octet = [0];
    let no_wait = rustix::io::ReadWriteFlags::NOWAIT;
    let probed = rustix::io::preadv2(&probe, &mut [io::IoSliceMut::new(&mut octet)], 0, no_wait);
    if !directory.inner.local || probed == Err(Errno::OPNOTSUPP) {
        return; // tmpfs, for one, has no such read.
    }
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", Arc::new(directory)).with_identities(identities);
    let client = Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap());
    let file = client.new_file(&client.root(), "file");
    client.write(&file, 0, vec![7; 100_000]).unwrap();
    client.read(&file, 0, 100).unwrap();
    let before = workers.0.load(std::sync::atomic::Ordering::Relaxed);
    for offset in [0, 4096, 99_990, 100_000, 200_000] {
        client.read(&file, offset, 4096).unwrap();
    }
    client.attributes(&file).unwrap();
    assert_eq!(workers.0.load(std::sync::atomic::Ordering::Relaxed), before);
    assert!(client.as_user(77, 77, &[]).read(&file, 0, 10).is_ok());
    assert_eq!(workers.0.load(std::sync::atomic::Ordering::Relaxed), before + 1, "another caller opens for himself");
}

#[test]
fn the_superuser_finds_files_by_the_kernels_handles_where_there_are_some() {
    let scratch = Scratch::new(Ways::default());
    let directory = scratch.open();
    let usable = geteuid().is_root() && resolve::has_kernel_handles(&directory.inner.root_fd);
    assert_eq!(directory.inner.ids == Ids::Kernel, usable);
    let without = Scratch::new(INDEXED).open();
    assert_eq!(without.inner.ids, Ids::Proven, "which the kernel tells everybody");
}

/// A program that the superuser made for another user runs with that user's rights only as long as nobody changes it.
#[test]
fn set_user_id_bits_go_when_anybody_but_the_superuser_changes_a_file() {
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new(Ways::default());
    let client = scratch.start();
    let file = client.new_file(&client.root(), "file");
    let none = NewAttributes::default();
    let fresh = NewAttributes { uid: Some(1000), gid: Some(1000), mode: Some(0o6777), ..none };
    let mode = || client.attributes(&file).unwrap().mode & 0o7777;
    let (owner, stranger) = (client.as_user(1000, 1000, &[]), client.as_user(2000, 2000, &[]));
    for user in [&owner, &stranger] {
        client.set(&file, fresh).unwrap();
        // Twice, because the second write finds the file open.
        for _ in 0..2 {
            user.write(&file, 0, "x").unwrap();
            assert_eq!(mode(), 0o777);
            client.set(&file, fresh).unwrap();
        }
        user.set(&file, NewAttributes { size: Some(7), ..none }).unwrap();
        assert_eq!(mode(), 0o777);
    }
    client.set(&file, fresh).unwrap();
    let same = NewAttributes { uid: Some(1000), gid: Some(1000), ..none };
    assert_eq!(stranger.set(&file, same).map(|_| ()), Err(Status::PERM), "only the owner may set what is so already");
    assert_eq!(mode(), 0o6777);
    owner.set(&file, same).unwrap();
    assert_eq!(mode(), 0o777);
    client.set(&file, fresh).unwrap();
    client.write(&file, 0, "x").unwrap();
    assert_eq!(mode(), 0o6777, "the superuser keeps them");
}

/// Loses every job.
struct Lost;

impl Workers for Lost {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        drop(job);
    }
}

#[test]
fn a_job_that_is_dropped_fails_its_call() {
    let scratch = Scratch::new(Ways::default());
    let state = StateDirectory::open(scratch.directory.path().join("state"), &*env().random).unwrap();
    let lost = DirectoryFs::open(&scratch.served(), &state, Queue::new(Arc::new(Lost)), &env()).unwrap();
    let client = Client::serving(Arc::new(lost));
    assert_eq!(client.lookup(&client.root(), "x").map(|_| ()), Err(Status::SERVERFAULT));
}

/// The descriptors of all files that are kept leave half for connections, however few there are.
#[test]
fn kept_files_leave_descriptors_for_connections() {
    let each = 1 + object::MAX_OPENED;
    for descriptors in [256, 1024, 40_959, 40_960, u64::MAX] {
        assert!((object_limit(descriptors) * each) as u64 <= descriptors / 2);
    }
    assert_eq!((object_limit(40_959), object_limit(40_960), object_limit(u64::MAX)), (4095, 4096, 4096));
}

#[test]
fn directories_of_one_program_share_its_descriptors() {
    let scratch = Scratch::new(Ways::default());
    let state = StateDirectory::open(scratch.directory.path().join("state"), &*env().random).unwrap();
    let limit = |of: usize| {
        let directory = DirectoryFs::open_one_of(of, &scratch.served(), &state, Queue::in_place(), &env()).unwrap();
        directory.inner.open_files.most()
    };
    let all = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    for of in [1_usize, 3, 1 << 20] {
        assert_eq!(limit(of), open_limit(all / of as u64));
    }
}

/// proves: NFS3-ESC-a
#[test]
fn a_directory_that_was_moved_out_or_removed_is_stale_for_everything() {
    in_each_way(|scratch| {
        let client = scratch.start();
        let root = client.root();
        let a = client.new_directory(&root, "a");
        let b = client.new_directory(&root, "b");
        let odd = client.new_directory(&root, "c (deleted)");
        host::rename(scratch.served().join("a"), scratch.directory.path().join("outside")).unwrap();
        host::remove_dir(scratch.served().join("b")).unwrap();
        for gone in [&a, &b] {
            assert_eq!(client.attributes(gone).unwrap_err(), Status::STALE);
            let attributes = v3::NewAttributes { mode: Some(0o700), ..v3::NewAttributes::default() };
            assert_eq!(client.set(gone, attributes).unwrap_err(), Status::STALE);
            assert_eq!(client.access(gone, access::READ).unwrap_err(), Status::STALE);
            assert_eq!(client.lookup(gone, "x").map(|_| ()), Err(Status::STALE));
            let verifier = v3::Verifier::default();
            let list = v3::ReadDirectory { directory: gone.clone(), cookie: 0, verifier, count: 4096 };
            assert_eq!(plain(client.ask(list)).map(|_| ()), Err(Status::STALE));
        }
        assert!(client.attributes(&odd).is_ok(), "that is only its name");
    });
}

/// A directory made in a set-group-ID directory by somebody who is not in its group.
#[test]
fn a_directory_keeps_the_group_and_the_bit_that_it_inherits() {
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new(Ways::default());
    std::os::unix::fs::chown(scratch.served(), Some(0), Some(3000)).unwrap();
    host::set_permissions(scratch.served(), PermissionsExt::from_mode(0o2777)).unwrap();
    let client = scratch.start().as_user(1000, 1000, &[]);
    for mode in [0o755, 0o770] {
        let attributes = v3::NewAttributes { mode: Some(mode), ..v3::NewAttributes::default() };
        let name = format!("{mode:o}");
        let make = v3::MakeDirectory { directory: client.root(), name: name.as_str().into(), attributes };
        plain(client.ask(make)).unwrap();
        let made = host::metadata(scratch.served().join(name)).unwrap();
        assert_eq!((made.mode() & 0o7777, made.gid()), (0o2000 | mode, 3000));
    }
}

/// While a new file takes the number of one that was removed, Linux's ext4 answers for the old handle as if it had no memory.
#[test]
fn a_handle_is_stale_while_its_number_is_taken_again() {
    let scratch = Scratch::new(Ways::default());
    let client = scratch.start();
    let root = client.root();
    let path = scratch.served();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (path, stop) = (path.join(format!("busy{thread}")), &stop);
            scope.spawn(move || {
                while !stop.load(relaxed) {
                    host::write(&path, "").unwrap();
                    host::remove_file(&path).unwrap();
                }
            });
        }
        let answers: Vec<_> = (0..300)
            .flat_map(|n| {
                let file = client.new_file(&root, format!("f{n}").as_str());
                client.remove(&root, format!("f{n}").as_str()).unwrap();
                [(); 20].map(|()| client.attributes(&file).map(|_| ()))
            })
            .collect();
        stop.store(true, relaxed);
        assert!(answers.iter().all(|answer| *answer == Err(Status::STALE)), "{answers:?}");
    });
}
