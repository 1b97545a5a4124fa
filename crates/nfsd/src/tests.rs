//! What every file system behind the server has to do, asked of all of them.

use crate::{
    Cidr, DirectoryFs, Export, FileSystem, Identities, InPlace, MemoryFs, Nfsd, Squash, StateDirectory,
    testing::{Client, SECRET, env, plain, wait},
};
use proptest::prelude::*;
use rpcrdma_nfs::{
    mount::{self, DirectoryPath},
    v3::{
        self, Commit, CreateHow, FileType, Handle, Name, NewAttributes, NodeKind, Path, Procedure, SetTime, Stability,
        Status, Time, Verifier, access,
    },
};
use rpcrdma_oncrpc::{Answer, Limits, Outcome, Rejection};
use rpcrdma_xdr::Payload;
use std::sync::Arc;

/// A client that may do everything, of each file system in turn.
fn on_each(test: impl Fn(&Client)) {
    let trusting = |file_system: Arc<dyn FileSystem>| {
        let identities = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", file_system).with_identities(identities);
        Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap())
    };
    test(&trusting(Arc::new(MemoryFs::new(64 << 20, &env()))));
    let scratch = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(scratch.path().join("state"), &*env().random).unwrap();
    let served = scratch.path().join("served");
    std::fs::create_dir(&served).unwrap();
    test(&trusting(Arc::new(DirectoryFs::open(&served, &state, Arc::new(InPlace)).unwrap())));
}

fn mode(mode: u32) -> NewAttributes {
    NewAttributes { mode: Some(mode), ..NewAttributes::default() }
}

/// proves: NFS3-1813-3.3.6-a, NFS3-1813-3.3.7-a
#[test]
fn what_was_written_is_read_at_all_sizes() {
    on_each(|client| {
        let root = client.root();
        for len in [0, 1, 3, 4095, 4096, 4097, (1 << 20) + 1] {
            let file = client.new_file(&root, format!("{len}").as_str());
            let data: Vec<u8> = (0..len).map(|n: usize| (n * 7) as u8).collect();
            for (at, part) in data.chunks(1 << 20).enumerate() {
                let written = client.write(&file, (at << 20) as u64, part).unwrap();
                assert_eq!(written.count as usize, part.len());
                assert!(written.file.before.is_some() && written.file.after.is_some());
            }
            assert_eq!(client.contents(&file), data);
            let attributes = client.attributes(&file).unwrap();
            assert_eq!((attributes.size, attributes.file_type), (len as u64, FileType::Regular));
            let beyond = client.read(&file, len as u64 + 10, 5).unwrap();
            assert!(beyond.end && beyond.data.as_slice().is_empty());
        }
        let file = client.new_file(&root, "last");
        client.write(&file, 0, "0123456789").unwrap();
        let middle = client.read(&file, 2, 3).unwrap();
        assert_eq!((middle.data.as_slice(), middle.end), (&b"234"[..], false));
        assert!(client.read(&file, 7, 3).unwrap().end);
        let short = client.read(&file, 8, 10).unwrap();
        assert_eq!((short.data.as_slice(), short.end), (&b"89"[..], true), "fewer at the end");
        let written = client.write(&file, 13, "xy").unwrap().file;
        assert_eq!((written.before.unwrap().size, written.after.unwrap().size), (10, 15));
        assert_eq!(client.contents(&file), b"0123456789\0\0\0xy");
        let written = client.write(&file, 1, "ab").unwrap().file;
        assert_eq!((written.before.unwrap().size, written.after.unwrap().size), (15, 15));
        assert_eq!(client.contents(&file), b"0ab3456789\0\0\0xy");
        assert_eq!(client.read(&root, 0, 3).map(|_| ()), Err(Status::ISDIR));
        assert_eq!(client.write(&root, 0, "x").map(|_| ()), Err(Status::ISDIR));
    });
}

#[test]
fn sparse_files_beyond_4_gib_and_the_ends_of_the_range() {
    on_each(|client| {
        let file = client.new_file(&client.root(), "sparse");
        client.write(&file, 5 << 30, "end").unwrap();
        let attributes = client.attributes(&file).unwrap();
        assert_eq!(attributes.size, (5 << 30) + 3);
        assert!(attributes.used < 1 << 20, "{}", attributes.used);
        assert_eq!(client.read(&file, (5 << 30) - 2, 5).unwrap().data.as_slice(), b"\0\0end");
        for offset in [u64::MAX, i64::MAX as u64] {
            assert_eq!(client.write(&file, offset, "x").map(|_| ()), Err(Status::FBIG));
            let read = client.read(&file, offset, 10).unwrap();
            assert!(read.end && read.data.as_slice().is_empty());
        }
        let too_large = NewAttributes { size: Some(u64::MAX), ..NewAttributes::default() };
        assert_eq!(client.set(&file, too_large).map(|_| ()), Err(Status::FBIG));
        let cut = NewAttributes { size: Some(3), ..NewAttributes::default() };
        client.set(&file, cut).unwrap();
        assert_eq!(client.contents(&file), [0; 3]);
    });
}

