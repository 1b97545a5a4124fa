//! CREATE, REMOVE, RENAME and LINK, as a client sees them.

use crate::nfs4::{
    attributes::tests::{file, servers, told, value},
    directory::tests::two_exports,
    testing::{Setup, TestClient, TestServer, only},
};
use rpcrdma_nfs::v4::{
    Args, Attribute, Bitmap, ChangeInfo, Device, FileAttributes, FileType, Handle, LinkText, Name, Status, Value,
    ops::{self, CreateKind},
};

fn name(name: &str) -> Name {
    Name::from(name)
}

fn put(file: &Handle) -> Args {
    Args::PutFh(ops::PutFh { file: file.clone() })
}

fn create(
    client: &TestClient,
    directory: &Handle,
    what: (&str, CreateKind),
    values: &[Value],
) -> Result<ops::CreateOk, Status> {
    let attributes = FileAttributes::of(values);
    let args = ops::Create { kind: what.1, name: name(what.0), attributes };
    only!(client.on(directory, Args::Create(Box::new(args))), Create)
}

/// Makes an object in the root.
pub(in crate::nfs4) fn make(client: &TestClient, called: &str, kind: CreateKind) -> Result<ops::CreateOk, Status> {
    create(client, &client.walk("").unwrap(), (called, kind), &[])
}

fn make_directory(client: &TestClient, directory: &Handle, called: &str) -> ChangeInfo {
    create(client, directory, (called, CreateKind::Directory), &[Value::Mode(0o755)]).unwrap().directory
}

fn remove(client: &TestClient, directory: &Handle, called: &str) -> Result<ChangeInfo, Status> {
    let args = ops::Remove { name: name(called) };
    only!(client.on(directory, Args::Remove(args)), Remove).map(|ok| ok.directory)
}

fn rename(client: &TestClient, from: (&Handle, &str), to: (&Handle, &str)) -> Result<ops::RenameOk, Status> {
    let args = ops::Rename { from: name(from.1), to: name(to.1) };
    only!(client.last(vec![put(from.0), Args::SaveFh, put(to.0), Args::Rename(args)]), Rename)
}

fn link(client: &TestClient, file: &Handle, to: (&Handle, &str)) -> Result<ChangeInfo, Status> {
    let args = ops::Link { name: name(to.1) };
    only!(client.last(vec![put(file), Args::SaveFh, put(to.0), Args::Link(args)]), Link).map(|ok| ok.directory)
}

fn change(client: &TestClient, file: &Handle) -> u64 {
    match value(client, file, Attribute::Change) {
        Value::Change(change) => change,
        other => panic!("{other:?}"),
    }
}

/// proves: NFS4-8881-18.4-a
#[test]
fn files_of_each_kind_are_made_but_regular_ones() {
    for server in servers() {
        let client = server.client("a");
        let root = client.walk("").unwrap();
        let device = Device { major: 1, minor: 3 };
        let mut kinds = vec![
            (CreateKind::Directory, FileType::Directory),
            (CreateKind::Socket, FileType::Socket),
            (CreateKind::Fifo, FileType::Fifo),
            (CreateKind::Symlink(LinkText::from("../a b")), FileType::Symlink),
        ];
        if create(&client, &root, ("probe", CreateKind::Character(device)), &[]).is_ok() {
            kinds.push((CreateKind::Block(device), FileType::Block));
            kinds.push((CreateKind::Character(device), FileType::Character));
        }
        for (number, (kind, file_type)) in kinds.into_iter().enumerate() {
            let (called, mode) = (format!("n{number}"), [Value::Mode(0o640)]);
            let attributes = FileAttributes::of(&mode);
            let args = ops::Create { kind: kind.clone(), name: name(&called), attributes };
            let asked = Bitmap::of(&[Attribute::Type, Attribute::Mode]);
            let ops = vec![put(&root), Args::Create(Box::new(args)), Args::GetAttr(ops::GetAttr { asked })];
            let mut outcomes = client.call(ops);
            let told = only!(outcomes.remove(2), GetAttr).unwrap().attributes.values().unwrap();
            let made = only!(outcomes.remove(1), Create).unwrap();
            assert_eq!(told[0], Value::Type(file_type));
            if file_type == FileType::Symlink {
                assert!(made.set.is_empty(), "it has no mode of its own");
            } else {
                assert_eq!((made.set, &told[1]), (Bitmap::of(&[Attribute::Mode]), &mode[0]));
            }
            assert!(client.walk(&called).is_ok());
            assert_eq!(create(&client, &root, (&called, kind), &[]).err(), Some(Status::EXIST));
        }
        let link = client.walk("n3").unwrap();
        let text = only!(client.on(&link, Args::ReadLink), ReadLink).unwrap().text;
        assert_eq!(text, LinkText::from("../a b"));
    }
}

