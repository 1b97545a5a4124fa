//! What a job gets: a folder, a budget, and ways to start servers, guests and commands.

use super::{
    flavour::{self, Flavour},
    guest::{Guest, GuestOptions},
    image::Image,
    jobs::Job,
    network::Network,
    nfsd::{Nfsd, NfsdOptions},
    process::{self, Finished},
    serve::{ServeOptions, Server},
};
use anyhow::Context as _;
use std::{
    ffi::OsStr,
    fmt::Display,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// What is the same for all jobs of a run.
pub(super) struct Settings {
    /// The `rpcrdma` command.
    pub(super) program: PathBuf,
    /// Holds a folder for each job.
    pub(super) run: PathBuf,
    /// Random operations in all.
    pub(super) ops: u64,
    /// The factor by which all budgets are longer.
    pub(super) patience: u64,
    /// The seed of everything random.
    pub(super) seed: u64,
    /// Whether the data of jobs that passed are kept.
    pub(super) keep: bool,
    /// The guest.
    pub(super) image: Image,
}

/// What one job gets.
pub(super) struct Context<'a> {
    settings: &'a Settings,
    job: &'static str,
    flavour: Flavour,
    dir: PathBuf,
    deadline: Instant,
    notes: Mutex<Vec<String>>,
    /// Held as long as the job's folder is in use.
    _lock: File,
}

/// Unmounts what a killed run has left mounted below a folder.
fn unmount_below(dir: &Path) -> anyhow::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
    let places =
        mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|place| Path::new(place).starts_with(dir));
    for place in places {
        // If this fails, removing the folder fails too, and reports it.
        let _ = Command::new("umount").arg("-l").arg(place).status();
    }
    Ok(())
}

impl<'a> Context<'a> {
    /// Begins a job: empties its folder and starts its budget.
    pub(super) fn begin(settings: &'a Settings, job: &Job) -> anyhow::Result<Self> {
        let dir = settings.run.join(job.name);
        fs::create_dir_all(&settings.run).with_context(|| settings.run.display().to_string())?;
        let lock = File::create(settings.run.join(format!(".{}.lock", job.name)))?;
        lock.try_lock().with_context(|| format!("another run uses {}", dir.display()))?;
        if dir.exists() {
            unmount_below(&dir)?;
            fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let deadline = Instant::now() + job.budget(settings);
        let flavour = job.flavours.first().copied().unwrap_or(flavour::ONE[0]);
        Ok(Self { settings, job: job.name, flavour, dir, deadline, notes: Mutex::default(), _lock: lock })
    }

    /// The job's name.
    pub(super) fn job(&self) -> &'static str {
        self.job
    }

    /// In which version of NFS Linux's client does the job, and over what.
    pub(super) fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The job's folder, `target/interop/run/JOB`.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A folder below the job's folder, made if it is missing.
    pub(super) fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// When the budget ends. Every wait ends at this time at the latest.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The seed of everything random.
    pub(super) fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// Random operations in all.
    pub(super) fn ops(&self) -> u64 {
        self.settings.ops
    }

    /// The guest's kernel and initramfs.
    pub(super) fn image(&self) -> &Image {
        &self.settings.image
    }

    /// The `rpcrdma` command.
    pub(super) fn program(&self) -> &Path {
        &self.settings.program
    }

    /// The `rpcrdma` command, ready for arguments. What it remembers of servers stays in the job, apart from the user's
    /// cache.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(self.program());
        command.env("XDG_CACHE_HOME", self.cache());
        command
    }

    /// Where `rpcrdma` remembers servers.
    pub(super) fn cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    /// Makes `rpcrdma` forget the servers that it remembers as lacking version 2.
    pub(super) fn forget_servers(&self) {
        let _ = fs::remove_dir_all(self.cache());
    }

    /// Notes an observation for the results.
    pub(super) fn note(&self, words: impl Display) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(words.to_string());
    }

    /// All notes so far.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An error that names the file to look at.
    pub(super) fn failed(&self, words: impl Display, look_at: &Path) -> anyhow::Error {
        anyhow::anyhow!("{words}; see {}", look_at.display())
    }

    /// Starts `rpcrdma serve` and waits until it is ready.
    pub(super) fn serve(&self, options: ServeOptions) -> anyhow::Result<Server> {
        Server::start_new(self, options)
    }

    /// Boots a guest, which runs its script.
    pub(super) fn boot(&self, options: GuestOptions) -> anyhow::Result<Guest> {
        Guest::boot(self, options)
    }

    /// Makes a network where the server and each guest have an address of their own, with packets of so many bytes.
    pub(super) fn network(&self, mtu: u16) -> anyhow::Result<Network<'_>> {
        Network::new(self, mtu)
    }

    /// Boots a guest with Linux's nfsd and waits until it serves.
    pub(super) fn nfsd(&self, options: NfsdOptions) -> anyhow::Result<Nfsd> {
        Nfsd::boot(self, options)
    }

    /// Runs `rpcrdma ARGUMENTS...` to its end; its output goes to `NAME.out` and `NAME.err`.
    pub(super) fn rpcrdma<A: AsRef<OsStr>>(
        &self,
        name: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Finished> {
        let mut command = self.command();
        command.args(arguments);
        process::run(self, name, command)
    }

    /// Runs any program to its end; its output goes to `NAME.out` and `NAME.err`.
    pub(super) fn run(&self, name: &str, command: Command) -> anyhow::Result<Finished> {
        process::run(self, name, command)
    }

    /// A duration, multiplied by the run's patience.
    pub(super) fn patient(&self, time: Duration) -> Duration {
        time.saturating_mul(u32::try_from(self.settings.patience).unwrap_or(u32::MAX))
    }

    /// Waits until a condition holds, at most for the given time and not beyond the budget.
    pub(super) fn wait_for(
        &self,
        what: &str,
        at_most: Duration,
        mut so: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        let end = (begin + self.patient(at_most)).min(self.deadline);
        while !so()? {
            if Instant::now() >= end {
                anyhow::bail!(
                    "after {:.1} s still not so: {what}; see {}",
                    begin.elapsed().as_secs_f64(),
                    self.dir.display()
                );
            }
            thread::sleep(process::LOOK);
        }
        Ok(())
    }
}
