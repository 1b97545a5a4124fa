//! What a process holds, as the system reports it.

use serde::Serialize;
use std::{
    collections::HashMap,
    fs, io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How often a [`Sampler`] looks.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// What a process holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Resources {
    /// Resident memory, in KiB.
    pub rss_kib: u64,
    /// Resident memory in KiB, where memory that processes share is divided among them.
    pub pss_kib: u64,
    /// The part of the resident memory that does not come from files: heap and stacks.
    pub anonymous_kib: u64,
    /// Open sockets.
    pub sockets: u64,
    /// Open descriptors, sockets and served files included.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
    /// Processor time used since it was started, in seconds.
    pub cpu_s: f64,
}

impl Resources {
    /// What this process holds.
    ///
    /// # Errors
    /// If the system does not report it, for example because the process has ended.
    pub fn of(pid: u32) -> io::Result<Self> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let (mut sockets, mut descriptors) = (0, 0);
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            descriptors += 1;
            // A descriptor that has been closed meanwhile was no lasting socket.
            let target = fs::read_link(entry?.path()).unwrap_or_default();
            sockets += u64::from(target.to_string_lossy().starts_with("socket:"));
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Self {
            rss_kib: value(&rollup, "Rss:"),
            pss_kib: value(&rollup, "Pss:"),
            anonymous_kib: value(&rollup, "Anonymous:"),
            sockets,
            descriptors,
            threads: value(&status, "Threads:"),
            cpu_s: cpu_s(&fs::read_to_string(format!("/proc/{pid}/stat"))?),
        })
    }

    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            rss_kib: self.rss_kib.max(other.rss_kib),
            pss_kib: self.pss_kib.max(other.pss_kib),
            anonymous_kib: self.anonymous_kib.max(other.anonymous_kib),
            sockets: self.sockets.max(other.sockets),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            cpu_s: self.cpu_s.max(other.cpu_s),
        }
    }

    /// Bytes of the process's own memory for each of `count` connections, beyond what it held `before`.
    pub fn octets_each(&self, before: &Self, count: usize) -> u64 {
        self.anonymous_kib.saturating_sub(before.anonymous_kib) * 1024 / (count.max(1) as u64)
    }

    /// Waits until the process has at most so many sockets. Returns whether that happened in time.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn wait_for_sockets(pid: u32, most: u64, patience: Duration) -> io::Result<bool> {
        let begin = Instant::now();
        while Self::of(pid)?.sockets > most {
            if begin.elapsed() > patience {
                return Ok(false);
            }
            std::thread::sleep(SAMPLE_INTERVAL / 2);
        }
        Ok(true)
    }
}

/// The number behind a name at the beginning of a line; 0 if the kernel does not report it.
fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// User and system time of a line of `/proc/PID/stat`. Its second field is a name that may hold anything.
fn cpu_s(stat: &str) -> f64 {
    let fields = stat.rsplit_once(')').map_or(stat, |(_, fields)| fields).split_ascii_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Processor time of each thread of a process, in nanoseconds.
///
/// # Errors
/// If the system does not report it, for example because the process has ended.
pub fn busy_ns(pid: u32) -> io::Result<HashMap<u32, u64>> {
    let mut busy = HashMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        // A thread that has ended meanwhile does not count.
        let Ok(told) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
        let ns = told.split_ascii_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
        let thread = entry.file_name().to_str().and_then(|thread| thread.parse::<u32>().ok());
        busy.extend(thread.zip(ns));
    }
    Ok(busy)
}

/// Bytes that TCP holds in the whole machine, both ends of loopback together. They belong to the system, and to no
/// process.
pub fn tcp_octets() -> u64 {
    let text = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
    let pages = line.rsplit(' ').next().and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Makes room for so many descriptors in this process.
///
/// # Errors
/// If the administrator allows fewer. The error names both numbers.
pub fn raise_descriptors(wanted: u64) -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    anyhow::ensure!(
        wanted <= most,
        "{wanted} descriptors are needed in each of both processes, and {most} are allowed: raise the hard limit of open files \
         (ulimit -Hn, LimitNOFILE=), or ask for fewer connections"
    );
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum })?;
    }
    Ok(())
}

/// Looks at a process repeatedly, and keeps the most that it held.
pub struct Sampler {
    stop: Arc<AtomicBool>,
    peak: Arc<Mutex<(Resources, u64)>>,
    thread: JoinHandle<()>,
}

impl Sampler {
    /// Begins to look.
    pub fn start(pid: u32) -> Self {
        let (stop, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::default()));
        let (stopped, seen) = (stop.clone(), peak.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                look(pid, &seen);
                std::thread::sleep(SAMPLE_INTERVAL);
            }
            look(pid, &seen);
        });
        Self { stop, peak, thread }
    }

    /// Ends. Returns the most of each resource, and the most bytes that TCP held.
    pub fn finish(self) -> (Resources, u64) {
        self.stop.store(true, Ordering::Relaxed);
        // If the thread has panicked, its last values are still there.
        let _ = self.thread.join();
        *self.peak.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look(pid: u32, peak: &Mutex<(Resources, u64)>) {
    if let Ok(now) = Resources::of(pid) {
        let mut peak = peak.lock().unwrap_or_else(PoisonError::into_inner);
        *peak = (peak.0.max(now), peak.1.max(tcp_octets()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_something() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mine = Resources::of(std::process::id()).unwrap();
        assert!(mine.anonymous_kib > 0 && mine.rss_kib >= mine.anonymous_kib && mine.pss_kib <= mine.rss_kib);
        assert!(mine.sockets >= 1 && mine.descriptors > mine.sockets && mine.threads >= 1, "{mine:?}");
        drop(socket);
        assert!(Resources::of(u32::MAX).is_err());
    }

    #[test]
    fn each_thread_of_this_process_has_worked() {
        let busy = busy_ns(std::process::id()).unwrap();
        assert!(busy.values().any(|ns| *ns > 0), "{busy:?}");
        assert!(busy_ns(u32::MAX).is_err());
    }

    #[test]
    fn fields_are_found_whatever_the_process_is_called() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 200 100 0 0 20 0 1";
        assert_eq!(cpu_s(stat), 300.0 / rustix::param::clock_ticks_per_second() as f64);
        assert_eq!((value("Rss:   12 kB\nPss: 7 kB", "Pss:"), value("", "Rss:")), (7, 0));
    }

    #[test]
    fn a_connection_costs_what_came_with_it() {
        let of = |anonymous_kib| Resources { anonymous_kib, ..Resources::default() };
        assert_eq!(of(300).octets_each(&of(100), 10), 20 * 1024);
        assert_eq!(of(1).octets_each(&of(100), 0), 0);
    }
}