/// proves: NFS3-1813-3.3.8-a
#[test]
fn files_are_made_unchecked_guarded_and_exclusively() {
    on_each(|client| {
        let root = client.root();
        let first = client.create(&root, "a", CreateHow::Guarded(mode(0o640))).unwrap();
        assert_eq!(first.attributes.unwrap().mode, 0o640);
        assert!(first.directory.before.is_some() && first.directory.after.is_some());
        let file = first.file.unwrap();
        client.write(&file, 0, "data").unwrap();
        assert_eq!(client.create(&root, "a", CreateHow::Guarded(mode(0o600))).map(|_| ()), Err(Status::EXIST));
        let again = client.create(&root, "a", CreateHow::Unchecked(mode(0o600))).unwrap();
        assert_eq!(again.file.as_ref(), Some(&file));
        assert_eq!((again.attributes.unwrap().size, client.contents(&file)), (4, b"data".to_vec()));
        let empty = NewAttributes { size: Some(0), ..mode(0o600) };
        assert_eq!(client.create(&root, "a", CreateHow::Unchecked(empty)).unwrap().attributes.unwrap().size, 0);

        let exclusive = |verifier| CreateHow::Exclusive(Verifier([verifier; 8]));
        let made = client.create(&root, "b", exclusive(0xF1)).unwrap().file;
        assert_eq!(client.create(&root, "b", exclusive(0xF1)).unwrap().file, made, "a retransmission");
        assert_eq!(client.create(&root, "b", exclusive(0xF2)).map(|_| ()), Err(Status::EXIST));
        client.new_directory(&root, "d");
        for how in [exclusive(1), CreateHow::Unchecked(mode(0o600)), CreateHow::Guarded(mode(0o600))] {
            assert_eq!(client.create(&root, "d", how).map(|_| ()), Err(Status::EXIST));
        }
    });
}

#[test]
fn names_may_be_any_octets_but_slash_and_nul() {
    on_each(|client| {
        let root = client.root();
        let odd = Name::from(&b"\xFF\xFE \n\\*"[..]);
        let file = client.new_file(&root, odd.clone());
        assert_eq!(client.lookup(&root, odd).unwrap().file, file);
        assert!(client.names(&root, 4096).contains(&b"\xFF\xFE \n\\*".to_vec()));
        let longest = "n".repeat(255);
        client.new_file(&root, &longest[..]);
        let too_long = "n".repeat(256);
        assert_eq!(client.lookup(&root, &too_long[..]).map(|_| ()), Err(Status::NAMETOOLONG));
        for bad in [&b""[..], b"a/b", b"/", b"a\0b", b"../x"] {
            assert_eq!(client.lookup(&root, bad).map(|_| ()), Err(Status::INVAL));
            assert_eq!(client.create(&root, bad, CreateHow::Guarded(mode(0o600))).map(|_| ()), Err(Status::INVAL));
            assert_eq!(client.rename((&root, bad), (&root, "x")).map(|_| ()), Err(Status::INVAL));
        }
        for dots in [".", ".."] {
            assert_eq!(client.create(&root, dots, CreateHow::Guarded(mode(0o600))).map(|_| ()), Err(Status::EXIST));
            assert_eq!(client.remove(&root, dots).map(|_| ()), Err(Status::INVAL));
            assert_eq!(client.rename((&root, dots), (&root, "x")).map(|_| ()), Err(Status::INVAL));
            assert_eq!(client.lookup(&root, dots).unwrap().file, root, "the root is its own parent");
        }
        let below = client.new_directory(&root, "below");
        assert_eq!(client.lookup(&below, "..").unwrap().file, root);
        assert_eq!(client.lookup(&below, ".").unwrap().file, below);
        assert_eq!(client.lookup(&file, "x").map(|_| ()), Err(Status::NOTDIR));
    });
}

