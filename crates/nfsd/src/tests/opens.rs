//! Open files and change numbers, tested on the file systems themselves.

use super::*;
use crate::{Access, Caller, CreateHow, Failure, Fault, FileId, New, NodeKind, OpenFile, Via, testing::wait};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::attr::{Attributes, NewAttributes, SetTime, Stability, Time};

fn on_each_file_system(test: impl Fn(&dyn FileSystem)) {
    test(&MemoryFs::new(64 << 20, &env()));
    let scratch = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(scratch.path().join("state"), &*env().random).unwrap();
    let served = scratch.path().join("served");
    std::fs::create_dir(&served).unwrap();
    let directory = DirectoryFs::open(&served, &state, Queue::in_place(), &env()).unwrap();
    test(&directory);
}

fn root() -> Caller {
    Caller::root()
}

fn made(it: &dyn FileSystem, name: &'static str) -> FileId {
    let new = NewAttributes { mode: Some(0o644), ..NewAttributes::default() };
    let new = New::File(CreateHow::Guarded(new));
    wait(it.make(root(), it.root(), name.into(), new)).unwrap().file
}

fn open(it: &dyn FileSystem, caller: Caller, file: FileId, access: Access) -> Result<Arc<dyn OpenFile>, Fault> {
    wait(it.open(caller, file, access)).map_err(|failure| failure.fault)
}

fn write(it: &dyn FileSystem, via: Via, data: &'static [u8]) -> Result<(), Fault> {
    let written = wait(it.write(via, 0, Bytes::from_static(data), Stability::FileSync));
    written.map(drop).map_err(|failure| failure.fault)
}

fn read(it: &dyn FileSystem, via: Via) -> Result<Vec<u8>, Fault> {
    let read = wait(it.read(via, 0, 100, Buffer::from_vec(vec![0; 100])));
    read.map(|data| data.buffer.filled().to_vec()).map_err(|failure| failure.fault)
}

fn attributes(it: &dyn FileSystem, file: FileId) -> Result<Attributes, Fault> {
    wait(it.attributes(root(), file))
}

#[test]
fn an_open_file_is_there_without_a_name_until_the_last_open_is_gone() {
    on_each_file_system(|it| {
        let file = made(it, "a");
        let first = open(it, root(), file, Access::Both).unwrap();
        let second = open(it, root(), file, Access::Read).unwrap();
        write(it, Via::open(root(), first.clone()), b"kept").unwrap();
        wait(it.remove(root(), it.root(), "a".into(), false)).unwrap();
        assert_eq!(wait(it.lookup(root(), it.root(), "a".into())).unwrap_err().fault, Fault::NotFound);
        assert_eq!(attributes(it, file).unwrap().links, 0);
        assert_eq!(read(it, Via::open(root(), second.clone())).unwrap(), b"kept");
        write(it, Via::open(root(), first.clone()), b"more").unwrap();
        wait(it.commit(Via::open(root(), first.clone()), 0, 0)).unwrap();
        let cut = NewAttributes { size: Some(2), ..NewAttributes::default() };
        wait(it.set_attributes(Via::open(root(), first.clone()), cut, None)).unwrap();
        drop(first);
        assert_eq!(read(it, Via::open(root(), second.clone())).unwrap(), b"mo");
        drop(second);
        assert_eq!(attributes(it, file).map(drop), Err(Fault::Stale));
        assert_eq!(open(it, root(), file, Access::Read).map(drop), Err(Fault::Stale));
    });
}

/// proves: NFS4-8881-18.16.3-a
#[test]
fn rights_are_asked_when_a_file_is_opened_and_not_again() {
    on_each_file_system(|it| {
        let user = Caller::new(1000, 1000);
        let file = made(it, "a");
        write(it, Via::caller(root(), file), b"text").unwrap();
        let mine = open(it, user.clone(), file, Access::Read).unwrap();
        assert_eq!(open(it, user.clone(), file, Access::Both).map(drop), Err(Fault::Denied), "mode 644");
        let closed = NewAttributes { mode: Some(0), ..NewAttributes::default() };
        wait(it.set_attributes(Via::caller(root(), file), closed, None)).unwrap();
        assert_eq!(read(it, Via::open(user.clone(), mine.clone())).unwrap(), b"text");
        assert_eq!(read(it, Via::caller(user.clone(), file)), Err(Fault::Denied));
        assert_eq!(
            open(it, user.clone(), file, Access::Read).map(drop),
            Err(Fault::Denied),
            "what is shared is no right"
        );
        assert_eq!(write(it, Via::open(user, mine), b"no"), Err(Fault::Denied), "not opened for that");
    });
}

