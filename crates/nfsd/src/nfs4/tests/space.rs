//! SEEK, READ_PLUS, ALLOCATE, DEALLOCATE, IO_ADVISE.

use super::*;
use crate::nfs4::testing::Setup;
use rpcrdma_nfs::v4::{Attribute, Bitmap, StateIdOther, ops::Content};

const PAGE: u64 = 4_096;
/// A stateid that the server has never given out.
const NOTHING: StateId = StateId { sequence: 1, other: StateIdOther([3; 12]) };

pub(super) fn size(client: &TestClient, file: &Handle) -> u64 {
    number(client, file, Attribute::Size)
}

fn number(client: &TestClient, file: &Handle, attribute: Attribute) -> u64 {
    let asked = Bitmap::of(&[attribute]);
    let told = only!(client.on(file, Args::GetAttr(ops::GetAttr { asked })), GetAttr).unwrap();
    match told.attributes.values().unwrap().remove(0) {
        Value::Size(number) | Value::SpaceUsed(number) | Value::Change(number) => number,
        other => panic!("{other:?}"),
    }
}

fn seek(client: &TestClient, file: &Handle, state: StateId, offset: u64, what: Content) -> Result<(u64, bool), Status> {
    let seek = Args::Seek(ops::Seek { state, offset, what });
    only!(client.on(file, seek), Seek).map(|ok| (ok.offset, ok.end))
}

fn allocate(client: &TestClient, file: &Handle, state: StateId, (offset, length): (u64, u64)) -> Status {
    client.on(file, Args::Allocate(ops::Allocate { state, offset, length })).status()
}

fn deallocate(client: &TestClient, file: &Handle, state: StateId, (offset, length): (u64, u64)) -> Status {
    client.on(file, Args::Deallocate(ops::Deallocate { state, offset, length })).status()
}

fn advise(
    client: &TestClient,
    file: &Handle,
    state: StateId,
    range: (u64, u64),
    hints: &[u32],
) -> Result<Vec<u32>, Status> {
    let hints = Bitmap::of_numbers(hints.iter().copied());
    let advise = Args::IoAdvise(ops::IoAdvise { state, offset: range.0, length: range.1, hints });
    only!(client.on(file, advise), IoAdvise).map(|ok| ok.hints.iter().collect())
}

fn read_plus(
    client: &TestClient,
    file: &Handle,
    state: StateId,
    offset: u64,
    count: u32,
) -> Result<ops::ReadPlusOk, Status> {
    only!(client.on(file, Args::ReadPlus(ops::ReadPlus { state, offset, count })), ReadPlus)
}

/// The contents of pieces; checks that each begins where the one before it ends.
fn joined(ok: &ops::ReadPlusOk, mut at: u64) -> Vec<u8> {
    let mut octets = Vec::new();
    for piece in ok.pieces.iter() {
        match piece {
            ops::Piece::Data(piece) => {
                assert_eq!(piece.offset, at);
                octets.extend(piece.data.as_slice());
                at += piece.data.as_slice().len() as u64;
            }
            ops::Piece::Hole(piece) => {
                assert_eq!(piece.offset, at);
                octets.extend(vec![0; piece.length as usize]);
                at += piece.length;
            }
            other => panic!("{other:?}"),
        }
    }
    octets
}

fn holes(ok: &ops::ReadPlusOk) -> Vec<(u64, u64)> {
    let hole = |piece: &ops::Piece| match piece {
        ops::Piece::Hole(hole) => Some((hole.offset, hole.length)),
        _ => None,
    };
    ok.pieces.iter().filter_map(hole).collect()
}

