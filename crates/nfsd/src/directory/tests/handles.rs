//! What handles and cookies of a listing mean after a restart, and while files change on the host.

use super::*;

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
        // A file that was renamed, one in a moved directory, and one found by a second name: the server sees all these
        // changes.
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
            // The file system may use the same inode number again.
            host::remove_file(&path).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            host::write(&path, "another").unwrap();
        }
        let client = scratch.start();
        assert_eq!(client.read(&file, 0, 10).map(|_| ()), Err(Status::STALE));
        assert_eq!(client.contents(&client.walk("file").unwrap()), b"another");
    });
}

/// While a new file takes the inode number of a removed file, Linux's ext4 answers the old handle as if it had no
/// memory.
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
fn a_file_is_found_as_deep_as_the_limit_says() {
    let scratch = Scratch::new(INDEXED);
    let client = scratch.start();
    let mut way = vec![client.root()];
    for depth in 0..=resolve::MAX_DEPTH {
        way.push(client.new_directory(&way[depth], "d"));
    }
    drop(client);
    for (depth, found) in [(resolve::MAX_DEPTH + 1, false), (resolve::MAX_DEPTH, true)] {
        // A new server: a file in the cache would be found at any depth.
        let client = scratch.start();
        assert_eq!(client.attributes(&way[depth]).is_ok(), found, "{depth}");
    }
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
