//! TEST, LOCK, UNLOCK.

use super::*;
use rpcrdma_nfs::nlm::{
    Cookie, Lock, LockArguments, OwnerHandle, Response, TestArguments, TestResponse, Tested, UnlockArguments,
};

/// proves: NLM-6.1.4-g, NLM-6.1.4-e
#[test]
fn two_hosts_exclude_each_other_and_are_told_who_it_is() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(a.lock(&file, "o", (10, 10), WRITE), Status::Granted);
        for (range, exclusive) in [((0, 0), READ), ((19, 1), WRITE), ((10, 10), READ)] {
            assert_eq!(b.lock(&file, "o", range, exclusive), Status::Denied, "{range:?}");
            let holder = b.test(&file, "o", range, exclusive).unwrap_err().unwrap();
            assert_eq!((holder.exclusive, holder.process, holder.offset, holder.length), (true, 77, 10, 10));
            assert_eq!(holder.owner, OwnerHandle::from("o"));
        }
        assert_eq!(b.lock(&file, "o", (20, 0), WRITE), Status::Granted, "all behind it");
        let holder = a.test(&file, "o", (0, 0), READ).unwrap_err().unwrap();
        assert_eq!((holder.offset, holder.length), (20, 0));
        assert_eq!(a.test(&file, "o", (0, 20), WRITE), Ok(()), "its own is not in the way");
        assert_eq!(a.lock(&file, "another", (19, 1), READ), Status::Denied, "that of another owner is");
        assert_eq!(a.unlock(&file, "another", (0, 0)), Status::Granted, "nothing of it was locked");
        assert_eq!(b.lock(&file, "o", (19, 1), READ), Status::Denied);
        assert_eq!(a.unlock(&file, "o", (15, 0)), Status::Granted);
        assert_eq!(b.lock(&file, "o", (15, 5), READ), Status::Granted);
        assert_eq!(b.lock(&file, "o", (14, 1), READ), Status::Denied);
        assert_eq!(a.lock(&file, "o", (10, 5), READ), Status::Granted, "in another kind");
        assert_eq!(b.lock(&file, "o", (10, 5), READ), Status::Granted, "readers share");
        assert_eq!(a.lock(&file, "o", (10, 5), WRITE), Status::Denied);
    });
}

/// The process is part of the owner: Linux gives each owner of a host its own name, other systems do not.
#[test]
fn processes_of_one_name_exclude_each_other() {
    on_each(|world| {
        let (a, _, file) = two(world);
        assert_eq!(a.lock(&file, "o", (0, 1), WRITE), Status::Granted);
        let mut place = a.place(&file, "o", (0, 1));
        place.process = 78;
        assert_eq!(a.status(Procedure::Lock, &a.to_lock(place, WRITE, false)), Status::Denied);
    });
}

/// After an unlock nothing is left: no owner, no open file.
#[test]
fn what_is_unlocked_is_gone() {
    on_each(|world| {
        let (a, _, file) = two(world);
        assert_eq!(a.lock(&file, "o", (0, 10), WRITE), Status::Granted);
        assert_eq!(a.lock(&file, "o", (20, 10), READ), Status::Granted);
        let counts = world.counts();
        assert_eq!((counts.hosts, counts.locks, counts.owners), (1, 2, 1));
        assert_eq!(a.unlock(&file, "o", (0, 10)), Status::Granted);
        assert_eq!(world.counts().owners, 1);
        let client = world.server.version_3();
        client.remove(&client.root(), "f").unwrap();
        assert_eq!(a.test(&file, "o", (0, 0), READ), Ok(()), "an open file outlives its name");
        assert_eq!(a.unlock(&file, "o", (0, 0)), Status::Granted);
        let counts = world.counts();
        assert_eq!((counts.locks, counts.owners, counts.shares), (0, 0, 0));
        assert_eq!(a.lock(&file, "o", (0, 1), READ), Status::StaleHandle, "and goes with the last lock");
    });
}

/// proves: NLM-6.1.4-d
#[test]
fn versions_1_and_3_lock_the_same_octets() {
    on_each(|world| {
        let (a, mut b, file) = two(world);
        b.version = 1;
        let Lock { caller, file: handle, owner, process, .. } = b.place(&file, "o", (0, 0));
        let narrow = |(offset, length): (u32, u32)| {
            let (caller, file, owner) = (caller.clone(), handle.clone(), owner.clone());
            let lock = Lock { caller, file, owner, process, offset, length };
            LockArguments {
                cookie: Cookie::from("cookie"),
                block: false,
                exclusive: true,
                lock,
                reclaim: false,
                state: 1,
            }
        };
        assert_eq!(a.lock(&file, "o", (1 << 32, 1 << 33), WRITE), Status::Granted);
        assert_eq!(b.status(Procedure::Lock, &narrow((7, 3))), Status::Granted);
        assert_eq!(a.lock(&file, "o", (9, 1), READ), Status::Denied);
        assert_eq!(b.status(Procedure::Lock, &narrow((10, 0))), Status::Denied, "to the end of the file");
        let args = TestArguments { cookie: Cookie::from("cookie"), exclusive: true, lock: narrow((10, 0)).lock };
        let tested = b.call::<TestResponse<u32>>(Procedure::Test, &args).tested;
        let Tested::Denied(holder) = tested else { panic!("{tested:?}") };
        assert_eq!((holder.offset, holder.length), (u32::MAX, 0), "as far as 32 bits go");
        // Statuses of version 4 do not appear in NLM.
        let stale = rpcrdma_nfs::v3::Handle::new(b"nothing of ours").unwrap();
        let mut unknown = narrow((0, 1));
        unknown.lock.file = stale.clone();
        assert_eq!(b.status(Procedure::Lock, &unknown), Status::DeniedNoLocks);
        let unlock = UnlockArguments { cookie: Cookie::from("cookie"), lock: unknown.lock };
        assert_eq!(b.call::<Response>(Procedure::Unlock, &unlock).status, Status::DeniedNoLocks);
        assert_eq!(a.lock(&stale, "o", (0, 1), READ), Status::StaleHandle);
        b.version = 3;
        assert_eq!(b.status(Procedure::UnmonitoredLock, &narrow((100, 1))), Status::Granted);
    });
}

/// The server does not execute a repeated call again: the host may have unlocked since.
/// proves: NLM-DUP-a
#[test]
fn a_lock_that_comes_again_locks_nothing() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(a.lock(&file, "o", (0, 1), WRITE), Status::Granted);
        let args = a.to_lock(a.place(&file, "o", (5, 1)), WRITE, false);
        assert_eq!(a.status(Procedure::Lock, &args), Status::Granted);
        assert_eq!(a.unlock(&file, "o", (5, 1)), Status::Granted);
        // Its xid is the LOCK's, two calls ago.
        a.rpc.repeat();
        a.rpc.repeat();
        assert_eq!(a.status(Procedure::Lock, &args), Status::Granted, "the answer that it had");
        assert_eq!(b.lock(&file, "o", (5, 1), WRITE), Status::Granted, "but nothing is locked");
    });
}

#[test]
fn nobody_is_a_server_of_ours() {
    let world = World::memory();
    let (a, _, file) = two(&world);
    let granted = a.to_test(&file, "o", (0, 0), WRITE);
    assert_eq!(a.status(Procedure::Granted, &granted), Status::Denied);
    a.call::<()>(Procedure::GrantedMessage, &granted);
    assert_eq!(world.called(), []);
    a.call::<()>(Procedure::Null, &());
}