/// A file of seven pages, with data in pages 0, 3 and 4.
fn sparse(client: &TestClient) -> (Handle, StateId, Vec<u8>) {
    let (file, state) = create(client, "sparse", "o");
    client.write(&file, state, 0, &vec![1; PAGE as usize]).unwrap();
    client.write(&file, state, 3 * PAGE, &vec![2; 2 * PAGE as usize]).unwrap();
    let set = FileAttributes::of(&[Value::Size(7 * PAGE)]);
    assert_eq!(client.on(&file, Args::SetAttr(ops::SetAttr { state, attributes: set })).status(), Status::OK);
    let page = PAGE as usize;
    let octets = [vec![1; page], vec![0; 2 * page], vec![2; 2 * page], vec![0; 2 * page]].concat();
    (file, state, octets)
}

/// proves: NFS4-7862-15.11.3-a, NFS4-7862-15.11.3-b, NFS4-7862-15.11.3-c
#[test]
fn data_and_holes_are_found() {
    on_each(|server| {
        let client = server.client("a");
        let (file, state, _) = sparse(&client);
        let (data, hole) = (Content::Data, Content::Hole);
        let seek = |offset, what| seek(&client, &file, state, offset, what);
        assert_eq!(seek(0, data), Ok((0, false)));
        assert_eq!(seek(0, hole), Ok((PAGE, false)));
        assert_eq!(seek(PAGE + 1, hole), Ok((PAGE + 1, false)), "where one is");
        assert_eq!(seek(PAGE, data), Ok((3 * PAGE, false)));
        assert_eq!(seek(4 * PAGE, hole), Ok((5 * PAGE, false)));
        assert_eq!(seek(5 * PAGE, data), Ok((7 * PAGE, true)), "there is no more");
        assert_eq!(seek(7 * PAGE - 1, hole), Ok((7 * PAGE - 1, false)));
        for offset in [7 * PAGE, 7 * PAGE + 1, u64::MAX] {
            assert_eq!((seek(offset, data), seek(offset, hole)), (Err(Status::NXIO), Err(Status::NXIO)));
        }
        let (full, state) = create(&client, "full", "o");
        client.write(&full, state, 0, b"data").unwrap();
        assert_eq!(super::space::seek(&client, &full, state, 0, hole), Ok((4, true)), "behind the last byte");
    });
}

/// proves: NFS4-7862-15.10.3-a, NFS4-7862-15.10.3-b
#[test]
fn data_and_holes_are_read_as_what_they_are() {
    on_each(|server| {
        let client = server.client("a");
        let (file, state, octets) = sparse(&client);
        let whole = read_plus(&client, &file, state, 0, u32::MAX).unwrap();
        assert!(whole.end && joined(&whole, 0) == octets);
        assert_eq!(holes(&whole), [(PAGE, 2 * PAGE), (5 * PAGE, 2 * PAGE)]);
        let size = octets.len() as u64;
        for (offset, count) in
            [(5, 100), (PAGE - 1, 2), (PAGE + 3, 7), (2 * PAGE - 1, 3 * PAGE), (size - 1, 1), (size - 9, 8)]
        {
            let (end, mut at) = (octets.len().min((offset + count) as usize) as u64, offset);
            while at < end {
                // If there are few bytes and many pieces, the reply has less than the client asked for.
                let read = read_plus(&client, &file, state, at, (end - at) as u32).unwrap();
                let found = joined(&read, at);
                assert!(!found.is_empty() && octets[at as usize..end as usize].starts_with(&found), "{offset} {count}");
                at += found.len() as u64;
                assert_eq!(read.end, at >= size, "{offset} {count}");
            }
        }
        for (offset, count, end) in [(0, 0, false), (size, 9, true), (size, 0, true), (u64::MAX, u32::MAX, true)] {
            let read = read_plus(&client, &file, state, offset, count).unwrap();
            assert_eq!((read.pieces.len(), read.end), (0, end), "{offset} {count}");
        }
        let (empty, state) = create(&client, "empty", "o");
        assert!(read_plus(&client, &empty, state, 0, 9).unwrap().end);
    });
}

