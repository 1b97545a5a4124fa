//! `rpcrdma serve`: a directory over NFS/RDMA.
//!
//! The main thread opens every port and waits for signals. Each serving thread runs a single-threaded runtime with its
//! own accept loops on the shared ports; a connection stays with the thread that accepted it. Work on files that may sleep
//! runs on threads of its own. A device's ports are listened on by the main thread, which hands requests to the serving threads in turn.

mod ends;
mod gate;
mod given;
mod handed;
mod hints;
mod memory;
mod metrics;
mod nfs_versions;
mod ports;
mod register;
mod scrape;
mod seldom;
mod setups;
mod stranger;
mod tally;
mod thread;

use crate::{
    args::{LogFormat, ServeArgs},
    transports::Carrier,
};
use anyhow::{Context, Result, bail, ensure};
use gate::Gate;
use nfs_versions::Version4Options;
pub(crate) use nfs_versions::{DEFAULT_NFS_VERSIONS, NfsVersions};
use ports::Ports;
use rpcrdma::{Observer, RefusedCalls, Tracing};
use rpcrdma_env::tokio_env;
use rpcrdma_fabric::{Fabric, pool::Pool};
use rpcrdma_nfsd::{Cidr, DirectoryFs, Export, Identities, Nfsd, Queue, Squash, StateDirectory, Workers};
use rpcrdma_oncrpc::ConnectionIds;
use rustix::process::Signal;
use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle},
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// How long calls under way may take to finish after the first signal.
const DRAIN: Duration = Duration::from_secs(5);
/// Threads for work on files that may sleep, for each serving thread.
const FILE_THREADS: usize = 8;
/// Threads for what the program itself does beside that: looking up names, reading the terminal.
const SPARE_THREADS: usize = 2;
/// How many descriptors are asked for, if the administrator allows as many: what the served files and some thousands of
/// connections take. The usual soft limit of 1024 is for programs that use select(2).
const DESCRIPTORS: u64 = 65_536;

/// Runs work on files on threads that may sleep.
struct FileThreads {
    handle: Handle,
    threads: usize,
}

impl Workers for FileThreads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.handle.spawn_blocking(job);
    }

    fn threads(&self) -> usize {
        self.threads
    }
}

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    given::check(args)?;
    let _log = crate::log::start(args.verbosity, args.json || args.log == LogFormat::Json);
    let threads = match args.threads {
        Some(threads) => usize::from(threads),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let main = Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(threads * FILE_THREADS + SPARE_THREADS)
        .thread_name("rpcrdma-files")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let files = FileThreads { handle: main.handle().clone(), threads: threads * FILE_THREADS };
    let result = main.block_on(serve(args, threads, files));
    // Work on files that does not end must not keep the command from ending.
    main.shutdown_background();
    result
}

async fn serve(args: &ServeArgs, threads: usize, files: FileThreads) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A write beyond the limit of file sizes (ulimit -f) is to fail, with EFBIG, and not to end the server.
    let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    let env = tokio_env().context("cannot read random numbers from the system")?;
    let allow = args.allow.clone();
    let numbers = args.metrics.map(|_| Arc::new(metrics::Later::default()));
    let (memory_octets, reply_octets) = args.nfs.share(memory::budget(args.memory));
    let (lease, grace) = (args.lease, args.grace);
    let observer = numbers.clone().map(|numbers| numbers as Arc<dyn rpcrdma_nfsd::Observer>);
    let version_4 = Version4Options { lease, grace, reply_octets, observer };
    let (nfsd, directory) = build(args, &env, allow.clone(), files, version_4)?;
    let nfsd = Arc::new(nfsd);
    let (ports, on_device) = Ports::open(args, &env).await?;
    if !ports.only_loopback() && args.allow.is_empty() {
        let carried = match args.fabric {
            Carrier::Iwarp => "iWARP is not encrypted",
            Carrier::Verbs => "what the RDMA device carries is not encrypted",
        };
        tracing::warn!(
            "anyone who reaches these ports is served: AUTH_SYS takes the client's word for who calls, and {carried}; \
             name the networks to serve with --allow"
        );
    }
    tokio::spawn(nfsd.upkeep());
    let pool = on_device.as_ref().map_or_else(Pool::new, |on| Pool::over(on.device.pool()));
    let memory = memory::Memory::new(pool, memory_octets);
    let stranger = nfsd.stranger();
    let (mut nfs, mut mount, mut observer) = (nfsd.nfs(), nfsd.mount(), Arc::new(Tracing) as Arc<dyn Observer>);
    if let Some(address) = args.metrics {
        metrics::serve(address)?;
        metrics::watch_memory(memory.parts());
        metrics::watch_index(directory);
        if let Some(numbers) = numbers.filter(|_| args.nfs.has_4()) {
            numbers.begin();
            metrics::watch_clients(nfsd.clone());
        }
        let calls = metrics::Calls::new();
        (nfs, mount) = (metrics::Timed::new(nfs, &calls), metrics::Timed::new(mount, &calls));
        observer = Arc::new(metrics::Counting::new());
    }
    tokio::spawn(crate::log::watch_dropped());
    let gate = Arc::new(Gate::new(args.max_connections, allow));
    let (stop, stopping) = watch::channel(false);
    let capturing = args.capture.start_outside(&args.dir)?;
    let (crc, tap) = (!args.no_crc, capturing.as_ref().map(crate::capture::Capturing::tap));
    let (stall, busy_poll, versions) = (args.stall_timeout, args.busy_poll, args.rpcrdma);
    let shared = thread::Shared {
        env: env.clone(),
        nfs,
        mount,
        stranger,
        nfsd,
        connection_ids: ConnectionIds::default(),
        gate,
        setups: Arc::default(),
        not_accepted: Arc::default(),
        ends: Arc::default(),
        refused: RefusedCalls::default(),
        memory,
        observer,
        crc,
        stall,
        versions,
        busy_poll,
        tap,
        stopping,
    };
    let serving = thread::start(threads, &ports, on_device, shared)?;
    let registered = match args.rpcbind {
        true => Some(register::Registered::with_rpcbind(&ports, args.nfs, &env).await?),
        false => None,
    };
    hints::ready(args, &ports);
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        died = serving.wait() => bail!("a serving thread has ended: {died}"),
    }
    tracing::info!("stopping: calls under way have {} s to finish", DRAIN.as_secs());
    stop.send_replace(true);
    let finish = async {
        if let Some(registered) = registered {
            registered.remove().await;
        }
        serving.wait().await;
    };
    tokio::select! {
        biased;
        _ = terminate.recv() => tracing::info!("stopped at once"),
        _ = interrupt.recv() => tracing::info!("stopped at once"),
        () = finish => tracing::info!("stopped"),
        () = tokio::time::sleep(DRAIN) => tracing::info!("stopped, some calls had not finished"),
    }
    // Threads that have not ended may still hold it.
    capturing.map_or(Ok(()), |capturing| capturing.finish())
}

