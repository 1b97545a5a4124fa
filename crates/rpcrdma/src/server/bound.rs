//! A server from its options to its threads.

use super::{
    Builder, Options, Result, Rpcbind, Running, check,
    files::FileThreads,
    gate::Gate,
    handed, kerberos, memory, metrics,
    nfs_versions::{NfsVersions, Version4Options},
    own,
    ports::{OnDevice, Ports, Spoken},
    programs, register,
    served::{self, Built, Temporary},
    thread,
    threads::Ended,
};
use crate::{Carrier, Error, error::Context};
use rpcrdma_env::{Env, tokio_env};
use rpcrdma_fabric::pool::Pool;
use rpcrdma_iwarp::Tap;
use rpcrdma_nfsd::{DirectoryFs, Nfsd};
use rpcrdma_oncrpc::{ConnectionIds, Handler, Service, gss::AcceptGss, portmap};
use rpcrdma_transport::{Observer, RefusedCalls, Tracing};
use rustix::process::{Resource, getrlimit};
use std::{net::SocketAddr, sync::Arc};
use tokio::{sync::watch, task::JoinSet};

/// A server whose ports are open.
///
/// ```
/// use rpcrdma::{Server, fs};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::builder().export("/", fs::memory(1 << 20)?).listen(([127, 0, 0, 1], 0)).bind().await?;
/// let running = server.start().await?;
/// println!("at {:?}", running.addresses(rpcrdma::server::Spoken::Rdma));
/// running.shutdown().await;
/// # Ok(()) }
/// ```
pub struct Server {
    env: Env,
    options: Options,
    services: Vec<Arc<dyn Service>>,
    /// `None` if no files are served.
    nfsd: Option<Arc<Nfsd>>,
    /// The threads that work on them.
    files: Option<Ended>,
    directories: Vec<DirectoryFs>,
    temporary: Option<Temporary>,
    kerberos: Option<Arc<AcceptGss>>,
    /// Counts operations of version 4.
    operations: Option<Arc<metrics::Later>>,
    memory_bytes: usize,
    ports: Ports,
    on_device: Option<OnDevice>,
    tap: Option<Arc<dyn Tap>>,
}