/// proves: NFS4-7862-15.10.3-d
#[test]
fn pieces_take_no_more_of_a_reply_than_data_would() {
    on_each(|server| {
        let client = server.client("a");
        let (file, state) = create(&client, "f", "o");
        let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
        client.write(&file, state, 0, &data).unwrap();
        let whole = read_plus(&client, &file, state, 0, 1 << 20).unwrap();
        assert!(whole.end && joined(&whole, 0) == data, "a mebioctet at once");
        // A hole in the middle takes some bytes of the reply, for which the missing data has made room.
        assert_eq!(deallocate(&client, &file, state, (5 * PAGE, PAGE)), Status::OK);
        let pierced = read_plus(&client, &file, state, 0, 1 << 20).unwrap();
        assert_eq!((pierced.end, holes(&pierced)), (true, vec![(5 * PAGE, PAGE)]));
        assert!(joined(&pierced, 0)[6 * PAGE as usize..] == data[6 * PAGE as usize..]);
        let few = read_plus(&client, &file, state, 5 * PAGE - 1, 2).unwrap();
        assert_eq!((few.pieces.len(), joined(&few, 5 * PAGE - 1).len()), (1, 1), "no second piece beside two bytes");
        // Two READ_PLUS in one reply: the second gets the rest of the room.
        let read = Args::ReadPlus(ops::ReadPlus { state, offset: 0, count: 1 << 20 });
        let mut outcomes = client.call(vec![Args::PutFh(ops::PutFh { file: file.clone() }), read.clone(), read]);
        let second = only!(outcomes.pop().unwrap(), ReadPlus).unwrap();
        let len = joined(&second, 0).len();
        assert!(!second.end && (1..16_384).contains(&len), "{len}");
    });
}

/// proves: NFS4-7862-15.10.3-d
#[test]
fn a_read_of_many_holes_ends_at_the_limit_of_pieces() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (file, state) = create(&client, "f", "o");
    for number in 0..130 {
        client.write(&file, state, 2 * number * PAGE, &[1]).unwrap();
    }
    // 130 pages of data, and 129 holes between them.
    let read = read_plus(&client, &file, state, 0, u32::MAX).unwrap();
    assert_eq!((read.pieces.len(), read.end), (256, false));
    let at = joined(&read, 0).len() as u64;
    let rest = read_plus(&client, &file, state, at, u32::MAX).unwrap();
    assert!(rest.end && at + joined(&rest, at).len() as u64 == size(&client, &file));
    assert_eq!(rest.pieces.len(), 3, "and not one more");
}

/// proves: NFS4-7862-15.1.3-a, NFS4-7862-15.4.3-a
#[test]
fn space_is_reserved_and_given_back() {
    on_each(|server| {
        let client = server.client("a");
        let (file, state) = create(&client, "f", "o");
        client.write(&file, state, 0, b"data").unwrap();
        let change = number(&client, &file, Attribute::Change);
        assert_eq!(allocate(&client, &file, state, (2, 10 * PAGE)), Status::OK);
        assert_eq!(size(&client, &file), 10 * PAGE + 2);
        assert!(number(&client, &file, Attribute::SpaceUsed) >= 10 * PAGE);
        assert_ne!(number(&client, &file, Attribute::Change), change);
        let read = client.read(&file, state, 0, 9).unwrap();
        assert_eq!(read, b"data\0\0\0\0\0", "what was there stays");
        assert_eq!(allocate(&client, &file, state, (0, 1)), Status::OK);
        assert_eq!(size(&client, &file), 10 * PAGE + 2, "and a range within changes no size");
        let used = number(&client, &file, Attribute::SpaceUsed);
        let change = number(&client, &file, Attribute::Change);
        assert_eq!(deallocate(&client, &file, state, (3, 5 * PAGE)), Status::OK);
        assert_eq!(client.read(&file, state, 0, 9).unwrap(), b"dat\0\0\0\0\0\0");
        assert!(number(&client, &file, Attribute::SpaceUsed) < used);
        assert_ne!(number(&client, &file, Attribute::Change), change);
        assert_eq!(deallocate(&client, &file, state, (9 * PAGE, 90 * PAGE)), Status::OK, "also beyond the end");
        assert_eq!(size(&client, &file), 10 * PAGE + 2);
    });
}

