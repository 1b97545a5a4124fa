//! Owners, groups and names in access control lists, as Kerberos principals and AUTH_SYS callers see them.

use super::super::testing::TestClient;
use crate::{
    Accounts, Export, Identities, Kind, MemoryFs, Nfsd, OwnerNames, Queue, Securities, Security, Squash,
    StateDirectory, Version4,
    testing::{self, Believed, SECRET, env},
};
use rpcrdma_nfs::v4::{
    Ace, Args, Attribute, Bitmap, FileAttributes, Handle, Name, Outcome, Principal, StateId, Status, Value, ace, ops,
};
use rpcrdma_oncrpc::gss::{GssService, Work};
use std::{
    io,
    sync::{Arc, Mutex},
};

/// The questions to the host.
type Asked = Arc<Mutex<Vec<String>>>;

/// A host with the user anna (1000), the group common (2000), and some names that are not valid.
struct Host(Asked);

const USERS: [(u32, &str); 4] = [(0, "root"), (1000, "anna"), (1001, "1234"), (1002, "eve@elsewhere")];
/// A name of which the host cannot say whether it exists.
const SILENT: &str = "far";
const GROUPS: [(u32, &str); 2] = [(0, "root"), (2000, "common")];

impl Host {
    fn known(kind: Kind) -> &'static [(u32, &'static str)] {
        match kind {
            Kind::User => &USERS,
            Kind::Group => &GROUPS,
        }
    }
}

impl Accounts for Host {
    fn name(&self, kind: Kind, id: u32) -> io::Result<Option<String>> {
        self.0.lock().unwrap().push(format!("{kind:?} {id}"));
        Ok(Self::known(kind).iter().find(|known| known.0 == id).map(|known| known.1.to_owned()))
    }

    fn id(&self, kind: Kind, name: &str) -> io::Result<Option<u32>> {
        self.0.lock().unwrap().push(format!("{kind:?} {name}"));
        if name == SILENT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Self::known(kind).iter().find(|known| known.1 == name).map(|known| known.0))
    }
}

/// Does all work at once.
struct AtOnce;

