//! Which opens OPEN delegates and which not, and what a delegation permits.

use super::*;
pub(super) use crate::nfs4::testing::holder::reached;
use crate::nfs4::testing::{Setup, holder::Answers};
use rpcrdma_nfs::v4::{
    Attribute, Bitmap, StateIdOther,
    ops::{Delegation, DelegationKind, WhyNoDelegation, share},
};

/// A file of the root that no client has open.
pub(super) fn some_file(client: &TestClient, name: &str) -> Handle {
    let how = OpenHow::Create(CreateHow::Guarded(FileAttributes::of(&[Value::Mode(0o644)])));
    let open = ops::Open { how, ..to_open(client, name, "maker", BOTH | share::WANT_NONE, 0) };
    let (file, ops::OpenOk { state, .. }) = open_with(client, open).unwrap();
    client.write(&file, state, 0, b"content").unwrap();
    // The server keeps a file with uncommitted data open for writing, and such a file cannot be leased.
    let commit = Args::Commit(ops::Commit { offset: 0, count: 0 });
    assert_eq!(client.on(&file, commit).status(), Status::OK);
    assert_eq!(close(client, &file, state), Status::OK);
    file
}

pub(super) fn state_of(delegation: &Delegation) -> Option<StateId> {
    match delegation {
        Delegation::Read(delegation) => Some(delegation.state),
        Delegation::Write(delegation) => Some(delegation.state),
        _ => None,
    }
}

/// Opens a file with a wish.
pub(super) fn wish(client: &TestClient, name: &str, access: u32) -> ops::OpenOk {
    open_with(client, to_open(client, name, "o", access, 0)).unwrap().1
}

/// Opens a file that then is delegated.
pub(super) fn delegated(client: &TestClient, name: &str, access: u32) -> (StateId, StateId) {
    let opened = wish(client, name, access);
    let delegation = state_of(&opened.delegation).unwrap_or_else(|| panic!("{:?}", opened.delegation));
    (opened.state, delegation)
}

pub(super) fn give_back(client: &TestClient, file: &Handle, state: StateId) -> Status {
    client.on(file, Args::DelegReturn(ops::DelegReturn { state })).status()
}

fn none(opened: &ops::OpenOk) -> WhyNoDelegation {
    match &opened.delegation {
        Delegation::NoneExtended(why) => why.clone(),
        other => panic!("{other:?}"),
    }
}

/// proves: NFS4-8881-10.4-a
#[test]
fn a_file_is_delegated_as_it_is_opened() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    reached(&server, &client);
    reached(&server, &other);
    some_file(&client, "f");
    for (access, writes) in [
        (READ, false),
        (READ | share::WANT_READ, false),
        (READ | share::WANT_ANY, false),
        (READ | share::WANT_WRITE, false),
        (BOTH, true),
        (BOTH | share::WANT_WRITE, true),
        (BOTH | share::WANT_ANY, true),
    ] {
        let (handle, opened) = open_with(&client, to_open(&client, "f", "o", access, 0)).unwrap();
        let is_write = matches!(opened.delegation, Delegation::Write(_));
        assert_eq!((state_of(&opened.delegation).is_some(), is_write), (true, writes), "{access:#x}");
        assert_eq!(server.nfsd.version_4_counts().unwrap().delegations, 1);
        assert_eq!(give_back(&client, &handle, state_of(&opened.delegation).unwrap()), Status::OK);
        assert_eq!(close(&client, &handle, opened.state), Status::OK);
    }
    assert!(server.shared().delegations.is_empty());
    // Several clients may read, and each has its own delegation.
    let (_, first) = delegated(&client, "f", READ);
    let (_, second) = delegated(&other, "f", READ);
    assert_ne!(first.other, second.other);
}