/// proves: NFS4-8881-18.4-a, NFS4-8881-14-a
#[test]
fn what_cannot_be_made_is_refused() {
    let server = TestServer::memory();
    let client = server.client("a");
    let (root, file) = (client.walk("").unwrap(), file(&server, &client, "f"));
    let refused = |directory: &Handle, what: (&str, CreateKind), values: &[Value]| {
        create(&client, directory, what, values).unwrap_err()
    };
    let link = |text: &str| CreateKind::Symlink(LinkText::from(text));
    assert_eq!(refused(&root, ("r", CreateKind::Other(1)), &[]), Status::BADTYPE);
    assert_eq!(refused(&root, ("r", CreateKind::Other(9)), &[]), Status::BADTYPE);
    assert_eq!(refused(&root, ("", CreateKind::Fifo), &[]), Status::INVAL);
    assert_eq!(refused(&root, (".", CreateKind::Fifo), &[]), Status::BADNAME);
    assert_eq!(refused(&root, ("..", CreateKind::Directory), &[]), Status::BADNAME);
    assert_eq!(refused(&root, (&"x".repeat(256), CreateKind::Directory), &[]), Status::NAMETOOLONG);
    assert!(create(&client, &root, (&"x".repeat(255), CreateKind::Directory), &[]).is_ok());
    assert_eq!(refused(&root, ("l", link("")), &[]), Status::INVAL);
    assert_eq!(refused(&root, ("l", link("a\0")), &[]), Status::BADCHAR);
    assert_eq!(refused(&root, ("d", CreateKind::Directory), &[Value::Size(0)]), Status::INVAL);
    assert_eq!(refused(&root, ("d", CreateKind::Directory), &[Value::Archive(true)]), Status::ATTRNOTSUPP);
    assert_eq!(refused(&root, ("d", CreateKind::Directory), &[Value::FileId(1)]), Status::INVAL);
    assert_eq!(refused(&file, ("d", CreateKind::Directory), &[]), Status::NOTDIR);
    assert_eq!(client.walk("d").err(), Some(Status::NOENT));
    let stranger = server.client_as("b", 2, 1000, 1);
    assert_eq!(create(&stranger, &root, ("d", CreateKind::Directory), &[]).err(), Some(Status::ACCESS));
}

/// proves: NFS4-8881-18.25-a
#[test]
fn one_operation_removes_files_and_directories() {
    for server in servers() {
        let client = server.client("a");
        let (root, _) = (client.walk("").unwrap(), file(&server, &client, "f"));
        make_directory(&client, &root, "d");
        let directory = client.walk("d").unwrap();
        make_directory(&client, &directory, "e");
        assert_eq!(remove(&client, &root, "d").err(), Some(Status::NOTEMPTY));
        assert!(remove(&client, &directory, "e").is_ok());
        assert!(remove(&client, &root, "d").is_ok() && remove(&client, &root, "f").is_ok());
        assert_eq!(remove(&client, &root, "f").err(), Some(Status::NOENT));
        assert_eq!(client.walk("d").err(), Some(Status::NOENT));
        let file = file(&server, &client, "g");
        assert_eq!(remove(&client, &file, "x").err(), Some(Status::NOTDIR));
        assert_eq!(remove(&client, &root, ".").err(), Some(Status::BADNAME));
        assert_eq!(remove(&client, &root, "").err(), Some(Status::INVAL));
    }
}

/// proves: NFS4-8881-18.26-a
#[test]
fn a_name_moves_in_place_of_its_like() {
    for server in servers() {
        let client = server.client("a");
        let (root, f) = (client.walk("").unwrap(), file(&server, &client, "f"));
        file(&server, &client, "g");
        for called in ["d", "e"] {
            make_directory(&client, &root, called);
        }
        let (d, e) = (client.walk("d").unwrap(), client.walk("e").unwrap());
        assert!(rename(&client, (&root, "f"), (&d, "new")).is_ok());
        assert_eq!((client.walk("d/new"), client.walk("f").err()), (Ok(f), Some(Status::NOENT)));
        assert!(rename(&client, (&root, "g"), (&d, "new")).is_ok(), "a file in place of a file");
        assert_eq!(rename(&client, (&d, "new"), (&root, "e")).err(), Some(Status::EXIST), "a file, a directory");
        assert_eq!(rename(&client, (&root, "e"), (&d, "new")).err(), Some(Status::EXIST), "a directory, a file");
        assert_eq!(rename(&client, (&root, "e"), (&root, "d")).err(), Some(Status::EXIST), "it is not empty");
        assert_eq!(rename(&client, (&root, "d"), (&d, "x")).err(), Some(Status::INVAL), "into itself");
        assert!(rename(&client, (&root, "d"), (&root, "e")).is_ok(), "a directory in place of an empty one");
        assert_eq!(client.walk("e").unwrap(), d);
        assert_eq!(rename(&client, (&root, "nothing"), (&root, "x")).err(), Some(Status::NOENT));
        assert_eq!(rename(&client, (&root, "e"), (&root, "..")).err(), Some(Status::BADNAME));
        assert_eq!(rename(&client, (&root, ""), (&root, "x")).err(), Some(Status::INVAL));
        assert_eq!(rename(&client, (&e, "x"), (&root, "x")).err(), Some(Status::STALE), "it was replaced");
        let file = client.walk("e/new").unwrap();
        assert_eq!(rename(&client, (&file, "x"), (&root, "x")).err(), Some(Status::NOTDIR));
        assert_eq!(rename(&client, (&root, "e"), (&file, "x")).err(), Some(Status::NOTDIR));
        let alone = vec![put(&root), Args::Rename(ops::Rename { from: name("a"), to: name("b") })];
        assert_eq!(client.status(alone), Status::NOFILEHANDLE, "nothing was saved");
    }
}

