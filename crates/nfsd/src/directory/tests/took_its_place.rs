//! The server never takes another file for a removed one whose place it has taken.

use super::{disk::Disk, *};

/// Replaces a file on the host until the new one has the inode number of the old one.
fn replace(path: &Path) -> bool {
    let before = host::metadata(path).unwrap().ino();
    (0..50).any(|_| {
        host::remove_file(path).unwrap();
        host::write(path, "another").unwrap();
        host::metadata(path).unwrap().ino() == before
    })
}

/// Serves `served`, stops, replaces a file, serves again, and asks for the file by its old handle.
fn replaced(served: &Path, state: &Path, ways: Ways) -> Result<(), Status> {
    let start = || {
        let state = StateDirectory::open(state, &*env().random).unwrap();
        let directory = DirectoryFs::open_with(served, &state, Queue::in_place(), &env(), ways).unwrap();
        Client::serving(Arc::new(directory))
    };
    let path = served.join("file");
    host::write(&path, "one").unwrap();
    let client = start();
    let file = client.walk("file").unwrap();
    drop(client);
    assert!(replace(&path), "the file system never gives a number again");
    let client = start();
    assert_eq!(client.contents(&client.walk("file").unwrap()), b"another");
    client.attributes(&file).map(|_| ())
}

/// ext4 with small inodes keeps no birth time: only the generation in the kernel's handle distinguishes the files.
/// proves: NFS3-FH-c
#[test]
fn where_there_are_no_birth_times_the_generation_tells() {
    let Some(disk) = Disk::new(&["-I", "128"]) else { return };
    let probe = host::File::open(disk.served()).unwrap();
    let told = attributes::stat(&probe).unwrap();
    assert_eq!(Ids::without_opening(&probe.into(), &told), Ids::Proven);
    assert_eq!(told.stx_btime.tv_sec, 0, "this file system keeps a birth time after all");
    for ways in [INDEXED, Ways::default()] {
        assert_eq!(replaced(&disk.served(), &disk.state(), ways), Err(Status::STALE), "{ways:?}");
    }
    host::set_permissions(disk.served(), PermissionsExt::from_mode(0o777)).unwrap();
    host::remove_file(disk.served().join("file")).unwrap();
    let state = tempfile::tempdir().unwrap();
    host::set_permissions(state.path(), PermissionsExt::from_mode(0o777)).unwrap();
    host::set_permissions(disk.served().ancestors().nth(2).unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
    as_ordinary_user(|| {
        let own = state.path().join("own");
        assert_eq!(replaced(&disk.served(), &own, Ways::default()), Err(Status::STALE), "an ordinary user's server");
    });
}

/// The ids of earlier versions in an ordinary user's server: inode number and birth time.
const FORMER: Ways = Ways { kernel_handles: false, proofs: false, positions: true, lists_and_xattrs: true, part: 1 };

/// proves: NFS3-FH-b, NFS3-FH-c
#[test]
fn handles_of_the_former_kind_open_their_file_and_nothing_else() {
    let scratch = Scratch::new(FORMER);
    let client = scratch.start();
    let root = client.root();
    let directory = client.new_directory(&root, "directory");
    let file = client.new_file(&directory, "file");
    client.write(&file, 0, "data").unwrap();
    let gone = client.new_file(&directory, "gone");
    drop(client);
    let now = Scratch { ways: INDEXED, ..scratch };
    let client = now.start();
    assert_ne!(client.root(), root, "handles are of another kind now");
    assert_eq!(client.attributes(&root).unwrap(), client.attributes(&client.root()).unwrap());
    assert_eq!(client.contents(&file), b"data");
    assert_eq!(client.lookup(&directory, "file").unwrap().file, client.walk("directory/file").unwrap());
    let path = now.served().join("directory/gone");
    host::remove_file(&path).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    host::write(&path, "another").unwrap();
    assert_eq!(client.attributes(&gone).map(|_| ()), Err(Status::STALE));
    drop(client);
    let client = now.start();
    assert_eq!(client.contents(&file), b"data", "after a restart, too");
}
