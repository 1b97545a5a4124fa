//! Version 4 and NLM see each other's locks, and both see those of the host's programs.

use super::{
    lock::{WRITE, first, lock, unlock},
    *,
};
use crate::{
    OfdLocks,
    claims::{HostLocks, Kind, Range},
    nlm::testing::{self as hosts, GRACE_SECONDS, World},
};
use rpcrdma_nfs::{
    nlm::{self, ShareAccess, ShareDeny},
    v3,
    v4::ops::{LockFailure, LockKind},
};

const ALL: (u64, u64) = (0, 0);

/// The handle of the same file in version 3.
fn for_3(file: &Handle) -> v3::Handle {
    v3::Handle::new(file.as_slice()).unwrap()
}

/// proves: NLM-BOTH-a
#[test]
fn locks_of_both_protocols_exclude_each_other() {
    for world in [World::memory(), World::directory()] {
        let (client, host) = (world.server.client("a"), world.host(1, "alpha"));
        let (file, opened) = create(&client, "f", "o");
        let of_3 = for_3(&file);
        assert_eq!(host.lock(&of_3, "p", (0, 10), hosts::WRITE), nlm::Status::Granted);
        let Err(LockFailure::Told(denied)) = lock(&client, &file, first(&client, opened, "l"), LockKind::Read, (5, 9))
        else {
            panic!("it was locked")
        };
        assert_eq!((denied.offset, denied.length, denied.kind), (0, 10, WRITE));
        assert!(denied.owner.client.0 >= 1 << 63, "no client of version 4 has this number");
        let locked = lock(&client, &file, first(&client, opened, "l"), WRITE, (10, 5)).unwrap();
        assert_eq!(host.lock(&of_3, "p", (14, 1), hosts::READ), nlm::Status::Denied);
        let holder = host.test(&of_3, "p", ALL, hosts::READ).unwrap_err().unwrap();
        assert_eq!((holder.exclusive, holder.process, holder.offset, holder.length), (true, 0, 10, 5));
        assert_eq!(host.wait(&of_3, "p", (14, 1), hosts::READ), nlm::Status::Blocked);
        unlock(&client, &file, locked, (0, u64::MAX)).unwrap();
        assert_eq!(world.called().len(), 1, "who waits for version 4 is told, too");
        assert!(lock(&client, &file, first(&client, opened, "m"), WRITE, (14, 1)).is_err());
        assert_eq!(host.unlock(&of_3, "p", ALL), nlm::Status::Granted);
        assert!(lock(&client, &file, first(&client, opened, "m"), WRITE, (0, 100)).is_ok());
    }
}

/// An owner of NLM can be longer than an owner of version 4 may be.
#[test]
fn a_long_owner_is_told_as_far_as_version_4_goes() {
    let world = World::memory();
    let (client, host) = (world.server.client("a"), world.host(1, "alpha"));
    let (file, opened) = create(&client, "f", "o");
    assert_eq!(host.lock(&for_3(&file), &"x".repeat(1024), ALL, hosts::WRITE), nlm::Status::Granted);
    let Err(LockFailure::Told(denied)) = lock(&client, &file, first(&client, opened, "l"), WRITE, (0, 1)) else {
        panic!("it was locked")
    };
    assert_eq!(denied.owner.name.as_slice().len(), 1024);
}

