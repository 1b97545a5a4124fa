//! `rpcrdma serve`: a directory over NFS/RDMA.
//!
//! The main thread opens every port and waits for signals. Each serving thread runs a single-threaded runtime with its
//! own accept loops on the shared ports; a connection stays with the thread that accepted it. Work on files that may sleep
//! runs on threads of its own. A device's ports are listened on by the main thread, which hands requests to the serving threads in turn.

mod gate;
mod handed;
mod hints;
mod memory;
mod metrics;
mod ports;
mod register;
mod thread;

use crate::{
    args::{LogFormat, ServeArgs},
    transports::Carrier,
};
use anyhow::{Context, Result, bail, ensure};
use gate::Gate;
use ports::Ports;
use rpcrdma::{Observer, Tracing};
use rpcrdma_env::tokio_env;
use rpcrdma_fabric::{Fabric, pool::Pool};
use rpcrdma_nfsd::{Cidr, DirectoryFs, Export, Identities, Nfsd, Squash, StateDirectory, Workers};
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
/// How many descriptors are asked for, if the administrator allows as many: what the served files and some thousands of
/// connections take. The usual soft limit of 1024 is for programs that use select(2).
const DESCRIPTORS: u64 = 65_536;

/// Runs work on files on threads that may sleep.
struct FileThreads(Handle);

impl Workers for FileThreads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.spawn_blocking(job);
    }
}

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    crate::log::start(args.verbosity, args.json || args.log == LogFormat::Json);
    let threads = match args.threads {
        Some(threads) => usize::from(threads),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let main = Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(threads * FILE_THREADS)
        .thread_name("rpcrdma-files")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let handle = main.handle().clone();
    let result = main.block_on(serve(args, threads, handle));
    // Work on files that does not end must not keep the command from ending.
    main.shutdown_background();
    result
}

async fn serve(args: &ServeArgs, threads: usize, files: Handle) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let env = tokio_env().context("cannot read random numbers from the system")?;
    let allow = parse_allow(&args.allow)?;
    let nfsd = build(args, &env, allow.clone(), files)?;
    ensure!(
        args.device.is_none() || args.fabric == Carrier::Verbs,
        "--device names an RDMA device: say --fabric verbs"
    );
    let (ports, on_device) = Ports::open(args, &env).await?;
    if args.rpcbind && ports.only_loopback() {
        bail!("--rpcbind: only loopback addresses are listened on, where no client finds them; add --listen");
    }
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
    let pool = on_device.as_ref().map_or_else(Pool::new, |on| Pool::over(on.device.pool()));
    let memory = memory::Memory::new(pool, memory::budget(args.memory));
    let (mut nfs, mut mount, mut observer) = (nfsd.nfs(), nfsd.mount(), Arc::new(Tracing) as Arc<dyn Observer>);
    if let Some(address) = args.metrics {
        metrics::serve(address)?;
        metrics::watch_memory(memory.parts());
        (nfs, mount) = (metrics::Timed::new(nfs), metrics::Timed::new(mount));
        observer = Arc::new(metrics::Counting::new());
    }
    let gate = Arc::new(Gate::new(args.max_connections, allow));
    let (stop, stopping) = watch::channel(false);
    let capturing = args.capture.as_deref().map(crate::capture::start).transpose()?;
    let (crc, tap) = (!args.no_crc, capturing.as_ref().map(crate::capture::Capturing::tap));
    let (stall, busy_poll, versions) = (args.stall_timeout, args.busy_poll, args.rpcrdma);
    let shared = thread::Shared {
        env: env.clone(),
        nfs,
        mount,
        gate,
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
        true => Some(register::Registered::with_rpcbind(&ports, &env).await?),
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

fn parse_allow(texts: &[String]) -> Result<Vec<Cidr>> {
    texts.iter().map(|text| text.parse().with_context(|| format!("--allow {text}"))).collect()
}

/// The server of the one export that the command line has.
fn build(args: &ServeArgs, env: &rpcrdma_env::Env, allow: Vec<Cidr>, files: Handle) -> Result<Nfsd> {
    let metadata = std::fs::metadata(&args.dir).with_context(|| args.dir.display().to_string())?;
    ensure!(metadata.is_dir(), "{}: not a directory", args.dir.display());
    raise_descriptors();
    let state = StateDirectory::open(state_directory(args)?, &*env.random)?;
    if is_served(state.path(), &args.dir) {
        ensure!(
            !args.no_root_squash || !rustix::process::geteuid().is_root(),
            "{}: with --no-root-squash clients could read the secret here; say --state DIR outside of what is served",
            state.path().display()
        );
        if !rustix::process::geteuid().is_root() {
            tracing::warn!(
                "clients can change the state in {}; keep it elsewhere with --state",
                state.path().display()
            );
        }
    }
    let directory = DirectoryFs::open(&args.dir, &state, Arc::new(FileThreads(files)))?;
    let directory = if args.early_answers { directory.with_early_answers() } else { directory };
    let squash = if args.no_root_squash { Squash::None } else { Squash::Root };
    let export = Export::new("/", Arc::new(directory))
        .with_read_only(args.read_only)
        .with_identities(Identities { squash, ..Identities::default() })
        .with_allow(allow);
    Ok(Nfsd::new(vec![export], state.secret(), env)?)
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

/// Whether clients reach `path` in the served directory: it lies there, on the same file system.
fn is_served(path: &Path, directory: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.dev());
    match (path.canonicalize(), directory.canonicalize()) {
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
        assert!(!is_served(Path::new("/proc"), Path::new("/")), "what is mounted below is not served");
    }
}
