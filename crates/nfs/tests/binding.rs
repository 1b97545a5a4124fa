//! Compares the binding's table and the sizes of replies with the encoders.

#[allow(dead_code, reason = "each test file uses its share")]
mod common;

use bytes::Bytes;
use common::{Facts, encode, facts, round_trip};
use proptest::prelude::*;
use rpcrdma_nfs::{
    Call, binding, mount,
    nfsacl::{self, mask},
    v3,
};
use rpcrdma_xdr::{Decode, Decoder, Encoder, ItemData, Stream};

fn handle() -> v3::Handle {
    v3::Handle::new(&[0xA5; v3::MAX_HANDLE_BYTES]).unwrap()
}

fn name() -> v3::Name {
    v3::Name::from("name")
}

fn attributes() -> v3::Attributes {
    let time = v3::Time { seconds: 1, nanoseconds: 2 };
    v3::Attributes {
        file_type: v3::FileType::Regular,
        mode: 0o644,
        links: 1,
        uid: 2,
        gid: 3,
        size: 1 << 40,
        used: 4096,
        device: v3::Specification { major: 8, minor: 1 },
        file_system: 77,
        file_id: 99,
        accessed: time,
        modified: time,
        changed: time,
    }
}

fn wcc() -> v3::WeakCache {
    v3::WeakCache { before: Some(attributes().weak()), after: Some(attributes()) }
}

fn created() -> v3::Created {
    v3::Created { file: Some(handle()), attributes: Some(attributes()), directory: wcc() }
}

