//! Every operation, in every minor version that has it.

use crate::house::{House, Wire};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::{
    attr::{self, NewAttributes},
    v4::{
        Args, Device, Handle, LinkText, Name, Op, Status, Verifier,
        ops::{self, Content, CreateKind, LockKind, SetXattrOption, Stability},
    },
};
use rpcrdma_nfs_client::{
    self as client, Files, Transfer,
    v4::{Access, Error, How, Nfs4, Span},
};
use std::sync::Arc;

pub(crate) fn mode(mode: u32) -> NewAttributes {
    NewAttributes { mode: Some(mode), ..NewAttributes::default() }
}

pub(crate) fn name(text: &str) -> Name {
    Name::from(text)
}

pub(crate) fn contents(len: usize) -> Bytes {
    (0..len as u64).map(|at| (at.wrapping_mul(167) >> 3) as u8).collect::<Vec<_>>().into()
}

/// All operations that exist in every minor version.
pub(crate) async fn every_operation(nfs: &Nfs4, root: &Handle) {
    nfs.null().await.unwrap();
    let made = nfs.mkdir(root, &name("every"), &mode(0o755)).await.unwrap();
    assert_eq!(made.attributes.file_type, attr::FileType::Directory);
    let directory = made.file;
    let again = nfs.mkdir(root, &name("every"), &mode(0o755)).await.unwrap_err();
    assert_eq!((again.status(), again.operation()), (Some(Status::EXIST), Some(Op::Create)));
    assert_eq!(nfs.lookup_parent(&directory).await.unwrap().file, *root);

    files(nfs, &directory).await;
    links_and_nodes(nfs, &directory).await;
    listing(nfs, &directory).await;
    locks(nfs, &directory).await;
    small_files(nfs, &directory).await;

    let usage = nfs.statfs(&directory).await.unwrap();
    assert!(usage.total_bytes >= usage.free_bytes && usage.total_bytes > 0 && usage.longest_name >= 255);
    let busy = nfs.remove(root, &name("every")).await.unwrap_err();
    assert_eq!(busy.status(), Some(Status::NOTEMPTY));
}

async fn files(nfs: &Nfs4, directory: &Handle) {
    let data = contents(300_000);
    let absent = nfs.open(directory, &name("file"), Access::Read, How::Existing).await.unwrap_err();
    assert_eq!((absent.status(), absent.operation()), (Some(Status::NOENT), Some(Op::Open)));
    let (opened, attributes) =
        nfs.open(directory, &name("file"), Access::Both, How::Guarded(mode(0o640))).await.unwrap();
    assert_eq!((attributes.mode, attributes.size), (0o640, 0));
    let exists = nfs.open(directory, &name("file"), Access::Both, How::Guarded(mode(0o640))).await.unwrap_err();
    assert_eq!(exists.status(), Some(Status::EXIST));
    let written = nfs.write(&opened, 0, Stability::Unstable, data.clone()).await.unwrap();
    assert_eq!(written.count as usize, data.len());
    assert_eq!(nfs.commit(opened.file(), 0, 0).await.unwrap(), written.verifier);
    let read = nfs.read(&opened, 100_000, 300_000).await.unwrap();
    assert!(read.end && read.data == data[100_000..]);
    let read = nfs.read_into(opened.file(), 0, Buffer::from_vec(vec![0; 1_000])).await.unwrap();
    assert!(!read.end && read.data.as_slice() == &data[..1_000]);
    let short = NewAttributes { size: Some(1_000), ..mode(0o600) };
    let attributes = nfs.setattr(opened.file(), &short, Some(&opened)).await.unwrap();
    assert_eq!((attributes.mode, attributes.size), (0o600, 1_000));
    assert_eq!(nfs.getattr(opened.file()).await.unwrap().size, 1_000);
    let rights = ops::access::READ | ops::access::MODIFY;
    assert_eq!(nfs.access(opened.file(), rights).await.unwrap(), rights);
    nfs.close(opened).await.unwrap();

    let how = How::Unchecked(NewAttributes { size: Some(0), ..mode(0o600) });
    let (opened, attributes) = nfs.open(directory, &name("file"), Access::Write, how).await.unwrap();
    assert_eq!(attributes.size, 0);
    nfs.close(opened).await.unwrap();
    let (opened, attributes) =
        nfs.open(directory, &name("mine"), Access::Write, How::Exclusive(mode(0o604))).await.unwrap();
    assert_eq!(nfs.getattr(opened.file()).await.unwrap().mode, 0o604, "{attributes:?}");
    nfs.close(opened).await.unwrap();
    let taken = nfs.open(directory, &name("mine"), Access::Write, How::Exclusive(mode(0o604))).await.unwrap_err();
    assert_eq!(taken.status(), Some(Status::EXIST));
    nfs.rename(directory, &name("mine"), directory, &name("yours")).await.unwrap().unwrap();
    nfs.remove(directory, &name("yours")).await.unwrap().unwrap();
    let gone = nfs.remove(directory, &name("yours")).await.unwrap_err();
    assert_eq!((gone.status(), gone.operation()), (Some(Status::NOENT), Some(Op::Remove)));
    let gone = nfs.rename(directory, &name("yours"), directory, &name("z")).await.unwrap_err();
    assert_eq!(gone.status(), Some(Status::NOENT));
}

