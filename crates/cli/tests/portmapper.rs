//! The portmapper of `serve --rpcbind own`, queried over TCP and UDP by honest and hostile clients; and what the server
//! registers with the machine's rpcbind. If root runs the tests and the Debian package rpcbind is installed, `rpcinfo`
//! queries it and rpcbind in a separate network where port 111 is free. Otherwise those tests say so and do nothing.

mod common;

use common::Server;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpStream, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const PORTMAPPER: u32 = 100_000;
const NFS: u32 = 100_003;
const NFSACL: u32 = 100_227;
const MOUNT: u32 = 100_005;
const NLM: u32 = 100_021;
const NSM: u32 = 100_024;
/// Disk quotas, a program that this server does not have.
const RQUOTA: u32 = 100_011;
const TCP: u32 = 6;
const UDP: u32 = 17;
/// How many times as long as its question an answer may be: `MAX_AMPLIFICATION` of the library.
const MAX_AMPLIFICATION: usize = 3;
/// The most calls from one source in a second: `CALLS_BY_SOURCE_PER_SECOND` of the library.
const CALLS_PER_SECOND: usize = 100;
/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a test waits to see that no answer comes.
const SILENCE: Duration = Duration::from_millis(500);

/// A server whose portmapper reports the ports of NFS and MOUNT.
fn start(scratch: &Path, more: &[&str]) -> Server {
    let own = ["--rpcbind", "own", "--portmapper", "127.0.0.1:0", "--tcp", "127.0.0.1:0", "--nfs", "3,4.2"];
    Server::start(&common::served(scratch), &scratch.join("state"), &[&own[..], more].concat())
}

fn port(address: &str) -> u32 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A call with AUTH_NONE.
fn call(xid: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    [&words(&[xid, 0, 2, PORTMAPPER, version, procedure, 0, 0, 0, 0])[..], args].concat()
}

/// The words of the results, if the reply has results.
fn results(reply: &[u8]) -> Option<Vec<u32>> {
    let words: Vec<_> = reply.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    (words.get(1..6)? == [1, 0, 0, 0, 0]).then(|| words[6..].to_vec())
}

/// A socket that sends questions.
fn asker(from: &str, server: &str) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.connect(server).unwrap();
    socket
}

/// The answer to a question, if one comes in this time.
fn ask(socket: &UdpSocket, question: &[u8], limit: Duration) -> Option<Vec<u8>> {
    socket.set_read_timeout(Some(limit)).unwrap();
    socket.send(question).unwrap();
    let mut room = [0; 65_536];
    let len = socket.recv(&mut room).ok()?;
    Some(room[..len].to_vec())
}

/// The same over TCP.
fn ask_over_tcp(server: &str, question: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = 0x8000_0000 | u32::try_from(question.len()).unwrap();
    stream.write_all(&[&head.to_be_bytes()[..], question].concat()).unwrap();
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(head) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply
}

