//! The log of a server: which clients came, what failed, and all in clear words.

mod common;

use common::{Server, contents, run};
use rpcrdma_peers::idlers::dial_from;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long a line may take to be written.
const SOON: Duration = Duration::from_secs(20);

struct Logged {
    scratch: tempfile::TempDir,
    log: PathBuf,
    server: Server,
}

impl Logged {
    fn start(more: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let served = common::served(scratch.path());
        fs::write(served.join("file"), contents(100_000)).unwrap();
        let log = scratch.path().join("log");
        let file = fs::File::create(&log).unwrap();
        let more = [&["--tcp", "127.0.0.1:0"], more].concat();
        let server = Server::start_logged(&served, &scratch.path().join("state"), file.into(), &more);
        Self { scratch, log, server }
    }

    fn lines(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(&self.log).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for so many lines with this message, and returns their levels and fields.
    fn wait(&self, message: &str, count: usize) -> Vec<serde_json::Value> {
        let begin = Instant::now();
        loop {
            let all = self.lines();
            let found: Vec<_> = all.into_iter().filter(|line| line["fields"]["message"] == message).collect();
            if found.len() >= count {
                return found;
            }
            assert!(begin.elapsed() < SOON, "{}", fs::read_to_string(&self.log).unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn each_connection_of_nfs_has_one_line_at_its_end() {
    let logged = Logged::start(&[]);
    let server = &logged.server;
    run(["cat", &server.url("file")]);
    run(["cat", &server.tcp_url("file")]);
    let ended = logged.wait("connection ended", 2);
    assert_eq!(ended.len(), 2, "MOUNT's are not told: {ended:#?}");
    for line in &ended {
        let fields = &line["fields"];
        let number = |name: &str| fields[name].as_f64().unwrap_or_else(|| panic!("{name}: {line}"));
        assert_eq!(line["level"], "INFO");
        assert!(fields["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(number("calls") >= 3.0 && number("seconds") < 60.0, "{line}");
        assert!(number("bytes_in") > 100.0 && number("bytes_out") >= 100_000.0, "the file: {line}");
        assert_eq!(fields["why"], "the client ended it");
    }
    let mut over: Vec<_> = ended.iter().map(|line| line["fields"]["over"].as_str().unwrap()).collect();
    over.sort_unstable();
    assert_eq!(over, ["NFS over RDMA", "NFS over TCP"]);
}

/// The reader of standard error may stop, like a pager, or like a collector that hangs.
#[test]
fn nobody_waits_for_whoever_reads_the_log() {
    const COMMANDS: usize = 40;
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    // The smallest pipe: fewer lines than the commands cause.
    let size = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let served = common::served(scratch.path());
    fs::write(served.join("file"), contents(100)).unwrap();
    let server = Server::start_logged(&served, &scratch.path().join("state"), writer.into(), &[]);
    for _ in 0..COMMANDS {
        run(["cat", &server.url("file")]);
    }
    // The lines have waited, and come as soon as the test reads.
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = fs::File::from(reader).read_to_string(&mut text);
        text
    });
    assert_eq!(server.stop(), Some(0));
    let text = reading.join().unwrap();
    assert!(text.len() > size, "{} bytes went into a pipe of {size}", text.len());
    assert_eq!(text.lines().filter(|line| line.contains("connection ended")).count(), COMMANDS, "{text}");
}

#[test]
fn junk_is_told_with_the_reason_and_probes_are_not() {
    let logged = Logged::start(&[]);
    for address in [logged.server.tcp.as_ref().unwrap(), &logged.server.mount] {
        drop(TcpStream::connect(address).unwrap());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let _ = stream.read(&mut [0; 100]);
    }
    let ended = logged.wait("connection ended", 2);
    assert_eq!(ended.len(), 2, "{ended:#?}");
    for line in &ended {
        assert!(line["fields"]["why"].as_str().unwrap().contains("above the limit"), "{line}");
        assert_eq!(line["fields"]["calls"], 0);
    }
}

/// Clients outside of `--allow` cause no lines in the log, however often they come.
#[test]
fn strangers_have_no_line() {
    let logged = Logged::start(&["--allow", "127.0.0.1/32"]);
    let tcp = logged.server.tcp.as_ref().unwrap();
    for _ in 0..200 {
        let mut stream = dial_from([127, 0, 0, 2], tcp);
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
    }
    run(["cat", &logged.server.tcp_url("file")]);
    logged.wait("connection ended", 1);
    assert_eq!(logged.lines().len(), 1, "{:#?}", logged.lines());
}

/// The log tells an operator that a client uses a file that is gone, and what to do about it.
#[test]
fn an_answer_of_a_stale_handle_is_a_warning() {
    let logged = Logged::start(&[]);
    let server = &logged.server;
    let served = logged.scratch.path().join("served");
    let url = server.tcp_url("file");
    let stale = stale(Path::new(&served), &url);
    assert!(stale, "the read of a removed file fails");
    let begin = Instant::now();
    let warned = loop {
        let lines = logged.lines();
        if let Some(line) = lines.into_iter().find(|line| line["level"] == "WARN") {
            break line;
        }
        assert!(begin.elapsed() < SOON, "{}", fs::read_to_string(&logged.log).unwrap());
        std::thread::sleep(Duration::from_millis(10));
    };
    let fields = &warned["fields"];
    assert_eq!((&fields["status"], &fields["export"]), (&"NFS3ERR_STALE".into(), &"/".into()), "{warned}");
    assert_eq!(fields["served"], served.to_str().unwrap());
    assert!(fields["message"].as_str().unwrap().contains("mount again"), "{warned}");
}

/// People read `-vv`: no line has names of Rust types and braces.
#[test]
fn the_log_at_its_most_talkative_is_words_and_fields() {
    let logged = Logged::start(&["-vv"]);
    run(["cat", &logged.server.url("file")]);
    run(["cat", &logged.server.tcp_url("file")]);
    logged.wait("connection ended", 2);
    for message in ["RDMA connection made", "version settled", "message sent", "call taken"] {
        logged.wait(message, 1);
    }
    for line in logged.lines() {
        for (name, value) in line["fields"].as_object().unwrap() {
            let text = value.as_str().unwrap_or_default();
            let is_debug = ["Some(", "None", " { ", "Ok(", "Err("].iter().any(|sign| text.contains(sign));
            assert!(!is_debug, "{name}: {line}");
        }
    }
}

/// The same for lines that no test causes: none uses Rust's debug format.
#[test]
fn no_line_of_the_log_asks_for_a_debugging_form() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut to_do = vec![crates.to_owned()];
    let mut looked_at = 0;
    while let Some(path) = to_do.pop() {
        if path.is_dir() {
            to_do.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests/log.rs") {
            let text = fs::read_to_string(&path).unwrap();
            for level in ["trace!(", "debug!(", "info!(", "warn!(", "error!("] {
                for (at, _) in text.match_indices(level) {
                    let call = text[at..].split(");").next().unwrap();
                    looked_at += 1;
                    assert!(!call.contains(":?}") && !asks(call), "{}: {call}", path.display());
                }
            }
        }
    }
    assert!(looked_at > 60, "only {looked_at} calls were found");
}

/// Whether a field of a call has the sign for the debug format before it.
fn asks(call: &str) -> bool {
    let signs = call.match_indices('?').filter(|(at, _)| {
        let before = call[..*at].trim_end();
        let after = call[at + 1..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        after && before.ends_with(['(', ',', '='])
    });
    signs.count() > 0
}

/// Uses a file that is removed on the server after its LOOKUP. With a client library, because our commands would look
/// it up again.
fn stale(served: &Path, url: &str) -> bool {
    use nfs3_client::{nfs3_types as types, tokio::TokioConnector};
    let port = |name: &str| -> u16 {
        let text = url.split_once(name).unwrap().1;
        text.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let (nfs, mount) = (port("127.0.0.1:"), port("mountport="));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let builder = nfs3_client::Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", "/");
        let mut nfs =
            builder.nfs3_port(nfs).mount_port(mount).connect_from_privileged_port(false).mount().await.unwrap();
        let root = nfs.root_nfs_fh3();
        let what = types::nfs3::diropargs3 { dir: root, name: b"file".as_slice().into() };
        let found = nfs.lookup(&types::nfs3::LOOKUP3args { what }).await.unwrap().unwrap();
        fs::remove_file(served.join("file")).unwrap();
        let asked = types::nfs3::GETATTR3args { object: found.object };
        let answer = nfs.getattr(&asked).await.unwrap();
        matches!(answer, types::nfs3::Nfs3Result::Err((types::nfs3::nfsstat3::NFS3ERR_STALE, _)))
    })
}