impl Work for AtOnce {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

/// A server whose superuser is not squashed, the questions to its host, and clients with AUTH_SYS and with Kerberos.
fn house(with_names: bool) -> (Nfsd, Asked, [TestClient; 2]) {
    let (env, scratch) = (env(), tempfile::tempdir().unwrap());
    let state = StateDirectory::open(scratch.path().join("state"), &*env.random).unwrap();
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", Arc::new(MemoryFs::new(1 << 20, &env)))
        .with_identities(identities)
        .with_securities(Securities::new([Security::Sys, Security::Krb5i]));
    let mut nfsd = Nfsd::new(vec![export], SECRET, &env).unwrap().with_flavour(Arc::new(Believed), &env);
    let asked = Asked::default();
    if with_names {
        let (domain, host) = ("Example.com".parse().unwrap(), Arc::new(Host(asked.clone())));
        nfsd = nfsd.with_names(OwnerNames::new(domain, host, Arc::new(AtOnce), env.clock.clone()));
    }
    let nfsd = nfsd.with_version_4(Version4::new(&state, Queue::in_place()), true, &env).unwrap();
    let clients = [None, Some((GssService::Integrity, "anna@REALM"))].map(|proven| {
        let mut rpc = testing::Client::of(&nfsd);
        (rpc.connection, rpc.proven) = (1 + u64::from(proven.is_some()), proven);
        TestClient::new(rpc, &format!("c{}", proven.is_some()), 2, 1)
    });
    (nfsd, asked, clients)
}

fn make(client: &TestClient, name: &str, values: &[Value]) -> Result<Handle, Status> {
    let root = client.walk("").unwrap();
    let (kind, attributes) = (ops::CreateKind::Directory, FileAttributes::of(values));
    match client.on(&root, Args::Create(Box::new(ops::Create { kind, name: Name::from(name), attributes }))).status() {
        Status::OK => Ok(client.walk(name).unwrap()),
        status => Err(status),
    }
}

fn set(client: &TestClient, file: &Handle, value: Value) -> Status {
    let attributes = FileAttributes::of(&[value]);
    client.on(file, Args::SetAttr(ops::SetAttr { state: StateId::ANONYMOUS, attributes })).status()
}

fn told(client: &TestClient, file: &Handle, attribute: Attribute) -> Value {
    match client.on(file, Args::GetAttr(ops::GetAttr { asked: Bitmap::of(&[attribute]) })) {
        Outcome::GetAttr(Ok(ok)) => ok.attributes.values().unwrap().remove(0),
        other => panic!("{other:?}"),
    }
}

fn owner(text: &str) -> Value {
    Value::Owner(Principal::from(text))
}

fn group(text: &str) -> Value {
    Value::Group(Principal::from(text))
}

fn allowed(who: &str, flags: u32) -> Ace {
    Ace { kind: ace::ALLOWED, flags, rights: ace::READ_DATA, who: Principal::from(who) }
}

/// proves: NFS4-8881-5.9-c
#[test]
fn principals_are_told_names_and_others_numbers() {
    let (_server, asked, [sys, proven]) = house(true);
    let file = make(&sys, "d", &[]).unwrap();
    for (id, name) in [("1000", "anna@Example.com"), ("1001", "1001"), ("1002", "1002"), ("4711", "4711")] {
        asked.lock().unwrap().clear();
        assert_eq!(set(&sys, &file, owner(id)), Status::OK);
        assert_eq!(told(&sys, &file, Attribute::Owner), owner(id));
        assert_eq!(asked.lock().unwrap().len(), 0, "nobody is asked for numbers");
        for _ in 0..3 {
            assert_eq!(told(&proven, &file, Attribute::Owner), owner(name), "a name that could be a number is none");
        }
        assert_eq!(*asked.lock().unwrap(), [format!("User {id}")], "once");
    }
    assert_eq!(set(&sys, &file, group("2000")), Status::OK);
    let (by_name, by_number) = (group("common@Example.com"), group("2000"));
    assert_eq!((told(&proven, &file, Attribute::Group), told(&sys, &file, Attribute::Group)), (by_name, by_number));
    // VERIFY compares with the form that this caller gets.
    let verify = |client: &TestClient, value| {
        client.on(&file, Args::Verify(ops::Verify { attributes: FileAttributes::of(&[value]) })).status()
    };
    assert_eq!(verify(&proven, group("common@Example.com")), Status::OK);
    assert_eq!(verify(&sys, group("common@Example.com")), Status::NOT_SAME);
    assert_eq!(verify(&sys, group("2000")), Status::OK);
}

/// If a host cannot answer, it has not said that the name does not exist.
///
/// proves: NFS4-8881-5.9-f
#[test]
fn who_cannot_be_looked_up_is_no_bad_owner_and_is_asked_for_again() {
    let (_server, asked, [sys, proven]) = house(true);
    let file = make(&sys, "d", &[]).unwrap();
    assert_eq!(set(&sys, &file, owner("1000")), Status::OK);
    asked.lock().unwrap().clear();
    for client in [&sys, &proven] {
        assert_eq!(set(client, &file, owner("far@example.com")), Status::DELAY);
        assert_eq!(set(client, &file, group("far@example.com")), Status::DELAY);
        let list = Value::Acl(vec![allowed("far@example.com", 0)].into());
        assert_eq!(set(client, &file, list), Status::DELAY);
        // With another domain it is no name here, even if the host does not answer.
        assert_eq!(set(client, &file, owner("far@example.org")), Status::BADOWNER);
    }
    assert_eq!(make(&sys, "new", &[owner("far@example.com")]), Err(Status::DELAY));
    assert_eq!(sys.walk("new"), Err(Status::NOENT), "and nothing is made");
    assert_eq!(asked.lock().unwrap().len(), 7, "each time");
    assert_eq!(told(&sys, &file, Attribute::Owner), owner("1000"), "nothing has changed");
}

/// proves: NFS4-8881-5.9-c, NFS4-8881-5.9-d
#[test]
fn all_may_set_names_of_the_domain_and_no_others() {
    let (_server, asked, [sys, proven]) = house(true);
    let file = make(&sys, "d", &[]).unwrap();
    assert_eq!(set(&sys, &file, owner("1000")), Status::OK);
    for (client, name) in [(&sys, "common@Example.com"), (&sys, "common@EXAMPLE.COM"), (&proven, "common@example.com")]
    {
        assert_eq!(set(&sys, &file, group("0")), Status::OK);
        // The principal owns the file, but is not in the group that it wants to give the file to: the file system
        // reports that.
        let expected = if std::ptr::eq(client, &sys) { Status::OK } else { Status::PERM };
        assert_eq!(set(client, &file, group(name)), expected, "{name}");
        let is_set = told(&sys, &file, Attribute::Group) == group("2000");
        assert_eq!(is_set, expected == Status::OK, "{name}");
    }
    assert_eq!(set(&sys, &file, owner("anna@example.com")), Status::OK);
    asked.lock().unwrap().clear();
    let longest = "n".repeat(240);
    let never_asked = [
        "anna",
        "",
        "@",
        "@example.com",
        "anna@",
        "anna@example.org",
        "anna@example.com@example.com",
        "1000@example.com",
        "a/b@example.com",
        "../anna@example.com",
        "an\0na@example.com",
        "anna@example.com\0",
        "01",
        "-1",
        "4294967296",
    ];
    for client in [&sys, &proven] {
        for text in never_asked {
            let refused = if text.is_empty() { Status::INVAL } else { Status::BADOWNER };
            assert_eq!(set(client, &file, owner(text)), refused, "{text:?}");
            assert_eq!(make(client, "new", &[group(text)]).err(), Some(refused), "{text:?}");
        }
        assert_eq!(set(client, &file, owner(&"x".repeat(257))), Status::BADOWNER);
    }
    assert_eq!(*asked.lock().unwrap(), [""; 0], "the host sees no name that is none");
    assert_eq!(set(&sys, &file, owner("common@example.com")), Status::BADOWNER, "a group is no user");
    assert_eq!(set(&sys, &file, owner(&format!("{longest}@example.com"))), Status::BADOWNER);
    assert_eq!(told(&sys, &file, Attribute::Owner), owner("1000"), "nothing has changed");
    let made = make(&sys, "his", &[owner("anna@example.com"), group("common@example.com")]).unwrap();
    assert_eq!(told(&sys, &made, Attribute::Owner), owner("1000"));
    assert_eq!(told(&sys, &made, Attribute::Group), group("2000"));
}

/// proves: NFS4-8881-5.9-c
#[test]
fn lists_have_names_where_owners_have() {
    let (_server, _, [sys, proven]) = house(true);
    let file = make(&sys, "d", &[]).unwrap();
    let everyone = allowed("EVERYONE@", 0);
    let list =
        |user: &str, common: &str| vec![allowed(user, 0), allowed(common, ace::IDENTIFIER_GROUP), everyone.clone()];
    let refused = list("anna@example.com", "anna@example.com");
    assert_eq!(set(&sys, &file, Value::Acl(refused.into())), Status::BADOWNER, "a user is no group");
    let by_name = list("anna@example.com", "common@example.com");
    assert_eq!(set(&sys, &file, Value::Acl(by_name.into())), Status::OK);
    let who = |client: &TestClient| match told(client, &file, Attribute::Acl) {
        Value::Acl(acl) => acl.iter().map(|entry| String::from_utf8_lossy(entry.who.as_slice()).into_owned()).collect(),
        other => vec![format!("{other:?}")],
    };
    let (numbers, names) = (who(&sys), who(&proven));
    assert!(numbers.contains(&"1000".to_owned()) && numbers.contains(&"2000".to_owned()), "{numbers:?}");
    let named: Vec<_> = numbers
        .iter()
        .map(|who| match who.as_str() {
            "1000" => "anna@Example.com".to_owned(),
            "2000" => "common@Example.com".to_owned(),
            special => special.to_owned(),
        })
        .collect();
    assert_eq!(names, named);
}

/// proves: NFS4-8881-5.9-b
#[test]
fn without_a_domain_all_are_numbers() {
    let (_server, _, [sys, proven]) = house(false);
    let file = make(&sys, "d", &[owner("1000")]).unwrap();
    assert_eq!(told(&proven, &file, Attribute::Owner), owner("1000"));
    assert_eq!(set(&sys, &file, owner("anna@example.com")), Status::BADOWNER);
}
