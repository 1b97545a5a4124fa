//! READ, WRITE, COMMIT.

use super::*;
use rpcrdma_nfs::v4::{Attribute, Bitmap, Value, Verifier};

/// proves: NFS4-8881-18.22-a
#[test]
fn a_mebioctet_is_read_at_once() {
    on_each(|server| {
        let client = server.client("a");
        let (file, state) = create(&client, "f", "o");
        let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
        assert_eq!(client.write(&file, state, 0, &data), Ok(1 << 20));
        let read = |offset, count| {
            let read = only!(client.on(&file, Args::Read(ops::Read { state, offset, count })), Read).unwrap();
            (read.data.as_slice().to_vec(), read.end)
        };
        assert_eq!(read(0, 1 << 20), (data.clone(), true));
        assert_eq!(read(0, u32::MAX), (data.clone(), true), "no memory on the client's word");
        assert_eq!(read(1, 4), (data[1..5].to_vec(), false));
        assert_eq!(read((1 << 20) - 1, 100_000), (data[(1 << 20) - 1..].to_vec(), true));
        assert_eq!(read(u64::MAX, 1 << 20), (vec![], true));
    });
}

/// proves: NFS4-8881-18.22-a
#[test]
fn a_second_read_gets_what_the_reply_has_left() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (file, state) = create(&client, "f", "o");
    client.write(&file, state, 0, &vec![7; 1 << 20]).unwrap();
    let read = Args::Read(ops::Read { state, offset: 0, count: 1 << 20 });
    let mut outcomes = client.call(vec![Args::PutFh(ops::PutFh { file }), read.clone(), read]);
    let second = only!(outcomes.pop().unwrap(), Read).unwrap();
    assert!(!second.end && (1..8_192).contains(&second.data.as_slice().len()), "{}", second.data.as_slice().len());
    assert_eq!(only!(outcomes.pop().unwrap(), Read).unwrap().data.as_slice().len(), 1 << 20);
}

/// proves: NFS4-8881-9.1.2-d
#[test]
fn an_open_for_writing_reads_where_the_caller_may_and_one_for_reading_never_writes() {
    on_each(|server| {
        let (a, b) = (server.client("a"), server.client("b"));
        let (file, state) = create(&a, "f", "o");
        a.write(&file, state, 0, b"data").unwrap();
        close(&a, &file, state);
        let (_, writing) = open(&a, "f", "o", WRITE, 0).unwrap();
        assert_eq!(a.read(&file, writing, 0, 9), Ok(b"data".to_vec()));
        let (_, reading) = open(&b, "f", "o", READ, 0).unwrap();
        assert_eq!(b.write(&file, reading, 0, b"x"), Err(Status::OPENMODE));
        close(&b, &file, reading);
        open(&b, "f", "o", WRITE, READ).unwrap();
        assert_eq!(a.read(&file, writing, 0, 9), Err(Status::LOCKED));
    });
}

