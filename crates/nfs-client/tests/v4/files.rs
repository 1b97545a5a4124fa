//! [`Files`] over every version: what programs do with files is the same in all of them.

use crate::{
    every::contents,
    house::{House, Shared, Wire},
};
use rpcrdma_env::Buffer;
use rpcrdma_nfs::{
    attr::{FileType, NewAttributes, SetTime, Stability, Time},
    v3,
    v4::{Op, PROGRAM, Status},
};
use rpcrdma_nfs_client::{
    Access, Cause, CreateHow, Error, Files, Handle, Name, Nfs3, Node, NodeKind, Place, Reader, Verifier, Writer,
    v4::{Nfs4, Options},
};
use rpcrdma_oncrpc::{Client, SysAuth, SysCredential};
use std::sync::Arc;

pub(crate) fn name(text: &str) -> Name {
    Name::from(text)
}

pub(crate) fn mode(mode: u32) -> NewAttributes {
    NewAttributes { mode: Some(mode), ..NewAttributes::default() }
}

/// A client of a version, or of a minor version of 4, its root and its wire.
pub(crate) async fn files_of(house: &House, minor: Option<u32>) -> (Files, Handle, Arc<Wire>) {
    // In every version, the export's root is the root of the whole tree.
    let (nfs, wire) = house.client(minor.unwrap_or(2)).await;
    let root = Handle::from(&nfs.root().await.unwrap().file);
    let files = match minor {
        None => {
            let identity = Arc::new(SysAuth::new(SysCredential::default()));
            let client = Client::new(Arc::new(Shared(wire.clone())), identity, PROGRAM, v3::VERSION);
            Files::from(Nfs3::new(client, house.env.clock.clone()))
        }
        Some(_) => Files::from(nfs),
    };
    (files, root, wire)
}

/// The same server in each version; minor versions of 4 have a number.
pub(crate) async fn in_every_version(test: impl AsyncFn(&Files, &Handle, Option<u32>, &Arc<Wire>)) {
    for minor in [None, Some(0), Some(1), Some(2)] {
        println!("minor version {minor:?}");
        let house = House::new();
        let (files, root, wire) = files_of(&house, minor).await;
        assert_eq!(files.version_4().map(Nfs4::minor), minor);
        assert_eq!(files.version_3().is_some(), minor.is_none());
        files.null().await.unwrap();
        test(&files, &root, minor, &wire).await;
    }
}

