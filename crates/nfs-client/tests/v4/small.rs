//! Small files: one call reads a file, and one call makes it.

use crate::{
    every::{contents, name},
    house::{Fate, House},
};
use bytes::Bytes;
use rpcrdma_nfs::{
    attr::{NewAttributes, SetTime, Time},
    v4::{Args, Op, Outcome, Status, ops::Stability},
};
use rpcrdma_nfs_client::{
    CreateHow, Files, Handle, Name, NewFile,
    v4::{self as client, How},
};

async fn files(house: &House, minor: u32) -> (Files, std::sync::Arc<crate::house::Wire>, Handle) {
    let (nfs, wire) = house.client(minor).await;
    let root = Handle::from(&nfs.root().await.unwrap().file);
    (Files::from(nfs), wire, root)
}

async fn make(files: &Files, root: &Handle, called: &str, data: &Bytes) -> Handle {
    let how = CreateHow::Guarded(NewAttributes { mode: Some(0o644), ..Default::default() });
    let made = files.create(root, &Name::from(called), how).await.unwrap().file;
    made.write(0, rpcrdma_nfs::attr::Stability::FileSync, data.clone()).await.unwrap();
    let handle = made.handle();
    made.close().await.unwrap();
    handle
}

/// One call, whose data the transport may place directly, without an open.
///
/// proves: ULB-5.1.2.2-b
#[tokio::test(start_paused = true)]
async fn a_small_file_is_read_by_one_call() {
    for minor in 0..=2 {
        let house = House::new();
        let (files, wire, root) = files(&house, minor).await;
        assert!(files.most_small() >= 64 << 10);
        let data = contents(3_000);
        for len in [0, 1, 2_999, 3_000] {
            let file = make(&files, &root, &format!("file of {len}"), &data.slice(..len)).await;
            wire.calls_and_rooms();
            let read = files.read_small(&file, 2_999).await.unwrap();
            assert_eq!((read.data, read.end), (data.slice(..len.min(2_999)), len <= 2_999), "{len}");
            let calls = wire.calls_and_rooms();
            let [(call, rooms)] = &calls[..] else { panic!("{calls:?}") };
            let ops: Vec<_> = call.ops.iter().map(Args::op).filter(|op| *op != Op::Sequence).collect();
            assert_eq!((&ops[..], *rooms), (&[Op::PutFh, Op::Read][..], 1));
        }
    }
}

/// A file that cannot be read is an error; if the server asks to try later, the client does.
#[tokio::test(start_paused = true)]
async fn a_small_file_that_cannot_be_read_is_an_error() {
    let house = House::new();
    let (files, wire, root) = files(&house, 2).await;
    let data = contents(100);
    let (file, gone) = (make(&files, &root, "file", &data).await, make(&files, &root, "gone", &data).await);
    files.remove(&root, &Name::from("gone")).await.unwrap();
    let error = files.read_small(&gone, 100).await.unwrap_err();
    assert!(error.is_stale(), "{error:?}");
    let error = files.read_small(&root, 100).await.unwrap_err();
    assert!(!error.is_unreachable(), "{error:?}");
    let mut delays = 1;
    wire.after(move |_, results| {
        if delays > 0 {
            delays -= 1;
            if let Some(last) = results.results.last_mut() {
                *last = Outcome::Read(Err(Status::DELAY));
            }
            results.status = Status::DELAY;
        }
        Fate::Arrives
    });
    wire.calls();
    assert_eq!(files.read_small(&file, 100).await.unwrap().data, data);
    assert_eq!(wire.calls().len(), 2);
}

/// The client does not believe a server that sends more than it asked for, or nothing.
#[tokio::test(start_paused = true)]
async fn lies_about_a_small_file_are_not_believed() {
    let house = House::new();
    let (files, wire, root) = files(&house, 1).await;
    let file = make(&files, &root, "file", &contents(100)).await;
    for lie in [contents(101), Bytes::new()] {
        wire.after(move |_, results| {
            for outcome in &mut results.results {
                if let Outcome::Read(Ok(read)) = outcome {
                    (read.data, read.end) = (lie.clone(), false);
                }
            }
            Fate::Arrives
        });
        let read = files.read_small(&file, 100).await;
        assert!(read.is_err(), "{read:?}");
    }
    // Fewer results than operations, although none has failed.
    wire.after(|_, results| {
        results.results.truncate(2);
        Fate::Arrives
    });
    let read = files.read_small(&file, 100).await;
    assert!(read.is_err(), "{read:?}");
}

fn new<'a>(directory: &'a Handle, temporary: &'a Name, called: &'a Name, data: &Bytes) -> NewFile<'a> {
    let modified = SetTime::Client(Time::new(77, 8));
    let attributes = NewAttributes { mode: Some(0o640), modified, ..Default::default() };
    NewFile { directory, temporary, name: called, mode: 0o600, attributes, data: data.clone() }
}

