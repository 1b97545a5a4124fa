//! `cargo xtask small`: how long `get -r` and `put -r` of many small files take, with one program or several by turns.
//!
//! Each program is both server and client, so the command compares what its users get. The copied files lie in memory
//! by default, so that the disk does not matter. In each round every program does each kind of copy once: so other work
//! of the machine affects all of them. The command prints medians of the times, and the processor time of client and
//! server, which other work affects little. With `--round-trip`, all bytes go through relays that delay them
//! ([`distance`]).

mod distance;

use crate::{figures::machine::Machine, programs};
use anyhow::{Context as _, bail, ensure};
use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Ticks of /proc/PID/stat in a second: Linux uses this number for all programs.
const TICKS: f64 = 100.0;

/// Measure `get -r` and `put -r` of many small files
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A program to measure; may be given several times, and the others are compared with the first (default: the
    /// program that this repository builds)
    #[arg(long = "program", value_name = "FILE")]
    programs: Vec<PathBuf>,
    /// Number of files
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    files: usize,
    /// Bytes of each file
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    octets: usize,
    /// Number of rounds; in each round, every program does each kind of copy once
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// Folder for the files
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    folder: PathBuf,
    /// Start servers without --async, so that names are durable before the answer
    #[arg(long)]
    durable: bool,
    /// Microseconds that relays add to each round trip between client and server
    #[arg(long, value_name = "N", default_value_t = 0)]
    round_trip: u64,
}

impl Arguments {
    /// How long each direction takes.
    fn delay(&self) -> Duration {
        Duration::from_micros(self.round_trip) / 2
    }
}

/// The times of one turn, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    wall: f64,
    client: f64,
    server: f64,
}

/// A program that runs as a server.
struct Served<'a> {
    program: &'a Path,
    server: Child,
    nfs: String,
    mount: String,
    has_version_4: bool,
    folder: PathBuf,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// One kind of copy that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    command: &'static str,
    version: &'static str,
}

const KINDS: [Kind; 4] = [
    Kind { command: "get", version: "3" },
    Kind { command: "get", version: "4.2" },
    Kind { command: "put", version: "3" },
    Kind { command: "put", version: "4.2" },
];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    let programs = match arguments.programs.is_empty() {
        true => vec![programs::release(root, "rpcrdma-cli")?],
        false => arguments.programs.clone(),
    };
    let scratch = programs::Scratch::in_folder(&arguments.folder, "small")?;
    let source = scratch.0.join("source");
    make_files(&source, arguments)?;
    let mut served = Vec::new();
    for (number, program) in programs.iter().enumerate() {
        let folder = scratch.0.join(number.to_string());
        served.push(serve(program, folder, &source, arguments)?);
    }
    let mut all: Vec<(usize, Kind, Vec<Took>)> = Vec::new();
    for round in 0..arguments.rounds.max(1) {
        eprintln!("round {}", round + 1);
        for (number, served) in served.iter().enumerate() {
            for kind in KINDS.into_iter().filter(|kind| kind.version == "3" || served.has_version_4) {
                let took = served.take_turn(kind, &source, arguments.files)?;
                match all.iter_mut().find(|(of, known, _)| (*of, *known) == (number, kind)) {
                    Some((.., times)) => times.push(took),
                    None => all.push((number, kind, vec![took])),
                }
            }
        }
    }
    println!("{}", table(&Machine::this(&scratch.0).to_string(), arguments, &all));
    Ok(())
}

fn make_files(source: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    fs::create_dir_all(source)?;
    for number in 0..arguments.files {
        let octets: Vec<u8> = (0..arguments.octets).map(|at| (at * 31 + number * 7) as u8 | 1).collect();
        fs::write(source.join(format!("file-{number:06}")), octets)?;
    }
    Ok(())
}

fn serve<'a>(program: &'a Path, folder: PathBuf, source: &Path, arguments: &Arguments) -> anyhow::Result<Served<'a>> {
    fs::create_dir_all(folder.join("served"))?;
    // The same files once more, without more memory.
    fs::create_dir(folder.join("served/source"))?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        fs::copy(entry.path(), folder.join("served/source").join(entry.file_name()))?;
    }
    let help = Command::new(program).args(["serve", "--help"]).output().context("cannot start the program")?;
    let has_version_4 = String::from_utf8_lossy(&help.stdout).contains("--nfs <VERSIONS>");
    let mut command = Command::new(program);
    command.arg("serve").arg(folder.join("served")).arg("--state").arg(folder.join("state"));
    command.args(["--listen", "127.0.0.1:0", "--mountd", "127.0.0.1:0"]);
    if !arguments.durable {
        command.arg("--async");
    }
    if fs::metadata(&folder)?.uid() == 0 {
        // If root copies, the files there belong to root.
        command.arg("--no-root-squash");
    }
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("cannot start a server")?;
    let mut line = String::new();
    let output = server.stdout.take().context("the server has no output")?;
    BufReader::new(output).read_line(&mut line)?;
    let found = addresses(&line);
    let mut served = Served { program, server, nfs: String::new(), mount: String::new(), has_version_4, folder };
    (served.nfs, served.mount) = found.with_context(|| format!("the server says: {line}"))?;
    if !arguments.delay().is_zero() {
        for address in [&mut served.nfs, &mut served.mount] {
            *address = distance::relay(address, arguments.delay())?.to_string();
        }
    }
    Ok(served)
}

