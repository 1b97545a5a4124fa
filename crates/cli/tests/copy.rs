//! Trees that are copied to a server and back are identical, whatever they contain.

mod common;

use common::{Server, contents, describe, fails, run};
use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    time::{Duration, SystemTime},
};

/// A tree with everything that copying often gets wrong.
fn make_tree(root: &Path) {
    fs::create_dir(root).unwrap();
    for size in [0, 1, 3, 4095, 4096, 4097, (1 << 20) + 1] {
        fs::write(root.join(format!("size-{size}")), contents(size)).unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(5 << 30).unwrap();
    sparse.write_all_at(b"in the middle", (4 << 30) + 12_345).unwrap();
    sparse.write_all_at(b"at the end", (5 << 30) - 10).unwrap();
    fs::create_dir(root.join("directory")).unwrap();
    fs::create_dir(root.join("directory/empty")).unwrap();
    fs::write(root.join("directory/file"), b"below").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"odd \xff\xfe name\n")), b"odd").unwrap();
    fs::write(root.join("n".repeat(255)), b"long").unwrap();
    symlink("directory/file", root.join("link")).unwrap();
    symlink("/nowhere/at all", root.join("dangling")).unwrap();
    fs::hard_link(root.join("size-4097"), root.join("directory/second name")).unwrap();
    fs::write(root.join("read-only"), b"read me").unwrap();
    fs::set_permissions(root.join("read-only"), Permissions::from_mode(0o444)).unwrap();
    fs::write(root.join("program"), b"#!/bin/true").unwrap();
    fs::set_permissions(root.join("program"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(root.join("directory/empty"), Permissions::from_mode(0o1777)).unwrap();
    for (days, name) in [(1, "size-1"), (1000, "directory/file"), (3000, "directory")] {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400) + Duration::from_nanos(123_456_789);
        File::open(root.join(name)).unwrap().set_modified(time).unwrap();
    }
}

fn storage_bytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Puts a tree on a server, gets it back, and compares three times.
fn there_and_back(url: impl Fn(&Server, &str) -> String, more: &[&str]) {
    let scratch = tempfile::tempdir().unwrap();
    let (local, served, back) =
        (scratch.path().join("local"), scratch.path().join("served"), scratch.path().join("back"));
    make_tree(&local);
    fs::create_dir(&served).unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), more);

    run(["put".as_ref(), "-r".as_ref(), local.as_os_str(), url(&server, "copy").as_ref()]);
    assert_eq!(describe(&served.join("copy")), describe(&local));
    assert!(storage_bytes(&served.join("copy/sparse")) < 16 << 20, "the holes are holes on the server");

    run(["get".as_ref(), "-r".as_ref(), OsStr::new(&url(&server, "copy")), back.as_os_str()]);
    assert_eq!(describe(&back), describe(&local));
    assert!(storage_bytes(&back.join("sparse")) < 16 << 20, "and here");

    // Again, over the existing files.
    run(["put".as_ref(), "-r".as_ref(), local.as_os_str(), url(&server, "").as_ref()]);
    run(["put".as_ref(), "-r".as_ref(), local.as_os_str(), url(&server, "").as_ref()]);
    assert_eq!(describe(&served.join("local")), describe(&local), "into a directory, by its own name");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_tree_goes_there_and_back_over_rdma() {
    there_and_back(|server, path| server.url_in("2", path), &["--no-root-squash"]);
}

#[test]
fn a_tree_goes_there_and_back_in_version_1() {
    there_and_back(|server, path| server.url_in("1", path), &["--no-root-squash"]);
}

#[test]
fn a_tree_goes_there_and_back_over_tcp() {
    there_and_back(Server::tcp_url, &["--no-root-squash", "--tcp", "127.0.0.1:0"]);
}

