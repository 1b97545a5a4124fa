//! Exports, flavours, claims and MOUNT, which version 2 shares with the other versions.

use super::*;
use crate::{
    Securities, Security,
    claims::{Access, Client as Claimant, Deny, FileKey, Holder},
    testing::Believed,
};
use rpcrdma_nfs::mount;
use rpcrdma_oncrpc::{AuthStat, Rejection, gss::GssService};
use rpcrdma_xdr::{Encode, Encoder, Payload};

fn tree() -> Arc<MemoryFs> {
    Arc::new(MemoryFs::new(1 << 20, &env()))
}

fn refusal<C: Call>(client: &Client, call: C) -> Option<Rejection> {
    let mut encoder = Encoder::new();
    call.encode(&mut encoder);
    client.raw(C::PROGRAM, C::VERSION, C::PROCEDURE, encoder.finish()).err()
}

#[test]
fn both_versions_of_mount_tell_the_root() {
    let client = in_memory();
    let path = || DirectoryPath("/".into());
    assert_eq!(mounted(&client, "/none"), Err(mount::Status::NOENT.0));
    assert_eq!(mounted(&client, "none"), Err(mount::Status::NOENT.0));
    let make = v2::MakeDirectory { directory: root(&client), name: "d".into(), attributes: mode(0o755) };
    let below = ask(&client, make).unwrap().file;
    assert_eq!(mounted(&client, "/d"), Ok(below));
    create(&client, root(&client), "f", mode(0o644)).unwrap();
    assert_eq!(mounted(&client, "/f"), Err(mount::Status::NOTDIR.0));
    let mut encoder = Encoder::new();
    path().encode(&mut encoder);
    let raw = |procedure, args| client.raw(mount::PROGRAM, mount::VERSION_2, procedure, args);
    assert_eq!(raw(mount::procedure::MOUNT, encoder.finish()).unwrap().remaining(), 4 + 32);
    assert!(raw(mount::procedure::EXPORT_ALL, Payload::new()).is_ok());
    assert_eq!(raw(7, Payload::new()).map(drop), Err(Rejection::ProcedureUnavailable), "limits of names");
}

#[test]
fn where_version_2_is_not_served_nothing_of_it_is_there() {
    let client = Client::serving(tree());
    assert_eq!(mounted(&client, "/"), Err(mount::Status::ACCES.0));
    let mismatch = client.raw(v2::PROGRAM, v2::VERSION, 0, Payload::new()).map(drop);
    assert!(matches!(mismatch, Err(Rejection::ProgramMismatch { low: 3, high: 3 })), "{mismatch:?}");
    assert!(client.raw(mount::PROGRAM, mount::VERSION_2, 1, Payload::new()).is_err());
}

/// A server of version 2 alone has no other version.
#[test]
fn version_2_can_stand_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(scratch.path(), &*env().random).unwrap();
    let nfsd = Nfsd::new(vec![trusting(tree())], SECRET, &env()).unwrap();
    let client = Client::of(&nfsd.with_version_2((&state, 1, Queue::in_place()), false, &env()).unwrap());
    assert!(create(&client, root(&client), "f", mode(0o644)).is_ok());
    let mismatch = client.raw(v2::PROGRAM, 3, 0, Payload::new()).map(drop);
    assert!(matches!(mismatch, Err(Rejection::ProgramMismatch { low: 2, high: 2 })), "{mismatch:?}");
}

/// proves: NFS3-2623-2.3-a
#[test]
fn a_flavour_that_the_export_does_not_take_is_too_weak() {
    let scratch = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(scratch.path(), &*env().random).unwrap();
    let export = trusting(tree()).with_securities(Securities::new([Security::Krb5]));
    let nfsd = Nfsd::new(vec![export], SECRET, &env()).unwrap().with_flavour(Arc::new(Believed), &env());
    let weak = Client::of(&nfsd.with_version_2((&state, 1, Queue::in_place()), true, &env()).unwrap());
    let top = root(&weak);
    let mut strong = weak.as_user(7, 7, &[]);
    strong.proven = Some((GssService::Authentication, "alice@REALM"));
    let too_weak = Some(Rejection::Auth(AuthStat::TOO_WEAK));
    assert_eq!(refusal(&weak, v2::Lookup { directory: top, name: "..".into() }), too_weak);
    assert_eq!(refusal(&weak, v2::ReadDirectory { directory: top, cookie: 0, count: 100 }), too_weak);
    assert_eq!(refusal(&weak, v2::GetAttributes { file: top }), None, "asked of the root before a flavour is known");
    assert_eq!(refusal(&weak, v2::FileSystemStatus { root: top }), None);
    assert!(lookup(&strong, top, ".").is_ok());
}