/// proves: NFS3-1813-3.3.16-a
#[test]
fn a_directory_can_be_read_in_parts_while_it_changes() {
    on_each(|client| {
        let root = client.root();
        let directory = client.new_directory(&root, "many");
        for n in 0..200 {
            client.new_file(&directory, format!("file-{n:03}").as_str());
        }
        let all = client.names(&directory, 1 << 20);
        assert_eq!(all.len(), 202);
        assert_eq!(all, client.names(&directory, 300));
        // Entries that stay are told exactly once, whatever else comes and goes.
        let (mut cookie, mut verifier, mut seen) = (0, Verifier::default(), Vec::new());
        for round in 0.. {
            let list = v3::ReadDirectory { directory: directory.clone(), cookie, verifier, count: 500 };
            let listing = plain(client.ask(list)).unwrap();
            seen.extend(listing.entries.iter().map(|entry| entry.name.as_slice().to_vec()));
            if listing.end {
                break;
            }
            (cookie, verifier) = (listing.entries.last().unwrap().cookie, listing.verifier);
            let _ = client.remove(&directory, format!("file-{:03}", round * 2).as_str());
            client.new_file(&directory, format!("new-{round}").as_str());
        }
        for n in (1..200).step_by(2) {
            let name = format!("file-{n:03}").into_bytes();
            assert_eq!(seen.iter().filter(|other| **other == name).count(), 1, "{}", name.escape_ascii());
        }
        let tiny = v3::ReadDirectory { directory: directory.clone(), cookie: 0, verifier, count: 100 };
        assert_eq!(plain(client.ask(tiny)).map(|_| ()), Err(Status::TOOSMALL));
        let file = client.new_file(&root, "file");
        let none = v3::ReadDirectory { directory: file, cookie: 0, verifier, count: 1000 };
        assert_eq!(plain(client.ask(none)).map(|_| ()), Err(Status::NOTDIR));
    });
}

#[test]
fn readdirplus_tells_handles_and_attributes_within_its_bounds() {
    on_each(|client| {
        let root = client.root();
        let file = client.new_file(&root, "file");
        client.write(&file, 0, "12345").unwrap();
        client.new_directory(&root, "directory");
        let list = |directory_count, max_count| v3::ReadDirectoryPlus {
            directory: root.clone(),
            cookie: 0,
            verifier: Verifier::default(),
            directory_count,
            max_count,
        };
        let listing = plain(client.ask(list(4096, 65536))).unwrap();
        assert!(listing.end && listing.attributes.is_some());
        let entry = listing.entries.iter().find(|entry| entry.name.as_slice() == b"file").unwrap();
        assert_eq!(entry.file.as_ref(), Some(&file));
        let attributes = entry.attributes.clone().unwrap();
        assert_eq!((attributes.size, attributes.file_id), (5, entry.file_id));
        let short = plain(client.ask(list(40, 65536))).unwrap();
        assert!(!short.end && short.entries.len() < 4);
        assert_eq!(plain(client.ask(list(4096, 200))).map(|_| ()), Err(Status::TOOSMALL));
    });
}

/// proves: NFS3-1813-3.3.14-a
#[test]
fn renaming_replaces_and_refuses_as_it_should() {
    on_each(|client| {
        let root = client.root();
        let (a, b) = (client.new_directory(&root, "a"), client.new_directory(&root, "b"));
        let file = client.new_file(&a, "f");
        client.write(&file, 0, "kept").unwrap();
        let old = client.new_file(&b, "g");
        let info = client.rename((&a, "f"), (&b, "g")).unwrap();
        for side in [info.from_directory, info.to_directory] {
            assert!(side.before.is_some() && side.after.is_some());
        }
        assert_eq!(client.lookup(&b, "g").unwrap().file, file);
        assert_eq!(client.contents(&file), b"kept");
        assert_eq!(client.attributes(&old).map(|_| ()), Err(Status::STALE), "what was replaced is gone");
        assert_eq!(client.rename((&a, "f"), (&b, "x")).map(|_| ()), Err(Status::NOENT));
        assert_eq!(client.rename((&root, "b"), (&root, "a")).map(|_| ()), Ok(()), "an empty directory is replaced");
        assert_eq!(client.attributes(&a).map(|_| ()), Err(Status::STALE));
        assert_eq!(client.walk("a/g"), Ok(file.clone()));
        let inside = client.new_directory(&b, "inside");
        assert_eq!(client.rename((&root, "a"), (&inside, "x")).map(|_| ()), Err(Status::INVAL));
        client.new_directory(&root, "empty");
        assert_eq!(client.rename((&root, "empty"), (&root, "a")).map(|_| ()), Err(Status::NOTEMPTY));
        assert_eq!(client.rename((&b, "g"), (&root, "empty")).map(|_| ()), Err(Status::ISDIR));
        assert_eq!(client.rename((&root, "empty"), (&b, "g")).map(|_| ()), Err(Status::NOTDIR));
    });
}

