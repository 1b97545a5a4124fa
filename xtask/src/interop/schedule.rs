//! Runs jobs, as many at a time as guests are allowed, and shows how far they are.

use super::{
    context::{Context, Settings},
    jobs::Job,
    report::Outcome,
    tshark,
};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::{
    fs,
    io::IsTerminal as _,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// What has not begun, and how many guests run.
struct Queue<'a> {
    waiting: Vec<&'a Job>,
    guests: usize,
}

/// Runs the jobs; the results come in the jobs' order.
pub(super) fn run_all(jobs: &[&Job], settings: &Settings, guests: usize) -> Vec<Outcome> {
    let queue = Mutex::new(Queue { waiting: jobs.to_vec(), guests: 0 });
    let changed = Condvar::new();
    let outcomes = Mutex::new(Vec::new());
    let shown = std::io::stderr().is_terminal().then(MultiProgress::new);
    thread::scope(|scope| {
        for _ in 0..guests.max(1) {
            scope.spawn(|| {
                while let Some(job) = take(&queue, &changed, guests.max(1)) {
                    let outcome = run(job, settings, shown.as_ref());
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                    queue.lock().unwrap_or_else(PoisonError::into_inner).guests -= job.guests.min(guests.max(1));
                    changed.notify_all();
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|outcome| jobs.iter().position(|job| job.name == outcome.name));
    outcomes
}

/// The next job that has room. A job that needs more guests than allowed at all runs alone.
fn take<'a>(queue: &Mutex<Queue<'a>>, changed: &Condvar, most: usize) -> Option<&'a Job> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let room = most - queue.guests;
        let next = queue.waiting.iter().position(|job| job.guests.min(most) <= room);
        match next {
            Some(at) => {
                let job = queue.waiting.remove(at);
                queue.guests += job.guests.min(most);
                return Some(job);
            }
            None if queue.waiting.is_empty() => return None,
            None => queue = changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn run(job: &Job, settings: &Settings, shown: Option<&MultiProgress>) -> Outcome {
    let bar = shown.map(|all| {
        let bar = all.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix:24} {elapsed:>5} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(job.name);
        bar.set_message(job.about);
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    });
    let begin = Instant::now();
    let (result, notes) = attempt(job, settings);
    let took = begin.elapsed();
    let failure = result.err().map(|error| format!("{error:#}"));
    let line = match &failure {
        None => {
            format!("{:26} ok      {:6.1} s of {}", job.name, took.as_secs_f64(), job.budget(settings.ops).as_secs())
        }
        Some(reason) => format!("{:26} FAILED  {:6.1} s: {reason}", job.name, took.as_secs_f64()),
    };
    match (bar, shown) {
        (Some(bar), Some(all)) => {
            bar.finish_and_clear();
            let _ = all.println(line);
        }
        _ => eprintln!("{line}"),
    }
    Outcome { name: job.name, about: job.about, took, budget: job.budget(settings.ops), failure, notes }
}

/// A job whose QEMU fell over by itself has shown nothing about Linux or us: it is tried once more.
fn attempt(job: &Job, settings: &Settings) -> (anyhow::Result<()>, Vec<String>) {
    let (result, notes) = attempt_once(job, settings);
    match qemu_aborted(&settings.run.join(job.name)) {
        Some(reason) if result.is_err() => {
            let (result, mut notes) = attempt_once(job, settings);
            notes.push(format!("tried twice: QEMU ended by itself: {reason}"));
            (result, notes)
        }
        _ => (result, notes),
    }
}

/// What QEMU said when a check of its own failed, as libslirp's `soread` does when a connection ends while its buffer is full.
pub(super) fn qemu_aborted(job: &Path) -> Option<String> {
    let guests = fs::read_dir(job).into_iter().flatten().flatten();
    let logs = guests.filter_map(|guest| fs::read_to_string(guest.path().join("qemu.log")).ok());
    logs.flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>()).find(|line| line.contains("Assertion `"))
}

fn attempt_once(job: &Job, settings: &Settings) -> (anyhow::Result<()>, Vec<String>) {
    let context = match Context::begin(settings, job) {
        Ok(context) => context,
        Err(error) => return (Err(error), Vec::new()),
    };
    let result = panic::catch_unwind(AssertUnwindSafe(|| (job.run)(&context)))
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the job's own code panicked; its message stands above")));
    let result = result.and_then(|()| tshark::judge_all(&context));
    if result.is_ok() && !settings.keep {
        clean(&context);
    }
    (result, context.notes())
}

/// Captures of passed jobs stay up to this many octets.
const KEPT_CAPTURE: u64 = 64 << 20;

/// Removes what takes room and tells nothing: what was served and copied, this program's copies, long captures.
fn clean(context: &Context) {
    for entry in fs::read_dir(context.dir()).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.join("console.log").exists() {
            let _ = fs::remove_file(path.join("xtask"));
            let wire = path.join("wire.pcap");
            if fs::metadata(&wire).is_ok_and(|metadata| metadata.len() > KEPT_CAPTURE) {
                let _ = fs::remove_file(wire);
            }
        } else if path.is_dir() {
            let _ = fs::remove_dir_all(path);
        }
    }
}
