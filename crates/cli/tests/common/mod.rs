//! Running the command as a user does.

#![allow(dead_code, reason = "each test file uses its share")]

pub(crate) mod counting;
pub(crate) mod proxy;

use serde_json::Value;
use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// How long the command may take; usually it takes milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A user without rights.
const NOBODY: u32 = 65_534;

/// A new cache of remembered servers, apart from the user's and other runs': the system gives new servers the ports of
/// old ones.
pub(crate) fn cache() -> String {
    format!("{}/cache-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id())
}

pub(crate) fn rpcrdma() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rpcrdma"));
    command.env("XDG_CACHE_HOME", cache());
    command
}

/// A directory to serve; beside it there is room for files that must not lie in it.
pub(crate) fn served(scratch: &Path) -> PathBuf {
    let served = scratch.join("served");
    fs::create_dir_all(&served).unwrap();
    served
}

/// Copies the program. Another program does it: if this one opened the copy to write it, a child that another test
/// starts at that moment would inherit the descriptor, and nobody could execute the copy until the child has begun.
pub(crate) fn copy_program(to: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_rpcrdma")).arg(to).status().unwrap();
    assert!(copied.success(), "cp: {copied}");
}

/// A server of a directory.
pub(crate) struct Server {
    child: Child,
    pub(crate) rdma: String,
    pub(crate) mount: String,
    pub(crate) tcp: Option<String>,
    /// The portmapper's address, over TCP and over UDP.
    pub(crate) portmapper: Option<String>,
    /// The addresses of the lock manager of version 3, and of the status monitor (over TCP and over UDP).
    pub(crate) lockd: Option<String>,
    pub(crate) statd: Option<String>,
    /// Where the numbers for Prometheus are.
    pub(crate) metrics: Option<String>,
}

impl Server {
    /// Serves `directory` on ports that the system chooses.
    pub(crate) fn start(directory: &Path, state: &Path, more: &[&str]) -> Self {
        Self::start_at(directory, state, "127.0.0.1:0", "127.0.0.1:0", more)
    }

    pub(crate) fn start_at(directory: &Path, state: &Path, rdma: &str, mount: &str, more: &[&str]) -> Self {
        Self::start_all(directory, state, rdma, mount, Stdio::inherit(), more)
    }

    /// The same as [`start`](Self::start), with the log sent elsewhere.
    pub(crate) fn start_logged(directory: &Path, state: &Path, log: Stdio, more: &[&str]) -> Self {
        Self::start_all(directory, state, "127.0.0.1:0", "127.0.0.1:0", log, more)
    }

    /// The same as [`start`](Self::start), run by another program, such as a tracer.
    pub(crate) fn start_under(mut tracer: Command, directory: &Path, state: &Path, more: &[&str]) -> Self {
        tracer.arg(env!("CARGO_BIN_EXE_rpcrdma")).env("XDG_CACHE_HOME", cache());
        Self::start_by(tracer, directory, state, ["127.0.0.1:0"; 2], Stdio::inherit(), more)
    }

    fn start_all(directory: &Path, state: &Path, rdma: &str, mount: &str, log: Stdio, more: &[&str]) -> Self {
        Self::start_by(rpcrdma(), directory, state, [rdma, mount], log, more)
    }

    fn start_by(
        mut command: Command,
        directory: &Path,
        state: &Path,
        [rdma, mount]: [&str; 2],
        log: Stdio,
        more: &[&str],
    ) -> Self {
        command.arg("serve").arg(directory).arg("--json").arg("--state").arg(state);
        command.args(["--listen", rdma, "--mountd", mount]).args(more);
        Self::launch(command.stderr(log))
    }

    /// Serves `home` as an ordinary user without an option for the state directory: the state goes below `state_home`.
    pub(crate) fn start_by_default(home: &Path, state_home: &Path) -> Self {
        let scratch = home.parent().unwrap();
        let mut command = rpcrdma();
        if rustix::process::geteuid().is_root() {
            // A copy that every user can run, and directories of the user `nobody`.
            let program = scratch.join("rpcrdma");
            copy_program(&program);
            for directory in state_home.ancestors().take_while(|above| above.starts_with(scratch)) {
                chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
            }
            command = Command::new(program);
            command.uid(NOBODY).gid(NOBODY);
        }
        command.env("XDG_STATE_HOME", state_home).arg("serve").arg(home).arg("--json");
        Self::launch(command.args(["--listen", "127.0.0.1:0", "--mountd", "127.0.0.1:0"]))
    }

