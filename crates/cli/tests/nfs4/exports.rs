//! `--export`: several directories with their own names and limits, in both versions.

use super::{
    caller::Session,
    common::{Server, fails, rpcrdma, run},
};
use rpcrdma_env::tokio_env;
use rpcrdma_nfs::v4::{Args, Attribute, Bitmap, FileAttributes, Handle, Name, Outcome, StateId, Status, Value, ops};
use std::{fs, path::Path, process::Command};

/// A network to which these clients do not belong.
const OTHERS: &str = "clients=198.51.100.0/24";

/// Directories to export, each with a file `file`.
fn directories(scratch: &Path) {
    for name in ["root/in", "inner", "apart", "others"] {
        fs::create_dir_all(scratch.join(name)).unwrap();
        fs::write(scratch.join(name).join("file"), name).unwrap();
    }
}

fn serve(scratch: &Path, arguments: &[String]) -> Command {
    let mut command = rpcrdma();
    command.arg("serve").arg("--json").arg("--state").arg(scratch.join("state"));
    command.args(["--listen", "127.0.0.1:0", "--mountd", "127.0.0.1:0", "--tcp", "127.0.0.1:0"]).args(arguments);
    command
}

/// `DIR` with another export in it, a read-only export, and one for other clients.
fn several(scratch: &Path) -> Server {
    directories(scratch);
    let at = |name: &str| scratch.join(name).display().to_string();
    let arguments = [
        at("root"),
        "--no-root-squash".into(),
        format!("--export={},pseudo=/in", at("inner")),
        format!("--export={},pseudo=/in/below/apart,ro,clients=127.0.0.0/8,clients=::1", at("apart")),
        format!("--export={},pseudo=/others,{OTHERS}", at("others")),
    ];
    fs::create_dir_all(scratch.join("inner/below/apart")).unwrap();
    fs::create_dir_all(scratch.join("root/others")).unwrap();
    Server::launch(&mut serve(scratch, &arguments))
}

async fn file_system(client: &Session, file: &Handle) -> Value {
    let get = Args::GetAttr(ops::GetAttr { asked: Bitmap::of(&[Attribute::FileSystem]) });
    match client.on(file, get).await {
        Outcome::GetAttr(Ok(told)) => told.attributes.values().unwrap().remove(0),
        other => panic!("{other:?}"),
    }
}

/// proves: NFS4-BORDER-a, NFS4-BORDER-b
#[tokio::test(flavor = "multi_thread")]
async fn version_4_goes_by_name_into_exports_that_a_client_may_use() {
    let scratch = tempfile::tempdir().unwrap();
    let server = several(scratch.path());
    let client = Session::begin(server.tcp.as_ref().unwrap(), b"a", &tokio_env().unwrap()).await;
    let mut seen = Vec::new();
    for path in ["", "in", "in/below/apart"] {
        seen.push(file_system(&client, &client.walk(path).await.unwrap()).await);
        assert!(client.walk(&format!("{path}/file")).await.is_ok() || path.is_empty(), "{path}");
    }
    assert!(seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2], "{seen:?}");
    assert_eq!(client.walk("others").await, Err(Status::NOENT));
    assert_eq!(server.stop(), Some(0));
}

/// Version 3 enters each export by MOUNT; MOUNT refuses an export that is for other clients.
#[test]
fn version_3_mounts_each_export_by_its_name() {
    let scratch = tempfile::tempdir().unwrap();
    let server = several(scratch.path());
    for (path, wanted) in [("in/file", "inner"), ("in/below/apart/file", "apart")] {
        assert_eq!(run(["cat", &server.url_3(path)]).stdout, wanted.as_bytes());
        assert_eq!(run(["cat", &server.tcp_url_3(path)]).stdout, wanted.as_bytes());
    }
    let error = fails(1, ["cat", &server.url_3("others/file")]);
    assert!(error.contains("no such file"), "the directory that the export covers is empty: {error}");
    assert_eq!(server.stop(), Some(0));
    let at = |name: &str| scratch.path().join(name).display().to_string();
    let others = format!("--export={},pseudo=/others,{OTHERS}", at("others"));
    let server = Server::launch(&mut serve(scratch.path(), &[format!("--export={},pseudo=/a", at("inner")), others]));
    assert_eq!(run(["cat", &server.url_3("a/file")]).stdout, b"inner");
    let error = fails(1, ["cat", &server.url_3("others/file")]);
    assert!(error.contains("exports /a, not /others/file"), "{error}");
    assert_eq!(server.stop(), Some(0));
}

