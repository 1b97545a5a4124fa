//! READDIR, as a client sees it.

use super::{taken_cookie, told_cookie};
use crate::{
    Caller, Export, Fault, FileId, FileSystem, Found, Listing, ListingBudget, ListingEntry, MemoryFs, Nfsd, Queue,
    ReadData, StateDirectory, Told, Via, failed,
    nfs4::{
        Version4,
        attributes::tests::{file, servers, value},
        testing::{TestClient, TestServer, only},
    },
    testing::{self, SECRET, Watched, env, wait},
    transfer::MAX_LISTING_BYTES,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer};
use rpcrdma_nfs::{
    attr::{self, Attributes},
    v4::{
        Args, Arguments, Attribute, Bitmap, FileAttributes, FileType, Handle, Name, PROGRAM, Status, VERSION, Value,
        Verifier,
        ops::{self, CreateKind, Entry, ReadDirOk},
    },
};
use rpcrdma_oncrpc::Outcome;
use rpcrdma_xdr::{Encode, Encoder};
use std::{
    future::ready,
    sync::{Arc, atomic::Ordering},
};

/// A server of two exports below `/srv` (only 10.0.0.0/8 may use the second), and a client at an address.
pub(in crate::nfs4) fn two_exports(address: [u8; 4]) -> (Nfsd, TestClient) {
    let env = env();
    let scratch = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(scratch.path().join("state"), &*env.random).unwrap();
    let identities = || crate::Identities { squash: crate::Squash::None, ..Default::default() };
    let export = |path| Export::new(path, Arc::new(MemoryFs::new(1 << 20, &env))).with_identities(identities());
    let exports = vec![export("/srv/a"), export("/srv/b").with_allow(vec!["10.0.0.0/8".parse().unwrap()])];
    let version_4 = Version4::new(&state, Queue::in_place());
    let server = Nfsd::new(exports, SECRET, &env).unwrap().with_version_4(version_4, true, &env).unwrap();
    let mut rpc = testing::Client::of(&server);
    rpc.address = address.into();
    (server, TestClient::new(rpc, "a", 2, 1))
}

fn ask(cookie: u64, asked: &[Attribute]) -> ops::ReadDir {
    let verifier = Verifier::default();
    ops::ReadDir { cookie, verifier, directory_count: 0, max_count: 65_536, asked: Bitmap::of(asked) }
}

fn read(client: &TestClient, directory: &Handle, args: ops::ReadDir) -> Result<ReadDirOk, Status> {
    only!(client.on(directory, Args::ReadDir(args)), ReadDir)
}

fn names(entries: &[Entry]) -> Vec<String> {
    let mut names: Vec<_> = entries.iter().map(|entry| entry.name.as_slice().escape_ascii().to_string()).collect();
    names.sort();
    names
}

fn octets(answer: &ReadDirOk) -> usize {
    let mut encoder = Encoder::new();
    answer.encode(&mut encoder);
    encoder.position()
}

/// The bytes of a reply, written by hand.
/// proves: NFS4-8881-18.23-a
#[test]
fn a_directory_is_listed_in_these_octets() {
    let server = TestServer::memory();
    let client = server.client("a");
    file(&server, &client, "file1");
    let listed = read(&client, &client.walk("").unwrap(), ask(0, &[Attribute::Type, Attribute::Mode])).unwrap();
    let mut encoder = Encoder::new();
    listed.encode(&mut encoder);
    let words = |octets: &[u8; 8]| [0, 4].map(|at| u32::from_be_bytes(octets[at..at + 4].try_into().unwrap()));
    let name = words(b"file1\0\0\0");
    let head = [0, 0, 1, 0, 3, 5, name[0], name[1]];
    let attributes = [2, 1 << 1, 1 << 1, 8, 1, 0o644];
    let expected = [&head[..], &attributes, &[0, 1]].concat();
    assert_eq!(encoder.finish().to_bytes(), expected.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>());
}

