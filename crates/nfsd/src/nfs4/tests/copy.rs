//! CLONE and COPY.

use super::{space::size, *};
use rpcrdma_nfs::v4::{
    List, StateIdOther,
    ops::{CopyFailure, CopyOk, ServerLocation, Stability},
};
use std::os::unix::fs::{FileExt, MetadataExt};

const NOTHING: StateId = StateId { sequence: 1, other: StateIdOther([3; 12]) };
const UNIT: u64 = 4_096;

/// A file, and its stateid.
pub(super) type End = (Handle, StateId);

/// The offsets in source and destination, and the length.
pub(super) type Range = (u64, u64, u64);

pub(super) fn copy_args((from, to): (&End, &End), range: Range, synchronous: bool) -> ops::CopyRange {
    ops::CopyRange {
        source_state: from.1,
        state: to.1,
        source_offset: range.0,
        offset: range.1,
        count: range.2,
        consecutive: true,
        synchronous,
        source_servers: List::default(),
    }
}

/// An operation on two files.
fn on_two(client: &TestClient, (from, to): (&End, &End), op: Args) -> Outcome<rpcrdma_xdr::ItemData> {
    let put = |end: &End| Args::PutFh(ops::PutFh { file: end.0.clone() });
    client.last(vec![put(from), Args::SaveFh, put(to), op])
}

pub(super) fn copy_with(client: &TestClient, ends: (&End, &End), args: ops::CopyRange) -> Result<CopyOk, CopyFailure> {
    only!(on_two(client, ends, Args::Copy(Box::new(args))), Copy)
}

/// How many bytes were copied before the reply.
fn copy(client: &TestClient, ends: (&End, &End), range: Range) -> Result<u64, CopyFailure> {
    let ok = copy_with(client, ends, copy_args(ends, range, true))?;
    assert!(ok.requirements.synchronous && ok.requirements.consecutive && ok.response.callback.is_none());
    Ok(ok.response.count)
}

fn clone(client: &TestClient, ends: (&End, &End), range: Range) -> Status {
    let clone = ops::CloneRange {
        source_state: ends.0.1,
        state: ends.1.1,
        source_offset: range.0,
        offset: range.1,
        count: range.2,
    };
    on_two(client, ends, Args::Clone(clone)).status()
}

fn failed<T>(status: Status) -> Result<T, CopyFailure> {
    Err(status.into())
}

pub(super) fn whole(client: &TestClient, end: &End) -> Vec<u8> {
    let (mut octets, mut at) = (Vec::new(), 0);
    loop {
        let read = client.read(&end.0, end.1, at, 1 << 20).unwrap();
        if read.is_empty() {
            return octets;
        }
        at += read.len() as u64;
        octets.extend(read);
    }
}

/// proves: NFS4-7862-15.2.3-c, NFS4-7862-15.2.3-d
#[test]
fn a_range_is_copied() {
    on_each(|server| {
        let client = server.client("a");
        let (from, to) = (create(&client, "from", "o"), create(&client, "to", "o"));
        let ends = (&from, &to);
        client.write(&from.0, from.1, 0, b"0123456789").unwrap();
        client.write(&to.0, to.1, 0, b"abcdefghij").unwrap();
        assert_eq!(copy(&client, ends, (2, 4, 3)), Ok(3));
        assert_eq!(whole(&client, &to), b"abcd234hij");
        assert_eq!(copy(&client, ends, (8, 9, 0)), Ok(2), "up to the end");
        assert_eq!(whole(&client, &to), b"abcd234hi89");
        assert_eq!(copy(&client, ends, (0, 14, 10)), Ok(10), "beyond the end");
        assert_eq!(whole(&client, &to), [&b"abcd234hi89"[..], &[0; 3], b"0123456789"].concat());
        assert_eq!(copy(&client, ends, (10, 0, 0)), Ok(0), "of nothing");
        for beyond in
            [(10, 0, 1), (0, 0, 11), (11, 0, 0), (11, 0, 1), (u64::MAX, 0, 1), (0, u64::MAX, 1), (1, 0, u64::MAX)]
        {
            assert_eq!(copy(&client, ends, beyond), failed(Status::INVAL), "{beyond:?}");
        }
        assert_eq!(copy(&client, ends, (0, i64::MAX as u64, 1)), failed(Status::FBIG));
        assert_eq!(size(&client, &to.0), 24);
    });
}

/// Copied data is not yet on the disk, and the client learns it if it is lost.
#[test]
fn a_copy_is_committed_as_a_write_is() {
    let server = TestServer::directory();
    let client = server.client("a");
    let (from, to) = (create(&client, "from", "o"), create(&client, "to", "o"));
    client.write(&from.0, from.1, 0, b"data").unwrap();
    let ok = copy_with(&client, (&from, &to), copy_args((&from, &to), (0, 0, 0), false)).unwrap();
    assert_eq!((ok.response.committed, ok.response.count), (Stability::Unstable, 4));
    let commit = only!(client.on(&to.0, Args::Commit(ops::Commit { offset: 0, count: 0 })), Commit).unwrap();
    assert_eq!(commit.verifier, ok.response.verifier);
}

