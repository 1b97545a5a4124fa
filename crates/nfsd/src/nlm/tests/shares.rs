//! SHARE and UNSHARE.

use super::*;
use rpcrdma_nfs::nlm::{ShareAccess, ShareDeny};
use rpcrdma_nfs::v3;

/// proves: NLM-SHARE-a
#[test]
fn reservations_exclude_each_other() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(a.share(&file, "o", ShareAccess::Read, ShareDeny::Write), Status::Granted);
        assert_eq!(b.share(&file, "o", ShareAccess::Write, ShareDeny::None), Status::Denied);
        assert_eq!(b.share(&file, "o", ShareAccess::Read, ShareDeny::Read), Status::Denied);
        assert_eq!(b.share(&file, "o", ShareAccess::None, ShareDeny::None), Status::Granted, "that is nothing");
        assert_eq!(b.share(&file, "o", ShareAccess::Read, ShareDeny::Write), Status::Granted);
        assert_eq!(b.unshare(&file, "another"), Status::Granted);
        assert_eq!(a.share(&file, "p", ShareAccess::Both, ShareDeny::None), Status::Denied, "of the same host, too");
        assert_eq!(b.unshare(&file, "o"), Status::Granted);
        assert_eq!(a.unshare(&file, "o"), Status::Granted);
        assert_eq!(a.share(&file, "p", ShareAccess::Both, ShareDeny::Both), Status::Granted);
        assert_eq!((world.counts().shares, world.counts().owners), (1, 1));
        assert_eq!(a.unshare(&file, "p"), Status::Granted);
        assert_eq!((world.counts().shares, world.counts().owners), (0, 0));
    });
}

#[test]
fn an_owner_replaces_what_it_has() {
    on_each(|world| {
        let (a, b, file) = two(world);
        let is_free = |access, deny| {
            let free = b.share(&file, "o", access, deny) == Status::Granted;
            b.unshare(&file, "o");
            free
        };
        assert_eq!(a.share(&file, "o", ShareAccess::Both, ShareDeny::Both), Status::Granted);
        assert!(!is_free(ShareAccess::Read, ShareDeny::None));
        assert_eq!(a.share(&file, "o", ShareAccess::Read, ShareDeny::Write), Status::Granted, "less");
        assert!(is_free(ShareAccess::Read, ShareDeny::Write) && !is_free(ShareAccess::Write, ShareDeny::None));
        assert_eq!(a.share(&file, "o", ShareAccess::Both, ShareDeny::Write), Status::Granted, "more");
        assert!(!is_free(ShareAccess::Read, ShareDeny::Write) && is_free(ShareAccess::Read, ShareDeny::None));
        // After a refusal the host still has its earlier reservation.
        assert_eq!(b.share(&file, "o", ShareAccess::Read, ShareDeny::None), Status::Granted);
        assert_eq!(a.share(&file, "o", ShareAccess::Both, ShareDeny::Both), Status::Denied);
        assert_eq!(b.share(&file, "p", ShareAccess::Write, ShareDeny::None), Status::Denied);
        assert_eq!(b.share(&file, "p", ShareAccess::Read, ShareDeny::None), Status::Granted);
        assert_eq!(world.counts().shares, 3);
    });
}

/// proves: NLM-SHARE-b
#[test]
fn what_a_host_denies_binds_reading_and_writing_of_others_alone() {
    on_each(|world| {
        let (a, b, file) = two(world);
        let client = |last: u8| {
            let mut client = world.server.version_3();
            client.address = [192, 0, 2, last].into();
            client
        };
        let (of_a, of_b) = (client(1), client(2));
        of_a.write(&file, 0, "text").unwrap();
        assert_eq!(a.share(&file, "o", ShareAccess::Both, ShareDeny::Write), Status::Granted);
        assert_eq!(of_b.write(&file, 0, "more").map(drop), Err(v3::Status::ACCES));
        of_a.write(&file, 0, "more").unwrap();
        assert_eq!(of_b.contents(&file), b"more");
        assert_eq!(b.share(&file, "o", ShareAccess::Read, ShareDeny::None), Status::Granted);
        assert_eq!(a.unshare(&file, "o"), Status::Granted);
        assert_eq!(b.share(&file, "o", ShareAccess::Read, ShareDeny::Both), Status::Granted);
        assert_eq!(of_a.write(&file, 0, "less").map(drop), Err(v3::Status::ACCES));
        assert_eq!(of_a.read(&file, 0, 9).map(drop), Err(v3::Status::ACCES));
        of_b.write(&file, 0, "less").unwrap();
        assert_eq!(of_b.contents(&file), b"less");
    });
}
