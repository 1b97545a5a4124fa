//! `--xattrs`: extended attributes and access control lists are copied with files, there and back and from server to
//! server. The command reports what it cannot keep.

mod common;

use common::{Server, proxy, run, served};
use rustix::fs::{XattrFlags, getxattr, listxattr, setxattr};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// A list in the kernel's form: version, then tag, rights and number of each entry.
fn acl(user: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [(1, 6, none), (2, 6, user), (4, 4, none), (16, 6, none), (32, 0, none)];
    let octets = entries.iter().flat_map(|(tag, rights, number)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &number.to_le_bytes()].concat()
    });
    2_u32.to_le_bytes().into_iter().chain(octets).collect()
}

fn value(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 65_536];
    let len = getxattr(path, name, &mut value).ok()?;
    value.truncate(len);
    Some(value)
}

fn users(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut list = vec![0; 65_536];
    let len = listxattr(path, &mut list).unwrap();
    let names = list[..len].split(|octet| *octet == 0).map(|name| String::from_utf8_lossy(name).into_owned());
    let mut all: Vec<_> = names
        .filter(|name| name.starts_with("user."))
        .map(|name| (name.clone(), value(path, &name).unwrap()))
        .collect();
    all.sort();
    all
}

const TREE: [&str; 3] = ["directory/file", "directory", "plain"];

/// Makes a tree with attributes and lists; false if the file system has none.
fn make_tree(tree: &Path) -> bool {
    fs::create_dir_all(tree.join("directory")).unwrap();
    fs::write(tree.join("directory/file"), "octets").unwrap();
    fs::write(tree.join("plain"), "octets").unwrap();
    let set = |path: &str, name: &str, value: &[u8]| setxattr(tree.join(path), name, value, XattrFlags::empty());
    if set("directory/file", "user.colour", b"green").is_err() || set("directory/file", ACCESS, &acl(4711)).is_err() {
        return false;
    }
    set("directory/file", "user.empty", b"").unwrap();
    set("directory/file", "user.large", &[7; 1_000]).unwrap();
    set("directory", "user.of directory", b"blue").unwrap();
    set("directory", DEFAULT, &acl(815)).unwrap();
    set("directory", ACCESS, &acl(816)).unwrap();
    true
}

fn told(args: &[&str]) -> Value {
    let (command, rest) = args.split_first().unwrap();
    serde_json::from_slice(&run([&[*command, "--json"], rest].concat()).stdout).unwrap()
}

fn same(one: &Path, other: &Path) {
    for path in TREE {
        assert_eq!(users(&one.join(path)), users(&other.join(path)), "{path}");
    }
    same_lists(one, other);
}

fn same_lists(one: &Path, other: &Path) {
    for path in TREE {
        let (one, other) = (one.join(path), other.join(path));
        for name in [ACCESS, DEFAULT] {
            assert_eq!(value(&one, name), value(&other, name), "{name} of {path}");
        }
    }
}

#[test]
fn they_go_there_and_back_and_from_server_to_server() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    if !make_tree(&tree) {
        return;
    }
    let served = served(scratch.path());
    let more = ["--no-root-squash", "--tcp", "127.0.0.1:0"];
    let server = Server::start(&served, &scratch.path().join("state"), &more);
    for carrier in ["rpcrdma=1", "rpcrdma=2", "tcp"] {
        println!("over {carrier}");
        let url = |version: &str, path: &str| match carrier {
            "tcp" => format!("{}&version={version}", server.tcp_url(path)),
            carrier => format!("{}&version={version}&{carrier}", server.url(path)),
        };
        let local = tree.to_str().unwrap();
        let put = told(&["put", "-r", "--xattrs", local, &url("4.2", "there")]);
        assert_eq!(put["extras_not_kept"], 0, "{put}");
        same(&tree, &served.join("there"));
        let back = scratch.path().join("back");
        let got = told(&["get", "-r", "--xattrs", &url("4.2", "there"), back.to_str().unwrap()]);
        assert_eq!(got["extras_not_kept"], 0, "{got}");
        same(&tree, &back);
        let copied = told(&["cp", "-r", "--xattrs", &url("4.2", "there"), &url("4.2", "copy")]);
        assert_eq!(copied["extras_not_kept"], 0, "{copied}");
        same(&tree, &served.join("copy"));
        fs::remove_dir_all(&back).unwrap();
        fs::remove_dir_all(served.join("copy")).unwrap();
        // Without the option the command does not copy them.
        run(["get", "-r", &url("4.2", "there"), back.to_str().unwrap()]);
        assert!(
            users(&back.join("directory/file")).is_empty() && value(&back.join("directory/file"), ACCESS).is_none()
        );
        fs::remove_dir_all(&back).unwrap();

        // All versions have lists, only 4.2 has extended attributes.
        let without = told(&["put", "-r", "--xattrs", local, &url("4.1", "without")]);
        assert_eq!(without["extras_not_kept"], 4, "{without}");
        assert_eq!(value(&served.join("without/directory/file"), ACCESS), Some(acl(4711)));
        fs::remove_dir_all(served.join("without")).unwrap();
        let output = run(["put", "-r", "-q", "--xattrs", local, &url("3", "without")]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("directory/file: its extended attribute user.colour was not kept: SETXATTR"), "{said}");
        assert!(!said.contains("its access control list"), "{said}");
        same_lists(&tree, &served.join("without"));
        let got = told(&["get", "-r", "--xattrs", &url("3", "there"), back.to_str().unwrap()]);
        assert_eq!(got["extras_not_kept"], 0, "version 3 has no extended attributes to keep: {got}");
        same_lists(&tree, &back);
        fs::remove_dir_all(&back).unwrap();
        // From one version to the other, and within version 3.
        for (number, (from, to)) in [("4.2", "3"), ("3", "4.2"), ("3", "3")].into_iter().enumerate() {
            let into = format!("into{number}");
            let copied = told(&["cp", "-r", "--xattrs", &url(from, "there"), &url(to, &into)]);
            assert_eq!(copied["extras_not_kept"], if from == "4.2" { 4 } else { 0 }, "{from} to {to}: {copied}");
            same_lists(&tree, &served.join(&into));
            fs::remove_dir_all(served.join(&into)).unwrap();
        }
        for done in ["there", "without"] {
            fs::remove_dir_all(served.join(done)).unwrap();
        }
    }
    assert_eq!(server.stop(), Some(0));
}

