//! Directories and their entries: names, listings, renaming, links, removal.

use super::{mode, on_each};
use crate::{
    Export, Identities, MemoryFs, Nfsd, Squash,
    testing::{Client, SECRET, Watched, env, plain, wait},
};
use rpcrdma_nfs::v3::{self, CreateHow, FileType, Handle, Name, NewAttributes, Path, Status, Verifier};
use rpcrdma_oncrpc::Outcome;
use rpcrdma_xdr::{Encode, Encoder};
use std::sync::{Arc, atomic::Ordering};

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
        // A listing returns each entry that stays exactly once, whatever else comes and goes.
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
        v3::read_directory_bytes() + listing.entries.iter().map(|e| v3::entry_bytes(e.name.0.len())).sum::<usize>();
    let limit = crate::transfer::MAX_LISTING_BYTES;
    assert!(!listing.end && octets <= limit && octets > limit - v3::entry_bytes(8), "{octets}");
    assert_eq!(client.names(&root, u32::MAX).len(), 9002);
}

/// A reply that a client does not take is memory: a client that asks for listings and does not read them must not get
/// more of it than a client that asks for data.
#[test]
fn a_listing_counts_as_memory_until_it_is_taken() {
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", Arc::new(MemoryFs::new(1 << 20, &env()))).with_identities(identities);
    let mut client = Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap());
    let watched = Watched::default();
    client.memory = Arc::new(watched.clone());
    let in_use = || watched.0.load(Ordering::Relaxed);
    let directory = client.root();
    // The transport copies a listing of a few names behind the reply's header, and gives its memory back at once.
    for number in 0..12 {
        let name = format!("a name of some length {number}");
        client.create(&directory, name.as_str(), CreateHow::Unchecked(mode(0o600))).unwrap();
    }
    assert_eq!(in_use(), 0);
    let (cookie, verifier) = (0, Verifier::default());
    let limit = crate::transfer::MAX_LISTING_BYTES;
    for (asked, counted) in [(8192, 8192), (u32::MAX, limit)] {
        let mut names = Encoder::new();
        let list = v3::ReadDirectory { directory: directory.clone(), cookie, verifier, count: asked };
        list.encode(&mut names);
        let mut plus = Encoder::new();
        let (directory_count, max_count) = (asked, asked);
        v3::ReadDirectoryPlus { directory: directory.clone(), cookie, verifier, directory_count, max_count }
            .encode(&mut plus);
        for (procedure, args) in [(v3::Procedure::ReadDirectory, names), (v3::Procedure::ReadDirectoryPlus, plus)] {
            let sent = client.send(v3::PROGRAM, v3::VERSION, procedure as u32, args.finish());
            assert_eq!(in_use(), 0);
            let Outcome::Reply(reply) = wait(sent) else { panic!("no reply") };
            assert_eq!(in_use(), counted, "{procedure:?}");
            let last = reply.slices().last().unwrap();
            drop(reply);
            assert_eq!(in_use(), counted, "{procedure:?}: it is on its way");
            drop(last);
            assert_eq!(in_use(), 0, "{procedure:?}");
        }
    }
    let wrong = client.send(v3::PROGRAM, v3::VERSION, v3::Procedure::ReadDirectory as u32, Encoder::new().finish());
    assert!(matches!(wait(wrong), Outcome::Reply(_)));
    assert_eq!(in_use(), 0);
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
