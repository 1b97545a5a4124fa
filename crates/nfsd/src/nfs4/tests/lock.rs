//! LOCK, LOCKT, LOCKU.

use super::{BOTH, *};
use crate::{
    OfdLocks,
    claims::{HostLocks, Kind, Range},
    nfs4::testing::Setup,
};
use rpcrdma_nfs::v4::{
    Owner,
    ops::{KnownLocker, LockDenied, LockFailure, LockKind, Locker, NewLocker},
};

pub(super) const WRITE: LockKind = LockKind::Write;
const SHARED: LockKind = LockKind::Read;

/// The first lock of an owner by an open.
pub(in crate::nfs4) fn first(client: &TestClient, open: StateId, owner: &str) -> Locker {
    let owner = client.owner(owner);
    Locker::New(NewLocker { open_sequence: 0, open_state: open, lock_sequence: 0, owner })
}

fn known(state: StateId) -> Locker {
    Locker::Known(KnownLocker { state, sequence: 0 })
}

pub(in crate::nfs4) fn lock(
    client: &TestClient,
    file: &Handle,
    locker: Locker,
    kind: LockKind,
    (offset, length): (u64, u64),
) -> Result<StateId, LockFailure> {
    let lock = ops::Lock { kind, reclaim: false, offset, length, locker };
    only!(client.on(file, Args::Lock(Box::new(lock))), Lock).map(|ok| ok.state)
}

fn test(client: &TestClient, file: &Handle, owner: &str, kind: LockKind, range: (u64, u64)) -> Result<(), LockFailure> {
    let test = ops::LockT { kind, offset: range.0, length: range.1, owner: client.owner(owner) };
    only!(client.on(file, Args::LockT(test)), LockT)
}

pub(in crate::nfs4) fn unlock(
    client: &TestClient,
    file: &Handle,
    state: StateId,
    (offset, length): (u64, u64),
) -> Result<StateId, Status> {
    let unlock = ops::LockU { kind: WRITE, sequence: 0, state, offset, length };
    only!(client.on(file, Args::LockU(unlock)), LockU).map(|ok| ok.state)
}

fn told(kind: LockKind, offset: u64, length: u64, owner: Owner) -> Option<LockFailure> {
    Some(LockFailure::Told(LockDenied { offset, length, kind, owner }))
}

/// proves: NFS4-8881-18.10.3-c, NFS4-8881-18.11.3-a
#[test]
fn two_clients_exclude_each_other_and_are_told_who_it_is() {
    on_each(|server| {
        let (a, b) = (server.client("a"), server.client("b"));
        let (file, of_a) = create(&a, "f", "o");
        let (_, of_b) = open(&b, "f", "o", BOTH, 0).unwrap();
        let locked = lock(&a, &file, first(&a, of_a, "l"), WRITE, (10, 10)).unwrap();
        assert_eq!(locked.sequence, 1);
        let denied = told(WRITE, 10, 10, a.owner("l"));
        assert_eq!(lock(&b, &file, first(&b, of_b, "l"), SHARED, (0, u64::MAX)).err(), denied);
        assert_eq!(lock(&b, &file, first(&b, of_b, "l"), LockKind::WriteWaiting, (19, 1)).err(), denied);
        assert_eq!(test(&b, &file, "l", WRITE, (19, 1)).err(), denied);
        assert_eq!(test(&a, &file, "l", WRITE, (0, 100)), Ok(()), "its own is not in the way");
        assert_eq!(test(&a, &file, "m", SHARED, (0, 100)).err(), denied, "another owner's is");
        let of_others = lock(&b, &file, first(&b, of_b, "l"), WRITE, (20, 5)).unwrap();
        // Later locks of this owner: more, less, and of another kind.
        let more = lock(&a, &file, known(locked), SHARED, (0, 15)).unwrap();
        assert_eq!((more.other, more.sequence), (locked.other, 2));
        assert_eq!(lock(&a, &file, known(locked), SHARED, (0, 1)).err(), Some(Status::OLD_STATEID.into()));
        assert_eq!(test(&b, &file, "l", SHARED, (0, 15)), Ok(()));
        let less = unlock(&a, &file, more, (0, u64::MAX)).unwrap();
        assert_eq!(less.sequence, 3);
        assert!(lock(&b, &file, known(of_others), WRITE, (0, 100)).is_ok());
        assert_eq!(close(&b, &file, of_b), Status::OK);
        assert_eq!(test(&a, &file, "l", WRITE, (0, u64::MAX)), Ok(()), "locks end with their open");
        assert_eq!(unlock(&b, &file, of_others, (0, 1)), Err(Status::BAD_STATEID));
    });
}

/// proves: NFS4-8881-18.10.3-a, NFS4-8881-18.10.3-b, NFS4-8881-18.10-a
#[test]
fn a_lock_needs_a_range_and_an_open_of_its_kind() {
    on_each(|server| {
        let client = server.client("a");
        let (file, made) = create(&client, "f", "maker");
        close(&client, &file, made);
        let (_, reading) = open(&client, "f", "r", READ, 0).unwrap();
        let by = || first(&client, reading, "l");
        assert_eq!(lock(&client, &file, by(), SHARED, (5, 0)).err(), Some(Status::INVAL.into()));
        assert_eq!(lock(&client, &file, by(), SHARED, (2, u64::MAX - 1)).err(), Some(Status::INVAL.into()));
        assert_eq!(test(&client, &file, "l", SHARED, (5, 0)).err(), Some(Status::INVAL.into()));
        assert_eq!(lock(&client, &file, by(), WRITE, (0, 1)).err(), Some(Status::OPENMODE.into()));
        let locked = lock(&client, &file, by(), SHARED, (1, u64::MAX - 1)).unwrap();
        assert_eq!(unlock(&client, &file, locked, (5, 0)), Err(Status::INVAL));
        assert_eq!(lock(&client, &file, known(locked), WRITE, (0, 1)).err(), Some(Status::OPENMODE.into()));
        assert_eq!(lock(&client, &file, known(reading), SHARED, (0, 1)).err(), Some(Status::BAD_STATEID.into()));
        assert_eq!(
            lock(&client, &file, first(&client, locked, "m"), SHARED, (0, 1)).err(),
            Some(Status::BAD_STATEID.into())
        );
        let root = client.walk("").unwrap();
        assert_eq!(test(&client, &root, "l", SHARED, (0, 1)).err(), Some(Status::ISDIR.into()));
    });
}

