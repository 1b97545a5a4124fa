//! Access control lists and masks on whole servers: of a directory, whose file system must support lists, and in
//! memory, there also with modes alone.

use super::{create_with, on_each};
use crate::{
    Caller, Changed, Fault, Features, FileId, FileSystem, Found, Listing, ListingBudget, Made, MemoryFs, New, ReadData,
    Told, Via, failed,
    nfs4::{
        attributes::tests::{file, told, value},
        testing::{TestClient, TestServer, only},
    },
    testing::env,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer};
use rpcrdma_nfs::{
    attr,
    v4::{
        Ace, Args, Attribute, Bitmap, FileAttributes, Handle, MAX_ACES, ModeUmask, Name, Outcome, Principal, StateId,
        Status, Value, Verifier, ace,
        ops::{self, CreateExclusive, CreateHow, CreateKind, access},
    },
};
use rustix::fs::{XattrFlags, getxattr_query, setxattr};
use std::{future::ready, sync::Arc};

const R: u32 = ace::READ_DATA;
const W: u32 = ace::WRITE_DATA | ace::APPEND_DATA;
const X: u32 = ace::EXECUTE;
/// Both flags that make an entry inherited.
const BOTH: u32 = ace::FILE_INHERIT | ace::DIRECTORY_INHERIT;

fn allow(who: &str, rights: u32) -> Ace {
    Ace { kind: ace::ALLOWED, flags: 0, rights, who: Principal::from(who) }
}

fn acl(entries: &[Ace]) -> Value {
    Value::Acl(entries.to_vec().into())
}

fn set(client: &TestClient, file: &Handle, values: &[Value]) -> Result<Bitmap, (Status, Bitmap)> {
    let (state, attributes) = (StateId::ANONYMOUS, FileAttributes::of(values));
    let outcome = client.on(file, Args::SetAttr(ops::SetAttr { state, attributes }));
    only!(outcome, SetAttr).map(|ok| ok.set).map_err(|failed| (failed.status, failed.set))
}

fn mode(client: &TestClient, file: &Handle) -> u32 {
    let Value::Mode(mode) = value(client, file, Attribute::Mode) else { panic!("another attribute") };
    mode
}

fn acl_of(client: &TestClient, file: &Handle) -> Vec<Ace> {
    let Value::Acl(acl) = value(client, file, Attribute::Acl) else { panic!("another attribute") };
    acl.0
}

/// The rights of a user or class in a list, without those that all have: allowed, and not denied before.
fn rights_for(acl: &[Ace], who: &str) -> u32 {
    let entries = acl.iter().filter(|entry| entry.who == Principal::from(who) && entry.flags & ace::INHERIT_ONLY == 0);
    entries.filter(|entry| entry.kind == ace::ALLOWED).fold(0, |all, entry| all | entry.rights) & (R | W | X)
}

/// Which of the rights to read, change and execute a user has.
fn may(server: &TestServer, uid: u32, file: &Handle) -> u32 {
    let client = server.client_as(&format!("user {uid}"), 2, uid, 1);
    let rights = access::READ | access::MODIFY | access::EXECUTE | access::LOOKUP;
    only!(client.on(file, Args::Access(ops::Access { rights })), Access).unwrap().rights
}

/// A server whose file system has access control lists, and acts as its callers.
fn server_with_lists() -> TestServer {
    let server = TestServer::directory();
    let shared = server.served();
    let is_had = getxattr_query(&shared, "system.posix_acl_access");
    assert_eq!(is_had, Err(rustix::io::Errno::NODATA), "{} is on no file system with lists", shared.display());
    server
}

/// Gives a directory of the host a default list: all rights for the owner and user 1000, read for the group, none for
/// others.
fn give_default(path: &std::path::Path) {
    let none = u32::MAX;
    let entries = [(0x01u16, 7u16, none), (0x02, 7, 1000), (0x04, 4, none), (0x10, 7, none), (0x20, 0, none)];
    let mut octets = 2u32.to_le_bytes().to_vec();
    for (tag, rights, number) in entries {
        octets.extend([&tag.to_le_bytes()[..], &rights.to_le_bytes(), &number.to_le_bytes()].concat());
    }
    setxattr(path, "system.posix_acl_default", &octets, XattrFlags::empty()).unwrap();
}

