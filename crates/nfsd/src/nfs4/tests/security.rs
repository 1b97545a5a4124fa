//! Flavours of exports, and operations that are reserved for the machine.

use super::super::testing::{TestClient, only};
use crate::{
    Caller, Export, FileSystem, Identities, MemoryFs, Nfsd, Queue, Securities, Security, Squash, StateDirectory,
    Version4, Via,
    testing::{self, Believed, SECRET, env},
};
use rpcrdma_env::{Env, SeededRandom};
use rpcrdma_nfs::v4::{
    Args, Attribute, Bitmap, ClientName, FileAttributes, Handle, List, Name, Op, Outcome, StateId, Status, Value,
    Verifier,
    ops::{self, Claim, Flavour, GssFlavour},
};
use rpcrdma_oncrpc::gss::GssService;
use std::sync::Arc;

const WEAK: (GssService, &str) = (GssService::Authentication, "nfs/client@REALM");
const SIGNED: (GssService, &str) = (GssService::Integrity, "nfs/client@REALM");
const OTHERS: (GssService, &str) = (GssService::Privacy, "mallory@REALM");

fn export(path: &str, securities: &[Security]) -> Export {
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    // Each file system has a number of its own.
    let env = Env { random: Arc::new(SeededRandom::new(path.len() as u64)), ..env() };
    let tree = MemoryFs::new(1 << 20, &env);
    let all = rpcrdma_nfs::attr::NewAttributes { mode: Some(0o777), ..Default::default() };
    let set = tree.set_attributes(Via::caller(Caller::root(), tree.root()), all, None);
    assert!(testing::wait(set).is_ok());
    Export::new(path, Arc::new(tree))
        .with_identities(identities)
        .with_securities(Securities::new(securities.iter().copied()))
}

/// `/s` takes AUTH_SYS, `/kp` Kerberos with privacy, `/kii` Kerberos with integrity.
fn server() -> Nfsd {
    let (env, scratch) = (env(), tempfile::tempdir().unwrap());
    let state = StateDirectory::open(scratch.path().join("state"), &*env.random).unwrap();
    let version_4 = Version4::new(&state, Queue::in_place());
    let exports =
        vec![export("/s", &[Security::Sys]), export("/kp", &[Security::Krb5p]), export("/kii", &[Security::Krb5i])];
    let nfsd = Nfsd::new(exports, SECRET, &env).unwrap().with_flavour(Arc::new(Believed), &env);
    nfsd.with_version_4(version_4, true, &env).unwrap()
}