#[test]
fn exports_are_read_only_or_for_others_as_they_are_for_version_3() {
    let scratch = tempfile::tempdir().unwrap();
    let file_system = tree();
    let all = Client::of(&serving(trusting(file_system.clone()), &scratch.path().join("1"), &env()));
    let file = create(&all, root(&all), "f", mode(0o644)).unwrap().file;
    write(&all, file, 0, b"text").unwrap();
    let export = trusting(file_system.clone()).with_read_only(true);
    let client = Client::of(&serving(export, &scratch.path().join("2"), &env()));
    let top = root(&client);
    let file = lookup(&client, top, "f").unwrap().file;
    assert_eq!(read(&client, file, 0, 9).unwrap(), b"text");
    let refused = [
        write(&client, file, 0, b"more").map(drop),
        set(&client, file, mode(0o600)).map(drop),
        create(&client, top, "g", mode(0o644)).map(drop),
        ask(&client, v2::Remove { directory: top, name: "f".into() }),
        ask(&client, v2::Link { file, directory: top, name: "g".into() }),
    ];
    assert!(refused.iter().all(|status| *status == Err(Status::ROFS)), "{refused:?}");
    let export = trusting(file_system).with_allow(vec!["192.0.2.0/24".parse().unwrap()]);
    let mut near = Client::of(&serving(export, &scratch.path().join("3"), &env()));
    assert_eq!(mounted(&near, "/"), Err(mount::Status::ACCES.0));
    near.address = [192, 0, 2, 1].into();
    let top = root(&near);
    near.address = [127, 0, 0, 1].into();
    assert_eq!(attributes(&near, top).map(drop), Err(Status::ACCES));
}

#[test]
fn the_superuser_is_nobody_unless_he_is_trusted() {
    let scratch = tempfile::tempdir().unwrap();
    let client = Client::of(&serving(Export::new("/", tree()), scratch.path(), &env()));
    assert_eq!(create(&client, root(&client), "f", mode(0o644)).map(drop), Err(Status::ACCES));
}

#[test]
fn what_others_deny_is_denied() {
    let scratch = tempfile::tempdir().unwrap();
    let file_system = tree();
    let server = serving(trusting(file_system.clone()), scratch.path(), &env());
    let client = Client::of(&server);
    let file = create(&client, root(&client), "a", mode(0o644)).unwrap().file;
    let found = crate::testing::wait(file_system.lookup(crate::Caller::root(), file_system.root(), "a".into()));
    let key = FileKey { file_system: file_system.id(), file: found.unwrap().file };
    let owner = Holder::new(Claimant::V4(1), b"owner");
    let share = server.claims().share(key, &owner, Access::BOTH, Deny::BOTH).unwrap();
    assert_eq!(write(&client, file, 0, b"more").map(drop), Err(Status::ACCES));
    assert_eq!(read(&client, file, 0, 9), Err(Status::ACCES));
    drop(share);
    assert!(write(&client, file, 0, b"more").is_ok());
}

/// A handle of either version means the same file, and each version sees the other's changes.
#[test]
fn both_versions_see_the_same_files() {
    on_each(|client| {
        let file = create(client, root(client), "f", mode(0o644)).unwrap().file;
        write(client, file, 0, b"by the second").unwrap();
        let three = client.lookup(&client.root(), "f").unwrap().file;
        assert_eq!(client.contents(&three), b"by the second");
        client.write(&three, 0, "by the third!").unwrap();
        assert_eq!(read(client, file, 0, 99).unwrap(), b"by the third!");
    });
}
