//! GETATTR, SETATTR, VERIFY and NVERIFY, as a client sees them.

use crate::{
    Caller, FileSystem, MemoryFs,
    claims::{Access, Client, Deny, FileKey, Holder},
    nfs4::testing::{Setup, TestClient, TestServer, only},
    testing::{Client as Version3, env, wait},
};
use rpcrdma_nfs::{
    v3,
    v4::{
        Args, Attribute, Bitmap, Device, FileAttributes, Handle, ModeUmask, Name, Principal, SetTime, StateId,
        StateIdOther, Status, Time, Value,
        ops::{self, CreateKind},
    },
};
use rpcrdma_xdr::{Encode, Encoder};
use std::sync::Arc;

/// One server of each kind of file system, with a client.
pub(in crate::nfs4) fn servers() -> [TestServer; 2] {
    [TestServer::memory(), TestServer::directory()]
}

/// A regular file in the root of `/`, made by version 3.
pub(in crate::nfs4) fn file(server: &TestServer, client: &TestClient, name: &str) -> Handle {
    let version_3: Version3 = server.version_3();
    version_3.new_file(&version_3.root(), name);
    client.walk(name).unwrap()
}

pub(in crate::nfs4) fn told(client: &TestClient, file: &Handle, asked: &[Attribute]) -> Result<FileAttributes, Status> {
    let get = Args::GetAttr(ops::GetAttr { asked: Bitmap::of(asked) });
    only!(client.on(file, get), GetAttr).map(|ok| ok.attributes)
}

/// The value of one attribute.
pub(in crate::nfs4) fn value(client: &TestClient, file: &Handle, asked: Attribute) -> Value {
    told(client, file, &[asked]).unwrap().values().unwrap().remove(0)
}

fn set_with(client: &TestClient, file: &Handle, state: StateId, values: &[Value]) -> Result<Bitmap, (Status, Bitmap)> {
    let attributes = FileAttributes::of(values);
    let outcome = client.on(file, Args::SetAttr(ops::SetAttr { state, attributes }));
    only!(outcome, SetAttr).map(|ok| ok.set).map_err(|failed| (failed.status, failed.set))
}

fn set(client: &TestClient, file: &Handle, values: &[Value]) -> Result<Bitmap, Status> {
    set_with(client, file, StateId::ANONYMOUS, values).map_err(|(status, set)| {
        assert!(set.is_empty());
        status
    })
}

fn time(seconds: i64) -> Time {
    Time { seconds, nanoseconds: 5 }
}

/// The bytes of a GETATTR reply, written by hand.
/// proves: NFS4-8881-18.7-a
#[test]
fn a_file_is_told_in_these_octets() {
    let server = TestServer::memory();
    let client = server.client("a");
    let file = file(&server, &client, "f");
    let asked = [
        Attribute::XattrSupport,
        Attribute::Group,
        Attribute::Owner,
        Attribute::Links,
        Attribute::Mode,
        Attribute::Acl,
        Attribute::AclSupport,
        Attribute::LeaseTime,
        Attribute::LinkSupport,
        Attribute::Size,
        Attribute::Type,
    ];
    let mut encoder = Encoder::new();
    told(&client, &file, &asked).unwrap().encode(&mut encoder);
    let zero = u32::from_be_bytes(*b"0\0\0\0");
    let sets = [3, 1 << 1 | 1 << 4 | 1 << 5 | 1 << 10 | 1 << 12 | 1 << 13, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5, 1 << 18];
    let name = |name: &[u8]| {
        let octets = [name, &[0; 3][..name.len().next_multiple_of(4) - name.len()]].concat();
        let words = octets.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
        [u32::try_from(name.len()).unwrap()].into_iter().chain(words).collect::<Vec<_>>()
    };
    // All users may read data and attributes; the owner may write both.
    let all = 0x12_0080;
    let owner = [&[0, 0, all | 0x4_0107][..], &name(b"OWNER@")].concat();
    let group = [&[0, 0, all | 1][..], &name(b"GROUP@")].concat();
    let others = [&[0, 0, all | 1][..], &name(b"EVERYONE@")].concat();
    let acl = [&[3][..], &owner, &group, &others].concat();
    let rest = [3, 0o644, 1, 1, zero, 1, zero, 1];
    let octets = 4 * (5 + acl.len() + rest.len()) as u32;
    let words = [&sets[..], &[octets, 1, 0, 0, 1, 90], &acl, &rest].concat();
    assert_eq!(encoder.finish().to_bytes(), words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>());
}