/// A proxy between the command and its server changes the program number, so that the command asks for an unknown
/// program.
#[test]
fn a_server_without_lists_beside_version_3_is_asked_once() {
    let scratch = tempfile::tempdir().unwrap();
    let served = served(scratch.path());
    if !make_tree(&served.join("tree")) {
        return;
    }
    let more = ["--no-root-squash", "--tcp", "127.0.0.1:0"];
    let server = Server::start(&served, &scratch.path().join("state"), &more);
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let proxy = proxy::calls(server.tcp.as_ref().unwrap(), move |record| {
        let nfsacl = [100_227_u32.to_be_bytes(), 3_u32.to_be_bytes()].concat();
        if let Some(at) = record.windows(8).position(|octets| octets == nfsacl) {
            record[at] = 1;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let url = |path: &str| server.tcp_url_3(path).replace(server.tcp.as_ref().unwrap(), &proxy);
    let back = scratch.path().join("back");
    let output = run(["get", "-r", "-q", "--xattrs", &url("tree"), back.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches("the server does not serve NFSACL").count(), 1, "{said}");
    assert_eq!(asked.swap(0, Ordering::Relaxed), 1);
    assert_eq!(
        (value(&back.join("directory/file"), ACCESS), fs::read(back.join("plain")).unwrap()),
        (None, b"octets".into())
    );
    let output = run(["put", "-r", "-q", "--xattrs", served.join("tree").to_str().unwrap(), &url("there")]);
    let said = String::from_utf8(output.stderr).unwrap();
    for path in ["directory/file", "directory"] {
        let why = "its access control list was not kept: SETACL: the server does not export the program";
        assert!(said.contains(&format!("{path}: {why}")), "what was lost is told: {said}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(value(&served.join("there/directory/file"), ACCESS), None);
    assert_eq!(server.stop(), Some(0));
}

/// A proxy between the command and an honest server changes names.
#[test]
fn names_that_are_none_are_told_and_nothing_else() {
    let scratch = tempfile::tempdir().unwrap();
    let served = served(scratch.path());
    fs::write(served.join("file"), "octets").unwrap();
    if setxattr(served.join("file"), "user.innocent name", b"x", XattrFlags::empty()).is_err() {
        return;
    }
    let more = ["--no-root-squash", "--tcp", "127.0.0.1:0"];
    let server = Server::start(&served, &scratch.path().join("state"), &more);
    let proxy = proxy::between(server.tcp.as_ref().unwrap(), |record| {
        if let Some(at) = record.windows(13).position(|octets| octets == b"innocent name") {
            record[at..at + 13].copy_from_slice(b"inn\0\x1b[2J name");
        }
    });
    let (url, target) = (format!("nfs://{proxy}/file?version=4.2&transport=tcp"), scratch.path().join("file"));
    let output = run(["get", "--xattrs", &url, target.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("its extended attribute inn\\") && said.contains("was not kept"), "{said}");
    assert!(!said.contains(['\0', '\x1b']), "{said:?}");
    assert!(users(&target).is_empty());
    assert_eq!(fs::read(&target).unwrap(), b"octets");
}
