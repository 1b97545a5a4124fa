//! `interop.toml` lists what interoperates, and CI holds us to it. This program makes docs/interop.md from it.

use super::{
    jobs::{self, Job},
    report::Outcome,
};
use crate::figures::section;
use anyhow::Context as _;
use serde::Deserialize;
use std::{fmt::Write as _, fs, path::Path};

/// The file.
#[derive(Deserialize)]
struct List {
    /// The version of Linux with which the claims were tested.
    linux: String,
    /// What was tried.
    claim: Vec<Claim>,
}

/// One thing that works between Linux and us.
#[derive(Deserialize)]
struct Claim {
    /// The job that shows the claim.
    job: String,
    /// The part of Linux that takes part, such as `Linux client`; `neither` if both ends are ours, or neither is.
    with: String,
    /// What works, in words.
    shows: String,
    /// The names of the flavours in which the claim holds; empty if the job has only one.
    #[serde(default)]
    nfs: Vec<String>,
}

impl Claim {
    /// Whether the claim covers this job, in its flavour.
    fn holds(&self, job: &Job) -> bool {
        let Some(flavour) = job.flavours.first() else { return false };
        let is_named = self.nfs.is_empty() || self.nfs.iter().any(|name| name == flavour.name);
        is_named && job.name == flavour.job_name(&self.job)
    }

    /// The jobs that the claim covers.
    fn jobs(&self) -> impl Iterator<Item = &'static Job> {
        jobs::all().iter().filter(|job| self.holds(job))
    }
}