/// proves: NFS4-8881-20.11-a
#[test]
fn who_locks_a_file_alone_is_told_of_no_locks() {
    let server = TestServer::memory();
    let client = server.client("a");
    reached(&server, &client);
    let file = some_file(&client, "f");
    for (access, notice) in [(READ, ops::open_result::MAY_NOTIFY_LOCK), (BOTH, 0)] {
        let opened = wish(&client, "f", access);
        let delegation = state_of(&opened.delegation).unwrap();
        assert_eq!(opened.flags & ops::open_result::MAY_NOTIFY_LOCK, notice);
        let again = wish(&client, "f", access);
        assert_eq!(again.flags & ops::open_result::MAY_NOTIFY_LOCK, notice, "what is opened beside the delegation");
        assert_eq!(give_back(&client, &file, delegation), Status::OK);
        assert_eq!(close(&client, &file, again.state), Status::OK);
    }
}

/// proves: NFS4-8881-10.4-b, NFS4-8881-18.16-i
#[test]
fn nothing_is_delegated_that_cannot_be_called_back_or_is_not_wanted() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    some_file(&client, "f");
    assert_eq!(wish(&client, "f", READ).delegation, Delegation::None, "nobody has asked why");
    assert_eq!(none(&wish(&client, "f", READ | share::WANT_ANY)), WhyNoDelegation::Resource(false), "no way to call");
    let holder = reached(&server, &client);
    holder.lose(&server);
    assert_eq!(none(&wish(&client, "f", READ | share::WANT_ANY)), WhyNoDelegation::Resource(false), "nor now");
    reached(&server, &client);
    assert_eq!(none(&wish(&client, "f", READ | share::WANT_NONE)), WhyNoDelegation::NotWanted);
    assert_eq!(none(&wish(&client, "f", READ | share::WANT_CANCEL)), WhyNoDelegation::Cancelled);
    assert_eq!(open_with(&client, to_open(&client, "f", "o", READ | 0x600, 0)).err(), Some(Status::INVAL));
    assert_eq!(none(&wish(&client, "f", WRITE | share::WANT_WRITE)), WhyNoDelegation::Resource(false));
    // Another client has it open.
    let (file, state) = open(&other, "f", "o", READ, 0).unwrap();
    assert_eq!(none(&wish(&client, "f", BOTH | share::WANT_WRITE)), WhyNoDelegation::Contention(false));
    let (_, of_both) = open(&other, "f", "p", WRITE, 0).unwrap();
    assert_eq!(none(&wish(&client, "f", READ | share::WANT_READ)), WhyNoDelegation::Contention(false));
    close(&other, &file, of_both);
    let (_, delegation) = delegated(&client, "f", READ | share::WANT_READ);
    // The client already has one.
    assert_eq!(none(&wish(&client, "f", READ | share::WANT_READ)), WhyNoDelegation::Resource(false));
    close(&other, &file, state);
    assert_eq!(none(&wish(&client, "f", BOTH | share::WANT_WRITE)), WhyNoDelegation::NotSupportedUpgrade);
    give_back(&client, &file, delegation);
}

#[test]
fn a_server_may_delegate_nothing_at_all() {
    let setup = Setup { version_4: |version_4| version_4.with_delegations(false), ..Setup::default() };
    let server = TestServer::memory_with(setup);
    let client = server.client("a");
    reached(&server, &client);
    some_file(&client, "f");
    assert_eq!(none(&wish(&client, "f", READ | share::WANT_ANY)), WhyNoDelegation::Resource(false));
}

/// proves: NFS4-8881-10.4-c
#[test]
fn what_others_have_wanted_is_not_delegated_for_a_lease() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    reached(&server, &client);
    let file = some_file(&client, "f");
    let (_, delegation) = delegated(&client, "f", READ);
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    assert_eq!(give_back(&client, &file, delegation), Status::OK);
    assert_eq!(none(&wish(&client, "f", READ | share::WANT_READ)), WhyNoDelegation::Contention(false));
    for _ in 0..2 {
        server.pass(60);
        client.walk("").unwrap();
        other.walk("").unwrap();
    }
    server.pass(60);
    delegated(&client, "f", READ | share::WANT_READ);
}

