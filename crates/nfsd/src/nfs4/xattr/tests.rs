//! Extended attributes, as a client sees them: in memory, and in a directory, whose file system must support them.

use super::*;
use crate::nfs4::{
    attributes::tests::{file, servers, told, value},
    change::tests::make,
    testing::{Setup, TestClient, TestServer, only},
};
use crate::testing::wait;
use rpcrdma_env::{Allocator, BoxFuture, Buffer};
use rpcrdma_nfs::v4::{Args, Arguments, Attribute, ChangeInfo, Handle, PROGRAM, VERSION, Value, ops::CreateKind};
use rpcrdma_oncrpc::Outcome;
use rpcrdma_xdr::{Encode, Encoder};
use std::{
    sync::Arc,
    task::{Context, Waker},
};

fn get(client: &TestClient, file: &Handle, name: &[u8]) -> Result<Vec<u8>, Status> {
    let outcome = client.on(file, Args::GetXattr(ops::GetXattr { name: name.into() }));
    only!(outcome, GetXattr).map(|ok| ok.value.as_slice().to_vec())
}

fn set_as(
    client: &TestClient,
    file: &Handle,
    option: SetXattrOption,
    name: &[u8],
    value: &[u8],
) -> Result<ChangeInfo, Status> {
    let args = ops::SetXattr { option, name: name.into(), value: value.into() };
    only!(client.on(file, Args::SetXattr(Box::new(args))), SetXattr).map(|ok| ok.change)
}

fn set(client: &TestClient, file: &Handle, name: &[u8], value: &[u8]) -> Result<ChangeInfo, Status> {
    set_as(client, file, SetXattrOption::Either, name, value)
}

fn remove(client: &TestClient, file: &Handle, name: &[u8]) -> Result<ChangeInfo, Status> {
    let outcome = client.on(file, Args::RemoveXattr(ops::RemoveXattr { name: name.into() }));
    only!(outcome, RemoveXattr).map(|ok| ok.change)
}

fn list(client: &TestClient, file: &Handle, cookie: u64, max_count: u32) -> Result<ops::ListXattrsOk, Status> {
    only!(client.on(file, Args::ListXattrs(ops::ListXattrs { cookie, max_count })), ListXattrs)
}

/// All names, in pages of this many bytes.
fn names(client: &TestClient, file: &Handle, max_count: u32) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let page = list(client, file, cookie, max_count).unwrap();
        names.extend(page.names.iter().map(|name| String::from_utf8(name.as_slice().to_vec()).unwrap()));
        if page.end {
            names.sort();
            return names;
        }
        assert!(!page.names.is_empty() && page.cookie != cookie);
        cookie = page.cookie;
    }
}

fn change(client: &TestClient, file: &Handle) -> u64 {
    let Value::Change(change) = value(client, file, Attribute::Change) else { panic!("another attribute") };
    change
}

/// proves: NFS4-8276-8.2-a, NFS4-8276-8.4-a
#[test]
fn what_is_set_is_told_until_it_is_removed() {
    for server in servers() {
        let client = server.client("a");
        make(&client, "d", CreateKind::Directory).unwrap();
        for file in [file(&server, &client, "f"), client.walk("d").unwrap()] {
            assert_eq!(value(&client, &file, Attribute::XattrSupport), Value::XattrSupport(true));
            assert_eq!(get(&client, &file, b"a"), Err(Status::NOXATTR));
            let before = change(&client, &file);
            let set_first = set(&client, &file, b"a", b"first").unwrap();
            assert_eq!((set_first.atomic, set_first.before), (true, before));
            assert!(set_first.after != before && set_first.after == change(&client, &file));
            assert_eq!(get(&client, &file, b"a"), Ok(b"first".to_vec()));
            let set_again = set(&client, &file, b"a", b"").unwrap();
            assert!(set_again.before == set_first.after && set_again.after != set_again.before);
            assert_eq!(get(&client, &file, b"a"), Ok(Vec::new()), "no bytes are a value, too");
            assert_eq!(names(&client, &file, 4096), ["a"]);
            let removed = remove(&client, &file, b"a").unwrap();
            assert!(removed.before == set_again.after && removed.after == change(&client, &file));
            assert_eq!(remove(&client, &file, b"a"), Err(Status::NOXATTR));
            assert_eq!(names(&client, &file, 4096), [""; 0]);
        }
    }
}

