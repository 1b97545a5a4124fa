//! `rpcrdma serve`: directories over NFS/RDMA.
//!
//! The main thread opens every port and waits for signals. Each serving thread runs a single-threaded runtime with its
//! own accept loops on the shared ports; a connection stays with the thread that accepted it. Work on files that may
//! sleep runs on threads of its own. A device's ports are listened on by the main thread, which hands requests to the
//! serving threads in turn.

mod datagrams;
mod dialler;
mod domain;
mod ends;
mod exports;
mod gate;
mod given;
mod handed;
mod hints;
mod kerberos;
mod listeners;
mod memory;
mod metrics;
mod nfs_versions;
mod outside;
mod ports;
mod programs;
mod register;
mod scrape;
mod seldom;
mod served;
mod setups;
mod shares;
mod stranger;
mod tally;
mod thread;
mod threads;

use crate::{
    args::{LogFormat, Rpcbind, ServeArgs, Switch},
    transports::Carrier,
};
use anyhow::{Context, Result, bail};
pub(crate) use exports::ExportOption;
use gate::Gate;
use nfs_versions::Version4Options;
pub(crate) use nfs_versions::{DEFAULT_NFS_VERSIONS, NfsVersions};
use ports::{Ports, Spoken};
use rpcrdma_env::tokio_env;
use rpcrdma_fabric::{Fabric, pool::Pool};
use rpcrdma_nfsd::Workers;
use rpcrdma_oncrpc::{ConnectionIds, Handler, portmap};
use rpcrdma_transport::{Observer, RefusedCalls, Tracing};
use rustix::process::Signal;
use std::{path::Path, sync::Arc, time::Duration};
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
    let host_locks = args.host_locks == Switch::On;
    let delegations = args.delegations == Switch::On;
    let version_4 = Version4Options { lease, grace, host_locks, delegations, reply_octets, observer };
    let exports = served::exports(args);
    let kerberos = kerberos::start(args, &env)?;
    let (nfsd, directories) = served::build(args, &exports, (&env, kerberos.clone()), files, version_4)?;
    let nfsd = Arc::new(nfsd);
    let (ports, on_device) = Ports::open(args, &env).await?;
    let is_open = |export: &ExportOption| {
        export.clients.is_empty() && kerberos::securities(args, export).iter().any(|one| !one.is_kerberos())
    };
    if !ports.only_loopback() && args.allow.is_empty() && exports.iter().any(is_open) {
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
    let mut observer = Arc::new(Tracing) as Arc<dyn Observer>;
    let mut nfs = nfsd.nfs();
    let mut programs: Vec<(Spoken, Arc<dyn Handler>)> = vec![(Spoken::Mount, nfsd.mount())];
    programs.extend(nfsd.lockd().map(|lockd| (Spoken::Lockd, lockd)));
    programs.extend(nfsd.statd().map(|statd| (Spoken::Statd, statd)));
    if args.rpcbind == Some(Rpcbind::Own) {
        let table = portmap::Table::new(programs::entries(&ports, args.nfs)).context("--rpcbind own")?;
        programs.push((Spoken::Portmapper, Arc::new(portmap::router(table, &env))));
    }
    if let Some(address) = args.metrics {
        metrics::serve(address)?;
        metrics::watch_memory(memory.parts());
        metrics::watch_index(directories);
        if let Some(numbers) = numbers.filter(|_| args.nfs.has_4()) {
            numbers.begin();
            metrics::watch_clients(nfsd.clone());
        }
        if given::has_locks(args) {
            metrics::watch_monitor(nfsd.clone());
        }
        metrics::watch_contexts(kerberos);
        let calls = metrics::Calls::new();
        nfs = metrics::Timed::new(nfs, &calls);
        for (_, program) in &mut programs {
            *program = metrics::Timed::new(program.clone(), &calls);
        }
        observer = Arc::new(metrics::Counting::new());
    }
    programs.push((Spoken::Nfs, nfs.clone()));
    tokio::spawn(crate::log::watch_dropped());
    let gate = Arc::new(Gate::new(args.max_connections, allow));
    let (stop, stopping) = watch::channel(false);
    let capturing = args.capture.start_outside(exports.iter().map(|export| -> &Path { &export.directory }))?;
    let (crc, tap) = (!args.no_crc, capturing.as_ref().map(crate::capture::Capturing::tap));
    let (stall, busy_poll, versions) = (args.stall_timeout, args.busy_poll, args.rpcrdma);
    let shared = thread::Shared {
        env: env.clone(),
        nfs,
        programs: programs.into(),
        stranger,
        nfsd,
        has_callbacks: args.nfs.has_4(),
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
    let settle = shared.nfsd.clone();
    let serving = thread::start(threads, &ports, on_device, shared)?;
    let registered = match args.rpcbind {
        Some(Rpcbind::System) => Some(register::Registered::with_rpcbind(&ports, args.nfs, &env).await?),
        Some(Rpcbind::Own) | None => None,
    };
    hints::ready(args, &exports, &ports);
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
        settle.settle().await;
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
