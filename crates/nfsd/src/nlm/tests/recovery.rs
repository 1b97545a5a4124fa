//! Restarts of the server and of hosts.

use super::*;
use crate::{
    nlm::{locks::release, testing::GRACE_SECONDS, waiting::Wish},
    testing::wait,
};
use rpcrdma_nfs::nlm::{LockArguments, ShareAccess, ShareDeny};

const ALL: (u64, u64) = (0, 0);

/// proves: NLM-GRACE-a, NLM-GRACE-b
#[test]
fn after_a_restart_hosts_lock_again_what_they_had_and_others_wait() {
    for world in [World::memory(), World::directory()] {
        let (a, b, file) = two(&world);
        assert_eq!(a.reclaim(&file, "o", ALL, WRITE), Status::Denied, "nobody had anything");
        assert_eq!(a.lock(&file, "o", ALL, WRITE), Status::Granted);
        drop((a, b));
        let world = world.restart();
        let (a, b) = (world.host(1, "alpha"), world.host(2, "beta"));
        assert_eq!(b.lock(&file, "o", ALL, WRITE), Status::DeniedGracePeriod);
        assert_eq!(b.wait(&file, "o", ALL, WRITE), Status::DeniedGracePeriod);
        assert_eq!(b.test(&file, "o", ALL, WRITE), Err(Err(Status::DeniedGracePeriod)));
        assert_eq!(b.share(&file, "o", ShareAccess::Read, ShareDeny::None), Status::DeniedGracePeriod);
        assert_eq!(b.unlock(&file, "o", ALL), Status::Granted, "that excludes nobody");
        assert_eq!(a.reclaim(&file, "o", (0, 5), WRITE), Status::Granted);
        assert_eq!(b.reclaim(&file, "o", (4, 1), WRITE), Status::Denied, "that was reclaimed");
        let patient = LockArguments { reclaim: true, ..b.to_lock(b.place(&file, "o", (4, 1)), WRITE, true) };
        assert_eq!(b.status(Procedure::Lock, &patient), Status::Denied, "who reclaims waits for nobody");
        assert_eq!(world.counts().waiting, 0);
        assert_eq!(a.unlock(&file, "o", (3, 2)), Status::Granted);
        world.pass(GRACE_SECONDS - 1);
        assert_eq!(b.lock(&file, "o", (3, 2), WRITE), Status::DeniedGracePeriod);
        world.pass(1);
        assert_eq!(b.lock(&file, "o", (3, 2), WRITE), Status::Granted);
        assert_eq!(b.lock(&file, "o", (2, 1), WRITE), Status::Denied);
        assert_eq!(a.reclaim(&file, "o", (5, 1), WRITE), Status::Denied, "too late");
    }
}

/// How many files the state directory has: one for each host on the list, and a few others.
fn files_of_state(world: &World) -> usize {
    let mut directories = vec![world.server.scratch.path().join("state")];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() { directories.push(entry.path()) } else { files += 1 }
        }
    }
    files
}

/// A notice counts for a host only if it comes from the server's address that the host has mounted from.
#[test]
fn a_host_is_on_the_list_for_each_address_of_the_server_that_it_locks_by() {
    let world = World::memory();
    let (mut a, _, file) = two(&world);
    let before = files_of_state(&world);
    for (called, listed) in [([198, 51, 100, 1], 1), ([198, 51, 100, 2], 2), ([198, 51, 100, 1], 2)] {
        a.rpc.called = Some(called.into());
        assert_eq!(a.lock(&file, "o", ALL, WRITE), Status::Granted);
        assert_eq!(files_of_state(&world) - before, listed, "{called:?}");
    }
}

/// The server does not wait for locks whose host it does not notify after a restart.
#[test]
fn who_is_not_monitored_reclaims_nothing() {
    let world = World::memory();
    let (a, b, file) = two(&world);
    let args = a.to_lock(a.place(&file, "o", ALL), WRITE, false);
    assert_eq!(a.status(Procedure::UnmonitoredLock, &args), Status::Granted);
    drop((a, b));
    let world = world.restart();
    assert_eq!(world.host(2, "beta").lock(&file, "o", ALL, WRITE), Status::Granted);
}

