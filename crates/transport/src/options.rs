//! The options of clients and servers, and the configuration that follows from them with a given provider.

use crate::RefusedCalls;
use rpcrdma_engine::{
    Config, DEFAULT_CALL_PARTS, DEFAULT_CREDITS, DEFAULT_INLINE_BYTES, DEFAULT_MAX_CALL_BYTES, DEFAULT_REPLY_PARTS,
    Limits as EngineLimits, Versions,
    v2::{Extension, HostAuthentication, MAX_PEER_CREDITS, MIN_BYTES, ReverseSupport, SPARE_RECEIVES},
};
use rpcrdma_fabric::Capabilities;
use rpcrdma_oncrpc::{
    ConnectionIds, Handler, XidSource,
    outage::{DEFAULT_FIRST_ANSWER, DEFAULT_FIRST_SIGN, DEFAULT_OUTAGE, OutageLimits},
};
use std::{sync::Arc, time::Duration};

/// The largest RPC message, in bytes: 1 MiB of data and all other fields.
pub const DEFAULT_MAX_MESSAGE_BYTES: usize = (1 << 20) + (64 << 10);

/// RDMA Reads under way at a time in each direction: as many as Linux's server uses.
pub const DEFAULT_READS: u16 = 16;

/// If a peer leaves RDMA Reads unanswered or messages untaken for so long, without any progress, we drop the
/// connection.
pub const STALL_LIMIT: Duration = Duration::from_secs(30);

/// How long an orderly end of a connection may take. Then the connection is dropped.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The least that a Send can carry, and the unit of this size, in bytes.
const MIN_INLINE_BYTES: u32 = 1024;

/// The largest such size that an end can state, in bytes (RFC 8797).
const MAX_INLINE_BYTES: u32 = 256 * MIN_INLINE_BYTES;

/// Receives that are posted before a connection is established.
pub(crate) const INITIAL_RECEIVES: usize = 2;

/// The handler of calls in the reverse direction (RFC 8167), and how many it may get at a time.
#[derive(Clone)]
pub struct Reverse {
    /// Executes the calls.
    pub handler: Arc<dyn Handler>,
    /// Credits to grant.
    pub credits: u32,
}

impl std::fmt::Debug for Reverse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reverse").field("credits", &self.credits).finish_non_exhaustive()
    }
}

/// How a client behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Credits to ask for: the most calls under way ([`DEFAULT_CREDITS`], 64).
    pub credits: u32,
    /// The largest Send in each direction, in bytes ([`DEFAULT_INLINE_BYTES`], 8192).
    pub inline_bytes: u32,
    /// The largest message of a call or reply, in bytes ([`DEFAULT_MAX_MESSAGE_BYTES`], 1 MiB and 64 KiB).
    pub max_message: usize,
    /// RDMA Reads of the server that the client serves at a time ([`DEFAULT_READS`], 16).
    pub ird: u16,
    /// For how long the client tries to replace a lost connection (120 seconds).
    pub outage: Duration,
    /// For how long it tries if the server ends the connections that it accepts and has never answered anything on one
    /// (10 seconds).
    pub first_answer: Duration,
    /// For how long it tries if some program accepts connections, and then neither sets them up nor answers (30
    /// seconds).
    pub first_sign: Duration,
    /// The users' name of the service that the server should speak, for errors.
    pub service: &'static str,
    /// Calls from the server, if it may make any.
    pub reverse: Option<Reverse>,
    /// The source of XIDs, if several transports are used as one ([`rpcrdma_oncrpc::Spread`]).
    pub xids: Option<Arc<XidSource>>,
    /// The versions of RPC-over-RDMA that the client speaks.
    pub versions: Versions,
    /// With [`Versions::Auto`]: the client assumes that the server has no version 2, and does not ask for it at first.
    /// If the server refuses version 1, the client asks for version 2.
    pub assume_version_1: bool,
    /// Version 2: the most Sends for a call that the server could also pull from exposed memory. The best number
    /// depends on the cost of exposing; the default was measured with software iWARP.
    pub call_parts: usize,
    /// Version 2: if a reply needs at most so many Sends, the client exposes no memory for it.
    pub reply_parts: usize,
    /// Version 2: what to announce for the server's calls, if it may make any.
    pub reverse_support: ReverseSupport,
    /// Version 2: header types and properties beyond the draft's.
    pub extension: Option<Arc<dyn Extension>>,
    /// Checks the identity of the peer (version 2). By default there is no check.
    pub host_authentication: Option<Arc<dyn HostAuthentication>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            credits: DEFAULT_CREDITS,
            inline_bytes: DEFAULT_INLINE_BYTES,
            max_message: DEFAULT_MAX_MESSAGE_BYTES,
            ird: DEFAULT_READS,
            outage: DEFAULT_OUTAGE,
            first_answer: DEFAULT_FIRST_ANSWER,
            first_sign: DEFAULT_FIRST_SIGN,
            service: "RPC",
            reverse: None,
            xids: None,
            versions: Versions::One,
            assume_version_1: false,
            call_parts: DEFAULT_CALL_PARTS,
            reply_parts: DEFAULT_REPLY_PARTS,
            reverse_support: ReverseSupport::General,
            extension: None,
            host_authentication: None,
        }
    }
}

