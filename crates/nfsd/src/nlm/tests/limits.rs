//! Everything that a host can make the server keep or do has a limit: at the limit, and one past it.

use super::*;
use rpcrdma_nfs::nlm::ShareAccess;
use rpcrdma_nfs::nlm::ShareDeny;

const ALL: (u64, u64) = (0, 0);

fn limits() -> NlmLimits {
    NlmLimits::default()
}

#[test]
fn hosts() {
    let world = World::limited(NlmLimits { hosts: 3, hosts_of_client: 2, ..limits() });
    let file = world.file("f");
    let lock = |last, name: &str| world.host(last, name).lock(&file, "o", ALL, READ);
    assert_eq!([lock(1, "a"), lock(1, "b")], [Status::Granted; 2]);
    assert_eq!(lock(1, "c"), Status::DeniedNoLocks, "one past those of a client");
    assert_eq!(lock(2, "a"), Status::Granted);
    assert_eq!(lock(3, "a"), Status::DeniedNoLocks, "one past those of all");
    assert_eq!(lock(1, "a"), Status::Granted, "who is known goes on");
    assert_eq!(world.host(2, "a").unlock(&file, "o", ALL), Status::Granted);
    assert_eq!(lock(3, "a"), Status::Granted, "who holds nothing makes room");
    assert_eq!(world.counts().hosts, 3);
    world.host(3, "a").free_all();
    world.pass(300);
    assert_eq!(world.counts().hosts, 2, "and is forgotten after a while");
}

#[test]
fn owners_of_a_host_and_of_all() {
    let world = World::limited(NlmLimits { owners_of_host: 2, owners: 3, ..limits() });
    let (a, b, file) = two(&world);
    assert_eq!(a.lock(&file, "1", ALL, READ), Status::Granted);
    assert_eq!(a.share(&file, "2", ShareAccess::Read, ShareDeny::None), Status::Granted);
    assert_eq!(a.lock(&file, "3", ALL, READ), Status::DeniedNoLocks);
    assert_eq!(a.share(&file, "3", ShareAccess::Read, ShareDeny::None), Status::DeniedNoLocks);
    assert_eq!(a.lock(&file, "1", (0, 5), READ), Status::Granted, "who has something goes on");
    assert_eq!(b.lock(&file, "1", ALL, READ), Status::Granted);
    assert_eq!(b.lock(&file, "2", ALL, READ), Status::DeniedNoLocks, "one past those of all");
    assert_eq!(b.share(&file, "2", ShareAccess::Read, ShareDeny::None), Status::DeniedNoLocks);
    assert_eq!(a.unshare(&file, "2"), Status::Granted);
    assert_eq!(b.lock(&file, "2", ALL, READ), Status::Granted);
    assert_eq!(world.counts().owners, 3);
}

#[test]
fn ranges_of_a_host() {
    let world = World::limited(NlmLimits { locks_of_host: 2, ..limits() });
    let (a, b, file) = two(&world);
    assert_eq!([a.lock(&file, "o", (0, 1), READ), a.lock(&file, "o", (2, 1), READ)], [Status::Granted; 2]);
    assert_eq!(a.lock(&file, "o", (4, 1), READ), Status::DeniedNoLocks);
    assert_eq!(a.wait(&file, "o", (4, 1), READ), Status::DeniedNoLocks);
    assert_eq!(b.lock(&file, "o", (4, 1), READ), Status::Granted);
    assert_eq!(a.unlock(&file, "o", (2, 1)), Status::Granted);
    assert_eq!(a.lock(&file, "o", (4, 1), READ), Status::Granted);
}

#[test]
fn locks_that_are_waited_for() {
    let world = World::limited(NlmLimits { waiting_of_host: 2, waiting: 3, ..limits() });
    let (a, b, file) = two(&world);
    let c = world.host(3, "gamma");
    assert_eq!(c.lock(&file, "o", ALL, WRITE), Status::Granted);
    assert_eq!([a.wait(&file, "1", ALL, READ), a.wait(&file, "2", ALL, READ)], [Status::Blocked; 2]);
    assert_eq!(a.wait(&file, "3", ALL, READ), Status::DeniedNoLocks, "one past those of a host");
    assert_eq!(a.wait(&file, "1", ALL, READ), Status::Blocked, "who waits goes on");
    assert_eq!(b.wait(&file, "1", ALL, READ), Status::Blocked);
    assert_eq!(b.wait(&file, "2", ALL, READ), Status::DeniedNoLocks, "one past those of all");
    assert_eq!(b.wait(&file, "1", ALL, READ), Status::Blocked, "who waits goes on");
    assert_eq!(a.cancel(&file, "2", ALL, READ), Status::Granted);
    assert_eq!(b.wait(&file, "2", ALL, READ), Status::Blocked);
    assert_eq!(world.counts().waiting, 3);
}

/// A silent host has at most this many calls under way, and the server still calls other hosts. It does not take a lock
/// from others for a host that it cannot call yet.
#[test]
fn calls_under_way() {
    let world = World::limited(NlmLimits { calls_to_client: 2, calls: 3, ..limits() });
    let (a, b, file) = two(&world);
    let c = world.host(3, "gamma");
    assert_eq!(c.lock(&file, "o", ALL, WRITE), Status::Granted);
    for owner in ["1", "2", "3"] {
        assert_eq!(a.wait(&file, owner, ALL, READ), Status::Blocked);
    }
    assert_eq!(b.wait(&file, "1", ALL, READ), Status::Blocked);
    *world.ears.is_silent.lock().unwrap() = true;
    assert_eq!(c.unlock(&file, "o", ALL), Status::Granted);
    let count =
        |host: &TestHost, called: &[crate::OutsideCall]| called.iter().filter(|call| call.to == host.address()).count();
    let called = world.called();
    assert_eq!((count(&a, &called), count(&b, &called), world.counts().calls), (2, 1, 3));
    a.call::<()>(Procedure::LockMessage, &a.to_lock(a.place(&file, "4", ALL), READ, false));
    c.call::<()>(Procedure::LockMessage, &c.to_lock(c.place(&file, "o", ALL), READ, false));
    assert_eq!(world.called(), [], "one past both limits: they ask again");
    assert_eq!(world.counts().calls, 3);
}

/// A client can claim to be any number of hosts.
#[test]
fn the_hosts_of_one_client_leave_half_to_others() {
    let limits = limits();
    let hosts = limits.hosts_of_client;
    assert!(hosts * limits.owners_of_host <= limits.owners / 2);
    assert!(hosts * limits.waiting_of_host <= limits.waiting / 2);
    assert!(hosts * limits.locks_of_host <= crate::claims::MAX_RANGES / 2);
}