/// proves: NFS4-LIMITS-COPIES-b
#[test]
fn so_much_is_copied_before_the_answer_and_no_more() {
    on_each(|server| {
        let client = server.client("a");
        let (from, to) = (create(&client, "from", "o"), create(&client, "to", "o"));
        for at in 0..5 {
            client.write(&from.0, from.1, at << 20, &vec![at as u8 + 1; 1 << 20]).unwrap();
        }
        let limit = 4 << 20;
        assert_eq!(copy(&client, (&from, &to), (0, 0, limit)), Ok(limit), "at the limit");
        assert_eq!(copy(&client, (&from, &to), (0, 0, limit + 1)), Ok(limit), "one past it");
        assert_eq!(copy(&client, (&from, &to), (limit, limit, 0)), Ok(1 << 20));
        assert!(whole(&client, &from) == whole(&client, &to));
        // A client that the server cannot call gets its reply at once, even if it offers to wait.
        let ok = copy_with(&client, (&from, &to), copy_args((&from, &to), (0, 0, 0), false)).unwrap();
        assert_eq!((ok.response.count, ok.response.callback, ok.requirements.synchronous), (limit, None, true));
    });
}

#[test]
fn a_copy_of_a_sparse_file_is_sparse() {
    let server = TestServer::directory();
    let client = server.client("a");
    let source = std::fs::File::create(server.served().join("from")).unwrap();
    let gib = 1 << 30;
    source.write_all_at(&[7; 5_000], gib).unwrap();
    source.write_all_at(&[8; 5_000], 3 * gib + 100).unwrap();
    source.set_len(9 * gib).unwrap();
    let ends = [open(&client, "from", "o", READ, 0).unwrap(), create(&client, "to", "o")];
    let (mut at, size) = (0, 9 * gib);
    while at < size {
        at += copy(&client, (&ends[0], &ends[1]), (at, at, size - at)).unwrap();
    }
    let copied = std::fs::metadata(server.served().join("to")).unwrap();
    assert_eq!(copied.len(), size);
    assert!(copied.blocks() * 512 < 1 << 20, "{}", copied.blocks());
    let target = std::fs::File::open(server.served().join("to")).unwrap();
    let octets = |at: u64| {
        let mut octets = [9; 5_002];
        target.read_exact_at(&mut octets, at - 1).unwrap();
        octets
    };
    for (at, octet) in [(gib, 7), (3 * gib + 100, 8)] {
        let octets = octets(at);
        assert!((octets[0], octets[5_001]) == (0, 0) && octets[1..5_001].iter().all(|found| *found == octet));
    }
    // If the destination has data, a hole puts zeroes there.
    client.write(&ends[1].0, ends[1].1, 5 * gib, b"data").unwrap();
    assert_eq!(copy(&client, (&ends[0], &ends[1]), (5 * gib, 5 * gib, 2)), Ok(2));
    assert_eq!(client.read(&ends[1].0, ends[1].1, 5 * gib, 4).unwrap(), b"\0\0ta");
}

/// proves: NFS4-7862-15.2.3-a, NFS4-7862-15.2.3-b, NFS4-7862-15.13.3-c
#[test]
fn copies_are_from_one_regular_file_to_another() {
    on_each(|server| {
        let client = server.client("a");
        let (file, other) = (create(&client, "f", "o"), create(&client, "other", "o"));
        client.write(&file.0, file.1, 0, &vec![1; 4 * UNIT as usize]).unwrap();
        assert_eq!(copy(&client, (&file, &file), (0, 2 * UNIT, UNIT)), failed(Status::INVAL));
        let root = (client.walk("").unwrap(), StateId::ANONYMOUS);
        for ends in [(&root, &file), (&file, &root)] {
            assert_eq!(copy(&client, ends, (0, 0, 1)), failed(Status::WRONG_TYPE));
            assert_eq!(clone(&client, ends, (0, 0, UNIT)), Status::WRONG_TYPE);
        }
        let put = |end: &End| Args::PutFh(ops::PutFh { file: end.0.clone() });
        let args = || Args::Copy(Box::new(copy_args((&file, &other), (0, 0, 1), true)));
        assert_eq!(client.status(vec![put(&file), args()]), Status::NOFILEHANDLE, "nothing is saved");
        let location = ServerLocation::Name("elsewhere".into());
        let elsewhere =
            ops::CopyRange { source_servers: vec![location].into(), ..copy_args((&file, &other), (0, 0, 1), true) };
        assert_eq!(copy_with(&client, (&file, &other), elsewhere), failed(Status::NOTSUPP));
    });
}

