//! NFS version 2, over RDMA and over TCP: the commands against the server, its counts and captures of them, and
//! malformed calls.

mod common;

use common::{Server, contents, fails, run};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Output, Stdio},
};

/// A server of version 2, and perhaps of others.
struct Served {
    server: Server,
    scratch: tempfile::TempDir,
}

impl Served {
    fn new(versions: &str, more: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let served = scratch.path().join("served");
        fs::create_dir(&served).unwrap();
        fs::set_permissions(&served, fs::Permissions::from_mode(0o777)).unwrap();
        let usual = ["--no-root-squash", "--nfs", versions, "--tcp", "127.0.0.1:0"];
        let server = Server::start(&served, &scratch.path().join("state"), &[&usual[..], more].concat());
        Self { server, scratch }
    }

    /// URLs of a path over RDMA in version 1, which tshark reads, and over TCP.
    fn urls(&self, path: &str) -> [String; 2] {
        let mount = port(&self.server.mount);
        let (rdma, tcp) = (&self.server.rdma, self.server.tcp.as_ref().unwrap());
        [
            format!("nfs://{rdma}/{path}?version=2&rpcrdma=1&mountport={mount}"),
            format!("nfs://{tcp}/{path}?version=2&transport=tcp&mountport={mount}"),
        ]
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

fn port(address: &str) -> &str {
    address.rsplit_once(':').unwrap().1
}

fn said(output: Output) -> String {
    String::from_utf8(output.stdout).unwrap()
}

/// A tree with files of many sizes, links, and more names than one reply has.
fn make_tree(at: &Path) {
    fs::create_dir_all(at.join("names")).unwrap();
    for size in [0, 1, 4095, 8191, 8192, 8193, 300_001] {
        fs::write(at.join(format!("of-{size}")), contents(size)).unwrap();
    }
    for number in 0..700 {
        fs::write(at.join(format!("names/{}-{number}", "n".repeat(number % 200))), [7; 3]).unwrap();
    }
    fs::hard_link(at.join("of-1"), at.join("again")).unwrap();
    symlink("names/../of-1", at.join("link")).unwrap();
    fs::set_permissions(at.join("of-1"), fs::Permissions::from_mode(0o750)).unwrap();
}

fn same(here: &Path, there: &Path) {
    let compared = Command::new("diff").args(["-r", "--no-dereference"]).args([here, there]).output().unwrap();
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
    let modified = |at: &Path| fs::metadata(at.join("of-1")).unwrap().modified().unwrap();
    let differs = modified(here).duration_since(modified(there)).unwrap_or_default();
    assert!(differs.as_nanos() < 1000, "to the microsecond: {differs:?}");
    assert_eq!(fs::metadata(there.join("of-1")).unwrap().permissions().mode() & 0o7777, 0o750);
}

/// proves: NFS2-1094-2.2-a, ULB-3-a
#[test]
fn every_command_does_its_work_in_version_2() {
    let served = Served::new("2", &[]);
    make_tree(&served.path("tree"));
    for (at, url) in served.urls("PATH").into_iter().enumerate() {
        let url = |path: &str| url.replace("PATH", path);
        let top = format!("top-{at}");
        run(["mkdir", &url(&top)]);
        run(["put", "-q", "-r", &served.text("tree"), &url(&format!("{top}/tree"))]);
        same(&served.path("tree"), &served.path(&format!("served/{top}/tree")));
        run(["get", "-q", "-r", &url(&format!("{top}/tree")), &served.text(&format!("back-{at}"))]);
        same(&served.path("tree"), &served.path(&format!("back-{at}")));
        run(["cp", "-q", "-r", &url(&format!("{top}/tree")), &url(&format!("{top}/copy"))]);
        same(&served.path("tree"), &served.path(&format!("served/{top}/copy")));
        assert_eq!(said(run(["ls", &url(&format!("{top}/copy/names"))])).lines().count(), 700);
        assert!(said(run(["ls", "-l", &url(&format!("{top}/copy"))])).contains("link -> names/../of-1"));
        assert_eq!(run(["cat", &url(&format!("{top}/copy/of-8193"))]).stdout, contents(8193));
        let told = said(run(["stat", &url(&format!("{top}/tree/of-8192"))]));
        assert!(told.contains("size: 8192 bytes") && told.contains("mode: 0644"), "{told}");
        assert!(!said(run(["df", &url("")])).is_empty());
        run(["mv", &url(&format!("{top}/copy/of-0")), &url(&format!("{top}/moved"))]);
        assert_eq!(fs::metadata(served.path(&format!("served/{top}/moved"))).unwrap().len(), 0);
        run(["rm", "-r", &url(&format!("{top}/copy"))]);
        assert!(!served.path(&format!("served/{top}/copy")).exists());
        assert!(fails(1, ["cat", &url("none")]).contains("NFSERR_NOENT"));
        let told = said(run(["ping", "-v", "-c", "1", &url("")]));
        assert!(told.contains("NFS version 2; the server serves 2\n"), "{told}");
    }
    assert_eq!(served.server.stop(), Some(0));
}

/// proves: NFS2-SIZE-a, NFS2-SIZE-b, NFS2-SIZE-c
#[test]
fn no_part_of_a_large_file_is_taken_for_the_whole() {
    let served = Served::new("2,3", &[]);
    let large = fs::File::create(served.path("served/large")).unwrap();
    large.set_len(5 << 30).unwrap();
    fs::File::create(served.path("too-large")).unwrap().set_len((4 << 30) + 5).unwrap();
    for url in served.urls("PATH") {
        let url = |path: &str| url.replace("PATH", path);
        assert!(said(run(["ls", "-l", &url("")])).contains("4294967295"), "it is seen");
        let told = fails(1, ["get", "-q", &url("large"), &served.text("part")]);
        assert!(told.contains("NFSERR_FBIG"), "{told}");
        assert!(!served.path("part").exists());
        let told = fails(1, ["put", "-q", &served.text("too-large"), &url("new")]);
        assert!(told.contains("NFSERR_FBIG"), "{told}");
        assert!(!served.path("served/new").exists());
    }
    run(["rm", &served.urls("large")[0]]);
    assert!(!served.path("served/large").exists());
}

#[test]
fn version_2_is_spoken_where_both_ends_ask_for_it() {
    let served = Served::new("2,3,4.2", &[]);
    let [_, url] = served.urls("");
    let highest = url.replace("version=2&", "");
    assert!(said(run(["ping", "-v", "-c", "1", &highest])).contains("NFS version 4.2; the server serves 2, 3, 4.2\n"));
    assert!(said(run(["ping", "-v", "-c", "1", &url])).contains("NFS version 2;"));
    assert_eq!(served.server.stop(), Some(0));
    let usual = Served::new("3", &[]);
    let [_, url] = usual.urls("");
    let told = fails(1, ["ls", &url]);
    assert!(told.contains("MNT"), "{told}");
    assert_eq!(usual.server.stop(), Some(0));
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// What tshark prints of the packets that `filter` lets through. `None` if tshark is not installed.
fn tshark(file: &Path, filter: &str) -> Option<String> {
    let mut command = Command::new("tshark");
    command.args(["-Y", filter]).arg("-r").arg(file).args(["-T", "fields", "-e", "_ws.col.Info"]);
    let output = command.stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn what_is_done_is_counted_and_can_be_read_from_captures() {
    let served = Served::new("2", &["--metrics", "127.0.0.1:0"]);
    fs::write(served.path("served/data"), contents(20_000)).unwrap();
    let [rdma, tcp] = served.urls("PATH");
    let url = |path: &str| rdma.replace("PATH", path);
    let capture = served.text("get.pcapng");
    run(["get", "-q", "--capture", &capture, &url("data"), &served.text("copy")]);
    run(["put", "-q", "--capture", &served.text("put.pcapng"), &served.text("copy"), &url("again")]);
    run(["cat", &tcp.replace("PATH", "data")]);
    let counted = scrape(&served.server.metrics());
    for (procedure, transport) in [("READ", "rdma"), ("READ", "tcp"), ("WRITE", "rdma"), ("CREATE", "rdma")] {
        let is_it = |line: &str| {
            let labels = ["nfs2", procedure, transport, "OK"].map(|label| format!("\"{label}\""));
            line.starts_with("rpcrdma_calls_total{") && labels.iter().all(|label| line.contains(label))
        };
        assert!(counted.lines().any(is_it), "{procedure} {transport}: {counted}");
    }
    let read = said(run(["decode", &capture]));
    for told in ["Call NFS 2 LOOKUP ", " \"data\"", "Call NFS 2 READ ", "Reply NFS_OK ", "RDMA Write 0x"] {
        assert!(read.contains(told), "{told}: {read}");
    }
    let ladder = said(run(["decode", "--ladder", &served.text("put.pcapng")]));
    assert!(ladder.contains("NFS 2 WRITE") && !ladder.contains("does not decode"), "{ladder}");
    for (file, calls) in [("get.pcapng", ["LOOKUP", "READ"]), ("put.pcapng", ["CREATE", "WRITE"])] {
        let Some(named) = tshark(&served.path(file), "nfs") else { return };
        for call in calls {
            assert!(named.contains(&format!("V2 {call} Call")), "{file}: no {call} in {named}");
        }
        // If RDMA Write has placed a reply's data in the same TCP segment, tshark reads the reply twice, and finds the
        // data only the second time.
        let wrong = tshark(&served.path(file), "_ws.malformed").unwrap();
        assert!(wrong.lines().all(|line| line.starts_with("V2 READ Reply")), "{file}: {wrong}");
    }
}

/// A call of version 2 over TCP, and the words of its reply behind the record's mark.
fn call(stream: &mut TcpStream, procedure: u32, arguments: &[u8]) -> Vec<u32> {
    let words = [7, 0, 2, 100_003, 2, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0];
    let mut message: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
    message.extend(arguments);
    let mark = 0x8000_0000 | u32::try_from(message.len()).unwrap();
    stream.write_all(&[&mark.to_be_bytes()[..], &message].concat()).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7FFF_FFFF) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

/// proves: NFS2-FH-a
#[test]
fn hostile_calls_are_answered_and_others_notice_nothing() {
    let served = Served::new("2", &[]);
    fs::write(served.path("served/data"), contents(100)).unwrap();
    let mut stream = TcpStream::connect(served.server.tcp.as_ref().unwrap()).unwrap();
    let (garbage, stale) = ([7, 1, 0, 0, 0, 4], 70);
    for octet in [0, 1, 2, 3, 0xFF] {
        for procedure in 1..18 {
            for octets in [0, 31, 32, 36, 64, 100, 9000] {
                let reply = call(&mut stream, procedure, &vec![octet; octets]);
                let executed = [7, 1, 0, 0, 0, 0];
                assert!(reply == garbage || reply[..6] == executed, "{procedure} {octet} {octets}: {reply:?}");
                // The server does nothing without a handle that needs one.
                if reply != garbage && !matches!(procedure, 3 | 7) {
                    assert_eq!(reply[6..], [stale], "{procedure} {octet} {octets}");
                }
            }
        }
    }
    assert_eq!(call(&mut stream, 18, &[])[5], 3, "there is no such procedure");
    assert_eq!(run(["cat", &served.urls("data")[0]]).stdout, contents(100));
    assert_eq!(served.server.stop(), Some(0));
}