/// proves: NFS3-ACL-a
#[tokio::test(flavor = "multi_thread")]
async fn nothing_changes_in_a_read_only_export_in_either_version() {
    let scratch = tempfile::tempdir().unwrap();
    let server = several(scratch.path());
    let client = Session::begin(server.tcp.as_ref().unwrap(), b"a", &tokio_env().unwrap()).await;
    let directory = client.walk("in/below/apart").await.unwrap();
    let file = client.walk("in/below/apart/file").await.unwrap();
    assert!(client.open(&directory, "file", ops::share::READ).await.is_ok());
    assert_eq!(client.open(&directory, "file", ops::share::BOTH).await, Err(Status::ROFS));
    let attributes = FileAttributes::of(&[Value::Mode(0o600)]);
    let name = || Name::from("file");
    let kind = ops::CreateKind::Directory;
    let state = StateId::ANONYMOUS;
    let data = b"x".to_vec().into();
    let changes = [
        (
            &directory,
            Args::Create(Box::new(ops::Create {
                kind,
                name: Name::from("new"),
                attributes: FileAttributes::default(),
            })),
        ),
        (&directory, Args::Remove(ops::Remove { name: name() })),
        (&file, Args::SetAttr(ops::SetAttr { state, attributes })),
        (&file, Args::Write(ops::Write { state, offset: 0, stability: ops::Stability::Unstable, data })),
    ];
    for (at, change) in changes {
        let op = change.op();
        assert_eq!(client.on(at, change).await.status(), Status::ROFS, "{op}");
    }
    let put = |file: &Handle| Args::PutFh(ops::PutFh { file: file.clone() });
    let rename = Args::Rename(ops::Rename { from: name(), to: Name::from("new") });
    let link = Args::Link(ops::Link { name: Name::from("new") });
    assert_eq!(client.status(vec![put(&directory), Args::SaveFh, rename]).await, Status::ROFS);
    assert_eq!(client.status(vec![put(&file), Args::SaveFh, put(&directory), link]).await, Status::ROFS);
    let open = ops::Open {
        sequence: 0,
        access: ops::share::READ,
        deny: 0,
        owner: client.owner(),
        how: ops::OpenHow::Create(ops::CreateHow::Unchecked(FileAttributes::default())),
        claim: ops::Claim::Null(Name::from("new")),
    };
    assert_eq!(client.on(&directory, Args::Open(Box::new(open))).await.status(), Status::ROFS);
    for refused in [
        vec!["rm".to_owned(), server.url_3("in/below/apart/file")],
        vec!["mkdir".to_owned(), server.url_3("in/below/apart/new")],
        vec![
            "put".to_owned(),
            scratch.path().join("inner/file").display().to_string(),
            server.url_3("in/below/apart/new"),
        ],
    ] {
        let error = fails(1, &refused);
        assert!(error.contains("NFS3ERR_ROFS"), "{refused:?}: {error}");
    }
    let names: Vec<_> =
        fs::read_dir(scratch.path().join("apart")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!((names, fs::read(scratch.path().join("apart/file")).unwrap()), (vec!["file".into()], b"apart".to_vec()));
    // Other exports can still be changed.
    run(["mkdir", &server.url_3("in/new")]);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn what_cannot_be_exported_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    directories(scratch.path());
    let at = |name: &str| scratch.path().join(name).display().to_string();
    for (arguments, part) in [
        (vec![], "required"),
        (vec!["--export".into(), format!("{},rw", at("root"))], "\"rw\" is not an option of an export"),
        (vec!["--export".into(), format!("{},clients=10.0.0.0/33", at("root"))], "clients=10.0.0.0/33: write"),
        (vec![at("root"), "--export".into(), format!("{},pseudo=/", at("apart"))], "clients would see both"),
        (vec![at("root"), "--export".into(), format!("{},pseudo=/x", at("root/in"))], "lies in"),
        (vec![at("root"), "--export".into(), format!("{},pseudo=/none", at("apart"))], "make the directory"),
    ] {
        let output = serve(scratch.path(), &arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}
