//! Version 2: the binding's table and the sizes of replies compared with the encoders, the places of marks, and
//! malformed bytes.

#[allow(dead_code, reason = "each test file uses its share")]
mod common;

use bytes::Bytes;
use common::{Facts, decode, encode, facts, not_eligible};
use proptest::prelude::*;
use rpcrdma_nfs::{Call, binding, v2};
use rpcrdma_xdr::{Decode, Decoder, Encode, Stream, padded};

fn handle() -> v2::Handle {
    v2::Handle([0xA5; v2::HANDLE_BYTES])
}

fn name() -> v2::Name {
    v2::Name::from("name")
}

fn attributes() -> v2::Attributes {
    let time = v2::Time { seconds: 1, microseconds: 2 };
    v2::Attributes {
        file_type: v2::file_type::REGULAR,
        mode: 0o100_644,
        links: 1,
        uid: 2,
        gid: 3,
        size: 1 << 30,
        block_bytes: 4096,
        device: u32::MAX,
        blocks: 8,
        file_system: 77,
        file_id: 99,
        accessed: time,
        modified: time,
        changed: time,
    }
}

fn found() -> v2::Answer<v2::LookupOk> {
    v2::Answer::Ok(v2::LookupOk { file: handle(), attributes: attributes() })
}

fn write(octets: usize) -> v2::Write {
    v2::Write { file: handle(), offset: 1 << 30, data: vec![2; octets].into() }
}

fn symlink() -> v2::SymbolicLink {
    let (path, attributes) = (v2::Path(Bytes::from_static(b"../elsewhere")), v2::NewAttributes::default());
    v2::SymbolicLink { directory: handle(), name: name(), path, attributes }
}

fn read_ok(octets: usize) -> v2::Answer<v2::ReadOk> {
    v2::Answer::Ok(v2::ReadOk { attributes: attributes(), data: vec![1; octets].into() })
}

fn link_ok(octets: usize) -> v2::Answer<v2::ReadLinkOk> {
    v2::Answer::Ok(v2::ReadLinkOk { path: v2::Path(vec![b'p'; octets].into()) })
}

/// As many entries as fit a reply to a request for `count` bytes, and their size.
fn listing(count: usize) -> v2::Answer<v2::ReadDirectoryOk> {
    let each = v2::entry_bytes(4);
    let entry = |number: usize| v2::Entry { file_id: number as u32, name: name(), cookie: number as u32 + 1 };
    v2::Answer::Ok(v2::ReadDirectoryOk { entries: (0..count / each).map(entry).collect(), end: true })
}

/// Every procedure with the largest results that fit.
fn all_facts() -> Vec<Facts> {
    let (directory, attributes) = (handle(), attributes());
    let some = v2::NewAttributes {
        mode: Some(1),
        uid: Some(2),
        gid: Some(3),
        size: Some(4),
        accessed: v2::SetTime::Server,
        modified: v2::SetTime::Client(v2::Time { seconds: 5, microseconds: 6 }),
    };
    let told = || v2::Answer::Ok(attributes.clone());
    let done = v2::Answer::Ok(());
    vec![
        facts(&v2::Null {}, &()),
        facts(&v2::GetAttributes { file: handle() }, &told()),
        facts(&v2::SetAttributes { file: handle(), attributes: some }, &told()),
        facts(&v2::Root {}, &()),
        facts(&v2::Lookup { directory, name: name() }, &found()),
        facts(&v2::ReadLink { link: handle() }, &link_ok(v2::MAX_PATH_BYTES)),
        facts(&v2::Read { file: handle(), offset: 1 << 30, count: 4097 }, &read_ok(4097)),
        facts(&v2::WriteCache {}, &()),
        facts(&write(4097), &told()),
        facts(&v2::Create { directory, name: name(), attributes: some }, &found()),
        facts(&v2::Remove { directory, name: name() }, &done),
        facts(&v2::Rename { from_directory: directory, from: name(), to_directory: directory, to: name() }, &done),
        facts(&v2::Link { file: handle(), directory, name: name() }, &done),
        facts(&symlink(), &done),
        facts(&v2::MakeDirectory { directory, name: name(), attributes: some }, &found()),
        facts(&v2::RemoveDirectory { directory, name: name() }, &done),
        facts(&v2::ReadDirectory { directory, cookie: 3, count: 800 }, &listing(800)),
        facts(
            &v2::FileSystemStatus { root: handle() },
            &v2::Answer::Ok(v2::FileSystemStatusOk {
                transfer_bytes: 1,
                block_bytes: 2,
                blocks: 3,
                free: 4,
                available: 5,
            }),
        ),
    ]
}

