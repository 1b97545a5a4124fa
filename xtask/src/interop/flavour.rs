//! Flavours: the versions of NFS and the transports in which Linux's client does a job, or our client with Linux's
//! server. Each flavour of a job is a run with its own name, server and guest: in version 4, Linux uses one connection
//! for two mounts of a server.

/// A version of NFS and what carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flavour {
    /// As in the mount option `vers`.
    pub(super) version: &'static str,
    /// As in the mount option `proto`.
    pub(super) transport: &'static str,
    /// What the job's name ends with, and what `interop.toml` calls it.
    pub(super) name: &'static str,
}

const V2: Flavour = Flavour { version: "2", transport: "rdma", name: "2" };
const V2_TCP: Flavour = Flavour { version: "2", transport: "tcp", name: "2-tcp" };
const V3: Flavour = Flavour { version: "3", transport: "rdma", name: "3" };
const V3_TCP: Flavour = Flavour { version: "3", transport: "tcp", name: "3-tcp" };
const V4_0: Flavour = Flavour { version: "4.0", transport: "rdma", name: "4.0" };
const V4_0_TCP: Flavour = Flavour { version: "4.0", transport: "tcp", name: "4.0-tcp" };
const V4_1: Flavour = Flavour { version: "4.1", transport: "rdma", name: "4.1" };
const V4_1_TCP: Flavour = Flavour { version: "4.1", transport: "tcp", name: "4.1-tcp" };
const V4_2: Flavour = Flavour { version: "4.2", transport: "rdma", name: "4.2" };
const V4_2_TCP: Flavour = Flavour { version: "4.2", transport: "tcp", name: "4.2-tcp" };

/// One flavour: the job's scripts choose themselves what they mount, or `nfs_mount` mounts in version 3.
pub(super) const ONE: &[Flavour] = &[V3];
/// Version 3 over RDMA and over TCP.
pub(super) const OLDEST: &[Flavour] = &[V3, V3_TCP];
/// The version that Linux takes when no option names one.
pub(super) const NEWEST: &[Flavour] = &[V4_2];
/// Each version, over RDMA.
pub(super) const VERSIONS: &[Flavour] = &[V3, V4_1, V4_2];
/// Each minor version over RDMA, and 4.2 over TCP.
pub(super) const VERSION_4: &[Flavour] = &[V4_1, V4_2, V4_2_TCP];
/// Flavours in which a server can call Linux's client: over the client's connection, or in minor version 0 over a
/// connection that the server makes, which Linux offers for mounts over TCP.
pub(super) const CALLED_BACK: &[Flavour] = &[V4_0_TCP, V4_1, V4_2, V4_2_TCP];
/// Each version over RDMA, and 4.2 over TCP.
pub(super) const WITH_TCP: &[Flavour] = &[V3, V4_1, V4_2, V4_2_TCP];
/// The same, and version 2 over RDMA and over TCP.
pub(super) const ALL: &[Flavour] = &[V3, V4_1, V4_2, V4_2_TCP, V2, V2_TCP];
/// For our client: each version over RDMA, and each minor version of version 4 over TCP.
pub(super) const OURS: &[Flavour] = &[V3, V4_0, V4_1, V4_2, V4_0_TCP, V4_1_TCP, V4_2_TCP];
/// For our client: the oldest and the newest version, and the newest over TCP.
pub(super) const ENDS: &[Flavour] = &[V3, V4_2, V4_2_TCP];
/// For our client: the oldest and the newest version, over RDMA.
pub(super) const ENDS_OF_RDMA: &[Flavour] = &[V3, V4_2];
/// For our client: the flavours in which the server keeps state for it, which a restart of the server may lose.
pub(super) const STATEFUL: &[Flavour] = &[V4_0, V4_1, V4_2, V4_2_TCP];
/// Flavours in which a server makes a connection of its own to call our client.
pub(super) const CALLED_APART: &[Flavour] = &[V4_0, V4_0_TCP];
/// Flavours in which a server calls over the connection that our client has made.
pub(super) const WITH_SESSIONS: &[Flavour] = &[V4_1, V4_2, V4_2_TCP];

/// With Kerberos: each minor version over RDMA, and over TCP the oldest and the newest version.
pub(super) const PROVEN: &[Flavour] = &[V3, V4_0, V4_1, V4_2, V3_TCP, V4_2_TCP];

impl Flavour {
    pub(super) fn is_version_4(self) -> bool {
        self.version.starts_with('4')
    }

    pub(super) fn is_tcp(self) -> bool {
        self.transport == "tcp"
    }

    /// The name of a job in this flavour. In version 3 it is the plain name of the job.
    pub(super) fn job_name(self, job: &str) -> String {
        if self == V3 { job.to_owned() } else { format!("{job}-{}", self.name) }
    }

    /// The flavour in words, for reports about a job; empty for version 3.
    pub(super) fn words(self) -> String {
        match (self.is_version_4(), self.is_tcp()) {
            _ if self.version == V2.version && self.is_tcp() => " (NFS 2 over TCP)".to_owned(),
            _ if self.version == V2.version => " (NFS 2)".to_owned(),
            (false, false) => String::new(),
            (false, true) => " (over TCP)".to_owned(),
            (true, false) => format!(" (NFS {})", self.version),
            (true, true) => format!(" (NFS {} over TCP)", self.version),
        }
    }
}
