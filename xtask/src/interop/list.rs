//! `interop.toml`: what interoperates, held by CI; and docs/interop.md, which is made from it.

use super::report::Outcome;
use anyhow::Context as _;
use serde::Deserialize;
use std::{fmt::Write as _, fs, path::Path};

/// The file.
#[derive(Deserialize)]
struct List {
    /// The kernel that the claims were made with.
    linux: String,
    /// What was tried.
    claim: Vec<Claim>,
}

/// One thing that works between Linux and us.
#[derive(Deserialize)]
struct Claim {
    /// The job that shows it.
    job: String,
    /// Which part of Linux it works with, such as `Linux client`; `neither` where both ends are ours, or both are not.
    with: String,
    /// In words.
    shows: String,
}

fn read(root: &Path) -> anyhow::Result<List> {
    let path = root.join("interop.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

/// What the list claims and this run does not show: jobs that failed, and, of a run of all, jobs that did not run.
pub(super) fn judge(root: &Path, outcomes: &[Outcome], all: bool) -> anyhow::Result<Vec<String>> {
    let list = read(root)?;
    let wrong = list.claim.iter().filter_map(|claim| match outcomes.iter().find(|outcome| outcome.name == claim.job) {
        Some(outcome) if outcome.failure.is_some() => {
            Some(format!("interop.toml says that this works, and it does not: {} ({})", claim.shows, claim.job))
        }
        None if all => Some(format!("interop.toml names {}, which did not run", claim.job)),
        _ => None,
    });
    Ok(wrong.collect())
}

/// Writes docs/interop.md.
pub(super) fn write_docs(root: &Path) -> anyhow::Result<()> {
    let path = root.join("docs/interop.md");
    fs::write(&path, document(&read(root)?)).with_context(|| path.display().to_string())
}

fn document(list: &List) -> String {
    let mut text = String::from(
        "# What interoperates\n\n\
         Made by `cargo xtask interop --write-docs` from [interop.toml](../interop.toml). `cargo xtask interop` boots Linux in a guest and tries each of these; CI\n\
         runs it and fails when one of them is missing or fails. Software iWARP at both ends where no device is named, NFS version 3. Linux speaks version 1 of\n\
         RPC-over-RDMA; our ends speak version 2 where they meet each other, and version 1 with Linux. What other people's test suites say of our server stands in\n\
         [suites.md](suites.md).\n\n",
    );
    let _ =
        writeln!(text, "Last claimed with Linux {} (Debian's kernel, soft-iWARP built from its source).\n", list.linux);
    text.push_str("| with | works | job |\n|---|---|---|\n");
    for claim in &list.claim {
        let _ = writeln!(text, "| {} | {} | `{}` |", claim.with, claim.shows, claim.job);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{super::jobs::JOBS, document, read};
    use crate::interop::host::root;
    use std::fs;

    #[test]
    fn each_claim_has_its_job_and_each_job_its_claim() {
        let list = read(&root()).unwrap();
        for claim in &list.claim {
            assert!(JOBS.iter().any(|job| job.name == claim.job), "interop.toml names {}, which is no job", claim.job);
        }
        for job in JOBS {
            let is_claimed = list.claim.iter().any(|claim| claim.job == job.name);
            assert!(is_claimed, "{} has no claim in interop.toml", job.name);
        }
    }

    #[test]
    fn the_table_is_up_to_date() {
        let found = fs::read_to_string(root().join("docs/interop.md")).unwrap();
        assert_eq!(found, document(&read(&root()).unwrap()), "run cargo xtask interop --write-docs");
    }

    /// What the README tells a person to type is what the jobs do.
    #[test]
    fn the_readme_mounts_as_the_jobs_do() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        let line = readme.lines().find(|line| line.starts_with("mount -t nfs -o ")).unwrap();
        let library = include_str!("../../interop/guest/lib.sh");
        let ours = library.lines().find_map(|line| line.trim().strip_prefix("mount -t nfs -o \"")).unwrap();
        let (ours, _) = ours.split_once("${1").unwrap();
        let ours = ours.replace("$NFS_PORT", "20049").replace("$MOUNT_PORT", "20048");
        assert!(line.starts_with(&format!("mount -t nfs -o {ours} ")), "{line} does not mount with {ours}");
    }

    #[test]
    fn jobs_have_names_of_their_own() {
        for (at, job) in JOBS.iter().enumerate() {
            assert!(JOBS[..at].iter().all(|before| before.name != job.name), "{} stands twice", job.name);
        }
    }
}