/// proves: NLM-BOTH-b
#[test]
fn a_program_of_the_host_is_excluded_by_both_and_excludes_both() {
    let world = World::directory();
    let (client, host) = (world.server.client("a"), world.host(1, "alpha"));
    let (file, opened) = create(&client, "f", "o");
    let of_3 = for_3(&file);
    let open = std::fs::File::options().read(true).write(true).open(world.server.served().join("f")).unwrap();
    let program = OfdLocks::new(open.into()).unwrap();
    let range = |first, last| Range::between(first, last).unwrap();
    assert_eq!(host.lock(&of_3, "p", (0, 10), hosts::READ), nlm::Status::Granted);
    assert!(program.set(range(0, 0), Some(Kind::Write)).is_err());
    assert!(program.set(range(0, 0), Some(Kind::Read)).is_ok());
    let shared = lock(&client, &file, first(&client, opened, "l"), LockKind::Read, (0, 5)).unwrap();
    assert_eq!(host.unlock(&of_3, "p", ALL), nlm::Status::Granted);
    assert!(program.set(range(4, 4), Some(Kind::Write)).is_err(), "version 4 still reads");
    assert!(program.set(range(5, 20), Some(Kind::Write)).is_ok());
    assert_eq!(host.lock(&of_3, "p", (20, 1), hosts::READ), nlm::Status::Denied);
    assert!(lock(&client, &file, first(&client, opened, "m"), LockKind::Read, (7, 1)).is_err());
    unlock(&client, &file, shared, (0, u64::MAX)).unwrap();
    assert_eq!(host.lock(&of_3, "p", (1, 4), hosts::WRITE), nlm::Status::Granted);
    world.notify(1, "alpha", 3);
    assert!(program.set(Range::ALL, Some(Kind::Write)).is_ok(), "and all is free when the host has started again");
}

/// proves: NLM-SHARE-a
#[test]
fn reservations_of_both_protocols_exclude_each_other() {
    for world in [World::memory(), World::directory()] {
        let (client, host) = (world.server.client("a"), world.host(1, "alpha"));
        let (file, opened) = create(&client, "f", "o");
        let of_3 = for_3(&file);
        assert_eq!(host.share(&of_3, "p", ShareAccess::Read, ShareDeny::Write), nlm::Status::Denied);
        assert_eq!(close(&client, &file, opened), Status::OK);
        assert_eq!(host.share(&of_3, "p", ShareAccess::Read, ShareDeny::Write), nlm::Status::Granted);
        assert_eq!(open(&client, "f", "o", WRITE_ACCESS, 0).err(), Some(Status::SHARE_DENIED));
        assert!(open(&client, "f", "o", READ, 0).is_ok());
        assert_eq!(host.unshare(&of_3, "p"), nlm::Status::Granted);
        assert!(open(&client, "f", "o", WRITE_ACCESS, 0).is_ok());
    }
}

const WRITE_ACCESS: u32 = super::WRITE;

/// proves: NLM-GRACE-a
#[test]
fn while_either_protocol_reclaims_nobody_gets_anything_new_by_the_other() {
    // A host had a lock: version 4 waits for it.
    let world = World::memory();
    let file = world.file("f");
    assert_eq!(world.host(1, "alpha").lock(&file, "p", ALL, hosts::WRITE), nlm::Status::Granted);
    let world = world.restart();
    let client = world.server.client("a");
    assert_eq!(open(&client, "f", "o", BOTH, 0).err(), Some(Status::GRACE));
    assert_eq!(world.host(1, "alpha").reclaim(&file, "p", ALL, hosts::WRITE), nlm::Status::Granted);
    world.pass(GRACE_SECONDS);
    let client = world.server.client("b");
    let (_, opened) = open(&client, "f", "o", BOTH, 0).unwrap();
    let of_4 = Handle::new(file.as_slice()).unwrap();
    assert!(lock(&client, &of_4, first(&client, opened, "l"), WRITE, (0, 1)).is_err());

    // A client of version 4 held something: hosts wait for it.
    let world = World::memory();
    let file = for_3(&create(&world.server.client("a"), "f", "o").0);
    let world = world.restart();
    let host = world.host(1, "alpha");
    assert_eq!(host.lock(&file, "p", ALL, hosts::WRITE), nlm::Status::DeniedGracePeriod);
    assert_eq!(host.reclaim(&file, "p", (0, 1), hosts::WRITE), nlm::Status::Granted);
    world.server.pass(600);
    assert_eq!(host.lock(&file, "p", ALL, hosts::WRITE), nlm::Status::Granted);
}