/// Every procedure with arguments of every kind, and the largest results that fit.
fn all_facts() -> Vec<Facts> {
    let ok = |value| v3::Answer::<_, ()>::Ok(value);
    let none = v3::NewAttributes::default();
    let some = v3::NewAttributes {
        mode: Some(1),
        uid: Some(2),
        gid: Some(3),
        size: Some(4),
        accessed: v3::SetTime::Server,
        modified: v3::SetTime::Client(v3::Time { seconds: 5, nanoseconds: 6 }),
    };
    let directory = handle();
    let exclusive = v3::CreateHow::Exclusive(v3::Verifier([7; 8]));
    let device = v3::NodeKind::Block(some, v3::Specification { major: 1, minor: 2 });
    vec![
        facts(&v3::Null {}, &()),
        facts(&v3::GetAttributes { file: handle() }, &v3::Answer::<_, ()>::Ok(attributes())),
        facts(
            &v3::SetAttributes { file: handle(), attributes: some, guard: Some(v3::Time::default()) },
            &v3::Answer::<v3::WeakCache, _>::failed(v3::Status::PERM, wcc()),
        ),
        facts(
            &v3::Lookup { directory: directory.clone(), name: name() },
            &v3::Answer::<_, ()>::Ok(v3::LookupOk {
                file: handle(),
                attributes: Some(attributes()),
                directory: Some(attributes()),
            }),
        ),
        facts(
            &v3::Access { file: handle(), rights: 0x3F },
            &v3::Answer::<_, ()>::Ok(v3::AccessOk { attributes: Some(attributes()), rights: 0x3F }),
        ),
        facts(
            &v3::ReadLink { link: handle() },
            &v3::Answer::<_, ()>::Ok(v3::ReadLinkOk {
                attributes: Some(attributes()),
                path: v3::Path(vec![b'p'; v3::MAX_PATH_BYTES].into()),
            }),
        ),
        facts(
            &v3::Read { file: handle(), offset: 1 << 40, count: 4097 },
            &v3::Answer::<_, ()>::Ok(v3::ReadOk {
                attributes: Some(attributes()),
                end: true,
                data: Bytes::from(vec![1; 4097]),
            }),
        ),
        facts(
            &v3::Write {
                file: handle(),
                offset: 1 << 40,
                stability: v3::Stability::Unstable,
                data: Bytes::from(vec![2; 4097]),
            },
            &v3::Answer::<_, ()>::Ok(v3::WriteOk {
                file: wcc(),
                count: 4097,
                committed: v3::Stability::FileSync,
                verifier: v3::Verifier([1; 8]),
            }),
        ),
        facts(&v3::Create { directory: directory.clone(), name: name(), how: exclusive }, &ok(created())),
        facts(&v3::MakeDirectory { directory: directory.clone(), name: name(), attributes: none }, &ok(created())),
        facts(
            &v3::SymbolicLink {
                directory: directory.clone(),
                name: name(),
                attributes: some,
                path: v3::Path::from("../elsewhere"),
            },
            &ok(created()),
        ),
        facts(&v3::MakeNode { directory: directory.clone(), name: name(), kind: device }, &ok(created())),
        facts(&v3::Remove { directory: directory.clone(), name: name() }, &v3::Answer::<_, ()>::Ok(wcc())),
        facts(&v3::RemoveDirectory { directory: directory.clone(), name: name() }, &v3::Answer::<_, ()>::Ok(wcc())),
        facts(
            &v3::Rename { from_directory: handle(), from: name(), to_directory: handle(), to: name() },
            &v3::Answer::<_, ()>::Ok(v3::RenameInfo { from_directory: wcc(), to_directory: wcc() }),
        ),
        facts(
            &v3::Link { file: handle(), directory: directory.clone(), name: name() },
            &v3::Answer::<_, ()>::Ok(v3::LinkInfo { attributes: Some(attributes()), directory: wcc() }),
        ),
        facts(
            &v3::ReadDirectory { directory: directory.clone(), cookie: 3, verifier: v3::Verifier([9; 8]), count: 512 },
            &v3::Answer::<_, ()>::Ok(v3::ReadDirectoryOk {
                attributes: Some(attributes()),
                verifier: v3::Verifier([9; 8]),
                entries: (0..15).map(|n| v3::Entry { file_id: n, name: name(), cookie: n + 1 }).collect(),
                end: true,
            }),
        ),
        facts(
            &v3::ReadDirectoryPlus {
                directory,
                cookie: 3,
                verifier: v3::Verifier([9; 8]),
                directory_count: 512,
                max_count: 1024,
            },
            &v3::Answer::<_, ()>::Ok(v3::ReadDirectoryPlusOk {
                attributes: Some(attributes()),
                verifier: v3::Verifier([9; 8]),
                entries: vec![v3::EntryPlus {
                    file_id: 1,
                    name: v3::Name(vec![b'n'; v3::MAX_NAME_BYTES].into()),
                    cookie: 2,
                    attributes: Some(attributes()),
                    file: Some(handle()),
                }],
                end: false,
            }),
        ),
        facts(
            &v3::FileSystemStatus { root: handle() },
            &v3::Answer::<_, ()>::Ok(v3::FileSystemStatusOk {
                attributes: Some(attributes()),
                total_bytes: 1,
                free_bytes: 2,
                available_bytes: 3,
                total_files: 4,
                free_files: 5,
                available_files: 6,
                invariant_seconds: 7,
            }),
        ),
        facts(
            &v3::FileSystemInfo { root: handle() },
            &v3::Answer::<_, ()>::Ok(v3::FileSystemInfoOk {
                attributes: Some(attributes()),
                read_max: 1,
                read_preferred: 2,
                read_multiple: 3,
                write_max: 4,
                write_preferred: 5,
                write_multiple: 6,
                directory_preferred: 7,
                max_file_bytes: 8,
                time_precision: v3::Time { seconds: 0, nanoseconds: 1 },
                properties: 0x1B,
            }),
        ),
        facts(
            &v3::PathConfiguration { file: handle() },
            &v3::Answer::<_, ()>::Ok(v3::PathConfigurationOk {
                attributes: Some(attributes()),
                max_links: 1,
                max_name_bytes: 255,
                no_truncation: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            }),
        ),
        facts(
            &v3::Commit { file: handle(), offset: 0, count: 0 },
            &v3::Answer::<_, ()>::Ok(v3::CommitOk { file: wcc(), verifier: v3::Verifier([1; 8]) }),
        ),
    ]
}

/// proves: ULB-1-a, ULB-3-a, ULB-3.1-a, ULB-3.1-b, ULB-3.1-c, ULB-3.2-a, ULB-3.2-c, ULB-3.2-d, V1-6-a, V1-3.4.2-a
/// proves: V1-3.4.2-b, V1-6.2-a
#[test]
fn the_table_says_what_the_encoders_do() {
    common::check(&all_facts(), &binding::nfs_v3(), [&[7, 10], &[5, 6]]);
}

#[test]
fn the_document_is_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bindings.md");
    let document = std::fs::read_to_string(path).unwrap();
    assert_eq!(document, binding::document(), "make it anew: cargo run -q -p rpcrdma-nfs --example bindings");
}

#[test]
fn procedures_are_known_by_number() {
    for (number, procedure) in v3::Procedure::ALL.into_iter().enumerate() {
        assert_eq!(procedure as usize, number);
        assert_eq!(v3::Procedure::from_number(number as u32), Some(procedure));
    }
    assert_eq!(v3::Procedure::from_number(22), None);
    assert_eq!(v3::Procedure::from_number(u32::MAX), None);
}

