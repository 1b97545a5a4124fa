//! The settings of a connection, and what follows from them together with both ends' private data.

use crate::{Side, extension::Extension, host_auth::HostAuthentication};
use rpcrdma_wire::{PrivateData, private_data::MIN_SIZE_OCTETS, v2::ReverseSupport};
use std::{sync::Arc, time::Duration};

/// Credits that we ask for and grant by default: enough for eight 1 MiB transfers and many small calls, and each costs
/// a receive buffer of [`DEFAULT_INLINE_BYTES`].
pub const DEFAULT_CREDITS: u32 = 64;

/// The most credits that we use, even if the peer grants more or the configuration asks for more. Each credit of ours
/// costs a receive buffer.
pub const MAX_CREDITS: u32 = 1024;

/// Version 2: the most credits of the peer that we accept, by default. Each costs a receive, because each message that
/// we send on one of them must grant a credit.
// V2-4.2.1.1-h
pub const MAX_PEER_CREDITS: u16 = 64;

/// Bytes that one Send of ours carries, and that our receives hold, by default. A READ or WRITE of 4 KiB fits, so its
/// data needs neither exposed memory nor a second round trip. Linux uses half as much, and both ends then use the less.
// V1-3.3.3-f
pub const DEFAULT_INLINE_BYTES: u32 = 8192;

/// The most segments in one received message. A 1 MiB transfer in 4 KiB pages has 256.
pub const MAX_SEGMENTS_PER_MESSAGE: usize = 512;

/// The most bytes of one call that we pull from the peer's memory, by default: four times 1 MiB of data.
pub const DEFAULT_MAX_CALL_BYTES: u64 = 4 << 20;

/// Version 2: the most Sends for one call, by default; a longer call goes into a chunk that the server pulls. Pulling
/// takes a round trip, which costs more than the Sends up to the longest call that the default credits allow
/// (docs/performance.md).
pub const DEFAULT_CALL_PARTS: usize = 16;

/// Version 2: the most Sends of a reply that does not count as long, by default. If we expose memory for a longer
/// reply, an RDMA Write brings it without a round trip and costs less than several Sends.
pub const DEFAULT_REPLY_PARTS: usize = 2;

/// How long a call whose caller has gone away may keep its memory lent.
pub const FORGOTTEN_CALL_DEADLINE: Duration = Duration::from_secs(60);

/// How long the peer may be silent while calls are unanswered, before we probe it. A user who waits longer wants to
/// know whether its server is slow or dead, and a NULL call costs nothing.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(20);

/// How long a server may take to answer the first message of version 2, before we take it for a server of version 1.
// V2-4.2.3.2-e, V2-4.2.3.2-h, IE-4.6-a
pub const VERSION_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the answer to a probe may take. A machine that swaps, or is stopped and continues, is not dead; but a
/// client that renews its lease every third of 90 s must find out, and connect again, before the lease is over.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(25);

/// How long a server may be silent that has left its client no credit for a probe: it has granted only one, or has
/// lowered its grant below the calls under way. Then nothing shows whether it is slow or dead. In the end we close the
/// connection, because a call must not wait for ever; a server that was only slow recognises the repeated call by its
/// XID.
pub const SPENT_LIMIT: Duration = Duration::from_secs(180);

/// Limits on what a peer may ask for. Each has a default with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most segments in one received message.
    pub segments: usize,
    /// The most bytes of one call that are pulled by RDMA Read.
    // V1-3.4.4-b, V2-4.3.4-d, V1-8.1.4-a, V2-11.1.4-a
    pub call_bytes: u64,
    /// The most Read chunks of one call (version 2 states it in an error; version 1 has no error for it).
    pub read_chunks: usize,
    /// The most Write chunks of one call (version 2).
    pub write_chunks: usize,
}

/// The most Read chunks, and the most Write chunks, of one call. Bindings have at most a few eligible items in a
/// procedure, except NFSv4's, whose compounds have far fewer than this.
pub const MAX_CHUNKS_PER_LIST: usize = 64;

/// The versions of RPC-over-RDMA that this end speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// Version 1 only.
    #[default]
    One,
    /// Version 2 only.
    Two,
    /// Both: a client asks for version 2 first, a server follows the client's first message.
    Auto,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            segments: MAX_SEGMENTS_PER_MESSAGE,
            call_bytes: DEFAULT_MAX_CALL_BYTES,
            read_chunks: MAX_CHUNKS_PER_LIST,
            write_chunks: MAX_CHUNKS_PER_LIST,
        }
    }
}

