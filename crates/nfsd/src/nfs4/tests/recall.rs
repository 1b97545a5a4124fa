//! Which operations, in any version, recall a delegation, and which do not.

use super::{
    delegation::{delegated, give_back, reached, some_file, state_of},
    *,
};
use crate::{nfs4::testing::Setup, testing as rpc};
use rpcrdma_nfs::{attr::PosixAcl, nfsacl, v3, v4::OwnerName};
use std::time::Duration;

/// Waits until another thread has done something.
fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // The other thread still waits, and would keep the test from ending.
    eprintln!("it never came to that");
    std::process::abort();
}

/// Other clients that want a file.
struct Others<'a> {
    client: &'a TestClient,
    version_3: rpc::Client,
    file: Handle,
    root: v3::Handle,
}

impl Others<'_> {
    fn file_3(&self) -> v3::Handle {
        self.version_3.lookup(&self.root, "f").unwrap().file
    }

    fn set(&self, values: &[Value]) -> Status {
        let set = ops::SetAttr { state: StateId::ANONYMOUS, attributes: FileAttributes::of(values) };
        self.client.on(&self.file, Args::SetAttr(set)).status()
    }

    fn set_acl(&self) -> Result<(), v3::Status> {
        let list = nfsacl::List::of(&PosixAcl::of_mode(0o600), (0, 0)).unwrap();
        let lists = nfsacl::Lists::new(nfsacl::mask::ACCESS, list, nfsacl::List::default());
        rpc::plain(self.version_3.ask(nfsacl::SetAcl { file: self.file_3(), lists })).map(drop)
    }

    fn set_3(&self, new: v3::NewAttributes) -> Result<(), v3::Status> {
        self.version_3.set(&self.file_3(), new).map(drop)
    }
}

