//! Contents of files: written, read, limited, kept until a restart.

use super::{mode, on_each};
use crate::{
    Export, FileSystem, Identities, MemoryFs, Nfsd, Squash,
    testing::{Client, SECRET, env, plain},
};
use rpcrdma_nfs::v3::{self, Commit, CreateHow, FileType, NewAttributes, Stability, Status, Verifier};
use rpcrdma_oncrpc::Limits;
use std::sync::Arc;

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
        assert!(status.total_bytes >= status.free_bytes && status.total_bytes > 0);
        let path = plain(client.ask(v3::PathConfiguration { file: root })).unwrap();
        assert!(path.max_name_bytes == 255 && path.no_truncation && !path.case_insensitive);
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
