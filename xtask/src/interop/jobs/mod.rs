//! The jobs. Each is a file of its own, with a line in [`JOBS`]; how to write one stands in the parent module.

use super::{USUAL_OPS, context::Context};
use std::time::Duration;

mod client_fsx;
mod client_locks;
mod client_nfs4;
mod client_pjdfstest;
mod client_races;
mod client_scripts;
mod client_tree;
mod client_two;
mod client_uses;
mod client_versions;
mod faults_connections;
mod faults_copying;
mod faults_cut;
mod faults_fsx;
mod faults_full;
mod faults_killed;
mod faults_restart;
mod faults_shared;
mod faults_slow;
mod faults_vanished;
mod linux_crashes;
mod linux_linux;
mod server_commands;
mod server_falls_back;
mod server_large;
mod server_tree;
mod server_uses;
mod verbs;

/// One thing that is tried.
pub(super) struct Job {
    /// Unique; what filters look at, and the name of its folder.
    pub(super) name: &'static str,
    /// In one line.
    pub(super) about: &'static str,
    /// Its budget. All waiting ends then, and the job fails.
    pub(super) seconds: u64,
    /// Guests that run at a time.
    pub(super) guests: usize,
    /// Whether the number of random operations decides how long it takes.
    pub(super) scales: bool,
    /// Does it.
    pub(super) run: fn(&Context) -> anyhow::Result<()>,
}

impl Job {
    /// Whether our server must be able to act as any user: Linux's client calls as several of them.
    pub(super) fn needs_root(&self) -> bool {
        !["linux", "server", "verbs"].iter().any(|part| self.name.starts_with(part))
    }

    /// Its budget for a number of random operations.
    pub(super) fn budget(&self, ops: u64) -> Duration {
        let times = if self.scales { ops.div_ceil(USUAL_OPS).max(1) } else { 1 };
        Duration::from_secs(self.seconds.saturating_mul(times))
    }
}

/// All jobs, in the order in which they begin. The first makes the capture that the others' captures are compared with.
pub(super) const JOBS: &[Job] = &[
    linux_linux::JOB,
    linux_crashes::JOB,
    client_fsx::DIRECT,
    client_fsx::JOB,
    client_tree::JOB,
    client_scripts::NAMES,
    client_scripts::FILES,
    client_scripts::USERS,
    client_scripts::PROCESSES,
    client_races::JOB,
    client_two::JOB,
    client_uses::JOB,
    client_versions::JOB,
    client_nfs4::JOB,
    server_commands::JOB,
    server_falls_back::JOB,
    server_large::JOB,
    server_tree::JOB,
    server_uses::JOB,
    verbs::ROCE,
    verbs::IWARP,
    verbs::LINUX,
    verbs::SUITE_ROCE,
    verbs::SUITE_IWARP,
    verbs::MIXED,
    verbs::FAULTS,
    verbs::LINK_ROCE,
    verbs::LINK_IWARP,
    verbs::BENCH,
    faults_vanished::JOB,
    faults_fsx::JOB,
    faults_restart::JOB,
    faults_cut::CLIENT,
    faults_slow::JOB,
    faults_killed::JOB,
    faults_full::JOB,
    faults_connections::JOB,
    faults_shared::JOB,
    faults_cut::SERVER,
    client_locks::JOB,
    client_locks::MINOR_1,
    client_locks::TCP,
    client_pjdfstest::JOB,
];

/// The job whose capture the others' are compared with.
pub(super) fn reference() -> &'static Job {
    &JOBS[0]
}

/// The jobs whose name contains one of the words; all, if there is none.
pub(super) fn chosen(filter: &[String]) -> anyhow::Result<Vec<&'static Job>> {
    let wanted = |job: &&Job| filter.is_empty() || filter.iter().any(|word| job.name.contains(word.as_str()));
    let chosen: Vec<_> = JOBS.iter().filter(wanted).collect();
    if chosen.is_empty() {
        anyhow::bail!("no job's name contains {}; cargo xtask interop --list names them", filter.join(" or "));
    }
    Ok(chosen)
}
