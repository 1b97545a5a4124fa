//! `rpcrdma lock`: a command runs while a file is locked, and ends when the lock is lost.

mod common;

use common::{Server, fails, rpcrdma, run, served};
use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

fn start(scratch: &Path, more: &[&str]) -> (PathBuf, Server) {
    let served = served(scratch);
    let all = [&["--no-root-squash", "--tcp", "127.0.0.1:0"], more].concat();
    let server = Server::start(&served, &scratch.join("state"), &all);
    (served, server)
}

fn url(server: &Server, minor: u32, carrier: &str, path: &str) -> String {
    match carrier {
        "tcp" => format!("nfs://{}/{path}?version=4.{minor}&transport=tcp", server.tcp.as_ref().unwrap()),
        carrier => format!("nfs://{}/{path}?version=4.{minor}&rpcrdma={carrier}", server.rdma),
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A command that holds a lock until it is ended.
struct Holder {
    child: Child,
    /// A file that exists while the command runs.
    mark: PathBuf,
}

impl Holder {
    fn start(scratch: &Path, name: &str, args: &[&str]) -> Self {
        let mark = scratch.join(name);
        let script = "touch \"$0\"; while [ -e \"$0\" ]; do sleep 0.02; done";
        let mut command = rpcrdma();
        command.arg("lock").args(args).args(["--", "sh", "-c", script]).arg(&mark);
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let holder = Self { child, mark };
        until("the command does not run", || holder.mark.exists());
        holder
    }

    /// Lets the command end, and returns the exit code and the messages.
    fn end(mut self) -> (Option<i32>, String) {
        let _ = fs::remove_file(&self.mark);
        self.ended()
    }

    fn ended(&mut self) -> (Option<i32>, String) {
        until("the command is not ended", || self.child.try_wait().unwrap().is_some());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.mark);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_command_runs_with_the_lock_and_its_code_is_returned() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, server) = start(scratch.path(), &[]);
    for (minor, carrier) in [(0, "1"), (1, "2"), (2, "1"), (2, "2"), (2, "tcp")] {
        println!("minor version {minor} over {carrier}");
        let url = |path: &str| url(&server, minor, carrier, path);
        let said = run(["lock", &url("file"), "--", "echo", "done"]);
        assert_eq!(said.stdout, b"done\n");
        let made = fs::metadata(served.join("file")).unwrap();
        assert!(made.len() == 0 && made.permissions().mode() & 0o600 == 0o600, "made as flock does");
        assert_eq!(fails(7, ["lock", &url("file"), "--", "sh", "-c", "exit 7"]), "");
        assert_eq!(fails(128 + 10, ["lock", &url("file"), "--", "sh", "-c", "kill -USR1 $$"]), "");
        assert!(fails(127, ["lock", &url("file"), "--", "/no such program"]).contains("cannot run: /no such program"));
        assert!(fails(126, ["lock", &url("file"), "--", "/etc/passwd"]).contains("cannot run"));

        let holder = Holder::start(scratch.path(), "held", &[&url("file")]);
        let said = fails(1, ["lock", "--nonblock", &url("file"), "--", "echo"]);
        assert!(said.contains("somebody else has locked the file for writing from byte 0 to its end"), "{said}");
        assert!(said.contains("the holder calls itself \"lock 0 of "), "{said}");
        let begin = Instant::now();
        let said = fails(1, ["lock", "--wait", "0.3", "--shared", &url("file"), "--", "echo"]);
        assert!(said.contains("waiting: ") && said.contains("not waiting any longer"), "{said}");
        assert!(begin.elapsed() >= Duration::from_millis(300));
        assert_eq!(fails(1, ["lock", "-q", "-n", &url("file"), "--", "echo"]), "");
        run(["lock", "-n", &url("another"), "--", "true"]);
        assert_eq!(holder.end(), (Some(0), String::new()));

        let holder = Holder::start(scratch.path(), "held", &["--shared", "--range", "1K,512", &url("file")]);
        run(["lock", "-n", "--shared", &url("file"), "--", "true"]);
        run(["lock", "-n", "--range", "0,1024", &url("file"), "--", "true"]);
        run(["lock", "-n", "--range", "1536,0", &url("file"), "--", "true"]);
        fails(1, ["lock", "-n", "--range", "1535,1", &url("file"), "--", "true"]);
        assert_eq!(holder.end(), (Some(0), String::new()));
        fs::remove_file(served.join("file")).unwrap();
    }
    let missing = fails(125, ["lock", &url(&server, 2, "2", "none/file"), "--", "true"]);
    assert!(missing.contains("cannot lock: /none/file") && missing.contains("NFS4ERR_NOENT"), "{missing}");
    assert!(fails(125, ["lock", &url(&server, 2, "2", ""), "--", "true"]).contains("is not a file"));
    let version_3 = fails(125, ["lock", &format!("{}&version=3", server.url("file")), "--", "true"]);
    assert!(version_3.contains("versions 2 and 3 of NFS have no locks of their own"), "{version_3}");
    fails(2, ["lock", "--range", "7", &url(&server, 2, "2", "file"), "--", "true"]);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_lock_is_waited_for() {
    let scratch = tempfile::tempdir().unwrap();
    let (_, server) = start(scratch.path(), &[]);
    let url = url(&server, 2, "2", "file");
    let holder = Holder::start(scratch.path(), "first", &[&url]);
    let mut waits = rpcrdma();
    // Tests whether the other command still runs.
    let script = "test -e \"$0\" && exit 3; exit 4";
    waits.args(["lock", "-q", "--wait", "60", &url, "--", "sh", "-c", script]).arg(&holder.mark);
    let mut waits = waits.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(waits.try_wait().unwrap().is_none());
    assert_eq!(holder.end(), (Some(0), String::new()));
    assert_eq!(waits.wait().unwrap().code(), Some(4));
}

#[test]
fn signals_go_to_the_command() {
    let scratch = tempfile::tempdir().unwrap();
    let (_, server) = start(scratch.path(), &[]);
    let url = url(&server, 2, "2", "file");
    for (signal, code) in [("-TERM", 128 + 15), ("-INT", 128 + 2)] {
        let mut holder = Holder::start(scratch.path(), "held", &[&url]);
        let pid = holder.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert_eq!(holder.ended(), (Some(code), String::new()));
        run(["lock", "-n", &url, "--", "true"]);
    }
    // A command that handles the signal.
    let mark = scratch.path().join("mark");
    let script = "trap 'exit 5' TERM; touch \"$0\"; while :; do sleep 0.02; done";
    let mut child = rpcrdma().args(["lock", &url, "--", "sh", "-c", script]).arg(&mark).spawn().unwrap();
    until("the command does not run", || mark.exists());
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_command_that_has_lost_its_lock_is_ended() {
    for minor in [0, 2] {
        let scratch = tempfile::tempdir().unwrap();
        let (_, server) = start(scratch.path(), &["--lease", "2"]);
        let url = url(&server, minor, "tcp", "file");
        let mut ended = Holder::start(scratch.path(), "ended", &["--range", "0,1", &url]);
        let kept = Holder::start(scratch.path(), "kept", &["--keep-running", "--range", "1,1", &url]);
        std::thread::sleep(Duration::from_secs(4));
        assert!(ended.child.try_wait().unwrap().is_none(), "the lease is kept");
        server.kill();
        let (code, said) = ended.ended();
        assert_eq!(code, Some(124), "{said}");
        assert!(
            said.contains("the lock is lost, others may have it now: /file: the server has not answered"),
            "{said}"
        );
        let (code, said) = kept.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("the lock is lost"), "{said}");
    }
}

/// After a restart of the server the lock is reclaimed, and no other client had it meanwhile.
#[test]
fn a_lock_outlives_a_restart_of_the_server() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, server) = start(scratch.path(), &["--lease", "20", "--grace", "3"]);
    let url = url(&server, 2, "2", "file");
    let (rdma, mount) = (server.rdma.clone(), server.mount.clone());
    let mut holder = Holder::start(scratch.path(), "held", &[&url]);
    server.kill();
    let more = ["--no-root-squash", "--lease", "20", "--grace", "3"];
    let server = Server::start_at(&served, &scratch.path().join("state"), &rdma, &mount, &more);
    let said = fails(1, ["lock", "-n", &url, "--", "true"]);
    assert!(said.contains("somebody else has locked the file"), "{said}");
    assert!(holder.child.try_wait().unwrap().is_none());
    let (code, said) = holder.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("lost"), "{said}");
    run(["lock", "-n", &url, "--", "true"]);
    assert_eq!(server.stop(), Some(0));
}
