//! How much hosts may have of the server, and for how long it tries to reach them.

use std::time::Duration;

/// The most hosts that are known at a time: each takes some kilobytes with what it holds.
pub const MAX_NLM_HOSTS: usize = 1_024;
/// The most of them of one client network ([`Origin::client`](crate::Origin)). A host has one name; those behind an
/// address translation share an address.
pub const MAX_NLM_HOSTS_OF_CLIENT: usize = 16;
/// The most byte ranges that a host may have locked: the hosts of one client together have at most half of what the
/// table of claims has room for.
pub const MAX_NLM_LOCKS_OF_HOST: usize = 8_192;
/// The most files that a host's owners may have locked or reserved, each counted once for each owner: a name has up to
/// 1,028 bytes. The hosts of one client together have at most half of what all may have.
pub const MAX_NLM_OWNERS_OF_HOST: usize = 2_048;
/// The same of all hosts: 128 MiB at most.
pub const MAX_NLM_OWNERS: usize = 65_536;
/// The most locks that a host may wait for: a process waits for one at a time.
pub const MAX_NLM_WAITING_OF_HOST: usize = 256;
/// The same of all hosts: each takes up to 5 KiB.
pub const MAX_NLM_WAITING: usize = 8_192;
/// The most calls under way to the hosts of one client network.
pub const MAX_NLM_CALLS_TO_CLIENT: usize = 16;
/// The most calls under way to all. The program has room for more: a lock is not taken for a host that cannot be
/// called.
pub const MAX_NLM_CALLS: usize = 96;

/// How long a host has to answer a call: while it is asked whether it takes a lock, others wait for that.
pub(super) const CALL_TIME: Duration = Duration::from_secs(5);
/// How often a host is called about a lock that was granted to it.
pub(super) const GRANT_ATTEMPTS: u32 = 3;
/// How long after it has not answered it is called again.
pub(super) const BETWEEN_GRANTS: Duration = Duration::from_secs(1);
/// How often the server asks the host again whether its programs still have what a client waits for: the kernel does
/// not say when they give it up.
pub(super) const ASK_HOST_AGAIN: Duration = Duration::from_secs(2);
/// How often the table is asked again for a lock whose waiter should be notified: the place in its queue is lost after
/// 90 s, or may never have existed.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(20);
/// The most locks that are asked for again at a time.
pub(super) const MAX_ASKED_AT_ONCE: usize = 256;
/// How long a host is known that holds nothing: its first lock after that waits for the disk.
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
    /// Locks that are waited for.
    pub waiting: usize,
    /// Calls under way to the hosts of one client network.
    pub calls_to_client: usize,
    /// Calls under way.
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
