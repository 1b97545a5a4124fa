//! Comparisons with other programs: one and two of our connections with iperf3, and our server with other projects'
//! servers over TCP. `rpcrdma bench` measures our side and all servers by turns; the results are tables.
//!
//! Ganesha and iperf3 are measured where they are installed. `nfs3_server` is a crate: our example of that name serves
//! a file from memory.

use super::{
    data::{Place, Sample},
    line::{Line, Row, one, tables},
    machine::Conditions,
    measure::{Pinned, Server},
    plan::{DEPTH, KIB_4, MAX_DEPTH, MIB, NULL, READ, WRITE},
};
use crate::programs::exported;
use anyhow::{Context as _, anyhow, bail};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// What is measured. One call at a time depends most on where the system puts the two ends: so the last lines also fix
/// these places.
const LINES: [Line; 8] = [
    Line { place: Place::Free, op: READ, block: Some(MIB), depth: DEPTH },
    Line { place: Place::Free, op: WRITE, block: Some(MIB), depth: DEPTH },
    Line { place: Place::Free, op: READ, block: Some(KIB_4), depth: MAX_DEPTH },
    Line { place: Place::Free, op: "getattr", block: None, depth: MAX_DEPTH },
    Line { place: Place::Free, op: NULL, block: None, depth: MAX_DEPTH },
    Line { place: Place::Free, op: READ, block: Some(KIB_4), depth: 1 },
    Line { place: Place::OneCpu, op: READ, block: Some(KIB_4), depth: 1 },
    Line { place: Place::TwoCpus, op: READ, block: Some(KIB_4), depth: 1 },
];

/// Lines that two connections can make faster.
const DEEP: usize = 5;

const IPERF: &str = "iperf3";
/// The yardstick twice at the same time: what the machine can do with two connections, and all that a call needs.
const YARDSTICKS: &str = "two yardsticks";
const GANESHA: &str = "ganesha.nfsd";
const RPCBIND: &str = "rpcbind";

/// The pause between two attempts to reach a server that starts, and the number of attempts.
const WAIT: Duration = Duration::from_millis(100);
const WAITS: usize = 100;

/// What was measured, and where.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Others {
    #[serde(flatten)]
    conditions: Conditions,
    connections: Table,
    servers: Table,
}

/// A table. The other columns are compared with the first one.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Table {
    columns: Vec<String>,
    /// For each line and each column: all rounds.
    rows: Vec<Vec<Vec<Sample>>>,
}

impl Table {
    fn new(lines: usize) -> Self {
        Self { columns: Vec::new(), rows: vec![Vec::new(); lines] }
    }

    fn add(&mut self, line: usize, column: &str, sample: Sample) {
        let number = self.columns.iter().position(|known| known == column).unwrap_or_else(|| {
            self.columns.push(column.to_owned());
            self.columns.len() - 1
        });
        let Some(row) = self.rows.get_mut(line) else { return };
        row.resize(self.columns.len().max(row.len()), Vec::new());
        row[number].push(sample);
    }

    fn told(&self, seconds: f64) -> String {
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let rows = LINES.iter().zip(&self.rows).map(|(line, row)| {
            let apart = if line.place == Place::TwoCpus { ", a processor each" } else { "" };
            let cells = (0..columns.len()).map(|number| row.get(number).map_or(&[][..], Vec::as_slice)).collect();
            Row { label: line.told() + apart, line, cells }
        });
        tables(&columns, &rows.collect::<Vec<_>>(), seconds)
    }
}

/// Another project's server. It ends when the value is dropped.
struct Other {
    name: &'static str,
    /// Its process, and the processes that it needs.
    processes: Vec<Child>,
    url: String,
}

impl Drop for Other {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Other {
    fn start(name: &'static str, command: &mut Command, port: u16, url: String) -> anyhow::Result<Self> {
        let child = quiet(command).spawn().with_context(|| name.to_owned())?;
        let mut started = Self { name, processes: vec![child], url };
        started.await_port(port)?;
        Ok(started)
    }

    fn await_port(&mut self, port: u16) -> anyhow::Result<()> {
        for _ in 0..WAITS {
            if TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok() {
                return Ok(());
            }
            for process in &mut self.processes {
                if let Some(status) = process.try_wait()? {
                    bail!("{} ended with {status}", self.name);
                }
            }
            thread::sleep(WAIT);
        }
        bail!("{} does not listen on port {port}", self.name)
    }

