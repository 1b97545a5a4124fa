//! What version 3 may not do with a file while a client of another version holds it.

use super::*;
use crate::claims::{Access, Client as Claimant, Deny, FileKey, Holder};
use rpcrdma_nfs::v3::Status;

/// proves: NFS4-8881-9.7-v3
#[test]
fn a_share_reservation_binds_version_3_and_never_makes_it_ask_again() {
    let file_system = Arc::new(MemoryFs::new(1 << 20, &env()));
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", file_system.clone()).with_identities(identities);
    let server = Nfsd::new(vec![export], SECRET, &env()).unwrap();
    let client = Client::of(&server);
    let handle = client.new_file(&client.root(), "a");
    client.write(&handle, 0, "text").unwrap();
    let found = crate::testing::wait(file_system.lookup(crate::Caller::root(), file_system.root(), "a".into()));
    let file = FileKey { file_system: file_system.id(), file: found.unwrap().file };
    let owner = Holder::new(Claimant::V4(1), b"owner");
    let share = server.claims().share(file, &owner, Access::READ, Deny::WRITE).unwrap();
    assert_eq!(client.write(&handle, 0, "more").map(drop), Err(Status::ACCES));
    let cut = NewAttributes { size: Some(0), ..NewAttributes::default() };
    assert_eq!(client.set(&handle, cut).map(drop), Err(Status::ACCES));
    assert!(client.set(&handle, mode(0o600)).is_ok(), "only the size is the contents");
    assert_eq!(client.contents(&handle), b"text", "reading is not denied");
    let unchecked = NewAttributes { size: Some(0), ..NewAttributes::default() };
    let made = client.create(&client.root(), "a", rpcrdma_nfs::v3::CreateHow::Unchecked(unchecked));
    assert_eq!(made.map(drop), Err(Status::ACCES), "which would cut it");
    drop(share);
    let share = server.claims().share(file, &owner, Access::WRITE, Deny::READ).unwrap();
    assert_eq!(client.read(&handle, 0, 9).map(drop), Err(Status::ACCES));
    drop(share);
    client.write(&handle, 0, "more").unwrap();
    assert_eq!(client.contents(&handle), b"more");
}