/// proves: ULB-1-a, ULB-3-a, ULB-3.1-a, ULB-3.1-b, ULB-3.1-c, ULB-3.2-a, ULB-3.2-c, ULB-3.2-d
#[test]
fn the_table_says_what_the_encoders_do() {
    common::check(&all_facts(), &binding::nfs_v2(), [&[8, 13], &[5, 6]]);
}

#[test]
fn calls_say_whether_they_may_be_repeated() {
    let once = [2, 8, 9, 10, 11, 12, 13, 14, 15];
    for facts in all_facts() {
        assert_eq!(facts.repeatable, !once.contains(&facts.procedure), "procedure {}", facts.procedure);
    }
}

/// Sizes as RFC 1094 has them, counted by hand.
///
/// proves: NFS2-1094-2.3-a
#[test]
fn messages_have_the_octets_of_the_protocol() {
    assert_eq!(encode(&attributes()).len(), 17 * 4);
    assert_eq!(encode(&v2::Read { file: handle(), offset: 1, count: 2 }).len(), 32 + 3 * 4);
    assert_eq!(encode(&write(5)).len(), 32 + 3 * 4 + 4 + 8);
    assert_eq!(encode(&v2::NewAttributes::default()).to_bytes(), vec![0xFF; 32]);
    let words: Vec<u8> = [7_u32, 1 << 30, 9, 5].iter().flat_map(|word| word.to_be_bytes()).collect();
    let octets = [&[0xA5; 32][..], &words, &[2; 5], &[0; 3]].concat();
    let read = v2::Write::decode(&mut Decoder::new(Stream::from(Bytes::from(octets)))).unwrap();
    assert_eq!(read, write(5), "the words before and behind the offset mean nothing");
}

#[test]
fn procedures_are_known_by_number() {
    for (number, procedure) in v2::Procedure::ALL.into_iter().enumerate() {
        assert_eq!(procedure as usize, number);
        assert_eq!(v2::Procedure::from_number(number as u32), Some(procedure));
    }
    assert_eq!((v2::Procedure::from_number(18), v2::Procedure::from_number(u32::MAX)), (None, None));
}

/// proves: ULB-3.1-a, ULB-3.1-c
#[test]
fn a_chunk_is_taken_where_the_binding_names_an_item_and_nowhere_else() {
    let octets = encode(&write(100)).to_bytes();
    let at = encode(&write(100)).items().next().unwrap().0;
    let item = octets.slice(at..);
    assert_eq!(decode::<v2::Write>(&[octets.slice(..at), item.clone()]).unwrap().data, item);
    for at in (0..at).step_by(4) {
        let parts = [octets.slice(..at), octets.slice(at..at + 4), octets.slice(at + 4..)];
        assert!(not_eligible(decode::<v2::Write>(&parts)), "a chunk at {at}");
    }
    // SYMLINK: attributes stand behind the path.
    let octets = encode(&symlink()).to_bytes();
    let at = encode(&symlink()).items().next().unwrap().0;
    let parts = [octets.slice(..at), octets.slice(at..at + 12), octets.slice(at + 12..)];
    assert_eq!(decode::<v2::SymbolicLink>(&parts).unwrap(), symlink());
    // LOOKUP's name is opaque as well, but no item.
    let octets = encode(&v2::Lookup { directory: handle(), name: v2::Name::from("a long name.") }).to_bytes();
    for at in (0..octets.len()).step_by(4) {
        let parts = [octets.slice(..at), octets.slice(at..), Bytes::new()];
        assert!(not_eligible(decode::<v2::Lookup>(&parts)), "a chunk at {at}");
    }
}