impl ClientOptions {
    pub(crate) fn outage_limits(&self) -> OutageLimits {
        let Self { outage, first_answer, first_sign, .. } = *self;
        OutageLimits { outage, first_answer, first_sign, ..OutageLimits::default() }
    }

    /// The versions for the first connection.
    pub(crate) fn first_versions(&self) -> Versions {
        match self.versions {
            Versions::Auto if self.assume_version_1 => Versions::One,
            versions => versions,
        }
    }

    pub(crate) fn config(&self, capabilities: &Capabilities) -> Config {
        let granted = self.reverse.as_ref().map_or(0, |reverse| reverse.credits);
        let config = Config {
            credits_wanted: self.credits.max(1),
            credits_granted: granted,
            limits: limits(EngineLimits::default(), self.max_message),
            send_bytes: self.inline_bytes,
            receive_bytes: self.inline_bytes,
            versions: self.versions,
            call_parts: self.call_parts,
            reply_parts: self.reply_parts,
            reverse: self.reverse_support,
            extension: self.extension.clone(),
            host_authentication: self.host_authentication.clone(),
            ..Config::client()
        };
        fitted(config, capabilities)
    }
}

/// How a server behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Credits to grant to each connection: the most calls that it may have under way ([`DEFAULT_CREDITS`], 64).
    pub credits: u32,
    /// The largest Send in each direction, in bytes ([`DEFAULT_INLINE_BYTES`], 8192).
    pub inline_bytes: u32,
    /// The largest message of a call or reply, in bytes ([`DEFAULT_MAX_MESSAGE_BYTES`], 1 MiB and 64 KiB).
    pub max_message: usize,
    /// RDMA Reads of the server under way at a time on one connection ([`DEFAULT_READS`], 16).
    pub ord: u16,
    /// The most calls of the server to the client under way, in the reverse direction (RFC 8167). With zero the server
    /// makes none.
    pub reverse_credits: u32,
    /// Version 1: the most calls to the client that the server sends before it answers one of the client's calls;
    /// others wait. Some clients post receives for them only when they get such an answer. No limit by default.
    pub reverse_calls_between_answers: u32,
    /// How long a peer may make no progress ([`STALL_LIMIT`], 30 seconds).
    pub stall: Duration,
    /// Limits on what a peer may ask for.
    pub limits: EngineLimits,
    /// The versions of RPC-over-RDMA that the server speaks.
    pub versions: Versions,
    /// Version 2: header types and properties beyond the draft's.
    pub extension: Option<Arc<dyn Extension>>,
    /// Checks the identity of the peer (version 2). By default there is no check.
    pub host_authentication: Option<Arc<dyn HostAuthentication>>,
    /// Calls that offered memory that does not exist. Give several servers the same table if clients may come to any of
    /// them.
    pub refused: RefusedCalls,
    /// The source of connections' numbers. Give several servers the same source if a number must mean one connection of
    /// all servers.
    pub connection_ids: ConnectionIds,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            credits: DEFAULT_CREDITS,
            inline_bytes: DEFAULT_INLINE_BYTES,
            max_message: DEFAULT_MAX_MESSAGE_BYTES,
            ord: DEFAULT_READS,
            reverse_credits: 0,
            reverse_calls_between_answers: u32::MAX,
            stall: STALL_LIMIT,
            limits: EngineLimits { call_bytes: DEFAULT_MAX_CALL_BYTES, ..EngineLimits::default() },
            versions: Versions::One,
            extension: None,
            host_authentication: None,
            refused: RefusedCalls::default(),
            connection_ids: ConnectionIds::default(),
        }
    }
}

impl ServerOptions {
    pub(crate) fn config(&self, capabilities: &Capabilities) -> Config {
        let config = Config {
            credits_granted: self.credits.max(1),
            credits_wanted: self.reverse_credits,
            calls_between_answers: self.reverse_calls_between_answers,
            send_bytes: self.inline_bytes,
            receive_bytes: self.inline_bytes,
            limits: limits(self.limits, self.max_message),
            versions: self.versions,
            extension: self.extension.clone(),
            host_authentication: self.host_authentication.clone(),
            ..Config::server()
        };
        fitted(config, capabilities)
    }
}

/// Limits for an end whose messages have at most this many bytes.
fn limits(limits: EngineLimits, max_message: usize) -> EngineLimits {
    EngineLimits { call_bytes: limits.call_bytes.min(max_message as u64), ..limits }
}