/// One call: then the file is whole under its name, closed, with its attributes; what had the name before is gone.
#[tokio::test(start_paused = true)]
async fn a_small_file_is_made_by_one_call() {
    for minor in 1..=2 {
        let house = House::new();
        let (files, wire, root) = files(&house, minor).await;
        assert!(files.can_place());
        let (temporary, called) = (Name::from(".file"), Name::from("file"));
        for len in [5_000, 0, 1] {
            let data = contents(len);
            wire.calls();
            let (file, told) = files.place(new(&root, &temporary, &called, &data)).await.unwrap();
            assert_eq!(wire.calls().len(), 1);
            assert_eq!((told.size, told.mode & 0o7777, told.modified), (len as u64, 0o640, Time::new(77, 8)));
            let found = files.lookup(&root, &called).await.unwrap();
            assert_eq!((&found.file, found.attributes.size), (&file, len as u64));
            assert!(files.lookup(&root, &temporary).await.unwrap_err().is_absent());
            let read = files.read_small(&file, 6_000).await.unwrap();
            assert!(read.end && read.data == data);
        }
    }
    let house = House::new();
    assert!(!files(&house, 0).await.0.can_place(), "minor version 0 has no current stateid");
}

/// The server executes the call twice, because it lost the session and with it the memory of the call: the result is
/// right however far the first execution came. A server that keeps the verifier of an exclusive create in the file's
/// times refuses a file that the first execution has written to: then the caller learns that it is there.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_executed_twice_makes_one_file() {
    for (done, is_on_disk) in (2..=13).flat_map(|done| [(done, false), (done, true)]) {
        let scratch = tempfile::tempdir().unwrap();
        let house = if is_on_disk { House::on_disk(scratch.path()) } else { House::new() };
        let (files, wire, root) = files(&house, 2).await;
        let (temporary, called, data) = (Name::from(".file"), Name::from("file"), contents(500));
        let is_it = |call: &rpcrdma_nfs::v4::Arguments| call.ops.iter().any(|args| args.op() == Op::Open);
        let mut is_first = true;
        wire.change(move |call| {
            if is_it(call) && std::mem::take(&mut is_first) {
                assert_eq!(call.ops.len(), 13);
                call.ops.truncate(done);
            }
        });
        let mut is_first = true;
        wire.after(move |call, results| {
            if is_it(call) && std::mem::take(&mut is_first) {
                results.results = vec![Outcome::Sequence(Err(Status::BADSESSION))];
                results.status = Status::BADSESSION;
                return Fate::ComesTwice;
            }
            Fate::Arrives
        });
        let mut placed = files.place(new(&root, &temporary, &called, &data)).await;
        wire.honest();
        if let Err(error) = &placed {
            assert!(is_on_disk && error.exists() && error.is_after_creation(), "{done} operations: {error}");
            files.remove(&root, &temporary).await.unwrap();
            placed = files.place(new(&root, &temporary, &called, &data)).await;
        }
        let (file, told) = placed.unwrap();
        assert_eq!((told.size, told.mode & 0o7777), (500, 0o640), "{done} operations");
        assert_eq!(files.lookup(&root, &called).await.unwrap().file, file);
        assert!(files.lookup(&root, &temporary).await.unwrap_err().is_absent());
        assert_eq!(files.read_small(&file, 500).await.unwrap().data, data);
    }
}

/// If a server takes less than all of the data, the file does not get its final name.
#[tokio::test(start_paused = true)]
async fn what_was_not_written_whole_does_not_take_its_place() {
    let house = House::new();
    let (nfs, _wire) = house.client(2).await;
    let root = nfs.root().await.unwrap().file;
    let attributes = NewAttributes { mode: Some(0o644), ..Default::default() };
    let (temporary, called) = (name(".file"), name("file"));
    nfs.write_small(&root, &called, How::Guarded(attributes), Stability::FileSync, contents(9)).await.unwrap();
    // The wire cuts the data, like a server that has no room for all of it.
    let (files, wire, _) = files(&house, 2).await;
    wire.change(|call| {
        for args in &mut call.ops {
            if let Args::Write(write) = args {
                write.data = write.data.slice(..3);
            }
        }
    });
    let directory = Handle::from(&root);
    let (temporary_name, called_name) = (Name::from(".file"), Name::from("file"));
    let error = files.place(new(&directory, &temporary_name, &called_name, &contents(500))).await.unwrap_err();
    assert!(error.is_after_creation(), "{error:?}");
    wire.honest();
    let there = nfs.lookup(&root, &called).await.unwrap();
    assert_eq!(there.attributes.size, 9, "what was there stays");
    let left: client::Found = nfs.lookup(&root, &temporary).await.unwrap();
    assert_eq!((left.attributes.size, left.attributes.mode & 0o7777), (3, 0o600), "and nobody else reads the rest");
}