#[test]
fn links_count_and_keep_a_file_alive() {
    on_each(|client| {
        let root = client.root();
        let file = client.new_file(&root, "first");
        client.write(&file, 0, "shared").unwrap();
        let link = |file: &Handle, name: &str| {
            plain(client.ask(v3::Link { file: file.clone(), directory: root.clone(), name: name.into() }))
        };
        let info = link(&file, "second").unwrap();
        assert_eq!(info.attributes.unwrap().links, 2);
        assert!(info.directory.before.is_some());
        assert_eq!(link(&file, "second").map(|_| ()), Err(Status::EXIST));
        assert_eq!(client.lookup(&root, "second").unwrap().file, file);
        client.remove(&root, "first").unwrap();
        assert_eq!(client.contents(&file), b"shared");
        assert_eq!(client.attributes(&file).unwrap().links, 1);
        client.remove(&root, "second").unwrap();
        assert_eq!(client.attributes(&file).map(|_| ()), Err(Status::STALE));
        let directory = client.new_directory(&root, "directory");
        assert!(link(&directory, "third").is_err());
    });
}

#[test]
fn symbolic_links_are_kept_as_they_are_and_never_followed() {
    on_each(|client| {
        let root = client.root();
        for (name, target) in [("up", "../../../etc"), ("abs", "/etc/passwd"), ("odd", "\u{7f}\t x"), ("dot", ".")] {
            let link = v3::SymbolicLink {
                directory: root.clone(),
                name: name.into(),
                attributes: NewAttributes::default(),
                path: Path::from(target),
            };
            let made = plain(client.ask(link)).unwrap();
            assert_eq!(made.attributes.unwrap().file_type, FileType::Symlink);
            let link = client.lookup(&root, name).unwrap().file;
            let read = plain(client.ask(v3::ReadLink { link: link.clone() })).unwrap();
            assert_eq!(read.path.as_slice(), target.as_bytes());
            assert_eq!(client.lookup(&link, "passwd").map(|_| ()), Err(Status::NOTDIR));
            assert!(client.read(&link, 0, 10).is_err() && client.write(&link, 0, "x").is_err());
            assert_eq!(
                client.create(&root, name, CreateHow::Unchecked(mode(0o600))).map(|_| ()),
                Err(Status::EXIST),
                "nothing is made through a link"
            );
            assert!(client.mount(&format!("/{name}")).is_err());
        }
        let file = client.new_file(&root, "file");
        assert_eq!(plain(client.ask(v3::ReadLink { link: file })).map(|_| ()), Err(Status::INVAL));
    });
}

#[test]
fn removing_tells_files_from_directories() {
    on_each(|client| {
        let root = client.root();
        let directory = client.new_directory(&root, "directory");
        let file = client.new_file(&directory, "file");
        assert_eq!(client.remove(&root, "directory").map(|_| ()), Err(Status::ISDIR));
        assert_eq!(client.remove_directory(&root, "directory").map(|_| ()), Err(Status::NOTEMPTY));
        assert_eq!(client.remove_directory(&directory, "file").map(|_| ()), Err(Status::NOTDIR));
        let info = client.remove(&directory, "file").unwrap();
        assert!(info.before.is_some() && info.after.is_some());
        assert_eq!(client.attributes(&file).map(|_| ()), Err(Status::STALE));
        assert_eq!(client.read(&file, 0, 1).map(|_| ()), Err(Status::STALE));
        assert_eq!(client.remove(&directory, "file").map(|_| ()), Err(Status::NOENT));
        client.remove_directory(&root, "directory").unwrap();
        assert_eq!(client.attributes(&directory).map(|_| ()), Err(Status::STALE));
        assert!(client.create(&directory, "x", CreateHow::Guarded(mode(0o600))).is_err());
    });
}

