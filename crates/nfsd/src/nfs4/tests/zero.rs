//! Minor version 0: clients without sessions, on whole servers.

mod away;
mod numbers;

use super::*;
use crate::nfs4::{
    state::owners40::OwnerOf,
    testing::Setup,
    testing40::{Client40, Counter, first, known, set_client_id},
};
use rpcrdma_nfs::v4::{
    ClientId, OwnerName, StateIdOther,
    ops::{LockDenied, LockFailure, Locker, NewLocker, open_result},
};

fn on_both(test: impl Fn(TestServer)) {
    test(TestServer::memory());
    test(TestServer::directory());
}

impl Client40 {
    fn shared_opens(&self, server: &TestServer) -> usize {
        server.nfsd.version_4_counts().unwrap().opens
    }
}

/// proves: NFS4-7530-9.1.11-a, NFS4-7530-9.1.4-a
#[test]
fn a_file_is_opened_confirmed_written_locked_and_closed() {
    on_both(|server| {
        let (client, owner, file, state) = Client40::with_file(&server, "a");
        let locker = client.owner("l");
        assert_eq!(state.sequence, 2, "OPEN, and OPEN_CONFIRM");
        assert_eq!(client.write(&file, state, b"data"), Ok(4));
        let locked = client.lock(&file, first(&owner, state, &locker), (0, 10)).unwrap();
        assert_eq!(client.read(&file, locked), Ok(b"data".to_vec()));
        let locked = client.lock(&file, known(&locker, locked), (20, 10)).unwrap();
        assert_eq!(locked.sequence, 2);
        assert_eq!(client.release_lock_owner(&locker), Status::LOCKS_HELD);
        let locked = client.unlock(&locker, &file, locked).unwrap();
        assert_eq!(client.release_lock_owner(&locker), Status::OK);
        assert_eq!(client.unlock(&locker, &file, locked), Err(Status::BAD_STATEID), "the owner is forgotten");
        let (_, again) = client.open(&owner, "f", READ, 0).unwrap();
        assert_eq!((again.other, again.sequence), (state.other, 3), "not to be confirmed again");
        assert_eq!(client.close(&owner, &file, again), Status::OK);
        assert_eq!(client.read(&file, again), Err(Status::BAD_STATEID));
        assert_eq!(client.renew(), Status::OK);
    });
}

/// proves: NFS4-7530-16.18-a, NFS4-7530-16.18-d
#[test]
fn an_open_that_was_not_confirmed_stands_for_nothing() {
    let server = TestServer::memory();
    let client = Client40::new(&server, "a");
    let (maker, owner) = (client.owner("maker"), client.owner("o"));
    let (file, made) = client.create(&maker, "f");
    client.write(&file, made, b"data").unwrap();
    let (_, opened) = client.open_as_is(client.to_open(&owner, "f", BOTH, 0)).unwrap();
    assert_eq!(opened.flags, open_result::CONFIRM | open_result::LOCKTYPE_POSIX);
    assert_eq!(client.read(&file, opened.state), Err(Status::BAD_STATEID));
    let locker = client.owner("l");
    let refused = client.lock(&file, first(&owner, opened.state, &locker), (0, 1));
    assert_eq!(refused, Err(LockFailure::Plain(Status::BAD_STATEID)));
    owner.last.set(1);
    assert_eq!(client.downgrade(&owner, &file, opened.state, READ), Err(Status::BAD_STATEID));
    owner.last.set(1);
    assert_eq!(client.close(&owner, &file, opened.state), Status::BAD_STATEID);
    owner.last.set(1);
    let wrong = StateId { sequence: 2, ..opened.state };
    assert_eq!(client.confirm(&owner, &file, wrong), Err(Status::BAD_STATEID));
    owner.last.set(7);
    assert_eq!(client.confirm(&owner, &file, opened.state), Err(Status::BAD_SEQID));
    owner.last.set(1);
    let state = client.confirm(&owner, &file, opened.state).unwrap();
    assert_eq!(client.read(&file, state), Ok(b"data".to_vec()));
    assert_eq!(client.confirm(&owner, &file, state), Err(Status::BAD_STATEID), "it is confirmed");
    owner.last.set(2);
    assert_eq!(client.close(&owner, &file, state), Status::OK);
}

