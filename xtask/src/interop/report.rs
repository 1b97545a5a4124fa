//! The results, for people and for programs.

use super::{context::Settings, jobs::Job};
use anyhow::Context as _;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// How a job ended.
pub(super) struct Outcome {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) took: Duration,
    pub(super) budget: Duration,
    /// Why it failed, if it did.
    pub(super) failure: Option<String>,
    /// The job's notes.
    pub(super) notes: Vec<String>,
    /// The crash of a guest's kernel after which the job was run again.
    pub(super) crash: Option<Crashed>,
}

/// A crash of a guest's kernel.
pub(super) struct Crashed {
    /// The guest's name in the job.
    pub(super) guest: String,
    /// What its kernel said first, and where the processor was.
    pub(super) first: String,
    /// Its last words, a line each.
    pub(super) words: String,
    /// The folder with the files that the job left.
    pub(super) kept: PathBuf,
}

impl Crashed {
    /// A description of the crash, with the last words.
    pub(super) fn told(&self) -> String {
        format!(
            "1 guest crashed and was booted again: {}; its kernel's last words are\n{}\n    see {}",
            self.guest,
            self.words,
            self.kept.display()
        )
    }
}

/// The jobs, one a line.
pub(super) fn list(jobs: &[&Job]) {
    for job in jobs {
        let words = job.flavours.first().map(|flavour| flavour.words()).unwrap_or_default();
        println!("{:26} {:4} s  {}{words}", job.name, job.seconds, job.about);
    }
}

/// Prints the table, the failures, and the claims that this run does not show.
pub(super) fn print(
    outcomes: &[Outcome],
    missing: &[String],
    as_json: bool,
    settings: &Settings,
) -> anyhow::Result<()> {
    if as_json {
        println!("{}", serde_json::to_string_pretty(&value(settings, outcomes))?);
        return Ok(());
    }
    println!("\n{:26} {:>7} {:>7}  result", "job", "took", "budget");
    for outcome in outcomes {
        let result = if outcome.failure.is_some() { "FAILED" } else { "ok" };
        println!("{:26} {:5.0} s {:5} s  {result}", outcome.name, outcome.took.as_secs_f64(), outcome.budget.as_secs());
        for note in &outcome.notes {
            println!("{:26}   {note}", "");
        }
        if let Some(crash) = &outcome.crash {
            println!("{:26}   1 guest crashed and was booted again: {}", "", crash.first);
        }
    }
    for outcome in outcomes {
        if let Some(failure) = &outcome.failure {
            println!("\n{} failed ({}):\n  {failure}", outcome.name, outcome.about);
        }
    }
    for outcome in outcomes {
        if let Some(crash) = &outcome.crash {
            println!("\n{}: {}", outcome.name, crash.told());
        }
    }
    for line in missing {
        println!("\n{line}");
    }
    let passed = outcomes.iter().filter(|outcome| outcome.failure.is_none()).count();
    println!("\n{passed} of {} jobs passed; seed {}, {} operations", outcomes.len(), settings.seed, settings.ops);
    let crashes: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.crash.as_ref()).collect();
    if let Some(crash) = crashes.first() {
        let (count, were) =
            if crashes.len() == 1 { (1, "guest crashed and was") } else { (crashes.len(), "guests crashed and were") };
        println!("{count} {were} booted again: {}", crash.first);
    }
    Ok(())
}

/// Leaves the results in a file.
pub(super) fn write(path: &Path, settings: &Settings, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(&value(settings, outcomes))?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn value(settings: &Settings, outcomes: &[Outcome]) -> Value {
    let jobs = outcomes.iter().map(|outcome| {
        json!({
            "name": outcome.name,
            "about": outcome.about,
            "seconds": outcome.took.as_secs_f64(),
            "budget_seconds": outcome.budget.as_secs(),
            "passed": outcome.failure.is_none(),
            "failure": outcome.failure,
            "notes": outcome.notes,
            "crash": outcome.crash.as_ref().map(|crash| &crash.words),
        })
    });
    json!({
        "linux": settings.image.version,
        "seed": settings.seed,
        "ops": settings.ops,
        "jobs": jobs.collect::<Vec<_>>(),
    })
}
