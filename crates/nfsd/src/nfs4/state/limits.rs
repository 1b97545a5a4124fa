//! Limits of the state: how many of everything a client, a network and the server can have, and for how long.
//!
//! A server uses the constants. [`Limits`] collects them, so that tests can make them small. Limits of things that
//! other modules keep (open files, waiting locks, copies, recalls, tags of COMPOUNDs) stand in those modules.

use std::time::Duration;

/// The most client records. A client takes about 2 KiB without what it holds; a site has hundreds of clients.
pub(crate) const MAX_CLIENTS: usize = 4_096;
/// The most client records of one network ([`ClientNetwork`](rpcrdma_oncrpc::ClientNetwork): an IPv4 address or an IPv6
/// network): three quarters, so that one network never takes all of them.
pub(crate) const MAX_CLIENTS_OF_ADDRESS: usize = MAX_CLIENTS / 4 * 3;
/// The most client records that no session has confirmed. An honest client confirms its record one round trip later,
/// but any caller can make unconfirmed ones without end.
pub(crate) const MAX_UNCONFIRMED: usize = 256;
/// The most sessions of a client. Linux has one for each server and each of its addresses.
pub(crate) const MAX_SESSIONS: usize = 16;
/// The most slots of a session, which are calls at a time. Linux asks for 64 and uses up to 1,024.
pub(crate) const MAX_SLOTS: u32 = 64;
/// The most connections of a session. Linux has at most 16 (`nconnect=`).
pub(crate) const MAX_CONNECTIONS: usize = 16;
/// The most operations of a COMPOUND. Linux asks for 8, and gives up a mount that gets fewer.
pub(crate) const MAX_COMPOUND_OPS: u32 = 64;
/// The most bytes that a slot remembers of a reply: enough for a COMPOUND of changes, without data.
pub(crate) const SLOT_CACHE_BYTES: u32 = 2_048;
/// The bytes of all reply caches together by default. The service sets a sixteenth of `--memory`.
pub(crate) const MAX_CACHE_BYTES: usize = 64 << 20;
/// A new session takes at most this part of the remaining memory for reply caches: an eighth, so that something is left
/// for the next session.
pub(crate) const CACHE_SHARE: usize = 8;
/// The largest call and the largest reply that a session offers, in bytes: 1 MiB of data, and the rest of the message.
pub(crate) const MAX_MESSAGE_OCTETS: u32 = (1 << 20) + 4_096;
/// The most opens of a client; also its most lock stateids, and its most delegations. Each takes less than 1 KiB, plus
/// the name of its owner (1 KiB at most, less than 40 bytes from Linux).
pub(crate) const MAX_HELD_BY_CLIENT: usize = 65_536;
/// The most of each kind of all clients: two greedy clients do not take all of it.
pub(crate) const MAX_HELD: usize = 4 * MAX_HELD_BY_CLIENT;
/// The most bytes of the names of a client's owners of opens and lock stateids: 64 bytes for each of the states that it
/// may have (Linux's names have less than 40), or the longest names for 8,192 of them. Each name is in memory twice,
/// here and in the table of claims.
pub(crate) const MAX_NAME_BYTES_OF_CLIENT: usize = 2 * MAX_HELD_BY_CLIENT * 64;
/// The same for all clients: 32 MiB of names, where the limits of opens and locks alone would allow 512 MiB.
pub(crate) const MAX_NAME_BYTES: usize = 4 * MAX_NAME_BYTES_OF_CLIENT;
/// The bytes as which an owner of minor version 0 counts beside its name: its record, and the largest reply that it
/// remembers, which is a LOCK's that names a conflicting owner with the longest name.
pub(crate) const OWNER_BYTES: usize = 2_048;
/// The most bytes of the owners of a client of minor version 0, with the replies that they remember: some 16,000 owners
/// that were used within a lease, open or not. Linux has one for each user, and one for each process and file with
/// locks.
pub(crate) const MAX_OWNER_BYTES_OF_CLIENT: usize = 32 << 20;
/// The same for all clients.
pub(crate) const MAX_OWNER_BYTES: usize = 4 * MAX_OWNER_BYTES_OF_CLIENT;
/// How long the server considers a client alive after its last call. A conflict waits this long for a client that is
/// gone.
pub(crate) const LEASE: Duration = Duration::from_secs(90);
/// How long a client whose lease is over keeps what no other client asks for: a laptop that sleeps for a night finds
/// its files again.
pub(crate) const COURTESY_TIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The most client owners in the journal: those of all clients, and as many from before a restart.
pub(crate) const MAX_RECORDS: usize = 2 * MAX_CLIENTS;
/// The journal is written anew when it has twice as many records as it needs, and this many more.
pub(crate) const MAX_OBSOLETE_RECORDS: usize = 1_024;

/// The most recalls of a client's delegations that are under way at a time: fewer than its back channel has slots
/// (Linux has 16), so that other calls find a slot.
pub(crate) const RECALLS_OF_CLIENT: usize = 4;
/// The most calls at a time that ask a client about files that it writes (CB_GETATTR): as many as its back channel has
/// slots. Beyond that the server recalls its delegations instead.
pub(crate) const ASKINGS_OF_CLIENT: usize = 16;
/// How long a client that has not returned a delegation gets no others: the client that wanted the file had to wait for
/// a lease.
pub(crate) const UNRELIABLE_TIME: Duration = Duration::from_secs(60 * 60);
/// How long a client that wants a file waits for the return of a delegation, or for its holder's answer, before it has
/// to ask again: some round trips, but less than its pause would be.
pub(crate) const RECALL_WAIT: Duration = Duration::from_millis(25);

