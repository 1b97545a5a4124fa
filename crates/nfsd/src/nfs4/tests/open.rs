//! OPEN, OPEN_DOWNGRADE, CLOSE.

use super::*;
use crate::{
    Access, Caller, Fault, FileId, FileSystem, MemoryFs, OpenFile, Squash, Told, failed,
    nfs4::testing::{Setup, memory::as_memory},
};
use bytes::Bytes;
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::{
    v3,
    v4::{Attribute, Bitmap, StateIdOther, Verifier},
};
use std::{
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// proves: NFS4-8881-9.7-c, NFS4-8881-9.1.2-a
#[test]
fn what_an_open_denies_is_denied_to_other_clients_and_to_version_3() {
    on_each(|server| {
        let (a, b, old) = (server.client("a"), server.client("b"), server.version_3());
        let (file, state) = create(&a, "f", "o");
        assert_eq!(a.write(&file, state, 0, b"data"), Ok(4));
        assert_eq!(close(&a, &file, state), Status::OK);
        let (_, state) = open(&a, "f", "p", READ, WRITE).unwrap();
        assert_eq!(open(&b, "f", "o", WRITE, 0).err(), Some(Status::SHARE_DENIED));
        assert_eq!(open(&b, "f", "o", READ, READ).err(), Some(Status::SHARE_DENIED), "it is open for reading");
        let (_, reading) = open(&b, "f", "o", READ, 0).unwrap();
        assert_eq!(b.write(&file, StateId::ANONYMOUS, 0, b"x"), Err(Status::LOCKED));
        assert_eq!(b.read(&file, StateId::ANONYMOUS, 0, 9), Ok(b"data".to_vec()));
        let handle = old.lookup(&old.root(), "f").unwrap().file;
        assert_eq!(old.write(&handle, 0, "x").err(), Some(v3::Status::ACCES));
        let cut = v3::NewAttributes { size: Some(0), ..v3::NewAttributes::default() };
        assert_eq!(old.set(&handle, cut).err(), Some(v3::Status::ACCES));
        assert_eq!(old.contents(&handle), b"data");
        assert_eq!(close(&a, &file, state), Status::OK);
        assert_eq!(b.write(&file, StateId::ANONYMOUS, 0, b"x"), Ok(1));
        assert!(old.write(&handle, 0, "y").is_ok());
        assert_eq!(close(&b, &file, reading), Status::OK);
    });
}

/// proves: NFS4-8881-9.1.2-a, NFS4-8881-8.2.3-b
#[test]
fn a_denial_of_reading_binds_anonymous_reads_but_not_those_that_bypass() {
    let server = TestServer::memory();
    let (a, b, old) = (server.client("a"), server.client("b"), server.version_3());
    let (file, state) = create(&a, "f", "o");
    a.write(&file, state, 0, b"data").unwrap();
    close(&a, &file, state);
    open(&a, "f", "o", BOTH, BOTH).unwrap();
    assert_eq!(b.read(&file, StateId::ANONYMOUS, 0, 4), Err(Status::LOCKED));
    assert_eq!(b.read(&file, StateId::BYPASS, 0, 4), Ok(b"data".to_vec()));
    assert_eq!(b.write(&file, StateId::BYPASS, 0, b"x"), Err(Status::LOCKED));
    let handle = old.lookup(&old.root(), "f").unwrap().file;
    assert_eq!(old.read(&handle, 0, 4).map(|_| ()), Err(v3::Status::ACCES));
}

/// proves: NFS4-8881-9.9-a, NFS4-8881-18.18-a, NFS4-8881-18.2-a
#[test]
fn a_second_open_widens_the_first_and_a_downgrade_takes_that_back() {
    on_each(|server| {
        let (a, b) = (server.client("a"), server.client("b"));
        let (file, made) = create(&a, "f", "maker");
        close(&a, &file, made);
        let (_, first) = open(&a, "f", "o", READ, 0).unwrap();
        assert_eq!(a.write(&file, first, 0, b"x"), Err(Status::OPENMODE));
        let refused = open(&a, "f", "o", WRITE, READ).err();
        assert_eq!(refused, Some(Status::SHARE_DENIED), "its own opens are no exception");
        let (_, second) = open(&a, "f", "o", WRITE, WRITE).unwrap();
        assert_eq!((second.other, second.sequence), (first.other, 2));
        assert_eq!(a.write(&file, second, 0, b"x"), Ok(1));
        assert_eq!(a.write(&file, first, 0, b"x"), Err(Status::OLD_STATEID));
        assert_eq!(open(&b, "f", "o", WRITE, 0).err(), Some(Status::SHARE_DENIED));
        assert_eq!(downgrade(&a, &file, second, READ, READ).err(), Some(Status::INVAL), "nobody asked for that");
        let third = downgrade(&a, &file, second, READ, 0).unwrap();
        assert_eq!((third.other, third.sequence), (first.other, 3));
        assert_eq!(a.write(&file, third, 0, b"x"), Err(Status::OPENMODE));
        let (_, of_b) = open(&b, "f", "o", WRITE, 0).unwrap();
        assert_eq!((close(&b, &file, of_b), close(&a, &file, third)), (Status::OK, Status::OK));
        assert_eq!(close(&a, &file, third), Status::BAD_STATEID);
        assert_eq!(server.shared().claims.held_by(crate::claims::Client::V4(a.id.0)), (0, 0));
    });
}

/// proves: NFS4-8881-18.16-a, NFS4-8881-9.7-b
#[test]
fn access_is_read_write_or_both_and_wishes_for_delegations_are_told_why_not() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (file, state) = create(&client, "f", "o");
    close(&client, &file, state);
    for access in [0, 4, 0x100, 0x601, 0x8000_0001] {
        assert_eq!(open(&client, "f", "o", access, 0).err(), Some(Status::INVAL), "{access:#x}");
    }
    assert_eq!(open(&client, "f", "o", READ, 4).err(), Some(Status::INVAL));
    let delegation = |access| open_with(&client, to_open(&client, "f", "o", access, 0)).unwrap().1.delegation;
    let none = |why| ops::Delegation::NoneExtended(why);
    assert_eq!(delegation(READ), ops::Delegation::None);
    assert_eq!(delegation(READ | ops::share::WANT_NONE), none(ops::WhyNoDelegation::NotWanted));
    assert_eq!(delegation(READ | ops::share::WANT_CANCEL), none(ops::WhyNoDelegation::Cancelled));
    assert_eq!(delegation(READ | ops::share::WANT_ANY), none(ops::WhyNoDelegation::Resource(false)));
    let open = open_with(&client, to_open(&client, "f", "o", READ, 0)).unwrap().1;
    assert_eq!(open.flags, ops::open_result::LOCKTYPE_POSIX, "and PRESERVE_UNLINKED never");
}

