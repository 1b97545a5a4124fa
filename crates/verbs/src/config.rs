//! The settings of a provider, and their limits.

use rpcrdma_env::BusyPoll;
use std::{net::IpAddr, time::Duration};

/// RDMA Reads at a time, in each direction: as many as Linux's NFS server asks for.
pub const DEFAULT_DEPTH: u16 = 16;
/// A connection that is not set up within this time fails. Linux waits as long.
pub const DEFAULT_SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// When we disconnect, the peer has this long to accept the posted work,
pub const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// and then this long to disconnect as well.
pub const DEFAULT_LINGER: Duration = Duration::from_secs(1);
/// If a peer is silent, and nothing is under way to it, we ask it for a sign of life after this time or up to twice as
/// long.
pub const DEFAULT_KEEPALIVE: Duration = Duration::from_secs(15);
/// Flushed work does not show why the connection ends; the event that shows it may come this much later.
pub const SUSPICION: Duration = Duration::from_millis(200);
/// How long `expose` waits for a bind, if [`Config::await_binds`] asks for it.
pub(crate) const BIND_PATIENCE: Duration = Duration::from_millis(500);
/// Exposures at a time on one connection.
pub const DEFAULT_MAX_EXPOSURES: usize = 4_096;
/// Receives at a time on one connection: far more than the credits that an end ever grants. The device keeps a queue of
/// this length.
pub const DEFAULT_MAX_RECEIVES: usize = 1_024;
/// Pieces of work at a time on one connection. Work for which the device's queue has no room waits in memory.
pub const DEFAULT_MAX_POSTED: usize = 16_384;
/// Length of the device's queue for Sends, Writes, Reads and windows.
pub const DEFAULT_SEND_QUEUE: usize = 256;
/// Bytes of memory in registered slabs; beyond that, memory comes from the heap.
pub const DEFAULT_POOL_BYTES: usize = 256 << 20;
/// Requests that the connection manager keeps until the program takes them.
pub const LISTEN_BACKLOG: i32 = 1_024;

/// Which device to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The only one that exists.
    #[default]
    Only,
    /// The one with this name: `mlx5_0`.
    Named(String),
    /// The one that has this address of ours. The address chooses its port and GID, too.
    Local(IpAddr),
    /// The one through which the route to this address goes.
    Towards(IpAddr),
}

/// How a [`Verbs`](crate::Verbs) behaves. [`Config::default`] suits most programs on a machine with one device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Which device to use.
    pub device: Device,
    /// Our address for outgoing connections. It chooses the device's port and GID. If it is `None`, routing chooses
    /// them.
    pub local: Option<IpAddr>,
    /// The most RDMA Reads of the peer that we serve at a time.
    pub max_ird: u16,
    /// The most RDMA Reads of our own at a time.
    pub max_ord: u16,
    /// See [`DEFAULT_SETUP_TIMEOUT`].
    pub setup_timeout: Duration,
    /// See [`DEFAULT_DRAIN_TIMEOUT`].
    pub drain_timeout: Duration,
    /// See [`DEFAULT_LINGER`].
    pub linger: Duration,
    /// See [`DEFAULT_KEEPALIVE`]: an RDMA Write without data, which the peer's device acknowledges by itself. Zero
    /// turns it off. Not used with iWARP, where TCP below has its own keep-alive.
    pub keepalive: Duration,
    /// See [`DEFAULT_MAX_EXPOSURES`].
    pub max_exposures: usize,
    /// See [`DEFAULT_MAX_RECEIVES`].
    pub max_receives: usize,
    /// The receives of one [`ReceivePool`](rpcrdma_fabric::ReceivePool) that the device has at a time: the length of a
    /// shared receive queue. Each connection that uses a pool has a completion queue with room for all of them. Zero,
    /// the default, means that there are no pools. Only devices with memory windows of type 2 have pools: on other
    /// devices each connection has a protection domain of its own.
    ///
    /// Before a connection is over, devices report all receives of a pool that it took. Linux's soft-RoCE does not: a
    /// Send that is cut off in its middle takes a receive with it, which comes back only when the pool is dropped.
    pub shared_receives: usize,
    /// See [`DEFAULT_MAX_POSTED`].
    pub max_posted: usize,
    /// See [`DEFAULT_SEND_QUEUE`].
    pub send_queue: usize,
    /// See [`DEFAULT_POOL_BYTES`]. Slabs are allocated as they are needed.
    pub pool_bytes: usize,
    /// Exposing waits, a fraction of a millisecond, until the device has bound the window. Needed only if a peer can
    /// learn a handle in another way than from a Send on the same connection, which never overtakes the bind.
    pub await_binds: bool,
    /// When the provider looks at the queue again and again before the thread sleeps.
    pub busy_poll: BusyPoll,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            device: Device::Only,
            local: None,
            max_ird: DEFAULT_DEPTH,
            max_ord: DEFAULT_DEPTH,
            setup_timeout: DEFAULT_SETUP_TIMEOUT,
            drain_timeout: DEFAULT_DRAIN_TIMEOUT,
            linger: DEFAULT_LINGER,
            keepalive: DEFAULT_KEEPALIVE,
            max_exposures: DEFAULT_MAX_EXPOSURES,
            max_receives: DEFAULT_MAX_RECEIVES,
            shared_receives: 0,
            max_posted: DEFAULT_MAX_POSTED,
            send_queue: DEFAULT_SEND_QUEUE,
            pool_bytes: DEFAULT_POOL_BYTES,
            await_binds: false,
            busy_poll: BusyPoll::default(),
        }
    }
}
