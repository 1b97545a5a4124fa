//! `rpcrdma cp`: trees are the same at the target, whichever end moves the bytes, and the command refuses with a clear
//! message what it cannot copy.

mod common;

use common::{Server, contents, describe, fails, rpcrdma, run, served};
use serde_json::Value;
use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

/// A tree with everything that copying often gets wrong.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("directory/empty")).unwrap();
    for size in [0, 1, 4096, (1 << 20) + 1] {
        fs::write(root.join(format!("size-{size}")), contents(size)).unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(b"in the middle", (32 << 20) + 12_345).unwrap();
    fs::write(root.join("directory/file"), b"below").unwrap();
    fs::hard_link(root.join("size-4096"), root.join("directory/second name")).unwrap();
    symlink("directory/file", root.join("link")).unwrap();
    symlink("/nowhere/at all", root.join("dangling")).unwrap();
    fs::set_permissions(root.join("size-1"), Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(root.join("directory/empty"), Permissions::from_mode(0o1777)).unwrap();
    for (days, name) in [(1, "size-0"), (1000, "directory/file"), (3000, "directory")] {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400) + Duration::from_nanos(123_456_789);
        File::open(root.join(name)).unwrap().set_modified(time).unwrap();
    }
}

fn start(scratch: &Path, name: &str) -> (PathBuf, Server) {
    let home = scratch.join(name);
    fs::create_dir(&home).unwrap();
    let served = served(&home);
    let server = Server::start(&served, &home.join("state"), &["--no-root-squash", "--tcp", "127.0.0.1:0"]);
    (served, server)
}

/// A URL in a version of NFS, over a version of RPC-over-RDMA or TCP.
fn url(server: &Server, version: &str, carrier: &str, path: &str) -> String {
    let url = match carrier {
        "tcp" => server.tcp_url(path),
        carrier => server.url_in(carrier, path),
    };
    format!("{url}&version={version}")
}

fn told(args: &[&str]) -> Value {
    serde_json::from_slice(&run([&["cp", "--json"], args].concat()).stdout).unwrap()
}

fn storage(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn a_tree_is_copied_within_a_server() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, server) = start(scratch.path(), "one");
    make_tree(&served.join("tree"));
    let expected = describe(&served.join("tree"));
    for (version, carrier) in [("4.2", "1"), ("4.2", "2"), ("4.2", "tcp"), ("4.1", "2"), ("4.0", "tcp"), ("3", "1")] {
        println!("version {version} over {carrier}");
        let [from, to] = ["tree", "copy"].map(|path| url(&server, version, carrier, path));
        let first = told(&["-r", &from, &to]);
        assert_eq!(describe(&served.join("copy")), expected);
        assert!(storage(&served.join("copy/sparse")) < 16 << 20, "the holes are holes");
        let (by_server, through) = (&first["octets_by_server"], &first["octets_through_here"]);
        if version == "4.2" {
            let moved = by_server.as_u64().unwrap();
            assert!((1 << 20) < moved && moved <= (64 << 20) + (2 << 20) && *through == 0, "{first}");
        } else {
            assert!(*by_server == 0 && through.as_u64().unwrap() > 1 << 20, "{first}");
        }
        assert_eq!((&first["errors"], &first["attributes_not_kept"]), (&0.into(), &0.into()));
        // Again, over the existing files, and into the directory under its own name.
        let copy = url(&server, version, carrier, "copy");
        fs::create_dir(served.join("into")).unwrap();
        run(["cp", "-r", "-q", &from, &url(&server, version, carrier, "into")]);
        fs::rename(served.join("into/tree"), served.join("into/copy")).unwrap();
        run(["cp", "-r", "-q", &copy, &url(&server, version, carrier, "into")]);
        assert_eq!(describe(&served.join("into/copy")), expected);
        for done in ["copy", "into"] {
            fs::remove_dir_all(served.join(done)).unwrap();
        }
    }
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, served.join("pipe"), pipe, mode, 0).unwrap();
    for _ in 0..2 {
        let made = told(&[&url(&server, "4.2", "2", "pipe"), &url(&server, "4.2", "2", "another")]);
        assert_eq!(made["special"], 1, "one that is there counts as made");
    }
    assert!(fs::metadata(served.join("another")).unwrap().file_type().is_fifo());
    let said = fails(1, ["cp", &url(&server, "4.2", "2", "pipe"), &url(&server, "4.2", "2", "tree/size-1")]);
    assert!(said.contains("exists at the target and is another file"), "{said}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_tree_is_copied_from_server_to_server() {
    let scratch = tempfile::tempdir().unwrap();
    let ((here, one), (there, other)) = (start(scratch.path(), "one"), start(scratch.path(), "other"));
    make_tree(&here.join("tree"));
    fs::set_permissions(here.join("tree/size-4096"), Permissions::from_mode(0o4755)).unwrap();
    for ((from, by), (to, over)) in
        [(("3", "1"), ("4.2", "tcp")), (("4.2", "2"), ("3", "2")), (("4.2", "tcp"), ("4.1", "1"))]
    {
        println!("from version {from} over {by} to {to} over {over}");
        let first = told(&["-r", &url(&one, from, by, "tree"), &url(&other, to, over, "copy")]);
        assert!(first["octets_by_server"] == 0 && first["errors"] == 0, "{first}");
        // `cp` does not trust another server's set-user-id bit.
        let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(there.join("copy/size-4096")), 0o755);
        fs::set_permissions(there.join("copy/size-4096"), Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(describe(&there.join("copy")), describe(&here.join("tree")));
        assert!(storage(&there.join("copy/sparse")) < 16 << 20, "the holes are holes");
        if from == "4.2" {
            assert!(first["octets"].as_u64().unwrap() < 16 << 20, "holes are not read: {first}");
        }
        fs::remove_dir_all(there.join("copy")).unwrap();
    }
    assert!(one.stop() == Some(0) && other.stop() == Some(0));
}