/// proves: NFS3-1813-3.3.2-a
#[test]
fn attributes_are_set_together_and_only_under_the_guard() {
    on_each(|client| {
        let file = client.new_file(&client.root(), "file");
        client.write(&file, 0, "0123456789").unwrap();
        let time = |seconds| Time { seconds, nanoseconds: 0 };
        let new = NewAttributes {
            mode: Some(0o4711),
            size: Some(4),
            accessed: SetTime::Client(time(1_000_000)),
            modified: SetTime::Client(time(2_000_000_000)),
            ..NewAttributes::default()
        };
        let after = client.set(&file, new).unwrap().after.unwrap();
        assert_eq!((after.mode, after.size), (0o4711, 4));
        assert_eq!((after.accessed, after.modified), (time(1_000_000), time(2_000_000_000)));
        let guarded = |guard| {
            let attributes = mode(0o600);
            plain(client.ask(v3::SetAttributes { file: file.clone(), attributes, guard: Some(guard) }))
        };
        assert_eq!(guarded(time(5)).map(|_| ()), Err(Status::NOT_SYNC));
        assert_eq!(client.attributes(&file).unwrap(), after, "the guard was another: nothing is set");
        let only_mode = guarded(after.changed).unwrap().after.unwrap();
        assert_eq!((only_mode.mode, only_mode.size), (0o600, 4));
        assert_eq!((only_mode.uid, only_mode.gid), (after.uid, after.gid));
        assert_eq!((only_mode.accessed, only_mode.modified), (after.accessed, after.modified));
        let now = NewAttributes { modified: SetTime::Server, ..NewAttributes::default() };
        let touched = client.set(&file, now).unwrap().after.unwrap();
        assert_eq!(touched.accessed, time(1_000_000));
        assert_ne!(touched.modified, time(2_000_000_000));
        assert_eq!(client.contents(&file), b"0123");
    });
}

#[test]
fn special_files_are_made_and_not_opened() {
    on_each(|client| {
        let root = client.root();
        let make = |name: &str, kind| {
            let call = v3::MakeNode { directory: root.clone(), name: name.into(), kind };
            plain(client.ask(call)).map(|made| (made.file.unwrap(), made.attributes.unwrap()))
        };
        let (fifo, attributes) = make("fifo", NodeKind::Fifo(mode(0o622))).unwrap();
        assert_eq!((attributes.file_type, attributes.mode), (FileType::Fifo, 0o622));
        assert_eq!(make("socket", NodeKind::Socket(mode(0o600))).unwrap().1.file_type, FileType::Socket);
        assert_eq!(client.read(&fifo, 0, 10).map(|_| ()), Err(Status::INVAL));
        assert_eq!(client.write(&fifo, 0, "x").map(|_| ()), Err(Status::INVAL));
        assert_eq!(make("fifo", NodeKind::Fifo(mode(0o622))).map(|_| ()), Err(Status::EXIST));
        assert_eq!(make("other", NodeKind::Other(1)).map(|_| ()), Err(Status::BADTYPE));
    });
}

/// proves: NFS3-1813-3.3.21-a
#[test]
fn the_write_verifier_is_the_same_until_a_restart() {
    let tree: Arc<dyn FileSystem> = Arc::new(MemoryFs::new(1 << 20, &env()));
    let trusting = Identities { squash: Squash::None, ..Identities::default() };
    let start = |env| {
        let export = Export::new("/", tree.clone()).with_identities(trusting);
        Client::of(&Nfsd::new(vec![export], SECRET, &env).unwrap())
    };
    let first = start(env());
    let file = first.new_file(&first.root(), "file");
    let verifier = first.write(&file, 0, "x").unwrap().verifier;
    let commit = |client: &Client| plain(client.ask(Commit { file: file.clone(), offset: 0, count: 0 })).unwrap();
    assert_eq!(commit(&first).verifier, verifier);
    let mut other = env();
    other.random = Arc::new(rpcrdma_env::SeededRandom::new(2));
    assert_ne!(commit(&start(other)).verifier, verifier);
    on_each(|client| {
        let file = client.new_file(&client.root(), "file");
        for stability in [Stability::Unstable, Stability::DataSync, Stability::FileSync] {
            let write = v3::Write { file: file.clone(), offset: 0, stability, data: b"x"[..].into() };
            assert!(plain(client.ask(write)).unwrap().committed as u32 >= stability as u32);
        }
    });
}

#[test]
fn limits_are_those_of_the_transport() {
    let mut client = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env())));
    let info = |client: &Client| plain(client.ask(v3::FileSystemInfo { root: client.root() })).unwrap();
    assert_eq!((info(&client).read_max, info(&client).write_max), (1 << 20, 1 << 20));
    client.limits = Limits::new(65_536, 32_768);
    assert_eq!((info(&client).read_max, info(&client).write_max), (28_672, 61_440));
    on_each(|client| {
        let root = client.root();
        let status = plain(client.ask(v3::FileSystemStatus { root: root.clone() })).unwrap();
        assert!(status.total_octets >= status.free_octets && status.total_octets > 0);
        let path = plain(client.ask(v3::PathConfiguration { file: root })).unwrap();
        assert!(path.max_name_octets == 255 && path.no_truncation && !path.case_insensitive);
    });
}

