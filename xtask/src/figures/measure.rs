//! Measuring: a server of the built program, and `rpcrdma bench` against it, again and again.

pub(crate) use super::data::Place;
use super::{
    data::{Figures, Measurement, Sample},
    machine::Machine,
    plan::{self, Step},
};
use crate::programs::exported;
use anyhow::{Context as _, bail, ensure};
use indicatif::ProgressBar;
use rustix::{
    io::Errno,
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// What was measured: where, operation, bytes in a block, depth.
type Key = (Place, String, Option<u32>, u64);

/// Measures every step in `rounds` rounds of `seconds` seconds each.
pub(super) fn measure(program: &Path, scratch: &Path, rounds: usize, seconds: f64) -> anyhow::Result<Figures> {
    let steps = plan::steps();
    let progress = ProgressBar::new((steps.len() * rounds) as u64);
    let export = exported(&scratch.join("export"))?;
    let mut found: Vec<(Key, Vec<Sample>)> = Vec::new();
    for _ in 0..rounds {
        for place in Place::ALL {
            let mut pinned = (place != Place::Free).then(|| Pinned::to(0)).transpose()?;
            let server = Server::start(program, place, &export, &scratch.join("state"))?;
            if place.is_apart() {
                drop(pinned.take());
                pinned = Some(Pinned::to(1)?);
            }
            // Makes the file, or brings it into the page cache.
            server.bench(program, "write", Some(plan::MIB), plan::DEPTH, 0.01)?;
            for step in steps.iter().copied().filter(|step| step.place() == place) {
                let reports = match step {
                    Step::Baseline { block, .. } if place.is_apart() => {
                        drop(pinned.take());
                        let reports = baseline(program, block, seconds, &["--apart"])?;
                        pinned = Some(Pinned::to(1)?);
                        reports
                    }
                    Step::Baseline { block, .. } => baseline(program, block, seconds, &[])?,
                    Step::Bench { op, block, depth, .. } => server.bench(program, op, block, depth, seconds)?,
                };
                for Report { op, block, depth, sample } in reports {
                    let key = (place, op, block, depth);
                    match found.iter_mut().find(|(found, _)| *found == key) {
                        Some((_, samples)) => samples.push(sample),
                        None => found.push((key, vec![sample])),
                    }
                }
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    let measurements =
        found.into_iter().map(|((place, op, block, depth), rounds)| Measurement::new(place, &op, block, depth, rounds));
    let (machine, measurements) = (Machine::this(&export), measurements.collect());
    Ok(Figures { machine, seconds, measurements, ..Figures::default() })
}

/// A line of `rpcrdma bench --json`.
#[derive(serde::Deserialize)]
pub(crate) struct Report {
    op: String,
    block: Option<u32>,
    depth: u64,
    #[serde(flatten)]
    pub(super) sample: Sample,
}

/// Runs `rpcrdma bench` and reads what it reports.
pub(crate) fn run(program: &Path, arguments: &[String]) -> anyhow::Result<Vec<Report>> {
    let output = Command::new(program).arg("bench").args(arguments).arg("--json").output()?;
    if !output.status.success() {
        bail!("bench {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    let lines = String::from_utf8(output.stdout)?;
    lines.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

fn baseline(program: &Path, block: u32, seconds: f64, more: &[&str]) -> anyhow::Result<Vec<Report>> {
    let (block, seconds) = (block.to_string(), seconds.to_string());
    let arguments = ["--baseline", "--block", &block, "--seconds", &seconds];
    let arguments: Vec<String> = arguments.iter().chain(more).map(|&argument| argument.to_owned()).collect();
    run(program, &arguments)
}

/// Measures requests over plain TCP, one after the other, each answered with `block` bytes.
pub(super) fn request(program: &Path, block: u32, seconds: f64, apart: bool) -> anyhow::Result<Sample> {
    let reports = baseline(program, block, seconds, if apart { &["--apart"] } else { &[] })?;
    let request = reports.into_iter().find(|report| report.op == plan::REQUEST);
    Ok(request.context("bench --baseline reports no requests")?.sample)
}

/// The options that say how both ends wait for messages.
fn polling(place: Place) -> Vec<String> {
    if place == Place::Asleep { vec!["--busy-poll".into(), "0".into()] } else { Vec::new() }
}

/// A server that runs. It ends when it is dropped.
pub(crate) struct Server {
    child: Child,
    url: String,
    pub(super) place: Place,
    /// The address of NFS over RDMA, that of NFS over TCP, and the port of MOUNT.
    pub(super) rdma: String,
    pub(super) tcp: String,
    pub(super) mount_port: String,
}

impl Server {
    /// Serves a directory on ports that the system chooses.
    pub(super) fn start(program: &Path, place: Place, export: &Path, state: &Path) -> anyhow::Result<Self> {
        Self::start_with(program, place, export, state, &[])
    }

    /// The same with more arguments.
    pub(crate) fn start_with(
        program: &Path,
        place: Place,
        export: &Path,
        state: &Path,
        more: &[String],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.arg("serve").arg(export).arg("--json").arg("--state").arg(state);
        command
            .args(["--listen", "127.0.0.1:0", "--mountd", "127.0.0.1:0", "--tcp", "127.0.0.1:0"])
            .args(polling(place))
            .args(more);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("starting the server")?;
        let stdout = child.stdout.take();
        let [url, rdma, tcp, mount_port] = Default::default();
        let mut server = Self { child, url, place, rdma, tcp, mount_port };
        let mut line = String::new();
        BufReader::new(stdout.context("the server's output")?).read_line(&mut line)?;
        let ready: Value = serde_json::from_str(&line).context("the server does not say that it is ready")?;
        let address = |key: &str| ready["ready"][key][0].as_str();
        let rdma = address("rdma").context("no address")?;
        let (_, mount_port) = address("mountd").and_then(|mount| mount.rsplit_once(':')).context("no port of MOUNT")?;
        server.url = format!("nfs://{rdma}/bench?version=3&mountport={mount_port}");
        (server.rdma, server.mount_port) = (rdma.to_owned(), mount_port.to_owned());
        server.tcp = address("tcp").context("no address of NFS over TCP")?.to_owned();
        Ok(server)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The URL of a name in the directory, over TCP or RDMA, with these options.
    pub(crate) fn url_of(&self, name: &str, tcp: bool, query: &str) -> String {
        let address = if tcp { &self.tcp } else { &self.rdma };
        let mount = if query.contains("version=3") { &*format!("&mountport={}", self.mount_port) } else { "" };
        format!("nfs://{address}/{name}?{query}{mount}")
    }

    /// Lets the server end as an operator does, so that it does what it does at its end.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        let id = Pid::from_raw(self.child.id().try_into()?).context("the server's process has no number")?;
        rustix::process::kill_process(id, rustix::process::Signal::TERM).context("ending the server")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    pub(super) fn bench(
        &self,
        program: &Path,
        op: &str,
        block: Option<u32>,
        depth: u64,
        seconds: f64,
    ) -> anyhow::Result<Vec<Report>> {
        let mut arguments = vec![self.url.clone(), "--op".into(), op.into()];
        arguments.extend(["--depth".into(), depth.to_string(), "--seconds".into(), seconds.to_string()]);
        arguments.extend(["--server-pid".into(), self.child.id().to_string()]);
        if let Some(block) = block {
            arguments.extend(["--block".into(), block.to_string()]);
        }
        arguments.extend(polling(self.place));
        if op == plan::WRITE {
            arguments.push("--overwrite".into());
        }
        run(program, &arguments)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The n-th of the processors that this thread may use, or the last one.
pub(super) fn nth_processor(nth: usize) -> anyhow::Result<usize> {
    let allowed = sched_getaffinity(None).context("reading the affinity")?;
    let allowed = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    allowed.take(nth + 1).last().context("no processor is allowed")
}

/// While this value lives, this thread and the processes that it starts run on one processor.
pub(super) struct Pinned {
    /// `None` is this thread.
    threads: Vec<Option<Pid>>,
    before: CpuSet,
}

impl Pinned {
    /// Pins this thread to the n-th of the allowed processors, or to the last one.
    pub(super) fn to(nth: usize) -> anyhow::Result<Self> {
        Self::threads(vec![None], nth)
    }

    /// Pins this thread to a processor, even if it was pinned to another one.
    pub(super) fn on(cpu: usize) -> anyhow::Result<Self> {
        Self::threads_on(vec![None], cpu)
    }

    /// Pins all threads of other processes. This thread must not be pinned.
    pub(super) fn processes(ids: impl IntoIterator<Item = u32>, nth: usize) -> anyhow::Result<Self> {
        let mut threads = Vec::new();
        for id in ids {
            for task in fs::read_dir(format!("/proc/{id}/task"))? {
                threads.push(Pid::from_raw(task?.file_name().to_string_lossy().parse()?));
            }
        }
        Self::threads(threads, nth)
    }

    fn threads(threads: Vec<Option<Pid>>, nth: usize) -> anyhow::Result<Self> {
        Self::threads_on(threads, nth_processor(nth)?)
    }

    fn threads_on(threads: Vec<Option<Pid>>, cpu: usize) -> anyhow::Result<Self> {
        let before = sched_getaffinity(None).context("reading the affinity")?;
        let mut one = CpuSet::new();
        one.set(cpu);
        let pinned = Self { threads, before };
        for thread in &pinned.threads {
            match sched_setaffinity(*thread, &one) {
                // A thread that has ended meanwhile needs no processor.
                Err(Errno::SRCH) | Ok(()) => {}
                Err(error) => return Err(error).context("setting the affinity"),
            }
        }
        Ok(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for thread in &self.threads {
            // If this fails, later measurements are slower, but still right.
            let _ = sched_setaffinity(*thread, &self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let line = r#"{"op":"read","block":4096,"depth":1,"ops_per_s":1.5,"mib_per_s":2.0,"p50_us":3.0,"p99_us":4.0,"cpu_s":0.1,"server_cpu_s":null}"#;
        let report: Report = serde_json::from_str(line).unwrap();
        assert_eq!((&*report.op, report.block, report.depth), ("read", Some(4096), 1));
        assert_eq!((report.sample.p50_us, report.sample.server_cpu_s), (3.0, None));
    }

    #[test]
    fn one_processor_is_one_and_comes_back_as_it_was() {
        let before = sched_getaffinity(None).unwrap();
        for nth in [0, 1] {
            let pinned = Pinned::to(nth).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            drop(pinned);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
