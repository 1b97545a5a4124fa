//! What a simulated host's provider can do, and how its links behave.

use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_fabric::{Capabilities, Fencing, HandleScope};
use std::time::Duration;

/// What a simulated host's provider can do, and what goes wrong with it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// What the provider can do.
    pub capabilities: Capabilities,
    /// The link on which its messages go out.
    pub link: Link,
}

impl Default for SimConfig {
    /// A provider that can do everything, with limits that a test can reach.
    fn default() -> Self {
        Self {
            capabilities: Capabilities {
                remote_invalidation: true,
                send_with_invalidate: true,
                fencing: Fencing::Invalidation,
                handle_scope: HandleScope::Connection,
                unpredictable_handle_bits: 32,
                shared_receives: true,
                max_exposure_bytes: 1 << 30,
                max_exposures: 4096,
                max_message_bytes: 1 << 30,
                max_gather: 64,
                max_receives: 4096,
                max_posted: 4096,
                max_ird: 16,
                max_ord: 16,
                max_private_data: 196,
            },
            link: Link::default(),
        }
    }
}

impl SimConfig {
    /// A device without memory windows: exposures end by deregistration, so no peer can end them.
    pub fn without_invalidation() -> Self {
        let mut config = Self::default();
        config.capabilities.remote_invalidation = false;
        config.capabilities.send_with_invalidate = false;
        config.capabilities.fencing = Fencing::Deregistration;
        config.capabilities.handle_scope = HandleScope::ProtectionDomain;
        config.capabilities.unpredictable_handle_bits = 0;
        config
    }

    /// The same with other capabilities.
    #[must_use]
    pub fn with_capabilities(mut self, change: impl FnOnce(&mut Capabilities)) -> Self {
        change(&mut self.capabilities);
        self
    }

    /// The same with another link.
    #[must_use]
    pub fn with_link(mut self, link: Link) -> Self {
        self.link = link;
        self
    }
}

/// The behaviour of a link: each message draws its own latency, and none overtakes another of its kind.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Link {
    /// The least time that a message is under way.
    pub latency_min: Duration,
    /// The most time that a message is under way, without the time for its length.
    pub latency_max: Duration,
    /// The time that each KiB of a message adds.
    pub per_kib: Duration,
}

impl Default for Link {
    /// 1 to 50 microseconds, and 10 GB/s.
    fn default() -> Self {
        Self {
            latency_min: Duration::from_micros(1),
            latency_max: Duration::from_micros(50),
            per_kib: Duration::from_nanos(100),
        }
    }
}

impl Link {
    /// A link on which each message takes between `min` and `max`.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { latency_min: min, latency_max: max.max(min), ..Self::default() }
    }

    /// How long a message of `octets` takes, in nanoseconds.
    pub(crate) fn delay(&self, random: &SeededRandom, octets: usize) -> u64 {
        let min = nanos(self.latency_min);
        let spread = nanos(self.latency_max).saturating_sub(min);
        let length = (octets as u64 / 1024).saturating_mul(nanos(self.per_kib));
        min.saturating_add(random.below(spread.saturating_add(1))).saturating_add(length)
    }
}

/// A duration in nanoseconds, as far as 64 bits reach.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
