//! The commands in version 4 of NFS: they do the same in every minor version, over each transport, and need only NFS's
//! port.

mod common;

use common::{Server, contents, describe, fails, run, served};
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A way to call a server.
#[derive(Clone, Copy, Debug)]
struct Way {
    minor: u32,
    /// The version of RPC-over-RDMA; `None` over TCP.
    rdma: Option<u32>,
}

impl Way {
    fn url(self, server: &Server, path: &str) -> String {
        let Self { minor, rdma } = self;
        match rdma {
            Some(rdma) => format!("nfs://{}/{path}?version=4.{minor}&rpcrdma={rdma}", server.rdma),
            None => format!("nfs://{}/{path}?version=4.{minor}&transport=tcp", server.tcp.as_ref().unwrap()),
        }
    }
}

fn start(scratch: &Path, more: &[&str]) -> (PathBuf, Server) {
    let served = served(scratch);
    let all = [&["--no-root-squash", "--tcp", "127.0.0.1:0"], more].concat();
    let server = Server::start(&served, &scratch.join("state"), &all);
    (served, server)
}

/// Tests each way, on a server with every version and on one with minor version 2 only.
fn each_way(test: impl Fn(&Path, &Server, Way)) {
    for (versions, minors) in [("3,4.0,4.1,4.2", 0..=2), ("4.2", 2..=2)] {
        let scratch = tempfile::tempdir().unwrap();
        let (served, server) = start(scratch.path(), &["--nfs", versions]);
        assert_eq!(server.mount.is_empty(), versions == "4.2", "MOUNT is of version 3");
        for minor in minors {
            for rdma in [Some(1), Some(2), None] {
                let way = Way { minor, rdma };
                println!("{way:?} on a server of {versions}");
                test(&served, &server, way);
                for entry in fs::read_dir(&served).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_dir() && !path.is_symlink() {
                        fs::remove_dir_all(path).unwrap();
                    } else {
                        fs::remove_file(path).unwrap();
                    }
                }
            }
        }
        assert_eq!(server.stop(), Some(0));
    }
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_is_there_is_shown() {
    let data = contents(2_500_000);
    each_way(|served, server, way| {
        fs::create_dir_all(served.join("directory/below")).unwrap();
        fs::write(served.join("directory/file"), &data).unwrap();
        symlink("/directory/file", served.join("link")).unwrap();
        assert_eq!(said(&run(["ls", &way.url(server, "")])), "directory\nlink\n");
        let long = said(&run(["ls", "-l", &way.url(server, "directory")]));
        assert!(long.contains("2500000") && long.contains("below"), "{long}");
        let stat: Value =
            serde_json::from_slice(&run(["stat", "--json", &way.url(server, "directory/file")]).stdout).unwrap();
        let here = fs::metadata(served.join("directory/file")).unwrap();
        assert_eq!((&stat["size"], &stat["file_id"]), (&here.len().into(), &here.ino().into()));
        assert!(run(["cat", &way.url(server, "link")]).stdout == data);
        let part = run(["cat", "--offset", "1000000", "--length", "10", &way.url(server, "directory/file")]);
        assert_eq!(part.stdout, &data[1_000_000..1_000_010]);
        let df: Value = serde_json::from_slice(&run(["df", "--json", &way.url(server, "")]).stdout).unwrap();
        let there = rustix::fs::statvfs(served).unwrap();
        assert_eq!(df["size"], there.f_blocks * there.f_frsize);
        run(["ping", "-c", "1", &way.url(server, "")]);
        let missing = fails(1, ["cat", "--json", &way.url(server, "none")]);
        let missing: Value = serde_json::from_str(&missing).unwrap();
        assert_eq!(
            (&missing["error"]["procedure"], &missing["error"]["status"]),
            (&"LOOKUP".into(), &"NFS4ERR_NOENT".into())
        );
        assert!(fails(1, ["cat", &way.url(server, "directory")]).contains("is a directory"));
    });
}

