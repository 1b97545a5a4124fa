//! Sequence numbers of owners in minor version 0: a repetition gets the same answer, and a call out of turn is refused.

use super::*;

/// Every operation with a number, repeated with the same number, and with wrong numbers.
///
/// proves: NFS4-7530-9.1.7-a, NFS4-7530-9.1.8-a, NFS4-7530-9.1.10-b
#[test]
fn an_operation_that_comes_again_is_answered_and_not_executed() {
    on_both(|server| {
        let client = Client40::new(&server, "a");
        let (owner, locker) = (client.owner("o"), client.owner("l"));
        let how = CreateHow::Guarded(FileAttributes::of(&[Value::Mode(0o644)]));
        let open = ops::Open { how: OpenHow::Create(how), ..client.to_open(&owner, "f", BOTH, 0) };
        let (file, opened) = client.open_as_is(open.clone()).unwrap();
        // The same arguments as another call: the reply cache does not recognise it.
        let again = client.open_as_is(open).unwrap();
        assert_eq!(format!("{again:?}"), format!("{:?}", (&file, &opened)), "the file is current, too");
        let twice = |client: &Client40, owner: &Counter, op: Args| {
            let (one, two) = (client.on(&file, op.clone()), client.on(&file, op));
            assert_eq!(format!("{one:?}"), format!("{two:?}"));
            let _ = owner;
            one
        };
        let confirm = ops::OpenConfirm { state: opened.state, sequence: owner.next() };
        let state = only!(twice(&client, &owner, Args::OpenConfirm(confirm)), OpenConfirm).unwrap().state;
        let lock = |locker| {
            Args::Lock(Box::new(ops::Lock { kind: ops::LockKind::Write, reclaim: false, offset: 0, length: 5, locker }))
        };
        let locked = only!(twice(&client, &owner, lock(first(&owner, state, &locker))), Lock).unwrap().state;
        let locked = only!(twice(&client, &locker, lock(known(&locker, locked))), Lock).unwrap().state;
        let unlock =
            ops::LockU { kind: ops::LockKind::Write, sequence: locker.next(), state: locked, offset: 0, length: 9 };
        let locked = only!(twice(&client, &locker, Args::LockU(unlock)), LockU).unwrap().state;
        assert_eq!(locked.sequence, 3, "LOCK, LOCK, LOCKU");
        let widened = client.open(&owner, "f", READ, 0).unwrap().1;
        let down = ops::OpenDowngrade { state: widened, sequence: owner.next(), access: READ, deny: 0 };
        let state = only!(twice(&client, &owner, Args::OpenDowngrade(down)), OpenDowngrade).unwrap().state;
        let close = ops::Close { sequence: owner.next(), state };
        only!(twice(&client, &owner, Args::Close(close)), Close).unwrap();
        assert_eq!(
            client.on(&file, Args::Close(ops::Close { sequence: owner.next(), state })).status(),
            Status::BAD_STATEID
        );
        // A failure that has used its number up can also be repeated.
        owner.last.set(owner.last.get() - 1);
        let missing = client.to_open(&owner, "missing", READ, 0);
        assert_eq!(client.open_as_is(missing.clone()).err(), Some(Status::NOENT));
        client.create(&client.owner("p"), "missing");
        assert_eq!(client.open_as_is(missing).err(), Some(Status::NOENT), "it is not looked at again");
        assert!(client.open(&owner, "missing", READ, 0).is_ok());
    });
}

/// proves: NFS4-7530-9.1.7-a, NFS4-7530-9.1.9-b
#[test]
fn a_number_that_is_neither_the_next_nor_the_last_is_refused() {
    let server = TestServer::memory();
    let (client, owner, file, state) = Client40::with_file(&server, "a");
    let locker = client.owner("l");
    let locked = client.lock(&file, first(&owner, state, &locker), (0, 10)).unwrap();
    let (last, last_lock) = (owner.last.get(), locker.last.get());
    for wrong in [last.wrapping_add(2), last.wrapping_sub(1), 0, u32::MAX] {
        let with = || owner.last.set(wrong.wrapping_sub(1));
        with();
        assert_eq!(client.open(&owner, "f", READ, 0).err(), Some(Status::BAD_SEQID), "{wrong}");
        with();
        assert_eq!(client.close(&owner, &file, state), Status::BAD_SEQID);
        with();
        assert_eq!(client.downgrade(&owner, &file, state, READ), Err(Status::BAD_SEQID));
        with();
        let refused = client.lock(&file, first(&owner, state, &client.owner("m")), (50, 1));
        assert_eq!(refused, Err(LockFailure::Plain(Status::BAD_SEQID)));
        locker.last.set(wrong.wrapping_add(40));
        assert_eq!(client.unlock(&locker, &file, locked), Err(Status::BAD_SEQID));
    }
    // The very last number, with another operation.
    owner.last.set(last - 1);
    assert_eq!(client.close(&owner, &file, state), Status::BAD_SEQID);
    locker.last.set(last_lock - 1);
    assert_eq!(client.unlock(&locker, &file, locked), Err(Status::BAD_SEQID));
    // The lock owner's number counts as well, as long as the owner has a stateid.
    owner.last.set(last);
    let by = |lock_sequence| {
        Locker::New(NewLocker {
            open_sequence: owner.next(),
            open_state: state,
            lock_sequence,
            owner: locker.owner.clone(),
        })
    };
    for wrong in [last_lock, last_lock + 2] {
        owner.last.set(last);
        assert_eq!(client.lock(&file, by(wrong), (50, 1)), Err(LockFailure::Plain(Status::BAD_SEQID)));
    }
    owner.last.set(last);
    assert!(client.lock(&file, by(last_lock + 1), (50, 1)).is_ok());
    assert_eq!(client.close(&owner, &file, state), Status::OK, "what was refused has used no number up");
}