/// proves: NFS4-7530-16.18-b
#[test]
fn an_open_of_an_owner_that_was_not_confirmed_takes_the_place_of_the_one_before() {
    let server = TestServer::memory();
    let (client, other) = (Client40::new(&server, "a"), server.client("b"));
    let owner = client.owner("o");
    create(&other, "f", "maker");
    let (file, late) = client.open_as_is(client.to_open(&owner, "f", READ, WRITE)).err().map_or_else(
        || panic!("another has it open for writing"),
        |status| {
            assert_eq!(status, Status::SHARE_DENIED);
            client.open_as_is(client.to_open(&owner, "f", READ, READ & !READ)).unwrap()
        },
    );
    // The number does not follow the last one: the unconfirmed OPEN was an old one that came late.
    owner.last.set(40);
    let (_, opened) = client.open_as_is(client.to_open(&owner, "f", BOTH, 0)).unwrap();
    assert_ne!(opened.state.other, late.state.other);
    assert_eq!(opened.flags & open_result::CONFIRM, open_result::CONFIRM);
    let state = client.confirm(&owner, &file, opened.state).unwrap();
    assert_eq!(client.read(&file, late.state), Err(Status::BAD_STATEID));
    assert_eq!(client.read(&file, state), Ok(vec![]));
    assert_eq!(client.close(&owner, &file, state), Status::OK);
    assert_eq!(client.shared_opens(&server), 1, "the other client's");
}

/// proves: NFS4-7530-9.1.4-a, NFS4-7530-9.1.4.4-a
#[test]
fn a_stateid_has_one_number_and_neither_zero_nor_the_current_one_stand_for_it() {
    let server = TestServer::memory();
    let (client, owner, file, state) = Client40::with_file(&server, "a");
    let with = |sequence| StateId { sequence, ..state };
    assert_eq!(state.sequence, 2);
    for (sequence, expected) in [(0, Status::OLD_STATEID), (1, Status::OLD_STATEID), (3, Status::BAD_STATEID)] {
        assert_eq!(client.read(&file, with(sequence)), Err(expected), "{sequence}");
        assert_eq!(client.close(&owner, &file, with(sequence)), expected, "{sequence}");
        if expected == Status::BAD_STATEID {
            owner.last.set(owner.last.get() - 1);
        }
    }
    for special in [StateId::CURRENT, StateId::INVALID] {
        let ops = vec![
            Args::PutFh(ops::PutFh { file: file.clone() }),
            Args::Read(ops::Read { state: special, offset: 0, count: 1 }),
        ];
        assert_eq!(client.last(ops).status(), Status::BAD_STATEID);
    }
    assert_eq!(client.read(&file, StateId::ANONYMOUS), Ok(vec![]));
    let old = StateId { sequence: 1, other: StateIdOther([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]) };
    assert_eq!(client.read(&file, old), Err(Status::STALE_STATEID));
    owner.last.set(owner.last.get());
    assert_eq!(client.close(&owner, &file, old), Status::STALE_STATEID);
    owner.last.set(owner.last.get() - 1);
    assert_eq!(client.close(&owner, &file, StateId::ANONYMOUS), Status::BAD_STATEID);
    owner.last.set(owner.last.get() - 1);
    assert_eq!(client.close(&owner, &file, state), Status::OK);
}