/// proves: NFS4-7862-15.1.3-a
#[test]
fn ranges_that_no_file_can_have_are_refused() {
    on_each(|server| {
        let client = server.client("a");
        let (file, state) = create(&client, "f", "o");
        let largest = i64::MAX as u64;
        for (range, status) in [
            ((0, 0), Status::INVAL),
            ((u64::MAX, 1), Status::INVAL),
            ((1, u64::MAX), Status::INVAL),
            ((largest, 1), Status::FBIG),
            ((0, u64::MAX), Status::FBIG),
        ] {
            assert_eq!(allocate(&client, &file, state, range), status, "{range:?}");
            assert_eq!(deallocate(&client, &file, state, range), status, "{range:?}");
        }
        // The largest end of a protocol or a file system: there is no space, or the file cannot be that large.
        assert!([Status::OK, Status::FBIG].contains(&deallocate(&client, &file, state, (largest - 1, 1))));
        assert!([Status::NOSPC, Status::FBIG].contains(&allocate(&client, &file, state, (0, largest))));
        assert_eq!(size(&client, &file), 0);
        assert_eq!(advise(&client, &file, state, (u64::MAX, 1), &[4]), Err(Status::INVAL));
        assert_eq!(advise(&client, &file, state, (u64::MAX, 0), &[4]).map(|_| ()), Ok(()));
    });
}

#[test]
fn a_memory_that_is_full_reserves_no_more() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (file, state) = create(&client, "f", "o");
    assert_eq!(allocate(&client, &file, state, (0, (64 << 20) + 1)), Status::NOSPC, "one past it");
    assert_eq!(allocate(&client, &file, state, (0, 64 << 20)), Status::OK, "at the limit");
    let (other, state) = create(&client, "other", "o");
    assert_eq!(client.write(&other, state, 0, b"x"), Err(Status::NOSPC));
    assert_eq!(deallocate(&client, &file, StateId::ANONYMOUS, (0, PAGE)), Status::OK);
    assert_eq!(client.write(&other, state, 0, b"x"), Ok(1));
}

/// proves: NFS4-7862-15.5.3-a
#[test]
fn advice_is_taken_or_not_and_never_an_error() {
    on_each(|server| {
        let client = server.client("a");
        let (file, state) = create(&client, "f", "o");
        let advise = |hints: &[u32]| advise(&client, &file, state, (0, 0), hints);
        assert_eq!(advise(&[1, 3]), Ok(vec![0]), "contradictory");
        assert_eq!(advise(&[95]), Ok(vec![0]), "unknown");
        assert_eq!(advise(&[]), Ok(vec![0]));
        assert!(advise(&[4, 9]).is_ok());
    });
    let server = TestServer::directory();
    let client = server.client("a");
    let (file, state) = create(&client, "f", "o");
    client.write(&file, state, 0, b"data").unwrap();
    assert_eq!(advise(&client, &file, state, (0, 1 << 40), &[4]), Ok(vec![4]), "it is read ahead");
}

