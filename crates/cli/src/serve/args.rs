//! The options of `rpcrdma serve`.

use super::exports::ExportOption;
use crate::{
    args::{Verbosity, parse_seconds, parse_size},
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
use rpcrdma_env::BusyPoll;
use rpcrdma_nfsd::{Cidr, Domain, Security};
use rpcrdma_transport::Versions;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// What is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

/// How log messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object on each line
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
    /// Serve this directory, beside DIR or without DIR; may be given several times. pseudo= is the name that clients
    /// see (default: PATH); ro refuses every change; clients= is a network that may use this export (repeat clients=
    /// for more networks); sec= replaces --sec for this export, with colons between the flavours, such as
    /// sec=krb5p:krb5i
    #[arg(
        long,
        value_name = "PATH[,pseudo=/NAME][,ro][,clients=CIDR][,sec=FLAVOURS]",
        value_parser = OsStringValueParser::new().try_map(|text| ExportOption::parse(&text))
    )]
    pub(super) export: Vec<ExportOption>,
    /// Address of NFS over RDMA; may be given several times (default: 127.0.0.1:20049; with NFS version 4 only if that
    /// port is free)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Vec<SocketAddr>,
    /// What carries RDMA: iwarp is software over TCP, verbs is a device of this machine (see `rpcrdma devices`)
    #[arg(long, value_name = "FABRIC", default_value = "iwarp", value_parser = one_of(CARRIERS))]
    pub(crate) fabric: Carrier,
    /// With --fabric verbs: name of the device (default: the device that has the first address of --listen)
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Address of MOUNT over TCP, which clients of NFS versions 2 and 3 need; without these versions the server does
    /// not open it; may be given several times (default: 127.0.0.1:20048; with NFS version 4 only if that port is free)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) mountd: Vec<SocketAddr>,
    /// Address of NFS over plain TCP; may be given several times (default with NFS version 4, without --listen:
    /// 127.0.0.1:2049 if that port is free; default with Kerberos: port 2049 of each address of --listen; otherwise
    /// none)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) tcp: Vec<SocketAddr>,
    /// NFS versions 2 and 3: whether clients can lock files, for which they use the protocols NLM and NSM; if not,
    /// clients must mount with nolock
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub(crate) locks: Switch,
    /// Address of NLM over TCP; may be given several times (default: a free port of 127.0.0.1)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) lockd: Vec<SocketAddr>,
    /// Address of NSM over TCP and UDP; may be given several times (default: a free port of 127.0.0.1)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) statd: Vec<SocketAddr>,
    /// Versions of NFS to serve, separated by commas: 2, 3, 4.0, 4.1, 4.2; 4.0 and 4.2 together need 4.1
    #[arg(long, value_name = "VERSIONS", default_value = DEFAULT_NFS_VERSIONS)]
    pub(crate) nfs: NfsVersions,
    /// NFS version 4: for how many seconds, 1 to 3600, a client that does not call keeps its opens and locks
    /// (default: 90)
    #[arg(long, value_name = "SECONDS", value_parser = parse_whole_seconds)]
    pub(crate) lease: Option<Duration>,
    /// For how many seconds after a restart, 1 to 3600, clients may reclaim their opens and locks, while requests for
    /// new opens and locks wait (default: as --lease)
    #[arg(long, value_name = "SECONDS", value_parser = parse_whole_seconds)]
    pub(crate) grace: Option<Duration>,
    /// Whether locks of clients also exclude programs of this machine that use fcntl or lockf (not flock)
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub(crate) host_locks: Switch,
    /// NFS version 4: whether the server delegates a file to a client, which then uses the file without asking the
    /// server until another client or program wants it
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub(crate) delegations: Switch,
    /// How the server knows who calls, as a list with commas, the best first. sys: it believes the client; krb5:
    /// Kerberos proves who calls; krb5i: also, the data is protected against changes; krb5p: also, the data is
    /// encrypted
    #[arg(long, value_name = "FLAVOURS", value_delimiter = ',', default_value = "sys")]
    pub(crate) sec: Vec<Security>,
    /// With Kerberos: the file with the keys of nfs/HOST@REALM (default: the keytab of this machine, /etc/krb5.keytab)
    #[arg(long, value_name = "FILE")]
    pub(crate) keytab: Option<PathBuf>,
    /// With Kerberos: a file that says which user of this machine each principal is; it overrides the rules of
    /// krb5.conf. A line has a principal and a user, such as `alice@REALM alice`; a user is a name, UID:GID, or `-` for
    /// nobody
    #[arg(long, value_name = "FILE")]
    pub(crate) principals: Option<PathBuf>,
    /// NFS version 4: the domain of this machine's users and groups. The server sends owners as NAME@DOMAIN to callers
    /// by Kerberos, and as numbers to all others; every caller may set owners in both forms (default: with Kerberos,
    /// the realm of the key in the keytab, in lower case; otherwise none)
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<Domain>,
    /// Give a caller by AUTH_SYS all groups that this machine knows for the user, instead of the groups that the call
    /// names (sixteen at most)
    #[arg(long)]
    pub(crate) manage_gids: bool,
    /// Refuse every change, in all exports
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let root of a client act as root here, not as user 65534 (only if this server runs as root)
    #[arg(long)]
    pub(crate) no_root_squash: bool,
    /// Answer calls that change names or attributes before the change is on the disk. This is faster on slow disks, but
    /// a crash of this machine may undo such changes of the last seconds (committed data are safe with and without this
    /// option)
    #[arg(long = "async")]
    pub(crate) early_answers: bool,
    /// Serve only clients of this network, and refuse all others; may be given several times (default: serve every
    /// client)
    #[arg(long, value_name = "CIDR")]
    pub(crate) allow: Vec<Cidr>,
    /// Let clients find the ports of this server. With system, or without a value, the server registers with rpcbind of
    /// this machine; it does not start if another running server is registered there. With own, the server itself is
    /// the portmapper
    #[arg(long, value_name = "own|system", num_args = 0..=1, require_equals = true, default_missing_value = "system",
        value_parser = one_of(RPCBINDS))]
    pub(crate) rpcbind: Option<Rpcbind>,
    /// With --rpcbind own: address of the portmapper, over TCP and UDP; may be given several times (default: port 111
    /// of the addresses of the other services, except loopback)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) portmapper: Vec<SocketAddr>,
    /// Threads that serve connections (default: one for each processor)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Memory for calls and replies in progress, such as 512M or 2G, 16M at least (default: a quarter of RAM). The
    /// clients of one address, or of one /64 of IPv6, get three quarters of this memory at most
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<usize>,
    /// Directory where the server keeps what must survive a restart; it must lie outside of the exports (default:
    /// /var/lib/rpcrdma as root, else rpcrdma in $XDG_STATE_HOME or ~/.local/state)
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Connections at a time, over all listeners; the clients of one address, or of one /64 of IPv6, get three quarters
    /// of them at most
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Drop a client that makes no progress for this time, 0.5 to 86400 seconds, while it sends a message, takes
    /// replies or answers RDMA Reads; all Read chunks of a call together may take twice as long
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    pub(crate) stall_timeout: Duration,
    /// Which versions of RPC-over-RDMA to speak: 1, 2, or auto (both: the first message of each client decides)
    #[arg(long, value_name = "1|2|auto", default_value = "auto", value_parser = parse_versions)]
    pub(crate) rpcrdma: Versions,
    /// After each message, look for the next one for this time, at most 10000 microseconds, before the thread sleeps.
    /// The server answers faster, and uses up to so much processor time after each message. auto: 100 microseconds,
    /// and only while messages come soon after one another; 0: sleep at once
    #[arg(long, value_name = "auto|MICROSECONDS", default_value_t)]
    pub(crate) busy_poll: BusyPoll,
    /// Do not ask for iWARP's CRC; a connection works without it only if the client does not ask for it either
    #[arg(long)]
    pub(crate) no_crc: bool,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Serve metrics for Prometheus at http://ADDR:PORT/metrics (default: no metrics)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Format of the log, which goes to standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log: LogFormat,
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    /// Print the ready line, the log and errors as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