/// proves: NFS4-8881-6.4-a
#[test]
fn a_mode_is_told_as_a_list_and_a_list_that_says_a_mode_sets_it() {
    on_each(|server| {
        let client = server.client("a");
        let file = file(server, &client, "f");
        assert_eq!(
            value(&client, &file, Attribute::AclSupport),
            Value::AclSupport(ace::SUPPORT_ALLOW | ace::SUPPORT_DENY)
        );
        let told = acl_of(&client, &file);
        assert_eq!(["OWNER@", "GROUP@", "EVERYONE@"].map(|who| rights_for(&told, who)), [R | W, R, R]);
        set(&client, &file, &[Value::Mode(0o4711)]).unwrap();
        // EVERYONE@ includes all users: even without any other right they may execute.
        let list = acl(&[allow("OWNER@", R | W), allow("GROUP@", R), allow("EVERYONE@", X)]);
        assert_eq!(set(&client, &file, &[list]), Ok(Bitmap::of(&[Attribute::Acl])));
        assert_eq!(mode(&client, &file), 0o4751, "the higher bits stay");
        // RFC 8881 section 6.4.1.3: the mode first.
        let both = [Value::Mode(0o1777), acl(&[allow("OWNER@", R)])];
        assert_eq!(set(&client, &file, &both), Ok(Bitmap::of(&[Attribute::Acl, Attribute::Mode])));
        assert_eq!(mode(&client, &file), 0o1400);
        set(&client, &file, &[acl(&[])]).unwrap();
        assert_eq!(mode(&client, &file), 0o1000, "a list without entries allows nothing");
    });
}

/// proves: NFS4-8881-6.2.1-b
#[test]
fn users_and_groups_get_what_a_list_allows_and_the_mode_masks_them() {
    let server = server_with_lists();
    let client = server.client("a");
    let file = file(&server, &client, "f");
    set(&client, &file, &[acl(&[allow("OWNER@", R | W), allow("1000", R | W), allow("1001", R | X)])]).unwrap();
    assert_eq!(mode(&client, &file), 0o670, "the mask is all that is allowed to any of them");
    let changes = access::READ | access::MODIFY;
    assert_eq!([1000, 1001, 1002].map(|uid| may(&server, uid, &file)), [changes, access::READ | access::EXECUTE, 0]);
    let told = acl_of(&client, &file);
    assert_eq!(["1000", "1001", "EVERYONE@"].map(|who| rights_for(&told, who)), [R | W, R | X, 0]);
    // A client can set the list that it got, and that changes nothing.
    set(&client, &file, &[acl(&told)]).unwrap();
    assert_eq!(acl_of(&client, &file), told);
    // RFC 8881 section 6.4.1.1: a mode without the right to write also takes it from named users.
    set(&client, &file, &[Value::Mode(0o640)]).unwrap();
    assert_eq!([1000, 1001].map(|uid| may(&server, uid, &file)), [access::READ; 2]);
    assert_eq!(["1000", "1001"].map(|who| rights_for(&acl_of(&client, &file), who)), [R; 2]);
    set(&client, &file, &[Value::Mode(0o660)]).unwrap();
    assert_eq!(may(&server, 1000, &file), changes, "and gives it back");
    // Only the owner may do this.
    let other = server.client_as("b", 2, 1000, 1);
    assert_eq!(set(&other, &file, &[acl(&[])]), Err((Status::PERM, Bitmap::EMPTY)));
    assert_eq!(acl_of(&other, &file).len(), acl_of(&client, &file).len(), "but all may look at it");
}

/// Lists that pynfs sets: without any right, of one user and of many.
///
/// proves: NFS4-8881-6.2.1-b
#[test]
fn lists_that_allow_nothing_are_lists() {
    let server = server_with_lists();
    let client = server.client("a");
    let file = file(&server, &client, "f");
    for count in [1, 20] {
        let entries: Vec<_> = (0..count).map(|number| allow(&(10_000 + number).to_string(), 0)).collect();
        set(&client, &file, &[acl(&entries)]).unwrap();
        assert_eq!(mode(&client, &file), 0);
        assert_eq!(acl_of(&client, &file).len(), 3 + count, "nobody has to be denied what nobody is allowed");
    }
}