#[test]
fn both_stateids_are_checked() {
    on_each(|server| {
        let (a, b) = (server.client("a"), server.client("b"));
        let (from, to) = (create(&a, "from", "o"), create(&a, "to", "o"));
        a.write(&from.0, from.1, 0, &vec![1; UNIT as usize]).unwrap();
        let both = |client: &TestClient, states: (StateId, StateId)| {
            let (from, to) = ((from.0.clone(), states.0), (to.0.clone(), states.1));
            let copied = copy(client, (&from, &to), (0, 0, 1)).err().map_or(Status::OK, |failure| match failure {
                CopyFailure::Plain(status) => status,
                other => panic!("{other:?}"),
            });
            [copied, clone(client, (&from, &to), (0, 0, UNIT))]
                .into_iter()
                .filter(|status| *status != Status::NOTSUPP)
                .collect::<Vec<_>>()
        };
        let is =
            |found: Vec<Status>, wanted| assert!(found.iter().all(|status| *status == wanted), "{found:?} {wanted}");
        is(both(&a, (from.1, to.1)), Status::OK);
        is(both(&a, (StateId::ANONYMOUS, StateId::BYPASS)), Status::OK);
        is(both(&a, (NOTHING, to.1)), Status::BAD_STATEID);
        is(both(&a, (from.1, NOTHING)), Status::BAD_STATEID);
        is(both(&a, (to.1, from.1)), Status::BAD_STATEID);
        is(both(&b, (from.1, StateId::ANONYMOUS)), Status::BAD_STATEID);
        let (_, reading) = open(&b, "to", "o", READ, 0).unwrap();
        is(both(&b, (StateId::ANONYMOUS, reading)), Status::OPENMODE);
        close(&b, &to.0, reading);
        close(&a, &to.0, to.1);
        let (_, denying) = open(&a, "to", "o", BOTH, WRITE).unwrap();
        is(both(&b, (StateId::ANONYMOUS, StateId::ANONYMOUS)), Status::LOCKED);
        is(both(&a, (from.1, denying)), Status::OK);
        let stranger = server.client_as("c", 2, 1_000, 1);
        stranger.reclaim_complete();
        is(both(&stranger, (StateId::ANONYMOUS, StateId::BYPASS)), Status::LOCKED);
        close(&a, &to.0, denying);
        is(both(&stranger, (StateId::ANONYMOUS, StateId::ANONYMOUS)), Status::ACCESS);
    });
}

/// The current stateid is the destination's, and the saved one the source's.
#[test]
fn current_stateids_are_those_of_their_files() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (from, to) = (create(&client, "from", "o"), create(&client, "to", "o"));
    client.write(&from.0, from.1, 0, b"data").unwrap();
    let opening = |name: &str, access| Args::Open(Box::new(to_open(&client, name, "o", access, 0)));
    let args = copy_args((&(from.0.clone(), StateId::CURRENT), &(to.0.clone(), StateId::CURRENT)), (0, 0, 0), true);
    let ops = vec![
        Args::PutRootFh,
        opening("from", READ),
        Args::SaveFh,
        Args::PutRootFh,
        opening("to", WRITE),
        Args::Copy(Box::new(args.clone())),
    ];
    assert_eq!(only!(client.last(ops), Copy).unwrap().response.count, 4);
    assert_eq!(copy_with(&client, (&from, &to), args), failed(Status::BAD_STATEID), "there are none");
}

/// proves: NFS4-7862-15.13.3-a, NFS4-7862-15.13.3-b, NFS4-7862-15.13.3-c, NFS4-7862-15.13.3-d
#[test]
fn ranges_are_cloned_in_units() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (from, to) = (create(&client, "from", "o"), create(&client, "to", "o"));
    let data: Vec<u8> = (0..3 * UNIT + 10).map(|at| (at / UNIT) as u8 + 1).collect();
    client.write(&from.0, from.1, 0, &data).unwrap();
    let clone = |range| clone(&client, (&from, &to), range);
    assert_eq!(clone((UNIT, 0, 0)), Status::OK, "up to the end");
    assert!(whole(&client, &to) == data[UNIT as usize..]);
    assert_eq!(clone((0, 4 * UNIT, UNIT)), Status::OK);
    assert_eq!(size(&client, &to.0), 5 * UNIT);
    client.write(&from.0, from.1, 0, b"other").unwrap();
    assert_eq!(client.read(&to.0, to.1, 4 * UNIT, 5).unwrap(), [1; 5], "it is a copy");
    // The source ends within a unit of the destination that has more data.
    let before = whole(&client, &to);
    assert_eq!(clone((3 * UNIT, 0, 0)), Status::INVAL);
    assert!(whole(&client, &to) == before, "nothing behind the range is lost");
    for unaligned in [(1, 0, UNIT), (0, 1, UNIT), (0, 0, 1), (0, 0, UNIT - 1), (2 * UNIT, 0, UNIT + 9), (1, 0, 0)] {
        assert_eq!(clone(unaligned), Status::INVAL, "{unaligned:?}");
    }
    for beyond in
        [(4 * UNIT, 0, UNIT), (0, 0, 4 * UNIT), (8 * UNIT, 0, 0), (0, u64::MAX - UNIT + 1, UNIT), (UNIT, 0, u64::MAX)]
    {
        assert_eq!(clone(beyond), Status::INVAL, "{beyond:?}");
    }
    let same = |range| super::copy::clone(&client, (&from, &from), range);
    assert_eq!((same((0, UNIT, 2 * UNIT)), same((UNIT, 0, 2 * UNIT))), (Status::INVAL, Status::INVAL), "it overlaps");
    assert_eq!(same((0, UNIT, UNIT)), Status::OK);
}