#[test]
fn single_files_are_copied_to_names_and_into_directories() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir_all(served.join("directory")).unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash"]);
    let file = scratch.path().join("file");
    fs::write(&file, b"contents").unwrap();
    run(["put".as_ref(), file.as_os_str(), server.url("new").as_ref()]);
    run(["put".as_ref(), file.as_os_str(), server.url("directory").as_ref()]);
    assert_eq!(fs::read(served.join("new")).unwrap(), b"contents");
    assert_eq!(fs::read(served.join("directory/file")).unwrap(), b"contents");
    let missing = fails(1, ["put".as_ref(), file.as_os_str(), server.url("none/new").as_ref()]);
    assert!(missing.contains("NFS4ERR_NOENT"), "{missing}");

    let out = scratch.path().join("out");
    run(["get".as_ref(), OsStr::new(&server.url("directory/file")), out.as_os_str()]);
    assert_eq!(fs::read(&out).unwrap(), b"contents");
    let several = fails(1, ["get", &server.url("new"), &server.url("directory/file"), out.to_str().unwrap()]);
    assert!(several.contains("not a directory"), "{several}");
    let directory = fails(1, ["get", &server.url("directory"), scratch.path().to_str().unwrap()]);
    assert!(directory.contains("-r"), "{directory}");

    assert_eq!(run(["cat", &server.url("new"), &server.url("directory/file")]).stdout, b"contentscontents");
}

#[test]
fn parts_of_files_are_written_to_standard_output() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    let all = contents((2 << 20) + 4321);
    fs::write(served.join("file"), &all).unwrap();
    let sparse = File::create(served.join("sparse")).unwrap();
    sparse.write_all_at(b"beyond", (5 << 30) + 3).unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash"]);
    let size = all.len();
    for version in ["1", "2"] {
        let part = |more: &[&str]| run([&["cat", &server.url_in(version, "file")], more].concat()).stdout;
        assert!(part(&[]) == all && part(&["--offset", "0"]) == all);
        assert!(part(&["--offset", "1M"]) == all[1 << 20..]);
        assert!(part(&["--length", "1M"]) == all[..1 << 20]);
        assert!(part(&["--offset", "5", "--length", "70001"]) == all[5..70_006]);
        let (last, end, beyond) = ((size - 1).to_string(), size.to_string(), (size + 1).to_string());
        assert_eq!(part(&["--offset", &last, "--length", "1"]), all[size - 1..]);
        assert_eq!(part(&["--offset", &last, "--length", "2"]), all[size - 1..], "as much as there is");
        assert!(part(&["--length", &beyond]) == all);
        for nothing in
            [&["--offset", &end][..], &["--offset", &beyond], &["--offset", "18446744073709551615"], &["--length", "0"]]
        {
            assert!(part(nothing).is_empty(), "{nothing:?}");
        }
        let sparse = server.url_in(version, "sparse");
        let across = run(["cat", "--offset", "5G", "--length", "1K", &sparse]).stdout;
        assert_eq!(across, b"\0\0\0beyond");
        // From each file.
        let both = run(["cat", "--offset", "5G", &sparse, &server.url_in(version, "file")]).stdout;
        assert_eq!(both, b"\0\0\0beyond");
        assert!(fails(1, ["cat", "--length", "0", &server.url_in(version, "none")]).contains("no such file"));
    }
    assert!(fails(2, ["cat", "--offset=-1", &server.url("file")]).contains("not a size"));
    assert!(fails(2, ["cat", "--length", "1X", &server.url("file")]).contains("not a size"));
    assert_eq!(server.stop(), Some(0));
}

/// An existing symbolic link does not redirect a copy.
#[test]
fn nothing_is_written_through_a_symbolic_link() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir_all(served.join("tree/directory")).unwrap();
    fs::write(served.join("tree/file"), b"new").unwrap();
    fs::write(served.join("tree/directory/file"), b"new").unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash"]);
    let (outside, into) = (scratch.path().join("outside"), scratch.path().join("into"));
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(&into).unwrap();
    fs::write(outside.join("file"), b"old").unwrap();
    symlink(outside.join("file"), into.join("file")).unwrap();
    symlink(&outside, into.join("directory")).unwrap();
    let error =
        fails(1, ["get", "-r", &server.url("tree/file"), &server.url("tree/directory"), into.to_str().unwrap()]);
    assert_eq!(error.lines().count(), 5, "two errors, the summary, and both once more: {error}");
    assert!(error.lines().last().unwrap().starts_with("rpcrdma: left out: "), "{error}");
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"old");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}
