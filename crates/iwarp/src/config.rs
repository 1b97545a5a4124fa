//! The settings of a provider, and their limits.

use crate::{protocol::mpa, tap::Tap};
use rpcrdma_env::BusyPoll;
use rpcrdma_fabric::{Capabilities, Fencing, HandleScope};
use std::{sync::Arc, time::Duration};

/// RDMA Reads at a time, in each direction: as many as Linux's NFS server asks for.
pub const DEFAULT_DEPTH: u16 = 16;
/// A connection that is not set up within this time, TCP included, fails. Linux waits as long.
pub const DEFAULT_SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// We take a peer for dead if for this long it accepts nothing while data waits to be written, sends nothing in the
/// middle of an FPDU or while it owes the answer to an RDMA Read, or if its host acknowledges nothing.
pub const DEFAULT_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// After our FIN the peer has this long to send its own.
pub const DEFAULT_LINGER: Duration = Duration::from_secs(2);
/// An initiator that has sent something and has heard nothing from the responder for so long sends an RDMA Write
/// without data, which changes nothing. Linux's soft-iWARP, as responder, can miss that its first FPDU has come: the
/// FPDU stays in the socket until more data comes. We have seen this in one connection of four under load; a nudge
/// always woke the responder.
pub const NUDGE_DELAYS: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(250), Duration::from_millis(1000)];
/// TCP probes an idle peer after the stall time-out divided by this number,
const KEEPALIVE_IDLE_PART: u32 = 2;
/// and again after each such interval, three times before the time-out.
const KEEPALIVE_INTERVAL_PART: u32 = 6;
/// The system counts both times in seconds.
const KEEPALIVE_LEAST: Duration = Duration::from_secs(1);
/// The most that both times can be, however long the time-out is: some network devices forget a connection that is idle
/// for minutes.
const KEEPALIVE_MOST: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(10)];
/// The send buffers of the connecting and of the accepting end over loopback, in octets; the system doubles them for
/// its own use and may cap them. With several MiB, the system's own choice, one thread moves half as much on some
/// machines. The accepting end is the server: there a READ of 1 MiB and its reply fit into one write. What a client
/// sends should still be in the cache when the server, the busier end, receives it.
pub const LOOPBACK_SEND_BUFFER_OCTETS: [usize; 2] = [512 << 10, 1 << 20];
/// The most private data of the upper layer, in octets, that the format allows. Linux's soft-iWARP accepts 252 of them.
pub const MAX_PRIVATE_DATA_OCTETS: usize = mpa::MAX_PRIVATE_DATA_OCTETS - mpa::ENHANCED_OCTETS;
/// Exposures at a time on one connection: enough for some hundred calls with a hundred segments each.
pub const DEFAULT_MAX_EXPOSURES: usize = 16_384;
/// Receives at a time on one connection: far more than the credits that an end ever grants.
pub const DEFAULT_MAX_RECEIVES: usize = 8_192;
/// Pieces of work at a time on one connection.
pub const DEFAULT_MAX_POSTED: usize = 16_384;
/// Octets in one message. Message offsets have 32 bits; this limit leaves room below them, as Linux's does.
pub const MAX_MESSAGE_OCTETS: usize = 1 << 30;
/// Slices in one message.
pub const MAX_GATHER: usize = 1_024;
/// Peers that TCP has accepted and the program has not yet. The system's own limit may be lower.
pub const LISTEN_BACKLOG: u32 = 1_024;

/// When TCP begins to probe an idle peer, and the interval of further probes, so that TCP gives the peer up after
/// `stall`: the socket's user time-out must have this value, too.
pub fn keepalive(stall: Duration) -> (Duration, Duration) {
    let part = |part: u32, most: Duration| (stall / part).clamp(KEEPALIVE_LEAST, most);
    let [idle, interval] = KEEPALIVE_MOST;
    (part(KEEPALIVE_IDLE_PART, idle), part(KEEPALIVE_INTERVAL_PART, interval))
}