fn rpc(server: &Nfsd, connection: u64, proven: Option<(GssService, &'static str)>) -> testing::Client {
    let mut rpc = testing::Client::of(server);
    (rpc.connection, rpc.proven) = (connection, proven);
    rpc
}

/// Clients of the same server: without Kerberos, with integrity, with privacy.
fn clients(server: &Nfsd, minor: u32) -> [TestClient; 3] {
    let privacy = (GssService::Privacy, "alice@REALM");
    [(1, None), (2, Some(SIGNED)), (3, Some(privacy))].map(|(connection, proven)| {
        TestClient::new(rpc(server, connection, proven), &format!("c{connection}"), minor, 1)
    })
}

fn put(file: &Handle) -> Args {
    Args::PutFh(ops::PutFh { file: file.clone() })
}

fn lookup(name: &str) -> Args {
    Args::Lookup(ops::Lookup { name: Name::from(name) })
}

fn get() -> Args {
    Args::GetAttr(ops::GetAttr { asked: Bitmap::of(&[Attribute::FileId]) })
}

fn sec_info(name: &str) -> Args {
    Args::SecInfo(ops::SecInfo { name: Name::from(name) })
}

fn no_name(style: ops::SecInfoStyle) -> Args {
    Args::SecInfoNoName(ops::SecInfoNoName { style })
}

fn open_by(client: &TestClient, claim: Claim) -> Args {
    let (owner, how) = (client.owner("o"), ops::OpenHow::NoCreate);
    Args::Open(Box::new(ops::Open { sequence: 0, access: 1, deny: 0, owner, how, claim }))
}

/// The operation that failed, and its status.
fn failed(outcomes: &[Outcome<rpcrdma_xdr::ItemData>]) -> (Option<Op>, Status) {
    outcomes.last().map(|last| (last.op(), last.status())).unwrap()
}

/// proves: NFS4-8881-2.6.3-a, NFS4-8881-2.6.3-b, NFS4-8881-2.6.3-c
#[test]
fn a_file_with_another_flavour_is_not_reached() {
    let server = server();
    let [sys, _, private] = clients(&server, 2);
    let (open, closed) = (sys.walk("s").unwrap(), private.walk("kp").unwrap());
    let wrong = |ops: Vec<Args>, expected: Option<Op>| {
        let told = failed(&sys.call(ops.clone()));
        match expected {
            Some(op) => assert_eq!(told, (Some(op), Status::WRONGSEC), "{ops:?}"),
            None => assert_ne!(told.1, Status::WRONGSEC, "{ops:?}"),
        }
    };
    // The operation that leads to the file returns it.
    wrong(vec![Args::PutRootFh, lookup("kp")], Some(Op::Lookup));
    wrong(vec![put(&closed), get()], Some(Op::PutFh));
    wrong(vec![put(&closed), Args::GetFh], Some(Op::PutFh));
    wrong(vec![put(&closed), Args::SaveFh, get()], Some(Op::PutFh));
    wrong(vec![put(&closed), Args::SaveFh, put(&open), Args::RestoreFh, get()], Some(Op::RestoreFh));
    wrong(vec![put(&closed), lookup("x")], None);
    wrong(vec![put(&closed), open_by(&sys, Claim::Null(Name::from("x")))], Some(Op::Open));
    wrong(vec![put(&closed), open_by(&sys, Claim::Handle)], Some(Op::PutFh));
    let read = Args::Read(ops::Read { state: StateId::ANONYMOUS, offset: 0, count: 1 });
    wrong(vec![put(&closed), read], Some(Op::PutFh));
    // An operation that only passes the file does not fail.
    wrong(vec![put(&closed)], None);
    wrong(vec![put(&closed), Args::SaveFh], None);
    wrong(vec![put(&closed), put(&open), get()], None);
    wrong(vec![put(&closed), Args::LookupP], None);
    wrong(vec![put(&closed), Args::LookupP, get()], None);
    // A directory above the exports takes every flavour of the exports below it.
    wrong(vec![Args::PutRootFh, get()], None);
    assert_eq!(private.status(vec![Args::PutRootFh, get()]), Status::OK);
    assert_eq!(private.walk("s").err(), Some(Status::WRONGSEC));
    assert_eq!(private.status(vec![put(&closed), get()]), Status::OK);
}

/// proves: NFS4-8881-2.6.3-d
#[test]
fn no_other_operation_says_so() {
    let server = server();
    let [sys, signed, private] = clients(&server, 2);
    let (open, closed) = (sys.walk("s").unwrap(), private.walk("kp").unwrap());
    let make = |client: &TestClient, at: &Handle| {
        let (kind, attributes) = (ops::CreateKind::Directory, FileAttributes::default());
        client.on(at, Args::Create(Box::new(ops::Create { kind, name: Name::from("d"), attributes }))).status()
    };
    assert_eq!((make(&sys, &open), make(&private, &closed)), (Status::OK, Status::OK));
    let rename = Args::Rename(ops::Rename { from: Name::from("d"), to: Name::from("e") });
    let link = Args::Link(ops::Link { name: Name::from("e") });
    for op in [rename, link] {
        let across = vec![put(&closed), Args::SaveFh, put(&open), op];
        assert_eq!(sys.status(across), Status::XDEV);
    }
    let list = |asked: &[Attribute]| {
        Args::ReadDir(ops::ReadDir {
            cookie: 0,
            verifier: Verifier::default(),
            directory_count: 0,
            max_count: 8_192,
            asked: Bitmap::of(asked),
        })
    };
    let told = sys.last(vec![Args::PutRootFh, list(&[Attribute::FileId, Attribute::ReadAttributesError])]);
    let entries = only!(told, ReadDir).unwrap().entries;
    let errors: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                entry.name.0.clone(),
                entry.attributes.values().unwrap().contains(&Value::ReadAttributesError(Status::WRONGSEC)),
            )
        })
        .collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors.iter().all(|(name, is_wrong)| *is_wrong == name.starts_with(b"k")), "{errors:?}");
    assert_eq!(sys.status(vec![Args::PutRootFh, list(&[Attribute::FileId])]), Status::ACCESS);
    // Clients may ask this in any flavour, before they know the flavour.
    let gss = |service| {
        let oid = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
        Flavour::Gss(GssFlavour { oid: rpcrdma_nfs::v4::Opaque(oid.to_vec().into()), quality: 0, service })
    };
    let privacy = || gss(ops::GssService::Privacy);
    for client in [&sys, &signed, &private] {
        let asked = |ops: Vec<Args>| match client.last(ops) {
            Outcome::SecInfo(told) => told.unwrap().flavours,
            Outcome::SecInfoNoName(told) => told.unwrap().flavours,
            other => panic!("{other:?}"),
        };
        assert_eq!(asked(vec![Args::PutRootFh, sec_info("kp")]), List(vec![privacy()]));
        assert_eq!(asked(vec![put(&closed), sec_info("d")]), List(vec![privacy()]));
        assert_eq!(asked(vec![Args::PutRootFh, sec_info("kii")]), List(vec![gss(ops::GssService::Integrity)]));
        assert_eq!(asked(vec![Args::PutRootFh, sec_info("s")]), List(vec![Flavour::Sys, Flavour::None]));
        assert_eq!(asked(vec![put(&closed), no_name(ops::SecInfoStyle::Current)]), List(vec![privacy()]));
        let all = vec![privacy(), gss(ops::GssService::Integrity), Flavour::Sys, Flavour::None];
        assert_eq!(asked(vec![put(&closed), no_name(ops::SecInfoStyle::Parent)]), List(all.clone()));
        assert_eq!(asked(vec![Args::PutRootFh, no_name(ops::SecInfoStyle::Current)]), List(all));
        let after = vec![put(&closed), no_name(ops::SecInfoStyle::Current), get()];
        assert_eq!(failed(&client.call(after)), (Some(Op::GetAttr), Status::NOFILEHANDLE));
    }
}