/// How this end of a connection behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end it is.
    pub side: Side,
    /// Credits to ask for: the most calls of ours in flight. At most [`MAX_CREDITS`].
    pub credits_wanted: u32,
    /// Version 1: the most calls of ours that we send before we answer the peer's next call; others wait. Some peers
    /// post receives for calls in the reverse direction only when they receive such an answer, even if they have
    /// granted more.
    pub calls_between_answers: u32,
    /// Credits to grant: the most calls of the peer in flight. Zero if this end serves no calls.
    pub credits_granted: u32,
    /// The largest message that we send, in bytes.
    pub send_bytes: u32,
    /// The largest message that we receive, in bytes: the size of our receives.
    pub receive_bytes: u32,
    /// Whether the peer may end our exposures by Send with Invalidate, and we the peer's.
    pub remote_invalidation: bool,
    /// Receives that were posted before the connection was established. At least two.
    // V1-3.3.3-a, V2-4.2.1.1-j
    pub initial_receives: usize,
    /// The most slices in one Send or Write.
    pub max_gather: usize,
    /// The most bytes in one Write or exposure.
    pub max_transfer_bytes: usize,
    /// Limits on what the peer may ask for.
    pub limits: Limits,
    /// Which versions are spoken.
    pub versions: Versions,
    /// Version 2: the most credits of the peer that we accept. Each costs a receive.
    pub peer_credits: u16,
    /// Version 2: the most Sends for a call that the server could also pull from a chunk. One: we continue no such
    /// call.
    pub call_parts: usize,
    /// Version 2: if the largest reply needs at most so many Sends, we offer no chunk for it. One: the responder
    /// continues no reply unless it has no other way.
    pub reply_parts: usize,
    /// Version 2: what a client announces for the reverse direction, if it grants credits for calls in that direction.
    // V2-4.5.3-b, V2-4.5.4-b
    pub reverse: ReverseSupport,
    /// Version 2: header types and properties beyond the draft's.
    pub extension: Option<Arc<dyn Extension>>,
    /// Version 2: checks whether the peer is who it should be. `None` turns it off. A peer of version 1 cannot send
    /// anything for it, and is treated like a peer of version 2 that stays silent.
    pub host_authentication: Option<Arc<dyn HostAuthentication>>,
}

impl Config {
    /// The defaults of a client, which calls and serves nothing.
    pub fn client() -> Self {
        Self {
            side: Side::Client,
            credits_wanted: DEFAULT_CREDITS,
            calls_between_answers: u32::MAX,
            credits_granted: 0,
            send_bytes: DEFAULT_INLINE_BYTES,
            receive_bytes: DEFAULT_INLINE_BYTES,
            remote_invalidation: true,
            initial_receives: 2,
            max_gather: 16,
            max_transfer_bytes: u32::MAX as usize,
            limits: Limits::default(),
            versions: Versions::One,
            peer_credits: MAX_PEER_CREDITS,
            call_parts: DEFAULT_CALL_PARTS,
            reply_parts: DEFAULT_REPLY_PARTS,
            reverse: ReverseSupport::General,
            extension: None,
            host_authentication: None,
        }
    }

    /// The defaults of a server.
    pub fn server() -> Self {
        Self { side: Side::Server, credits_wanted: 0, credits_granted: DEFAULT_CREDITS, ..Self::client() }
    }

    /// Our private data for the set-up.
    pub fn private_data(&self) -> PrivateData {
        PrivateData {
            remote_invalidation: self.remote_invalidation,
            send_size: self.send_bytes,
            receive_size: self.receive_bytes,
        }
    }
}

/// The limits of one connection, which follow from our configuration and the peer's private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The inline threshold of messages that we send, in bytes.
    pub send_inline: usize,
    /// The inline threshold of messages that we receive, in bytes.
    pub receive_inline: usize,
    /// Whether our Sends may invalidate a handle of the peer: both ends have announced it.
    pub send_invalidates: bool,
}

impl Link {
    /// Combines what both ends announce. A peer without private data has the minimum of RFC 8166 section 3.3.3.
    // V1-3.3.2-a, V1-3.3.3-g, CM-8797-4-d
    pub fn new(config: &Config, peer: Option<&PrivateData>) -> Self {
        let ours = config.private_data();
        let (peer_send, peer_receive) =
            peer.map_or((MIN_SIZE_OCTETS, MIN_SIZE_OCTETS), |peer| (peer.send_size, peer.receive_size));
        Self {
            send_inline: inline(ours.send_size, peer_receive),
            receive_inline: inline(ours.receive_size, peer_send),
            // CM-8797-4-e, V2-C.7-a
            send_invalidates: config.remote_invalidation && peer.is_some_and(|peer| peer.remote_invalidation),
        }
    }
}

// V1-3.3.3-e
fn inline(a: u32, b: u32) -> usize {
    usize::try_from(a.min(b).max(MIN_SIZE_OCTETS)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: V1-3.3.2-a, V1-3.3.3-b, V1-3.3.3-f, V1-3.3.3-g, V1-3.3.2-b, CM-8797-4-d
    #[test]
    fn thresholds_are_the_smaller_of_both_ends() {
        let config = Config { send_bytes: 8192, receive_bytes: 2048, ..Config::client() };
        let link = Link::new(&config, None);
        assert_eq!((link.send_inline, link.receive_inline, link.send_invalidates), (1024, 1024, false));
        let peer = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 };
        let link = Link::new(&config, Some(&peer));
        assert_eq!((link.send_inline, link.receive_inline, link.send_invalidates), (4096, 2048, true));
    }

    /// proves: CM-8797-4-e
    #[test]
    fn both_ends_must_allow_remote_invalidation() {
        let peer = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 };
        let config = Config { remote_invalidation: false, ..Config::server() };
        assert!(!Link::new(&config, Some(&peer)).send_invalidates);
        let peer = PrivateData { remote_invalidation: false, ..peer };
        assert!(!Link::new(&Config::server(), Some(&peer)).send_invalidates);
    }
}