/// How an [`Iwarp`](crate::Iwarp) behaves. [`Config::default`] suits most programs.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// Ask for CRC32c. The connection uses it if either end asks (RFC 5044 section 4.4).
    pub crc: bool,
    /// The most RDMA Reads of the peer that we serve at a time, at most 16,382.
    pub max_ird: u16,
    /// The most RDMA Reads that we issue at a time, at most 16,382.
    pub max_ord: u16,
    /// See [`DEFAULT_SETUP_TIMEOUT`].
    pub setup_timeout: Duration,
    /// See [`DEFAULT_STALL_TIMEOUT`].
    pub stall_timeout: Duration,
    /// See [`DEFAULT_LINGER`].
    pub linger: Duration,
    /// The most octets of private data to send, at most [`MAX_PRIVATE_DATA_OCTETS`].
    pub max_private_data: usize,
    /// The most octets of an FPDU, even if the path allows larger ones. For tests and for peers that need it.
    pub fpdu_octets: Option<usize>,
    /// See [`DEFAULT_MAX_EXPOSURES`].
    pub max_exposures: usize,
    /// See [`DEFAULT_MAX_RECEIVES`].
    pub max_receives: usize,
    /// See [`DEFAULT_MAX_POSTED`].
    pub max_posted: usize,
    /// When the provider looks at the socket again and again before the thread sleeps.
    pub busy_poll: BusyPoll,
    /// Observes all octets of all connections.
    pub tap: Option<Arc<dyn Tap>>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            crc: true,
            max_ird: DEFAULT_DEPTH,
            max_ord: DEFAULT_DEPTH,
            setup_timeout: DEFAULT_SETUP_TIMEOUT,
            stall_timeout: DEFAULT_STALL_TIMEOUT,
            linger: DEFAULT_LINGER,
            max_private_data: MAX_PRIVATE_DATA_OCTETS,
            fpdu_octets: None,
            max_exposures: DEFAULT_MAX_EXPOSURES,
            max_receives: DEFAULT_MAX_RECEIVES,
            max_posted: DEFAULT_MAX_POSTED,
            busy_poll: BusyPoll::default(),
            tap: None,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("crc", &self.crc)
            .field("max_ird", &self.max_ird)
            .field("max_ord", &self.max_ord)
            .field("fpdu_octets", &self.fpdu_octets)
            .field("tap", &self.tap.is_some())
            .finish_non_exhaustive()
    }
}

impl Config {
    /// The capabilities, in the terms of a provider, that follow from the settings.
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            remote_invalidation: true,
            send_with_invalidate: true,
            fencing: Fencing::Invalidation,
            handle_scope: HandleScope::Connection,
            unpredictable_handle_bits: 32,
            shared_receives: true,
            max_exposure_bytes: u32::MAX as usize,
            max_exposures: self.max_exposures,
            max_message_bytes: MAX_MESSAGE_OCTETS,
            max_gather: MAX_GATHER,
            max_receives: self.max_receives,
            max_posted: self.max_posted,
            max_ird: self.max_ird.min(mpa::MAX_DEPTH),
            max_ord: self.max_ord.min(mpa::MAX_DEPTH),
            max_private_data: self.max_private_data.min(MAX_PRIVATE_DATA_OCTETS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One lost probe must not mean a lost peer.
    #[test]
    fn an_idle_peer_is_asked_three_times_in_time() {
        let (idle, interval) = keepalive(DEFAULT_STALL_TIMEOUT);
        assert!(idle + 3 * interval <= DEFAULT_STALL_TIMEOUT && idle + 2 * interval < DEFAULT_STALL_TIMEOUT);
        assert_eq!(keepalive(Duration::ZERO), (KEEPALIVE_LEAST, KEEPALIVE_LEAST));
        assert_eq!(<[Duration; 2]>::from(keepalive(Duration::MAX)), KEEPALIVE_MOST);
    }
    /// The number above the largest depth has another meaning.
    /// proves: CM-6581-9.1-c
    #[test]
    fn depths_end_below_the_one_that_is_not_negotiated() {
        let config = |depth| Config { max_ird: depth, max_ord: depth, ..Config::default() };
        for (asked, told) in [(16, 16), (0x3FFE, 0x3FFE), (0x3FFF, 0x3FFE), (u16::MAX, 0x3FFE)] {
            let capabilities = config(asked).capabilities();
            assert_eq!((capabilities.max_ird, capabilities.max_ord), (told, told));
        }
    }
}
