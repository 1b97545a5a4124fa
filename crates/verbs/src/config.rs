//! What can be set, and its limits.

use std::{net::IpAddr, time::Duration};

/// RDMA Reads at a time, each way: what Linux's NFS server asks for.
pub const DEFAULT_DEPTH: u16 = 16;
/// Within this time a connection is set up, or given up. Linux waits as long.
pub const DEFAULT_SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that is being left has this long to take what was posted,
pub const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// and this long to leave as well.
pub const DEFAULT_LINGER: Duration = Duration::from_secs(1);
/// If a peer is silent, and nothing is under way to it, it is asked for a sign of life after this time or twice as
/// long.
pub const DEFAULT_KEEPALIVE: Duration = Duration::from_secs(15);
/// Work that comes back unfinished does not say why; the event that does may come this much later.
pub const SUSPICION: Duration = Duration::from_millis(200);
/// How long a bind is waited for, where that is asked for.
pub(crate) const BIND_PATIENCE: Duration = Duration::from_millis(500);
/// Exposures at a time on one connection.
pub const DEFAULT_MAX_EXPOSURES: usize = 4_096;
/// Receives at a time on one connection: far more than credits are ever granted. The device keeps a queue of this
/// length.
pub const DEFAULT_MAX_RECEIVES: usize = 1_024;
/// Pieces of work at a time on one connection. What the device's queue does not hold waits in memory.
pub const DEFAULT_MAX_POSTED: usize = 16_384;
/// Length of the device's queue for Sends, Writes, Reads and windows.
pub const DEFAULT_SEND_QUEUE: usize = 256;
/// Memory in registered slabs, in bytes, before the heap is used.
pub const DEFAULT_POOL_OCTETS: usize = 256 << 20;
/// Requests that the connection manager keeps until they are taken.
pub const LISTEN_BACKLOG: i32 = 1_024;

/// Which device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The only one there is.
    #[default]
    Only,
    /// The one of this name: `mlx5_0`.
    Named(String),
    /// The one on which this address of ours is. The address chooses its port and GID, too.
    Local(IpAddr),
    /// The one that leads to this address.
    Towards(IpAddr),
}

/// How a [`Verbs`](crate::Verbs) behaves. [`Config::default`] is what an embedder with one device wants.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Which device.
    pub device: Device,
    /// The address of ours from which connections are made. It chooses the port of the device and the GID. None leaves
    /// it to routing.
    pub local: Option<IpAddr>,
    /// The most RDMA Reads of a peer served at a time.
    pub max_ird: u16,
    /// The most RDMA Reads of our own at a time.
    pub max_ord: u16,
    /// See [`DEFAULT_SETUP_TIMEOUT`].
    pub setup_timeout: Duration,
    /// See [`DEFAULT_DRAIN_TIMEOUT`].
    pub drain_timeout: Duration,
    /// See [`DEFAULT_LINGER`].
    pub linger: Duration,
    /// See [`DEFAULT_KEEPALIVE`]: an RDMA Write of nothing, which the peer's device acknowledges by itself. Zero never
    /// does it. Not with iWARP, where TCP below has a way of its own.
    pub keepalive: Duration,
    /// See [`DEFAULT_MAX_EXPOSURES`].
    pub max_exposures: usize,
    /// See [`DEFAULT_MAX_RECEIVES`].
    pub max_receives: usize,
    /// The receives of one [`ReceivePool`](rpcrdma_fabric::ReceivePool) that the device has at a time: the length of a
    /// shared receive queue. Each connection that uses a pool has a completion queue with room for all of them. Zero,
    /// the default: there are no pools. Only devices with memory windows of type 2 have pools: elsewhere each
    /// connection has a protection domain of its own.
    ///
    /// Devices report all receives of a pool that a connection took before it is over. Linux's soft-RoCE does not: a
    /// Send that is cut off in its middle takes a receive with it, which comes back when the pool is gone.
    pub shared_receives: usize,
    /// See [`DEFAULT_MAX_POSTED`].
    pub max_posted: usize,
    /// See [`DEFAULT_SEND_QUEUE`].
    pub send_queue: usize,
    /// See [`DEFAULT_POOL_OCTETS`]. Slabs are made as they are needed.
    pub pool_octets: usize,
    /// Exposing waits, a fraction of a millisecond, until the device has bound the window. Needed only where a peer
    /// learns of a handle by another way than a Send on the same connection, which never overtakes the bind.
    pub await_binds: bool,
    /// For so long after a completion the queue is asked again and again before the thread sleeps. Zero, the default,
    /// never does.
    pub busy_poll: Duration,
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
            pool_octets: DEFAULT_POOL_OCTETS,
            await_binds: false,
            busy_poll: Duration::ZERO,
        }
    }
}