/// proves: RPC-1833-3.2-a, ULB-4.1-a
#[test]
fn clients_find_the_ports_over_udp_and_tcp() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), &[]);
    let portmapper = server.portmapper.clone().unwrap();
    let socket = asker("127.0.0.1", &portmapper);
    let (nfs, mount) = (port(server.tcp.as_ref().unwrap()), port(&server.mount));
    for (program, version, protocol, expected) in [
        (NFS, 3, TCP, nfs),
        (NFS, 4, TCP, nfs),
        (NFS, 3, UDP, 0),
        (MOUNT, 3, TCP, mount),
        (MOUNT, 2, TCP, mount),
        (PORTMAPPER, 2, UDP, port(&portmapper)),
        (NFSACL, 3, TCP, nfs),
        (RQUOTA, 2, TCP, 0),
    ] {
        let question = call(7, 2, 3, &words(&[program, version, protocol, 0]));
        let over_udp = ask(&socket, &question, PATIENCE).expect("no answer");
        assert_eq!(results(&over_udp), Some(vec![expected]), "{program} {version} {protocol}");
        assert_eq!(ask_over_tcp(&portmapper, &question), over_udp);
    }
    // NLM and NSM chose their ports by themselves. Each program answers there.
    for (program, version) in [(MOUNT, 3), (NLM, 1), (NLM, 3), (NLM, 4), (NSM, 1)] {
        let told = results(&ask(&socket, &call(7, 2, 3, &words(&[program, version, TCP, 0])), PATIENCE).unwrap());
        let at = u16::try_from(told.unwrap()[0]).unwrap();
        let null = words(&[9, 0, 2, program, version, 0, 0, 0, 0, 0]);
        let answer = ask_over_tcp(&format!("127.0.0.1:{at}"), &null);
        assert_eq!(results(&answer), Some(vec![]), "{program} {version} at {at}: {answer:?}");
    }
    // The complete list is too long an answer to one UDP question; it needs a connection.
    let listed = results(&ask_over_tcp(&portmapper, &call(8, 2, 4, &[]))).unwrap();
    // NFS in two versions, NFSACL, MOUNT in two, NLM in three, NSM over TCP and UDP, the portmapper in three over both.
    assert_eq!(listed.len(), (2 + 1 + 2 + 3 + 2 + 6) * 5 + 1, "{listed:?}");
    assert_eq!(ask(&socket, &call(8, 2, 4, &[]), SILENCE), None);
    assert_eq!(server.stop(), Some(0));
    assert!(TcpStream::connect(&portmapper).is_err(), "gone with the server");
}

/// The server refuses a client that is not allowed in fewer bytes than the client has sent, over UDP and over TCP.
#[test]
fn strangers_are_told_that_they_are() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), &["--allow", "192.0.2.0/24"]);
    let portmapper = server.portmapper.clone().unwrap();
    let question = call(7, 2, 3, &words(&[NFS, 3, TCP, 0]));
    let over_udp = ask(&asker("127.0.0.1", &portmapper), &question, PATIENCE).unwrap();
    // MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK.
    assert_eq!(over_udp, words(&[7, 1, 1, 1, 5]));
    assert_eq!(ask_over_tcp(&portmapper, &question), over_udp);
}

/// Floods, garbage and questions with large answers: nobody can flood others by way of the server. It counts what it
/// has dropped, and answers others.
///
/// proves: RPC-UDP-b
#[test]
fn hostile_datagrams_cost_others_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), &["--metrics", "127.0.0.1:0"]);
    let metrics = server.metrics();
    let portmapper = server.portmapper.clone().unwrap();
    let attacker = asker("127.0.0.9", &portmapper);
    attacker.set_nonblocking(true).unwrap();
    let text = |text: &str| [&words(&[text.len() as u32])[..], text.as_bytes()].concat();
    let mut questions = vec![
        call(1, 2, 0, &[]),
        call(1, 2, 4, &[]),
        call(1, 4, 4, &[]),
        call(1, 4, 12, &[]),
        call(1, 4, 11, &[&words(&[NFS, 3])[..], &text("tcp1"), &text(""), &text("")].concat()),
        call(1, 2, 5, &words(&[NFS, 3, 0, 0])),
        call(1, 4, 10, &words(&[NFS, 3, 0, 0])),
        call(1, 2, 1, &words(&[NFS, 3, TCP, 4000])),
        call(1, 9, 0, &[]),
        call(1, 4, 99, &[]),
        words(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        vec![0; 3],
        vec![0xff; 40],
        vec![0; 9000],
    ];
    // Texts whose length says more bytes than follow.
    questions.push(call(1, 4, 3, &words(&[NFS, 3, 0xffff_ffff])));
    let longest = questions.iter().map(Vec::len).max().unwrap();
    assert!(longest < 65_000);
    let begin = Instant::now();
    let (mut sent, mut bytes_back, mut back, mut room) = (0, 0, 0, [0; 65_536]);
    while begin.elapsed() < Duration::from_secs(2) {
        for question in &questions {
            sent += usize::from(attacker.send(question).is_ok());
            while let Ok(len) = attacker.recv(&mut room) {
                assert!(len <= MAX_AMPLIFICATION * 64, "{len} bytes");
                bytes_back += len;
                back += 1;
            }
        }
    }
    // The server answers others while the flood fills the socket's queue. The flood may push some questions out, as on
    // any network.
    let decent = asker("127.0.0.1", &portmapper);
    let question = call(7, 2, 3, &words(&[NFS, 3, TCP, 0]));
    let answered = (0..60).any(|_| ask(&decent, &question, SILENCE).is_some());
    assert!(answered, "a decent client is not heard");
    let seconds = begin.elapsed().as_secs() as usize + 2;
    assert!(back <= seconds * CALLS_PER_SECOND, "{back} answers to {sent} datagrams in {seconds} s");
    assert!(bytes_back <= back * MAX_AMPLIFICATION * 64);
    assert!(sent > 4 * back, "{sent} datagrams, {back} answers: this was no flood");
    let count = |reason: &str| counted(&metrics, &format!("rpcrdma_datagrams_dropped_total{{reason=\"{reason}\"}}"));
    let look = Instant::now();
    while ["malformed", "too_large", "too_often", "amplified"].into_iter().any(|reason| count(reason) == 0.0) {
        assert!(look.elapsed() < PATIENCE, "what was dropped is not counted");
        thread::sleep(Duration::from_millis(100));
    }
    assert!(counted(&metrics, "rpcrdma_datagrams_answered_total") > 0.0);
    assert_eq!(server.stop(), Some(0));
}