/// The addresses of NFS over RDMA and of MOUNT, from the server's line when it is ready.
fn addresses(line: &str) -> Option<(String, String)> {
    let behind = |what: &str| Some(line.split(what).nth(1)?.split([',', ' ', '\n']).next()?.to_owned());
    Some((behind("NFS/RDMA on ")?, behind("MOUNT on ")?))
}

impl Served<'_> {
    fn take_turn(&self, kind: Kind, source: &Path, files: usize) -> anyhow::Result<Took> {
        let Kind { command, version } = kind;
        let copied = match command {
            "get" => self.folder.join("got"),
            _ => self.folder.join("served/put"),
        };
        fs::create_dir_all(&copied)?;
        let mount = self.mount.rsplit(':').next().unwrap_or_default();
        let mut url =
            format!("nfs://{}/{}?mountport={mount}", self.nfs, if command == "get" { "source" } else { "put" });
        // A program without version 4 speaks version 3 and may not know the option.
        if self.has_version_4 {
            let _ = write!(url, "&version={version}");
        }
        let mut client = Command::new(self.program);
        client.args([command, "-r", "-q"]);
        match command {
            "get" => client.arg(&url).arg(&copied),
            _ => client.arg(source).arg(&url),
        };
        let pid = self.server.id().to_string();
        let (server, children, begin) = (used(&pid, 13)?, used("self", 15)?, Instant::now());
        let status = client.status().context("cannot start the client")?;
        let took = Took {
            wall: begin.elapsed().as_secs_f64(),
            client: used("self", 15)? - children,
            server: used(&pid, 13)? - server,
        };
        ensure!(status.success(), "{command} in version {version} has failed");
        let here = fs::read_dir(copied.join("source"))?.count();
        if here != files {
            bail!("{command} in version {version} has copied {here} files of {files}");
        }
        fs::remove_dir_all(&copied)?;
        Ok(took)
    }
}

/// Processor time of a process: the sum of two neighbouring numbers in its line of /proc, behind the program's name.
fn used(process: &str, first: usize) -> anyhow::Result<f64> {
    let line = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let behind = line.rsplit(')').next().context("/proc/PID/stat")?;
    // The name is the second field, so two fields are already gone.
    let numbers: Vec<f64> = behind.split_whitespace().map(|number| number.parse().unwrap_or(0.0)).collect();
    let at = first - 2;
    match numbers.get(at..at + 2) {
        Some([user, system]) => Ok((user + system) / TICKS),
        _ => bail!("/proc/{process}/stat has another form"),
    }
}

fn median(times: &[Took], of: fn(&Took) -> f64) -> f64 {
    let mut values: Vec<f64> = times.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn table(machine: &str, arguments: &Arguments, all: &[(usize, Kind, Vec<Took>)]) -> String {
    let Arguments { files, octets, rounds, durable, round_trip, .. } = arguments;
    let served = if *durable { "each name durable before its answer" } else { "`serve --async`" };
    let way = match round_trip {
        0 => "on loopback".to_owned(),
        _ => format!("over relays that add a round trip of {round_trip} microseconds"),
    };
    let mut out = format!(
        "Machine: {machine}; {files} files of {octets} bytes {way}, {served}; medians of {rounds} turns.\n\n\
         | program | command | version | s | client's CPU s | server's CPU s | times as fast as the first in version 3 | \
         with 1/CPU |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    for (number, Kind { command, version }, times) in all {
        let base = all.iter().find(|(of, kind, _)| *of == 0 && (kind.command, kind.version) == (command, "3"));
        let base = base.map_or(&times[..], |(.., times)| times);
        let cpu = |took: &Took| took.client + took.server;
        let _ = writeln!(
            out,
            "| {} | {command} -r | {version} | {:.2} | {:.2} | {:.2} | **{:.2}** | {:.2} |",
            number + 1,
            median(times, |took| took.wall),
            median(times, |took| took.client),
            median(times, |took| took.server),
            median(base, |took| took.wall) / median(times, |took| took.wall),
            median(base, cpu) / median(times, cpu),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_server_is_stands_in_what_it_says() {
        let line = "ready: /srv over NFS/RDMA on 127.0.0.1:4000, MOUNT on 127.0.0.1:4001, NFS/TCP on 127.0.0.1:4002\n";
        assert_eq!(addresses(line), Some(("127.0.0.1:4000".into(), "127.0.0.1:4001".into())));
        assert_eq!(addresses("ready: nothing"), None);
    }

    #[test]
    fn times_are_compared_with_the_first_program_in_version_3() {
        let took = |wall| Took { wall, client: wall / 2.0, server: wall / 2.0 };
        let kind = |version| Kind { command: "get", version };
        let all = [(0, kind("3"), vec![took(3.0), took(9.0), took(2.0)]), (1, kind("4.2"), vec![took(1.0)])];
        let (programs, folder) = (Vec::new(), PathBuf::new());
        let arguments = Arguments { programs, files: 7, octets: 5, rounds: 3, folder, durable: false, round_trip: 100 };
        assert_eq!(arguments.delay(), Duration::from_micros(50));
        let text = table("this", &arguments, &all);
        assert_eq!(text.lines().last(), Some("| 2 | get -r | 4.2 | 1.00 | 0.50 | 0.50 | **3.00** | 3.00 |"));
    }

    #[test]
    fn this_process_has_used_some_time() {
        assert!(used("self", 13).unwrap() >= 0.0);
        assert!(used("self", 15).is_ok() && used("nobody", 13).is_err());
    }
}