/// proves: NFS4-8881-10.4-d
#[test]
fn a_delegation_is_good_for_what_it_says_and_for_its_client() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    reached(&server, &client);
    let file = some_file(&client, "f");
    let (_, reads) = delegated(&client, "f", READ);
    assert_eq!(client.read(&file, reads, 0, 7).unwrap(), b"content");
    assert_eq!(client.write(&file, reads, 0, b"x").err(), Some(Status::OPENMODE));
    assert_eq!(other.read(&file, reads, 0, 7).err(), Some(Status::BAD_STATEID));
    assert_eq!(give_back(&other, &file, reads), Status::BAD_STATEID);
    let elsewhere = some_file(&client, "g");
    assert_eq!(give_back(&client, &elsewhere, reads), Status::BAD_STATEID, "a delegation of another file");
    assert_eq!(give_back(&client, &file, StateId { sequence: 7, ..reads }), Status::BAD_STATEID);
    assert_eq!(give_back(&client, &file, reads), Status::OK);
    assert_eq!(give_back(&client, &file, reads), Status::BAD_STATEID);
    let (state, writes) = delegated(&client, "g", BOTH);
    assert_eq!(client.write(&elsewhere, writes, 0, b"change").unwrap(), 6);
    assert_eq!(close(&client, &elsewhere, writes), Status::BAD_STATEID, "it is no open");
    // The open may end before the delegation.
    assert_eq!(close(&client, &elsewhere, state), Status::OK);
    assert_eq!(client.read(&elsewhere, writes, 0, 6).unwrap(), b"change");
    let free = Args::FreeStateId(ops::FreeStateId { state: writes });
    assert_eq!(client.status(vec![free]), Status::LOCKS_HELD);
    assert_eq!(give_back(&client, &elsewhere, writes), Status::OK);
}

/// proves: NFS4-8881-10.2.1-b, NFS4-8881-18.16-h
#[test]
fn who_has_a_delegation_opens_by_it_though_it_is_being_called_back() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    reached(&server, &client);
    let file = some_file(&client, "f");
    some_file(&client, "g");
    let (state, delegation) = delegated(&client, "f", BOTH);
    close(&client, &file, state);
    assert_eq!(open(&other, "f", "o", READ, 0).err(), Some(Status::DELAY));
    let by_name = |name: &str, delegation, access| {
        let claim = Claim::DelegateCurrent(ops::DelegateCurrent { delegation, name: Name::from(name) });
        open_with(&client, ops::Open { claim, ..to_open(&client, name, "p", access, 0) })
    };
    let (_, opened) = by_name("f", delegation, BOTH).unwrap();
    assert_eq!(opened.delegation, Delegation::None);
    assert_eq!(by_name("g", delegation, READ).err(), Some(Status::BAD_STATEID), "of another file");
    let unknown = StateId { sequence: 1, other: StateIdOther([7; 12]) };
    assert_eq!(by_name("f", unknown, READ).err(), Some(Status::BAD_STATEID));
    let claim = Claim::DelegateCurrentHandle(delegation);
    let by_handle = Args::Open(Box::new(ops::Open { claim, ..to_open(&client, "", "q", READ, 0) }));
    let opened_too = only!(client.on(&file, by_handle), Open).unwrap();
    assert_eq!(give_back(&client, &file, delegation), Status::OK);
    assert_eq!(by_name("f", delegation, READ).err(), Some(Status::BAD_STATEID), "returned");
    assert!(open(&other, "f", "o", READ, 0).is_ok());
    assert_eq!(client.read(&file, opened_too.state, 0, 7).unwrap(), b"content", "what was opened stays open");
    assert_eq!(close(&client, &file, opened.state), Status::OK);
    // A delegation for reading permits no open for writing.
    let (_, reads) = delegated(&client, "g", READ);
    assert_eq!(by_name("g", reads, WRITE).err(), Some(Status::OPENMODE));
}

