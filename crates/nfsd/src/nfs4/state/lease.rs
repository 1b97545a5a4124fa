//! How long the server considers a client alive (RFC 8881 section 8.3).
//!
//! Each SEQUENCE renews a lease, which does not end while a COMPOUND runs. After its end the client keeps what it holds
//! by courtesy, until another client asks for it or the courtesy is over. The caller passes the time with each call.
//! Nothing fails.

use super::limits::Limits;
use rpcrdma_env::Timestamp;
use std::sync::{Mutex, PoisonError};

/// The state of a client's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The lease runs: no other client takes what the client holds, except delegations that it does not return in time.
    Live,
    /// The lease is over: the client keeps what it holds until another client asks for it.
    Courtesy,
    /// The client has been away for too long.
    Gone,
}

/// The lease of a client.
#[derive(Debug)]
pub(crate) struct Lease(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    renewed: Timestamp,
    /// How many COMPOUNDs run.
    running: u32,
    /// The client has ended: it can begin no COMPOUND.
    is_ended: bool,
}

impl Lease {
    /// A lease that begins now.
    pub(super) fn new(now: Timestamp) -> Self {
        Self(Mutex::new(Inner { renewed: now, running: 0, is_ended: false }))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call of the client has come. Returns whether the client still exists.
    pub(crate) fn renew(&self, now: Timestamp) -> bool {
        self.with(|lease| {
            if !lease.is_ended {
                lease.renewed = lease.renewed.max(now);
            }
            !lease.is_ended
        })
    }

    /// A COMPOUND begins. If this returns that the client still exists, [`leave`](Self::leave) has to follow.
    pub(crate) fn enter(&self, now: Timestamp) -> bool {
        self.with(|lease| {
            if !lease.is_ended {
                lease.renewed = lease.renewed.max(now);
                lease.running = lease.running.saturating_add(1);
            }
            !lease.is_ended
        })
    }

    /// The client has ended.
    pub(super) fn end(&self) {
        self.with(|lease| lease.is_ended = true);
    }

    /// Ends the client if `is_due` says so of its standing. Returns whether the client has ended, now or before.
    pub(super) fn end_if(&self, now: Timestamp, limits: &Limits, is_due: impl FnOnce(Standing) -> bool) -> bool {
        self.with(|lease| {
            lease.is_ended |= is_due(lease.standing(now, limits));
            lease.is_ended
        })
    }

    /// Runs `f` if the lease is over, and lets no COMPOUND of the client begin meanwhile.
    // NFS4-8881-8.4.3-d
    pub(super) fn if_over<T>(&self, now: Timestamp, limits: &Limits, f: impl FnOnce() -> T) -> Option<T> {
        self.with(|lease| (lease.standing(now, limits) != Standing::Live).then(f))
    }

    /// A COMPOUND has ended, `now` if it was answered.
    pub(crate) fn leave(&self, now: Option<Timestamp>) {
        self.with(|lease| {
            lease.renewed = now.map_or(lease.renewed, |now| lease.renewed.max(now));
            lease.running = lease.running.saturating_sub(1);
        });
    }

    /// When the last call of the client came.
    pub(crate) fn renewed(&self) -> Timestamp {
        self.with(|lease| lease.renewed)
    }

    /// The state of the lease now.
    pub(crate) fn standing(&self, now: Timestamp, limits: &Limits) -> Standing {
        self.with(|lease| lease.standing(now, limits))
    }
}

impl Inner {
    fn standing(&self, now: Timestamp, limits: &Limits) -> Standing {
        let quiet = now.since(self.renewed);
        // NFS4-8881-8.3-b: not while the rest of a COMPOUND is under way.
        // NFS4-8881-8.3-a
        if self.running > 0 || quiet <= limits.lease {
            Standing::Live
        } else if quiet <= limits.lease.saturating_add(limits.courtesy) {
            Standing::Courtesy
        } else {
            Standing::Gone
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn limits() -> Limits {
        Limits { lease: Duration::from_secs(10), courtesy: Duration::from_secs(100), ..Limits::default() }
    }

    /// proves: NFS4-8881-8.3-a
    #[test]
    fn a_lease_ends_one_past_its_time_and_the_courtesy_as_well() {
        let lease = Lease::new(at(5));
        let standing =
            |seconds, nanos| lease.standing(Timestamp::from_nanos(at(seconds).as_nanos() + nanos), &limits());
        assert_eq!([standing(15, 0), standing(15, 1)], [Standing::Live, Standing::Courtesy]);
        assert_eq!([standing(115, 0), standing(115, 1)], [Standing::Courtesy, Standing::Gone]);
        lease.renew(at(200));
        assert_eq!(standing(210, 0), Standing::Live, "who comes back is there again");
        lease.renew(at(100));
        assert_eq!(standing(210, 0), Standing::Live, "and what comes late takes nothing away");
    }

    /// proves: NFS4-8881-8.3-b
    #[test]
    fn a_lease_does_not_end_while_a_compound_runs_and_begins_anew_behind_it() {
        let lease = Lease::new(at(0));
        lease.enter(at(1));
        lease.enter(at(2));
        lease.leave(None);
        assert_eq!(lease.standing(at(100_000), &limits()), Standing::Live, "the other one runs");
        lease.leave(Some(at(100_000)));
        assert_eq!(lease.standing(at(100_010), &limits()), Standing::Live);
        assert_eq!(lease.standing(at(100_011), &limits()), Standing::Courtesy);
    }
}