/// proves: NFS4-8881-6.2.1-c
#[test]
fn a_list_that_cannot_be_had_changes_nothing() {
    on_each(|server| {
        let client = server.client("a");
        let file = file(server, &client, "f");
        let refused = |entry: Ace| set(&client, &file, &[Value::Mode(0o777), acl(&[entry])]);
        let audit = Ace { kind: ace::AUDIT, ..allow("OWNER@", R) };
        assert_eq!(refused(audit), Err((Status::ATTRNOTSUPP, Bitmap::EMPTY)));
        assert_eq!(refused(allow("nobody@example", R)), Err((Status::BADOWNER, Bitmap::EMPTY)));
        let many = vec![allow("OWNER@", R); crate::nfs4::acl::MAX_SET_ACES + 1];
        assert_eq!(set(&client, &file, &[Value::Mode(0o777), acl(&many)]), Err((Status::FBIG, Bitmap::EMPTY)));
        let how = CreateHow::Guarded(FileAttributes::of(&[acl(&[allow("nobody@example", R)])]));
        assert_eq!(create_with(&client, "new", "o", how).err(), Some(Status::BADOWNER));
        assert_eq!(client.walk("new").err(), Some(Status::NOENT));
        assert_eq!(mode(&client, &file), 0o644);
    });
    let server = TestServer::serving(Arc::new(MemoryFs::new(1 << 20, &env()).without_acls()));
    let client = server.client("a");
    let file = file(&server, &client, "f");
    let named = acl(&[allow("1000", R)]);
    assert_eq!(set(&client, &file, &[Value::Mode(0o777), named]), Err((Status::ATTRNOTSUPP, Bitmap::EMPTY)));
    assert_eq!(mode(&client, &file), 0o644, "where there are modes alone");
}

/// proves: NFS4-8881-6.4-b
#[test]
fn a_new_file_gets_the_list_that_it_is_made_with() {
    let server = server_with_lists();
    give_default(&server.served());
    let client = server.client("a");
    let list = [allow("OWNER@", R | W), allow("1001", R)];
    let wanted = FileAttributes::of(&[acl(&list), Value::Mode(0o1777)]);
    let verifier = Verifier([7; 8]);
    let exclusive = CreateHow::Exclusive41(CreateExclusive { verifier, attributes: wanted.clone() });
    let ways = [CreateHow::Unchecked(wanted.clone()), CreateHow::Guarded(wanted.clone()), exclusive];
    for (number, how) in ways.into_iter().enumerate() {
        let (file, opened) = create_with(&client, &format!("f{number}"), "o", how).unwrap();
        assert!(Bitmap::of(&[Attribute::Acl, Attribute::Mode]).is_within(&opened.set));
        assert_eq!(mode(&client, &file), 0o1640);
        let told = acl_of(&client, &file);
        assert_eq!(["1000", "1001"].map(|who| rights_for(&told, who)), [0, R], "what is inherited does not count");
        assert!(told.iter().all(|entry| entry.who != Principal::from("1000")));
    }
    // An existing file keeps its list.
    let other = FileAttributes::of(&[acl(&[allow("EVERYONE@", R | W)])]);
    let (file, opened) = create_with(&client, "f0", "o", CreateHow::Unchecked(other)).unwrap();
    assert_eq!((opened.set, mode(&client, &file)), (Bitmap::EMPTY, 0o1640));
    let create = |kind: CreateKind, name: &str, attributes: &FileAttributes| {
        let args = ops::Create { kind, name: Name::from(name), attributes: attributes.clone() };
        only!(client.last(vec![Args::PutRootFh, Args::Create(Box::new(args))]), Create).map(|ok| ok.set)
    };
    let inherited = Ace { flags: BOTH | ace::INHERIT_ONLY, ..allow("1002", R | X) };
    let of_directory = FileAttributes::of(&[acl(&[allow("OWNER@", R | W | X | ace::DELETE_CHILD), inherited])]);
    assert_eq!(create(CreateKind::Directory, "d", &of_directory), Ok(of_directory.set));
    let directory = client.walk("d").unwrap();
    assert_eq!(mode(&client, &directory), 0o700);
    let told = acl_of(&client, &directory);
    let of_1002: Vec<_> = told.iter().filter(|entry| entry.who == Principal::from("1002")).collect();
    assert!(!of_1002.is_empty() && of_1002.iter().all(|entry| entry.flags == BOTH | ace::INHERIT_ONLY));
    assert_eq!(create(CreateKind::Fifo, "p", &wanted), Ok(wanted.set));
    assert_eq!(mode(&client, &client.walk("p").unwrap()), 0o1640);
    // A symbolic link gives all rights to all users.
    assert_eq!(create(CreateKind::Symlink("f0".into()), "l", &wanted), Ok(Bitmap::EMPTY));
    let link = client.walk("l").unwrap();
    assert_eq!(set(&client, &link, &[acl(&list)]), Err((Status::ATTRNOTSUPP, Bitmap::EMPTY)));
    assert_eq!(rights_for(&acl_of(&client, &link), "EVERYONE@"), R | W | X);
    // After that the directory has no entries to inherit.
    let without = [acl(&[allow("OWNER@", R | W | X | ace::DELETE_CHILD)])];
    set(&client, &directory, &without).unwrap();
    assert!(acl_of(&client, &directory).iter().all(|entry| entry.flags == 0));
}