/// proves: NFS4-8881-10.2.1-a
#[test]
fn after_a_restart_a_client_gets_back_what_it_had_and_has_to_return_it() {
    let server = TestServer::memory();
    let client = server.client("a");
    reached(&server, &client);
    let file = some_file(&client, "f");
    delegated(&client, "f", BOTH);
    drop(client);
    let server = server.restart();
    let (client, other) = (server.client_in_grace("a"), server.client_in_grace("b"));
    reached(&server, &client);
    let again = |had| {
        let open = ops::Open { claim: Claim::Previous(had), ..to_open(&client, "", "o", BOTH, 0) };
        only!(client.on(&file, Args::Open(Box::new(open))), Open).unwrap()
    };
    assert_eq!(
        again(DelegationKind::None).delegation,
        Delegation::None,
        "nothing is delegated anew in the grace period"
    );
    let opened = again(DelegationKind::Write);
    let Delegation::Write(delegation) = &opened.delegation else { panic!("{opened:?}") };
    assert!(delegation.recalled, "it is to come back");
    let claim = Claim::DelegateCurrentHandle(delegation.state);
    let more = Args::Open(Box::new(ops::Open { claim, ..to_open(&client, "", "p", BOTH, 0) }));
    assert_eq!(client.on(&file, more).status(), Status::OK, "in the grace period too");
    client.reclaim_complete();
    other.reclaim_complete();
    server.pass(1);
    assert_eq!(open(&other, "f", "o", READ, 0).err(), Some(Status::DELAY));
    assert_eq!(give_back(&client, &file, delegation.state), Status::OK);
    assert!(open(&other, "f", "o", READ, 0).is_ok());
}

/// proves: NFS4-8881-10.2.1-a
#[test]
fn what_was_got_back_after_a_restart_and_is_not_returned_is_taken_away() {
    let server = TestServer::memory();
    let client = server.client("a");
    let file = some_file(&client, "f");
    drop(client);
    let server = server.restart();
    let client = server.client_in_grace("a");
    let open = ops::Open { claim: Claim::Previous(DelegationKind::Write), ..to_open(&client, "", "o", BOTH, 0) };
    let opened = only!(client.on(&file, Args::Open(Box::new(open))), Open).unwrap();
    let delegation = state_of(&opened.delegation).expect("nobody needs to be called for it");
    client.reclaim_complete();
    for _ in 0..3 {
        server.pass(30);
        client.walk("").unwrap();
    }
    assert_eq!(client.read(&file, delegation, 0, 1).err(), Some(Status::DELEG_REVOKED));
}

/// proves: NFS4-8881-10.4-e
#[test]
fn there_are_delegations_up_to_the_limit_and_then_opens_alone() {
    let setup = Setup { version_4: |version_4| version_4.with_held(2, 3), ..Setup::default() };
    let server = TestServer::memory_with(setup);
    let clients = [server.client("a"), server.client("b")];
    for client in &clients {
        reached(&server, client);
    }
    for name in ["1", "2", "3"] {
        some_file(&clients[0], name);
    }
    let got = |client: &TestClient, name: &str| {
        let (file, opened) = open_with(client, to_open(client, name, "o", READ | share::WANT_ANY, 0)).unwrap();
        close(client, &file, opened.state);
        opened.delegation
    };
    let first: Vec<_> = ["1", "2", "3"].map(|name| got(&clients[0], name)).into();
    assert_eq!(first.iter().filter_map(state_of).count(), 2, "of a client: {first:?}");
    assert_eq!(first[2], Delegation::NoneExtended(WhyNoDelegation::Resource(false)));
    let second: Vec<_> = ["1", "2"].map(|name| got(&clients[1], name)).into();
    assert_eq!(second.iter().filter_map(state_of).count(), 1, "of all: {second:?}");
    assert_eq!(server.shared().claims.delegations(), 3, "nothing is left in the table of one that was refused");
}