/// The server of the one export that the command line has, and its directory.
fn build(
    args: &ServeArgs,
    env: &rpcrdma_env::Env,
    allow: Vec<Cidr>,
    files: FileThreads,
    version_4: Version4Options,
) -> Result<(Nfsd, DirectoryFs)> {
    let metadata = std::fs::metadata(&args.dir).with_context(|| args.dir.display().to_string())?;
    ensure!(metadata.is_dir(), "{}: not a directory", args.dir.display());
    raise_descriptors();
    given::tell_changed(args);
    let state = state_directory(args)?;
    if is_served(&state, &args.dir) {
        // By default it is where it is: clients do not reach it. Who says where it is can say a better place.
        ensure!(
            args.state.is_none(),
            "--state {}: this lies in the directory that is served; say one outside of it",
            state.display()
        );
        tracing::info!("clients do not see {}, where the server keeps its state", state.display());
    }
    let state = StateDirectory::open(state, &*env.random)?;
    let queue = Queue::new(Arc::new(files));
    let directory = DirectoryFs::open(&args.dir, &state, queue.clone(), env)?;
    if !directory.tells_files_apart() {
        tracing::warn!(
            "{}: this file system tells neither handles nor birth times: a client that holds the handle of a removed \
             file may be shown the file that took its inode number",
            args.dir.display()
        );
    }
    if let Some(uid) = directory.owner() {
        tracing::info!(
            "every caller has the rights of user {uid} here; callers who say that they are user {uid} are the owner of \
             that user's files, all others have what the files' modes say"
        );
    }
    let directory = if args.early_answers { directory.with_early_answers() } else { directory };
    let squash = if args.no_root_squash { Squash::None } else { Squash::Root };
    let export = Export::new("/", Arc::new(directory.clone()))
        .with_read_only(args.read_only)
        .with_identities(Identities { squash, ..Identities::default() })
        .with_allow(allow);
    let nfsd = Nfsd::new(vec![export], state.secret(), env)?;
    Ok((nfs_versions::serve(nfsd, args.nfs, version_4, (&state, queue), env)?, directory))
}

/// Allows this process what the administrator allows it.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS);
    if limit.current.is_some_and(|current| current < wanted) {
        // Less is enough to serve, only for fewer clients.
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }) {
            tracing::debug!(%error, "the limit of open files stays");
        }
    }
}

/// Whether clients would reach `path` in the served directory: it lies there, on the same file system. What is not there
/// yet will lie in the nearest directory above it that is.
fn is_served(path: &Path, directory: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.dev());
    let Ok(path) = std::path::absolute(path) else { return false };
    let there = path.ancestors().find_map(|above| above.canonicalize().ok());
    match (there.ok_or(()), directory.canonicalize().map_err(|_| ())) {
        (Ok(path), Ok(directory)) => path.starts_with(&directory) && device(&path) == device(&directory),
        _ => false,
    }
}

fn state_directory(args: &ServeArgs) -> Result<PathBuf> {
    if let Some(state) = &args.state {
        return Ok(state.clone());
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/var/lib/rpcrdma".into());
    }
    if let Some(xdg) = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(xdg).join("rpcrdma"));
    }
    let home = std::env::var_os("HOME").context("HOME is not set: say where to keep state with --state")?;
    Ok(PathBuf::from(home).join(".local/state/rpcrdma"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_in_the_served_directory_is_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let served = scratch.path().join("served");
        std::fs::create_dir_all(served.join("state")).unwrap();
        std::fs::create_dir(scratch.path().join("served-not")).unwrap();
        std::os::unix::fs::symlink(served.join("state"), scratch.path().join("link")).unwrap();
        assert!(is_served(&served.join("state"), &served) && is_served(&served, &served));
        assert!(is_served(&scratch.path().join("link"), &served), "by another name");
        assert!(!is_served(&scratch.path().join("served-not"), &served));
        assert!(is_served(&served.join("not/there/yet"), &served), "it is about to be made there");
        assert!(is_served(&scratch.path().join("link/not-yet"), &served));
        assert!(!is_served(&scratch.path().join("served-not-yet"), &served));
        assert!(!is_served(Path::new("/proc"), Path::new("/")), "what is mounted below is not served");
    }
}