/// The limits of one server.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// See [`MAX_CLIENTS`].
    pub(crate) clients: usize,
    /// See [`MAX_CLIENTS_OF_ADDRESS`].
    pub(crate) clients_of_address: usize,
    /// See [`MAX_UNCONFIRMED`].
    pub(crate) unconfirmed: usize,
    /// See [`MAX_SESSIONS`].
    pub(crate) sessions: usize,
    /// See [`MAX_SLOTS`].
    pub(crate) slots: u32,
    /// See [`MAX_CONNECTIONS`].
    pub(crate) connections: usize,
    /// See [`MAX_COMPOUND_OPS`].
    pub(crate) operations: u32,
    /// See [`SLOT_CACHE_BYTES`].
    pub(crate) slot_cache: u32,
    /// See [`MAX_CACHE_BYTES`].
    pub(crate) cache: usize,
    /// See [`MAX_MESSAGE_OCTETS`].
    pub(crate) message: u32,
    /// See [`MAX_HELD_BY_CLIENT`].
    pub(crate) held_by_client: usize,
    /// See [`MAX_HELD`].
    pub(crate) held: usize,
    /// See [`MAX_NAME_BYTES_OF_CLIENT`].
    pub(crate) names_of_client: usize,
    /// See [`MAX_NAME_BYTES`].
    pub(crate) names: usize,
    /// See [`MAX_OWNER_BYTES_OF_CLIENT`].
    pub(crate) owners_of_client: usize,
    /// See [`MAX_OWNER_BYTES`].
    pub(crate) owners: usize,
    /// See [`LEASE`].
    pub(crate) lease: Duration,
    /// How long the server waits at least for reclaims after a restart; never less than the lease that it announced
    /// before.
    pub(crate) grace: Duration,
    /// See [`COURTESY_TIME`].
    pub(crate) courtesy: Duration,
    /// See [`MAX_RECORDS`].
    pub(crate) records: usize,
    /// See [`RECALL_WAIT`].
    pub(crate) recall_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: MAX_CLIENTS,
            clients_of_address: MAX_CLIENTS_OF_ADDRESS,
            unconfirmed: MAX_UNCONFIRMED,
            sessions: MAX_SESSIONS,
            slots: MAX_SLOTS,
            connections: MAX_CONNECTIONS,
            operations: MAX_COMPOUND_OPS,
            slot_cache: SLOT_CACHE_BYTES,
            cache: MAX_CACHE_BYTES,
            message: MAX_MESSAGE_OCTETS,
            held_by_client: MAX_HELD_BY_CLIENT,
            held: MAX_HELD,
            names_of_client: MAX_NAME_BYTES_OF_CLIENT,
            names: MAX_NAME_BYTES,
            owners_of_client: MAX_OWNER_BYTES_OF_CLIENT,
            owners: MAX_OWNER_BYTES,
            lease: LEASE,
            grace: LEASE,
            courtesy: COURTESY_TIME,
            records: MAX_RECORDS,
            recall_wait: RECALL_WAIT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults of a server: a change of one of these changes what clients can rely on.
    #[test]
    fn the_defaults_are_known() {
        let limits = Limits::default();
        assert_eq!((limits.clients, limits.clients_of_address, limits.unconfirmed), (4_096, 3_072, 256));
        assert_eq!((limits.sessions, limits.slots, limits.connections), (16, 64, 16));
        assert_eq!((limits.operations, limits.slot_cache), (64, 2_048));
        assert_eq!((limits.held_by_client, limits.held), (65_536, 262_144));
        assert_eq!((limits.lease.as_secs(), limits.courtesy.as_secs()), (90, 86_400));
        assert_eq!((crate::claims::MAX_WAITING_LOCKS, super::super::copies::MAX_COPIES), (64, 4));
        assert_eq!(rpcrdma_nfs::v4::MAX_TAG_BYTES, 1_024);
        use crate::nfs4::callback::dial40::{MAX_DIALLED, MAX_DIALLED_OF_ADDRESS, MAX_DIALS_IN_MINUTE};
        assert_eq!((MAX_DIALLED, MAX_DIALLED_OF_ADDRESS, MAX_DIALS_IN_MINUTE), (64, 4, 10));
    }

    /// Other limits rely on these relations.
    #[test]
    fn the_defaults_fit_each_other() {
        let limits = Limits::default();
        assert!(limits.unconfirmed < limits.clients_of_address && limits.clients_of_address < limits.clients);
        assert!(limits.records >= 2 * limits.clients, "no client is refused for the records of former ones");
        assert!(limits.held_by_client < limits.held && limits.operations >= 8 && limits.slots <= 1_024);
        assert!(limits.names_of_client < limits.names, "one client does not take the names of all");
        assert!(limits.owners_of_client < limits.owners, "nor the owners");
        assert_eq!(limits.names_of_client, 8_192 * 1_024, "as many of the longest as the documentation says");
        let largest = limits.slots as usize * limits.slot_cache as usize;
        assert!(largest * CACHE_SHARE < limits.cache, "the first session has all its slots");
        assert!(limits.grace >= limits.lease && limits.courtesy > limits.lease);
    }
}
