//! Locks of NFS version 3 as `serve` offers them: where NLM and NSM listen, and the server's notices to hosts with
//! locks after a restart. Sockets of this machine stand for a client's portmapper and statd.

mod common;

use common::{PATIENCE, rpcrdma, served};
use serde_json::Value;
use std::{
    fs,
    hash::Hasher as _,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

const NSM: u32 = 100_024;
const STAT: u32 = 1;
const NOTIFY: u32 = 6;
/// The client's host, which no other test uses.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 119);

struct Server {
    child: Child,
    ready: Value,
}

impl Server {
    fn start(scratch: &Path, more: &[&str]) -> Self {
        let mut command = rpcrdma();
        command.arg("serve").arg(served(scratch)).arg("--json").arg("--state").arg(scratch.join("state"));
        command.args(["--listen", "127.0.0.1:0", "--mountd", "127.0.0.1:0"]).args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ready: {line:?}"));
        Self { child, ready: ready["ready"].clone() }
    }

    fn all(&self, service: &str) -> Vec<SocketAddr> {
        let all = self.ready[service].as_array().unwrap();
        all.iter().map(|address| address.as_str().unwrap().parse().unwrap()).collect()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn text(text: &[u8]) -> Vec<u8> {
    let mut octets = words(&[text.len() as u32]);
    octets.extend_from_slice(text);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

fn call(xid: u32, program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let mut octets = words(&[xid, 0, 2, program, version, procedure, 0, 0, 0, 0]);
    octets.extend_from_slice(arguments);
    octets
}

fn reply(call: &[u8], results: &[u8]) -> Vec<u8> {
    let mut octets = call[..4].to_vec();
    octets.extend_from_slice(&words(&[1, 0, 0, 0, 0]));
    octets.extend_from_slice(results);
    octets
}

fn word(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[4 * at..4 * at + 4].try_into().unwrap())
}

fn over_udp(to: SocketAddr, call: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(call, to).unwrap();
    let mut octets = vec![0; 2000];
    let (len, from) = socket.recv_from(&mut octets).unwrap();
    assert_eq!(from, to);
    octets.truncate(len);
    octets
}

fn over_tcp(to: SocketAddr, call: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[&words(&[0x8000_0000 | call.len() as u32]), call].concat()).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut octets = vec![0; (u32::from_be_bytes(mark) & 0x7FFF_FFFF) as usize];
    stream.read_exact(&mut octets).unwrap();
    octets
}

/// The answer of SM_STAT about a host that nobody monitors: failure, and the state number.
fn state(octets: &[u8]) -> u32 {
    assert_eq!((octets.len(), word(octets, 1), word(octets, 5), word(octets, 6)), (32, 1, 0, 1), "{octets:?}");
    word(octets, 7)
}

#[test]
fn nsm_answers_over_tcp_and_udp_where_the_ready_line_says() {
    let scratch = tempfile::tempdir().unwrap();
    let server = Server::start(scratch.path(), &["--nfs", "3", "--statd", "127.0.0.1:0", "--statd", "127.0.0.1:0"]);
    let statd = server.all("statd");
    assert_eq!((statd.len(), server.all("lockd").len()), (2, 1));
    for at in statd {
        let stat = call(7, NSM, 1, STAT, &text(b"client1"));
        assert_eq!(state(&over_udp(at, &stat)), 1);
        assert_eq!(state(&over_tcp(at, &stat)), 1);
        // A notice about an unknown host is answered, without results.
        let notice = [text(b"client1"), words(&[5])].concat();
        assert_eq!(over_udp(at, &call(8, NSM, 1, NOTIFY, &notice)), words(&[8, 1, 0, 0, 0, 0]));
    }
    // Each start has a new number, however the one before has ended.
    server.kill();
    let server = Server::start(scratch.path(), &["--nfs", "3"]);
    assert_eq!(state(&over_udp(server.all("statd")[0], &call(9, NSM, 1, STAT, &text(b"client1")))), 3);
}

#[test]
fn without_locks_nothing_listens_for_them() {
    let scratch = tempfile::tempdir().unwrap();
    for more in [&["--locks", "off"][..], &["--nfs", "4.2"]] {
        let server = Server::start(scratch.path(), more);
        assert!(server.all("lockd").is_empty() && server.all("statd").is_empty(), "{more:?}: {}", server.ready);
    }
    assert!(list(scratch.path()).is_none(), "no list of hosts is made");
}

/// The directory with the list of hosts.
fn list(scratch: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(scratch.join("state")).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.is_dir() && path.file_name().unwrap().to_str().unwrap().starts_with("nsm-"))
}

/// Puts a host on the list, as a killed server leaves it there.
fn put(list: &Path, address: Ipv4Addr, name: &[u8]) -> PathBuf {
    let mut octets = Vec::new();
    for address in [address, Ipv4Addr::LOCALHOST] {
        octets.extend_from_slice(&address.to_ipv6_mapped().octets());
    }
    octets.extend_from_slice(name);
    #[allow(deprecated, reason = "SipHash-2-4, which the file has")]
    let mut hasher = std::hash::SipHasher::new();
    hasher.write(&octets);
    octets.extend_from_slice(&hasher.finish().to_be_bytes());
    let path = list.join("host-00000000000000aa");
    fs::write(&path, octets).unwrap();
    path
}

/// proves: NSM-1-c, NSM-1-a
#[test]
fn a_host_that_had_locks_is_told_of_the_restart_through_its_portmapper_until_it_has_answered() {
    let portmapper = match UdpSocket::bind((CLIENT, 111)) {
        Ok(socket) => socket,
        // Without root, or if this machine's rpcbind has the port on all addresses, the test cannot see the notice.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::AddrInUse) => {
            return eprintln!("not tried: port 111 cannot be had: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let scratch = tempfile::tempdir().unwrap();
    Server::start(scratch.path(), &[]).kill();
    let listed = put(&list(scratch.path()).unwrap(), CLIENT, b"client1");
    let statd = UdpSocket::bind((CLIENT, 0)).unwrap();
    for socket in [&portmapper, &statd] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let server = Server::start(scratch.path(), &[]);
    let mut octets = [0; 2000];
    let (len, from) = portmapper.recv_from(&mut octets).unwrap();
    assert_eq!(from.ip(), IpAddr::from(Ipv4Addr::LOCALHOST), "from the address that the client knows");
    let asked = octets[..len].to_vec();
    assert_eq!([word(&asked, 3), word(&asked, 4), word(&asked, 5)], [100_000, 2, 3]);
    assert_eq!(asked[asked.len() - 16..], words(&[NSM, 1, 17, 0]));
    let port = u32::from(statd.local_addr().unwrap().port());
    portmapper.send_to(&reply(&asked, &words(&[port])), from).unwrap();
    // The first notice is lost: the same notice comes again.
    let (len, _) = statd.recv_from(&mut octets).unwrap();
    let first = octets[..len].to_vec();
    let (len, from) = statd.recv_from(&mut octets).unwrap();
    let notice = octets[..len].to_vec();
    assert_eq!(notice, first, "with its XID");
    assert!(from.port() < 1024, "{from}");
    assert_eq!([word(&notice, 3), word(&notice, 4), word(&notice, 5)], [NSM, 1, NOTIFY]);
    let name = rustix::system::uname().nodename().to_bytes().to_vec();
    let told = [text(&name), words(&[3])].concat();
    assert!(notice.ends_with(&told), "our name, and the state number of the second start: {notice:?}");
    statd.send_to(&reply(&notice, &[]), from).unwrap();
    // A host that has answered gets no more notices, and stays on the list as long as it may come back.
    statd.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    assert!(statd.recv_from(&mut octets).is_err());
    assert!(listed.exists(), "the next start has to tell it again");
    drop(server);
}

#[test]
fn a_second_server_does_not_take_the_list() {
    let scratch = tempfile::tempdir().unwrap();
    let _first = Server::start(scratch.path(), &[]);
    let mut command: Command = rpcrdma();
    command.arg("serve").arg(served(scratch.path())).arg("--state").arg(scratch.path().join("state"));
    let second = command.args(["--listen", "127.0.0.1:0", "--mountd", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1), "{second:?}");
}
