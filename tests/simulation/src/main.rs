//! `rpcrdma-simulation`: runs seeds; `cargo xtask sim` starts it.

use anyhow::Context as _;
use clap::Parser;
use rpcrdma_capture::{
    read_capture,
    show::{Ladder, Style},
};
use rpcrdma_simulation::{
    Edition, Outcome, run,
    tally::{self, Counts},
};
use std::{
    fs,
    io::{self, BufWriter, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

/// After so many seeds a run without a terminal prints its progress.
const TELL_EVERY: u64 = 100;

/// Run the transport in simulated worlds, one world for each seed.
#[derive(Parser)]
struct Arguments {
    /// Number of seeds to run
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Distance from one seed to the next; with --first, a step of 4 or 8 selects one kind of run
    #[arg(long, default_value_t = 1)]
    step: u64,
    /// Replay one seed: run it twice, compare both runs, and write the log of its events; if it is no run of NFS, also
    /// write a capture and draw its ladder
    #[arg(long, conflicts_with_all = ["seeds", "first", "step"])]
    seed: Option<u64>,
    /// Edition of the plans, which seeds decide: 2 adds hostile peers, corrupted messages and more to 1; 3 adds runs of
    /// NFS version 4; 4 adds such runs with our own clients; 5 adds runs of NFS versions 2 and 3
    #[arg(long, default_value = "5", value_parser = edition)]
    edition: Edition,
    /// Print the results as JSON, with how often each kind of event has happened
    #[arg(long)]
    json: bool,
    /// Folder for captures and logs
    #[arg(long, default_value = "target/sim")]
    output: PathBuf,
}

fn edition(number: &str) -> Result<Edition, String> {
    number.parse().ok().and_then(Edition::of).ok_or_else(|| "there are editions 1 to 5".to_owned())
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let well = match arguments.seed {
        Some(seed) => {
            let outcome = replay(seed, &arguments)?;
            let well = outcome.findings.is_empty();
            let failed = if well { &[] } else { std::slice::from_ref(&seed) };
            tell(&arguments, 1, outcome.calls as u64, &outcome.counts, failed)?;
            well
        }
        None => many(&arguments)?,
    };
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the seeds on all processors, then replays those that fail, in their order.
fn many(arguments: &Arguments) -> anyhow::Result<bool> {
    let begin = Instant::now();
    let (next, done, calls) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (failed, counts) = (Mutex::new(Vec::new()), Mutex::new(Counts::new()));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= arguments.seeds {
                        return;
                    }
                    let outcome =
                        run(arguments.first.wrapping_add(index.wrapping_mul(arguments.step)), arguments.edition, false);
                    tally::add(&mut counts.lock().unwrap_or_else(PoisonError::into_inner), &outcome.counts);
                    calls.fetch_add(outcome.calls as u64, Ordering::Relaxed);
                    if !outcome.findings.is_empty() {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                    }
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, arguments.seeds, begin);
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_by_key(|outcome| outcome.seed);
    if let Some(first) = failed.first() {
        replay(first.seed, arguments)?;
    }
    for Outcome { seed, findings, .. } in &failed {
        eprintln!("seed {seed}: {}", findings.first().map_or("", String::as_str));
    }
    let seeds: Vec<u64> = failed.iter().map(|outcome| outcome.seed).collect();
    let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    tell(arguments, arguments.seeds, calls.into_inner(), &counts, &seeds)?;
    Ok(seeds.is_empty())
}

fn progress(done: u64, of: u64, begin: Instant) {
    let seconds = begin.elapsed().as_secs_f64();
    if io::stderr().is_terminal() {
        eprint!("\r{done} of {of} seeds, {seconds:.0} s ");
        if done == of {
            eprintln!();
        }
    } else if done.is_multiple_of(TELL_EVERY) || done == of {
        eprintln!("{done} of {of} seeds, {seconds:.0} s");
    }
}

fn tell(arguments: &Arguments, seeds: u64, calls: u64, counts: &Counts, failed: &[u64]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.json {
        let first = arguments.seed.unwrap_or(arguments.first);
        let said = serde_json::json!({
            "first": first, "seeds": seeds, "calls": calls, "failed": failed, "happened": counts,
        });
        writeln!(out, "{said}")
    } else if failed.is_empty() {
        writeln!(out, "{seeds} seeds, nothing found")
    } else {
        writeln!(
            out,
            "{} of {seeds} seeds failed: {failed:?}. Replay: cargo xtask sim --seed {}",
            failed.len(),
            failed[0]
        )
    }
}

/// Runs a seed twice and shows what happened. Returns the outcome.
fn replay(seed: u64, arguments: &Arguments) -> anyhow::Result<Outcome> {
    let first = run(seed, arguments.edition, false);
    let mut outcome = run(seed, arguments.edition, true);
    if let Some(difference) = first.log.difference(&outcome.log) {
        outcome.findings.push(format!("two runs of this seed differ: {difference}"));
    }
    let folder = &arguments.output;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = |ending: &str| folder.join(format!("seed-{seed}.{ending}"));
    fs::write(path("log"), outcome.log.to_string())
        .with_context(|| format!("cannot write {}", path("log").display()))?;
    let mut captured = "no capture of a run of NFS".to_owned();
    if let Some(recorder) = outcome.recorder.take() {
        captured = format!("capture in {}", path("pcapng").display());
        let file = fs::File::create(path("pcapng")).context("cannot make the capture file")?;
        recorder.write(BufWriter::new(file))?;
        if !arguments.json {
            draw(&path("pcapng"))?;
        }
    }
    eprintln!("\nseed {seed}: {} events in {}, {captured}", outcome.log.len(), path("log").display());
    outcome.findings.iter().for_each(|finding| eprintln!("seed {seed}: {finding}"));
    Ok(outcome)
}

/// Draws a capture's ladder.
fn draw(capture: &Path) -> anyhow::Result<()> {
    let file = fs::File::open(capture).context("cannot open the capture")?;
    let style = if io::stdout().is_terminal() { Style::Unicode } else { Style::Ascii };
    let mut ladder = Ladder::new(BufWriter::new(io::stdout().lock()), style);
    match read_capture(file, &mut ladder) {
        // The reader of our output has closed the pipe.
        Err(rpcrdma_capture::ReadError::Sink(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map(drop).context("cannot read the capture"),
    }
}
