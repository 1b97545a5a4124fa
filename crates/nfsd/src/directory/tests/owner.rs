//! The server of an ordinary user: it uses its own rights for all callers, and the owner's rights for callers that are
//! the owner.

use super::*;
use rpcrdma_nfs::v3::SetTime;

/// What clients see of a file's times and mode.
fn seen(path: &Path) -> (u32, i64, i64) {
    let told = host::metadata(path).unwrap();
    (told.mode(), told.ctime(), told.ctime_nsec())
}

/// An ordinary user's server, and a client that may call as any user.
fn serve(scratch: &Scratch) -> Client {
    let client = scratch.start();
    assert_eq!(scratch.directory.path().metadata().unwrap().uid(), NOBODY);
    client
}

fn made(client: &Client, name: &str, mode: u32) -> Handle {
    let attributes = NewAttributes { mode: Some(mode), ..NewAttributes::default() };
    client.create(&client.root(), name, CreateHow::Guarded(attributes)).unwrap().file.unwrap()
}

fn commit(client: &Client, file: &Handle) -> Result<(), Status> {
    plain(client.ask(Commit { file: file.clone(), offset: 0, count: 0 })).map(|_| ())
}

/// proves: NFS3-OWN-a
#[test]
fn reading_changes_nothing_whatever_the_mode_is() {
    as_ordinary_user(|| {
        let scratch = Scratch::new(Ways::default());
        host::write(scratch.served().join("closed"), "secret").unwrap();
        host::set_permissions(scratch.served().join("closed"), PermissionsExt::from_mode(0o000)).unwrap();
        let client = serve(&scratch);
        let before = seen(&scratch.served().join("closed"));
        let file = client.walk("closed").unwrap();
        for user in [NOBODY, 1, 0] {
            let client = client.as_user(user, user, &[]);
            assert_eq!(client.read(&file, 0, 10).map(|_| ()), Err(Status::ACCES), "{user}");
            assert_eq!(client.write(&file, 0, "x").map(|_| ()), Err(Status::ACCES), "{user}");
            assert_eq!(commit(&client, &file), Err(Status::ACCES), "{user}");
            assert_eq!(client.access(&file, 0x3F), Ok(0), "{user}");
        }
        assert_eq!(seen(&scratch.served().join("closed")), before);
    });
}

/// proves: NFS3-OWN-b
#[test]
fn what_access_refuses_is_refused_to_all_but_those_who_have_the_file_open() {
    as_ordinary_user(|| {
        let scratch = Scratch::new(Ways::default());
        let client = serve(&scratch);
        let (maker, other) = (client.as_user(1000, 1000, &[]), client.as_user(2000, 2000, &[]));
        let file = made(&maker, "frozen", 0o444);
        let writes = access::MODIFY | access::EXTEND;
        for user in [&maker, &other] {
            assert_eq!(user.access(&file, writes), Ok(0));
        }
        assert_eq!(other.write(&file, 0, "x").map(|_| ()), Err(Status::ACCES));
        // The maker goes on, like a process that has the file open.
        maker.write(&file, 0, "ice").unwrap();
        commit(&maker, &file).unwrap();
        maker.write(&file, 3, "berg").unwrap();
        assert_eq!(other.contents(&file), b"iceberg");
        drop((client, maker, other));
        // A new server has nothing open.
        let client = serve(&scratch);
        for user in [1000, 2000, NOBODY] {
            let client = client.as_user(user, user, &[]);
            assert_eq!(client.write(&file, 0, "x").map(|_| ()), Err(Status::ACCES), "{user}");
        }
        assert_eq!(client.contents(&file), b"iceberg");
    });
}

/// A copy that preserves the mode sets it before it writes, even if it forbids writing.
/// proves: NFS3-OWN-b
#[test]
fn a_mode_that_forbids_writing_does_not_stop_whoever_has_set_it_nor_the_owner() {
    as_ordinary_user(|| {
        let scratch = Scratch::new(Ways::default());
        let client = serve(&scratch);
        let (maker, owner) = (client.as_user(1000, 1000, &[]), client.as_user(NOBODY, NOBODY, &[]));
        let how = CreateHow::Exclusive(v3::Verifier(*b"exclusiv"));
        let file = maker.create(&maker.root(), "file", how).unwrap().file.unwrap();
        owner.write(&file, 0, "owner").unwrap();
        let now = SetTime::Server;
        let frozen = NewAttributes { mode: Some(0o400), accessed: now, modified: now, ..NewAttributes::default() };
        maker.set(&file, frozen).unwrap();
        maker.write(&file, 0, "maker").unwrap();
        owner.write(&file, 5, " and owner").unwrap();
        assert_eq!(client.as_user(2000, 2000, &[]).write(&file, 0, "x").map(|_| ()), Err(Status::ACCES));
        assert_eq!(client.contents(&file), b"maker and owner");
    });
}

/// Only the descriptor with which it was made can read it.
#[test]
fn who_makes_a_file_that_its_owner_may_not_read_reads_it_as_long_as_it_is_open() {
    as_ordinary_user(|| {
        let scratch = Scratch::new(Ways::default());
        let client = serve(&scratch);
        let (maker, other) = (client.as_user(1000, 1000, &[]), client.as_user(2000, 2000, &[]));
        let file = made(&maker, "blind", 0o200);
        maker.write(&file, 0, "seen").unwrap();
        assert_eq!(maker.read(&file, 0, 10).map(|read| read.data.as_slice().to_vec()), Ok(b"seen".to_vec()));
        assert_eq!(other.read(&file, 0, 10).map(|_| ()), Err(Status::ACCES));
    });
}
