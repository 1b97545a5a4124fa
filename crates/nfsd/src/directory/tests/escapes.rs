//! Clients reach nothing outside the served directory: by no link, no mount point below it, no handle of another
//! directory and no directory that was moved out.

use super::*;

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