async fn links_and_nodes(nfs: &Nfs4, directory: &Handle) {
    let text = LinkText::from("../somewhere");
    let link = nfs.symlink(directory, &name("link"), &text, &mode(0o777)).await.unwrap();
    assert_eq!(nfs.readlink(&link.file).await.unwrap(), text);
    let kinds = [
        (CreateKind::Fifo, attr::FileType::Fifo),
        (CreateKind::Socket, attr::FileType::Socket),
        (CreateKind::Character(Device { major: 4, minor: 64 }), attr::FileType::Character),
    ];
    for (kind, file_type) in kinds {
        let node = nfs.mknod(directory, &name("node"), kind, &mode(0o600)).await.unwrap();
        assert_eq!(node.attributes.file_type, file_type);
        nfs.remove(directory, &name("node")).await.unwrap().unwrap();
    }
    let file = nfs.lookup(directory, &name("file")).await.unwrap().file;
    nfs.link(&file, directory, &name("further")).await.unwrap().unwrap();
    assert_eq!(nfs.getattr(&file).await.unwrap().links, 2);
    let exists = nfs.link(&file, directory, &name("further")).await.unwrap_err();
    assert_eq!((exists.status(), exists.operation()), (Some(Status::EXIST), Some(Op::Link)));
    nfs.remove(directory, &name("further")).await.unwrap().unwrap();
}

async fn listing(nfs: &Nfs4, directory: &Handle) {
    let many = nfs.mkdir(directory, &name("many"), &mode(0o755)).await.unwrap().file;
    for at in 0..60 {
        nfs.mkdir(&many, &name(&format!("directory {at:03}")), &mode(0o700)).await.unwrap();
    }
    let (files, in_many) = (Files::from(nfs.clone()), client::Handle::from(&many));
    let mut listing = files.list(&in_many, Transfer { directory: 4_096, ..nfs.transfer() });
    let mut names = Vec::new();
    while let Some(entry) = listing.next().await.unwrap() {
        assert_eq!(entry.attributes.unwrap().mode, 0o700);
        assert_eq!(files.lookup(&in_many, &entry.name).await.unwrap().file, entry.file.unwrap());
        names.push(entry.name);
    }
    names.sort();
    assert_eq!(names.len(), 60);
    assert_eq!(names[59].as_slice(), b"directory 059");
    let mut few = files.list(&in_many, nfs.transfer()).with_max_entries(10);
    assert!(matches!(few.next().await, Err(client::Error::TooManyEntries { max: 10, .. })) && few.has_failed());
    assert_eq!(few.next().await.unwrap(), None);
    let page = nfs.readdir(directory, 0, Verifier::default(), 64 << 10).await.unwrap();
    assert!(page.end && page.entries.iter().any(|entry| entry.name == name("link")));
}