#[test]
fn only_regular_files_are_opened() {
    on_each_file_system(|it| {
        let none = NewAttributes::default();
        let make = |name: &'static str, new| wait(it.make(root(), it.root(), name.into(), new)).unwrap().file;
        let symlink = make("s", New::Symlink(none, "a".into()));
        let fifo = make("f", New::Node(NodeKind::Fifo, none));
        for (file, fault) in [(it.root(), Fault::IsDirectory), (symlink, Fault::IsSymlink), (fifo, Fault::IsSpecial)] {
            assert_eq!(open(it, root(), file, Access::Read).map(drop), Err(fault));
        }
    });
}

/// proves: NFS4-8881-5.8.1.4-a
#[test]
fn every_change_changes_the_number() {
    on_each_file_system(|it| {
        let file = made(it, "a");
        let number = |file| attributes(it, file).unwrap().change;
        let mut seen = vec![number(file)];
        for round in 0..20 {
            match round % 4 {
                0 => write(it, Via::caller(root(), file), b"same").unwrap(),
                1 => {
                    let new = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
                    let told = wait(it.set_attributes(Via::caller(root(), file), new, None)).unwrap();
                    assert_eq!(told.before.unwrap().change, *seen.last().unwrap());
                    assert_eq!(told.after.unwrap().change, number(file));
                }
                2 => drop(wait(it.link(root(), file, it.root(), "b".into())).unwrap()),
                _ => drop(wait(it.remove(root(), it.root(), "b".into(), false)).unwrap()),
            }
            let now = number(file);
            assert!(!seen.contains(&now), "round {round}: {now} in {seen:?}");
            seen.push(now);
        }
        let mut seen = vec![number(it.root())];
        for round in 0..10 {
            let (from, to) = if round % 2 == 0 { ("a", "c") } else { ("c", "a") };
            let told = wait(it.rename(root(), (it.root(), from.into()), (it.root(), to.into()))).unwrap();
            let now = number(it.root());
            assert_eq!(told.to_directory.before.unwrap().change, *seen.last().unwrap());
            assert_eq!(told.to_directory.after.unwrap().change, now);
            assert!(!seen.contains(&now), "round {round}");
            seen.push(now);
        }
    });
}

#[test]
fn a_look_changes_no_number() {
    on_each_file_system(|it| {
        let file = made(it, "a");
        let before = attributes(it, file).unwrap();
        let found = wait(it.lookup(root(), it.root(), "a".into())).unwrap();
        assert_eq!(found.attributes.unwrap().change, before.change);
        drop(open(it, root(), file, Access::Both).unwrap());
        assert_eq!(attributes(it, file).unwrap().change, before.change);
    });
}

/// An exclusive creation keeps its verifier and sets attributes beside it; a retransmission finds the same file.
#[test]
fn an_exclusive_creation_sets_attributes_once() {
    on_each_file_system(|it| {
        let time = SetTime::Client(Time::new(5, 0));
        let new = NewAttributes { mode: Some(0o640), accessed: time, modified: time, ..NewAttributes::default() };
        let make =
            |verifier| wait(it.make(root(), it.root(), "x".into(), New::File(CreateHow::Exclusive(verifier, new))));
        let first = make(*b"verifier").unwrap();
        assert!(first.is_new && first.attributes.unwrap().mode == 0o640);
        let again = make(*b"verifier").unwrap();
        assert!(again.is_new && again.file == first.file);
        let Err(Failure { fault, .. }) = make(*b"another!") else { panic!("another client's file") };
        assert_eq!(fault, Fault::Exists);
        let unchecked = New::File(CreateHow::Unchecked(NewAttributes::default()));
        assert!(!wait(it.make(root(), it.root(), "x".into(), unchecked)).unwrap().is_new);
    });
}