/// proves: NLM-FREE-a
#[test]
fn a_host_that_has_started_again_has_nothing() {
    on_each(|world| {
        let restart_by: [fn(&World, &TestHost); 2] =
            [|world, _| world.notify(1, "alpha", 3), |_, host| host.free_all()];
        for (round, restarted) in restart_by.into_iter().enumerate() {
            let (a, b) = (world.host(1, "alpha"), world.host(2, "beta"));
            let (file, other) = (world.file(&format!("f{round}")), world.file(&format!("g{round}")));
            assert_eq!(a.lock(&file, "o", (0, 5), WRITE), Status::Granted);
            assert_eq!(a.share(&file, "o", ShareAccess::Both, ShareDeny::Both), Status::Granted);
            assert_eq!(b.lock(&other, "o", ALL, WRITE), Status::Granted);
            assert_eq!(a.wait(&other, "o", ALL, WRITE), Status::Blocked);
            assert_eq!(b.wait(&file, "o", ALL, WRITE), Status::Blocked);
            restarted(world, &a);
            let called: Vec<_> = world.called().iter().map(|call| call.to).collect();
            assert_eq!(called, [b.address()], "what the other waited for is free");
            assert_eq!(b.share(&file, "o", ShareAccess::Read, ShareDeny::None), Status::Granted);
            assert_eq!(b.unlock(&other, "o", ALL), Status::Granted);
            assert_eq!(world.called(), [], "it waits for nothing");
            let counts = world.counts();
            assert_eq!((counts.locks, counts.shares, counts.waiting), (1, 1, 0));
            b.free_all();
        }
    });
}

/// A worker frees the locks after a notice, perhaps late; and calls from before the restart may arrive even later.
#[test]
fn what_a_host_locks_after_its_notice_is_not_freed_with_what_it_had() {
    on_each(|world| {
        let (a, b, file) = two(world);
        let (other, lockd) = (world.file("g"), world.server.nfsd.lock_manager());
        assert_eq!(b.lock(&other, "o", ALL, WRITE), Status::Granted);
        assert_eq!(a.lock(&file, "before", (0, 5), WRITE), Status::Granted);
        assert_eq!(a.wait(&other, "late", ALL, WRITE), Status::Blocked);
        let before = lockd.hosts.find(a.address(), b"alpha").unwrap();
        let waiter = before.held().waiting[0].waiter.clone();
        world.notify(1, "alpha", 3);
        assert_eq!(a.lock(&file, "after", (0, 5), WRITE), Status::Granted);
        release(lockd.claims(), &before);
        assert_eq!(b.lock(&file, "o", (0, 5), WRITE), Status::Denied, "who has started again has it");
        // A call was under way when the notice came, and could have its lock now.
        assert_eq!(b.unlock(&other, "o", ALL), Status::Granted);
        let using = wait(lockd.server.using(&waiter.file, None, waiter.kind)).ok();
        let wish = Wish {
            file: waiter.file.clone(),
            key: waiter.key,
            holder: waiter.holder.clone(),
            range: waiter.range,
            kind: waiter.kind,
            lock: waiter.lock.clone(),
            version: waiter.version,
            form: waiter.form,
            local: waiter.local,
            open: waiter.open.clone(),
        };
        assert_eq!(lockd.lock_now(&before, &wish, using, true), Err(Status::DeniedNoLocks));
        assert_eq!(b.lock(&other, "o", ALL, WRITE), Status::Granted, "nobody has it for ever");
        assert_eq!(world.counts().hosts, 2);
    });
}

/// The server puts a host on the list before its first lock, and a name that is too long has no room there.
#[test]
fn who_cannot_be_monitored_gets_no_lock() {
    let world = World::limited(NlmLimits { hosts_of_client: 100, ..NlmLimits::default() });
    let file = world.file("f");
    let count = || files_of_state(&world);
    let before = count();
    let (granted, refused): (Vec<_>, Vec<_>) = (0..66)
        .map(|number| world.host(1, &format!("host{number}")).lock(&file, "o", ALL, READ))
        .partition(|status| *status == Status::Granted);
    assert_eq!((granted.len(), refused.len()), (64, 2));
    assert!(refused.iter().all(|status| *status == Status::DeniedNoLocks));
    assert_eq!(count() - before, granted.len(), "each is on the disk");
}