/// proves: NFS3-ACL-a
#[test]
fn a_read_only_export_changes_nothing() {
    let tree: Arc<dyn FileSystem> = Arc::new(MemoryFs::new(1 << 20, &env()));
    let trusting = Identities { squash: Squash::None, ..Identities::default() };
    let serve = |read_only| {
        let export = Export::new("/", tree.clone()).with_identities(trusting).with_read_only(read_only);
        Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap())
    };
    let writer = serve(false);
    let root = writer.root();
    let file = writer.new_file(&root, "file");
    writer.write(&file, 0, "data").unwrap();
    let reader = serve(true);
    let refused = Err(Status::ROFS);
    assert_eq!(reader.write(&file, 0, "x").map(|_| ()), refused);
    assert_eq!(reader.set(&file, mode(0)).map(|_| ()), refused);
    assert_eq!(reader.create(&root, "x", CreateHow::Guarded(mode(0))).map(|_| ()), refused);
    assert_eq!(reader.remove(&root, "file").map(|_| ()), refused);
    assert_eq!(reader.remove_directory(&root, "file").map(|_| ()), refused);
    assert_eq!(reader.rename((&root, "file"), (&root, "x")).map(|_| ()), refused);
    let link = v3::Link { file: file.clone(), directory: root.clone(), name: "x".into() };
    assert_eq!(plain(reader.ask(link)).map(|_| ()), refused);
    let make = v3::MakeDirectory { directory: root.clone(), name: "x".into(), attributes: mode(0o700) };
    assert_eq!(plain(reader.ask(make)).map(|_| ()), refused);
    let (attributes, path) = (mode(0o777), Path::from("file"));
    let symbolic = v3::SymbolicLink { directory: root.clone(), name: "x".into(), attributes, path };
    assert_eq!(plain(reader.ask(symbolic)).map(|_| ()), refused);
    let node = v3::MakeNode { directory: root.clone(), name: "x".into(), kind: NodeKind::Fifo(mode(0o600)) };
    assert_eq!(plain(reader.ask(node)).map(|_| ()), refused);
    assert_eq!(reader.contents(&file), b"data");
    assert_eq!(writer.names(&root, 4096).len(), 3, "itself, its parent, the file");
    assert_eq!((writer.attributes(&file).unwrap().mode, writer.attributes(&file).unwrap().links), (0o644, 1));
    let changes = access::MODIFY | access::EXTEND | access::DELETE;
    assert_eq!(reader.access(&root, access::LOOKUP | changes), Ok(access::LOOKUP));
    assert_eq!(writer.access(&root, access::LOOKUP | changes), Ok(access::LOOKUP | changes));
    let all = access::READ | access::MODIFY | access::EXTEND;
    assert_eq!(reader.access(&file, all), Ok(access::READ));
    assert_eq!(writer.access(&file, all), Ok(all));
}

