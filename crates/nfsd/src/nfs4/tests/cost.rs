//! The cost of the most frequent COMPOUNDs, in counts, which are the same on every machine.

use super::*;
use crate::{
    DirectoryFs, Queue, StateDirectory, Workers,
    testing::{Watched, env, wait},
};
use rpcrdma_nfs::v4::{Arguments, Attribute, Bitmap, PROGRAM, Results, Tag, VERSION};
use rpcrdma_oncrpc::{Outcome as Done, ReplyHeader};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Part, Payload};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::{
    fs,
    io::IoSliceMut,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Counts the jobs.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Workers for Counted {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        job();
    }
}

/// A whole reply, as it goes to the transport.
fn reply_to(client: &TestClient, call: &Arguments) -> Payload {
    let mut encoder = Encoder::new();
    call.encode(&mut encoder);
    match wait(client.rpc.send(PROGRAM, VERSION, 1, encoder.finish())) {
        Done::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_in_memory_is_told_without_another_thread() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    fs::write(served.join("probe"), "probe").unwrap();
    let (probe, mut octet) = (fs::File::open(served.join("probe")).unwrap(), [0]);
    if preadv2(&probe, &mut [IoSliceMut::new(&mut octet)], 0, ReadWriteFlags::NOWAIT) == Err(Errno::OPNOTSUPP) {
        return; // Some file systems, such as tmpfs, cannot read like that.
    }
    let state = StateDirectory::open(scratch.path().join("state"), &*env().random).unwrap();
    let workers = Arc::new(Counted::default());
    let directory = DirectoryFs::open(&served, &state, Queue::new(workers.clone()), &env()).unwrap();
    let server = TestServer::serving(Arc::new(directory));
    let client = server.client("a");
    let (file, state) = create(&client, "file", "o");
    client.write(&file, state, 0, &vec![7; 100_000]).unwrap();
    let before = workers.0.load(Ordering::Relaxed);
    for offset in [0, 4096, 99_990, 100_000, 200_000] {
        client.read(&file, state, offset, 4096).unwrap();
        let plus = ops::ReadPlus { state, offset, count: 4096 };
        assert_eq!(client.on(&file, Args::ReadPlus(plus)).status(), Status::OK);
    }
    let asked = Bitmap::of(&[Attribute::Size, Attribute::Change]);
    assert_eq!(client.on(&file, Args::GetAttr(ops::GetAttr { asked })).status(), Status::OK);
    assert_eq!(workers.0.load(Ordering::Relaxed), before);
}

#[test]
fn a_read_is_answered_in_two_parts_and_its_data_is_not_copied() {
    let server = TestServer::memory();
    let mut client = server.client("a");
    let (file, state) = create(&client, "file", "o");
    client.write(&file, state, 0, &[7; 8192]).unwrap();
    let memory = Watched::default();
    client.rpc.memory = Arc::new(memory.clone());
    let read = Args::Read(ops::Read { state, offset: 0, count: 4096 });
    let call = Arguments::new(2, vec![client.sequence(0, false), Args::PutFh(ops::PutFh { file }), read]);
    let before = server.clock.looks();
    let reply = reply_to(&client, &call);
    // When the call came, and when the READ ended.
    assert_eq!(server.clock.looks() - before, 2);
    assert!(
        matches!(reply.parts(), [Part::Run(_), Part::Item(data)] if data.len() == 4096),
        "header and results, data: {reply:?}"
    );
    assert_eq!(memory.0.load(Ordering::Relaxed), 4096, "the reply holds the memory that was read into");
    drop(reply);
    assert_eq!(memory.0.load(Ordering::Relaxed), 0);
}

/// A call that waits for nothing, sent again under another XID: the slot has its reply if the client asked for that.
///
/// proves: NFS4-8881-2.10.6.1.3-a
#[test]
fn the_reply_to_a_call_that_waits_for_nothing_is_kept_if_its_client_wants_it() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (file, state) = create(&client, "file", "o");
    client.write(&file, state, 0, b"before").unwrap();
    for is_kept in [true, false] {
        let read = Args::Read(ops::Read { state, offset: 0, count: 4096 });
        let ops = vec![client.sequence(0, is_kept), Args::PutFh(ops::PutFh { file: file.clone() }), read];
        let call = Arguments::new(2, ops);
        let results = || {
            let mut decoder = Decoder::new(reply_to(&client, &call).to_bytes().into());
            ReplyHeader::decode(&mut decoder).unwrap().status.unwrap();
            let results: Results = Results::decode(&mut decoder).unwrap();
            decoder.finish().unwrap();
            results
        };
        let first = results();
        assert_eq!(first.status, Status::OK);
        let second = results();
        match is_kept {
            true => assert_eq!(format!("{second:?}"), format!("{first:?}")),
            false => assert_eq!(second.status, Status::RETRY_UNCACHED_REP),
        }
    }
}

