//! The rights with which a server acts, run by the superuser and by an ordinary user, and their effects on changes of
//! owners and modes.

use super::*;

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

/// A program that the superuser made for another user runs with that user's rights only until anybody but the superuser
/// changes it, the owner included.
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

/// Whether a set-group-ID bit goes that is no right to execute depends on the writer's groups.
#[test]
fn a_write_takes_away_what_a_program_of_the_caller_would() {
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new(Ways::default());
    let (client, identity) = (scratch.start(), identity::Identity::current().unwrap());
    let none = NewAttributes::default();
    for (mode, groups) in [0o2766, 0o4766, 0o6777].into_iter().flat_map(|mode| [(mode, &[][..]), (mode, &[0][..])]) {
        let fresh = NewAttributes { uid: Some(1000), gid: Some(0), mode: Some(mode), ..none };
        let [served, beside] = ["served", "beside"].map(|name| {
            let name = format!("{name}-{mode:o}-{}", groups.len());
            (client.new_file(&client.root(), name.as_str()), scratch.served().join(&name))
        });
        client.set(&served.0, fresh).unwrap();
        client.set(&beside.0, fresh).unwrap();
        client.as_user(2000, 2000, groups).write(&served.0, 0, "x").unwrap();
        let file = host::OpenOptions::new().write(true).open(&beside.1).unwrap();
        let assumed = identity.assume(&Caller::new(2000, 2000).with_groups(groups.to_vec())).unwrap();
        let written = rustix::io::pwrite(&file, b"x", 0);
        drop(assumed);
        written.unwrap();
        let mode_of = |path: &Path| host::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode_of(&served.1), mode_of(&beside.1), "{mode:o}, {groups:?}");
    }
}

/// A disk may be full for all but the members of a group.
#[test]
fn a_write_for_which_there_is_no_room_is_tried_with_the_callers_groups() {
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new(Ways::default());
    let directory = scratch.open();
    let stat = attributes::stat(&directory.inner.root.fd).unwrap();
    let tried = |caller: &Caller| {
        let tried = std::cell::RefCell::new(Vec::new());
        let written = directory.inner.write_as(caller, &stat, || {
            tried.borrow_mut().push((geteuid().as_raw(), rustix::process::getegid().as_raw()));
            Err(rustix::io::Errno::NOSPC)
        });
        assert_eq!(written, Err(rustix::io::Errno::NOSPC));
        tried.into_inner()
    };
    let is_short = directory.inner.local && directory.inner.identity.has_no_other_group();
    let all = [(2000, 0), (2000, 3000)];
    assert_eq!(tried(&Caller::new(2000, 3000)), all[usize::from(!is_short)..]);
    assert_eq!(tried(&Caller::root()).len(), 1, "the server itself has all that there is");
}

/// A caller that is not in its group makes a directory in a set-group-ID directory.
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