/// proves: NFS4-8881-18.16-b
#[test]
fn a_create_says_what_it_has_set_and_changes_its_directory() {
    on_each(|server| {
        let client = server.client("a");
        let attributes = FileAttributes::of(&[Value::Mode(0o600), Value::Size(7)]);
        let unchecked = || CreateHow::Unchecked(attributes.clone());
        let (file, made) = create_with(&client, "f", "o", unchecked()).unwrap();
        assert_eq!(made.set, attributes.set);
        assert!(made.directory.atomic && made.directory.before != made.directory.after);
        assert_eq!(client.read(&file, made.state, 0, 100), Ok(vec![0; 7]));
        let (same, again) = create_with(&client, "f", "o", unchecked()).unwrap();
        assert_eq!((same, again.set), (file.clone(), Bitmap::EMPTY), "what is there is used as it is");
        let unchanged = (made.directory.after, made.directory.after);
        assert_eq!((again.directory.before, again.directory.after), unchanged, "nothing was made");
        assert_eq!(client.read(&file, again.state, 0, 100), Ok(vec![0; 7]));
        let cut = CreateHow::Unchecked(FileAttributes::of(&[Value::Size(0)]));
        let (_, empty) = create_with(&client, "f", "o", cut.clone()).unwrap();
        assert_eq!(empty.set, Bitmap::of(&[Attribute::Size]));
        assert_eq!(client.read(&file, empty.state, 0, 100), Ok(vec![]));
        assert_eq!(create_with(&client, "f", "o", CreateHow::Guarded(attributes.clone())).err(), Some(Status::EXIST));
        let of_handle = ops::Open {
            claim: Claim::Handle,
            how: OpenHow::Create(unchecked()),
            ..to_open(&client, "f", "o", READ, 0)
        };
        assert_eq!(open_with(&client, of_handle).err(), Some(Status::INVAL));
    });
}

/// proves: NFS4-8881-18.16-d
#[test]
fn a_file_that_somebody_denies_to_be_written_is_not_cut() {
    on_each(|server| {
        let (a, b) = (server.client("a"), server.client("b"));
        let (file, state) = create(&a, "f", "o");
        a.write(&file, state, 0, b"data").unwrap();
        close(&a, &file, state);
        open(&a, "f", "o", READ, WRITE).unwrap();
        let cut = CreateHow::Unchecked(FileAttributes::of(&[Value::Size(0)]));
        let reading = ops::Open { how: OpenHow::Create(cut), access: READ, ..to_open(&b, "f", "o", READ, 0) };
        assert_eq!(open_with(&b, reading).err(), Some(Status::SHARE_DENIED));
        assert_eq!(b.read(&file, StateId::ANONYMOUS, 0, 9), Ok(b"data".to_vec()));
        assert_eq!(server.shared().claims.held_by(crate::claims::Client::V4(b.id.0)), (0, 0), "and nothing is left");
    });
}

