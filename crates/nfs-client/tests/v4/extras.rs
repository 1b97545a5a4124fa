//! What only some versions have, in [`Files`]' form: extended attributes, access control lists, holes, copies that the
//! server makes, and locks. If a version lacks one, the error says so.

use crate::{
    every::contents,
    files::{files_of, in_every_version, mode, name},
    house::{House, LEASE},
};
use bytes::Bytes;
use rpcrdma_nfs::{
    attr::{Acls, PosixAcl, Stability},
    v4::{Op, Outcome, ace},
};
use rpcrdma_nfs_client::{
    Access, Cause, CreateHow, Error, File, Files, Handle, LockKind, SetXattr, Sought, Span, TO_THE_END,
};
use std::{fmt::Debug, time::Duration};

async fn made(files: &Files, root: &Handle, called: &str, contents: &Bytes) -> File {
    let made = files.create(root, &name(called), CreateHow::Guarded(mode(0o640))).await.unwrap();
    if !contents.is_empty() {
        made.file.write(0, Stability::FileSync, contents.clone()).await.unwrap();
    }
    made.file
}

/// The text of an error that says that the version lacks something.
fn not_supported(done: Result<impl Debug, Error>) -> String {
    let error = done.unwrap_err();
    assert!(error.is_not_supported() && error.procedure().is_some(), "{error:?}");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn extended_attributes_are_set_listed_and_removed() {
    in_every_version(async |files, root, minor, _| {
        let file = made(files, root, "file", &Bytes::new()).await;
        let (handle, colour) = (file.handle(), name("colour"));
        let set = async |value: &'static str, how| files.set_xattr(&handle, &colour, value.into(), how).await;
        if minor != Some(2) {
            let told = not_supported(set("green", SetXattr::Either).await);
            assert_eq!(told.contains("version 4.2 has"), minor.is_none(), "{told}");
            not_supported(files.xattr(&handle, &colour).await);
            not_supported(files.xattrs(&handle).await);
            not_supported(files.remove_xattr(&handle, &colour).await);
            return;
        }
        assert!(set("green", SetXattr::Replace).await.is_err(), "it is not there");
        set("green", SetXattr::Create).await.unwrap();
        assert!(set("blue", SetXattr::Create).await.unwrap_err().exists());
        set("blue", SetXattr::Replace).await.unwrap();
        assert_eq!(files.xattr(&handle, &colour).await.unwrap(), "blue");
        set("red", SetXattr::Either).await.unwrap();
        files.set_xattr(&handle, &name("empty"), Bytes::new(), SetXattr::default()).await.unwrap();
        let mut names = files.xattrs(&handle).await.unwrap();
        names.sort();
        assert_eq!(names, [colour.clone(), name("empty")]);
        assert_eq!(files.xattr(&handle, &colour).await.unwrap(), "red");
        assert!(files.xattr(&handle, &name("empty")).await.unwrap().is_empty());
        files.remove_xattr(&handle, &colour).await.unwrap();
        assert!(files.xattr(&handle, &colour).await.is_err());
        file.close().await.unwrap();
    })
    .await;
}

/// POSIX lists of version 3, from NFSACL.
async fn posix_lists(files: &Files, file: &Handle) {
    let before = files.posix_acls(file).await.unwrap();
    assert_eq!(before, Acls::of_mode(files.getattr(file).await.unwrap().mode));
    let access = PosixAcl::new([6, 4, 0], vec![(4711, 4)], vec![], Some(4)).unwrap();
    let acls = Acls { access, default: None };
    match files.set_posix_acls(file, &acls).await {
        // The file system of the test's directory has no lists.
        Err(error) => assert!(error.is_not_supported(), "{error:?}"),
        Ok(()) => assert_eq!(files.posix_acls(file).await.unwrap(), acls),
    }
}

/// With lists, if the file system of the test's directory has them.
#[tokio::test(start_paused = true)]
async fn access_control_lists_are_read_and_set() {
    for minor in [None, Some(0), Some(1), Some(2)] {
        let directory = tempfile::tempdir().unwrap();
        let house = House::on_disk(directory.path());
        let (files, root, _) = files_of(&house, minor).await;
        let file = made(&files, &root, "file", &Bytes::new()).await;
        let handle = file.handle();
        let mut acl = match files.acl(&handle).await {
            Ok(acl) => acl,
            // The file system of the test's directory has no lists.
            Err(error) if minor.is_some() => return assert!(error.is_not_supported(), "{error:?}"),
            Err(error) => {
                assert!(not_supported(Err::<(), _>(error)).contains("version 4 has"));
                not_supported(files.set_acl(&handle, &Vec::new().into()).await);
                posix_lists(&files, &handle).await;
                continue;
            }
        };
        assert!(not_supported(files.posix_acls(&handle).await.map(|_| ())).contains("version 3 has"));
        let reader = ace::READ_DATA | ace::READ_ATTRIBUTES | ace::READ_ACL | ace::SYNCHRONIZE;
        let entry = rpcrdma_nfs::v4::Ace { kind: ace::ALLOWED, flags: 0, rights: reader, who: "4711".into() };
        acl.0.insert(1, entry.clone());
        files.set_acl(&handle, &acl).await.unwrap();
        assert!(files.acl(&handle).await.unwrap().contains(&entry));
        let kept = rustix::fs::getxattr(directory.path().join("served/file"), "system.posix_acl_access", &mut [0; 256]);
        assert_eq!(kept, Ok(4 + 5 * 8), "owner, a user, group, mask, others");
        file.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn holes_are_made_and_found() {
    in_every_version(async |files, root, minor, _| {
        const HOLE: u64 = 256 << 10;
        let data = contents(1 << 20);
        let file = made(files, root, "file", &data).await;
        if minor != Some(2) {
            let told = not_supported(file.seek(0, Sought::Data).await);
            assert_eq!(told.contains("knows nothing of holes"), minor.is_none(), "{told}");
            not_supported(file.allocate(0, 10).await);
            not_supported(file.deallocate(0, 10).await);
            return;
        }
        file.deallocate(HOLE, HOLE).await.unwrap();
        assert_eq!(file.seek(0, Sought::Data).await.unwrap(), Some(0));
        assert_eq!(file.seek(0, Sought::Hole).await.unwrap(), Some(HOLE));
        assert_eq!(file.seek(HOLE, Sought::Data).await.unwrap(), Some(2 * HOLE));
        assert_eq!(file.seek(2 * HOLE, Sought::Hole).await.unwrap(), Some(1 << 20), "the end is one");
        assert_eq!(file.seek(1 << 20, Sought::Data).await.unwrap(), None);
        let read = file.read(HOLE - 1, 2).await.unwrap().data;
        assert_eq!(read[..], [data[HOLE as usize - 1], 0]);
        file.allocate(0, 2 << 20).await.unwrap();
        assert_eq!(file.getattr().await.unwrap().size, 2 << 20);
        file.close().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_server_copies() {
    in_every_version(async |files, root, minor, wire| {
        let data = contents(300_000);
        let (source, target) =
            (made(files, root, "source", &data).await, made(files, root, "target", &Bytes::new()).await);
        let span = Span { source_offset: 1_000, offset: 500, count: 100_000 };
        if minor != Some(2) {
            not_supported(source.copy(&target, span).await);
            not_supported(source.clone_range(&target, span).await);
            return;
        }
        let mut copied = 0;
        while copied < span.count {
            let (source_offset, offset) = (span.source_offset + copied, span.offset + copied);
            let rest = Span { source_offset, offset, count: span.count - copied };
            let done = source.copy(&target, rest).await.unwrap();
            assert!(done.count > 0 && done.verifier.is_some(), "{done:?}");
            copied += done.count;
        }
        assert!(target.read(500, 100_000).await.unwrap().data == data[1_000..101_000]);
        assert!(target.read(0, 500).await.unwrap().data.iter().all(|octet| *octet == 0));
        match source.clone_range(&target, Span { source_offset: 0, offset: 0, count: 0 }).await {
            Ok(()) => assert!(target.read(0, 300_000).await.unwrap().data == data),
            Err(error) => assert!(error.is_not_supported(), "{error:?}"),
        }
        // If a server has copied more than the client asked for, it has written where it must not.
        wire.after(|_, results| {
            for outcome in &mut results.results {
                if let Outcome::Copy(Ok(copied)) = outcome {
                    copied.response.count += 1;
                    copied.response.callback = None;
                }
            }
            crate::house::Fate::Arrives
        });
        let lied = source.copy(&target, span).await.unwrap_err();
        assert!(matches!(lied, Error::Nonsense { procedure: "COPY", .. }), "{lied:?}");
        wire.honest();
        source.close().await.unwrap();
        target.close().await.unwrap();
    })
    .await;
}

/// Two clients may have two servers, whose files have nothing to do with each other.
#[tokio::test(start_paused = true)]
async fn files_of_two_clients_are_not_copied_by_a_server() {
    let house = House::new();
    let ((files, root, _), (others, _, wire)) = (files_of(&house, Some(2)).await, files_of(&house, Some(2)).await);
    let source = made(&files, &root, "source", &contents(10)).await;
    let target = made(&others, &root, "target", &Bytes::new()).await;
    wire.calls();
    let span = Span { source_offset: 0, offset: 0, count: 10 };
    for refused in
        [source.copy(&target, span).await.map(drop).unwrap_err(), source.clone_range(&target, span).await.unwrap_err()]
    {
        assert_eq!(refused.cause(), Some(Cause::OtherFileSystem));
    }
    assert!(!wire.calls().iter().any(|call| call.ops.iter().any(|args| matches!(args.op(), Op::Copy | Op::Clone))));
}

#[tokio::test(start_paused = true)]
async fn locks_exclude_each_other_and_are_waited_for() {
    in_every_version(async |files, root, minor, _| {
        let first = made(files, root, "file", &contents(100)).await;
        if minor.is_none() {
            let told = not_supported(first.lock(LockKind::Exclusive, 0, TO_THE_END).await);
            assert!(told.contains("NLM"), "{told}");
            not_supported(first.lock_when_free(LockKind::Exclusive, 0, 1).await);
            not_supported(first.test_lock(LockKind::Exclusive, 0, 1).await);
            not_supported(first.unlock(0, 1).await);
            not_supported(first.is_held());
            assert_eq!(files.lease_left(), None);
            return;
        }
        let second = files.open_at(root, &name("file"), Access::Both).await.unwrap();
        first.lock(LockKind::Exclusive, 10, 10).await.unwrap();
        first.lock(LockKind::Shared, 50, TO_THE_END).await.unwrap();
        second.lock(LockKind::Shared, 60, 1).await.unwrap();
        let error = second.lock(LockKind::Shared, 15, 1).await.unwrap_err();
        let conflict = error.conflict().unwrap().clone();
        assert_eq!((conflict.offset, conflict.length), (10, 10));
        assert!(error.to_string().ends_with("the holder calls itself \"lock 0 of test\""), "{error}");
        assert_eq!(second.test_lock(LockKind::Exclusive, 15, 1).await.unwrap(), Some(conflict));
        assert_eq!(second.test_lock(LockKind::Exclusive, 0, 10).await.unwrap(), None);

        let waiter = second.clone();
        let waits = tokio::spawn(async move { waiter.lock_when_free(LockKind::Exclusive, 15, 1).await });
        tokio::time::sleep(2 * LEASE).await;
        assert!(!waits.is_finished());
        // Meanwhile the driver keeps the lease.
        first.is_held().unwrap();
        let left = files.lease_left().unwrap();
        assert!(left > Duration::ZERO && left <= LEASE, "{left:?}");
        first.unlock(10, 10).await.unwrap();
        waits.await.unwrap().unwrap();
        assert!(first.lock(LockKind::Shared, 15, 1).await.unwrap_err().conflict().is_some());
        first.close().await.unwrap();
        second.close().await.unwrap();
    })
    .await;
}

/// After it was cut off for longer than the lease, a client does not believe that it still has the lock.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_is_known_to_be_lost() {
    for minor in 0..=2 {
        let house = House::new();
        let (files, root, wire) = files_of(&house, Some(minor)).await;
        let (others, _, _) = files_of(&house, Some(minor)).await;
        let file = made(&files, &root, "file", &contents(100)).await;
        file.lock(LockKind::Exclusive, 0, TO_THE_END).await.unwrap();
        wire.before(|_| crate::house::Fate::Fails);
        tokio::time::sleep(LEASE + LEASE / 2).await;
        assert_eq!(files.lease_left(), Some(Duration::ZERO), "nothing was heard");
        let theirs = others.open_at(&root, &name("file"), Access::Both).await.unwrap();
        theirs.lock(LockKind::Exclusive, 0, TO_THE_END).await.unwrap();
        wire.honest();
        tokio::time::sleep(LEASE).await;
        let lost = file.is_held().unwrap_err();
        assert!(lost.is_lost() && !lost.is_not_supported(), "minor version {minor}: {lost:?}");
        theirs.close().await.unwrap();
    }
}