/// The configuration, reduced to what the provider can do.
fn fitted(config: Config, capabilities: &Capabilities) -> Config {
    // Every receiver accepts 1,024 bytes (RFC 8166 section 3.3.3), and sizes are stated in units of 1,024 bytes.
    let two = config.versions != Versions::One;
    let least = if two { MIN_BYTES } else { MIN_INLINE_BYTES };
    let inline = config.receive_bytes.clamp(least, MAX_INLINE_BYTES) / MIN_INLINE_BYTES * MIN_INLINE_BYTES;
    let receives = u32::try_from(capabilities.max_receives).unwrap_or(u32::MAX).saturating_sub(1);
    // In version 2 each credit of the peer needs a receive, too.
    let peer_credits = u16::try_from(receives / 4).unwrap_or(u16::MAX).clamp(1, MAX_PEER_CREDITS);
    let spare = u32::from(peer_credits) + SPARE_RECEIVES as u32;
    let receives = if two { receives.saturating_sub(spare) } else { receives };
    let credits_granted = config.credits_granted.min(receives.saturating_sub(config.credits_wanted.min(1)));
    Config {
        send_bytes: inline,
        receive_bytes: inline,
        credits_granted,
        peer_credits,
        credits_wanted: config.credits_wanted.min(receives.saturating_sub(credits_granted)),
        remote_invalidation: capabilities.remote_invalidation && capabilities.send_with_invalidate,
        initial_receives: INITIAL_RECEIVES,
        max_gather: capabilities.max_gather,
        max_transfer_bytes: capabilities.max_exposure_bytes.min(capabilities.max_message_bytes).min(u32::MAX as usize),
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_fabric::{Fencing, HandleScope};

    fn capabilities() -> Capabilities {
        Capabilities {
            remote_invalidation: true,
            send_with_invalidate: true,
            fencing: Fencing::Invalidation,
            handle_scope: HandleScope::Connection,
            unpredictable_handle_bits: 32,
            shared_receives: false,
            max_exposure_bytes: 1 << 30,
            max_exposures: 100,
            max_message_bytes: 1 << 20,
            max_gather: 4,
            max_receives: 100,
            max_posted: 100,
            max_ird: 16,
            max_ord: 16,
            max_private_data: 196,
        }
    }

    /// proves: V1-3.3.3-e
    #[test]
    fn messages_of_the_least_size_are_always_taken() {
        for (asked, used) in [(0, 1024), (1024, 1024), (4095, 3072), (262_144, 262_144), (262_145, 262_144)] {
            let options = ServerOptions { inline_bytes: asked, ..ServerOptions::default() };
            let config = options.config(&capabilities());
            assert_eq!((config.send_bytes, config.receive_bytes), (used, used));
        }
    }

    #[test]
    fn credits_keep_within_the_receives_that_can_be_posted() {
        let options = ServerOptions { credits: 1000, reverse_credits: 1000, ..ServerOptions::default() };
        let config = options.config(&capabilities());
        assert!(config.credits_granted + config.credits_wanted < 100);
        assert!(config.credits_granted > 0 && config.credits_wanted > 0);
        assert_eq!((config.max_gather, config.max_transfer_bytes), (4, 1 << 20));
        let config = ClientOptions { credits: 99, ..ClientOptions::default() }.config(&capabilities());
        assert_eq!(config.credits_wanted, 99);
        let config = ClientOptions { credits: 100, ..ClientOptions::default() }.config(&capabilities());
        assert_eq!(config.credits_wanted, 99);
    }

    /// proves: V2-5.2.2-d, V2-4.2.1.1-g, V2-5.2.2-a
    #[test]
    fn version_2_has_larger_messages_and_receives_for_the_peers_credits() {
        let versions = Versions::Auto;
        let options = ServerOptions { inline_bytes: 1024, credits: 1000, versions, ..ServerOptions::default() };
        let config = options.config(&capabilities());
        assert_eq!((config.send_bytes, config.receive_bytes), (4096, 4096));
        let receives = config.credits_granted as usize + usize::from(config.peer_credits) + SPARE_RECEIVES;
        assert!(receives <= 100 && config.peer_credits == 24, "{receives}");
        let config = ClientOptions { versions, ..ClientOptions::default() }.config(&capabilities());
        assert!(config.credits_wanted as usize + usize::from(config.peer_credits) + SPARE_RECEIVES <= 100);
    }

    #[test]
    fn what_a_call_can_make_us_pull_is_no_more_than_a_message() {
        let config = ServerOptions::default().config(&capabilities());
        assert_eq!(config.limits.call_bytes, DEFAULT_MAX_MESSAGE_BYTES as u64);
        let config = ClientOptions::default().config(&capabilities());
        assert_eq!(config.limits.call_bytes, DEFAULT_MAX_MESSAGE_BYTES as u64, "nor what it makes us offer");
    }
}
