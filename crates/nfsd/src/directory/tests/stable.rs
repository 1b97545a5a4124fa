//! What is on the disk before the server answers a change.

use super::*;

/// For which files each kind of change waits: how many, and whether the root is the last.
/// proves: NFS3-1813-4.8-a
#[test]
fn names_and_attributes_are_on_the_disk_before_the_answer() {
    in_each_way(|scratch| {
        let directory = scratch.open();
        let identities = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", Arc::new(directory.clone())).with_identities(identities);
        let client = Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap());
        let waited = || std::mem::take(&mut *directory.inner.synchronised.lock().unwrap());
        let (root, top) = (client.root(), directory.root());
        let file = client.new_file(&root, "file");
        let created = waited();
        assert!(matches!(created[..], [file, last] if file != top && last == top), "CREATE: the file, then its name");
        client.set(&file, NewAttributes { mode: Some(0o640), ..NewAttributes::default() }).unwrap();
        assert_eq!(waited(), created[..1], "SETATTR");
        let made = client.new_directory(&root, "made");
        let made_by = waited();
        let [below, ..] = made_by[..] else { panic!("{made_by:?}") };
        assert!(below != top && made_by == [below, top], "MKDIR: the directory, then its name");
        let kind = v3::NodeKind::Fifo(NewAttributes { mode: Some(0o600), ..NewAttributes::default() });
        plain(client.ask(v3::MakeNode { directory: root.clone(), name: "fifo".into(), kind })).unwrap();
        assert_eq!(waited().last(), Some(&top), "MKNOD: its name");
        client.rename((&root, "file"), (&made, "moved")).unwrap();
        assert_eq!(waited(), [below, top], "RENAME: both directories, the new name first");
        client.rename((&made, "moved"), (&made, "again")).unwrap();
        assert_eq!(waited(), [below], "RENAME in one directory");
        let link = v3::Link { file: file.clone(), directory: root.clone(), name: "link".into() };
        plain(client.ask(link)).unwrap();
        assert_eq!(waited(), [top], "LINK");
        client.remove(&made, "again").unwrap();
        assert_eq!(waited(), [below], "REMOVE");
        client.remove_directory(&root, "made").unwrap();
        assert_eq!(waited(), [top], "RMDIR");
        let link = v3::SymbolicLink {
            directory: root.clone(),
            name: "symbolic".into(),
            attributes: NewAttributes::default(),
            path: v3::Path("link".into()),
        };
        plain(client.ask(link)).unwrap();
        assert_eq!(waited().last(), Some(&top), "SYMLINK: the directory, although the link cannot be opened");
        assert_eq!(client.remove(&root, "none").unwrap_err(), Status::NOENT);
        client.write(&file, 0, "data").unwrap();
        client.read(&file, 0, 4).unwrap();
        assert_eq!(waited(), [], "nothing was changed that is waited for here");
    });
}

/// No user may open these files, not even their owner; an ordinary user's server has to synchronise the whole file
/// system for them.
#[test]
fn what_cannot_be_opened_is_synchronised_all_the_same() {
    in_each_way(|scratch| {
        let client = scratch.start();
        let root = client.root();
        let closed = client.new_directory(&root, "closed");
        let file = client.new_file(&closed, "file");
        client.set(&file, NewAttributes { mode: Some(0), ..NewAttributes::default() }).unwrap();
        client.set(&closed, NewAttributes { mode: Some(0o300), ..NewAttributes::default() }).unwrap();
        client.new_file(&closed, "second");
        client.set(&file, NewAttributes { mode: Some(0o600), ..NewAttributes::default() }).unwrap();
        client.set(&closed, NewAttributes { mode: Some(0o700), ..NewAttributes::default() }).unwrap();
    });
}

#[test]
fn early_answers_wait_for_nothing() {
    let scratch = Scratch::new(Ways::default());
    let directory = scratch.open().with_early_answers();
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", Arc::new(directory.clone())).with_identities(identities);
    let client = Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap());
    let made = client.new_directory(&client.root(), "made");
    let file = client.new_file(&made, "file");
    client.set(&file, NewAttributes { size: Some(7), ..NewAttributes::default() }).unwrap();
    client.rename((&made, "file"), (&client.root(), "file")).unwrap();
    client.remove_directory(&client.root(), "made").unwrap();
    assert_eq!(*directory.inner.synchronised.lock().unwrap(), []);
}
