//! Limits of what hosts may use of the server, and of how long it tries to reach them.

use std::time::Duration;

/// The most hosts that are known at a time: each takes some kilobytes with what it holds.
pub const MAX_NLM_HOSTS: usize = 1_024;
/// The most hosts of one client network ([`Origin::client`](crate::Origin)). A host has one name; hosts behind an
/// address translation share an address.
pub const MAX_NLM_HOSTS_OF_CLIENT: usize = 16;
/// The most byte ranges that a host may have locked: the hosts of one client together get at most half of the room in
/// the table of claims.
pub const MAX_NLM_LOCKS_OF_HOST: usize = 8_192;
/// The most owners of a host, each counted once for each file that it has locked or reserved: a name has up to 1,028
/// bytes. The hosts of one client together get at most half of [`MAX_NLM_OWNERS`].
pub const MAX_NLM_OWNERS_OF_HOST: usize = 2_048;
/// The most owners of all hosts: 128 MiB at most.
pub const MAX_NLM_OWNERS: usize = 65_536;
/// The most locks that a host may wait for: a process waits for one at a time.
pub const MAX_NLM_WAITING_OF_HOST: usize = 256;
/// The most locks that all hosts may wait for: each takes up to 5 KiB.
pub const MAX_NLM_WAITING: usize = 8_192;
/// The most calls under way to the hosts of one client network.
pub const MAX_NLM_CALLS_TO_CLIENT: usize = 16;
/// The most calls under way to all hosts. The program has room for more: the server does not take a lock for a host
/// that it cannot call.
pub const MAX_NLM_CALLS: usize = 96;

/// How long a host has to answer a call: while the server waits to hear whether the host takes a lock, others wait for
/// that lock.
pub(super) const CALL_TIME: Duration = Duration::from_secs(5);
/// How often the server calls a host about a lock that it has granted to it.
pub(super) const GRANT_ATTEMPTS: u32 = 3;
/// How long after an unanswered call the server calls again.
pub(super) const BETWEEN_GRANTS: Duration = Duration::from_secs(1);
/// How often the server asks its own host again whether programs still have what a client waits for: the kernel does
/// not report when they unlock.
pub(super) const ASK_HOST_AGAIN: Duration = Duration::from_secs(2);
/// How often the server asks the table again for a lock whose waiter should get a notice: the place in the queue is
/// lost after 90 s, or may never have existed.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(20);
/// The most locks that the server asks for again at a time.
pub(super) const MAX_ASKED_AT_ONCE: usize = 256;
/// How long the server knows a host that holds nothing: the host's first lock after that waits for the disk.
pub(super) const IDLE_TIME: Duration = Duration::from_secs(300);
/// How often the server looks for what is due.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How much hosts may have.
#[derive(Clone, Copy, Debug)]
pub struct NlmLimits {
    /// Hosts.
    pub hosts: usize,
    /// Hosts of one client network.
    pub hosts_of_client: usize,
    /// Byte ranges of a host.
    pub locks_of_host: usize,
    /// Owners of a host, for each file that they have.
    pub owners_of_host: usize,
    /// Owners of all hosts.
    pub owners: usize,
    /// Locks that a host waits for.
    pub waiting_of_host: usize,
    /// Locks that all hosts wait for.
    pub waiting: usize,
    /// Calls under way to the hosts of one client network.
    pub calls_to_client: usize,
    /// Calls under way to all hosts.
    pub calls: usize,
}

impl Default for NlmLimits {
    fn default() -> Self {
        Self {
            hosts: MAX_NLM_HOSTS,
            hosts_of_client: MAX_NLM_HOSTS_OF_CLIENT,
            locks_of_host: MAX_NLM_LOCKS_OF_HOST,
            owners_of_host: MAX_NLM_OWNERS_OF_HOST,
            owners: MAX_NLM_OWNERS,
            waiting_of_host: MAX_NLM_WAITING_OF_HOST,
            waiting: MAX_NLM_WAITING,
            calls_to_client: MAX_NLM_CALLS_TO_CLIENT,
            calls: MAX_NLM_CALLS,
        }
    }
}