/// proves: V1-4.3.2.2-a
#[test]
fn a_failed_read_marks_nothing() {
    let failed = v3::Answer::<v3::ReadOk, _>::failed(v3::Status::IO, Some(attributes()));
    assert_eq!(encode(&failed).items().count(), 0);
    let empty = v3::Answer::<_, ()>::Ok(v3::ReadOk { attributes: None, end: true, data: Bytes::new() });
    assert_eq!(encode(&empty).items().count(), 1, "an empty result is marked all the same");
}

#[test]
fn handles_names_and_transfers_end_at_their_limits() {
    assert!(v3::Handle::new(&[0; 64]).is_ok());
    assert_eq!(v3::Handle::new(&[0; 65]), Err(v3::HandleTooLong { octets: 65 }));
    let decode_handle = |octets: usize| {
        let mut encoder = Encoder::new();
        encoder.opaque(&vec![0; octets]);
        v3::Handle::decode(&mut Decoder::new(Stream::from(encoder.finish().to_bytes())))
    };
    assert!(decode_handle(64).is_ok());
    assert!(decode_handle(65).is_err());
    let decode_name = |octets: usize| {
        let name = v3::Name(vec![b'x'; octets].into());
        v3::Name::decode(&mut Decoder::new(Stream::from(encode(&name).to_bytes())))
    };
    assert!(decode_name(v3::MAX_NAME_BYTES).is_ok());
    assert!(decode_name(v3::MAX_NAME_BYTES + 1).is_err());
    let decode_write = |octets: usize| {
        let write = v3::Write {
            file: handle(),
            offset: 0,
            stability: v3::Stability::Unstable,
            data: Bytes::from(vec![0; octets]),
        };
        v3::Write::decode(&mut Decoder::new(Stream::from(encode(&write).to_bytes())))
    };
    assert!(decode_write(v3::MAX_TRANSFER_BYTES).is_ok());
    assert!(decode_write(v3::MAX_TRANSFER_BYTES + 1).is_err());
}

#[test]
fn a_read_whose_count_is_not_its_length_is_refused() {
    let mut encoder = Encoder::new();
    encoder.bool(false);
    encoder.u32(5);
    encoder.bool(true);
    encoder.item(Bytes::from_static(b"four"));
    let mut decoder = Decoder::new(Stream::from(encoder.finish().to_bytes()));
    assert!(v3::ReadOk::<ItemData>::decode(&mut decoder).is_err());
}

#[test]
fn sizes_of_entries_are_exact() {
    let entry = v3::Entry { file_id: 1, name: v3::Name::from("12345"), cookie: 2 };
    assert_eq!(4 + encode(&entry).len(), v3::entry_bytes(5));
    let plus = v3::EntryPlus {
        file_id: 1,
        name: v3::Name::from("12345"),
        cookie: 2,
        attributes: Some(attributes()),
        file: Some(v3::Handle::new(&[1; 30]).unwrap()),
    };
    assert_eq!(4 + encode(&plus).len(), v3::entry_plus_bytes(5, 30));
    let empty: v3::Answer<_, ()> = v3::Answer::Ok(v3::ReadDirectoryOk {
        attributes: Some(attributes()),
        verifier: v3::Verifier::default(),
        entries: Vec::new(),
        end: true,
    });
    assert_eq!(encode(&empty).len(), v3::read_directory_bytes());
}

/// A client offers as much room as the largest answers need: for as many entries as a list can have, if it asks for
/// lists; otherwise for the sizes that the program fixes.
///
/// proves: ULB-4.2-c
#[test]
fn the_answers_of_nfsacl_have_a_limit() {
    let entry = |id| nfsacl::Entry { kind: nfsacl::entry::USER, id, rights: 7 };
    let list = nfsacl::List::new((0..nfsacl::MAX_ENTRIES as u32).map(entry).collect()).unwrap();
    for asked in [0, mask::ACCESS, mask::DEFAULT, mask::ACCESS | mask::DEFAULT, mask::ALL, 0xA] {
        let lists = nfsacl::Lists::new(asked, list.clone(), list.clone());
        let largest: v3::Answer<_, ()> =
            v3::Answer::Ok(nfsacl::GetAclOk { attributes: Some(attributes()), lists: lists.clone() });
        let shape = nfsacl::GetAcl { file: handle(), mask: asked }.reply_shape();
        assert_eq!(encode(&largest).len(), shape.max_len, "mask {asked:#x}");
        round_trip(&nfsacl::SetAcl { file: handle(), lists });
    }
    let many = nfsacl::GetAcl { file: handle(), mask: u32::MAX }.reply_shape().max_len;
    assert_eq!(many, nfsacl::GetAcl { file: handle(), mask: mask::ALL }.reply_shape().max_len);
    let set: v3::Answer<Option<v3::Attributes>, ()> = v3::Answer::Ok(Some(attributes()));
    let lists = nfsacl::Lists::new(0, nfsacl::List::default(), nfsacl::List::default());
    assert_eq!(nfsacl::SetAcl { file: handle(), lists }.reply_shape().max_len, encode(&set).len());
}

