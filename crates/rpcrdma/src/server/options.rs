//! All options of a server, in plain values: those of the command and of the builder's methods.

use super::{Export, NfsVersions, Spoken, kerberos, listeners::Listeners, memory};
use crate::Carrier;
use rpcrdma_env::BusyPoll;
use rpcrdma_fabric::Fabric;
use rpcrdma_nfsd::{Cidr, Domain, Securities, Security};
use rpcrdma_transport::Versions;
use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

/// Which portmapper tells clients the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rpcbind {
    /// This server, as a portmapper of its own.
    Own,
    /// rpcbind of this machine, with which the server registers.
    System,
}

/// The options of a server. Each field says its default, unless that is no, none or nothing. `docs/serving.md` explains
/// them as options of `rpcrdma serve`. An error of this crate names an option of the command. It means the field of
/// that name; only these fields have other names:
///
/// | option of the command | field |
/// |---|---|
/// | `--export`, `pseudo=` in it | `exports`, and the path of an [`Export`] |
/// | `--fabric` | `carrier` |
/// | `--async` | `early_answers` |
/// | `--no-crc` | `crc` |
///
/// ```
/// use rpcrdma::server::{Builder, Security};
///
/// # fn configured(builder: Builder) -> Result<Builder, rpcrdma::server::BadCidr> {
/// let network = "192.0.2.0/24".parse()?;
/// let builder = builder.configure(|options| {
///     options.memory = Some(256 << 20);
///     options.max_connections = 100;
///     options.allow.push(network);
///     options.sec = vec![Security::Krb5p, Security::Krb5i];
/// });
/// # Ok(builder) }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// What is served.
    pub exports: Vec<Export>,
    /// Where NFS over RDMA is served; 127.0.0.1:20049 if it is empty.
    pub listen: Vec<SocketAddr>,
    /// What carries RDMA.
    pub carrier: Carrier,
    /// Which device, if a device carries it; otherwise the one with the address that is listened on.
    pub device: Option<String>,
    /// A provider of the program's own, instead of `carrier`.
    pub fabric: Option<Arc<dyn Fabric>>,
    /// Where MOUNT is served over TCP; 127.0.0.1:20048 if it is empty. Versions 2 and 3 of NFS need it.
    pub mountd: Vec<SocketAddr>,
    /// The addresses where NFS is also served over plain TCP. If it is empty: with Kerberos, port 2049 of each address
    /// of `listen`; without Kerberos or `listen`, 127.0.0.1:2049, if version 4 is served and that port is free.
    pub tcp: Vec<SocketAddr>,
    /// Whether clients of versions 2 and 3 can lock files; yes by default.
    pub locks: bool,
    /// Where NLM is served over TCP; a free port of 127.0.0.1 if it is empty.
    pub lockd: Vec<SocketAddr>,
    /// Where NSM is served over TCP and UDP; a free port of 127.0.0.1 if it is empty.
    pub statd: Vec<SocketAddr>,
    /// Which versions of NFS are served.
    pub nfs: NfsVersions,
    /// How long a client of version 4 that does not call keeps its opens and locks; 90 seconds by default.
    pub lease: Option<Duration>,
    /// For how long after a restart clients may reclaim opens and locks; as long as `lease` by default. Until all that
    /// held something have done so, or this time is over, other opens and locks wait.
    pub grace: Option<Duration>,
    /// Whether locks of clients also exclude programs of this machine; yes by default.
    pub host_locks: bool,
    /// Whether files are delegated to clients of version 4; yes by default.
    pub delegations: bool,
    /// The security flavours with which files are served, best first; AUTH_SYS by default. Services of the program's
    /// own take AUTH_NONE and AUTH_SYS, whatever this says.
    pub sec: Vec<Security>,
    /// The file with the keys of Kerberos; the machine's by default.
    pub keytab: Option<PathBuf>,
    /// A file that maps principals of Kerberos to users.
    pub principals: Option<PathBuf>,
    /// The domain of users and groups in version 4.
    pub domain: Option<Domain>,
    /// For callers with AUTH_SYS the server uses the groups from this machine's user database, not those in the call.
    pub manage_gids: bool,
    /// Nothing can be changed through any export.
    pub read_only: bool,
    /// The clients' root acts as root here.
    pub no_root_squash: bool,
    /// The server answers before new names and attributes are on the disk.
    pub early_answers: bool,
    /// Only clients of these networks are served; all if it is empty.
    pub allow: Vec<Cidr>,
    /// Which portmapper tells clients the ports; by default none.
    pub rpcbind: Option<Rpcbind>,
    /// Where a portmapper of the server's own listens.
    pub portmapper: Vec<SocketAddr>,
    /// Threads that serve connections; one for each processor by default.
    pub threads: Option<u16>,
    /// Memory for calls and replies in progress, in bytes; a quarter of the machine's by default.
    pub memory: Option<usize>,
    /// The directory where the server keeps what must survive a restart. If a directory is exported, the default is
    /// `/var/lib/rpcrdma` for root, and `rpcrdma` in `$XDG_STATE_HOME` or `~/.local/state` for other users. Otherwise
    /// it is a temporary directory, and the handles and locks of clients end with the server.
    pub state: Option<PathBuf>,
    /// Connections at a time, over all listeners; 1,024 by default. Each takes one of the files that the process may
    /// open.
    pub max_connections: u32,
    /// The server drops a client that makes no progress for this time within a call or a reply; 30 seconds by default.
    pub stall_timeout: Duration,
    /// The versions of RPC-over-RDMA that the server accepts; both by default.
    pub rpcrdma: Versions,
    /// When a thread looks for the next message again and again before it sleeps; while it pays, by default.
    pub busy_poll: BusyPoll,
    /// Whether iWARP's CRC is asked for; yes by default.
    pub crc: bool,
    /// Whether the server counts what it does, in the recorder of the crate `metrics` that the program has installed.
    /// `docs/metrics.md` has the names.
    pub metrics: bool,
    /// How long calls under way may take to finish when the server is to stop; 5 seconds by default.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            exports: Vec::new(),
            listen: Vec::new(),
            carrier: Carrier::default(),
            device: None,
            fabric: None,
            mountd: Vec::new(),
            tcp: Vec::new(),
            locks: true,
            lockd: Vec::new(),
            statd: Vec::new(),
            nfs: NfsVersions::default(),
            lease: None,
            grace: None,
            host_locks: true,
            delegations: true,
            sec: vec![Security::Sys],
            keytab: None,
            principals: None,
            domain: None,
            manage_gids: false,
            read_only: false,
            no_root_squash: false,
            early_answers: false,
            allow: Vec::new(),
            rpcbind: None,
            portmapper: Vec::new(),
            threads: None,
            memory: None,
            state: None,
            max_connections: 1024,
            stall_timeout: Duration::from_secs(30),
            rpcrdma: Versions::Auto,
            busy_poll: BusyPoll::default(),
            crc: true,
            metrics: false,
            drain: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// Whether clients of versions 2 and 3 can lock files.
    pub fn has_locks(&self) -> bool {
        self.nfs.has_mount() && self.locks
    }

    /// Whether all addresses to listen on are loopback addresses, which no other machine reaches.
    pub fn only_loopback(&self) -> bool {
        Listeners::of(self).only_loopback()
    }

    /// How many threads serve connections.
    pub fn serving_threads(&self) -> usize {
        match self.threads {
            Some(threads) => usize::from(threads),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// The memory for calls and replies in progress, in bytes: a server needs some to serve with.
    pub fn memory_budget(&self) -> usize {
        memory::budget(self.memory)
    }

    /// The security flavours of an export, best first.
    pub fn security_of(&self, export: &Export) -> Securities {
        kerberos::securities(self, export)
    }

    /// The flavours of Kerberos that some export takes.
    pub fn kerberos(&self) -> Vec<Security> {
        kerberos::wanted(self)
    }

    /// The principal for which clients ask for tickets, from the keytab; `None` if the keytab does not say.
    pub fn principal(&self) -> Option<String> {
        kerberos::principal(self)
    }
}

impl Spoken {
    /// The field of [`Options`] that names its addresses, as the command's option.
    pub(super) fn option(self) -> &'static str {
        match self {
            Spoken::Rdma => "--listen",
            Spoken::Nfs => "--tcp",
            Spoken::Mount => "--mountd",
            Spoken::Portmapper => "--portmapper",
            Spoken::Lockd => "--lockd",
            Spoken::Statd => "--statd",
        }
    }
}