fn read(root: &Path) -> anyhow::Result<List> {
    let path = root.join("interop.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

/// The claims that this run does not show: of jobs that failed, and of jobs that this run should have done and did not.
pub(super) fn judge(root: &Path, outcomes: &[Outcome], wanted: &[&Job]) -> anyhow::Result<Vec<String>> {
    Ok(missing(&read(root)?, outcomes, wanted))
}

fn missing(list: &List, outcomes: &[Outcome], wanted: &[&Job]) -> Vec<String> {
    let held = list.claim.iter().flat_map(|claim| claim.jobs().map(move |job| (claim, job.name)));
    let wrong = held.filter_map(|(claim, job)| match outcomes.iter().find(|outcome| outcome.name == job) {
        Some(outcome) if outcome.failure.is_some() => {
            Some(format!("interop.toml says that this works, and it does not: {} ({job})", claim.shows))
        }
        None if wanted.iter().any(|wanted| wanted.name == job) => {
            Some(format!("interop.toml names {job}, which did not run"))
        }
        _ => None,
    });
    wrong.collect()
}

/// Writes docs/interop.md.
pub(super) fn write_docs(root: &Path) -> anyhow::Result<()> {
    let path = root.join("docs/interop.md");
    fs::write(&path, document(&read(root)?)).with_context(|| path.display().to_string())
}

fn document(list: &List) -> String {
    let mut text = String::from(
        "# What interoperates\n\n\
         `cargo xtask interop --write-docs` makes this page from `interop.toml`.\n\
         `cargo xtask interop` boots Linux in a guest and runs the core of these jobs and a sixth of the\n\
         others, which the date chooses; `--all` runs all. CI runs it, and fails when a job is missing or\n\
         fails.\n\n\
         A job that names versions of NFS runs once in each, and has a name for each: `client-tree-4.2`,\n\
         `client-tree-4.2-tcp`. A job that names none uses version 3. A job that names no device uses\n\
         software iWARP at both ends. Linux speaks version 1 of RPC-over-RDMA; our ends speak version 2 with\n\
         each other, and version 1 with Linux. [suites.md](suites.md) has the results of other people's test\n\
         suites.\n\n",
    );
    let _ =
        writeln!(text, "Last claimed with Linux {} (Debian's kernel, soft-iWARP built from its source).\n", list.linux);
    let mut told: Vec<&str> = Vec::new();
    for claim in &list.claim {
        if !told.contains(&claim.with.as_str()) {
            told.push(&claim.with);
        }
    }
    for with in &told {
        let _ = writeln!(text, "- [{}](#{})", heading(with), heading(with).to_lowercase().replace(' ', "-"));
    }
    for with in told {
        let _ = writeln!(text, "\n## {}\n", heading(with));
        for claim in list.claim.iter().filter(|claim| claim.with == with) {
            text.push_str(&item(claim));
        }
    }
    text
}

/// The heading above the claims about a part of Linux.
fn heading(with: &str) -> String {
    match with {
        "neither" => "Our own ends and the harness".to_owned(),
        with => {
            let (first, rest) = with.split_at(1);
            first.to_uppercase() + rest
        }
    }
}

/// A claim as an item of a list, its lines wrapped.
fn item(claim: &Claim) -> String {
    let versions = match claim.nfs.as_slice() {
        [] => String::new(),
        nfs => format!(" (NFS {})", nfs.join(", ")),
    };
    let text = format!("- **`{}`**{versions}: {}", claim.job, claim.shows);
    section::wrapped_behind(&text, "  ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::{Claim, Job, List, Outcome, document, jobs, missing, read};
    use crate::interop::host::root;
    use std::{fs, time::Duration};

    #[test]
    fn each_claim_has_its_job_and_each_job_its_claim() {
        let list = read(&root()).unwrap();
        for claim in &list.claim {
            let held = claim.jobs().count();
            assert_eq!(held, claim.nfs.len().max(1), "interop.toml names {} {:?}: no such job", claim.job, claim.nfs);
        }
        for job in jobs::all() {
            let claims = list.claim.iter().filter(|claim| claim.holds(job)).count();
            assert_eq!(claims, 1, "claims in interop.toml of {}", job.name);
        }
    }

    /// A run of a part must do the jobs of this part, and no others.
    #[test]
    fn a_job_that_was_to_run_and_did_not_is_missed() {
        let job = |name: &str| jobs::all().iter().find(|job| job.name == name).unwrap();
        let claim = |job: &str, nfs: &[&str]| Claim {
            job: job.into(),
            with: String::new(),
            shows: String::new(),
            nfs: nfs.iter().map(ToString::to_string).collect(),
        };
        let list = List {
            linux: String::new(),
            claim: vec![claim("linux-linux", &[]), claim("client-tree", &["3", "4.2", "4.2-tcp"])],
        };
        let outcome = |job: &Job, failure: Option<&str>| Outcome {
            name: job.name,
            about: "",
            took: Duration::ZERO,
            budget: Duration::ZERO,
            failure: failure.map(str::to_owned),
            notes: Vec::new(),
            crash: None,
        };
        let (first, second, other) = (job("client-tree"), job("client-tree-4.2"), job("client-tree-4.2-tcp"));
        assert!(missing(&list, &[outcome(first, None), outcome(second, None)], &[first, second]).is_empty());
        let said = missing(&list, &[outcome(first, None)], &[first, second]);
        assert_eq!(said, ["interop.toml names client-tree-4.2, which did not run"]);
        let said = missing(&list, &[outcome(other, Some("it broke"))], &[]);
        assert!(said.len() == 1 && said[0].ends_with("(client-tree-4.2-tcp)"), "{said:?}");
    }

    #[test]
    fn the_table_is_up_to_date() {
        let found = fs::read_to_string(root().join("docs/interop.md")).unwrap();
        assert_eq!(found, document(&read(&root()).unwrap()), "run cargo xtask interop --write-docs");
    }

    /// The commands in the README are those that a job runs.
    #[test]
    fn the_readme_mounts_as_the_jobs_do() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        let mut lines = readme.lines().filter_map(|line| line.strip_prefix("mount -t nfs -o ")).peekable();
        assert!(lines.peek().is_some(), "the README mounts nothing");
        // The script of the job that names no version: client-nfs4.
        let script = include_str!("../../interop/guest/nfs4.sh");
        for line in lines {
            let (options, _) = line.split_once(' ').unwrap();
            let ours = format!("mount_with /mnt \"{}\"", options.replace("port=20049", "$SERVER_OPTIONS"));
            assert!(script.contains(&ours), "no job does {ours}, as the README says");
        }
    }

    #[test]
    fn jobs_have_names_of_their_own() {
        for (at, job) in jobs::all().iter().enumerate() {
            assert!(jobs::all()[..at].iter().all(|before| before.name != job.name), "{} stands twice", job.name);
        }
    }
}