/// The bytes before the results are written before the results are known, and again if the results differ.
#[test]
fn a_failure_behind_data_changes_what_stands_before_it_whatever_the_tag_is() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (file, state) = create(&client, "file", "o");
    client.write(&file, state, 0, &[7; 5]).unwrap();
    for octets in [0, 1, 256, 257, 1024] {
        let read = Args::Read(ops::Read { state, offset: 0, count: 4096 });
        let file = Args::PutFh(ops::PutFh { file: file.clone() });
        let lookup = Args::Lookup(ops::Lookup { name: Name::from("x") });
        let ops = vec![client.sequence(0, false), file, read, lookup, Args::GetFh];
        let tag = Tag(vec![b't'; octets].into());
        let reply = reply_to(&client, &Arguments { tag: tag.clone(), ..Arguments::new(2, ops) });
        assert_eq!(reply.items().map(|(_, data)| data.len()).collect::<Vec<_>>(), [5], "the mark is kept");
        let mut decoder = Decoder::new(reply.to_bytes().into());
        ReplyHeader::decode(&mut decoder).unwrap().status.unwrap();
        let mut results: Results = Results::decode(&mut decoder).unwrap();
        decoder.finish().unwrap();
        assert_eq!((results.status, results.tag, results.results.len()), (Status::NOTDIR, tag, 4));
        assert_eq!(results.results.pop().unwrap().status(), Status::NOTDIR);
        assert_eq!(only!(results.results.pop().unwrap(), Read).unwrap().data, [7; 5][..]);
    }
}

/// A client that fetches many small files asks for many in one call: one job reads them.
#[test]
fn many_small_files_are_read_by_one_job() {
    /// As many as the session allows operations.
    const FILES: usize = 15;
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    let state = StateDirectory::open(scratch.path().join("state"), &*env().random).unwrap();
    let workers = Arc::new(Counted::default());
    let start = || {
        let directory = DirectoryFs::open(&served, &state, Queue::new(workers.clone()), &env()).unwrap();
        TestServer::serving(Arc::new(directory))
    };
    let names: Vec<_> = (0..FILES).map(|number| format!("file {number}")).collect();
    for (number, name) in names.iter().enumerate() {
        fs::write(served.join(name), vec![number as u8; 100 + number]).unwrap();
    }
    let server = start();
    let client = server.client("a");
    let files: Vec<_> = names.iter().map(|name| client.walk(name).unwrap()).collect();
    drop((client, server));
    // A server that has seen none of the files yet.
    let server = start();
    let client = server.client("a");
    let read = |count| Args::Read(ops::Read { state: StateId::ANONYMOUS, offset: 0, count });
    let pair = |file: &Handle, count| [Args::PutFh(ops::PutFh { file: file.clone() }), read(count)];
    let before = workers.0.load(Ordering::Relaxed);
    let outcomes = client.call(files.iter().flat_map(|file| pair(file, 200)).collect());
    const TMPFS: i64 = 0x0102_1994;
    let has_disk = rustix::fs::statfs(&served).unwrap().f_type != TMPFS;
    assert_eq!(workers.0.load(Ordering::Relaxed) - before, usize::from(has_disk));
    let data = |outcome: &Outcome<rpcrdma_xdr::ItemData>| match outcome {
        Outcome::Read(Ok(read)) => (read.end, read.data.as_slice().to_vec()),
        other => panic!("{other:?}"),
    };
    let came: Vec<_> = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Read(_))).map(data).collect();
    assert_eq!(came.len(), FILES);
    for (number, came) in came.iter().enumerate() {
        assert_eq!(*came, (true, vec![number as u8; 100 + number]), "each file's own");
    }
    // Each READ fails on its own, and the results before it stay.
    let root = client.walk("").unwrap();
    for (bad, status) in [(&root, Status::ISDIR), (&Handle::new(b"nothing").unwrap(), Status::BADHANDLE)] {
        let ops: Vec<_> = [&files[1], &files[2], bad, &files[3]].into_iter().flat_map(|file| pair(file, 50)).collect();
        let outcomes = client.call(ops);
        assert_eq!(outcomes.last().unwrap().status(), status);
        let came: Vec<_> =
            outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Read(Ok(_)))).map(data).collect();
        assert_eq!(came, [(false, vec![1; 50]), (false, vec![2; 50])]);
    }
}
