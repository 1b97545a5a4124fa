//! The options of `rpcrdma serve`.

use super::exports::ExportOption;
use crate::{
    args::{Verbosity, parse_busy_poll, parse_seconds, parse_size},
    capture::CaptureArgs,
};
use clap::{
    Args, ValueEnum,
    builder::{OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser},
};
use rpcrdma::{
    Carrier,
    client::command::parse_versions,
    server::{DEFAULT_NFS_VERSIONS, NfsVersions, Rpcbind},
};
use rpcrdma_nfsd::{Cidr, Domain, Security};
use rpcrdma_transport::Versions;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// What is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// It is done
    On,
    /// It is not done
    Off,
}

/// How log messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for a person
    Text,
    /// One JSON object a line
    Json,
}

/// Reads one of the library's values: they stand here with their names and help texts.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    values: &'static [(T, &'static str, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let names = values.iter().map(|(_, name, help)| PossibleValue::new(*name).help(*help));
    let value = |name: String| values.iter().find(|(_, known, _)| *known == name).map(|(value, ..)| *value);
    PossibleValuesParser::new(names).try_map(move |name| value(name).ok_or("unknown"))
}

/// Whole seconds, as the protocol counts a lease.
fn parse_whole_seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).map_err(|_| format!("{text:?} is not a whole number of seconds"))
}

/// What carries RDMA.
const CARRIERS: &[(Carrier, &str, &str)] =
    &[(Carrier::Iwarp, "iwarp", "Software over TCP"), (Carrier::Verbs, "verbs", "A device of this machine")];