/// proves: NFS4-8881-18.23-a, NFS4-8881-18.23-b
#[test]
fn however_small_the_answers_are_each_name_comes_once() {
    for server in servers() {
        let client = server.client("a");
        let root = client.walk("").unwrap();
        let mut expected: Vec<String> = (0..60_usize).map(|number| format!("{number}{}", "n".repeat(number))).collect();
        for called in &expected {
            file(&server, &client, called);
        }
        expected.sort();
        let with_attributes = [Attribute::Type, Attribute::Owner, Attribute::Handle, Attribute::FileId];
        for (asked, hint, max) in
            [(&[][..], 0, 120), (&[], 1, 4096), (&with_attributes, 200, 330), (&with_attributes, 0, 65_536)]
        {
            let mut args = ops::ReadDir { directory_count: hint, max_count: max, ..ask(0, asked) };
            let mut entries = Vec::new();
            loop {
                let part = read(&client, &root, args).unwrap();
                assert!(octets(&part) <= max as usize, "{} octets, not {max}", octets(&part));
                args = ops::ReadDir { verifier: part.verifier, ..args };
                entries.extend(part.entries);
                if part.end {
                    break;
                }
                args.cookie = entries.last().unwrap().cookie;
            }
            assert_eq!(names(&entries), expected);
            assert!(entries.iter().all(|entry| entry.cookie > 2));
            assert!(entries.iter().all(|entry| entry.attributes.set == Bitmap::of(asked)));
        }
        for cookie in [1, 2] {
            assert_eq!(read(&client, &root, ask(cookie, &[])).err(), Some(Status::BAD_COOKIE));
        }
    }
}

/// proves: NFS4-8881-18.23-a
#[test]
fn reserved_cookies_of_a_file_system_are_told_as_others() {
    for cookie in [1, 2, 3, 4, i64::MAX as u64, u64::MAX - 2] {
        let told = told_cookie(cookie).unwrap();
        assert!(told > 2);
        assert_eq!(taken_cookie(told), Ok(cookie));
    }
    assert_eq!((taken_cookie(0), taken_cookie(1)), (Ok(0), Err(Status::BAD_COOKIE)));
    assert_eq!([0, u64::MAX - 1, u64::MAX].map(told_cookie), [Err(Status::SERVERFAULT); 3]);
}

/// proves: NFS4-8881-18.23-b
#[test]
fn one_entry_fits_or_the_answer_is_too_small() {
    let server = TestServer::memory();
    let client = server.client("a");
    let root = client.walk("").unwrap();
    let max = |max_count| read(&client, &root, ops::ReadDir { max_count, ..ask(0, &[Attribute::Owner]) });
    let empty = ReadDirOk::EMPTY_BYTES as u32;
    assert_eq!(max(empty - 1).err(), Some(Status::TOOSMALL));
    assert_eq!(max(empty).map(|part| (part.entries.len(), part.end)), Ok((0, true)), "nothing is in it");
    file(&server, &client, "a name of 25 octets, fully");
    let one = octets(&max(1000).unwrap()) as u32;
    assert_eq!(max(one).map(|part| (part.entries.len(), part.end)), Ok((1, true)));
    assert_eq!(max(one - 1).err(), Some(Status::TOOSMALL));
    assert_eq!(max(0).err(), Some(Status::TOOSMALL));
}

/// proves: NFS4-8881-18.23-d
#[test]
fn cookies_with_an_old_verifier_are_not_taken() {
    let server = TestServer::directory();
    let client = server.client("a");
    let root = client.walk("").unwrap();
    file(&server, &client, "f");
    let listed = read(&client, &root, ask(0, &[])).unwrap();
    let after = ask(listed.entries[0].cookie, &[]);
    let told = read(&client, &root, ops::ReadDir { verifier: listed.verifier, ..after }).unwrap();
    assert!(told.entries.is_empty() && told.end);
    assert_eq!(
        read(&client, &root, ops::ReadDir { verifier: Verifier([7; 8]), ..after }).err(),
        Some(Status::NOT_SAME)
    );
}