impl Server {
    /// A builder with all defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(super) async fn bind(mut options: Options, services: Vec<Arc<dyn Service>>) -> Result<Self> {
        if options.exports.is_empty() {
            if services.is_empty() {
                return Err(Error::misuse("nothing is exported"));
            }
            options.nfs = NfsVersions::NONE;
        }
        options.check()?;
        check::services(&services, !options.exports.is_empty())?;
        if let Some(told) = options.too_few_descriptors(getrlimit(Resource::Nofile).current) {
            tracing::warn!("{told}");
        }
        let env = tokio_env().context("the system gives no clock or no random numbers")?;
        let (memory_bytes, reply_bytes) = options.nfs.share(memory::budget(options.memory));
        let operations = options.metrics.then(|| Arc::new(metrics::Later::default()));
        let kerberos = kerberos::start(&options, &env)?;
        let mut files_end = None;
        let built = match options.exports.is_empty() {
            true => None,
            false => {
                let observer = operations.clone().map(|numbers| numbers as Arc<dyn rpcrdma_nfsd::Observer>);
                let version_4 = Version4Options::of(&options, reply_bytes, observer);
                let files = FileThreads::start(options.serving_threads()).context("cannot start threads for files")?;
                files_end = Some(files.ended());
                Some(served::build(&options, (&env, kerberos.clone()), files, version_4)?)
            }
        };
        let (ports, on_device) = Ports::open(&options, &env).await?;
        warn_of_strangers(&options, !services.is_empty(), &ports);
        let (nfsd, directories, temporary) = match built {
            Some(Built { nfsd, directories, temporary }) => (Some(Arc::new(nfsd)), directories, temporary),
            None => (None, Vec::new(), None),
        };
        let tap = None;
        Ok(Self {
            env,
            options,
            services,
            nfsd,
            files: files_end,
            directories,
            temporary,
            kerberos,
            operations,
            memory_bytes,
            ports,
            on_device,
            tap,
        })
    }

    /// The addresses at which a protocol is served; none if it is not served.
    pub fn addresses(&self, spoken: Spoken) -> Vec<SocketAddr> {
        self.ports.of(spoken).collect()
    }

    /// Shows all that goes over software iWARP to a tap, such as one that writes a capture.
    pub fn tap(&mut self, tap: Arc<dyn Tap>) {
        self.tap = Some(tap);
    }

    /// Starts to serve, on threads of its own. The caller has to be within a tokio runtime: the server's work that
    /// belongs to no connection runs there.
    ///
    /// # Errors
    /// If threads cannot be started, or rpcbind cannot be reached.
    pub async fn start(self) -> Result<Running> {
        let Self { env, options, nfsd, memory_bytes, on_device, tap, .. } = &self;
        let pool = on_device.as_ref().map_or_else(Pool::new, |on| Pool::over(on.device.pool()));
        let memory = memory::Memory::new(pool, *memory_bytes);
        let mut tasks = JoinSet::new();
        let (programs, nfs) = self.programs(&memory, &mut tasks)?;
        let observer: Arc<dyn Observer> =
            if options.metrics { Arc::new(metrics::Counting::new()) } else { Arc::new(Tracing) };
        let (stop, stopping) = watch::channel(false);
        let shared = thread::Shared {
            env: env.clone(),
            nfs,
            programs: programs.into(),
            stranger: Nfsd::stranger(),
            nfsd: nfsd.clone(),
            has_callbacks: options.nfs.has_4(),
            connection_ids: ConnectionIds::default(),
            gate: Arc::new(Gate::new(options.max_connections, options.allow.clone())),
            setups: Arc::default(),
            not_accepted: Arc::default(),
            ends: Arc::default(),
            refused: RefusedCalls::default(),
            memory,
            observer,
            crc: options.crc,
            stall: options.stall_timeout,
            versions: options.rpcrdma,
            busy_poll: options.busy_poll,
            tap: tap.clone(),
            stopping,
        };
        let Self { env, options, nfsd, files, temporary, ports, on_device, .. } = self;
        if let Some(nfsd) = &nfsd {
            tasks.spawn(nfsd.upkeep());
        }
        let threads = options.serving_threads();
        let dealt = on_device.map(|on| {
            let shares = handed::deal(on.listeners, threads, &shared.stopping, &mut tasks);
            (on.device, shares)
        });
        let serving = thread::start(threads, &ports, dealt, shared)?;
        let mut running =
            Running { stop, serving, registered: None, nfsd, files, ports, drain: options.drain, tasks, temporary };
        if options.rpcbind == Some(Rpcbind::System) {
            let registered = register::Registered::with_rpcbind(&running.ports, options.nfs, &env).await?;
            running.registered = Some(registered);
        }
        Ok(running)
    }

    /// The programs that execute calls: NFS, and the others that are served over TCP and UDP.
    fn programs(&self, memory: &memory::Memory, tasks: &mut JoinSet<()>) -> Result<Programs> {
        let Self { env, options, nfsd, ports, .. } = self;
        let mut programs: Vec<(Spoken, Arc<dyn Handler>)> = Vec::new();
        if let Some(nfsd) = nfsd {
            programs.push((Spoken::Mount, nfsd.mount()));
            programs.extend(nfsd.lockd().map(|lockd| (Spoken::Lockd, lockd)));
            programs.extend(nfsd.statd().map(|statd| (Spoken::Statd, statd)));
        }
        if options.rpcbind == Some(Rpcbind::Own) {
            let table = portmap::Table::new(programs::entries(ports, options.nfs));
            let table = table.map_err(|error| Error::message(error.to_string())).context("--rpcbind own")?;
            programs.push((Spoken::Portmapper, Arc::new(portmap::router(table, env))));
        }
        let mut nfs = own::handler(&self.services, nfsd.as_ref().map(|nfsd| nfsd.nfs()), env);
        if options.metrics {
            self.count(memory, tasks);
            let calls = metrics::Calls::new();
            nfs = metrics::Timed::new(nfs, &calls);
            for (_, program) in &mut programs {
                *program = metrics::Timed::new(program.clone(), &calls);
            }
        }
        programs.push((Spoken::Nfs, nfs.clone()));
        Ok((programs, nfs))
    }

    /// Starts the metrics, and the tasks that update gauges.
    fn count(&self, memory: &memory::Memory, tasks: &mut JoinSet<()>) {
        metrics::start();
        tasks.spawn(metrics::watch_memory(memory.parts()));
        tasks.spawn(metrics::watch_index(self.directories.clone()));
        if let (Some(numbers), Some(nfsd)) = (&self.operations, &self.nfsd) {
            if self.options.nfs.has_4() {
                numbers.begin();
                tasks.spawn(metrics::watch_clients(nfsd.clone()));
            }
            if self.options.has_locks() {
                tasks.spawn(metrics::watch_monitor(nfsd.clone()));
            }
        }
        tasks.spawn(metrics::watch_contexts(self.kerberos.clone()));
    }
}

/// The handlers of calls to each program over TCP and UDP, and of calls to NFS over RDMA.
type Programs = (Vec<(Spoken, Arc<dyn Handler>)>, Arc<dyn Handler>);

/// Warns the administrator if the server serves clients of every network. Services trust what callers say of
/// themselves.
fn warn_of_strangers(options: &Options, has_services: bool, ports: &Ports) {
    let is_open = |export: &super::Export| {
        export.clients.is_empty() && kerberos::securities(options, export).iter().any(|one| !one.is_kerberos())
    };
    let takes_all = has_services || options.exports.iter().any(is_open);
    if !ports.only_loopback() && options.allow.is_empty() && takes_all {
        let carried = match (&options.fabric, options.carrier) {
            (Some(_), _) => "what RDMA carries is encrypted only if the provider does it",
            (None, Carrier::Iwarp) => "iWARP is not encrypted",
            (None, Carrier::Verbs) => "what the RDMA device carries is not encrypted",
        };
        tracing::warn!(
            "anyone who reaches these ports is served: with AUTH_SYS the server believes what the client says about \
             who calls, and {carried}; name the networks to serve with --allow"
        );
    }
}
