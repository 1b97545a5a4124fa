//! `nconnect=N`: the client spreads calls over so many connections, and a cut connection only makes it repeat calls.

mod common;

use common::{Server, contents, counting::counting, fails, run, served};
use std::{fs, path::Path};

const OCTETS: usize = 24 << 20;
/// After how many bytes a connection is cut: each of three carries at least a quarter of its share.
const CUT_AT_BYTES: u64 = 1 << 20;
/// Every version of NFS over every transport.
const WAYS: [&str; 9] = [
    "version=3&transport=tcp",
    "version=4.0&transport=tcp",
    "version=4.1&transport=tcp",
    "version=4.2&transport=tcp",
    "version=3&rpcrdma=1",
    "version=3&rpcrdma=2",
    "version=4.0&rpcrdma=2",
    "version=4.2&rpcrdma=1",
    "version=4.2&rpcrdma=2",
];

fn start(scratch: &Path) -> Server {
    let served = served(scratch);
    fs::write(served.join("file"), contents(OCTETS)).unwrap();
    fs::write(scratch.join("local"), contents(OCTETS + 1)).unwrap();
    Server::start(&served, &scratch.join("state"), &["--no-root-squash", "--tcp", "127.0.0.1:0"])
}

/// The address of NFS over the transport of a way, and MOUNT's port if the way needs it.
fn ends(server: &Server, way: &str) -> (String, String) {
    let to = if way.contains("tcp") { server.tcp.clone().unwrap() } else { server.rdma.clone() };
    let (_, port) = server.mount.rsplit_once(':').unwrap();
    let mount = if way.contains("version=3") { format!("&mountport={port}") } else { String::new() };
    (to, mount)
}

#[test]
fn calls_are_spread_over_so_many_connections() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path());
    for way in WAYS {
        for connections in [1, 2, 4] {
            let (to, mount) = ends(&server, way);
            let (address, counted) = counting(&to, None);
            let url = format!("nfs://{address}/file?{way}&nconnect={connections}{mount}");
            assert!(run(["cat", &url]).stdout == contents(OCTETS), "{url}");
            let octets = counted.octets();
            assert_eq!(octets.len(), connections, "{url}");
            let least = OCTETS as u64 / connections as u64 / 4;
            assert!(octets.iter().all(|octets| *octets > least), "each carries its share in {url}: {octets:?}");
        }
    }
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_connection_that_is_cut_costs_a_repetition() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path());
    let local = scratch.path().join("local");
    for way in WAYS {
        // The first connection also carries the calls that make the session.
        for cut in [0, 2] {
            let (to, mount) = ends(&server, way);
            let (address, counted) = counting(&to, Some((cut, CUT_AT_BYTES)));
            let url = |path: &str| format!("nfs://{address}/{path}?{way}&nconnect=3{mount}");
            run(["put".as_ref(), "-q".as_ref(), local.as_os_str(), url("new").as_ref()]);
            let there = served(scratch.path()).join("new");
            assert!(fs::read(&there).unwrap() == contents(OCTETS + 1), "{way}");
            assert_eq!(counted.octets().len(), 4, "the one that was cut was made again, and no other: {way}");
            fs::remove_file(there).unwrap();
            let (address, counted) = counting(&to, Some((cut, CUT_AT_BYTES)));
            let url = format!("nfs://{address}/file?{way}&nconnect=3{mount}");
            assert!(run(["cat", &url]).stdout == contents(OCTETS), "{way}");
            assert_eq!(counted.octets().len(), 4, "{way}");
        }
    }
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn how_many_there_may_be_is_said() {
    for wrong in ["0", "17", "x", ""] {
        let said = fails(2, ["ls", &format!("nfs://host/?nconnect={wrong}")]);
        assert!(said.contains("it is a number from 1 to 16"), "{said}");
    }
}