/// Each operation with all kinds of stateids, and by each kind of caller.
#[test]
fn stateids_are_checked_as_those_of_reads_and_writes() {
    on_each(|server| {
        let (a, b) = (server.client("a"), server.client("b"));
        let (file, state) = create(&a, "f", "o");
        a.write(&file, state, 0, b"data").unwrap();
        let all = |client: &TestClient, state| {
            let reads = [
                seek(client, &file, state, 0, Content::Data).err().unwrap_or(Status::OK),
                read_plus(client, &file, state, 0, 9).err().unwrap_or(Status::OK),
            ];
            (reads, [allocate(client, &file, state, (0, 4)), deallocate(client, &file, state, (9, 9))])
        };
        let same = |status| ([status; 2], [status; 2]);
        assert_eq!(all(&a, state), same(Status::OK));
        assert_eq!((all(&a, StateId::ANONYMOUS), all(&a, StateId::BYPASS)), (same(Status::OK), same(Status::OK)));
        for nothing in [NOTHING, StateId::INVALID, StateId::CURRENT] {
            assert_eq!(all(&a, nothing), same(Status::BAD_STATEID));
            assert_eq!(advise(&a, &file, nothing, (0, 0), &[4]), Err(Status::BAD_STATEID));
        }
        assert_eq!(all(&b, state), same(Status::BAD_STATEID), "another's");
        assert_eq!(advise(&b, &file, state, (0, 0), &[]), Err(Status::BAD_STATEID));
        let (_, reading) = open(&b, "f", "o", READ, 0).unwrap();
        assert_eq!(all(&b, reading), ([Status::OK; 2], [Status::OPENMODE; 2]));
        close(&b, &file, reading);
        close(&a, &file, state);
        let (_, denying) = open(&a, "f", "o", BOTH, BOTH).unwrap();
        let locked = all(&b, StateId::ANONYMOUS);
        assert_eq!(locked, same(Status::LOCKED), "who denies it is asked");
        assert_eq!(all(&b, StateId::BYPASS), ([Status::OK; 2], [Status::LOCKED; 2]));
        assert_eq!(all(&a, denying), same(Status::OK));
    });
}

/// proves: NFS4-7862-15.1.3-b, NFS4-7862-15.10.3-c
#[test]
fn what_is_no_regular_file_has_neither_holes_nor_space() {
    let server = TestServer::directory();
    let client = server.client("a");
    std::fs::create_dir(server.served().join("d")).unwrap();
    std::os::unix::fs::symlink("d", server.served().join("l")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(server.served().join("s")).unwrap();
    let state = StateId::ANONYMOUS;
    for (name, status) in [("d", Status::ISDIR), ("l", Status::SYMLINK), ("s", Status::WRONG_TYPE)] {
        let file = client.walk(name).unwrap();
        assert_eq!(read_plus(&client, &file, state, 0, 9).err(), Some(status), "{name}");
        assert_eq!(seek(&client, &file, state, 0, Content::Data), Err(status), "{name}");
        assert_eq!(advise(&client, &file, state, (0, 0), &[]), Err(status), "{name}");
        assert_eq!(allocate(&client, &file, state, (0, 9)), Status::WRONG_TYPE, "{name}");
        assert_eq!(deallocate(&client, &file, state, (0, 9)), Status::WRONG_TYPE, "{name}");
    }
    let nothing = vec![Args::Seek(ops::Seek { state, offset: 0, what: Content::Data })];
    assert_eq!(client.status(nothing), Status::NOFILEHANDLE);
}

#[test]
fn nothing_is_changed_in_an_export_to_be_read() {
    let server = TestServer::directory_with(Setup { read_only: true, ..Setup::default() });
    std::fs::write(server.served().join("f"), "data").unwrap();
    let client = server.client("a");
    let file = client.walk("f").unwrap();
    let state = StateId::ANONYMOUS;
    assert_eq!(allocate(&client, &file, state, (0, 9)), Status::ROFS);
    assert_eq!(deallocate(&client, &file, state, (0, 9)), Status::ROFS);
    assert_eq!(seek(&client, &file, state, 0, Content::Data), Ok((0, false)));
}

#[test]
fn rights_are_asked_of_who_has_nothing_open() {
    on_each(|server| {
        let (file, _) = create(&server.client("a"), "f", "o");
        let stranger = server.client_as("b", 2, 1_000, 1);
        stranger.reclaim_complete();
        let state = StateId::ANONYMOUS;
        assert_eq!(allocate(&stranger, &file, state, (0, 9)), Status::ACCESS);
        assert_eq!(deallocate(&stranger, &file, state, (0, 9)), Status::ACCESS);
        assert_eq!(read_plus(&stranger, &file, state, 0, 9).map(|ok| ok.end), Ok(true), "its mode is 644");
    });
}
