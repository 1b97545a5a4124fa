//! Exports inside exports, as clients of versions 4 and 3 see them.

use super::*;
use crate::{
    Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory, Version4,
    nfs4::testing::{TestClient, only},
    testing::{self, SECRET, env},
};
use rpcrdma_env::{Env, SeededRandom};
use rpcrdma_nfs::v4::{Args, Attribute, Bitmap, FileAttributes, Handle, Name, Outcome, Status, Value, Verifier, ops};
use std::sync::Arc;

const OURS: [u8; 4] = [10, 0, 0, 1];
const OTHER: [u8; 4] = [192, 0, 2, 1];

fn export(path: &str) -> Export {
    let identities = Identities { squash: Squash::None, ..Default::default() };
    // Each file system has a number of its own.
    let env = Env { random: Arc::new(SeededRandom::new(path.len() as u64)), ..env() };
    Export::new(path, Arc::new(MemoryFs::new(1 << 20, &env))).with_identities(identities)
}

fn server(exports: Vec<Export>) -> Nfsd {
    let (env, scratch) = (env(), tempfile::tempdir().unwrap());
    let state = StateDirectory::open(scratch.path().join("state"), &*env.random).unwrap();
    let version_4 = Version4::new(&state, Queue::in_place());
    Nfsd::new(exports, SECRET, &env).unwrap().with_version_4(version_4, true, &env).unwrap()
}

fn client(server: &Nfsd, address: [u8; 4]) -> TestClient {
    let mut rpc = testing::Client::of(server);
    (rpc.address, rpc.connection) = (address.into(), address[0].into());
    TestClient::new(rpc, if address == OURS { "ours" } else { "other" }, 2, 1)
}

/// `/`, `/in` for 10.0.0.0/8, and read-only `/a/b/deep`; the directories that they cover exist.
fn nested() -> Nfsd {
    let inner = export("/in").with_allow(vec!["10.0.0.0/8".parse().unwrap()]);
    let server = server(vec![export("/a/b/deep").with_read_only(true), inner, export("/")]);
    let client = client(&server, OURS);
    for (above, name) in [("", "in"), ("", "a"), ("a", "b"), ("a/b", "deep"), ("in", "inside")] {
        make(&client, &client.walk(above).unwrap(), name).unwrap();
    }
    server
}

fn make(client: &TestClient, directory: &Handle, name: &str) -> Result<(), Status> {
    let (kind, attributes) = (ops::CreateKind::Directory, FileAttributes::default());
    let create = ops::Create { kind, name: Name::from(name), attributes };
    only!(client.on(directory, Args::Create(Box::new(create))), Create).map(drop)
}

fn value(client: &TestClient, file: &Handle, attribute: Attribute) -> Value {
    let get = Args::GetAttr(ops::GetAttr { asked: Bitmap::of(&[attribute]) });
    let told = only!(client.on(file, get), GetAttr).unwrap().attributes;
    told.values().unwrap().remove(0)
}

fn listed(client: &TestClient, path: &str, attribute: Attribute) -> Vec<(String, Value)> {
    let (verifier, asked) = (Verifier::default(), Bitmap::of(&[attribute]));
    let ask = ops::ReadDir { cookie: 0, verifier, directory_count: 0, max_count: 65_536, asked };
    let listing = only!(client.on(&client.walk(path).unwrap(), Args::ReadDir(ask)), ReadDir).unwrap();
    let entries = listing.entries.into_iter();
    let mut entries: Vec<_> = entries
        .map(|entry| {
            let name = entry.name.as_slice().escape_ascii().to_string();
            (name, entry.attributes.values().unwrap().remove(0))
        })
        .collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries
}

fn up(client: &TestClient, file: &Handle) -> Result<Handle, Status> {
    let put = Args::PutFh(ops::PutFh { file: file.clone() });
    match client.last(vec![put, Args::LookupP, Args::GetFh]) {
        Outcome::GetFh(answer) => answer.map(|ok| ok.file),
        failed => Err(failed.status()),
    }
}

