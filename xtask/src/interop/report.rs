//! What came out, for people and for programs.

use super::{context::Settings, jobs::Job};
use anyhow::Context as _;
use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};

/// How a job ended.
pub(super) struct Outcome {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) took: Duration,
    pub(super) budget: Duration,
    /// Why it failed, if it did.
    pub(super) failure: Option<String>,
    /// What it saw.
    pub(super) notes: Vec<String>,
}

/// The jobs, one a line.
pub(super) fn list(jobs: &[&Job]) {
    for job in jobs {
        println!("{:26} {:4} s  {}", job.name, job.seconds, job.about);
    }
}

/// The table, the failures, what is missing from the list.
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
    }
    for outcome in outcomes {
        if let Some(failure) = &outcome.failure {
            println!("\n{} failed ({}):\n  {failure}", outcome.name, outcome.about);
        }
    }
    for line in missing {
        println!("\n{line}");
    }
    let passed = outcomes.iter().filter(|outcome| outcome.failure.is_none()).count();
    println!("\n{passed} of {} jobs passed; seed {}, {} operations", outcomes.len(), settings.seed, settings.ops);
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
        })
    });
    json!({
        "linux": settings.image.version,
        "seed": settings.seed,
        "ops": settings.ops,
        "jobs": jobs.collect::<Vec<_>>(),
    })
}
