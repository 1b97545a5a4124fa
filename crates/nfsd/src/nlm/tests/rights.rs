//! Which caller may lock what.

use super::*;
use crate::nfs4::testing::Setup;
use rpcrdma_nfs::{
    nlm::{ShareAccess, ShareDeny},
    v3::NewAttributes,
};

const ALL: (u64, u64) = (0, 0);
const OWNER: u32 = 1000;

/// A file of a user with this mode.
fn of_user(world: &World, name: &str, mode: u32) -> Handle {
    let file = world.file(name);
    let client = world.server.version_3();
    let attributes = NewAttributes { uid: Some(OWNER), gid: Some(OWNER), mode: Some(mode), ..NewAttributes::default() };
    client.set(&file, attributes).unwrap();
    file
}

/// proves: NLM-RIGHTS-a
#[test]
fn who_may_read_locks_for_reading_and_who_may_write_alone() {
    // If the server is not root, it serves a directory as its own user.
    let directory = rustix::process::geteuid().is_root().then(World::directory);
    [World::memory()].iter().chain(&directory).for_each(|world| {
        let (owner, other) = (world.host_as(1, "alpha", OWNER), world.host_as(2, "beta", 2000));
        for (mode, reads, writes) in
            [(0o600, false, false), (0o604, true, false), (0o602, false, true), (0o606, true, true)]
        {
            let file = of_user(world, &format!("{mode:o}"), mode);
            for (exclusive, may) in [(READ, reads), (WRITE, writes)] {
                let expected = if may { Status::Granted } else { Status::Failed };
                assert_eq!(other.lock(&file, "o", ALL, exclusive), expected, "{mode:o}");
                assert_eq!(other.unlock(&file, "o", ALL), Status::Granted);
                assert_eq!(owner.lock(&file, "o", ALL, exclusive), Status::Granted, "its owner: {mode:o}");
                assert_eq!(owner.unlock(&file, "o", ALL), Status::Granted);
            }
            let tested = other.test(&file, "o", ALL, WRITE);
            assert_eq!(tested.is_ok(), reads || writes, "{mode:o}");
            let shared = other.share(&file, "o", ShareAccess::Both, ShareDeny::None);
            assert_eq!(shared == Status::Granted, reads && writes);
            assert_eq!(other.unshare(&file, "o"), Status::Granted);
        }
        // The owner may have opened the file before its mode forbade that.
        let closed = of_user(world, "closed", 0);
        assert_eq!(owner.lock(&closed, "o", ALL, READ), Status::Granted);
    });
}

/// proves: NLM-RIGHTS-b
#[test]
fn what_can_only_be_read_is_locked_for_reading_alone() {
    let setup = Setup { read_only: true, ..Setup::default() };
    let server = crate::nfs4::testing::TestServer::memory_with(Setup { read_only: false, ..setup });
    // Made while the export could be written to.
    let made = {
        let client = server.version_3();
        client.new_file(&client.root(), "f")
    };
    let world = World::with(server.restart_with(setup), NlmLimits::default());
    let a = world.host(1, "alpha");
    assert_eq!(a.lock(&made, "o", ALL, WRITE), Status::ReadOnly);
    assert_eq!(a.lock(&made, "o", ALL, READ), Status::Granted);
    assert_eq!(a.share(&made, "o", ShareAccess::Write, ShareDeny::None), Status::ReadOnly);
    assert_eq!(a.share(&made, "o", ShareAccess::Both, ShareDeny::None), Status::ReadOnly);
    assert_eq!(a.share(&made, "o", ShareAccess::Read, ShareDeny::Write), Status::Granted);
}