/// proves: NFS4-8881-18.7-a
#[test]
fn what_can_only_be_set_is_not_read() {
    let server = TestServer::memory();
    let client = server.client("a");
    let root = client.walk("").unwrap();
    for attribute in [Attribute::TimeAccessSet, Attribute::TimeModifySet, Attribute::ModeUmask] {
        assert_eq!(told(&client, &root, &[Attribute::Size, attribute]), Err(Status::INVAL), "{}", attribute.name());
    }
    assert_eq!(told(&client, &root, &[]), Ok(FileAttributes::default()));
    assert_eq!(client.status(vec![Args::GetAttr(ops::GetAttr { asked: Bitmap::EMPTY })]), Status::NOFILEHANDLE);
}

/// proves: NFS4-8881-5.8-a
#[test]
fn what_is_supported_is_told() {
    for server in servers() {
        for minor in [1, 2] {
            let client = server.client_as(&format!("of {minor}"), minor, 0, 1);
            let root = client.walk("").unwrap();
            let Value::SupportedAttributes(supported) = value(&client, &root, Attribute::SupportedAttributes) else {
                panic!("another attribute")
            };
            for attribute in Attribute::ALL {
                let is_told = told(&client, &root, &[*attribute]).map(|told| !told.set.is_empty());
                let expected = match attribute {
                    Attribute::TimeAccessSet | Attribute::TimeModifySet => Err(Status::INVAL),
                    Attribute::ModeUmask if minor == 2 => Err(Status::INVAL),
                    attribute => Ok(supported.contains(*attribute)),
                };
                assert_eq!(is_told, expected, "{} in 4.{minor}", attribute.name());
                assert!(!supported.contains(*attribute) || attribute.since() <= minor);
            }
            let needed = [Attribute::TimeCreate, Attribute::Handle, Attribute::SpaceTotal, Attribute::MaxRead];
            assert!(Bitmap::of(&needed).is_within(&supported));
            let Value::SupportedExclusiveCreate(exclusive) = value(&client, &root, Attribute::SupportedExclusiveCreate)
            else {
                panic!("another attribute")
            };
            assert!(exclusive.is_within(&supported) && !exclusive.contains(Attribute::TimeModifySet));
        }
    }
}