/// proves: NFS4-BORDER-a
#[test]
fn a_client_goes_by_name_from_one_export_into_the_other_and_back() {
    let server = nested();
    let client = client(&server, OURS);
    for (inner, above) in [("in", ""), ("a/b/deep", "a/b")] {
        let (root, outer) = (client.walk(inner).unwrap(), client.walk(above).unwrap());
        let fs = |file| value(&client, file, Attribute::FileSystem);
        assert_ne!(fs(&root), fs(&outer), "the client sees that it crosses");
        assert_eq!(up(&client, &root).as_ref(), Ok(&outer));
        let name = inner.rsplit('/').next().unwrap();
        assert!(listed(&client, above, Attribute::FileSystem).contains(&(name.to_owned(), fs(&root))));
    }
    assert!(client.walk("in/inside").is_ok(), "what is in the inner export");
    // The inner export does not show what was made through the outer root, and the name elsewhere is no border.
    make(&client, &client.walk("a").unwrap(), "in").unwrap();
    assert_eq!(client.walk("a/in/inside").err(), Some(Status::NOENT));
    assert_eq!(make(&client, &client.walk("a/b/deep").unwrap(), "x"), Err(Status::ROFS));
    assert_eq!(up(&client, &client.walk("").unwrap()), Err(Status::NOENT));
}

/// proves: NFS4-BORDER-b
#[test]
fn who_may_not_use_the_inner_export_finds_nothing_there() {
    let server = nested();
    let (ours, other) = (client(&server, OURS), client(&server, OTHER));
    assert_eq!(other.walk("in"), Err(Status::NOENT));
    let names = |client| listed(client, "", Attribute::FileId).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!((names(&ours), names(&other)), (vec!["a".into(), "in".into()], vec!["a".to_owned()]));
    let get = Args::GetAttr(ops::GetAttr { asked: Bitmap::of(&[Attribute::FileId]) });
    assert_eq!(other.on(&ours.walk("in").unwrap(), get).status(), Status::ACCESS, "nor by a handle");
}

/// If a client may not use the outer export, the tree above the exports leads it to the inner one.
/// proves: NFS4-BORDER-b
#[test]
fn who_may_not_use_the_outer_export_goes_by_the_tree_above() {
    let outer = export("/").with_allow(vec!["10.0.0.0/8".parse().unwrap()]);
    let server = server(vec![outer, export("/a/b"), export("/c").with_allow(vec!["10.0.0.0/8".parse().unwrap()])]);
    let other = client(&server, OTHER);
    let (root, a, b) = (other.walk("").unwrap(), other.walk("a").unwrap(), other.walk("a/b").unwrap());
    assert_eq!((up(&other, &b), up(&other, &a)), (Ok(a.clone()), Ok(root.clone())));
    assert_eq!(make(&other, &root, "x"), Err(Status::ROFS));
    make(&other, &b, "x").unwrap();
    let names = listed(&other, "", Attribute::FileId).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!((names, other.walk("c")), (vec!["a".to_owned()], Err(Status::NOENT)));
    assert_ne!(client(&server, OURS).walk("").unwrap(), root);
}

/// proves: NFS4-BORDER-c
#[test]
fn a_covered_directory_stays_under_its_name_in_both_versions() {
    let server = nested();
    let client = client(&server, OURS);
    let (root, a) = (client.walk("").unwrap(), client.walk("a").unwrap());
    let remove =
        |directory: &Handle, name| client.on(directory, Args::Remove(ops::Remove { name: Name::from(name) })).status();
    assert_eq!(remove(&root, "in"), Status::FILE_OPEN);
    assert_eq!(remove(&client.walk("a/b").unwrap(), "deep"), Status::FILE_OPEN);
    let rename = |from: &Handle, old, to: &Handle, new| {
        let put = |file: &Handle| Args::PutFh(ops::PutFh { file: file.clone() });
        let rename = Args::Rename(ops::Rename { from: Name::from(old), to: Name::from(new) });
        client.status(vec![put(from), Args::SaveFh, put(to), rename])
    };
    make(&client, &a, "y").unwrap();
    assert_eq!(rename(&root, "in", &a, "z"), Status::FILE_OPEN);
    assert_eq!(rename(&a, "y", &root, "in"), Status::FILE_OPEN);
    assert_eq!(rename(&a, "y", &a, "in"), Status::OK, "another directory");
    assert_eq!(remove(&a, "in"), Status::OK);
    let mut of_3 = testing::Client::of(&server);
    of_3.address = OURS.into();
    let root = of_3.mount("/").unwrap();
    let refused = Some(rpcrdma_nfs::v3::Status::ACCES);
    assert_eq!(of_3.remove_directory(&root, "in").err(), refused);
    assert_eq!(of_3.rename((&root, "in"), (&root, "out")).err(), refused);
    assert!(client.walk("in/inside").is_ok());
}