#[tokio::test(start_paused = true)]
async fn data_is_written_and_read() {
    in_every_version(async |files, root, _, _| {
        let transfer = files.transfer(root).await.unwrap();
        assert!(transfer.read >= 64 << 10 && transfer.write >= 64 << 10 && transfer.directory >= 4096, "{transfer:?}");
        let data = contents(3_000_001);
        let made = files.create(root, &name("file"), CreateHow::Guarded(mode(0o640))).await.unwrap();
        assert_eq!(made.attributes.map(|attributes| attributes.mode), Some(0o640));
        let mut writer = Writer::new(made.file.clone(), 100_000, 8);
        writer.write(0, data.clone()).await.unwrap();
        writer.finish().await.unwrap();
        assert_eq!(made.file.getattr().await.unwrap().size, 3_000_001);
        let file = made.file.handle();
        made.file.close().await.unwrap();

        let found = files.lookup(root, &name("file")).await.unwrap();
        assert_eq!((&found.file, found.attributes.size), (&file, 3_000_001));
        for opened in [
            files.open(&found, Access::Read).await.unwrap(),
            files.open(&found.file, Access::Read).await.unwrap(),
            files.open_at(root, &name("file"), Access::Read).await.unwrap(),
        ] {
            assert_eq!(opened.handle(), file);
            let mut reader = Reader::new(opened.clone(), 1, u64::MAX, 100_000, 8);
            let mut read = Vec::new();
            while let Some(block) = reader.next().await.unwrap() {
                assert_eq!(block.offset, read.len() as u64 + 1);
                read.extend_from_slice(&block.data);
            }
            assert!(read == data[1..]);
            let read = opened.read_into(7, Buffer::from_vec(vec![0; 1_000])).await.unwrap();
            assert!(read.data.as_slice() == &data[7..1_007] && !read.end);
            drop(reader);
            opened.close().await.unwrap();
        }

        let opened = files.open(&found, Access::Write).await.unwrap();
        let written = opened.write(2, Stability::Unstable, "xy".into()).await.unwrap();
        assert_eq!((written.count, opened.commit(0, 0).await.unwrap()), (2, written.verifier));
        let written = opened.write(4, Stability::FileSync, "z".into()).await.unwrap();
        assert_eq!((written.count, written.committed), (1, Stability::FileSync));
        let shorter = NewAttributes { size: Some(5), modified: SetTime::Client(Time::new(9, 8)), ..mode(0o400) };
        let set = opened.setattr(shorter).await.unwrap().unwrap();
        assert_eq!((set.size, set.mode, set.modified), (5, 0o400, Time::new(9, 8)));
        let set = opened.setattr(mode(0o600)).await.unwrap().unwrap();
        assert_eq!(set.mode, 0o600);
        opened.close().await.unwrap();
        let opened = files.open(&found, Access::Both).await.unwrap();
        let read = opened.read(0, 100).await.unwrap();
        assert_eq!((&read.data[2..], read.end), (&b"xyz"[..], true));
        opened.close().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn names_are_made_changed_and_taken_away() {
    in_every_version(async |files, root, minor, _| {
        let masked = NewAttributes { umask: 0o027, ..mode(0o777) };
        let directory = files.mkdir(root, &name("directory"), masked).await.unwrap();
        assert_eq!(directory.attributes.map(|attributes| attributes.mode), Some(0o750));
        let directory = directory.file;
        let taken = files.mkdir(root, &name("directory"), masked).await.unwrap_err();
        assert!(taken.exists() && taken.has_made_nothing() && !taken.is_after_creation());
        let (procedure, status) =
            if minor.is_none() { ("MKDIR", "NFS3ERR_EXIST") } else { ("CREATE", "NFS4ERR_EXIST") };
        assert_eq!((taken.procedure(), taken.status().map(|status| status.name())), (Some(procedure), Some(status)));

        let link = files.symlink(&directory, &name("link"), mode(0o777), "target".into()).await.unwrap();
        assert_eq!(files.readlink(&link.file).await.unwrap(), "target");
        files.mknod(&directory, &name("fifo"), NodeKind::Fifo, mode(0o600)).await.unwrap();
        files.mknod(&directory, &name("socket"), NodeKind::Socket, mode(0o600)).await.unwrap();
        let made = files.create(&directory, &name("target"), CreateHow::Unchecked(mode(0o600))).await.unwrap();
        made.file.close().await.unwrap();
        let exists = files.create(&directory, &name("target"), CreateHow::Guarded(mode(0o600))).await.unwrap_err();
        assert!(exists.exists() && exists.has_made_nothing());

        let walked = files.walk(root, b"/directory/./link", true).await.unwrap();
        assert_eq!(walked.attributes.file_type, FileType::Regular);
        assert_eq!(walked.place, Some(Place { directory: directory.clone(), name: name("target") }));
        let above = files.walk(root, b"directory/../directory/target/below", true).await.unwrap_err();
        assert_eq!((above.cause(), above.procedure()), (Some(Cause::NotDirectory), Some("LOOKUP")));
        assert!(files.walk(root, b"none", true).await.unwrap_err().is_absent());

        files.link(&walked.file, root, &name("second")).await.unwrap();
        assert_eq!(files.getattr(&walked.file).await.unwrap().links, 2);
        files.rename(&directory, &name("target"), root, &name("moved")).await.unwrap();
        assert!(files.lookup(&directory, &name("target")).await.unwrap_err().is_absent());
        assert!(files.rmdir(root, &name("directory")).await.unwrap_err().is_not_empty());
        for entry in ["link", "fifo", "socket"] {
            files.remove(&directory, &name(entry)).await.unwrap();
        }
        files.rmdir(root, &name("directory")).await.unwrap();
        assert!(files.getattr(&directory).await.unwrap_err().is_stale());
        let rights = v3::access::READ | v3::access::LOOKUP;
        assert_eq!(files.access(root, rights).await.unwrap(), rights);
        let space = files.statfs(root).await.unwrap();
        assert!(space.total_bytes >= space.available_bytes && space.available_bytes > 0 && space.total_files > 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_directory_is_listed_in_several_calls() {
    in_every_version(async |files, root, minor, wire| {
        for number in 0..300 {
            files.symlink(root, &name(&format!("entry {number:03}")), mode(0o777), "x".into()).await.unwrap();
        }
        let mut transfer = files.transfer(root).await.unwrap();
        transfer.directory = 8_192;
        wire.calls();
        let mut listing = files.list(root, transfer);
        let mut seen = Vec::new();
        while let Some(entry) = listing.next().await.unwrap() {
            let id = entry.file_id;
            let found = files.found(root, entry).await.unwrap();
            assert_eq!((found.attributes.file_type, found.attributes.file_id), (FileType::Symlink, id));
            seen.push(found.place.unwrap().name);
        }
        seen.sort();
        let expected: Vec<_> = (0..300).map(|number| name(&format!("entry {number:03}"))).collect();
        assert!(seen == expected, "{seen:?}");
        if minor.is_some() {
            let calls = wire.calls();
            let listed = calls.iter().filter(|call| call.ops.iter().any(|args| args.op() == Op::ReadDir)).count();
            assert!(listed > 3 && listed == calls.len(), "nothing but READDIR: {listed} of {}", calls.len());
        }
        let broken = files.list(&files.lookup(root, &expected[0]).await.unwrap().file, transfer).next().await;
        assert_eq!(broken.unwrap_err().cause(), Some(Cause::NotDirectory));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_does_not_hold_changes_nothing() {
    in_every_version(async |files, root, _, _| {
        let made = files.create(root, &name("file"), CreateHow::Guarded(mode(0o640))).await.unwrap();
        let changed = made.file.getattr().await.unwrap().changed;
        let file = made.file.handle();
        made.file.close().await.unwrap();
        let another = Time::new(changed.seconds + 1, changed.nanoseconds);
        let refused = files.setattr(&file, mode(0o600), Some(another)).await.unwrap_err();
        assert_eq!(refused.cause(), Some(Cause::Changed));
        assert_eq!(files.getattr(&file).await.unwrap().mode, 0o640);
        assert_eq!(files.setattr(&file, mode(0o600), Some(changed)).await.unwrap().unwrap().mode, 0o600);
        assert_eq!(files.setattr(&file, mode(0o644), None).await.unwrap().unwrap().mode, 0o644);
    })
    .await;
}

/// To a creation with the same verifier the file counts as its own; to any other it does not.
#[tokio::test(start_paused = true)]
async fn an_exclusive_create_is_known_by_its_verifier() {
    in_every_version(async |files, root, _, _| {
        let ours = CreateHow::Exclusive(Verifier(*b"verifier"));
        let made = files.create(root, &name("file"), ours).await.unwrap();
        let again = files.create(root, &name("file"), ours).await.unwrap();
        assert_eq!(made.file.handle(), again.file.handle());
        let theirs = CreateHow::Exclusive(Verifier(*b"another!"));
        assert!(files.create(root, &name("file"), theirs).await.unwrap_err().exists());
        made.file.close().await.unwrap();
        again.file.close().await.unwrap();
    })
    .await;
}

/// The client opens the file that it found, even if its name now belongs to another file.
#[tokio::test(start_paused = true)]
async fn the_file_that_was_found_is_opened_though_its_name_is_anothers() {
    in_every_version(async |files, root, _, wire| {
        for (file, text) in [("a", "first"), ("b", "second")] {
            let made = files.create(root, &name(file), CreateHow::Guarded(mode(0o640))).await.unwrap();
            made.file.write(0, Stability::FileSync, text.into()).await.unwrap();
            made.file.close().await.unwrap();
        }
        let found = files.lookup(root, &name("a")).await.unwrap();
        files.rename(root, &name("a"), root, &name("c")).await.unwrap();
        for name_is_taken in [false, true] {
            if name_is_taken {
                files.rename(root, &name("b"), root, &name("a")).await.unwrap();
            }
            wire.calls();
            let opened = files.open(Node::from(&found), Access::Both).await.unwrap();
            assert_eq!(opened.handle(), found.file);
            assert_eq!(opened.read(0, 100).await.unwrap().data, "first");
            opened.write(0, Stability::FileSync, "First".into()).await.unwrap();
            opened.setattr(NewAttributes { size: Some(5), ..mode(0o600) }).await.unwrap();
            opened.write(0, Stability::FileSync, "first".into()).await.unwrap();
            opened.close().await.unwrap();
            let calls = wire.calls();
            let count = |op| calls.iter().flat_map(|call| &call.ops).filter(|args| args.op() == op).count();
            let failed = usize::from(!name_is_taken && count(Op::Open) > count(Op::Close));
            assert_eq!(count(Op::Open), count(Op::Close) + failed, "what is opened is closed");
        }
        let second = files.open_at(root, &name("a"), Access::Read).await.unwrap();
        assert_eq!(second.read(0, 100).await.unwrap().data, "second");
        second.close().await.unwrap();
    })
    .await;
}

/// A file that was made but cannot be used exists: a caller that cleans up has to know.
#[tokio::test(start_paused = true)]
async fn what_was_made_and_cannot_be_used_was_made() {
    use crate::house::Fate;
    use rpcrdma_nfs::v4::Outcome;
    in_every_version(async |files, root, minor, wire| {
        if minor.is_none() {
            return;
        }
        wire.after(|call, results| {
            let makes = call.ops.iter().any(|args| matches!(args.op(), Op::Open | Op::Create));
            let at = results.results.iter().position(|outcome| outcome.op() == Some(Op::GetFh));
            if let (true, Some(at)) = (makes, at) {
                results.results.truncate(at);
                results.results.push(Outcome::GetFh(Err(Status::ACCESS)));
                results.status = Status::ACCESS;
            } else if call.ops.iter().any(|args| args.op() == Op::Lookup)
                && let Some(at) = results.results.iter().position(|outcome| outcome.op() == Some(Op::Lookup))
            {
                results.results.truncate(at);
                results.results.push(Outcome::Lookup(Err(Status::ACCESS)));
                results.status = Status::ACCESS;
            }
            Fate::Arrives
        });
        let refused: [Error; 2] = [
            files.create(root, &name("file"), CreateHow::Guarded(mode(0o600))).await.unwrap_err(),
            files.mkdir(root, &name("directory"), mode(0o700)).await.unwrap_err(),
        ];
        wire.honest();
        for error in refused {
            assert!(error.is_after_creation() && !error.has_made_nothing() && error.is_denied(), "{error:?}");
        }
        files.lookup(root, &name("file")).await.unwrap();
        files.lookup(root, &name("directory")).await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_the_version_is_told_from_one_that_fails() {
    let house = House::with(|version_4| version_4.with_minors(0..=0));
    let wire = house.wire();
    let error = Nfs4::connect(house.rpc(&wire), &house.env, Options::new("test").with_minors(2..=2)).await.unwrap_err();
    let error = Error::from(error);
    assert!(error.is_no_version_4() && error.procedure().is_none(), "{error:?}");
    assert!(error.to_string().contains("minor version 2 of NFS version 4"), "{error}");
}

/// The end of the client closes files that were dropped.
#[tokio::test(start_paused = true)]
async fn the_end_closes_what_nobody_uses() {
    for minor in 0..=2 {
        let house = House::new();
        let wire = house.wire();
        let options = Options::new("test").with_minors(minor..=minor);
        // Nothing polls its driver.
        let nfs = Nfs4::connect(house.rpc(&wire), &house.env, options).await.unwrap();
        let files = Files::from(nfs.clone());
        let root = Handle::from(&nfs.root().await.unwrap().file);
        drop(files.create(&root, &name("file"), CreateHow::Guarded(mode(0o600))).await.unwrap());
        wire.calls();
        nfs.end().await.unwrap();
        let ops: Vec<_> = wire.calls().iter().flat_map(|call| &call.ops).map(|args| args.op()).collect();
        assert!(ops.contains(&Op::Close), "{ops:?}");
        assert_eq!(ops.contains(&Op::DestroyClientId), minor > 0, "{ops:?}");
    }
}