/// The same as for a program of the host, and no more: neither a mask nor the requested mode replaces the list.
///
/// proves: NFS4-8275-b, NFS4-8881-6.4-b
#[test]
fn a_default_list_takes_the_place_of_the_mask() {
    let server = server_with_lists();
    give_default(&server.served());
    let client = server.client("a");
    let masked = |mode| Value::ModeUmask(ModeUmask { mode, umask: 0o77 });
    let open = |name: &str, value: Value| {
        let how = CreateHow::Guarded(FileAttributes::of(&[value]));
        create_with(&client, name, "o", how).unwrap().0
    };
    let (without, with) = (open("mode", Value::Mode(0o666)), open("mask", masked(0o666)));
    for file in [&without, &with] {
        assert_eq!(mode(&client, file), 0o660, "others get nothing");
        let told = acl_of(&client, file);
        assert_eq!(["OWNER@", "1000", "GROUP@"].map(|who| rights_for(&told, who)), [R | W, R | W, R]);
    }
    let narrow = open("narrow", Value::Mode(0o6600));
    assert_eq!(mode(&client, &narrow), 0o6600, "less is got where less is asked");
    assert_eq!(may(&server, 1000, &narrow), 0);
    let make = |name: &str, value: Value| {
        let attributes = FileAttributes::of(&[value]);
        let args = ops::Create { kind: CreateKind::Directory, name: Name::from(name), attributes };
        assert_eq!(client.status(vec![Args::PutRootFh, Args::Create(Box::new(args))]), Status::OK);
        client.walk(name).unwrap()
    };
    let directory = make("d", masked(0o1777));
    assert_eq!(mode(&client, &directory), 0o1770);
    assert!(acl_of(&client, &directory).iter().any(|entry| entry.flags & BOTH == BOTH), "it is inherited further");
    // Version 3 makes files in the same way.
    let version_3 = server.version_3();
    version_3.new_file(&version_3.root(), "three");
    assert_eq!(mode(&client, &client.walk("three").unwrap()), 0o640);
    let plain = TestServer::directory();
    let client = plain.client("a");
    let how = CreateHow::Guarded(FileAttributes::of(&[masked(0o6666)]));
    let file = create_with(&client, "f", "o", how).unwrap().0;
    assert_eq!(mode(&client, &file), 0o6600, "without a list the mask counts");
}

/// proves: NFS4-8881-6.4-a
#[test]
fn a_list_is_compared_and_listed_as_others_are() {
    on_each(|server| {
        let client = server.client("a");
        let file = file(server, &client, "f");
        set(&client, &file, &[acl(&[allow("OWNER@", R | W), allow("GROUP@", R)])]).unwrap();
        let attributes = told(&client, &file, &[Attribute::Acl]).unwrap();
        let verify = Args::Verify(ops::Verify { attributes: attributes.clone() });
        assert_eq!(client.on(&file, verify).status(), Status::OK);
        let other = FileAttributes::of(&[acl(&[allow("OWNER@", R)])]);
        assert_eq!(client.on(&file, Args::Verify(ops::Verify { attributes: other })).status(), Status::NOT_SAME);
        let list = |max_count| {
            let (cookie, verifier, directory_count) = (0, Verifier::default(), 0);
            let asked = Bitmap::of(&[Attribute::Acl, Attribute::Mode]);
            let args = ops::ReadDir { cookie, verifier, directory_count, max_count, asked };
            only!(client.last(vec![Args::PutRootFh, Args::ReadDir(args)]), ReadDir)
        };
        let whole = list(4096).unwrap();
        let expected = told(&client, &file, &[Attribute::Acl, Attribute::Mode]).unwrap();
        assert_eq!(whole.entries[0].attributes, expected);
        let octets = u32::try_from(ops::ReadDirOk::EMPTY_BYTES + whole.entries[0].octets()).unwrap();
        assert_eq!(list(octets).unwrap(), whole);
        assert_eq!(list(octets - 1), Err(Status::TOOSMALL), "the list counts");
    });
}