/// proves: NFS4-7530-9.1.1-a, NFS4-7530-9.1.4.4-a
#[test]
fn clients_of_different_minor_versions_exclude_each_other_and_share_no_state() {
    on_both(|server| {
        let ((zero, owner, file, state), one) = (Client40::with_file(&server, "a"), server.client("a"));
        zero.close(&owner, &file, state);
        let (_, state) = zero.open(&owner, "f", BOTH, WRITE).unwrap();
        assert_eq!(open(&one, "f", "o", WRITE, 0).err(), Some(Status::SHARE_DENIED));
        let (_, of_one) = open(&one, "f", "o", READ, 0).unwrap();
        let locker = zero.owner("l");
        zero.lock(&file, first(&owner, state, &locker), (0, 10)).unwrap();
        let test = ops::LockT { kind: ops::LockKind::Read, offset: 0, length: 1, owner: one.owner("l") };
        assert_eq!(one.on(&file, Args::LockT(test)).status(), Status::DENIED);
        // Neither client may use the other's state.
        assert_eq!(one.read(&file, state, 0, 1), Err(Status::BAD_STATEID));
        assert_eq!(zero.read(&file, of_one), Err(Status::BAD_STATEID));
        assert_eq!(zero.close(&owner, &file, of_one), Status::BAD_STATEID);
        owner.last.set(owner.last.get() - 1);
        let renew = |client| zero.one(Args::Renew(ops::Renew { client })).status();
        assert_eq!(renew(one.id), Status::STALE_CLIENTID);
        assert_eq!(renew(ClientId(0)), Status::STALE_CLIENTID);
        let mut of_other = zero.to_open(&owner, "f", READ, 0);
        of_other.owner.client = one.id;
        assert_eq!(zero.open_as_is(of_other).err(), Some(Status::STALE_CLIENTID));
        owner.last.set(owner.last.get() - 1);
        // Operations with a client id of the other kind.
        let destroy = Args::DestroyClientId(ops::DestroyClientId { client: zero.id });
        assert_eq!(zero.send_as(1, vec![destroy]).status, Status::STALE_CLIENTID);
        let test = ops::LockT { kind: ops::LockKind::Read, offset: 0, length: 1, owner: zero.owner("m").owner };
        assert_eq!(zero.on(&file, Args::LockT(test.clone())).status(), Status::DENIED);
        let foreign = ops::LockT { owner: one.owner("l"), ..test };
        assert_eq!(zero.on(&file, Args::LockT(foreign)).status(), Status::STALE_CLIENTID);
        assert_eq!(zero.close(&owner, &file, state), Status::OK);
        assert!(open(&one, "f", "o", WRITE, 0).is_ok());
    });
}

/// proves: NFS4-7530-DRC-a
#[test]
fn a_call_that_comes_again_is_answered_from_the_cache_and_only_over_its_port() {
    let server = TestServer::memory();
    let mut client = Client40::new(&server, "a");
    let make = || {
        let create = ops::Create {
            kind: ops::CreateKind::Directory,
            name: Name::from("d"),
            attributes: FileAttributes::of(&[]),
        };
        vec![Args::PutRootFh, Args::Create(Box::new(create))]
    };
    let made = client.send(make());
    assert_eq!(made.status, Status::OK);
    client.rpc.repeat();
    client.rpc.connection += 100;
    assert_eq!(format!("{:?}", client.send(make())), format!("{made:?}"), "over another connection of the port");
    client.rpc.repeat();
    client.rpc.port += 1;
    assert_eq!(client.send(make()).status, Status::EXIST, "from another port it is another call");
    client.rpc.repeat();
    let other = client.as_user(7);
    assert_ne!(other.send(make()).status, Status::OK, "nor is it another user's");
    // An operation that only looks is executed again.
    let look = || vec![Args::PutRootFh, Args::Lookup(ops::Lookup { name: Name::from("e") })];
    assert_eq!(client.send(look()).status, Status::NOENT);
    client.create(&client.owner("o"), "e");
    for _ in 0..3 {
        client.rpc.repeat();
    }
    assert_eq!(client.send(look()).status, Status::OK);
    // In later minor versions the session's slot decides.
    let one = server.client("b");
    let again = vec![one.sequence(0, false), Args::PutRootFh];
    one.send(again.clone());
    one.rpc.repeat();
    assert_eq!(one.send(again).status, Status::RETRY_UNCACHED_REP);
}

/// proves: NFS4-7530-13.1-a
#[test]
fn what_minor_version_0_does_not_have_is_not_told_it() {
    on_both(|server| {
        let client = Client40::new(&server, "a");
        let owner = client.owner("o");
        let fifo = ops::Create {
            kind: ops::CreateKind::Fifo,
            name: Name::from("fifo"),
            attributes: FileAttributes::of(&[Value::Mode(0o644)]),
        };
        let mut made = client.send(vec![Args::PutRootFh, Args::Create(Box::new(fifo)), Args::GetFh]).results;
        let file = only!(made.pop().unwrap(), GetFh).unwrap().file;
        assert_eq!(client.open(&owner, "fifo", READ, 0).err(), Some(Status::SYMLINK));
        let test = ops::LockT { kind: ops::LockKind::Read, offset: 0, length: 1, owner: owner.owner.clone() };
        assert_eq!(client.on(&file, Args::LockT(test)).status(), Status::INVAL);
        assert_eq!(client.read(&file, StateId::ANONYMOUS), Err(Status::INVAL));
        let wish = ops::Open { access: READ | ops::share::WANT_READ, ..client.to_open(&owner, "fifo", READ, 0) };
        assert_eq!(client.open_as_is(wish).err(), Some(Status::INVAL), "nor are there wishes for delegations");
        assert_eq!(client.send_as(1, vec![set_client_id("x", 1)]).status, Status::NOTSUPP);
    });
}