/// EXCHANGE_ID of a client that wants these operations reserved for its machine.
fn exchange(name: &str, kept: &[Op]) -> Args {
    let must_enforce = Bitmap::of_numbers(kept.iter().map(|op| *op as u32));
    let mut exchange = ops::ExchangeId::new(ClientName::from(name), Verifier([1; 8]), 0);
    let asked = ops::ProtectedOps { must_enforce, must_allow: Bitmap::of_numbers([Op::Close as u32]) };
    exchange.protection = ops::StateProtection::MachineCredential(asked);
    Args::ExchangeId(Box::new(exchange))
}

/// If an export does not take a call's flavour, the caller is anonymous there, whatever the credential says.
#[test]
fn names_in_private_directories_are_told_to_no_claim() {
    let server = server();
    let [sys, _, private] = clients(&server, 2);
    let closed = private.walk("kp").unwrap();
    let kind = || ops::CreateKind::Directory;
    let make = |at: &Handle, name: &str, mode| {
        let attributes = FileAttributes::of(&[Value::Mode(mode)]);
        private
            .on(at, Args::Create(Box::new(ops::Create { kind: kind(), name: Name::from(name), attributes })))
            .status()
    };
    assert_eq!(make(&closed, "home", 0o700), Status::OK);
    let home = private.walk("kp/home").unwrap();
    assert_eq!(make(&home, "payroll", 0o755), Status::OK);
    assert_eq!(private.status(vec![put(&home), sec_info("payroll")]), Status::OK);
    for name in ["payroll", "none"] {
        assert_eq!(sys.status(vec![put(&home), sec_info(name)]), Status::ACCESS, "{name}");
        assert_eq!(sys.status(vec![put(&home), lookup(name)]), Status::ACCESS, "{name}");
    }
}

/// The operations that Linux's client asks for.
const KEPT: [Op; 5] =
    [Op::BindConnToSession, Op::ExchangeId, Op::CreateSession, Op::DestroySession, Op::DestroyClientId];

/// proves: NFS4-8881-18.35-h, NFS4-8881-18.35-i
#[test]
fn who_wants_operations_kept_for_it_protects_the_wish() {
    let server = server();
    let [_, client, _] = clients(&server, 1);
    for proven in [None, Some(WEAK)] {
        let asked = client.send_over(&rpc(&server, 9, proven), vec![exchange("m", &KEPT)]);
        assert_eq!(asked.status, Status::INVAL, "{proven:?}");
    }
    let asked = [&KEPT[..], &[Op::Read, Op::DelegPurge]].concat();
    let mut told = client.send_over(&rpc(&server, 9, Some(SIGNED)), vec![exchange("m", &asked)]).results;
    let ops::StateProtectionOk::MachineCredential(kept) = only!(told.remove(0), ExchangeId).unwrap().protection else {
        panic!("nothing is kept");
    };
    assert_eq!(kept.must_enforce, Bitmap::of_numbers(KEPT.into_iter().chain([Op::DelegPurge]).map(|op| op as u32)));
    assert!(kept.must_allow.is_empty());
    let mut ssv = ops::ExchangeId::new(ClientName::from("s"), Verifier([1; 8]), 0);
    ssv.protection = ops::StateProtection::Ssv(Box::new(ops::SsvParameters {
        ops: ops::ProtectedOps::default(),
        hash_algorithms: List(Vec::new()),
        encryption_algorithms: List(Vec::new()),
        window: 8,
        handles: 1,
    }));
    let refused = client.send_over(&rpc(&server, 9, Some(SIGNED)), vec![Args::ExchangeId(Box::new(ssv))]);
    assert_eq!(refused.status, Status::ENCR_ALG_UNSUPP);
}