/// proves: ULB-3.1-b
#[test]
fn a_failure_marks_nothing_and_an_empty_result_does() {
    assert_eq!(encode(&v2::Answer::<v2::ReadOk>::Failed(v2::Status::IO)).items().count(), 0);
    assert_eq!(encode(&read_ok(0)).items().count(), 1);
    let (at, item) = encode(&read_ok(64)).items().map(|(at, item)| (at, item.len())).next().unwrap();
    assert_eq!((at, item), (4 + 68 + 4, 64), "the status, the attributes and the count stay");
}

/// proves: NFS2-1094-3.5-a
#[test]
fn transfers_and_paths_end_at_their_limits() {
    let again = |octets: usize| decode::<v2::Write>(&[encode(&write(octets)).to_bytes()]);
    assert!(again(v2::MAX_TRANSFER_BYTES).is_ok() && again(v2::MAX_TRANSFER_BYTES + 1).is_err());
    let again = |octets: usize| decode::<<v2::ReadLink as Call>::Reply>(&[encode(&link_ok(octets)).to_bytes()]);
    assert!(again(v2::MAX_PATH_BYTES).is_ok() && again(v2::MAX_PATH_BYTES + 1).is_err());
    let shape = v2::Read { file: handle(), offset: 0, count: u32::MAX }.reply_shape();
    assert_eq!(shape.items[0].max_len, v2::MAX_TRANSFER_BYTES);
    let shape = v2::ReadDirectory { directory: handle(), cookie: 0, count: u32::MAX }.reply_shape();
    assert_eq!(shape.max_len, v2::list_bytes() + v2::MAX_TRANSFER_BYTES);
    let entry = v2::Entry { file_id: 1, name: v2::Name::from("12345"), cookie: 2 };
    assert_eq!(4 + encode(&entry).len(), v2::entry_bytes(5));
    let longest = v2::Entry { name: v2::Name(vec![b'n'; v2::MAX_NAME_BYTES].into()), ..entry };
    let one = encode(&v2::Answer::Ok(v2::ReadDirectoryOk { entries: vec![longest], end: false }));
    let shape = v2::ReadDirectory { directory: handle(), cookie: 0, count: 0 }.reply_shape();
    assert_eq!(one.len(), shape.max_len, "room for one entry with the longest name");
    assert_eq!(padded(v2::MAX_NAME_BYTES), 256);
}

fn survive<T: Encode + Decode + PartialEq + std::fmt::Debug>(octets: &[u8]) {
    if let Ok(value) = decode::<T>(&[Bytes::copy_from_slice(octets)]) {
        assert_eq!(decode::<T>(&[encode(&value).to_bytes()]), Ok(value), "what was read is written and read again");
    }
}

proptest! {
    #[test]
    fn arbitrary_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        survive::<v2::Write>(&octets);
        survive::<v2::Read>(&octets);
        survive::<v2::SetAttributes>(&octets);
        survive::<v2::Create>(&octets);
        survive::<v2::SymbolicLink>(&octets);
        survive::<v2::Rename>(&octets);
        survive::<v2::ReadDirectory>(&octets);
        survive::<<v2::Lookup as Call>::Reply>(&octets);
        survive::<<v2::ReadLink as Call>::Reply>(&octets);
        survive::<<v2::ReadDirectory as Call>::Reply>(&octets);
        survive::<<v2::FileSystemStatus as Call>::Reply>(&octets);
        let _ = decode::<<v2::Read as Call>::Reply>(&[Bytes::copy_from_slice(&octets)]);
    }
}