/// proves: NFS4-TRANSFER-a
#[test]
fn the_session_and_the_transport_limit_transfers() {
    let server = TestServer::memory();
    let mut client = server.client("a");
    let root = client.walk("").unwrap();
    let sizes = |client: &TestClient| {
        [Attribute::MaxRead, Attribute::MaxWrite].map(|attribute| match value(client, &root, attribute) {
            Value::MaxRead(octets) | Value::MaxWrite(octets) => octets,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(sizes(&client), [1 << 20; 2]);
    client.rpc.limits = rpcrdma_oncrpc::Limits::new(1 << 16, 1 << 17);
    assert_eq!(sizes(&client), [(1 << 17) - 4096, (1 << 16) - 4096]);
}

/// proves: NFS4-8881-5.8-a, NFS4-8881-5.9-b, NFS4-8881-18.30-a
#[test]
fn what_is_set_is_told() {
    for server in servers() {
        let client = server.client("a");
        let file = file(&server, &client, "f");
        let device = Device { major: 0, minor: 0 };
        let values = [
            Value::Size(5000),
            Value::Mode(0o640),
            Value::TimeAccessSet(SetTime::Client(time(1_000_000))),
            Value::TimeModifySet(SetTime::Client(time(2_000_000))),
        ];
        let expected = FileAttributes::of(&values).set;
        assert_eq!(set(&client, &file, &values), Ok(expected));
        let asked =
            [Attribute::Size, Attribute::Mode, Attribute::RawDevice, Attribute::TimeAccess, Attribute::TimeModify];
        let now = told(&client, &file, &asked).unwrap().values().unwrap();
        let (accessed, modified) = (Value::TimeAccess(time(1_000_000)), Value::TimeModify(time(2_000_000)));
        assert_eq!(now, [Value::Size(5000), Value::Mode(0o640), Value::RawDevice(device), accessed, modified]);
        let before = value(&client, &file, Attribute::Change);
        assert_eq!(set(&client, &file, &[]), Ok(Bitmap::EMPTY));
        assert_eq!(value(&client, &file, Attribute::Change), before, "nothing is nothing");
        let owned = [Value::Owner(Principal::of_number(0)), Value::Group(Principal::of_number(0))];
        assert_eq!(set(&client, &file, &owned), Ok(FileAttributes::of(&owned).set));
        assert_eq!(value(&client, &file, Attribute::Owner), owned[0]);
    }
}

/// proves: NFS4-8881-5.9-b, NFS4-8881-18.30-a, NFS4-8881-5.8-a, NFS4-8275-a
#[test]
fn what_cannot_be_set_is_refused() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (file, root) = (file(&server, &client, "f"), client.walk("").unwrap());
    let mask = Value::ModeUmask(ModeUmask { mode: 0o666, umask: 0o22 });
    let too_long = Time { seconds: 0, nanoseconds: 1_000_000_000 };
    let refused: &[(Value, Status)] = &[
        (Value::Owner(Principal::from("root@example")), Status::BADOWNER),
        (Value::Group(Principal::from("01")), Status::BADOWNER),
        (Value::Change(1), Status::INVAL),
        (Value::TimeCreate(time(1)), Status::INVAL),
        (Value::TimeModifySet(SetTime::Client(too_long)), Status::INVAL),
        (Value::Archive(true), Status::ATTRNOTSUPP),
        (Value::Size(u64::MAX), Status::FBIG),
        (mask, Status::INVAL),
    ];
    for (value, status) in refused {
        assert_eq!(set(&client, &file, std::slice::from_ref(value)), Err(*status), "{value:?}");
    }
    assert_eq!(set(&client, &root, &[Value::Size(1)]), Err(Status::WRONG_TYPE));
    let other = server.client_as("b", 2, 1000, 1);
    assert_eq!(set(&other, &file, &[Value::Mode(0)]), Err(Status::PERM));
    assert_eq!(value(&client, &file, Attribute::Mode), Value::Mode(0o644));
    let setup = Setup { read_only: true, ..Setup::default() };
    let server = TestServer::memory_with(setup);
    let client = server.client("a");
    let root = client.walk("").unwrap();
    assert_eq!(set(&client, &root, &[Value::Mode(0o700)]), Err(Status::ROFS));
}

/// proves: NFS4-8275-a
#[test]
fn a_mask_takes_bits_from_the_mode() {
    for server in servers() {
        let client = server.client("a");
        let make = |name: &str, values: &[Value]| {
            let attributes = FileAttributes::of(values);
            let args = ops::Create { kind: CreateKind::Directory, name: Name::from(name), attributes };
            client.status(vec![Args::PutRootFh, Args::Create(Box::new(args))])
        };
        let mask = Value::ModeUmask(ModeUmask { mode: 0o1777, umask: 0o7027 });
        assert_eq!(make("d", std::slice::from_ref(&mask)), Status::OK);
        assert_eq!(
            value(&client, &client.walk("d").unwrap(), Attribute::Mode),
            Value::Mode(0o1750),
            "permissions alone"
        );
        assert_eq!(make("e", &[mask, Value::Mode(0o700)]), Status::INVAL);
    }
}

/// proves: NFS4-8881-18.30-b
#[test]
fn a_size_is_changed_as_a_write_would_be() {
    let memory = Arc::new(MemoryFs::new(1 << 20, &env()));
    let server = TestServer::serving(memory.clone());
    let client = server.client("a");
    let file = file(&server, &client, "f");
    let size = |state| set_with(&client, &file, state, &[Value::Size(7)]).map_err(|(status, _)| status).err();
    assert_eq!(size(StateId::ANONYMOUS), None);
    assert_eq!(size(StateId::BYPASS), None);
    let nothing = StateId { sequence: 1, other: StateIdOther([3; 12]) };
    assert_eq!(size(nothing), Some(Status::BAD_STATEID));
    assert_eq!(size(StateId::CURRENT), Some(Status::BAD_STATEID), "there is none");
    assert_eq!(size(StateId::INVALID), Some(Status::BAD_STATEID));
    let mode = set_with(&client, &file, nothing, &[Value::Mode(0o600)]);
    assert_eq!(mode, Ok(Bitmap::of(&[Attribute::Mode])), "the stateid is for the size");
    let other = server.client("b");
    let owner = Holder::new(Client::V4(other.id.0), b"owner");
    let shared = server.shared();
    let found = wait(memory.lookup(Caller::root(), memory.root(), "f".into())).unwrap();
    let key = FileKey { file_system: memory.id(), file: found.file };
    let share = shared.claims.share(key, &owner, Access::READ, Deny::WRITE).unwrap();
    assert_eq!(size(StateId::ANONYMOUS), Some(Status::LOCKED));
    drop(share);
    assert_eq!(size(StateId::ANONYMOUS), None);
}

/// proves: NFS4-8881-18.30-b
#[test]
fn a_size_waits_until_others_have_reclaimed() {
    let server = TestServer::memory();
    let client = server.client("a");
    file(&server, &client, "f");
    let session = server.shared().state.session(client.session).unwrap();
    server.shared().state.recovery.record(session.client()).unwrap();
    drop((session, client));
    let server = server.restart();
    assert!(server.shared().state.recovery.is_grace());
    let client = server.client_in_grace("b");
    let file = client.walk("f").unwrap();
    assert_eq!(set(&client, &file, &[Value::Size(1)]), Err(Status::GRACE));
    assert!(set(&client, &file, &[Value::Mode(0o600)]).is_ok(), "only data is claimed");
    server.pass(1000);
    let client = server.client("c");
    assert!(set(&client, &file, &[Value::Size(1)]).is_ok());
}

/// Opens a file with this access.
fn open(client: &TestClient, file: &Handle, access: u32) -> StateId {
    let args = ops::Open {
        sequence: 0,
        access,
        deny: 0,
        owner: client.owner(&format!("for {access}")),
        how: ops::OpenHow::NoCreate,
        claim: ops::Claim::Handle,
    };
    only!(client.on(file, Args::Open(Box::new(args))), Open).unwrap().state
}

/// proves: NFS4-8881-18.30-b
#[test]
fn a_size_is_changed_by_what_is_open_for_writing() {
    for server in servers() {
        let client = server.client("a");
        let file = file(&server, &client, "f");
        assert!(set(&client, &file, &[Value::Owner(Principal::of_number(1000)), Value::Mode(0o600)]).is_ok());
        let user = server.client_as("b", 2, 1000, 1);
        user.reclaim_complete();
        let (reads, writes) = (open(&user, &file, 1), open(&user, &file, 2));
        assert!(set(&client, &file, &[Value::Owner(Principal::of_number(2000))]).is_ok());
        let size = |state| set_with(&user, &file, state, &[Value::Size(9)]).map_err(|(status, _)| status).err();
        assert_eq!(size(reads), Some(Status::OPENMODE));
        assert_eq!(size(StateId::ANONYMOUS), Some(Status::ACCESS), "the rights are gone");
        assert_eq!(size(writes), None, "what was opened stays open");
        assert_eq!(value(&client, &file, Attribute::Size), Value::Size(9));
        let other = client.walk("").unwrap();
        let elsewhere = set_with(&user, &other, writes, &[Value::Size(9)]).map_err(|(status, _)| status);
        assert_eq!(elsewhere, Err(Status::BAD_STATEID), "it is of another file");
    }
}

/// proves: NFS4-8881-18.31-a
#[test]
fn files_are_compared_octet_by_octet() {
    for server in servers() {
        let client = server.client("a");
        let file = file(&server, &client, "f");
        let both = |attributes: FileAttributes| {
            let args = ops::Verify { attributes };
            let verify = client.on(&file, Args::Verify(args.clone())).status();
            (verify, client.on(&file, Args::NVerify(args)).status())
        };
        let asked = [Attribute::Change, Attribute::Size, Attribute::Handle, Attribute::Owner];
        let same = told(&client, &file, &asked).unwrap();
        assert_eq!(both(same.clone()), (Status::OK, Status::SAME));
        assert_eq!(both(FileAttributes::of(&[Value::Size(0)])), (Status::OK, Status::SAME));
        assert_eq!(both(FileAttributes::of(&[Value::Size(1)])), (Status::NOT_SAME, Status::OK));
        let set = FileAttributes::of(&[Value::TimeModifySet(SetTime::Server)]);
        assert_eq!(both(set), (Status::INVAL, Status::INVAL));
        let error = FileAttributes::of(&[Value::ReadAttributesError(Status::OK)]);
        assert_eq!(both(error), (Status::INVAL, Status::INVAL));
        let archive = FileAttributes::of(&[Value::Archive(true)]);
        assert_eq!(both(archive), (Status::ATTRNOTSUPP, Status::ATTRNOTSUPP));
        let cut = FileAttributes { set: same.set, octets: same.octets.slice(4..) };
        assert_eq!(both(cut), (Status::BADXDR, Status::BADXDR));
        let unknown = FileAttributes { set: Bitmap::of_numbers([95]), octets: Default::default() };
        assert_eq!(both(unknown), (Status::ATTRNOTSUPP, Status::ATTRNOTSUPP));
    }
}

#[test]
fn version_3_and_4_tell_the_same_numbers() {
    let server = TestServer::directory();
    let client = server.client("a");
    let file = file(&server, &client, "f");
    let version_3 = server.version_3();
    let other: v3::Attributes = version_3.attributes(&version_3.walk("f").unwrap()).unwrap();
    assert_eq!(value(&client, &file, Attribute::FileId), Value::FileId(other.file_id));
    assert_eq!(value(&client, &file, Attribute::MountedOnFileId), Value::MountedOnFileId(other.file_id));
}

/// A client that reads the unit of clones believes that the server can clone.
///
/// proves: NFS4-7862-12.2.1-a
#[test]
fn the_unit_of_clone_is_told_with_clone_only() {
    for (server, is_memory) in [(TestServer::memory(), true), (TestServer::directory(), false)] {
        let client = server.client("a");
        let root = client.walk("").unwrap();
        let Value::SupportedAttributes(supported) = value(&client, &root, Attribute::SupportedAttributes) else {
            panic!()
        };
        assert!(supported.contains(Attribute::XattrSupport));
        let file = file(&server, &client, "f");
        let state = StateId::ANONYMOUS;
        let clone = ops::CloneRange { source_state: state, state, source_offset: 0, offset: 0, count: 0 };
        let put = Args::PutFh(ops::PutFh { file });
        let clones = client.status(vec![put, Args::SaveFh, Args::Clone(clone)]) == Status::OK;
        assert!(clones || !is_memory);
        assert_eq!(supported.contains(Attribute::CloneBlockSize), clones);
        let unit = told(&client, &root, &[Attribute::CloneBlockSize]).unwrap();
        let unit = unit.values().unwrap();
        assert!(if clones { unit == [Value::CloneBlockSize(4_096)] } else { unit.is_empty() }, "{unit:?}");
    }
}