/// proves: NFS4-8881-18.16-c
#[test]
fn an_exclusive_create_is_known_by_its_verifier() {
    on_each(|server| {
        let client = server.client("a");
        let verifier = |octet| Verifier([octet, 0, 0, 1, octet, 0, 0, 1]);
        let times = Bitmap::of(&[Attribute::TimeAccess, Attribute::TimeModify]);
        let (file, made) = create_with(&client, "f", "o", CreateHow::Exclusive(verifier(1))).unwrap();
        assert_eq!(made.set, times, "the client sets these next");
        let (again, _) = create_with(&client, "f", "o", CreateHow::Exclusive(verifier(1))).unwrap();
        assert_eq!(again, file);
        assert_eq!(create_with(&client, "f", "o", CreateHow::Exclusive(verifier(2))).err(), Some(Status::EXIST));
        let with = |octet, values: &[Value]| {
            let attributes = FileAttributes::of(values);
            CreateHow::Exclusive41(ops::CreateExclusive { verifier: verifier(octet), attributes })
        };
        let (file, made) = create_with(&client, "g", "o", with(3, &[Value::Mode(0o640)])).unwrap();
        assert_eq!(made.set, times.or(&Bitmap::of(&[Attribute::Mode])));
        assert_eq!(create_with(&client, "g", "o", with(3, &[Value::Mode(0o640)])).unwrap().0, file);
        assert_eq!(create_with(&client, "g", "o", with(4, &[])).err(), Some(Status::EXIST));
        let time = Value::TimeModifySet(rpcrdma_nfs::v4::SetTime::Server);
        assert_eq!(create_with(&client, "h", "o", with(5, &[time])).err(), Some(Status::INVAL));
        assert_eq!(client.walk("h").err(), Some(Status::NOENT));
    });
}

/// proves: NFS4-8881-18.16-e
#[test]
fn only_regular_files_are_opened() {
    let server = TestServer::directory();
    let client = server.client("a");
    std::fs::create_dir(server.served().join("d")).unwrap();
    std::os::unix::fs::symlink("d", server.served().join("l")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(server.served().join("s")).unwrap();
    for (name, status) in [("d", Status::ISDIR), ("l", Status::SYMLINK), ("s", Status::WRONG_TYPE)] {
        assert_eq!(open(&client, name, "o", READ, 0).err(), Some(status), "{name}");
        let how = CreateHow::Unchecked(FileAttributes::default());
        assert_eq!(create_with(&client, name, "o", how).err(), Some(status), "{name}");
    }
    assert_eq!(open(&client, "n", "o", READ, 0).err(), Some(Status::NOENT));
    assert_eq!(open(&client, "", "o", READ, 0).err(), Some(Status::INVAL));
}

#[test]
fn nothing_is_opened_for_writing_where_nothing_may_be_changed() {
    let server = TestServer::directory_with(Setup { read_only: true, ..Setup::default() });
    let client = server.client("a");
    std::fs::write(server.served().join("f"), "data").unwrap();
    assert_eq!(open(&client, "f", "o", WRITE, 0).err(), Some(Status::ROFS));
    assert_eq!(create_with(&client, "g", "o", CreateHow::Exclusive(Verifier([1; 8]))).err(), Some(Status::ROFS));
    let (file, state) = open(&client, "f", "o", READ, 0).unwrap();
    assert_eq!(client.read(&file, state, 0, 9), Ok(b"data".to_vec()));
    assert_eq!(client.write(&file, state, 0, b"x"), Err(Status::ROFS));
}

/// proves: NFS4-8881-18.16-f
#[test]
fn who_has_no_right_to_a_file_neither_opens_it_nor_keeps_others_out() {
    let server = TestServer::memory_with(Setup { squash: Squash::None, ..Setup::default() });
    let owner = server.client("a");
    let (file, state) = create(&owner, "f", "o");
    let stranger = server.client_as("b", 2, 1000, 1);
    stranger.reclaim_complete();
    assert_eq!(open(&stranger, "f", "o", WRITE, BOTH).err(), Some(Status::ACCESS));
    assert_eq!(owner.write(&file, state, 0, b"x"), Ok(1));
    assert_eq!(stranger.write(&file, StateId::ANONYMOUS, 0, b"x"), Err(Status::ACCESS));
    // Each client has its own state: another client's stateids name nothing.
    assert_eq!(stranger.write(&file, state, 0, b"x"), Err(Status::BAD_STATEID));
    assert_eq!(close(&stranger, &file, state), Status::BAD_STATEID);
}

#[test]
fn claims_by_delegations_have_nothing_to_stand_on() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (_, state) = create(&client, "f", "o");
    let status = |claim| open_with(&client, ops::Open { claim, ..to_open(&client, "f", "o", READ, 0) }).err();
    let name = Name::from("f");
    let current = ops::DelegateCurrent { delegation: state, name: name.clone() };
    assert_eq!(status(Claim::DelegateCurrent(current)), Some(Status::BAD_STATEID));
    assert_eq!(status(Claim::DelegateCurrentHandle(state)), Some(Status::BAD_STATEID));
    assert_eq!(status(Claim::DelegatePrevious(name)), Some(Status::NOTSUPP));
    assert_eq!(status(Claim::DelegatePreviousHandle), Some(Status::NOTSUPP));
    assert_eq!(status(Claim::Previous(ops::DelegationKind::None)), Some(Status::NO_GRACE));
}