#[test]
fn trees_are_copied_there_and_back() {
    let here = tempfile::tempdir().unwrap();
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    fs::write(tree.join("a/large"), contents(3_000_001)).unwrap();
    for number in 0..20 {
        fs::write(tree.join(format!("a/b/small {number}")), contents(number)).unwrap();
    }
    fs::hard_link(tree.join("a/large"), tree.join("other name")).unwrap();
    symlink("a/large", tree.join("link")).unwrap();
    let expected = describe(&tree);
    each_way(|served, server, way| {
        run(["put".as_ref(), "-r".as_ref(), tree.as_os_str(), way.url(server, "").as_ref()]);
        assert_eq!(describe(&served.join("tree")), expected);
        let back = tempfile::tempdir().unwrap();
        let copy = back.path().join("copy");
        run(["get".as_ref(), "-r".as_ref(), way.url(server, "tree").as_ref(), copy.as_os_str()]);
        assert_eq!(describe(&copy), expected);
        // Again, over the existing files, and in place.
        run(["put".as_ref(), "-r".as_ref(), tree.as_os_str(), way.url(server, "").as_ref()]);
        let large = tree.join("a/large");
        run(["put".as_ref(), "--inplace".as_ref(), large.as_os_str(), way.url(server, "tree/a/large").as_ref()]);
        assert!(fs::read(served.join("tree/a/large")).unwrap() == fs::read(&large).unwrap());
        assert_eq!(fs::read_dir(served.join("tree/a")).unwrap().count(), 2, "nothing is left beside it");
    });
}

#[test]
fn names_are_changed() {
    each_way(|served, server, way| {
        let url = |path: &str| way.url(server, path);
        run(["mkdir", "-p", &url("a/b")]);
        assert!(fails(1, ["mkdir", &url("a")]).contains("exists already"));
        fs::write(served.join("a/file"), b"octets").unwrap();
        run(["mv", &url("a/file"), &url("a/b")]);
        assert_eq!(fs::read(served.join("a/b/file")).unwrap(), b"octets");
        run(["ln", &url("a/b/file"), &url("second")]);
        run(["ln", "-s", "a/b/file", &url("soft")]);
        assert_eq!(fs::metadata(served.join("second")).unwrap().nlink(), 2);
        assert_eq!(fs::read(served.join("soft")).unwrap(), b"octets");
        assert!(fails(1, ["rm", &url("a")]).contains("remove it with -r"));
        run(["rm", &url("soft"), &url("second")]);
        run(["rm", "-r", &url("a")]);
        assert_eq!(fs::read_dir(served).unwrap().count(), 0);
    });
}

#[test]
fn a_server_without_the_version_is_told_in_words() {
    let scratch = tempfile::tempdir().unwrap();
    let (_, server) = start(scratch.path(), &["--nfs", "3"]);
    for minor in 0..=2 {
        for rdma in [Some(1), Some(2), None] {
            let said = fails(1, ["ls", &Way { minor, rdma }.url(&server, "")]);
            assert!(said.contains("the server does not serve version 4 of NFS"), "{said}");
            assert!(said.contains(&format!("version=4.{minor}")), "{said}");
        }
    }
    run(["ls", &server.url("")]);
    let scratch = tempfile::tempdir().unwrap();
    let (_, server) = start(scratch.path(), &["--nfs", "4.1"]);
    for minor in [0, 2] {
        let said = fails(1, ["ls", &Way { minor, rdma: None }.url(&server, "")]);
        assert!(said.contains(&format!("minor version {minor} of NFS version 4")), "{said}");
    }
}

/// The value of a series of the server.
fn value(address: &str, series: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// A command ends its session, whether it has succeeded or not; the server need not wait for the lease.
#[test]
fn a_command_ends_its_session() {
    let scratch = tempfile::tempdir().unwrap();
    let more = ["--nfs", "4.2", "--metrics", "127.0.0.1:0", "--delegations", "off"];
    let (served, server) = start(scratch.path(), &more);
    let metrics = server.metrics();
    fs::write(served.join("file"), contents(100_000)).unwrap();
    let file = scratch.path().join("file");
    for rdma in [Some(1), Some(2), None] {
        let way = Way { minor: 2, rdma };
        run(["get".as_ref(), way.url(&server, "file").as_ref(), file.as_os_str(), "--inplace".as_ref()]);
        run(["put".as_ref(), file.as_os_str(), way.url(&server, "copy").as_ref()]);
        fails(1, ["cat", &way.url(&server, "file"), &way.url(&server, "none")]);
    }
    let begin = Instant::now();
    let counted = |operation| {
        value(&metrics, &format!("rpcrdma_nfs4_operations_total{{operation=\"{operation}\",status=\"OK\"}}"))
    };
    // The server updates these figures each second.
    while counted("DESTROY_CLIENTID") != Some(9.0) || value(&metrics, "rpcrdma_nfs4_clients") != Some(0.0) {
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", counted("DESTROY_CLIENTID"));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(counted("OPEN"), counted("CLOSE"));
    assert_eq!(value(&metrics, "rpcrdma_nfs4_sessions"), Some(0.0));
    assert_eq!(server.stop(), Some(0));
}
