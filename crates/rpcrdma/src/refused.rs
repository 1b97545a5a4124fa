//! XIDs of calls whose results could not be written to the client's memory, or whose arguments could not be read from there
//! (RFC 8166 section 4.5.3, version 2 section 7.3).
//!
//! Touching memory that is not there ends the connection, and the client sends the same call again on the next one: without
//! a memory of that, for ever. Such a call is answered with ERR_CHUNK instead. One table per server, bounded, and
//! looked at only while it is not empty.

use rpcrdma_env::Timestamp;
use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How many are remembered; the oldest goes first.
const MAX_REFUSED: usize = 1024;

/// How long: a client's outage limit and the time that it takes to find the connection lost.
const REFUSED_LIFETIME: Duration = Duration::from_secs(240);

#[derive(Debug, Default)]
pub(crate) struct Refused {
    any: AtomicBool,
    entries: Mutex<VecDeque<(Timestamp, IpAddr, u32)>>,
}

impl Refused {
    /// Remembers a call.
    pub(crate) fn add(&self, now: Timestamp, client: IpAddr, xid: u32) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == MAX_REFUSED {
            entries.pop_front();
        }
        entries.push_back((now, client, xid));
        self.any.store(true, Ordering::Release);
    }

    /// Whether a call is one of those. It is forgotten then: the answer reaches the client.
    pub(crate) fn take(&self, now: Timestamp, client: IpAddr, xid: u32) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        while entries.pop_front_if(|(when, ..)| now.since(*when) >= REFUSED_LIFETIME).is_some() {}
        let found = entries.iter().position(|(_, of, refused)| (*of, *refused) == (client, xid));
        let taken = found.and_then(|at| entries.remove(at)).is_some();
        self.any.store(!entries.is_empty(), Ordering::Release);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const T: Timestamp = Timestamp::from_nanos(0);

    /// proves: V1-4.5.3-b
    #[test]
    fn a_call_is_refused_once_and_only_for_a_while() {
        let refused = Refused::default();
        assert!(!refused.take(T, CLIENT, 1));
        refused.add(T, CLIENT, 1);
        assert!(!refused.take(T, CLIENT, 2));
        assert!(!refused.take(T, IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 1));
        assert!(refused.take(T, CLIENT, 1));
        assert!(!refused.take(T, CLIENT, 1));
        refused.add(T, CLIENT, 1);
        assert!(!refused.take(T + REFUSED_LIFETIME, CLIENT, 1));
    }

    #[test]
    fn the_oldest_goes_first() {
        let refused = Refused::default();
        for xid in 0..=MAX_REFUSED as u32 {
            refused.add(T, CLIENT, xid);
        }
        assert!(!refused.take(T, CLIENT, 0));
        assert!(refused.take(T, CLIENT, 1));
        assert!(refused.take(T, CLIENT, MAX_REFUSED as u32));
    }
}