/// proves: NFS4-7530-16.31-a
#[test]
fn the_current_file_stays_when_its_security_was_asked_for() {
    let server = TestServer::memory();
    let client = Client40::new(&server, "a");
    client.create(&client.owner("o"), "f");
    let ask = Args::SecInfo(ops::SecInfo { name: Name::from("f") });
    let mut results = client.send(vec![Args::PutRootFh, Args::GetFh, ask, Args::GetFh]).results;
    let after = only!(results.pop().unwrap(), GetFh).unwrap().file;
    assert_eq!(only!(results.swap_remove(1), GetFh).unwrap().file, after);
}

/// Stateids of minor version 0 can be guessed.
///
/// proves: NFS4-7530-STOLEN-a
#[test]
fn who_has_not_opened_a_file_needs_the_right_to_use_the_stateid_of_another() {
    on_both(|server| {
        let (client, _, file, state) = Client40::with_file(&server, "a");
        assert_eq!(client.write(&file, state, b"data"), Ok(4));
        let thief = client.as_user(3912);
        assert_eq!(thief.write(&file, state, b"x"), Err(Status::ACCESS));
        assert_eq!(thief.read(&file, state), Ok(b"data".to_vec()), "which the mode lets everybody do");
        let set = ops::SetAttr { state, attributes: FileAttributes::of(&[Value::Size(0)]) };
        assert_eq!(thief.on(&file, Args::SetAttr(set)).status(), Status::ACCESS);
        assert_eq!(client.write(&file, state, b"more"), Ok(4));
    });
}

/// proves: NFS4-7530-9.1.1-b
#[test]
fn a_lock_owner_is_of_the_client_of_the_open() {
    let server = TestServer::memory();
    let (client, other) = (Client40::new(&server, "a"), Client40::new(&server, "b"));
    let owner = client.owner("o");
    let (file, state) = client.create(&owner, "f");
    for (id, expected) in [(other.id, Status::BAD_STATEID), (ClientId(0), Status::STALE_CLIENTID)] {
        let mut locker = client.owner("l");
        locker.owner.client = id;
        let refused = client.lock(&file, first(&owner, state, &locker), (0, 1));
        assert_eq!(refused, Err(LockFailure::Plain(expected)));
        owner.last.set(owner.last.get() - 1);
    }
    // Another client's call closes the open: the stateid says whose it is.
    assert_eq!(other.close(&owner, &file, state), Status::OK);
}

/// proves: NFS4-7530-MINORS-a
#[test]
fn minor_version_0_is_refused_where_it_is_not_served() {
    let served = |minors| Setup {
        version_4: match minors {
            1 => |version_4| version_4.with_minors(1..=2),
            _ => |version_4| version_4.with_minors(0..=0),
        },
        ..Setup::default()
    };
    let sent = |server: &TestServer, minor| {
        let rpc = server.version_3();
        let mut encoder = rpcrdma_xdr::Encoder::new();
        rpcrdma_xdr::Encode::encode(&rpcrdma_nfs::v4::Arguments::new(minor, vec![Args::PutRootFh]), &mut encoder);
        let mut decoder = rpc.raw(rpcrdma_nfs::v4::PROGRAM, rpcrdma_nfs::v4::VERSION, 1, encoder.finish()).unwrap();
        <rpcrdma_nfs::v4::Results as rpcrdma_xdr::Decode>::decode(&mut decoder).unwrap().status
    };
    let later = TestServer::memory_with(served(1));
    assert_eq!(sent(&later, 0), Status::MINOR_VERS_MISMATCH);
    let first = TestServer::memory_with(served(0));
    assert_eq!((sent(&first, 0), sent(&first, 1)), (Status::OK, Status::MINOR_VERS_MISMATCH));
}