#[test]
fn only_directories_are_listed() {
    for server in servers() {
        let client = server.client("a");
        let (root, file) = (client.walk("").unwrap(), file(&server, &client, "f"));
        assert_eq!(read(&client, &file, ask(0, &[])).err(), Some(Status::NOTDIR));
        let kind = CreateKind::Symlink("f".into());
        let link = ops::Create { kind, name: Name::from("l"), attributes: FileAttributes::default() };
        assert_eq!(client.on(&root, Args::Create(Box::new(link))).status(), Status::OK);
        assert_eq!(read(&client, &client.walk("l").unwrap(), ask(0, &[])).err(), Some(Status::NOTDIR));
        assert_eq!(read(&client, &root, ask(0, &[Attribute::TimeModifySet])).err(), Some(Status::INVAL));
    }
}

/// A directory with three files: a good one, one whose attributes cannot be read, and one that was removed after the
/// listing.
struct Broken;

fn id(number: u8) -> FileId {
    FileId::new(&[number]).unwrap()
}

impl FileSystem for Broken {
    fn root(&self) -> FileId {
        id(0)
    }

    fn id(&self) -> u64 {
        77
    }

    fn attributes(&self, _: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>> {
        Box::pin(ready(match file.as_slice() {
            [0] => Ok(Attributes::new(attr::FileType::Directory, 77, 1)),
            [1] => Ok(Attributes::new(attr::FileType::Regular, 77, 2)),
            _ => Err(Fault::Io),
        }))
    }

    fn lookup(&self, _: Caller, _: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>> {
        Box::pin(ready(match &name[..] {
            b"good" => Ok(Found::new(id(1), None, None)),
            b"bad" => Ok(Found::new(id(2), None, None)),
            _ => Err(failed(Fault::NotFound)),
        }))
    }

    fn read(&self, _: Via, _: u64, _: usize, _: Buffer) -> BoxFuture<'_, Told<ReadData>> {
        Box::pin(ready(Err(failed(Fault::Io))))
    }

    fn list(
        &self,
        _: Caller,
        _: FileId,
        cookie: u64,
        _: [u8; 8],
        budget: ListingBudget,
    ) -> BoxFuture<'_, Told<Listing>> {
        let entry = |name: &'static str| ListingEntry::new(9, Bytes::from_static(name.as_bytes()), 0);
        Box::pin(ready(Ok(Listing::of(["good", "gone", "bad"].map(entry), cookie, budget))))
    }
}

/// proves: NFS4-8881-18.23-c
#[test]
fn an_entry_tells_its_own_error_if_asked() {
    let server = TestServer::serving(Arc::new(Broken));
    let client = server.client("a");
    let root = client.walk("").unwrap();
    let listed = read(&client, &root, ask(0, &[Attribute::ReadAttributesError, Attribute::Type])).unwrap();
    let told: Vec<_> = listed.entries.iter().map(|entry| entry.attributes.values().unwrap()).collect();
    let good = vec![Value::Type(FileType::Regular), Value::ReadAttributesError(Status::OK)];
    assert_eq!(names(&listed.entries), ["bad", "good"], "what is gone is left out");
    assert_eq!(told, [good, vec![Value::ReadAttributesError(Status::IO)]]);
    assert_eq!(read(&client, &root, ask(0, &[Attribute::Type])).err(), Some(Status::IO));
    assert_eq!(names(&read(&client, &root, ask(0, &[])).unwrap().entries), ["bad", "gone", "good"]);
    let first = ops::ReadDir { max_count: 60, ..ask(0, &[]) };
    let listed = read(&client, &root, first).unwrap();
    assert_eq!((names(&listed.entries), listed.entries[0].cookie), (vec!["good".into()], u64::MAX - 1));
    let rest = read(&client, &root, ask(u64::MAX - 1, &[])).unwrap();
    assert_eq!(names(&rest.entries), ["bad", "gone"]);
}