/// proves: NFS4-8881-16.2-a
#[test]
fn the_stateid_of_an_open_is_current_behind_it() {
    let server = TestServer::directory();
    let client = server.client("a");
    let open = ops::Open {
        how: OpenHow::Create(CreateHow::Guarded(FileAttributes::default())),
        ..to_open(&client, "f", "o", BOTH, 0)
    };
    let data = b"data".to_vec().into();
    let write = ops::Write { state: StateId::CURRENT, offset: 0, stability: ops::Stability::FileSync, data };
    let read = ops::Read { state: StateId::CURRENT, offset: 0, count: 9 };
    let close = Args::Close(ops::Close { sequence: 0, state: StateId::CURRENT });
    let mut outcomes = client.call(vec![
        Args::PutRootFh,
        Args::Open(Box::new(open)),
        Args::Write(write),
        Args::Read(read),
        close.clone(),
        close,
    ]);
    assert_eq!(outcomes.pop().unwrap().status(), Status::BAD_STATEID, "closed already");
    let closed = only!(outcomes.pop().unwrap(), Close).unwrap();
    assert_eq!(closed.state, StateId { sequence: u32::MAX, other: StateIdOther([0; 12]) });
    assert_eq!(only!(outcomes.pop().unwrap(), Read).unwrap().data.as_slice(), b"data");
    assert_eq!(std::fs::read(server.served().join("f")).unwrap(), b"data");
}

/// proves: NFS4-8881-18.16.3-a
#[test]
fn what_is_open_is_read_and_written_though_its_name_and_its_mode_are_gone() {
    let server = TestServer::directory();
    let client = server.client("a");
    let (file, state) = create(&client, "f", "o");
    client.write(&file, state, 0, b"data").unwrap();
    let path = server.served().join("f");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o0)).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(client.write(&file, state, 4, b"more"), Ok(4));
    assert_eq!(client.read(&file, state, 0, 99), Ok(b"datamore".to_vec()));
    assert_eq!(close(&client, &file, state), Status::OK);
    assert!(matches!(client.read(&file, StateId::ANONYMOUS, 0, 9), Err(Status::STALE)));
}

/// Memory in which a file is removed when it is about to be opened, this many times.
struct Fleeting {
    memory: MemoryFs,
    removals: AtomicUsize,
}

impl FileSystem for Fleeting {
    as_memory!();

    fn open(&self, caller: Caller, file: FileId, access: Access) -> BoxFuture<'_, Told<Arc<dyn OpenFile>>> {
        let is_removed = |left: usize| left.checked_sub(1);
        if self.removals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_removed).is_err() {
            return self.memory.open(caller, file, access);
        }
        Box::pin(async move {
            let root = self.memory.root();
            let removed = self.memory.remove(caller, root, Bytes::from_static(b"f"), false);
            removed.await.map_err(|_| failed(Fault::Io))?;
            Err(failed(Fault::Stale))
        })
    }
}

/// The name then belongs to no file, or to another: the client has sent no handle that could be stale.
#[test]
fn a_file_that_is_removed_while_it_is_opened_is_looked_up_again() {
    for (removals, made, found) in [
        (1, None, Some(Status::NOENT)),
        (4, None, Some(Status::NOENT)),
        // As for a name whose file can never be opened.
        (5, Some(Status::STALE), Some(Status::NOENT)),
    ] {
        let memory = MemoryFs::new(1 << 20, &crate::testing::env());
        let file_system = Arc::new(Fleeting { memory, removals: 0.into() });
        let server = TestServer::serving(file_system.clone());
        let client = server.client("a");
        file_system.removals.store(removals, Ordering::Relaxed);
        let how = || CreateHow::Unchecked(FileAttributes::default());
        assert_eq!(create_with(&client, "f", "o", how()).err(), made, "{removals}");
        file_system.removals.store(0, Ordering::Relaxed);
        assert_eq!(create_with(&client, "f", "p", how()).err(), None);
        file_system.removals.store(removals, Ordering::Relaxed);
        assert_eq!(open(&client, "f", "o", READ, 0).err(), found, "{removals}");
    }
}