    /// Ganesha, which serves the folder in version 3, and the portmapper, without which Ganesha does not start.
    fn ganesha(export: &Path, scratch: &Path) -> anyhow::Result<Self> {
        let (port, mount_port) = (free()?, free()?);
        let file = scratch.join("ganesha.conf");
        let export = export.display();
        let settings = format!(
            "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {port}; MNT_Port = {mount_port}; Enable_NLM = false; \
             Enable_RQUOTA = false; Enable_UDP = false; fsid_device = true; }}\n\
             EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /x; Access_Type = RW; Squash = No_Root_Squash; \
             SecType = sys; Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }} }}\n"
        );
        fs::write(&file, settings)?;
        let mut portmapper = Other { name: RPCBIND, processes: Vec::new(), url: String::new() };
        portmapper.processes.push(quiet(Command::new(RPCBIND).arg("-f")).spawn().context(RPCBIND)?);
        portmapper.await_port(111)?;
        let mut command = Command::new(GANESHA);
        command.arg("-F").arg("-f").arg(&file).arg("-L").arg(scratch.join("ganesha.log"));
        command.arg("-p").arg(scratch.join("ganesha.pid"));
        let url = format!("nfs://127.0.0.1:{port}{export}/bench?version=3&transport=tcp&mountport={mount_port}");
        let mut started = Self::start("Ganesha", &mut command, port, url)?;
        started.processes.insert(0, portmapper.processes.remove(0));
        Ok(started)
    }

    fn nfs3_server(program: &Path) -> anyhow::Result<Self> {
        let port = free()?;
        let url = format!("nfs://127.0.0.1:{port}/bench?version=3&transport=tcp&mountport={port}");
        Self::start("nfs3_server", Command::new(program).arg(port.to_string()), port, url)
    }