/// Locks of a program of the host, as it would take them itself.
fn program(server: &TestServer) -> OfdLocks {
    let file = std::fs::File::options().read(true).write(true).open(server.served().join("f")).unwrap();
    OfdLocks::new(file.into()).unwrap()
}

/// proves: NFS4-HOST-a
#[test]
fn programs_of_the_host_are_excluded_and_exclude() {
    let server = TestServer::directory();
    let (a, b) = (server.client("a"), server.client("b"));
    let (file, state) = create(&a, "f", "o");
    let program = program(&server);
    program.set(Range::new(0, 10).unwrap(), Some(Kind::Write)).unwrap();
    let tested = test(&a, &file, "l", WRITE, (5, 1));
    let Err(LockFailure::Told(denied)) = &tested else { panic!("{tested:?}") };
    assert_eq!((denied.offset, denied.length, denied.kind), (0, 10, WRITE));
    assert!(denied.owner.client != a.id && denied.owner.client != b.id);
    assert_eq!(lock(&a, &file, first(&a, state, "l"), SHARED, (5, 1)).err(), tested.err());
    program.set(Range::ALL, None).unwrap();
    let locked = lock(&a, &file, first(&a, state, "l"), WRITE, (5, 5)).unwrap();
    assert!(program.set(Range::new(9, 1).unwrap(), Some(Kind::Read)).is_err());
    assert!(program.set(Range::new(10, 1).unwrap(), Some(Kind::Write)).is_ok());
    assert!(lock(&a, &file, known(locked), WRITE, (0, 20)).is_err(), "and what it has stays as it is");
    assert!(program.set(Range::new(0, 5).unwrap(), Some(Kind::Write)).is_ok());
    // After a CLOSE the range is free on the host, too.
    close(&a, &file, state);
    assert!(program.set(Range::ALL, Some(Kind::Write)).is_ok());
}

/// proves: NFS4-HOST-a
#[test]
fn the_host_is_told_nothing_where_that_is_not_wanted() {
    let server = TestServer::directory_with(Setup {
        version_4: |version_4| version_4.with_host_locks(false),
        ..Setup::default()
    });
    let client = server.client("a");
    let (file, state) = create(&client, "f", "o");
    let program = program(&server);
    program.set(Range::ALL, Some(Kind::Write)).unwrap();
    assert_eq!(test(&client, &file, "l", WRITE, (0, 1)), Ok(()));
    assert!(lock(&client, &file, first(&client, state, "l"), WRITE, (0, 1)).is_ok());
}

/// A lock owner has a stateid for each open through which it locks.
///
/// proves: NFS4-8881-9.5-a
#[test]
fn the_end_of_one_open_leaves_what_its_lock_owner_has_locked_through_another() {
    on_each(|server| {
        let (client, other) = (server.client("a"), server.client("b"));
        let (file, one) = create(&client, "f", "o");
        let (_, two) = open(&client, "f", "p", BOTH, 0).unwrap();
        lock(&client, &file, first(&client, one, "l"), WRITE, (0, 10)).unwrap();
        let locked = lock(&client, &file, first(&client, two, "l"), WRITE, (10, 10)).unwrap();
        close(&client, &file, one);
        assert_eq!(test(&other, &file, "l", WRITE, (15, 1)).err(), told(WRITE, 0, 20, client.owner("l")));
        assert_eq!(client.write(&file, locked, 15, b"x"), Ok(1));
        unlock(&client, &file, locked, (5, 10)).unwrap();
        assert_eq!(test(&other, &file, "l", WRITE, (5, 10)), Ok(()));
        close(&client, &file, two);
        assert_eq!(test(&other, &file, "l", WRITE, (0, 20)), Ok(()), "with the last of them all is free");
    });
}

/// Two calls of one lock owner at a time can leave a stateid that does not know of its locked ranges: as if one call
/// had unlocked all while the other locked. The client can still unlock them.
#[test]
fn a_lock_stateid_is_not_freed_while_its_owner_has_locks() {
    on_each(|server| {
        let client = server.client("a");
        let (file, state) = create(&client, "f", "o");
        let locked = lock(&client, &file, first(&client, state, "l"), WRITE, (0, 10)).unwrap();
        let held = &server.shared().state.client(client.id).unwrap().held;
        let (key, _) = held.lock_of(locked).unwrap();
        let locked = held.unlocked(locked, key, false).unwrap();
        let free = || client.status(vec![Args::FreeStateId(ops::FreeStateId { state: locked })]);
        assert_eq!(free(), Status::LOCKS_HELD);
        let unlocked = unlock(&client, &file, locked, (0, 10)).unwrap();
        let free = |state| client.status(vec![Args::FreeStateId(ops::FreeStateId { state })]);
        assert_eq!((free(unlocked), free(unlocked)), (Status::OK, Status::BAD_STATEID));
    });
}