#[test]
fn what_is_no_regular_file_has_no_data() {
    let server = TestServer::directory();
    let client = server.client("a");
    std::fs::create_dir(server.served().join("d")).unwrap();
    std::os::unix::fs::symlink("d", server.served().join("l")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(server.served().join("s")).unwrap();
    for (name, status) in [("d", Status::ISDIR), ("l", Status::SYMLINK), ("s", Status::WRONG_TYPE)] {
        let file = client.walk(name).unwrap();
        assert_eq!(client.read(&file, StateId::ANONYMOUS, 0, 9), Err(status), "{name}");
        assert_eq!(client.write(&file, StateId::ANONYMOUS, 0, b"x"), Err(status), "{name}");
        let commit = Args::Commit(ops::Commit { offset: 0, count: 0 });
        assert_eq!(client.on(&file, commit).status(), status, "{name}");
    }
}

/// proves: NFS4-8881-18.32-a
#[test]
fn the_write_verifier_is_another_one_after_a_restart() {
    let server = TestServer::directory();
    let verifiers = |client: &TestClient, name: &str| -> [Verifier; 2] {
        let (file, state) = create(client, name, "o");
        let stability = ops::Stability::Unstable;
        let write = ops::Write { state, offset: 0, stability, data: b"data".to_vec().into() };
        let written = only!(client.on(&file, Args::Write(write)), Write).unwrap();
        let commit = Args::Commit(ops::Commit { offset: 0, count: 0 });
        [written.verifier, only!(client.on(&file, commit), Commit).unwrap().verifier]
    };
    let before = verifiers(&server.client("a"), "f");
    assert_eq!(before[0], before[1]);
    let server = server.restart();
    let client = server.client_as("a", 2, 0, 2);
    client.reclaim_complete();
    let after = verifiers(&client, "g");
    assert_eq!(after[0], after[1]);
    assert_ne!(before[0], after[0]);
}

/// proves: NFS4-8881-9.1.2-c
#[test]
fn a_lock_of_another_refuses_no_reading_and_no_writing() {
    let server = TestServer::memory();
    let (a, b) = (server.client("a"), server.client("b"));
    let (file, state) = create(&a, "f", "o");
    super::lock::lock(&a, &file, super::lock::first(&a, state, "l"), super::lock::WRITE, (0, 10)).unwrap();
    assert_eq!(b.write(&file, StateId::ANONYMOUS, 0, b"data"), Ok(4));
    assert_eq!(b.read(&file, StateId::ANONYMOUS, 0, 4), Ok(b"data".to_vec()));
}

/// Calls that came together share what the first has found out about a file. Within a call, an operation sees what
/// those before it have seen.
#[test]
fn only_the_first_look_of_a_call_is_shared_with_calls_that_came_with_it() {
    let server = TestServer::directory();
    let mut client = server.client("a");
    let (file, state) = create(&client, "f", "o");
    client.write(&file, state, 0, b"0123456789").unwrap();
    client.rpc.arrival = Some(rpcrdma_oncrpc::Arrival::new());
    let look = || Args::GetAttr(ops::GetAttr { asked: Bitmap::of(&[Attribute::Size]) });
    let read = || Args::Read(ops::Read { state, offset: 0, count: 4 });
    let put = || Args::PutFh(ops::PutFh { file: file.clone() });
    let size = |ops: Vec<Args>| {
        let told = only!(client.last([vec![put()], ops].concat()), GetAttr).unwrap();
        match told.attributes.values().unwrap()[..] {
            [Value::Size(size)] => size,
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(size(vec![look()]), 10);
    // A program of the host makes the file longer.
    let on_host = std::fs::OpenOptions::new().write(true).open(server.served().join("f")).unwrap();
    on_host.set_len(20).unwrap();
    assert_eq!(size(vec![look()]), 10, "as it was when the calls came");
    assert_eq!(size(vec![read(), look()]), 20, "the read may have seen the longer file");
    on_host.set_len(30).unwrap();
    assert_eq!(size(vec![look(), look()]), 30, "the first may have seen the file as it is");
    on_host.set_len(40).unwrap();
    let access = Args::Access(ops::Access { rights: 1 });
    assert_eq!(size(vec![access, look()]), 40);
}

/// A short READ is answered at once with as much as the reply may have.
#[test]
fn a_short_read_gets_no_more_than_the_session_allows() {
    let server = TestServer::memory();
    let writer = server.client("a");
    let (file, state) = create(&writer, "f", "o");
    writer.write(&file, state, 0, &[7; 4_096]).unwrap();
    let client = TestClient::with(server.version_3(), "b", |create| create.fore.max_response = 2_048);
    client.reclaim_complete();
    let (_, state) = open(&client, "f", "o", READ, 0).unwrap();
    let read = |count| {
        let read = only!(client.on(&file, Args::Read(ops::Read { state, offset: 0, count })), Read).unwrap();
        (read.data.as_slice().len(), read.end)
    };
    let (len, end) = read(4_096);
    assert!(!end && (1_024..2_048).contains(&len), "{len}");
    assert_eq!(read(100), (100, false));
}
