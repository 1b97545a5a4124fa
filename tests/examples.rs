//! The examples of the library `rpcrdma`, as programs: each does what its first line says.

use rpcrdma::{Client, Server, fs, server::Spoken};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

const EXAMPLES: [&str; 6] =
    ["serve_directory", "serve_map", "read_write", "own_service", "two_providers", "beside_axum"];

/// The program of an example. The first caller builds all of them, which takes no time after `cargo test` has built
/// them.
fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let this = std::env::current_exe().unwrap();
        let profile = this.ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
        build
            .args(["build", "--quiet", "--workspace", "--all-features", "--target-dir"])
            .arg(profile.parent().unwrap());
        EXAMPLES.iter().for_each(|example| _ = build.args(["--example", example]));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success());
        profile.join("examples")
    });
    folder.join(name)
}

/// The output of an example that ends by itself.
fn printed(name: &str, arguments: &[&str]) -> String {
    let done = Command::new(program(name)).args(arguments).output().unwrap();
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// An example that serves until it is interrupted.
struct Serving {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Serving {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program(name));
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The text behind some words on the next line of output.
    fn told(&mut self, words: &str) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().strip_prefix(words).unwrap_or_else(|| panic!("{words:?} does not begin {line:?}")).to_owned()
    }

    /// Interrupts it, as Ctrl-C does; it must end.
    fn interrupt(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        for _ in 0..200 {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("it has not ended 20 s after it was interrupted");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects to a server that may have just been started.
async fn connect(url: &str) -> Client {
    for _ in 0..100 {
        if let Ok(client) = Client::connect(url).await {
            return client;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{url} cannot be reached");
}

#[tokio::test]
async fn serve_directory_serves_a_directory() {
    let (served, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(served.path().join("file"), "content").unwrap();
    let arguments = [served.path().to_str().unwrap(), state.path().to_str().unwrap(), "127.0.0.1:0"];
    let mut server = Serving::start("serve_directory", &arguments);
    let url = server.told("list it with: rpcrdma ls ");
    let client = connect(&url).await;
    assert_eq!(client.read("/file").await.unwrap(), "content");
    client.close().await;
    server.interrupt();
}

#[tokio::test]
async fn serve_map_serves_a_map_that_is_only_read() {
    // An address that nothing else here uses: a port of it that was free a moment ago still is.
    let free = TcpListener::bind("127.0.0.13:0").unwrap().local_addr().unwrap().to_string();
    let server = Serving::start("serve_map", &[&free]);
    let client = connect(&format!("nfs://{free}/")).await;
    assert_eq!(client.read("greeting").await.unwrap(), "hello\n");
    let names: Vec<_> = client.list("/").await.unwrap().into_iter().map(|entry| entry.name.0).collect();
    assert_eq!(names, ["greeting", "question"]);
    let refused = format!("{:#}", client.write("greeting", "goodbye".into()).await.unwrap_err());
    assert!(refused.contains("read-only"), "{refused}");
    let absent = client.read("farewell").await.unwrap_err();
    assert!(absent.find().is_some_and(rpcrdma::nfs_client::Error::is_absent), "{absent:#}");
    assert!(client.read("greeting/question").await.is_err(), "a text is no directory");
    client.close().await;
    server.interrupt();
}

#[tokio::test]
async fn read_write_writes_a_file_and_reads_it() {
    let builder = Server::builder().export("/", fs::memory(1 << 20).unwrap()).listen(([127, 0, 0, 1], 0));
    let server = builder.start().await.unwrap();
    let url = format!("nfs://{}/", server.addresses(Spoken::Rdma)[0]);
    let printed = tokio::task::spawn_blocking(move || printed("read_write", &[&url])).await.unwrap();
    assert_eq!(printed, "hello, world\nhello, there\nhello.txt\n");
    server.shutdown().await;
}

#[test]
fn own_service_calls_a_program_of_its_own() {
    assert_eq!(printed("own_service", &[]), "20\n42\nhello, world\n");
}

#[test]
fn two_providers_carry_the_same_calls() {
    assert_eq!(printed("two_providers", &[]), "over iWARP: 42\nover a simulated fabric: 42\n");
}

#[tokio::test]
async fn beside_axum_shows_files_as_pages() {
    let mut server = Serving::start("beside_axum", &[]);
    let files = server.told("files at ");
    let pages = server.told("pages at http://");
    let client = connect(&files).await;
    client.write("/greeting", "hello\n".into()).await.unwrap();
    client.close().await;
    let get = |path: &str| {
        let mut web = TcpStream::connect(pages.trim_end_matches('/')).unwrap();
        write!(web, "GET {path} HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        web.read_to_string(&mut answer).unwrap();
        answer
    };
    let page = get("/greeting");
    assert!(page.starts_with("HTTP/1.1 200") && page.ends_with("\r\n\r\nhello\n"), "{page}");
    assert!(get("/farewell").starts_with("HTTP/1.1 404"));
    server.interrupt();
}
