//! Which jobs a run without names does: the core, and a sixth of the others that the date chooses.

use super::jobs::{self, Job};
use anyhow::{bail, ensure};
use std::time::{SystemTime, UNIX_EPOCH};

/// The number of parts: runs on so many consecutive days do each job at least once.
pub(super) const PARTS: u64 = 6;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// The jobs of each run: at least one of each kind, so that every run tries all sides of the project.
const CORE: &[&str] = &[
    // Linux against itself: the harness, and the capture with which others are compared.
    "linux-linux",
    // Linux's client: a mount without a version, data and random operations in the oldest and the newest version.
    "client-nfs4",
    "client-tree",
    "client-tree-4.2",
    "client-fsx-short-4.2",
    // Two guests, each with its own address.
    "client-two",
    // Our client with Linux's server, in the oldest and the newest version.
    "server-tree",
    "server-commands-4.2",
    // Devices.
    "verbs-roce",
    // Kerberos.
    "client-kerberos-4.2",
    // Faults: a server that is killed under load.
    "faults-restart-4.2",
];

/// What a run is to do.
pub(super) struct Plan {
    pub(super) jobs: Vec<&'static Job>,
    /// Whether no job was named: then all jobs of the plan have to run.
    pub(super) whole: bool,
    /// The line about the plan that is printed before the run.
    pub(super) words: String,
}

/// What the arguments ask for.
pub(super) struct Asked<'a> {
    pub(super) names: &'a [String],
    pub(super) all: bool,
    pub(super) part: Option<u64>,
}

/// The jobs to run. Names choose among all jobs; without names the plan is the core and a part, or all jobs.
pub(super) fn plan(asked: &Asked<'_>) -> anyhow::Result<Plan> {
    if !asked.names.is_empty() {
        ensure!(!asked.all && asked.part.is_none(), "jobs are named, and --all or --part as well");
        let jobs = jobs::named(asked.names)?;
        let words = format!("{} jobs by their names", jobs.len());
        return Ok(Plan { jobs, whole: false, words });
    }
    if asked.all {
        let jobs: Vec<_> = jobs::all().iter().collect();
        let words = format!("all {} jobs", jobs.len());
        return Ok(Plan { jobs, whole: true, words });
    }
    let (part, why) = match asked.part {
        Some(part @ 1..=PARTS) => (part, "as asked"),
        Some(other) => bail!("there is no part {other}: 1 to {PARTS}"),
        None => (part_of_day(today()), "by the date"),
    };
    let jobs = core_and(part);
    let (count, every) = (jobs.len(), jobs::all().len());
    let words = format!(
        "{count} of {every} jobs: a core of {}, and part {part} of {PARTS} of the others ({why}). --part {part} repeats it, --all runs all",
        CORE.len()
    );
    Ok(Plan { jobs, whole: true, words })
}

/// The core and one part of the others, in the jobs' order. Neighbours in the list are often flavours of one job, so
/// they come into different parts.
fn core_and(part: u64) -> Vec<&'static Job> {
    let mut turn = (1..=PARTS).cycle();
    let wanted = |job: &&Job| CORE.contains(&job.name) || turn.next() == Some(part);
    jobs::all().iter().filter(wanted).collect()
}

/// Days since 1970, UTC.
fn today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() / DAY_SECONDS)
}

fn part_of_day(day: u64) -> u64 {
    day % PARTS + 1
}

#[cfg(test)]
mod tests {
    use super::{Asked, CORE, PARTS, core_and, jobs, part_of_day, plan};

    #[test]
    fn the_core_has_a_job_of_each_kind() {
        for name in CORE {
            assert!(jobs::all().iter().any(|job| job.name == *name), "the core names {name}, which is no job");
        }
        for kind in ["linux-", "client-tree", "client-fsx", "server-", "verbs-", "faults-"] {
            assert!(CORE.iter().any(|name| name.starts_with(kind)), "the core has no {kind}");
        }
        assert!(jobs::all().iter().any(|job| CORE.contains(&job.name) && job.guests == 2), "no job of two guests");
    }

    #[test]
    fn days_that_follow_each_other_run_each_job() {
        for job in jobs::all() {
            let days = (20_000..20_000 + PARTS)
                .filter(|day| core_and(part_of_day(*day)).iter().any(|chosen| chosen.name == job.name));
            let wanted = if CORE.contains(&job.name) { PARTS } else { 1 };
            assert_eq!(days.count() as u64, wanted, "{}", job.name);
        }
    }

    #[test]
    fn a_plan_is_what_was_asked_for() {
        let none: &[String] = &[];
        let of = |names, all, part| plan(&Asked { names, all, part });
        let count = |all, part| of(none, all, part).unwrap().jobs.len();
        assert_eq!(count(true, None), jobs::all().len());
        let parts: usize = (1..=PARTS).map(|part| count(false, Some(part)) - CORE.len()).sum();
        assert_eq!(parts + CORE.len(), jobs::all().len());
        for wrong in [0, PARTS + 1] {
            assert!(of(none, false, Some(wrong)).is_err(), "part {wrong}");
        }
        let words = of(none, false, Some(2)).unwrap().words;
        assert!(words.contains(&format!("part 2 of {PARTS}")) && words.contains("--part 2"), "{words}");
        let named = ["client-tree".to_owned()];
        let plan = of(&named, false, None).unwrap();
        let names: Vec<_> = plan.jobs.iter().map(|job| job.name).collect();
        let flavours = ["", "-4.1", "-4.2", "-4.2-tcp", "-2", "-2-tcp"];
        assert_eq!(names, flavours.map(|flavour| format!("client-tree{flavour}")));
        assert!(!plan.whole && of(none, false, None).unwrap().whole);
        assert!(of(&named, true, None).is_err() && of(&named, false, Some(1)).is_err());
        assert!(of(&["no such job".to_owned()], false, None).is_err());
    }
}