/// A client offers room for the requested size, which need not end with an entry, and for at least one entry; but not
/// for any size.
#[test]
fn the_answers_of_directories_have_a_limit() {
    let of = |count| {
        let (directory, verifier) = (handle(), v3::Verifier([9; 8]));
        let plain = v3::ReadDirectory { directory: directory.clone(), cookie: 0, verifier, count };
        let plus = v3::ReadDirectoryPlus { directory, cookie: 0, verifier, directory_count: 0, max_count: count };
        assert_eq!(plain.reply_shape().max_len, plus.reply_shape().max_len);
        plain.reply_shape().max_len - v3::read_directory_bytes()
    };
    let entry = v3::entry_plus_bytes(v3::MAX_NAME_BYTES, v3::MAX_HANDLE_BYTES);
    assert_eq!([0, entry, entry + 1].map(|count| of(count as u32)), [entry, entry, entry + 1]);
    let most = 2 * v3::MAX_TRANSFER_BYTES;
    assert_eq!([most, most + 1, u32::MAX as usize].map(|count| of(count as u32)), [most; 3]);
}

#[test]
fn mount_types_survive_the_wire() {
    round_trip(&mount::Unmount { path: mount::DirectoryPath(Bytes::from_static(b"/a")) });
    assert_eq!(encode(&mount::ListExports).len() + encode(&mount::ListMounts).len(), 0);
    let lists = [mount::ListExports.reply_shape(), mount::ListMounts.reply_shape()];
    assert_eq!(lists.map(|shape| shape.max_len), [1 << 20; 2]);
    round_trip(&mount::Mount { path: mount::DirectoryPath(Bytes::from_static(b"/")) });
    round_trip(&mount::MountReply::Ok { root: handle(), flavors: vec![1, 6] });
    round_trip(&mount::MountReply::Failed(mount::Status::ACCES));
    round_trip(&mount::MountReply1::Ok([3; 32]));
    round_trip(&mount::MountReply1::Failed(13));
    round_trip(&mount::Exports(vec![mount::Export {
        path: mount::DirectoryPath(Bytes::from_static(b"/a")),
        groups: vec![Bytes::from_static(b"10.0.0.0/8")],
    }]));
    round_trip(&mount::Mounts(vec![mount::MountEntry {
        host: Bytes::from_static(b"client"),
        path: mount::DirectoryPath(Bytes::from_static(b"/a")),
    }]));
}

proptest! {
    /// Each decoder reads arbitrary bytes to an error or a value, and the value encodes to the same bytes.
    #[test]
    fn decoders_survive_arbitrary_octets(octets in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..400)) {
        fn survive<T: Decode>(octets: &[u8]) {
            let mut decoder = Decoder::new(Stream::from(Bytes::copy_from_slice(octets)));
            let _ = T::decode(&mut decoder);
            assert!(decoder.position() <= octets.len());
        }
        survive::<v3::Read>(&octets);
        survive::<v3::Write>(&octets);
        survive::<v3::Create>(&octets);
        survive::<v3::MakeNode>(&octets);
        survive::<v3::SymbolicLink>(&octets);
        survive::<v3::SetAttributes>(&octets);
        survive::<v3::Rename>(&octets);
        survive::<<v3::Read as Call>::Reply>(&octets);
        survive::<<v3::ReadLink as Call>::Reply>(&octets);
        survive::<<v3::ReadDirectory as Call>::Reply>(&octets);
        survive::<<v3::ReadDirectoryPlus as Call>::Reply>(&octets);
        survive::<<v3::Lookup as Call>::Reply>(&octets);
        survive::<<v3::FileSystemInfo as Call>::Reply>(&octets);
        survive::<mount::Exports>(&octets);
        survive::<mount::Mounts>(&octets);
        survive::<mount::MountReply>(&octets);
    }
}

/// A call that changes something is not marked as repeatable.
#[test]
fn calls_say_whether_they_may_be_repeated() {
    let once = [2, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let facts = all_facts();
    assert_eq!(facts.len(), 22);
    for facts in facts {
        assert_eq!(facts.repeatable, !once.contains(&facts.procedure), "procedure {}", facts.procedure);
    }
    let path = || mount::DirectoryPath(Bytes::from_static(b"/"));
    assert!(mount::Mount { path: path() }.is_repeatable());
    assert!(!mount::Unmount { path: path() }.is_repeatable());
    assert!(mount::ListMounts.is_repeatable() && mount::ListExports.is_repeatable());
}