    fn pid(&self) -> Option<u32> {
        self.processes.last().map(Child::id)
    }
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn free() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Measures every line in `rounds` rounds of `seconds` seconds each. `nfs3_server` is the example's program.
pub(super) fn measure(
    program: &Path,
    nfs3_server: &Path,
    scratch: &Path,
    rounds: usize,
    seconds: f64,
) -> anyhow::Result<Others> {
    let export = exported(&scratch.join("others"))?;
    let (mut connections, mut servers) = (Table::new(DEEP), Table::new(LINES.len()));
    let progress = ProgressBar::new(rounds as u64);
    for _ in 0..rounds {
        let ours = Server::start(program, Place::Free, &export, &scratch.join("others-state"))?;
        // Makes the file, or brings it into the page cache, and lets everybody write it.
        ours.bench(program, WRITE, Some(MIB), DEPTH, 0.01)?;
        fs::set_permissions(export.join("bench"), fs::Permissions::from_mode(0o666))?;
        for (number, line) in LINES.iter().enumerate().take(DEEP) {
            if line.block == Some(MIB) {
                match iperf(seconds) {
                    Ok(sample) => connections.add(number, IPERF, sample),
                    Err(error) => progress.suspend(|| eprintln!("{IPERF} is not measured: {error:#}")),
                }
            }
            for (column, more) in [("one connection", ""), ("two connections", "&nconnect=2")] {
                let url = format!("nfs://{}/bench?version=3&mountport={}{more}", ours.rdma, ours.mount_port);
                connections.add(number, column, line.measure(program, &url, Some(ours.pid()), seconds)?);
            }
            connections.add(number, YARDSTICKS, yardsticks(program, line, &export, seconds)?);
        }
        let others = [Other::ganesha(&export, scratch), Other::nfs3_server(nfs3_server)];
        let processes: Vec<_> = others.iter().flatten().filter_map(Other::pid).chain([ours.pid()]).collect();
        for (number, line) in LINES.iter().enumerate() {
            let _pinned = pinned(line.place, &processes)?;
            for (column, address, more) in
                [("NFS 3, TCP", &ours.tcp, "&transport=tcp"), ("NFS 3, RPC-over-RDMA 1", &ours.rdma, "")]
            {
                let url = format!("nfs://{address}/bench?version=3&mountport={}{more}", ours.mount_port);
                servers.add(number, column, line.measure(program, &url, Some(ours.pid()), seconds)?);
            }
            for other in others.iter().flatten() {
                servers.add(number, other.name, line.measure(program, &other.url, other.pid(), seconds)?);
            }
        }
        for error in others.iter().filter_map(|other| other.as_ref().err()) {
            progress.suspend(|| eprintln!("one is not measured: {error:#}"));
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(Others { conditions: Conditions::here(&export, seconds)?, connections, servers })
}

/// Pins the servers and the processes that this one starts to processors, as the place says.
fn pinned(place: Place, servers: &[u32]) -> anyhow::Result<Option<[Pinned; 2]>> {
    if place == Place::Free {
        return Ok(None);
    }
    // The servers come first: the allowed processors are read from this thread, so it must not be pinned yet.
    let servers = Pinned::processes(servers.iter().copied(), 0)?;
    Ok(Some([servers, Pinned::to(usize::from(place.is_apart()))?]))
}

/// Measures what iperf3 moves in one stream.
fn iperf(seconds: f64) -> anyhow::Result<Sample> {
    let port = free()?;
    let mut command = Command::new(IPERF);
    command.args(["-s", "-p", &port.to_string()]);
    let url = String::new();
    let _server = Other::start(IPERF, &mut command, port, url)?;
    let output = Command::new(IPERF)
        .args(["-c", "127.0.0.1", "-J", "-p", &port.to_string(), "-t", &seconds.max(1.0).to_string()])
        .output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    let octets = bits.with_context(|| report["error"].to_string())? / 8.0;
    Ok(Sample { mib_per_s: octets / f64::from(MIB), ..Sample::default() })
}

/// Measures `rpcrdma bench --limit` twice at the same time, each with half of the calls and a file of its own.
fn yardsticks(program: &Path, line: &Line, export: &Path, seconds: f64) -> anyhow::Result<Sample> {
    let half = Line { depth: line.depth / 2, ..*line };
    let measured = |file: &str| {
        let file = export.join(file).display().to_string();
        one(program, &[vec!["--limit".into(), file], half.options(seconds)].concat())
    };
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| measured("second"));
        (measured("first"), second.join())
    });
    let (first, second) = (first?, second.map_err(|_| anyhow!("a thread has died"))??);
    Ok(Sample {
        ops_per_s: first.ops_per_s + second.ops_per_s,
        mib_per_s: first.mib_per_s + second.mib_per_s,
        ..Sample::default()
    })
}

/// The part of the document.
pub(super) fn section(others: &Others) -> String {
    let rounds = others.servers.rows.first().and_then(|row| row.first()).map_or(0, Vec::len);
    let yardsticks = match others.connections.columns.iter().any(|column| column == YARDSTICKS) {
        true => {
            ". The last column is the [yardstick](#beside-what-the-machine-can-do) twice at the same time, with half of \
             the depth each"
        }
        false => "",
    };
    format!(
        "Machine: {}; {} for TCP, one file in the page cache. Client and server on loopback, wherever the system puts \
         them unless the line says otherwise, with their default settings, CRC on, release build. Each cell is the \
         median of {rounds} rounds of {} s in which all take turns. In brackets: the share of the first column within a \
         round; with depth 1, how many times its latency.\n\nRPC-over-RDMA 1 beside one stream of iperf3, which reads \
         and writes no file and computes no CRC; the depth is that of all connections together{yardsticks}:\n\n{}\n\
         Our server beside other people's servers of version 3 over TCP, all measured with our client; nfs3_server \
         keeps its file in memory:\n\n{}",
        others.conditions.machine,
        others.conditions.congestion,
        others.conditions.seconds,
        others.connections.told(others.conditions.seconds),
        others.servers.told(others.conditions.seconds),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Figures in which the second column is half as fast as the first.
    pub(in crate::figures) fn others() -> Others {
        let sample = |share: f64| Sample {
            ops_per_s: 100_000.0 * share,
            mib_per_s: 2048.0 * share,
            p50_us: 10.0 / share,
            server_cpu_s: Some(0.5),
            ..Sample::default()
        };
        let table = |lines: usize, first: &'static str| {
            let mut table = Table::new(lines);
            for line in 0..lines {
                // The first has no small calls.
                if line < 2 || first != IPERF {
                    table.add(line, first, sample(1.0));
                }
                table.add(line, "second", sample(0.5));
                table.add(line, "third", sample(0.25));
            }
            table
        };
        Others {
            conditions: Conditions { congestion: "cubic".into(), seconds: 1.0, ..Conditions::default() },
            connections: table(DEEP, IPERF),
            servers: table(LINES.len(), "ours"),
        }
    }

    #[test]
    fn shares_are_those_of_the_first_that_was_measured() {
        let section = section(&others());
        for line in [
            "| READ 1 MiB, depth 8, MiB/s | 2,048 | 1,024 (0.50) | 512 (0.25) |",
            "| READ 1 MiB, depth 8 | 0.25 | 0.50 | 1.00 |",
            "| NULL, depth 32, calls/s | not measured | 50,000 | 25,000 (0.50) |",
            "| NULL, depth 32, calls/s | 100,000 | 50,000 (0.50) | 25,000 (0.25) |",
            "| READ 4 KiB, depth 1, us | 10.0 | 20.0 (2.00) | 40.0 (4.00) |",
            "| READ 4 KiB, depth 1, one processor, us | 10.0 | 20.0 (2.00) | 40.0 (4.00) |",
            "| READ 4 KiB, depth 1, a processor each, us | 10.0 | 20.0 (2.00) | 40.0 (4.00) |",
        ] {
            assert!(section.lines().any(|told| told == line), "{line}\n{section}");
        }
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let text = serde_json::to_string(&others()).unwrap();
        assert_eq!(serde_json::from_str::<Others>(&text).unwrap(), others());
    }

    #[test]
    fn a_server_that_ends_is_not_waited_for() {
        let port = free().unwrap();
        let error = Other::start("true", &mut Command::new("true"), port, String::new()).err().unwrap();
        assert!(error.to_string().contains("true ended with"), "{error:#}");
    }
}