/// The longest list that the server returns, and a longer one.
#[test]
fn a_list_that_nobody_could_read_is_not_told() {
    let server = TestServer::serving(Arc::new(Long(2045)));
    let client = server.client("a");
    assert_eq!(acl_of(&client, &client.walk("").unwrap()).len(), MAX_ACES);
    let server = TestServer::serving(Arc::new(Long(2046)));
    let client = server.client("a");
    let root = client.walk("").unwrap();
    assert_eq!(told(&client, &root, &[Attribute::Acl]), Err(Status::REP_TOO_BIG));
    assert!(told(&client, &root, &[Attribute::Mode]).is_ok());
    // Sixteen lists of 64 KiB are more than the session allows, and each counts as memory like data.
    let server = TestServer::serving(Arc::new(Long(2045)));
    let mut client = server.client("a");
    let watched = crate::testing::Watched::default();
    client.rpc.memory = Arc::new(watched.clone());
    let get = || Args::GetAttr(ops::GetAttr { asked: Bitmap::of(&[Attribute::Acl]) });
    let ops = [Args::PutRootFh].into_iter().chain((0..30).map(|_| get())).collect();
    let outcomes = client.call(ops);
    assert_eq!(outcomes.last().map(Outcome::status), Some(Status::REP_TOO_BIG));
    assert_eq!(watched.0.load(std::sync::atomic::Ordering::Relaxed), 0, "and is given back");
}

/// proves: NFS4-8881-6.4-a
#[test]
fn what_was_set_before_a_list_failed_is_told() {
    let server = TestServer::serving(Arc::new(Long(1)));
    let client = server.client("a");
    let root = client.walk("").unwrap();
    let both = [Value::Mode(0o700), acl(&[allow("1000", R)])];
    assert_eq!(set(&client, &root, &both), Err((Status::NOSPC, Bitmap::of(&[Attribute::Mode]))));
    let attributes = FileAttributes::of(&both);
    let args = ops::Create { kind: CreateKind::Directory, name: Name::from("d"), attributes };
    let made = only!(client.on(&root, Args::Create(Box::new(args))), Create).map(|ok| ok.set);
    assert_eq!(made, Ok(Bitmap::of(&[Attribute::Mode])), "it is there, and not as open as was asked");
}

/// A root whose list has this many users, and no room for another.
struct Long(u32);

impl FileSystem for Long {
    fn root(&self) -> FileId {
        FileId::new(b"root").unwrap()
    }

    fn id(&self) -> u64 {
        1
    }

    fn attributes(&self, _: Caller, _: FileId) -> BoxFuture<'_, Result<attr::Attributes, Fault>> {
        let root = attr::Attributes::new(attr::FileType::Directory, 1, 1);
        Box::pin(ready(Ok(root)))
    }

    fn features(&self) -> Features {
        Features { acls: true, ..Features::default() }
    }

    fn set_attributes(
        &self,
        _: Via,
        _: attr::NewAttributes,
        _: Option<attr::Time>,
    ) -> BoxFuture<'_, Changed<attr::Change>> {
        Box::pin(ready(Ok(attr::Change::default())))
    }

    fn set_acl(&self, _: Caller, _: FileId, _: attr::Acls) -> BoxFuture<'_, Changed<attr::Change>> {
        Box::pin(ready(Err(failed(Fault::NoSpace))))
    }

    fn make(&self, _: Caller, directory: FileId, _: Bytes, _: New) -> BoxFuture<'_, Changed<Made>> {
        let made = Made::new(directory, None, attr::Change::default());
        Box::pin(ready(Ok(made)))
    }

    fn acl(&self, _: Caller, _: FileId) -> BoxFuture<'_, Result<attr::Acls, Fault>> {
        let users = (0..self.0).map(|uid| (uid, 7)).collect();
        let access = attr::PosixAcl::new([7, 7, 0], users, vec![], Some(7)).unwrap();
        Box::pin(ready(Ok(attr::Acls { access, default: None })))
    }

    fn lookup(&self, _: Caller, _: FileId, _: Bytes) -> BoxFuture<'_, Told<Found>> {
        Box::pin(ready(Err(failed(Fault::NotFound))))
    }

    fn read(&self, _: Via, _: u64, _: usize, _: Buffer) -> BoxFuture<'_, Told<ReadData>> {
        Box::pin(ready(Err(failed(Fault::IsDirectory))))
    }

    fn list(
        &self,
        _: Caller,
        _: FileId,
        cookie: u64,
        _: [u8; 8],
        budget: ListingBudget,
    ) -> BoxFuture<'_, Told<Listing>> {
        Box::pin(ready(Ok(Listing::of([], cookie, budget))))
    }
}
