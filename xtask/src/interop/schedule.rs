//! Runs jobs at the same time, up to the allowed number of guests, and shows their progress.

use super::{
    context::{Context, Settings},
    crash,
    guest::QEMU_LOG,
    jobs::Job,
    report::{Crashed, Outcome},
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

/// The jobs that have not begun, and how many guests run.
struct Queue<'a> {
    waiting: Vec<&'a Job>,
    guests: usize,
}

/// Runs the jobs; returns the results in the jobs' order.
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

/// The next job for whose guests there is room. A job that needs more guests than allowed runs alone.
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
    let Attempt { result, notes, crash } = attempt(job, settings);
    let took = begin.elapsed();
    let failure = result.err().map(|error| format!("{error:#}"));
    let line = match &failure {
        None => {
            format!("{:26} ok      {:6.1} s of {}", job.name, took.as_secs_f64(), job.budget(settings).as_secs())
        }
        Some(reason) => format!("{:26} FAILED  {:6.1} s: {reason}", job.name, took.as_secs_f64()),
    };
    let lines = match &crash {
        Some(crash) => format!("{line}\n{:26} {}", job.name, crash.told()),
        None => line,
    };
    match (bar, shown) {
        (Some(bar), Some(all)) => {
            bar.finish_and_clear();
            let _ = all.println(lines);
        }
        _ => eprintln!("{lines}"),
    }
    Outcome { name: job.name, about: job.about, took, budget: job.budget(settings), failure, notes, crash }
}

/// The result of one attempt at a job.
struct Attempt {
    result: anyhow::Result<()>,
    notes: Vec<String>,
    crash: Option<Crashed>,
}

/// Does a job. If QEMU aborted, or a guest's kernel crashed by its own fault, the job has shown nothing about us: it
/// gets a second attempt. The files of the crash stay beside the folder of that attempt.
fn attempt(job: &Job, settings: &Settings) -> Attempt {
    let mut first = attempt_once(job, settings);
    if first.result.is_ok() {
        return first;
    }
    let dir = settings.run.join(job.name);
    if let Some(reason) = qemu_aborted(&dir) {
        let mut second = attempt_once(job, settings);
        second.notes.push(format!("tried twice: QEMU ended by itself: {reason}"));
        return second;
    }
    match crash::of_job(&dir) {
        Some((guest, crash)) if crash.our_fault().is_none() => {
            let kept = settings.run.join(format!("{}{CRASHED}", job.name));
            let _ = fs::remove_dir_all(&kept);
            if let Err(error) = fs::rename(&dir, &kept) {
                first.notes.push(format!("its guest crashed, and {} cannot be made: {error}", kept.display()));
                return first;
            }
            let crashed = Crashed { guest, first: crash.in_short(), words: crash.words(), kept };
            Attempt { crash: Some(crashed), ..attempt_once(job, settings) }
        }
        _ => first,
    }
}

/// The end of the name of the folder with the files of a crash.
const CRASHED: &str = "-crashed";

/// What QEMU said when one of its own assertions failed, as in libslirp's `soread` if a connection ends while its
/// buffer is full.
pub(super) fn qemu_aborted(job: &Path) -> Option<String> {
    let guests = fs::read_dir(job).into_iter().flatten().flatten();
    let logs = guests.filter_map(|guest| fs::read_to_string(guest.path().join(QEMU_LOG)).ok());
    logs.flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>()).find(|line| line.contains("Assertion `"))
}

fn attempt_once(job: &Job, settings: &Settings) -> Attempt {
    let context = match Context::begin(settings, job) {
        Ok(context) => context,
        Err(error) => return Attempt { result: Err(error), notes: Vec::new(), crash: None },
    };
    let result = panic::catch_unwind(AssertUnwindSafe(|| (job.run)(&context)))
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the job's own code panicked; its message stands above")));
    let result = result.and_then(|()| tshark::judge_all(&context));
    if result.is_ok() && !settings.keep {
        clean(&context);
    }
    Attempt { result, notes: context.notes(), crash: None }
}

/// A passed job's captures stay if they have at most this many bytes.
const KEPT_CAPTURE: u64 = 64 << 20;

/// Removes large files that are of no use: served and copied files, copies of this program, long captures.
fn clean(context: &Context) {
    for entry in fs::read_dir(context.dir()).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.join(crash::CONSOLE_LOG).exists() {
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

#[cfg(test)]
mod tests {
    use super::{attempt, run};
    use crate::interop::{
        context::{Context, Settings},
        crash::CONSOLE_LOG,
        flavour,
        image::Image,
        jobs::Job,
    };
    use anyhow::bail;
    use std::{
        fs,
        path::Path,
        sync::atomic::{AtomicUsize, Ordering},
    };

    fn settings(run: &Path) -> Settings {
        let image = Image { version: "0".into(), folder: run.to_owned() };
        Settings { program: "true".into(), run: run.to_owned(), ops: 1, patience: 1, seed: 1, keep: true, image }
    }

    fn job(run: fn(&Context) -> anyhow::Result<()>) -> Job {
        Job { name: "job", about: "", seconds: 60, guests: 1, scales: false, flavours: flavour::ONE, run }
    }

    /// Leaves the files of a guest that died with these words on its console.
    fn died(context: &Context, words: &str) -> anyhow::Result<()> {
        fs::write(context.folder("client")?.join(CONSOLE_LOG), words)?;
        bail!("guest client died")
    }

    #[test]
    fn a_job_whose_guest_crashed_is_run_again_and_the_crash_is_told() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let folder = tempfile::tempdir().unwrap();
        let job = job(|context| match RUNS.fetch_add(1, Ordering::Relaxed) {
            0 => died(context, "BUG: x\nRIP: 0010:siw_y+0x1/0x2 [siw]\nKernel panic - not syncing: Fatal exception\n"),
            _ => Ok(()),
        });
        let outcome = run(&job, &settings(folder.path()), None);
        assert_eq!((outcome.failure, RUNS.load(Ordering::Relaxed)), (None, 2));
        let crash = outcome.crash.unwrap();
        assert_eq!(crash.first, "BUG: x (RIP: 0010:siw_y+0x1/0x2 [siw])");
        assert!(crash.told().contains("1 guest crashed and was booted again: client"), "{}", crash.told());
        assert!(crash.kept.join("client").join(CONSOLE_LOG).exists());
    }

    #[test]
    fn a_second_crash_fails() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let folder = tempfile::tempdir().unwrap();
        let job = job(|context| {
            RUNS.fetch_add(1, Ordering::Relaxed);
            died(context, "BUG: x\nKernel panic - not syncing: Fatal exception in interrupt\n")
        });
        let outcome = run(&job, &settings(folder.path()), None);
        assert_eq!(RUNS.load(Ordering::Relaxed), 2);
        assert!(outcome.failure.is_some() && outcome.crash.is_some());
    }

    #[test]
    fn a_guest_that_is_too_small_is_not_run_again_nor_one_that_ended_without_a_crash() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let folder = tempfile::tempdir().unwrap();
        let small = |context: &Context| {
            RUNS.fetch_add(1, Ordering::Relaxed);
            died(context, "Kernel panic - not syncing: System is deadlocked on memory\n")
        };
        assert!(attempt(&job(small), &settings(folder.path())).result.is_err());
        let quiet = |context: &Context| {
            RUNS.fetch_add(1, Ordering::Relaxed);
            died(context, "guest: up after 8 s\n")
        };
        assert!(attempt(&job(quiet), &settings(folder.path())).result.is_err());
        assert_eq!(RUNS.load(Ordering::Relaxed), 2);
    }
}