/// proves: NFS4-8881-18.35-j, NFS4-8881-18.46-g
#[test]
fn what_is_kept_for_the_machine_nobody_else_does() {
    let server = server();
    let [sys, client, _] = clients(&server, 2);
    let machine = rpc(&server, 9, Some(SIGNED));
    let mut told = client.send_over(&machine, vec![exchange("m", &KEPT)]).results;
    let known = only!(told.remove(0), ExchangeId).unwrap();
    let create = |sequence| {
        let mut create = ops::CreateSession::new(&known, client.fore);
        create.sequence = known.sequence + sequence;
        Args::CreateSession(Box::new(create))
    };
    let thieves = [None, Some(WEAK), Some(OTHERS)].map(|proven| rpc(&server, 8, proven));
    let refused = |op: &dyn Fn() -> Args| {
        for thief in &thieves {
            let status = sys.send_over(thief, vec![op()]).status;
            assert_eq!(status, Status::WRONG_CRED, "{:?} by {:?}", op(), thief.proven);
        }
    };
    refused(&|| create(0));
    let mut made = client.send_over(&machine, vec![create(0)]).results;
    let session = only!(made.remove(0), CreateSession).unwrap().session;
    refused(&|| create(1));
    refused(&|| Args::DestroySession(ops::DestroySession { session }));
    let bind = ops::BindConnToSession { session, direction: ops::ClientDirection::Fore, rdma_mode: false };
    refused(&|| Args::BindConnToSession(bind));
    // A SEQUENCE binds no connection, whoever sends it.
    let sequence = |number, connection: &testing::Client| {
        let sequence = ops::Sequence { session, sequence: number, slot: 0, highest_slot: 0, cache: false };
        client.send_over(connection, vec![Args::Sequence(sequence)]).status
    };
    let another = rpc(&server, 7, Some(SIGNED));
    for connection in thieves.iter().chain([&another]) {
        assert_eq!(sequence(1, connection), Status::CONN_NOT_BOUND_TO_SESSION, "{:?}", connection.proven);
    }
    assert_eq!(sequence(1, &machine), Status::OK, "no slot has moved");
    assert_eq!(client.send_over(&another, vec![Args::BindConnToSession(bind)]).status, Status::OK);
    assert_eq!(sequence(2, &another), Status::OK);
    let client_id = ops::DestroyClientId { client: known.client };
    refused(&|| Args::DestroyClientId(client_id));
    // With its own flavour: without protection refused, with another principal the name is in use.
    assert_eq!(sys.send_over(&thieves[1], vec![exchange("m", &KEPT)]).status, Status::INVAL);
    let plain = || Args::ExchangeId(Box::new(ops::ExchangeId::new(ClientName::from("m"), Verifier([2; 8]), 0)));
    assert_eq!(sys.send_over(&thieves[1], vec![plain()]).status, Status::WRONG_CRED);
    assert_eq!(sys.send_over(&thieves[2], vec![plain()]).status, Status::CLID_INUSE);
    // The machine may do all of it.
    assert_eq!(client.send_over(&machine, vec![Args::BindConnToSession(bind)]).status, Status::OK);
    assert_eq!(
        client.send_over(&machine, vec![Args::DestroySession(ops::DestroySession { session })]).status,
        Status::OK
    );
    assert_eq!(client.send_over(&machine, vec![Args::DestroyClientId(client_id)]).status, Status::OK);
    // For a client that has reserved nothing, nothing changes.
    let destroy = ops::DestroySession { session: sys.session };
    let other = rpc(&server, 1, Some(OTHERS));
    assert_eq!(client.send_over(&other, vec![Args::DestroySession(destroy)]).status, Status::OK);
}