/// The value of a series.
fn counted(address: &str, series: &str) -> f64 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {series} in {text}"))
}

/// A separate network with an address that is not a loopback address. It exists while the process in it lives.
struct Network {
    holder: Child,
}

impl Network {
    /// A network in which this command runs. The command says `ready` in a line on its standard error or output.
    fn start(command: &str) -> Option<Self> {
        let lacking = [
            (!rustix::process::geteuid().is_root(), "root does not run the tests"),
            (!has("rpcinfo") || !has("rpcbind"), "the Debian package rpcbind is not installed"),
            (!has("unshare") || !has("nsenter") || !has("ip"), "unshare, nsenter or ip is not installed"),
        ];
        if let Some((_, why)) = lacking.into_iter().find(|(lacks, _)| *lacks) {
            println!("nothing is tested here: {why}");
            return None;
        }
        let script = format!(
            "mount -t tmpfs none /run && ip link set lo up && ip addr add 192.0.2.1/24 dev lo && \
             ip -6 addr add 2001:db8::1/64 dev lo; echo up; exec {command}"
        );
        let mut holder = Command::new("unshare")
            .args(["--net", "--mount", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "up\n" {
            println!("nothing is tested here: no network of its own can be had");
            let _ = holder.wait();
            return None;
        }
        Some(Self { holder })
    }

    /// A command that runs in the network.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--net", "--mount", program]);
        command
    }

    /// The output of a command, which must succeed.
    fn output(&self, program: &str, args: &[&str]) -> String {
        let output = self.command(program).args(args).output().unwrap();
        let told = [&output.stdout[..], &output.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(output.status.success(), "{program} {args:?}: {told}");
        told
    }

    /// What rpcinfo lists of version 2, without its heading: program, version, protocol, port.
    fn listed(&self, host: &str) -> Vec<String> {
        let told = self.output("rpcinfo", &["-p", host]);
        told.lines().skip(1).map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ")).collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.unwrap().success()
}

/// A server in a network, at the ports of NFS. Its process is nsenter's, which becomes the program.
fn serve_in(network: &Network, scratch: &Path, rpcbind: &str) -> Server {
    let mut command = network.command(env!("CARGO_BIN_EXE_rpcrdma"));
    command.arg("serve").arg(common::served(scratch)).arg("--json").arg("--state").arg(scratch.join("state"));
    command.args(["--listen", "192.0.2.1:20049", "--mountd", "192.0.2.1:20048", "--tcp", "192.0.2.1:2049"]);
    Server::launch(command.args(["--rpcbind", rpcbind, "--nfs", "3,4.2"]))
}

/// What rpcinfo lists of our NFS, NFSACL and MOUNT over TCP, in its order.
const OF_NFS: [&str; 5] =
    ["100003 3 tcp 2049", "100003 4 tcp 2049", "100005 1 tcp 20048", "100005 3 tcp 20048", "100227 3 tcp 2049"];

#[test]
fn rpcinfo_asks_our_portmapper_in_all_its_versions() {
    let Some(network) = Network::start("sleep 1000") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let server = serve_in(&network, scratch.path(), "own");
    let listed = network.listed("192.0.2.1");
    let of_itself = |protocol| [2, 3, 4].map(|version| format!("100000 {version} {protocol} 111"));
    let expected: Vec<String> =
        OF_NFS.map(str::to_owned).into_iter().chain(of_itself("tcp")).chain(of_itself("udp")).collect();
    let mut sorted = [listed.clone(), expected];
    sorted.iter_mut().for_each(|lines| lines.sort());
    assert_eq!(sorted[0], sorted[1]);
    // Version 3 or 4, which knows RDMA as well.
    let all = network.output("rpcinfo", &["192.0.2.1"]);
    let has =
        |words: &[&str]| all.lines().any(|line| words.iter().all(|word| line.split_whitespace().any(|w| w == *word)));
    assert!(has(&["100003", "3", "rdma", "192.0.2.1.78.81"]), "{all}");
    assert!(has(&["100005", "3", "tcp", "192.0.2.1.78.80"]), "{all}");
    // GETPORT or GETADDR over TCP and UDP, and a NULL to what it has found: our own programs, and the portmapper
    // itself.
    assert!(network.output("rpcinfo", &["-t", "192.0.2.1", "100003", "4"]).contains("ready and waiting"));
    assert!(network.output("rpcinfo", &["-t", "192.0.2.1", "100005", "3"]).contains("ready and waiting"));
    assert!(network.output("rpcinfo", &["-u", "192.0.2.1", "100000"]).contains("version 4 ready and waiting"));
    assert!(network.output("rpcinfo", &["-T", "tcp", "192.0.2.1", "100003", "3"]).contains("ready and waiting"));
    // GETADDRLIST and GETSTAT of version 4.
    assert!(network.output("rpcinfo", &["-l", "192.0.2.1", "100003", "3"]).contains("192.0.2.1.8.1"));
    assert!(network.output("rpcinfo", &["-m", "192.0.2.1"]).contains("RPCBIND (version 4) statistics"));
    assert!(!network.command("rpcinfo").args(["-u", "192.0.2.1", "100003"]).output().unwrap().status.success());
    assert_eq!(server.stop(), Some(0));
    assert!(!network.command("rpcinfo").args(["-p", "192.0.2.1"]).output().unwrap().status.success(), "gone");
}

#[test]
fn rpcbind_of_the_machine_lists_us_as_long_as_we_run() {
    let Some(network) = Network::start("rpcbind -f") else { return };
    let begin = Instant::now();
    while !network.command("rpcinfo").args(["-p", "192.0.2.1"]).output().unwrap().status.success() {
        assert!(begin.elapsed() < PATIENCE, "rpcbind does not come up");
        thread::sleep(Duration::from_millis(50));
    }
    let ours = || -> Vec<String> {
        let listed = network.listed("192.0.2.1").into_iter();
        listed.filter(|line| !line.starts_with("100000 ")).collect()
    };
    let scratch = tempfile::tempdir().unwrap();
    let server = serve_in(&network, scratch.path(), "system");
    let mut listed = ours();
    listed.sort();
    let mut expected = OF_NFS.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    assert_eq!(server.stop(), Some(0));
    assert_eq!(ours(), [""; 0], "all gone");
    // Port 111 is taken.
    let mut own = network.command(env!("CARGO_BIN_EXE_rpcrdma"));
    own.arg("serve").arg(common::served(scratch.path())).arg("--state").arg(scratch.path().join("other-state"));
    own.args(["--listen", "192.0.2.1:20049", "--mountd", "192.0.2.1:20048", "--rpcbind=own"]);
    let output = own.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("a portmapper runs here already: use --rpcbind system"), "{told}");
    assert_eq!(ours(), [""; 0]);
    fs::remove_dir_all(scratch.path().join("state")).unwrap();
}