/// proves: NFS4-8276-8.4-b
#[test]
fn what_has_to_be_there_or_not_is_asked() {
    for server in servers() {
        let client = server.client("a");
        let file = file(&server, &client, "f");
        let set = |option, value: &[u8]| set_as(&client, &file, option, b"user.a", value).map(drop);
        assert_eq!(set(SetXattrOption::Replace, b"1"), Err(Status::NOXATTR));
        assert_eq!(set(SetXattrOption::Create, b"2"), Ok(()));
        assert_eq!(set(SetXattrOption::Create, b"3"), Err(Status::EXIST));
        assert_eq!(get(&client, &file, b"user.a"), Ok(b"2".to_vec()));
        assert_eq!(set(SetXattrOption::Replace, b"4"), Ok(()));
        assert_eq!(get(&client, &file, b"user.a"), Ok(b"4".to_vec()));
    }
}

/// Every name of a client is within the namespace of users, whatever the name is.
///
/// proves: NFS4-8276-8.4-c
#[test]
fn no_other_namespace_is_reached() {
    let server = TestServer::directory();
    let client = server.client("a");
    let file = file(&server, &client, "f");
    let path = server.served().join("f");
    rustix::fs::setxattr(&path, "user.host", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    for name in ["security.selinux", "trusted.a", "system.posix_acl_access", "../a", "a/b", "."] {
        set(&client, &file, name.as_bytes(), b"2").unwrap();
        let mut found = [0; 8];
        assert_eq!(rustix::fs::getxattr(&path, format!("user.{name}"), &mut found[..]), Ok(1));
    }
    let all = [".", "../a", "a/b", "host", "security.selinux", "system.posix_acl_access", "trusted.a"];
    assert_eq!(names(&client, &file, 4096), all);
    assert_eq!(get(&client, &file, b"host"), Ok(b"1".to_vec()));
}

/// proves: NFS4-8276-8.4-c
#[test]
fn names_and_values_have_limits() {
    for server in servers() {
        let client = server.client("a");
        let file = file(&server, &client, "f");
        let longest = [b'n'; 250];
        set(&client, &file, &longest, b"1").unwrap();
        assert_eq!(get(&client, &file, &longest), Ok(b"1".to_vec()));
        let too_long = [b'n'; 251];
        assert_eq!(set(&client, &file, &too_long, b"1"), Err(Status::NAMETOOLONG));
        assert_eq!(get(&client, &file, &too_long), Err(Status::NAMETOOLONG));
        assert_eq!(remove(&client, &file, &too_long), Err(Status::NAMETOOLONG));
        for name in [&b""[..], b"a\0b"] {
            assert_eq!(set(&client, &file, name, b"1"), Err(Status::INVAL));
            assert_eq!(get(&client, &file, name), Err(Status::INVAL));
            assert_eq!(remove(&client, &file, name), Err(Status::INVAL));
        }
        assert_eq!(set(&client, &file, b"a", &[1; MAX_XATTR_BYTES + 1]), Err(Status::XATTR2BIG));
    }
    let server = TestServer::memory();
    let client = server.client("a");
    let file = file(&server, &client, "f");
    let largest = vec![7; MAX_XATTR_BYTES];
    set(&client, &file, b"a", &largest).unwrap();
    assert_eq!(get(&client, &file, b"a"), Ok(largest));
}

/// proves: NFS4-8276-8.4-d
#[test]
fn a_listing_comes_in_pages_and_counts_every_octet() {
    for server in servers() {
        let client = server.client("a");
        let file = file(&server, &client, "f");
        assert_eq!(list(&client, &file, 0, EMPTY_LIST_BYTES as u32 - 1), Err(Status::TOOSMALL));
        let none = list(&client, &file, 0, EMPTY_LIST_BYTES as u32).unwrap();
        assert_eq!((none.names.len(), none.end), (0, true));
        let mut all: Vec<_> = (0..40).map(|number| format!("name {number}")).collect();
        all.sort();
        all.iter().for_each(|name| assert!(set(&client, &file, name.as_bytes(), b"").is_ok()));
        // Each of the names has 6 or 7 bytes, and takes 12 in the reply.
        let page = |entries: u32| EMPTY_LIST_BYTES as u32 + entries * 12;
        assert_eq!(list(&client, &file, 0, page(1) - 1), Err(Status::TOOSMALL));
        assert_eq!(list(&client, &file, 0, page(1)).unwrap().names.len(), 1);
        assert_eq!(list(&client, &file, 0, page(8) - 1).unwrap().names.len(), 7);
        for entries in [1, 3, 39, 40, 41] {
            assert_eq!(names(&client, &file, page(entries)), all);
        }
        assert!(list(&client, &file, 0, page(40)).unwrap().end && !list(&client, &file, 0, page(39)).unwrap().end);
        // If returned names are removed, the rest of the listing hides no other name.
        let first = list(&client, &file, 0, page(20)).unwrap();
        first.names.iter().for_each(|name| assert!(remove(&client, &file, name.as_slice()).is_ok()));
        let rest = list(&client, &file, first.cookie, page(40)).unwrap();
        assert_eq!((rest.names.len(), rest.end), (20, true));
    }
}

/// proves: NFS4-8276-8.4-a
#[test]
fn rights_to_the_file_are_rights_to_its_attributes() {
    for server in servers() {
        let root = server.client("a");
        let file = file(&server, &root, "f");
        set(&root, &file, b"a", b"1").unwrap();
        let other = server.client_as("b", 2, 1000, 1);
        let rights = |client: &TestClient, file: &Handle, rights| {
            only!(client.on(file, Args::Access(ops::Access { rights })), Access).map(|ok| (ok.supported, ok.rights))
        };
        let xattrs = access::XATTR_READ | access::XATTR_WRITE | access::XATTR_LIST;
        assert_eq!(rights(&root, &file, xattrs), Ok((xattrs, xattrs)));
        assert_eq!(rights(&other, &file, xattrs), Ok((xattrs, access::XATTR_READ | access::XATTR_LIST)));
        assert_eq!(rights(&other, &file, access::XATTR_WRITE), Ok((access::XATTR_WRITE, 0)));
        assert_eq!(rights(&other, &file, access::XATTR_READ | 1), Ok((access::XATTR_READ | 1, access::XATTR_READ | 1)));
        assert_eq!(get(&other, &file, b"a"), Ok(b"1".to_vec()));
        assert_eq!(set(&other, &file, b"a", b"2"), Err(Status::ACCESS));
        assert_eq!(remove(&other, &file, b"a"), Err(Status::ACCESS));
        let attributes = rpcrdma_nfs::v4::FileAttributes::of(&[Value::Mode(0o600)]);
        let state = rpcrdma_nfs::v4::StateId::ANONYMOUS;
        assert_eq!(root.on(&file, Args::SetAttr(ops::SetAttr { state, attributes })).status(), Status::OK);
        assert_eq!(rights(&other, &file, xattrs), Ok((xattrs, 0)));
        assert_eq!(get(&other, &file, b"a"), Err(Status::ACCESS));
        assert_eq!(list(&other, &file, 0, 4096), Err(Status::ACCESS));
        let former = server.client_as("c", 1, 0, 1);
        assert_eq!(rights(&former, &file, xattrs | 1), Ok((1, 1)), "minor version 1 knows none");
        let unknown = Args::GetXattr(ops::GetXattr { name: "a".into() });
        let results = former.send(vec![former.sequence(0, false), unknown]);
        assert_eq!(results.status, Status::OP_ILLEGAL);
    }
}

/// proves: NFS4-8276-8.4-a
#[test]
fn only_files_and_directories_have_any() {
    for server in servers() {
        let client = server.client("a");
        make(&client, "link", CreateKind::Symlink("f".into())).unwrap();
        make(&client, "pipe", CreateKind::Fifo).unwrap();
        for name in ["link", "pipe"] {
            let file = client.walk(name).unwrap();
            assert_eq!(get(&client, &file, b"a"), Err(Status::WRONG_TYPE), "{name}");
            assert_eq!(set(&client, &file, b"a", b"1"), Err(Status::WRONG_TYPE));
            assert_eq!(list(&client, &file, 0, 4096), Err(Status::WRONG_TYPE));
            assert_eq!(remove(&client, &file, b"a"), Err(Status::WRONG_TYPE));
            let ask = Args::Access(ops::Access { rights: access::XATTR_READ });
            assert_eq!(only!(client.on(&file, ask), Access).unwrap().supported, 0);
        }
    }
}

#[test]
fn a_read_only_export_is_not_changed() {
    for server in [TestServer::memory_with, TestServer::directory_with] {
        let server = server(Setup { read_only: true, ..Setup::default() });
        let client = server.client("a");
        let root = client.walk("").unwrap();
        assert_eq!(set(&client, &root, b"a", b"1"), Err(Status::ROFS));
        assert_eq!(remove(&client, &root, b"a"), Err(Status::ROFS));
        assert_eq!(get(&client, &root, b"a"), Err(Status::NOXATTR));
        let write = Args::Access(ops::Access { rights: access::XATTR_WRITE });
        assert_eq!(only!(client.on(&root, write), Access).unwrap().rights, 0);
    }
}

/// proves: NFS4-8276-8.2-a
#[test]
fn a_file_system_without_any_says_so() {
    let server = TestServer::serving(std::sync::Arc::new(crate::nfs4::PseudoFs::new(&[])));
    let client = server.client("a");
    let root = client.walk("").unwrap();
    assert_eq!(value(&client, &root, Attribute::XattrSupport), Value::XattrSupport(false));
    assert_eq!(get(&client, &root, b"a"), Err(Status::NOTSUPP));
    assert_eq!(set(&client, &root, b"a", b"1"), Err(Status::NOTSUPP));
    assert_eq!(list(&client, &root, 0, 4096), Err(Status::NOTSUPP));
    assert_eq!(remove(&client, &root, b"a"), Err(Status::NOTSUPP));
    assert!(told(&client, &root, &[Attribute::Acl]).unwrap().set.contains(Attribute::Acl), "of its mode");
}

/// proves: NFS4-8276-8.4-e
#[test]
fn a_value_that_does_not_fit_into_the_answer_is_too_big() {
    let server = TestServer::memory();
    let client = server.client("a");
    let file = file(&server, &client, "f");
    set(&client, &file, b"a", &[1; MAX_XATTR_BYTES]).unwrap();
    let get = |count: usize| {
        let put = Args::PutFh(ops::PutFh { file: file.clone() });
        [vec![put], vec![Args::GetXattr(ops::GetXattr { name: "a".into() }); count]].concat()
    };
    let kept = client.send([vec![client.sequence(0, true)], get(1)].concat());
    assert_eq!(kept.status, Status::REP_TOO_BIG_TO_CACHE);
    assert_eq!(client.send([vec![client.sequence(0, false)], get(1)].concat()).status, Status::OK);
    // Sixteen values are a mebibyte, and the rest of the reply is less than the session allows for it.
    let outcomes = client.call(get(17));
    assert_eq!(outcomes.last().unwrap().status(), Status::REP_TOO_BIG);
    assert_eq!(outcomes.len(), 1 + 17);
}

/// Memory that is available when the test says so.
#[derive(Default)]
struct Awaited(tokio::sync::Notify);

impl Allocator for Awaited {
    fn try_allocate(&self, _: usize) -> Option<Buffer> {
        None
    }

    fn allocate(&self, len: usize) -> BoxFuture<'_, Buffer> {
        Box::pin(async move {
            self.0.notified().await;
            Buffer::from_vec(vec![0; len])
        })
    }
}

/// A call that waits for memory holds no value meanwhile: that would be memory that nothing counts.
///
/// proves: NFS4-MEMORY-a
#[test]
fn a_value_is_read_when_there_is_memory_for_it() {
    let server = TestServer::memory();
    let (mut client, other) = (server.client("a"), server.client("b"));
    let file = file(&server, &other, "f");
    set(&other, &file, b"a", &[1; MAX_XATTR_BYTES]).unwrap();
    let memory = Arc::new(Awaited::default());
    client.rpc.memory = memory.clone();
    let get = Args::GetXattr(ops::GetXattr { name: "a".into() });
    let put = Args::PutFh(ops::PutFh { file: file.clone() });
    let mut encoder = Encoder::new();
    Arguments::new(2, vec![client.sequence(0, false), put, get]).encode(&mut encoder);
    let mut sent = client.rpc.send(PROGRAM, VERSION, 1, encoder.finish());
    assert!(sent.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    remove(&other, &file, b"a").unwrap();
    memory.0.notify_one();
    let Outcome::Reply(reply) = wait(sent) else { panic!("no reply") };
    let octets = reply.to_bytes();
    assert_eq!(octets[octets.len() - 4..], Status::NOXATTR.0.to_be_bytes(), "it is asked for now");
}
