//! The plan of a seed: hosts, their versions and abilities, their work, faults and mishaps.

mod faults;
mod first;
mod second;

pub use faults::Faults;

use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_fabric::faults::{Fault, Point};
use rpcrdma_sim::SimConfig;
use rpcrdma_transport::Versions;
use std::time::Duration;

/// A host.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// What its provider can do.
    pub config: SimConfig,
    /// Its faults: the step, the fault, and how rarely (one time in so many).
    pub faults: Vec<(Point, Fault, u64)>,
    /// One time in so many an allocator has no memory; never if zero.
    pub scarce: u64,
    /// In one of so many messages that arrive, one bit is flipped; none if zero.
    pub corrupt: u64,
}

/// A client.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// Its host.
    pub host: HostPlan,
    /// The versions that it speaks.
    pub versions: Versions,
    /// Credits that it asks for.
    pub credits: u32,
    /// The largest Send, in bytes.
    pub inline_bytes: u32,
    /// Credits that it grants for calls of the server; with zero it takes no calls.
    pub reverse: u32,
    /// Callers at a time.
    pub callers: u64,
    /// Calls of each while faults are on.
    pub calls: u64,
    /// Whether calls are cancelled. The server's remaining work on such a call may end the connection.
    pub cancels: bool,
    /// Whether callers drop calls.
    pub drops: bool,
}

/// The server.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// Its host.
    pub host: HostPlan,
    /// The versions that it speaks.
    pub versions: Versions,
    /// Credits that it grants to each connection.
    pub credits: u32,
    /// The largest Send, in bytes.
    pub inline_bytes: u32,
    /// Calls that the server itself has under way on each connection.
    pub reverse: u32,
    /// Memory for arguments and results, in bytes.
    pub memory: usize,
}

/// Something that happens to hosts and links. Clients are counted from zero.
#[derive(Clone, Copy, Debug)]
pub enum Mishap {
    /// The connections of a client end.
    Cut(usize),
    /// Nothing passes between a client and the server for a while.
    Partition(usize, Duration),
    /// The server dies, and comes back after a while without its memory.
    RestartServer(Duration),
    /// A client dies with its calls, and comes back after a while.
    RestartClient(usize, Duration),
    /// The server's clock jumps ahead.
    JumpServer(Duration),
    /// A client's clock jumps ahead.
    JumpClient(usize, Duration),
}

/// The additional hosts of a run, beside the server and its clients.
#[derive(Clone, Debug, Default)]
pub struct Guests {
    /// Hostile clients of the server.
    pub hostile_clients: u64,
    /// Hostile servers, each with a client that runs the transport.
    pub victims: Vec<ClientPlan>,
    /// Decent clients of the server that share no code with our transport.
    pub strangers: u64,
}

/// How plans are drawn. The plan of a seed in an edition never changes, so that seeds which have found something can be
/// kept: a new way of drawing is a new edition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edition {
    /// A server, clients, faults and mishaps.
    First,
    /// The same, and completions that never come, every error status, corrupted messages, hostile peers and strangers.
    Second,
    /// The same, and one seed in four is a run of NFS version 4.
    Third,
    /// The same, and one more in four is a run of NFS version 4 with the clients of `rpcrdma-nfs-client`.
    Fourth,
    /// The same, and one in eight is a run of NFS versions 2 and 3.
    Fifth,
}

impl Edition {
    /// The edition that runs if no option names another.
    pub const LATEST: Self = Self::Fifth;

    /// The edition of a number, counted from 1.
    pub fn of(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::First),
            2 => Some(Self::Second),
            3 => Some(Self::Third),
            4 => Some(Self::Fourth),
            5 => Some(Self::Fifth),
            _ => None,
        }
    }
}

/// The whole plan of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How it was drawn.
    pub edition: Edition,
    /// The server.
    pub server: ServerPlan,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// The mishaps, each with the time since the one before.
    pub mishaps: Vec<(Duration, Mishap)>,
    /// The additional hosts.
    pub guests: Guests,
    /// Whether only the additional hosts cause trouble: then each call of a client must be answered.
    pub gentle: bool,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64, edition: Edition) -> Self {
        let plan = first::draw(seed);
        match edition {
            Edition::First => plan,
            Edition::Second | Edition::Third | Edition::Fourth | Edition::Fifth => second::extend(plan, seed),
        }
    }
}

/// Draws one of the options, all equally likely. `options` must not be empty.
pub(crate) fn one_of<'a, T>(random: &SeededRandom, options: &'a [T]) -> &'a T {
    &options[random.below(options.len() as u64) as usize]
}

/// A number in this range; small orders of magnitude are as likely as large ones.
pub(crate) fn spread(random: &SeededRandom, (least, most): (u64, u64)) -> u64 {
    let doublings = u64::from((most / least.max(1)).max(1).ilog2());
    let low = least << random.below(doublings + 1);
    (low + random.below(low.max(1))).clamp(least, most)
}