#[test]
fn a_client_that_is_no_more_holds_nothing() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    reached(&server, &client);
    some_file(&client, "f");
    delegated(&client, "f", BOTH);
    // The client has started again.
    let again = server.client_as("a", 2, 0, 2);
    assert_ne!(again.id, client.id);
    assert!(open(&other, "f", "o", BOTH, 0).is_ok());
    assert!(server.shared().delegations.is_empty());
    assert_eq!(server.shared().claims.delegations(), 0);
}

/// proves: NFS4-8881-10.4.3-a, NFS4-8881-10.4.3-b
#[test]
fn the_holder_is_asked_what_the_file_is() {
    let wait = |version_4: crate::Version4| version_4.with_recall_wait(std::time::Duration::from_secs(1));
    let server = TestServer::memory_with(Setup { version_4: wait, ..Setup::default() });
    let (client, other) = (server.client("a"), server.client("b"));
    let holder = reached(&server, &client);
    let file = some_file(&client, "f");
    let (_, delegation) = delegated(&client, "f", BOTH);
    let asked = Bitmap::of(&[Attribute::Change, Attribute::Size, Attribute::TimeModify]);
    let told = |of: &TestClient| {
        let got = only!(of.on(&file, Args::GetAttr(ops::GetAttr { asked })), GetAttr).unwrap();
        let values = got.attributes.values().unwrap();
        match values[..] {
            [Value::Change(change), Value::Size(size), Value::TimeModify(_)] => (change, size),
            ref other => panic!("{other:?}"),
        }
    };
    let (change, size) = told(&client);
    assert_eq!((size, holder.calls()), (7, 0), "it knows itself");
    holder.answer(Answers::Attributes { change, size });
    assert_eq!(told(&other), (change, 7), "it has changed nothing");
    assert_eq!(holder.calls(), 1);
    // The server does not ask the holder about other attributes.
    let owner = Bitmap::of(&[Attribute::Mode]);
    assert_eq!(other.on(&file, Args::GetAttr(ops::GetAttr { asked: owner })).status(), Status::OK);
    assert_eq!(holder.calls(), 1);
    holder.answer(Answers::Attributes { change: change + 1, size: 5 });
    let mut last = change;
    for _ in 0..3 {
        let (now, size) = told(&other);
        assert!(now > last, "{now} {last}");
        assert_eq!(size, 5);
        last = now;
    }
    holder.answer(Answers::Attributes { change, size: 7 });
    assert!(told(&other).0 > last, "once it has changed the file it may always have done so again");
    assert_eq!(server.nfsd.version_4_counts().unwrap().recalls, 0);
    assert_eq!(give_back(&client, &file, delegation), Status::OK);
    let after = told(&other);
    assert!(after.0 > change, "it does not go back");
}

/// proves: NFS4-8881-10.4.3-c
#[test]
fn a_holder_that_does_not_say_what_the_file_is_has_to_return_it() {
    let bad = [
        Answers::Lost,
        Answers::Refused(Status::BADSESSION),
        Answers::Status(Status::BADHANDLE),
        Answers::Ok,
        Answers::Attributes { change: 1, size: u64::MAX },
        Answers::Nothing,
    ];
    for answer in bad {
        let server = TestServer::memory();
        let (client, other) = (server.client("a"), server.client("b"));
        let holder = reached(&server, &client);
        let file = some_file(&client, "f");
        let (_, delegation) = delegated(&client, "f", BOTH);
        holder.answer(answer.clone());
        let asked = Bitmap::of(&[Attribute::Size]);
        let get = || other.on(&file, Args::GetAttr(ops::GetAttr { asked })).status();
        assert_eq!(get(), Status::DELAY, "{answer:?}");
        assert_eq!(server.nfsd.version_4_counts().unwrap().recalls, 1, "{answer:?}");
        assert_eq!(give_back(&client, &file, delegation), Status::OK);
        assert_eq!(get(), Status::OK);
    }
}
