//! The jobs. Each is a file of its own, with a line in [`JOBS`]; the parent module says how to write one.

use super::{
    USUAL_OPS,
    context::{Context, Settings},
    flavour::Flavour,
};
use std::{sync::LazyLock, time::Duration};

mod client_acl;
mod client_cthon;
mod client_delegations;
mod client_fsx;
mod client_fsx_crate;
mod client_kerberos;
mod client_locks;
mod client_nfs4;
mod client_nlm;
mod client_offload;
mod client_pjdfstest;
mod client_races;
mod client_rpcbind;
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
mod holders;
mod kerberos_bench;
mod linux_crashes;
mod linux_linux;
mod server_callbacks;
mod server_commands;
mod server_delegations;
mod server_falls_back;
mod server_kerberos;
mod server_large;
mod server_restart;
mod server_tree;
mod server_uses;
mod server_versions;
mod verbs;
mod verbs_kerberos;

/// One job: what it tries, and what it needs.
#[derive(Clone, Copy)]
pub(super) struct Job {
    /// Unique; what filters look at, and the name of its folder.
    pub(super) name: &'static str,
    /// What the job shows, in one line.
    pub(super) about: &'static str,
    /// Its budget in seconds. When it is over, every wait ends and the job fails.
    pub(super) seconds: u64,
    /// Guests that run at a time.
    pub(super) guests: usize,
    /// Whether the number of random operations decides how long it takes.
    pub(super) scales: bool,
    /// The versions of NFS and the transports that the job uses: each flavour is a run of its own. The server and
    /// `nfs_mount` follow [`Context::flavour`].
    pub(super) flavours: &'static [Flavour],
    /// Does the job.
    pub(super) run: fn(&Context) -> anyhow::Result<()>,
}

impl Job {
    /// Whether our server must be able to act as any user: Linux's client calls as several of them.
    pub(super) fn needs_root(&self) -> bool {
        !["linux", "server", "verbs"].iter().any(|part| self.name.starts_with(part))
    }

    /// Its budget for the run's number of random operations and its patience.
    pub(super) fn budget(&self, settings: &Settings) -> Duration {
        let times = if self.scales { settings.ops.div_ceil(USUAL_OPS).max(1) } else { 1 };
        Duration::from_secs(self.seconds.saturating_mul(times).saturating_mul(settings.patience))
    }
}

/// All jobs, in the order in which they begin; a job with several flavours runs once in each. The first job makes the
/// capture with which the others compare theirs.
const JOBS: &[Job] = &[
    linux_linux::JOB,
    linux_crashes::JOB,
    client_fsx::DIRECT,
    client_fsx::JOB,
    client_fsx::SHORT,
    client_fsx_crate::JOB,
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
    client_offload::JOB,
    server_commands::JOB,
    server_falls_back::JOB,
    server_large::JOB,
    server_tree::JOB,
    server_uses::JOB,
    server_versions::JOB,
    server_restart::JOB,
    server_delegations::JOB,
    server_callbacks::JOB,
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
    client_nlm::JOB,
    client_nlm::LINUX,
    client_cthon::JOB,
    client_acl::JOB,
    client_rpcbind::JOB,
    client_delegations::JOB,
    client_pjdfstest::JOB,
    client_kerberos::JOB,
    verbs_kerberos::JOB,
    server_kerberos::JOB,
    kerberos_bench::JOB,
];

/// All jobs with one flavour each, and a name that contains the flavour.
static ALL: LazyLock<Vec<Job>> = LazyLock::new(|| {
    let each = |job: &'static Job| {
        job.flavours.chunks(1).map(|flavours| {
            // Lives as long as the program, like the names in [`JOBS`].
            let name = flavours.first().map_or(job.name, |flavour| flavour.job_name(job.name).leak());
            Job { name, flavours, ..*job }
        })
    };
    JOBS.iter().flat_map(each).collect()
});

/// The job whose suite cannot be fetched on every machine.
pub(super) const CTHON: &str = client_cthon::JOB.name;

/// All jobs, with their flavours.
pub(super) fn all() -> &'static [Job] {
    &ALL
}

/// The job with whose capture the others compare theirs.
pub(super) fn reference() -> &'static Job {
    &ALL[0]
}

/// The jobs whose name contains one of the words.
pub(super) fn named(words: &[String]) -> anyhow::Result<Vec<&'static Job>> {
    let wanted = |job: &&Job| words.iter().any(|word| job.name.contains(word.as_str()));
    let named: Vec<_> = ALL.iter().filter(wanted).collect();
    if named.is_empty() {
        anyhow::bail!("no job's name contains {}; cargo xtask interop --list names them", words.join(" or "));
    }
    Ok(named)
}
