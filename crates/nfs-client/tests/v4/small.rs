//! Small files: many that are read by one call, and each made by one.

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

/// A call for each thirty files, and no more room for what they bring than they have octets.
///
/// proves: ULB-5.1.2.2-b
#[tokio::test(start_paused = true)]
async fn many_files_are_read_by_few_calls() {
    for minor in 0..=2 {
        let house = House::new();
        let (files, wire, root) = files(&house, minor).await;
        let data = contents(3_000);
        let mut wanted = Vec::new();
        for number in 0..60 {
            let len = number * 50;
            let file = make(&files, &root, &format!("file {number}"), &data.slice(..len)).await;
            wanted.push((file, 3_000));
        }
        let (together, _) = files.version_4().unwrap().gathers();
        assert_eq!(together, 30);
        assert_eq!(files.batch().files, 1, "not every server answers them rightly");
        wire.calls_and_rooms();
        for batch in wanted.chunks(together) {
            let read = files.gather(batch).await.unwrap();
            assert_eq!(read.len(), batch.len());
            for (read, (file, _)) in read.iter().zip(batch) {
                let len = wanted.iter().position(|(other, _)| other == file).unwrap() * 50;
                let read = read.as_ref().unwrap();
                assert!(read.end && read.data == data[..len], "{len}");
            }
        }
        let calls = wire.calls_and_rooms();
        assert_eq!(calls.len(), 2, "thirty files each");
        assert!(calls.iter().all(|(_, rooms)| *rooms == 0), "nothing is placed: there is one Write chunk at most");
    }
}

/// What cannot be read costs one more call, and only itself.
#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_read_stands_in_nobodys_way() {
    let house = House::new();
    let (files, wire, root) = files(&house, 2).await;
    let data = contents(100);
    let file = make(&files, &root, "file", &data).await;
    let gone = make(&files, &root, "gone", &data).await;
    files.remove(&root, &Name::from("gone")).await.unwrap();
    let wanted: Vec<_> = [&file, &gone, &file, &root, &file].map(|file| (file.clone(), 100)).to_vec();
    wire.calls();
    let read = files.gather(&wanted).await.unwrap();
    let came: Vec<_> = read.iter().map(Option::is_some).collect();
    assert_eq!(came, [true, false, true, false, true]);
    assert_eq!(wire.calls().len(), 3);
    // Later is later for what was asked too late alone: what came before it counts.
    let mut delays = 1;
    wire.after(move |_, results| {
        if delays > 0 && results.results.len() > 5 {
            delays -= 1;
            results.results.truncate(5);
            if let Some(last) = results.results.last_mut() {
                *last = Outcome::Read(Err(Status::DELAY));
            }
            results.status = Status::DELAY;
        }
        Fate::Arrives
    });
    let all: Vec<_> = (0..4).map(|_| (file.clone(), 100)).collect();
    wire.calls();
    let read = files.gather(&all).await.unwrap();
    assert_eq!(read.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, true]);
    assert_eq!(wire.calls().len(), 2);
}

/// A server that sends more than it was asked for, or nothing, is not believed.
#[tokio::test(start_paused = true)]
async fn lies_are_not_gathered() {
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
        let read = files.gather(&[(file.clone(), 100), (file.clone(), 100)]).await.unwrap();
        assert_eq!(read, [None, None]);
    }
    // Fewer results than operations, and none that failed.
    wire.after(|_, results| {
        results.results.truncate(3);
        Fate::Arrives
    });
    assert_eq!(files.gather(&[(file.clone(), 100), (file, 100)]).await.unwrap(), [None, None]);
}

fn new<'a>(directory: &'a Handle, temporary: &'a Name, called: &'a Name, data: &Bytes) -> NewFile<'a> {
    let modified = SetTime::Client(Time::new(77, 8));
    let attributes = NewAttributes { mode: Some(0o640), modified, ..Default::default() };
    NewFile { directory, temporary, name: called, mode: 0o600, attributes, data: data.clone() }
}

/// One call, and the file is whole under its name, closed, with its attributes; what had the name is gone.
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
            let read = files.gather(&[(file, 6_000)]).await.unwrap();
            assert!(read[0].as_ref().is_some_and(|read| read.end && read.data == data));
        }
    }
    let house = House::new();
    assert!(!files(&house, 0).await.0.can_place(), "minor version 0 has no current stateid");
}

/// Executed twice, since the session was lost with what the server knew of the call, it does what it should, however far
/// it came the first time.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_executed_twice_makes_one_file() {
    for done in 2..=13 {
        let house = House::new();
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
            }
            Fate::Arrives
        });
        let (file, told) = files.place(new(&root, &temporary, &called, &data)).await.unwrap();
        wire.honest();
        assert_eq!((told.size, told.mode & 0o7777), (500, 0o640), "{done} operations");
        assert_eq!(files.lookup(&root, &called).await.unwrap().file, file);
        assert!(files.lookup(&root, &temporary).await.unwrap_err().is_absent());
        let read = files.gather(&[(file, 500)]).await.unwrap();
        assert!(read[0].as_ref().is_some_and(|read| read.data == data));
    }
}

/// A server that takes less than all of the data keeps the file from its place.
#[tokio::test(start_paused = true)]
async fn what_was_not_written_whole_does_not_take_its_place() {
    let house = House::new();
    let (nfs, _wire) = house.client(2).await;
    let root = nfs.root().await.unwrap().file;
    let attributes = NewAttributes { mode: Some(0o644), ..Default::default() };
    let (temporary, called) = (name(".file"), name("file"));
    nfs.write_small(&root, &called, How::Guarded(attributes), Stability::FileSync, contents(9)).await.unwrap();
    // The wire cuts the data, as a server would that has no room for all of it.
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