/// proves: NFS4-8881-18.9-a
#[test]
fn a_file_gets_a_further_name() {
    for server in servers() {
        let client = server.client("a");
        let (root, f) = (client.walk("").unwrap(), file(&server, &client, "f"));
        make_directory(&client, &root, "d");
        let d = client.walk("d").unwrap();
        assert!(link(&client, &f, (&d, "g")).is_ok());
        assert_eq!(value(&client, &client.walk("d/g").unwrap(), Attribute::Links), Value::Links(2));
        assert_eq!(link(&client, &f, (&d, "g")).err(), Some(Status::EXIST));
        assert_eq!(link(&client, &d, (&root, "x")).err(), Some(Status::ISDIR));
        assert_eq!(link(&client, &f, (&f, "x")).err(), Some(Status::NOTDIR));
        assert_eq!(link(&client, &f, (&root, "..")).err(), Some(Status::BADNAME));
        let to = CreateKind::Symlink(LinkText::from("d"));
        assert!(create(&client, &root, ("l", to), &[]).is_ok());
        assert_eq!(link(&client, &f, (&client.walk("l").unwrap(), "x")).err(), Some(Status::SYMLINK));
    }
}

/// proves: NFS4-8881-3.3.4-a
#[test]
fn change_numbers_are_those_that_getattr_tells() {
    for server in servers() {
        let client = server.client("a");
        let (root, f) = (client.walk("").unwrap(), file(&server, &client, "f"));
        let mut last = change(&client, &root);
        let mut check = |what: &str, told: ChangeInfo| {
            let now = change(&client, &root);
            assert_eq!((told.atomic, told.before, told.after), (true, last, now), "{what}");
            assert_ne!(told.before, told.after, "{what}");
            last = now;
        };
        check("CREATE", make_directory(&client, &root, "d"));
        check("LINK", link(&client, &f, (&root, "g")).unwrap());
        check("REMOVE", remove(&client, &root, "g").unwrap());
        let d = client.walk("d").unwrap();
        let before = change(&client, &d);
        let renamed = rename(&client, (&root, "f"), (&d, "f")).unwrap();
        assert_eq!((renamed.to.before, renamed.to.after), (before, change(&client, &d)));
        check("RENAME", renamed.from);
    }
}

/// proves: NFS4-PSEUDO-a, NFS4-8881-18.26-a, NFS4-8881-18.9-a
#[test]
fn nothing_changes_above_the_exports_nor_across_them() {
    let (_, client) = two_exports([10, 0, 0, 1]);
    let (top, a, b) = (client.walk("").unwrap(), client.walk("srv/a").unwrap(), client.walk("srv/b").unwrap());
    let directory = || CreateKind::Directory;
    assert_eq!(create(&client, &top, ("d", directory()), &[]).err(), Some(Status::ROFS));
    assert_eq!(remove(&client, &top, "srv").err(), Some(Status::ROFS));
    make_directory(&client, &a, "d");
    assert_eq!(rename(&client, (&a, "d"), (&b, "d")).err(), Some(Status::XDEV));
    assert_eq!(rename(&client, (&top, "srv"), (&a, "d")).err(), Some(Status::XDEV));
    assert_eq!(rename(&client, (&a, "d"), (&top, "d")).err(), Some(Status::ROFS));
    assert_eq!(link(&client, &a, (&b, "d")).err(), Some(Status::XDEV));
    assert!(told(&client, &client.walk("srv/a/d").unwrap(), &[Attribute::Size]).is_ok());
    let server = TestServer::memory_with(Setup { read_only: true, ..Setup::default() });
    let client = server.client("a");
    let root = client.walk("").unwrap();
    assert_eq!(create(&client, &root, ("d", directory()), &[]).err(), Some(Status::ROFS));
    assert_eq!(remove(&client, &root, "d").err(), Some(Status::ROFS));
    assert_eq!(rename(&client, (&root, "d"), (&root, "e")).err(), Some(Status::ROFS));
    assert_eq!(link(&client, &root, (&root, "e")).err(), Some(Status::ROFS));
}