/// proves: NFS3-ACL-b
#[test]
fn only_allowed_clients_are_served_and_exports_are_told_apart() {
    let allow: Vec<Cidr> = vec!["192.0.2.0/24".parse().unwrap()];
    let memory = || Arc::new(MemoryFs::new(1 << 20, &env())) as Arc<dyn FileSystem>;
    let trusting = Identities { squash: Squash::None, ..Identities::default() };
    let open = |path| Export::new(path, memory()).with_identities(trusting);
    let exports = vec![open("/"), open("/data").with_allow(allow), open("/data/deep")];
    let server = Nfsd::new(exports, SECRET, &env()).unwrap();
    let mut client = Client::of(&server);
    client.address = "::ffff:192.0.2.7".parse().unwrap();
    let data = client.mount("/data").unwrap();
    let other = client.mount("/").unwrap();
    assert_ne!(client.mount("//data/deep/").unwrap(), data, "the longest export counts");
    let sub = client.new_directory(&data, "sub");
    assert_eq!(client.mount("/data/sub").unwrap(), sub);
    assert_eq!(client.mount("/data/none"), Err(mount::Status::NOENT));
    assert_eq!(client.mount("data"), Err(mount::Status::NOENT));
    assert_eq!(client.mount("/data/../x"), Err(mount::Status::INVAL));
    client.new_file(&other, "file");
    assert_eq!(client.mount("/file"), Err(mount::Status::NOTDIR));
    assert_eq!(client.rename((&other, "file"), (&data, "file")).map(|_| ()), Err(Status::XDEV));

    client.address = "192.0.3.1".parse().unwrap();
    assert_eq!(client.mount("/data"), Err(mount::Status::ACCES));
    assert_eq!(client.attributes(&data).map(|_| ()), Err(Status::ACCES));
    assert!(client.attributes(&other).is_ok());

    let list = client.ask(mount::ListExports).0;
    let told: Vec<_> = list.iter().map(|export| (&export.path.0[..], export.groups.len())).collect();
    assert_eq!(told, [(&b"/"[..], 0), (b"/data", 1), (b"/data/deep", 0)]);
    let mounts = client.ask(mount::ListMounts).0;
    assert!(mounts.iter().any(|entry| &entry.host[..] == b"192.0.2.7" && &entry.path.0[..] == b"/data"));
    client.address = "192.0.2.7".parse().unwrap();
    client.ask(mount::Unmount { path: DirectoryPath(b"/data"[..].into()) });
    client.raw(mount::PROGRAM, 3, mount::procedure::UNMOUNT_ALL, Payload::new()).unwrap();
    assert!(client.ask(mount::ListMounts).0.is_empty());
    let mut version_1 = client.raw(mount::PROGRAM, 1, mount::procedure::EXPORT, Payload::new()).unwrap();
    assert_eq!(version_1.bool(), Ok(true));
    assert!(client.raw(mount::PROGRAM, 3, 9, Payload::new()).is_err());
    let version_2 = client.raw(mount::PROGRAM, 2, 0, Payload::new()).map(|_| ());
    assert_eq!(version_2, Err(Rejection::ProgramMismatch { low: 1, high: 3 }));

    let twice = vec![Export::new("/a", memory()), Export::new("/a", memory())];
    assert!(Nfsd::new(twice, SECRET, &env()).is_err());
    assert!(Nfsd::new(vec![Export::new("a", memory())], SECRET, &env()).is_err());
}

/// proves: NFS3-FH-a
#[test]
fn handles_that_were_not_given_out_are_refused() {
    on_each(|client| {
        let root = client.root();
        let mut octets = root.as_slice().to_vec();
        octets[20] ^= 1;
        for octets in [&octets[..], &[], &[1; 64], &root.as_slice()[1..]] {
            let forged = Handle::new(octets).unwrap();
            assert_eq!(client.attributes(&forged).map(|_| ()), Err(Status::BADHANDLE));
        }
        let file = client.new_file(&root, "file");
        let elsewhere = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env())));
        let stranger = elsewhere.attributes(&file).map(|_| ());
        assert!(matches!(stranger, Err(Status::STALE)), "another file system under the same secret: {stranger:?}");
    });
}

#[test]
fn rights_are_the_callers() {
    on_each(|client| {
        let root = client.root();
        client.set(&root, mode(0o777)).unwrap();
        let file = client.new_file(&root, "file");
        let others = NewAttributes { uid: Some(1000), gid: Some(2000), ..mode(0o640) };
        if client.set(&file, others).is_err() {
            return; // The server is an ordinary user itself and acts as nobody else.
        }
        client.write(&file, 0, "secret").unwrap();
        let (owner, member) = (client.as_user(1000, 1, &[]), client.as_user(5, 1, &[2000]));
        let stranger = client.as_user(6, 1, &[3]);
        assert_eq!(owner.contents(&file), b"secret");
        assert_eq!(member.contents(&file), b"secret");
        for _ in 0..2 {
            assert_eq!(stranger.read(&file, 0, 10).map(|_| ()), Err(Status::ACCES));
        }
        assert_eq!(member.write(&file, 0, "x").map(|_| ()), Err(Status::ACCES));
        let all = access::READ | access::MODIFY | access::EXTEND | access::EXECUTE;
        assert_eq!(owner.access(&file, all), Ok(access::READ | access::MODIFY | access::EXTEND));
        assert_eq!(member.access(&file, all), Ok(access::READ));
        assert_eq!(stranger.access(&file, all), Ok(0));
        assert_eq!(member.set(&file, mode(0o666)).map(|_| ()), Err(Status::PERM));
        let give_away = NewAttributes { uid: Some(6), ..NewAttributes::default() };
        assert_eq!(owner.set(&file, give_away).map(|_| ()), Err(Status::PERM));
        // What was taken away is gone at once, also for whoever has read before.
        client.set(&file, mode(0o600)).unwrap();
        assert_eq!(member.read(&file, 0, 10).map(|_| ()), Err(Status::ACCES));
        // The owner goes on reading and writing whatever the mode: files of mode 444 can be copied.
        let made = owner.create(&root, "frozen", CreateHow::Guarded(mode(0o444))).unwrap().file.unwrap();
        assert_eq!(owner.attributes(&made).unwrap().uid, 1000);
        owner.write(&made, 0, "ice").unwrap();
        plain(owner.ask(Commit { file: made.clone(), offset: 0, count: 0 })).unwrap();
        owner.write(&made, 3, "berg").unwrap();
        assert_eq!(stranger.contents(&made), b"iceberg");
        assert_eq!(stranger.write(&made, 0, "x").map(|_| ()), Err(Status::ACCES));
        let closed = owner.new_directory(&root, "closed");
        owner.set(&closed, mode(0o700)).unwrap();
        assert_eq!(stranger.lookup(&closed, "x").map(|_| ()), Err(Status::ACCES));
        assert_eq!(stranger.create(&closed, "x", CreateHow::Guarded(mode(0))).map(|_| ()), Err(Status::ACCES));
        assert_eq!(stranger.access(&closed, access::LOOKUP | access::MODIFY | access::DELETE), Ok(0));
        client.set(&root, mode(0o1777)).unwrap();
        let sticky = stranger.remove(&root, "frozen").map(|_| ());
        assert!(matches!(sticky, Err(Status::ACCES | Status::PERM)), "{sticky:?}");
    });
}