/// proves: NFS4-7530-9.1.7-b
#[test]
fn without_a_current_file_no_number_is_used_up() {
    let server = TestServer::memory();
    let (client, owner, file, state) = Client40::with_file(&server, "a");
    let next = owner.next();
    for op in [
        Args::Open(Box::new(ops::Open { sequence: next, ..client.to_open(&owner, "f", READ, 0) })),
        Args::Close(ops::Close { sequence: next, state }),
        Args::OpenDowngrade(ops::OpenDowngrade { state, sequence: next, access: READ, deny: 0 }),
    ] {
        assert_eq!(client.one(op).status(), Status::NOFILEHANDLE);
    }
    owner.last.set(next - 1);
    assert_eq!(client.close(&owner, &file, state), Status::OK);
}

/// proves: NFS4-7530-9.1.9-c
#[test]
fn a_lock_that_was_denied_is_told_again_and_its_owner_may_begin_anew() {
    let server = TestServer::memory();
    let client = Client40::new(&server, "a");
    let (one, two) = (client.owner("one"), client.owner("two"));
    let (file, of_one) = client.create(&one, "f");
    let (_, of_two) = client.open(&two, "f", BOTH, 0).unwrap();
    let (holder, wants) = (client.owner("holder"), client.owner("wants"));
    let held = client.lock(&file, first(&one, of_one, &holder), (10, 10)).unwrap();
    let denied = LockFailure::Told(LockDenied {
        offset: 10,
        length: 10,
        kind: ops::LockKind::Write,
        owner: holder.owner.clone(),
    });
    let wish = first(&two, of_two, &wants);
    assert_eq!(client.lock(&file, wish.clone(), (0, 15)), Err(denied.clone()));
    let held = client.unlock(&holder, &file, held).unwrap();
    assert_eq!(client.lock(&file, wish, (0, 15)), Err(denied), "the same call has the same answer");
    // The owner holds nothing, so it may begin with any number.
    wants.last.set(900);
    assert!(client.lock(&file, first(&two, of_two, &wants), (0, 15)).is_ok());
    assert_eq!(client.close(&one, &file, of_one), Status::OK);
    assert_eq!(client.unlock(&holder, &file, held), Err(Status::BAD_STATEID), "locks end with the open");
}

/// Only the statuses that RFC 7530 section 9.1.7 names leave an owner's number as it was.
///
/// proves: NFS4-7530-9.1.7-b
#[test]
fn a_lock_that_is_refused_before_it_is_tried_uses_up_the_open_owners_number() {
    let server = TestServer::memory();
    let ((client, owner, file, state), gone) = (Client40::with_file(&server, "a"), Client40::new(&server, "b"));
    // The id of a client that has ended.
    Client40::of_incarnation(&server, "b", 0, 2);
    let mut locker = client.owner("l");
    locker.owner.client = gone.id;
    let refused = client.lock(&file, first(&owner, state, &locker), (0, 1));
    assert_eq!(refused, Err(LockFailure::Plain(Status::EXPIRED)));
    // The client has as many lock owners as it may have.
    let record = server.shared().state.client_of_zero(client.id).unwrap();
    let owners = &record.zero().unwrap().owners;
    let name = |number: u32| OwnerName(format!("{number:01024}").into());
    while owners.get(OwnerOf::Locks, &name(owners.counts().1 as u32)).is_ok() {}
    let wish = first(&owner, state, &client.owner(&"l".repeat(1_024)));
    assert_eq!(client.lock(&file, wish.clone(), (0, 1)), Err(LockFailure::Plain(Status::DELAY)));
    let again = client.lock(&file, wish, (0, 1));
    assert_eq!(again, Err(LockFailure::Plain(Status::DELAY)), "the same call has the same answer");
    assert_eq!(client.close(&owner, &file, state), Status::OK, "the next number");
}
