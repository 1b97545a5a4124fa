//! Why a device cannot be used. Each message says what to do about it.

use std::{io, net::IpAddr};

/// The text of errors whose cause is the removal of the device.
pub(crate) const REMOVED: &str = "the RDMA device was removed";

/// A library that could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{library} cannot be loaded ({reason}); install rdma-core (Debian: rdma-core, ibverbs-providers, librdmacm1)")]
pub struct LoadError {
    /// Its name.
    pub library: &'static str,
    /// The system's message.
    pub reason: String,
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// rdma-core is not installed, or is too old.
    #[error("this machine has no RDMA libraries")]
    Load(#[from] LoadError),
    /// The kernel has no connection manager for programs.
    #[error(
        "the kernel's RDMA connection manager cannot be reached; try `modprobe rdma_ucm`, and see that /dev/infiniband/rdma_cm is there and may be opened"
    )]
    NoConnectionManager(#[source] io::Error),
    /// There is no device.
    #[error(
        "there is no RDMA device; `rdma link` shows what the kernel has, and `rdma link add rxe0 type rxe netdev INTERFACE` makes one of any network interface"
    )]
    NoDevice,
    /// No device has this name.
    #[error("there is no RDMA device {name}; there is {}", known.join(", "))]
    UnknownDevice {
        /// The name.
        name: String,
        /// The names of the devices that exist.
        known: Vec<String>,
    },
    /// There are several devices, and the configuration does not choose one.
    #[error("there are several RDMA devices ({}): say which", known.join(", "))]
    SeveralDevices {
        /// Their names.
        known: Vec<String>,
    },
    /// The connection manager found no device that leads to a peer, or the network did not answer for the peer's
    /// address.
    #[error(
        "no way to {peer} over an RDMA device was found; see that {peer} answers `ping`, and that `rpcrdma devices` shows the network interface that `ip route get {peer}` names"
    )]
    NoWay {
        /// The peer's address.
        peer: IpAddr,
        /// The connection manager's error.
        #[source]
        error: io::Error,
    },
    /// An address of this machine that is on no RDMA device.
    #[error("{address} is on no RDMA device; `rpcrdma devices` shows which network interfaces have one")]
    NotOnDevice {
        /// The address.
        address: IpAddr,
        /// The connection manager's error.
        #[source]
        error: io::Error,
    },
    /// No port of the device is in use.
    #[error("no port of {device} is active ({states}); see that its network interface is up and its cable plugged in")]
    PortDown {
        /// The device.
        device: String,
        /// The states of its ports.
        states: String,
    },
    /// The process may not lock enough memory.
    #[error(
        "{octets} bytes of memory cannot be registered with {device}: this process may lock {limit}; raise the limit with `ulimit -l unlimited`, in /etc/security/limits.conf (memlock), or with LimitMEMLOCK=infinity in a systemd unit"
    )]
    MemoryLock {
        /// The device.
        device: String,
        /// The bytes that it tried to register.
        octets: usize,
        /// The limit, in words.
        limit: String,
    },
    /// The device does not have enough of something.
    #[error("{device} cannot be used: {what}")]
    Unfit {
        /// The device.
        device: String,
        /// What it lacks.
        what: &'static str,
    },
    /// The device or its driver failed.
    #[error("{what} failed on {device}")]
    Device {
        /// The device.
        device: String,
        /// The step that failed.
        what: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}