/// Which portmapper tells clients the ports.
const RPCBINDS: &[(Rpcbind, &str, &str)] = &[
    (Rpcbind::Own, "own", "This server, as a portmapper of its own"),
    (Rpcbind::System, "system", "rpcbind of this machine, with which the server registers"),
];

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The directory to serve; clients see it as /
    #[arg(required_unless_present = "export")]
    pub(crate) dir: Option<PathBuf>,
    /// A further directory, or the only ones if DIR is not given: clients see it as /NAME (as PATH, without pseudo=),
    /// ro refuses everything that changes a file, clients= names a network that may use it, several times if need be,
    /// and sec= says what --sec says, for this one (sec=krb5p:krb5i); may be given several times
    #[arg(
        long,
        value_name = "PATH[,pseudo=/NAME][,ro][,clients=CIDR][,sec=FLAVOURS]",
        value_parser = OsStringValueParser::new().try_map(|text| ExportOption::parse(&text))
    )]
    pub(super) export: Vec<ExportOption>,
    /// Where NFS over RDMA is served; may be given several times (default: 127.0.0.1:20049, with version 4 if it can be
    /// had)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Vec<SocketAddr>,
    /// What carries RDMA: iwarp is software over TCP, verbs a device of this machine (see `rpcrdma devices`)
    #[arg(long, value_name = "FABRIC", default_value = "iwarp", value_parser = one_of(CARRIERS))]
    pub(crate) fabric: Carrier,
    /// With --fabric verbs: which device (default: the one on which the address of --listen is)
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Where MOUNT is served over TCP, as Linux clients of NFS version 3 need it; without version 2 or 3 it is not
    /// served; may be given several times (default: 127.0.0.1:20048, with version 4 if it can be had)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) mountd: Vec<SocketAddr>,
    /// Where NFS is served over plain TCP as well; may be given several times (default: with version 4 and without
    /// --listen 127.0.0.1:2049, if it can be had)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) tcp: Vec<SocketAddr>,
    /// NFS versions 2 and 3: whether clients can lock files, which they do by programs of their own, NLM and NSM;
    /// without it they have to mount with nolock
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub(crate) locks: Switch,
    /// Where NLM is served over TCP; may be given several times (default: a free port of 127.0.0.1)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) lockd: Vec<SocketAddr>,
    /// Where NSM is served over TCP and UDP; may be given several times (default: a free port of 127.0.0.1)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) statd: Vec<SocketAddr>,
    /// Which versions of NFS to serve: 2, 3, 4.0, 4.1, 4.2, or several of them
    #[arg(long, value_name = "VERSIONS", default_value = DEFAULT_NFS_VERSIONS)]
    pub(crate) nfs: NfsVersions,
    /// NFS version 4: for how many seconds a client keeps its opens and locks without a word from it (default: 90)
    #[arg(long, value_name = "SECONDS", value_parser = parse_whole_seconds)]
    pub(crate) lease: Option<Duration>,
    /// For how many seconds after a restart clients may reclaim opens and locks, while new ones wait (default: as
    /// --lease)
    #[arg(long, value_name = "SECONDS", value_parser = parse_whole_seconds)]
    pub(crate) grace: Option<Duration>,
    /// Whether what clients lock is locked here, too, against programs of this machine that use fcntl or
    /// lockf (not flock)
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub(crate) host_locks: Switch,
    /// NFS version 4: whether clients may use a file by themselves as long as nobody else wants it
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub(crate) delegations: Switch,
    /// By what callers are told apart, best first: sys takes the client's word for who calls; with krb5 Kerberos proves
    /// it, with krb5i nobody changes what passes either, with krb5p nobody reads it
    #[arg(long, value_name = "FLAVOURS", value_delimiter = ',', default_value = "sys")]
    pub(crate) sec: Vec<Security>,
    /// With --sec krb5 and its like: the file with the keys of nfs/HOST@REALM (default: the machine's,
    /// /etc/krb5.keytab)
    #[arg(long, value_name = "FILE")]
    pub(crate) keytab: Option<PathBuf>,
    /// With --sec krb5 and its like: a file that says which users of this machine principals are, before the rules of
    /// krb5.conf do. A line is a principal and a user, such as `alice@REALM alice`; a user is a name, UID:GID, or
    /// - for nobody
    #[arg(long, value_name = "FILE")]
    pub(crate) principals: Option<PathBuf>,
    /// NFS version 4: the domain of this machine's users and groups. Callers by Kerberos are told owners as NAME@DOMAIN
    /// (others as numbers), and all may set them so (default: with Kerberos, the realm of the keytab in lower case)
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<Domain>,
    /// Callers by AUTH_SYS have the groups that this machine knows of their user, as many as there are, and not the
    /// sixteen that they name
    #[arg(long)]
    pub(crate) manage_gids: bool,
    /// Refuse everything that changes a file, in all exports
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let the clients' root act as root here (only when this runs as root)
    #[arg(long)]
    pub(crate) no_root_squash: bool,
    /// Answer for new and removed names and for attributes before they are on the disk: faster with slow disks, but a
    /// crash of this machine may undo the last seconds of them (data that were committed are safe either way)
    #[arg(long = "async")]
    pub(crate) early_answers: bool,
    /// Serve only clients of this network, and tell others nothing; may be given several times
    #[arg(long, value_name = "CIDR")]
    pub(crate) allow: Vec<Cidr>,
    /// Let clients find the ports: register with rpcbind on this machine (system, also without a value), which fails if
    /// another server that runs is registered there; or answer as a portmapper of its own (own)
    #[arg(long, value_name = "own|system", num_args = 0..=1, require_equals = true, default_missing_value = "system",
        value_parser = one_of(RPCBINDS))]
    pub(crate) rpcbind: Option<Rpcbind>,
    /// With --rpcbind own: where the portmapper listens, over TCP and UDP; may be given several times (default: port
    /// 111 of the addresses where clients reach something)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) portmapper: Vec<SocketAddr>,
    /// Threads that serve connections (default: one for each core)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Memory for calls and replies in progress, such as 512M or 2G, 16M at least (default: a quarter of RAM); the
    /// clients of one address, or of one /64 of IPv6, get three quarters of it at most
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<usize>,
    /// Where the server keeps what must survive a restart, outside of what it serves (default: /var/lib/rpcrdma as
    /// root, else rpcrdma in $XDG_STATE_HOME or ~/.local/state)
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Connections at a time, over all listeners
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Drop a client that makes no progress for so long in the middle of a message, with the answers that it was sent,
    /// or with RDMA Reads; a call's Read chunks as a whole may take twice as long
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    pub(crate) stall_timeout: Duration,
    /// Which versions of RPC-over-RDMA to speak: 1, 2, or auto, which goes by each client's first message
    #[arg(long, value_name = "1|2|auto", default_value = "auto", value_parser = parse_versions)]
    pub(crate) rpcrdma: Versions,
    /// Look for the next message for so long before the thread sleeps: answers faster, and takes that much of a
    /// processor's time after each message
    #[arg(long, value_name = "MICROSECONDS", default_value = "0", value_parser = parse_busy_poll)]
    pub(crate) busy_poll: Duration,
    /// Do not ask for iWARP's CRC; it is off only if the client does not ask for it either
    #[arg(long)]
    pub(crate) no_crc: bool,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Serve numbers for Prometheus at http://ADDR:PORT/metrics
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// How log messages are written, to standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log: LogFormat,
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    /// Print the ready line and log messages as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