async fn locks(nfs: &Nfs4, directory: &Handle) {
    let open = async || nfs.open(directory, &name("file"), Access::Both, How::Existing).await.unwrap().0;
    let (first, second) = (open().await, open().await);
    nfs.lock(&first, LockKind::Write, 10, 10).await.unwrap();
    nfs.lock(&first, LockKind::Read, 100, u64::MAX).await.unwrap();
    nfs.lock(&second, LockKind::Read, 200, 5).await.unwrap();
    for _ in 0..2 {
        let locked = nfs.lock(&second, LockKind::Write, 15, 1).await.unwrap_err();
        let Error::Locked { denied, .. } = locked else { panic!("{locked:?}") };
        assert_eq!((denied.offset, denied.length, denied.kind), (10, 10, LockKind::Write));
    }
    assert_eq!(nfs.test_lock(&second, LockKind::Write, 15, 1).await.unwrap().unwrap().offset, 10);
    assert_eq!(nfs.test_lock(&second, LockKind::Write, 0, 1).await.unwrap(), None);
    nfs.unlock(&first, 10, 5).await.unwrap();
    nfs.lock(&second, LockKind::Write, 10, 5).await.unwrap();
    nfs.write(&second, 10, Stability::FileSync, Bytes::from_static(b"five!")).await.unwrap();
    nfs.unlock(&second, 0, u64::MAX).await.unwrap();
    let nothing = nfs.lock(&second, LockKind::Write, 10, 0).await.unwrap_err();
    assert_eq!(nothing.status(), Some(Status::INVAL));
    nfs.close(first).await.unwrap();
    nfs.lock(&second, LockKind::Write, 0, u64::MAX).await.unwrap();
    nfs.close(second).await.unwrap();
    let third = open().await;
    assert_eq!(nfs.test_lock(&third, LockKind::Write, 0, u64::MAX).await.unwrap(), None, "closing unlocks");
    nfs.close(third).await.unwrap();
}

async fn small_files(nfs: &Nfs4, directory: &Handle) {
    let data = contents(5_000);
    let how = How::Unchecked(NewAttributes { size: Some(0), ..mode(0o644) });
    let (file, written) =
        nfs.write_small(directory, &name("small"), how, Stability::FileSync, data.clone()).await.unwrap();
    assert_eq!(written.count, 5_000);
    let small = nfs.read_small(directory, &name("small"), 64 << 10).await.unwrap();
    assert!(small.end && small.data == data && small.file == file && small.attributes.size == 5_000);
    let small = nfs.read_small(directory, &name("small"), 1_000).await.unwrap();
    assert!(!small.end && small.data == data[..1_000]);
    let (opened, attributes, read) = nfs.open_and_read(directory, &name("small"), 1_000).await.unwrap();
    assert!(!read.end && read.data == data[..1_000] && attributes.size == 5_000);
    assert!(nfs.read(&opened, 1_000, 64 << 10).await.unwrap().data == data[1_000..]);
    nfs.close(opened).await.unwrap();
    let absent = nfs.read_small(directory, &name("absent"), 1_000).await.unwrap_err();
    assert_eq!(absent.status(), Some(Status::NOENT));
}