/// What another client does, and the status in version 4's words.
type Deed = fn(&Others<'_>) -> Status;

fn of_3<T>(result: Result<T, v3::Status>) -> Status {
    match result {
        Ok(_) => Status::OK,
        Err(v3::Status::JUKEBOX) => Status::DELAY,
        Err(other) => panic!("{other:?}"),
    }
}

fn in_root(client: &TestClient, op: Args) -> Status {
    client.status(vec![Args::PutRootFh, op])
}

/// Operations that read a file, or look at it as its holder may have changed it.
const READS: [(&str, Deed); 5] = [
    ("OPEN to read", |o| open(o.client, "f", "o", READ, 0).err().unwrap_or(Status::OK)),
    ("READ without an open", |o| o.client.read(&o.file, StateId::ANONYMOUS, 0, 1).err().unwrap_or(Status::OK)),
    ("READ past locks", |o| o.client.read(&o.file, StateId::BYPASS, 0, 1).err().unwrap_or(Status::OK)),
    ("READ of version 3", |o| of_3(o.version_3.read(&o.file_3(), 0, 1))),
    ("LOCKT", |o| {
        let owner = rpcrdma_nfs::v4::Owner { client: o.client.id, name: OwnerName::from("o") };
        let test = ops::LockT { kind: ops::LockKind::Read, offset: 0, length: 1, owner };
        o.client.on(&o.file, Args::LockT(test)).status()
    }),
];

/// Operations that change a file, its attributes or its names.
const CHANGES: [(&str, Deed); 19] = [
    ("OPEN to write", |o| open(o.client, "f", "o", WRITE, 0).err().unwrap_or(Status::OK)),
    ("OPEN that denies reading", |o| open(o.client, "f", "o", READ, 1).err().unwrap_or(Status::OK)),
    ("OPEN that cuts", |o| {
        let how = CreateHow::Unchecked(FileAttributes::of(&[Value::Size(0)]));
        let open = ops::Open { how: OpenHow::Create(how), ..to_open(o.client, "f", "o", READ, 0) };
        open_with(o.client, open).err().unwrap_or(Status::OK)
    }),
    ("WRITE without an open", |o| o.client.write(&o.file, StateId::ANONYMOUS, 0, b"x").err().unwrap_or(Status::OK)),
    ("SETATTR of the size", |o| o.set(&[Value::Size(3)])),
    ("SETATTR of the mode", |o| o.set(&[Value::Mode(0o600)])),
    ("SETATTR of the owner", |o| o.set(&[Value::Owner(rpcrdma_nfs::v4::Principal::from("7"))])),
    ("SETATTR of times", |o| o.set(&[Value::TimeModifySet(rpcrdma_nfs::v4::SetTime::Server)])),
    ("SETXATTR", |o| o.client.on(&o.file, set_xattr(ops::SetXattrOption::Either)).status()),
    ("REMOVEXATTR", |o| {
        let remove = Args::RemoveXattr(ops::RemoveXattr { name: Name::from("kept") });
        match o.client.on(&o.file, remove).status() {
            Status::NOXATTR => Status::OK,
            other => other,
        }
    }),
    ("REMOVE", |o| in_root(o.client, Args::Remove(ops::Remove { name: Name::from("f") }))),
    ("RENAME of it", |o| rename(o.client, "f", "h")),
    ("RENAME over it", |o| rename(o.client, "g", "f")),
    ("LINK", |o| {
        let link = Args::Link(ops::Link { name: Name::from("l") });
        o.client.status(vec![Args::PutFh(ops::PutFh { file: o.file.clone() }), Args::SaveFh, Args::PutRootFh, link])
    }),
    ("WRITE of version 3", |o| of_3(o.version_3.write(&o.file_3(), 0, "x"))),
    ("SETATTR of version 3", |o| of_3(o.set_3(v3::NewAttributes { mode: Some(0o600), ..Default::default() }))),
    ("SETACL beside version 3", |o| of_3(o.set_acl())),
    ("REMOVE of version 3", |o| of_3(o.version_3.remove(&o.root, "f"))),
    ("RENAME of version 3", |o| of_3(o.version_3.rename((&o.root, "g"), (&o.root, "f")))),
];

fn set_xattr(option: ops::SetXattrOption) -> Args {
    let (name, value) = (Name::from("set"), rpcrdma_nfs::v4::Opaque(b"value"[..].into()));
    Args::SetXattr(Box::new(ops::SetXattr { option, name, value }))
}

fn rename(client: &TestClient, from: &str, to: &str) -> Status {
    let rename = ops::Rename { from: Name::from(from), to: Name::from(to) };
    client.status(vec![Args::PutRootFh, Args::SaveFh, Args::Rename(rename)])
}

/// The file `f` is delegated to one client, and other clients do each of these deeds.
fn each(access: u32, deeds: &[(&str, Deed)], is_recalled: bool) {
    on_each_delegating(|server| {
        for (what, deed) in deeds {
            let (client, other) = (server.client(&format!("a {what}")), server.client(&format!("b {what}")));
            let holder = reached(server, &client);
            let file = some_file(&client, "f");
            some_file(&client, "g");
            let (state, delegation) = delegated(&client, "f", access);
            assert_eq!(close(&client, &file, state), Status::OK);
            let version_3 = server.version_3();
            let root = version_3.root();
            let others = Others { client: &other, version_3, file: file.clone(), root };
            let expected = if is_recalled { Status::DELAY } else { Status::OK };
            assert_eq!(deed(&others), expected, "{what}");
            server.drive();
            let recalls = holder.recalls();
            assert_eq!(recalls.len(), usize::from(is_recalled), "{what}");
            if is_recalled {
                // NFS4-8881-20.2-a
                assert_eq!((recalls[0].0.state, &recalls[0].0.file), (delegation, &file), "{what}");
                assert_eq!(deed(&others), Status::DELAY, "{what}: it waits as long as it has to");
                server.drive();
                assert_eq!(holder.recalls().len(), 1, "{what}: and the holder was told");
                assert_eq!(give_back(&client, &file, delegation), Status::OK);
                assert_eq!(deed(&others), Status::OK, "{what}: it was returned");
            } else {
                assert_eq!(give_back(&client, &file, delegation), Status::OK);
            }
            for name in ["f", "g", "h", "l"] {
                in_root(&other, Args::Remove(ops::Remove { name: Name::from(name) }));
            }
        }
    });
}

/// proves: NFS4-8881-10.4.4-a, NFS4-8881-10.4-a, NFS4-8881-20.2-a
#[test]
fn what_changes_a_file_calls_back_what_is_delegated_for_reading() {
    each(READ, &CHANGES, true);
}

/// proves: NFS4-8881-10.4-a
#[test]
fn what_reads_a_file_does_not() {
    each(READ, &READS, false);
}

/// proves: NFS4-8881-10.4.4-a, NFS4-8881-10.4-a, NFS4-8881-20.2-a
#[test]
fn everything_calls_back_what_is_delegated_for_writing() {
    each(BOTH, &READS, true);
    each(BOTH, &CHANGES, true);
}

/// proves: NFS4-8881-10.4-d
#[test]
fn the_holders_own_deeds_call_nothing_back() {
    for access in [READ, BOTH] {
        for (what, deed) in READS.iter().chain(&CHANGES).filter(|(what, _)| !what.contains("version 3")) {
            let server = TestServer::memory();
            let client = server.client("a");
            let holder = reached(&server, &client);
            let file = some_file(&client, "f");
            some_file(&client, "g");
            let (state, delegation) = delegated(&client, "f", access);
            close(&client, &file, state);
            let version_3 = server.version_3();
            let root = version_3.root();
            let others = Others { client: &client, version_3, file: file.clone(), root };
            assert_eq!(deed(&others), Status::OK, "{what}");
            server.drive();
            assert_eq!(holder.calls(), 0, "{what}");
            // A file without names does not exist for an operation, and its delegation goes with its holder's open.
            let expected = if ["REMOVE", "RENAME over it"].contains(what) { Status::STALE } else { Status::OK };
            let returned = give_back(&client, &file, delegation);
            assert!([expected, Status::OK].contains(&returned), "{what} {returned:?}");
        }
    }
}

#[test]
fn all_who_read_are_called_when_somebody_writes() {
    let server = TestServer::memory();
    let readers: Vec<_> = (0..5).map(|number| server.client(&number.to_string())).collect();
    let writer = server.client("writer");
    let file = some_file(&writer, "f");
    let holders: Vec<_> = readers.iter().map(|reader| reached(&server, reader)).collect();
    let delegations: Vec<_> = readers.iter().map(|reader| delegated(reader, "f", READ).1).collect();
    assert_eq!(open(&writer, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    server.drive();
    assert!(holders.iter().all(|holder| holder.recalls().len() == 1));
    for (reader, delegation) in readers.iter().zip(delegations) {
        assert_eq!(open(&writer, "f", "o", WRITE, 0).err(), Some(Status::DELAY), "not before the last has returned it");
        assert_eq!(give_back(reader, &file, delegation), Status::OK);
    }
    assert!(open(&writer, "f", "o", WRITE, 0).is_ok());
    assert_eq!(server.nfsd.version_4_counts().unwrap().recalls, 5);
}

/// proves: NFS4-8881-2.10.6.3-a
#[test]
fn a_recall_names_the_call_that_brought_the_delegation_while_its_answer_may_be_under_way() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    let holder = reached(&server, &client);
    some_file(&client, "f");
    some_file(&client, "g");
    // In a slot that is not used again.
    let open_by = |slot, name| {
        let open = Args::Open(Box::new(to_open(&client, name, "o", READ, 0)));
        let results = client.send(vec![client.sequence(slot, true), Args::PutRootFh, open]).results;
        let Some(Outcome::Open(Ok(opened))) = results.last() else { panic!("{results:?}") };
        state_of(&opened.delegation).unwrap()
    };
    open_by(3, "f");
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    server.drive();
    let (_, referring) = holder.recalls().pop().unwrap();
    let [of_session] = &referring[..] else { panic!("{referring:?}") };
    assert_eq!(of_session.session, client.session);
    let calls: Vec<_> = of_session.calls.iter().map(|call| (call.slot, call.sequence)).collect();
    assert_eq!(calls, [(3, 1)]);
    open_by(4, "g");
    client.send(vec![client.sequence(4, false)]);
    assert_eq!(open(&other, "g", "o", WRITE, 0).err(), Some(Status::DELAY));
    server.drive();
    assert_eq!(holder.recalls().pop().unwrap().1, [], "it has seen the answer: it has used the slot again");
}

#[test]
fn who_wants_a_file_waits_a_moment_for_its_return() {
    let wait = |version_4: crate::Version4| version_4.with_recall_wait(Duration::from_secs(1));
    let server = TestServer::memory_with(Setup { version_4: wait, ..Setup::default() });
    let (client, other) = (server.client("a"), server.client("b"));
    let holder = reached(&server, &client);
    let file = some_file(&client, "f");
    let (_, delegation) = delegated(&client, "f", BOTH);
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| open(&other, "f", "o", READ, 0).map(drop));
        until(|| holder.calls() == 1);
        assert!(!opened.is_finished());
        assert_eq!(give_back(&client, &file, delegation), Status::OK);
        assert_eq!(opened.join().unwrap(), Ok(()), "it has seen nothing of it");
    });
    // It waits no longer than that.
    let file = some_file(&client, "g");
    let (_, delegation) = delegated(&client, "g", BOTH);
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| open(&other, "g", "o", READ, 0).map(drop));
        until(|| holder.calls() == 2);
        server.clock.pass(Duration::from_millis(999));
        std::thread::sleep(Duration::from_millis(5));
        assert!(!opened.is_finished());
        server.clock.pass(Duration::from_millis(1));
        assert_eq!(opened.join().unwrap(), Err(Status::DELAY));
    });
    give_back(&client, &file, delegation);
}

/// proves: NFS4-HOST-d
#[test]
fn an_open_on_the_host_calls_back_and_waits() {
    let server = TestServer::directory();
    let (client, holder) = {
        let client = server.client("a");
        let holder = reached(&server, &client);
        (client, holder)
    };
    let file = some_file(&client, "f");
    let (state, delegation) = delegated(&client, "f", BOTH);
    std::thread::scope(|scope| {
        let path = server.served().join("f");
        let read = scope.spawn(move || std::fs::read(path));
        until(|| {
            server.tidy();
            server.drive();
            holder.calls() == 1
        });
        assert!(!read.is_finished());
        assert_eq!(holder.recalls()[0].0.state, delegation);
        assert_eq!(client.write(&file, state, 0, b"CONTENT"), Ok(7), "its own open goes on");
        assert_eq!(give_back(&client, &file, delegation), Status::OK);
        assert_eq!(read.join().unwrap().unwrap(), b"CONTENT");
    });
    assert_eq!(server.nfsd.version_4_counts().unwrap().recalls, 1);
}