    /// Waits until a server is ready.
    pub(crate) fn launch(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ready: {line:?}"));
        let first = |key: &str| ready["ready"][key][0].as_str().map(str::to_owned);
        let [tcp, portmapper, lockd, statd, metrics] = ["tcp", "portmapper", "lockd", "statd", "metrics"].map(first);
        let (rdma, mount) = (first("rdma").unwrap(), first("mountd").unwrap_or_default());
        Self { child, rdma, mount, tcp, portmapper, lockd, statd, metrics }
    }

    /// A URL of the served directory over RDMA, in version 3 of NFS.
    pub(crate) fn url_3(&self, path: &str) -> String {
        format!("{}&version=3", self.url(path))
    }

    /// The same over TCP.
    pub(crate) fn tcp_url_3(&self, path: &str) -> String {
        format!("{}&version=3", self.tcp_url(path))
    }

    /// A URL of the served directory over RDMA, in the highest version of NFS that it is served in.
    pub(crate) fn url(&self, path: &str) -> String {
        let (_, mount_port) = self.mount.rsplit_once(':').unwrap();
        format!("nfs://{}/{path}?mountport={mount_port}", self.rdma)
    }

    /// The same, in this version of RPC-over-RDMA.
    pub(crate) fn url_in(&self, version: &str, path: &str) -> String {
        format!("{}&rpcrdma={version}", self.url(path))
    }

    /// The same in version 3 of NFS.
    pub(crate) fn url_3_in(&self, version: &str, path: &str) -> String {
        format!("{}&rpcrdma={version}", self.url_3(path))
    }

    /// A URL of the served directory over TCP.
    pub(crate) fn tcp_url(&self, path: &str) -> String {
        let (_, mount_port) = self.mount.rsplit_once(':').unwrap();
        format!("nfs://{}/{path}?transport=tcp&mountport={mount_port}", self.tcp.as_ref().unwrap())
    }

    /// Where the numbers for Prometheus are, of a server with `--metrics 127.0.0.1:0`.
    pub(crate) fn metrics(&self) -> String {
        self.metrics.clone().expect("it was started with --metrics")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begin.elapsed() < PATIENCE, "the server does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command, which must succeed.
pub(crate) fn run(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    let output = rpcrdma().args(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {error}", output.status);
    output
}

/// Runs a command, which must fail with this exit code. Returns its error messages.
pub(crate) fn fails(code: i32, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let output = rpcrdma().args(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{error}");
    error
}

/// Describes a tree, for comparison with a copy: path, kind, mode, size, contents or target, whether other names share
/// the file, and the time of the last change.
pub(crate) fn describe(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut to_do = vec![PathBuf::new()];
    while let Some(path) = to_do.pop() {
        let full = root.join(&path);
        let metadata = fs::symlink_metadata(&full).unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        let what = if metadata.is_dir() {
            for entry in fs::read_dir(&full).unwrap() {
                to_do.push(path.join(entry.unwrap().file_name()));
            }
            format!("directory {mode:o}")
        } else if metadata.is_symlink() {
            format!("link to {:?}", fs::read_link(&full).unwrap())
        } else {
            format!("file {mode:o} {} links {} {:08x}", metadata.len(), metadata.nlink(), checksum(&full))
        };
        lines.push(format!("{path:?} {what} {}.{:09}", metadata.mtime(), metadata.mtime_nsec()));
    }
    lines.sort();
    lines
}

/// A checksum of a file's contents. Holes are skipped: the system guarantees that they are zero.
fn checksum(path: &Path) -> u32 {
    use rustix::fs::{SeekFrom, seek};
    use std::os::unix::fs::FileExt;
    let file = fs::File::open(path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut sum = 0_u32;
    let mut at = 0;
    while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
        let end = seek(&file, SeekFrom::Hole(data)).unwrap();
        at = data;
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let read = file.read_at(&mut buffer[..most], at).unwrap();
            assert!(read > 0, "the file became shorter");
            for (place, &octet) in (at..).zip(&buffer[..read]).filter(|(_, octet)| **octet != 0) {
                let mixed = (place as u32 ^ u32::from(octet) << 24).wrapping_mul(0x9E37_79B1);
                sum = sum.wrapping_add(mixed ^ mixed >> 15);
            }
            at += read as u64;
        }
    }
    sum
}

/// Bytes that are different at every place.
pub(crate) fn contents(len: usize) -> Vec<u8> {
    let mut state = len as u64 | 1;
    let mut octets = Vec::with_capacity(len + 8);
    while octets.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        octets.extend_from_slice(&state.to_be_bytes());
    }
    octets.truncate(len);
    octets
}
