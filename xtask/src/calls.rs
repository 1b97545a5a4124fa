//! `cargo xtask calls`: how many system calls an operation costs each end, counted by strace.
//!
//! The numbers below are limits: if you make an operation cheaper, lower its limit; if you must raise a limit, say why.
//! The count includes what both ends spend on start and end, which are some hundreds of calls. So a count of too few
//! operations is made again for longer, and a limit is a little less than one call above the true number.

use crate::programs::{self, Program, Scratch};
use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// How to count.
#[derive(clap::Args)]
#[command(max_term_width = 100)]
pub(crate) struct Arguments {
    /// Judge the build of `cargo test`: it is slower, but it exists already if tests have run
    #[arg(long)]
    debug: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long each operation is repeated, in seconds: strace slows it down, but usually some thousands fit.
const SECONDS: f64 = 2.0;
/// The fewest operations to judge by: the calls of start and end add less than a quarter of a call to each of so many.
const FEWEST: f64 = 4000.0;
/// The longest time that one operation is repeated, in seconds.
const MOST_SECONDS: f64 = 40.0;
/// How long a server may take for its start.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looking for a message before it is there takes system calls: as many as there is time for.
const ASLEEP: [&str; 2] = ["--busy-poll", "0"];

/// A kind of operation, and the most system calls for each.
struct Line {
    op: &'static str,
    depth: usize,
    transport: &'static str,
    client: f64,
    server: f64,
}

/// One operation at a time: an end waits for a message, reads it and answers it. Reading a file takes two calls more.
/// Many operations at a time share all these calls except the file's; how many share them depends on the machine.
const LINES: [Line; 11] = [
    line("null", 1, "rdma", 3.9, 3.9),
    line("getattr", 1, "rdma", 3.9, 4.9),
    line("read", 1, "rdma", 3.9, 5.9),
    // By a caller that does not own the file. A second thread writes, with a change of user and back, and looks whether
    // the file has an access control list.
    line("write", 1, "rdma", 3.9, 13.9),
    line("null", 32, "rdma", 0.8, 0.8),
    // READs that came together share the call for the attributes.
    line("read", 32, "rdma", 1.2, 2.0),
    line("null", 1, "tcp", 3.9, 3.9),
    line("getattr", 1, "tcp", 3.9, 4.9),
    line("read", 1, "tcp", 3.9, 5.9),
    line("null", 32, "tcp", 0.8, 0.8),
    line("read", 32, "tcp", 1.2, 2.0),
];

const fn line(op: &'static str, depth: usize, transport: &'static str, client: f64, server: f64) -> Line {
    Line { op, depth, transport, client, server }
}

/// Counts the calls, prints them, and fails if an operation costs more than its limit.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    ensure!(Command::new("strace").arg("-V").output().is_ok(), "strace is not installed: it counts the system calls");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    let program = match arguments.debug {
        true => programs::debug(root, "rpcrdma-cli", Program::Only),
        false => programs::release(root, "rpcrdma-cli"),
    }?;
    let scratch = Scratch::new(root, "calls")?;
    let mut dearer = 0;
    for line in &LINES {
        let Counted { operations, client, server } = count(&program, &scratch.0, line)?;
        let is_dearer = client > line.client || server > line.server;
        dearer += usize::from(is_dearer);
        let Line { op, depth, transport, .. } = line;
        if arguments.json {
            let told = serde_json::json!({ "op": op, "depth": depth, "transport": transport,
                "operations": operations, "client": client, "server": server, "client_limit": line.client,
                "server_limit": line.server, "is_dearer": is_dearer });
            println!("{told}");
        } else {
            let verdict = if is_dearer { ": more than it may" } else { "" };
            println!(
                "{op} over {transport}, {depth} at a time: {client:.2} system calls at the client (at most {}), \
                 {server:.2} at the server (at most {}), of {operations:.0} operations{verdict}",
                line.client, line.server
            );
        }
    }
    if dearer > 0 {
        eprintln!("{dearer} kinds of operations cost more system calls than they may (xtask/src/calls.rs)");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// System calls for each of so many operations.
struct Counted {
    operations: f64,
    client: f64,
    server: f64,
}

/// Counts the system calls of enough operations, or of as many as fit into [`MOST_SECONDS`].
fn count(program: &Path, scratch: &Path, line: &Line) -> anyhow::Result<Counted> {
    let mut seconds = SECONDS;
    loop {
        let counted = count_for(seconds, program, scratch, line)?;
        match longer(seconds, counted.operations) {
            Some(more) => seconds = more,
            None => return Ok(counted),
        }
    }
}

/// How long to count again if so few operations fitted into so many seconds.
fn longer(seconds: f64, operations: f64) -> Option<f64> {
    let too_few = operations < FEWEST && seconds < MOST_SECONDS;
    // A machine that becomes slower meanwhile still fits them in.
    too_few.then(|| (seconds * FEWEST / operations.max(1.0) * 1.5).min(MOST_SECONDS))
}

fn count_for(seconds: f64, program: &Path, scratch: &Path, line: &Line) -> anyhow::Result<Counted> {
    let export = programs::exported(&scratch.join("export"))?;
    let (at_client, at_server) = (scratch.join("client"), scratch.join("server"));
    let server = Server::start(program, &export, &scratch.join("state"), &at_server)?;
    let port = match line.transport {
        "tcp" => &server.tcp,
        _ => &server.rdma,
    };
    let url = format!("nfs://127.0.0.1:{port}/file?version=3&mountport={}&transport={}", server.mountd, line.transport);
    let depth = line.depth.to_string();
    let mut bench = traced(&at_client);
    bench.arg(program).args(["bench", &url, "--op", line.op, "--depth", &depth, "--json"]);
    bench.args(["--seconds", &seconds.to_string()]).args(ASLEEP);
    match line.op {
        "read" => drop(bench.args(["--block", "4K"])),
        "write" => drop(bench.args(["--block", "4K", "--overwrite"])),
        _ => {}
    }
    let output = bench.stderr(Stdio::piped()).output().context("strace")?;
    ensure!(output.status.success(), "bench failed: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).context("what bench said")?;
    let operations = report["ops_per_s"].as_f64().context("bench told no rate")? * seconds;
    server.stop()?;
    Ok(Counted { operations, client: total(&at_client)? / operations, server: total(&at_server)? / operations })
}

/// strace, which writes its count to a file.
fn traced(count: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(count).stdin(Stdio::null());
    command
}

/// The sum of all system calls in strace's table: the fourth column of its last line.
fn total(count: &Path) -> anyhow::Result<f64> {
    let table = fs::read_to_string(count)?;
    sum(&table).with_context(|| format!("this is no table of strace's:\n{table}"))
}

fn sum(table: &str) -> Option<f64> {
    let last = table.lines().rev().find(|line| line.ends_with(" total"))?;
    last.split_whitespace().nth(3)?.parse().ok()
}

/// `rpcrdma serve` below strace.
struct Server {
    strace: Child,
    rdma: String,
    tcp: String,
    mountd: String,
}

impl Server {
    fn start(program: &Path, export: &Path, state: &Path, count: &Path) -> anyhow::Result<Self> {
        let file = export.join("file");
        if !file.exists() {
            fs::write(&file, vec![7; 4 << 20])?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o666))?;
        }
        let ready = count.with_extension("ready");
        let _ = fs::remove_file(&ready);
        let mut command = traced(count);
        command.arg(program).arg("serve").arg(export).arg("--state").arg(state).args(["--threads", "1", "--json"]);
        command.args(ASLEEP);
        command.args(["--listen", "127.0.0.1:0", "--mountd", "127.0.0.1:0", "--tcp", "127.0.0.1:0", "--locks", "off"]);
        let strace = command.stdout(fs::File::create(&ready)?).stderr(Stdio::null()).spawn().context("strace")?;
        let mut server = Self { strace, rdma: String::new(), tcp: String::new(), mountd: String::new() };
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if server.has_told(&ready)? {
                return Ok(server);
            }
            if let Some(status) = server.strace.try_wait()? {
                bail!("the server ended: {status}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the server did not say in {} s where it listens", PATIENCE.as_secs())
    }

    /// Whether the server has said where it listens. If so, notes the addresses.
    fn has_told(&mut self, said: &PathBuf) -> anyhow::Result<bool> {
        let text = fs::read_to_string(said)?;
        let Some(told) = text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()) else {
            return Ok(false);
        };
        let port = |what: &str| -> anyhow::Result<String> {
            let address = told["ready"][what][0].as_str().with_context(|| format!("no address of {what}"))?;
            Ok(address.rsplit(':').next().unwrap_or_default().to_owned())
        };
        (self.rdma, self.tcp, self.mountd) = (port("rdma")?, port("tcp")?, port("mountd")?);
        Ok(true)
    }

    /// Ends the server, and waits until strace has written its count.
    fn stop(mut self) -> anyhow::Result<()> {
        let strace = self.strace.id();
        let children = fs::read_to_string(format!("/proc/{strace}/task/{strace}/children"))?;
        let server = children.split_whitespace().next().context("strace has no child")?;
        Command::new("kill").args(["-INT", server]).status()?;
        ensure!(self.strace.wait()?.success(), "the server did not end well");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that was stopped has already ended, so these may fail.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_operations_are_counted_again_for_longer() {
        assert_eq!(longer(2.0, FEWEST), None);
        assert_eq!(longer(2.0, FEWEST / 4.0), Some(12.0));
        assert_eq!(longer(2.0, 0.0), Some(MOST_SECONDS));
        assert_eq!(longer(MOST_SECONDS, 1.0), None);
    }

    #[test]
    fn the_sum_of_a_table_is_in_its_last_line() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n 71.00    0.1 \
                     \n100.00    0.156132           3     45123        26 total\n";
        assert_eq!(sum(table), Some(45123.0));
        assert_eq!(sum("100.00    0.0           45123           total"), None);
        assert_eq!(sum(""), None);
    }
}