/// Replies that a client does not take are memory.
/// proves: NFS4-MEMORY-a
#[test]
fn a_listing_counts_as_memory_until_it_is_taken() {
    let server = TestServer::memory();
    let mut client = server.client("a");
    // The transport copies a listing of a few names behind the reply's header, and gives its memory back at once.
    for number in 0..12 {
        file(&server, &client, &format!("a name of some length {number}"));
    }
    let watched = Watched::default();
    client.rpc.memory = Arc::new(watched.clone());
    let in_use = || watched.0.load(Ordering::Relaxed);
    for (max_count, cache, counted) in [(8192, false, 8192), (u32::MAX, false, MAX_LISTING_BYTES), (800, true, 800)] {
        let list = Args::ReadDir(ops::ReadDir { max_count, ..ask(0, &[Attribute::Type]) });
        let call = Arguments::new(2, vec![client.sequence(0, cache), Args::PutRootFh, list]);
        let mut encoder = Encoder::new();
        call.encode(&mut encoder);
        let sent = client.rpc.send(PROGRAM, VERSION, 1, encoder.finish());
        assert_eq!(in_use(), 0);
        let Outcome::Reply(reply) = wait(sent) else { panic!("no reply") };
        assert_eq!(in_use(), counted);
        drop(reply);
        assert_eq!(in_use(), 0, "what its slot keeps is its own");
    }
    let root = client.walk("").unwrap();
    assert_eq!(read(&client, &root, ask(1, &[])).err(), Some(Status::BAD_COOKIE));
    assert_eq!(read(&client, &root, ops::ReadDir { max_count: 30, ..ask(0, &[]) }).err(), Some(Status::TOOSMALL));
    assert_eq!(in_use(), 0);
}

/// proves: NFS4-PSEUDO-a
#[test]
fn the_tree_above_shows_the_exports_that_a_client_may_use() {
    for (address, expected) in [([10, 0, 0, 1], &["a", "b"][..]), ([192, 0, 2, 1], &["a"])] {
        let (_server, client) = two_exports(address);
        let (top, srv, a) = (client.walk("").unwrap(), client.walk("srv").unwrap(), client.walk("srv/a").unwrap());
        let asked = [Attribute::FileSystem, Attribute::Handle, Attribute::FileId, Attribute::MountedOnFileId];
        assert_eq!(names(&read(&client, &top, ask(0, &asked)).unwrap().entries), ["srv"]);
        let listed = read(&client, &srv, ask(0, &asked)).unwrap();
        assert_eq!(names(&listed.entries), expected);
        let get =
            |file: &Handle| only!(client.on(file, Args::GetAttr(ops::GetAttr { asked: Bitmap::of(&asked) })), GetAttr);
        let of_a = get(&a).unwrap().attributes;
        assert_eq!(listed.entries[0].attributes, of_a);
        let [fs, handle, id, covered] = of_a.values().unwrap().try_into().unwrap();
        assert_ne!(fs, value(&client, &srv, Attribute::FileSystem));
        assert_eq!(handle, Value::Handle(a.clone()));
        assert_eq!(id, value(&client, &a, Attribute::FileId));
        let Value::MountedOnFileId(covered) = covered else { panic!("{covered:?}") };
        assert_ne!(id, Value::FileId(covered), "the directory that is covered has a number of its own");
        let Value::FileId(of_srv) = value(&client, &srv, Attribute::FileId) else { panic!("no number") };
        assert_eq!(value(&client, &srv, Attribute::MountedOnFileId), Value::MountedOnFileId(of_srv));
        assert_eq!(client.walk("srv/b").is_ok(), expected.len() == 2);
    }
}