/// Further operations of minor version 2.
pub(crate) async fn more_of_minor_2(nfs: &Nfs4, root: &Handle) {
    let data = contents(200_000);
    let (source, _) = nfs.open(root, &name("source"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    let (target, _) = nfs.open(root, &name("target"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    nfs.write(&source, 0, Stability::FileSync, data.clone()).await.unwrap();
    let span = Span { source_offset: 1_000, offset: 500, count: 100_000 };
    let copied = nfs.copy(&source, &target, span).await.unwrap();
    assert_eq!(copied.count, 100_000);
    assert!(nfs.read(&target, 500, 100_000).await.unwrap().data == data[1_000..101_000]);
    let all = Span { source_offset: 0, offset: 0, count: 0 };
    match nfs.clone_range(&source, &target, all).await {
        Ok(()) => assert!(nfs.read(&target, 0, 200_000).await.unwrap().data == data),
        Err(error) => assert_eq!(error.status(), Some(Status::NOTSUPP), "{error}"),
    }
    nfs.allocate(&target, 0, 300_000).await.unwrap();
    nfs.deallocate(&target, 0, 128 << 10).await.unwrap();
    let begin = nfs.seek(&target, 0, Content::Data).await.unwrap();
    assert!(begin.is_some_and(|at| at >= 64 << 10), "{begin:?}");
    assert_eq!(nfs.seek(&target, 0, Content::Hole).await.unwrap(), Some(0));
    let end = nfs.getattr(target.file()).await.unwrap().size;
    assert_eq!(nfs.seek(&target, end, Content::Data).await.unwrap(), None);

    let (key, file) = (name("colour"), target.file());
    nfs.set_xattr(file, &key, Bytes::from_static(b"green"), SetXattrOption::Create).await.unwrap();
    let exists = nfs.set_xattr(file, &key, Bytes::new(), SetXattrOption::Create).await.unwrap_err();
    assert_eq!((exists.status(), exists.operation()), (Some(Status::EXIST), Some(Op::SetXattr)));
    assert_eq!(nfs.xattr(file, &key).await.unwrap(), "green");
    assert_eq!(nfs.xattrs(file).await.unwrap(), std::slice::from_ref(&key));
    nfs.remove_xattr(file, &key).await.unwrap();
    assert_eq!(nfs.xattr(file, &key).await.unwrap_err().status(), Some(Status::NOXATTR));
    assert_eq!(nfs.xattrs(file).await.unwrap(), []);
    nfs.close(source).await.unwrap();
    nfs.close(target).await.unwrap();
}

async fn in_each_minor(test: impl AsyncFn(u32, &Nfs4, &Arc<Wire>)) {
    for minor in 0..=2 {
        println!("minor version {minor}");
        let house = House::new();
        let (nfs, wire) = house.client(minor).await;
        test(minor, &nfs, &wire).await;
    }
}

/// proves: ULB-5.1.1-b, ULB-5.1.2.2-b, ULB-5.1.2.2-c
#[tokio::test(start_paused = true)]
async fn every_operation_in_every_minor_version() {
    in_each_minor(async |minor, nfs, wire| {
        assert_eq!(nfs.minor(), minor);
        let root = nfs.root().await.unwrap().file;
        every_operation(nfs, &root).await;
        match minor {
            2 => more_of_minor_2(nfs, &root).await,
            _ => {
                let error = nfs.xattrs(&root).await.unwrap_err();
                assert!(matches!(error, Error::NotInMinor { operation: Op::ListXattrs, .. }), "{error:?}");
            }
        }
        for (call, rooms) in wire.calls_and_rooms() {
            let arguments = call.ops.iter().filter(|args| matches!(args, Args::Write(_)) || is_link(args));
            assert!(rooms <= 1 && arguments.count() <= 1, "{call:?}");
            assert!(call.ops.iter().all(|args| args.op() != Op::ReadPlus));
            // If there is room for a link's text, Linux's nfsd places the wrong bytes there.
            let room_for = |op| call.ops.iter().any(|args| args.op() == op).then_some(rooms);
            assert_ne!(room_for(Op::ReadLink), Some(1), "{call:?}");
            assert_ne!(room_for(Op::Read), Some(0), "{call:?}");
        }
    })
    .await;
}

fn is_link(args: &Args) -> bool {
    matches!(args, Args::Create(create) if matches!(create.kind, CreateKind::Symlink(_)))
}

#[tokio::test(start_paused = true)]
async fn access_control_lists_are_set_and_read() {
    in_each_minor(async |_, nfs, _| {
        let root = nfs.root().await.unwrap().file;
        let (opened, _) = nfs.open(&root, &name("file"), Access::Both, How::Guarded(mode(0o640))).await.unwrap();
        let acl = match nfs.acl(opened.file()).await {
            Ok(acl) => acl,
            Err(error) => {
                assert_eq!(error.status(), Some(Status::ATTRNOTSUPP), "{error:?}");
                return;
            }
        };
        assert!(!acl.is_empty());
        nfs.set_acl(opened.file(), &acl).await.unwrap();
        assert_eq!(nfs.acl(opened.file()).await.unwrap(), acl);
    })
    .await;
}

/// A small file costs one call, and a dropped open is closed.
#[tokio::test(start_paused = true)]
async fn small_files_cost_one_call() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let root = nfs.root().await.unwrap().file;
    wire.calls();
    let how = How::Unchecked(mode(0o644));
    nfs.write_small(&root, &name("a"), how, Stability::FileSync, contents(4_096)).await.unwrap();
    nfs.read_small(&root, &name("a"), 64 << 10).await.unwrap();
    let ops = crate::house::ops(&wire.calls());
    assert_eq!(
        ops,
        [
            vec![Op::Open, Op::GetFh, Op::GetAttr, Op::Write, Op::Close],
            vec![Op::Open, Op::GetFh, Op::GetAttr, Op::Read, Op::Close]
        ]
    );
    let (opened, _) = nfs.open(&root, &name("a"), Access::Read, How::Existing).await.unwrap();
    drop(opened);
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    assert_eq!(crate::house::ops(&wire.calls()).last().unwrap(), &[Op::Close]);
}