#[test]
fn memory_is_full_at_its_limit_and_free_again_after_removal() {
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", Arc::new(MemoryFs::new(8192, &env()))).with_identities(identities);
    let client = Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap());
    let root = client.root();
    let file = client.new_file(&root, "file");
    client.write(&file, 0, vec![1; 8192]).unwrap();
    assert_eq!(client.write(&file, 8192, "x").map(|_| ()), Err(Status::NOSPC));
    client.write(&file, 0, vec![2; 8192]).unwrap();
    client.remove(&root, "file").unwrap();
    let file = client.new_file(&root, "file");
    client.write(&file, 1 << 40, vec![1; 8192]).unwrap();
}

#[test]
fn a_listing_ends_at_the_servers_limit() {
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", Arc::new(MemoryFs::new(1 << 20, &env()))).with_identities(identities);
    let client = Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap());
    let root = client.root();
    for n in 0..9000 {
        client.new_file(&root, format!("n{n:06}").as_str());
    }
    let (cookie, verifier) = (0, Verifier::default());
    let list = v3::ReadDirectory { directory: root.clone(), cookie, verifier, count: u32::MAX };
    let listing = plain(client.ask(list)).unwrap();
    let octets =
        v3::read_directory_octets() + listing.entries.iter().map(|e| v3::entry_octets(e.name.0.len())).sum::<usize>();
    let limit = crate::nfs3::MAX_LISTING_OCTETS;
    assert!(!listing.end && octets <= limit && octets > limit - v3::entry_octets(8), "{octets}");
    assert_eq!(client.names(&root, u32::MAX).len(), 9002);
}

#[test]
fn every_procedure_is_there_and_no_other() {
    let client = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env())));
    for procedure in Procedure::ALL {
        let asked = client.raw(v3::PROGRAM, v3::VERSION, procedure as u32, Payload::new()).map(|_| ());
        let expected = if procedure == Procedure::Null { Ok(()) } else { Err(Rejection::GarbageArgs) };
        assert_eq!(asked, expected, "{}", procedure.name());
    }
    let unknown = client.raw(v3::PROGRAM, v3::VERSION, 22, Payload::new()).map(|_| ());
    assert_eq!(unknown, Err(Rejection::ProcedureUnavailable));
    assert!(matches!(Answer::ProcUnavail, Answer::ProcUnavail));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn arbitrary_arguments_are_survived(
        procedure in 0u32..25,
        real_handle in any::<bool>(),
        octets in prop::collection::vec(any::<u8>(), 0..200),
        mount_too in any::<bool>(),
    ) {
        let client = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env())));
        let mut args = Vec::new();
        if real_handle {
            let root = client.root();
            args.extend_from_slice(&(root.as_slice().len() as u32).to_be_bytes());
            args.extend_from_slice(root.as_slice());
        }
        args.extend_from_slice(&octets);
        let program = if mount_too { mount::PROGRAM } else { v3::PROGRAM };
        let outcome = wait(client.send(program, 3, procedure, Payload::from(bytes::Bytes::from(args))));
        prop_assert!(matches!(outcome, Outcome::Reply(_)));
    }
}
