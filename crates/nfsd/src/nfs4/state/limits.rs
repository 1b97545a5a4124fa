//! What bounds the state: how many of everything a client, an address and the server can have, and for how long.
//!
//! The constants are what a server uses. They are collected in [`Limits`], so that tests can make them small. Limits of
//! what is kept elsewhere (open files, waiting locks, copies, recalls, tags of COMPOUNDs) stand there.

use std::time::Duration;

/// The most client records, in number. A client takes about 2 KiB without what it holds; a site has hundreds.
pub(crate) const MAX_CLIENTS: usize = 4_096;
/// The most client records of one address, in number: three quarters, so that one address never takes all of them.
pub(crate) const MAX_CLIENTS_OF_ADDRESS: usize = MAX_CLIENTS / 4 * 3;
/// The most client records that no session has confirmed. An honest client confirms its own one round trip later, and
/// anybody can make them without end.
pub(crate) const MAX_UNCONFIRMED: usize = 256;
/// The most sessions of a client, in number. Linux has one for each server and address of it.
pub(crate) const MAX_SESSIONS: usize = 16;
/// The most slots of a session, in number: calls at a time. Linux asks for 64 and uses up to 1,024.
pub(crate) const MAX_SLOTS: u32 = 64;
/// The most connections of a session, in number. Linux has at most 16 (`nconnect=`).
pub(crate) const MAX_CONNECTIONS: usize = 16;
/// The most operations of a COMPOUND, in number. Linux asks for 8, and ends a mount that is given fewer.
pub(crate) const MAX_COMPOUND_OPS: u32 = 64;
/// The most that a slot remembers of a reply, in bytes: what a COMPOUND of changes answers, without data.
pub(crate) const SLOT_CACHE_OCTETS: u32 = 2_048;
/// What all reply caches take together by default, in bytes. The service sets a sixteenth of `--memory`.
pub(crate) const MAX_CACHE_OCTETS: usize = 64 << 20;
/// The part of what is left of the memory for reply caches that a new session takes at most: an eighth, so that there
/// is something left for the next one.
pub(crate) const CACHE_SHARE: usize = 8;
/// The largest call and the largest reply that a session offers, in bytes: 1 MiB of data, and what stands around it.
pub(crate) const MAX_MESSAGE_OCTETS: u32 = (1 << 20) + 4_096;
/// The most opens, and the most lock stateids, and the most delegations of a client, in number. Each takes below 1 KiB
/// and the name of its owner (1 KiB at most, below 40 bytes from Linux).
pub(crate) const MAX_HELD_BY_CLIENT: usize = 65_536;
/// The most of each kind of all clients, in number: two greedy clients do not take all of it.
pub(crate) const MAX_HELD: usize = 4 * MAX_HELD_BY_CLIENT;
/// The most bytes that the names of the owners of a client's opens and lock stateids have, all together: 64 for each
/// of those that it may have (Linux's have below 40), and for 8,192 of them the longest there is. Each name is in
/// memory twice, here and in the table of claims.
pub(crate) const MAX_NAME_OCTETS_OF_CLIENT: usize = 2 * MAX_HELD_BY_CLIENT * 64;
/// The same of all clients: 32 MiB of names, where opens and locks alone would allow for 512 MiB.
pub(crate) const MAX_NAME_OCTETS: usize = 4 * MAX_NAME_OCTETS_OF_CLIENT;
/// What an owner of minor version 0 is counted as beside its name, in bytes: its record, and the largest reply that it
/// remembers, of a LOCK that another owner with the longest name stands in the way of.
pub(crate) const OWNER_OCTETS: usize = 2_048;
/// The most bytes that the owners of a client of minor version 0 take, with the replies that they remember: some
/// 16,000 owners that were used within a lease, open or not. Linux has one for each user, and one for each process and
/// file with locks.
pub(crate) const MAX_OWNER_OCTETS_OF_CLIENT: usize = 32 << 20;
/// The same of all clients.
pub(crate) const MAX_OWNER_OCTETS: usize = 4 * MAX_OWNER_OCTETS_OF_CLIENT;
/// How long the server considers a client alive after its last call. A conflict waits this long for a client that is
/// gone.
pub(crate) const LEASE: Duration = Duration::from_secs(90);
/// How long a client whose lease is over keeps what nobody else asks for: a laptop that sleeps for a night finds its
/// files.
pub(crate) const COURTESY_TIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The most client owners in the journal, in number: those of all clients, and as many of before a restart.
pub(crate) const MAX_RECORDS: usize = 2 * MAX_CLIENTS;
/// The journal is written anew when it has this many records more than are needed, and twice as many.
pub(crate) const MAX_OBSOLETE_RECORDS: usize = 1_024;

/// The most recalls of a client's delegations that are under way at a time, in number: a part of its back channel's
/// slots (Linux has 16), so that other calls find one.
pub(crate) const RECALLS_OF_CLIENT: usize = 4;
/// The most calls by which a client is asked at a time what it knows of files that it writes (CB_GETATTR), in number:
/// as many as its back channel has slots for. Beyond that its delegations are called back instead.
pub(crate) const ASKINGS_OF_CLIENT: usize = 16;
/// How long a client that has not returned a delegation gets no others: the client that wanted the file has waited for
/// a lease.
pub(crate) const UNRELIABLE_TIME: Duration = Duration::from_secs(60 * 60);
/// How long a client that wants a file waits until a delegation of it is returned, or its holder has answered, before
/// it has to ask again: some round trips, and less than its pause would be.
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
    /// See [`SLOT_CACHE_OCTETS`].
    pub(crate) slot_cache: u32,
    /// See [`MAX_CACHE_OCTETS`].
    pub(crate) cache: usize,
    /// See [`MAX_MESSAGE_OCTETS`].
    pub(crate) message: u32,
    /// See [`MAX_HELD_BY_CLIENT`].
    pub(crate) held_by_client: usize,
    /// See [`MAX_HELD`].
    pub(crate) held: usize,
    /// See [`MAX_NAME_OCTETS_OF_CLIENT`].
    pub(crate) names_of_client: usize,
    /// See [`MAX_NAME_OCTETS`].
    pub(crate) names: usize,
    /// See [`MAX_OWNER_OCTETS_OF_CLIENT`].
    pub(crate) owners_of_client: usize,
    /// See [`MAX_OWNER_OCTETS`].
    pub(crate) owners: usize,
    /// See [`LEASE`].
    pub(crate) lease: Duration,
    /// How long the server at least waits for reclaims after a restart; never shorter than the lease that it announced
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
            slot_cache: SLOT_CACHE_OCTETS,
            cache: MAX_CACHE_OCTETS,
            message: MAX_MESSAGE_OCTETS,
            held_by_client: MAX_HELD_BY_CLIENT,
            held: MAX_HELD,
            names_of_client: MAX_NAME_OCTETS_OF_CLIENT,
            names: MAX_NAME_OCTETS,
            owners_of_client: MAX_OWNER_OCTETS_OF_CLIENT,
            owners: MAX_OWNER_OCTETS,
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
        assert_eq!(rpcrdma_nfs::v4::MAX_TAG_OCTETS, 1_024);
        use crate::nfs4::callback::dial40::{MAX_DIALLED, MAX_DIALLED_OF_ADDRESS, MAX_DIALS_IN_MINUTE};
        assert_eq!((MAX_DIALLED, MAX_DIALLED_OF_ADDRESS, MAX_DIALS_IN_MINUTE), (64, 4, 10));
    }

    /// What other limits rely on.
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