#[test]
fn what_leads_nowhere_is_refused_in_words() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, server) = start(scratch.path(), "one");
    fs::create_dir_all(served.join("tree/below")).unwrap();
    fs::create_dir_all(served.join("other/tree")).unwrap();
    for (file, text) in [("file", "octets"), ("tree/file", "first"), ("other/tree/file", "second")] {
        fs::write(served.join(file), text).unwrap();
    }
    fs::hard_link(served.join("file"), served.join("second name")).unwrap();
    for version in ["3", "4.2"] {
        let url = |path: &str| url(&server, version, "2", path);
        for (from, to, why) in [
            ("file", "file", "is the same file as its target"),
            ("file", "second%20name", "is the same file as its target"),
            ("tree", "tree", "cannot be copied into itself"),
            ("tree", "tree/below", "cannot be copied into itself"),
            ("tree", "tree/below/new", "cannot be copied into itself"),
            ("", "tree", "has no name of its own"),
            ("none", "copy", "ERR_NOENT"),
        ] {
            let said = fails(1, ["cp", "-r", &url(from), &url(to)]);
            assert!(said.contains(why), "{from} to {to}: {said}");
        }
        assert!(fails(1, ["cp", &url("tree"), &url("copy")]).contains("copy it with -r"));
        assert!(fails(1, ["cp", &url("file"), &url("tree/file"), &url("copy")]).contains("is not a directory"));
        let said = fails(1, ["cp", "-r", &url("tree"), &url("other/tree"), &url("tree/below")]);
        assert!(said.contains("cannot be copied into itself"), "{said}");
        // Two files of the same name into one directory.
        fs::create_dir(served.join("into")).unwrap();
        let said = fails(1, ["cp", "-r", &url("tree/file"), &url("other/tree/file"), &url("into")]);
        assert!(said.contains("would overwrite what this run has just copied"), "{said}");
        assert_eq!(fs::read(served.join("into/file")).unwrap(), b"first");
        fs::remove_dir_all(served.join("into")).unwrap();
        fs::remove_dir_all(served.join("tree/below")).unwrap();
        fs::create_dir(served.join("tree/below")).unwrap();
    }
    // The same server over another transport.
    let said = fails(1, ["cp", &url(&server, "3", "1", "file"), &url(&server, "4.2", "2", "file")]);
    assert!(said.contains("is the same file as its target"), "{said}");
    let said = fails(1, ["cp", "-r", &url(&server, "3", "1", "tree"), &url(&server, "4.2", "2", "tree/below")]);
    assert!(said.contains("cannot be copied into itself"), "{said}");
    assert_eq!(names(&served), ["file", "other", "second name", "tree"]);
    assert_eq!(fs::read(served.join("file")).unwrap(), b"octets");
}

#[test]
fn what_is_there_stays_until_the_copy_is_whole() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, server) = start(scratch.path(), "one");
    fs::write(served.join("file"), contents(100_000)).unwrap();
    fs::write(served.join("old"), "old").unwrap();
    fs::write(served.join("named"), "long enough to be cut off").unwrap();
    fs::hard_link(served.join("named"), served.join("twice")).unwrap();
    symlink("old", served.join("link")).unwrap();
    for version in ["3", "4.2"] {
        let url = |path: &str| url(&server, version, "2", path);
        let number = fs::metadata(served.join("old")).unwrap().ino();
        run(["cp", &url("file"), &url("old")]);
        assert!(fs::read(served.join("old")).unwrap() == contents(100_000));
        assert_ne!(fs::metadata(served.join("old")).unwrap().ino(), number, "another file has taken its place");
        let noted = run(["cp", "-v", &url("file"), &url("named")]);
        let noted = String::from_utf8(noted.stderr).unwrap();
        assert!(noted.contains("is written in place at the target: it has several names"), "{noted}");
        let way = if version == "3" { "went through this host" } else { "the server" };
        assert!(noted.contains(way) && noted.contains("by the server itself"), "{noted}");
        assert!(fs::read(served.join("twice")).unwrap() == contents(100_000));
        let said = fails(1, ["cp", &url("file"), &url("dangling/file")]);
        assert!(said.contains("ERR_NOENT"), "{said}");
        // As with cp, a link to a file stands for the file.
        run(["cp", "--no-attributes", &url("link"), &url("from%20link")]);
        assert!(fs::metadata(served.join("from link")).unwrap().is_file());
        fs::remove_file(served.join("from link")).unwrap();
        fs::write(served.join("old"), "old").unwrap();
        fs::write(served.join("named"), "long enough to be cut off").unwrap();
    }
    assert_eq!(names(&served), ["file", "link", "named", "old", "twice"], "nothing is left beside");
}

/// Waits until another process has done something.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interrupted_copy_takes_its_temporary_file_with_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, server) = start(scratch.path(), "one");
    // In version 3 the command must read holes, so this takes long.
    File::create(served.join("large")).unwrap().set_len(64 << 30).unwrap();
    fs::write(served.join("target"), "old").unwrap();
    let [from, to] = ["large", "target"].map(|path| url(&server, "3", "2", path));
    let mut copy = rpcrdma().args(["cp", &from, &to]).stderr(Stdio::piped()).spawn().unwrap();
    until("a temporary file", || names(&served).iter().any(|name| name.starts_with(".target.rpcrdma-")));
    let pid = copy.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(copy.wait().unwrap().code(), Some(128 + 15));
    assert_eq!(names(&served), ["large", "target"]);
    assert_eq!(fs::read(served.join("target")).unwrap(), b"old");
}
