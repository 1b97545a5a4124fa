//! Calls whose results the server could not write to the client's memory, or whose arguments it could not read from
//! there (RFC 8166 section 4.5.3, version 2 section 7.3).
//!
//! An access to memory that does not exist ends the connection, and the client sends the same call again on the next
//! one. If the server did not remember the call, this would repeat for ever; so it answers the second attempt with an
//! error. There is one table for each server, shared by its threads. Its size is limited, and the server looks into it
//! only while it is not empty.
//!
//! A call is identified by its client's address, its XID, its beginning and its length. Its handles do not count: a
//! client registers its memory again for each connection. Another client behind the same address can make a call fail
//! only if it knows the call's XID, beginning and length.

use bytes::Bytes;
use foldhash::fast::FixedState;
use rpcrdma_engine::Piece;
use rpcrdma_env::Timestamp;
use std::{
    collections::VecDeque,
    hash::BuildHasher as _,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How many calls are remembered; the oldest goes first.
const MAX_REFUSED: usize = 1024;

/// How long a call is remembered: a client's outage limit, plus the time until the client notices that the connection
/// is lost.
const REFUSED_LIFETIME: Duration = Duration::from_secs(240);

/// How many bytes of a call's beginning identify it: RPC header, credential and first arguments.
const HEAD_OCTETS: usize = 512;

/// What identifies a call, together with its client and its XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Its length in bytes, including bytes that are still to come.
    octets: usize,
    /// A hash of its beginning.
    head: u64,
}

impl Fingerprint {
    /// The fingerprint of a call that begins with `head` and has so many bytes.
    pub(crate) fn new(head: &[u8], octets: usize) -> Self {
        // All threads of a server have to find the same number. It needs no secret: to find the number of a call, one
        // has to know its beginning.
        let head = FixedState::default().hash_one(&head[..head.len().min(HEAD_OCTETS)]);
        Self { octets, head }
    }

    /// The fingerprint of a call that can be executed.
    pub(crate) fn of_pieces(pieces: &[Piece], pulled: &Bytes) -> Self {
        let head = match pieces.first() {
            Some(Piece::Inline(octets)) => octets,
            Some(Piece::Run(range) | Piece::Item(range)) => pulled.get(range.clone()).unwrap_or_default(),
            None => &[],
        };
        let inline = pieces.iter().map(|piece| if let Piece::Inline(octets) = piece { octets.len() } else { 0 });
        Self::new(head, inline.sum::<usize>().saturating_add(pulled.len()))
    }
}

/// A call, among all calls of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusedCall {
    pub(crate) client: IpAddr,
    pub(crate) xid: u32,
    pub(crate) call: Fingerprint,
}

/// The calls that a server does not try to answer again, because the client's memory did not exist. If a process has
/// several [`Server`](crate::Server)s for the same clients, such as one for each thread, it gives all of them the same
/// table in their [`ServerOptions`](crate::ServerOptions). Clones share the table.
#[derive(Clone, Debug, Default)]
pub struct RefusedCalls(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    any: AtomicBool,
    entries: Mutex<VecDeque<(Timestamp, RefusedCall)>>,
}

impl RefusedCalls {
    /// Remembers a call.
    // V1-4.5.3-b, V2-7.3-a, V2-7.3-b
    pub(crate) fn add(&self, now: Timestamp, call: RefusedCall) {
        let mut entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == MAX_REFUSED {
            entries.pop_front();
        }
        entries.push_back((now, call));
        self.0.any.store(true, Ordering::Release);
    }

    /// Whether no call is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        !self.0.any.load(Ordering::Acquire)
    }

    /// Whether the table has this call. If so, the table forgets it, because the answer now reaches the client.
    pub(crate) fn take(&self, now: Timestamp, call: &RefusedCall) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        while entries.pop_front_if(|(when, _)| now.since(*when) >= REFUSED_LIFETIME).is_some() {}
        let found = entries.iter().position(|(_, refused)| refused == call);
        let taken = found.and_then(|at| entries.remove(at)).is_some();
        self.0.any.store(!entries.is_empty(), Ordering::Release);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const T: Timestamp = Timestamp::from_nanos(0);

    fn call(xid: u32) -> RefusedCall {
        RefusedCall { client: CLIENT, xid, call: Fingerprint::new(b"a call", 100) }
    }

    /// proves: V1-4.5.3-b
    #[test]
    fn a_call_is_refused_once_and_only_for_a_while() {
        let refused = RefusedCalls::default();
        assert!(!refused.take(T, &call(1)));
        refused.add(T, call(1));
        assert!(!refused.take(T, &call(2)));
        assert!(!refused.take(T, &RefusedCall { client: std::net::Ipv6Addr::LOCALHOST.into(), ..call(1) }));
        assert!(refused.clone().take(T, &call(1)), "cloning shares");
        assert!(!refused.take(T, &call(1)));
        refused.add(T, call(1));
        assert!(!refused.take(T + REFUSED_LIFETIME, &call(1)));
    }

    /// Another client behind the same address has chosen the XID of a call, and could make it fail.
    #[test]
    fn another_call_with_the_same_xid_is_not_refused() {
        let refused = RefusedCalls::default();
        refused.add(T, call(1));
        for other in [Fingerprint::new(b"another call", 100), Fingerprint::new(b"a call", 101)] {
            assert!(!refused.take(T, &RefusedCall { call: other, ..call(1) }));
        }
        assert!(refused.take(T, &call(1)));
    }

    #[test]
    fn a_call_is_known_by_how_it_begins_whether_that_came_inline_or_not() {
        let pulled = Bytes::from(vec![7; 300]);
        let inline = [Piece::Inline(pulled.slice(..200)), Piece::Item(0..300)];
        assert_eq!(Fingerprint::of_pieces(&inline, &pulled), Fingerprint::new(&pulled[..200], 500));
        let long = [Piece::Run(0..300)];
        assert_eq!(Fingerprint::of_pieces(&long, &pulled), Fingerprint::new(&pulled, 300));
        let (a, mut b) = (vec![1; HEAD_OCTETS + 1], vec![1; HEAD_OCTETS + 1]);
        b[HEAD_OCTETS] = 2;
        assert_eq!(Fingerprint::new(&a, 9), Fingerprint::new(&b, 9), "beyond the limit");
        b[HEAD_OCTETS - 1] = 2;
        assert_ne!(Fingerprint::new(&a, 9), Fingerprint::new(&b, 9), "the last byte that counts");
        assert_eq!(
            Fingerprint::of_pieces(&[Piece::Run(5..900)], &pulled),
            Fingerprint::new(b"", 300),
            "nothing panics"
        );
    }

    #[test]
    fn the_oldest_goes_first() {
        let refused = RefusedCalls::default();
        for xid in 0..=MAX_REFUSED as u32 {
            refused.add(T, call(xid));
        }
        assert!(!refused.take(T, &call(0)));
        assert!(refused.take(T, &call(1)));
        assert!(refused.take(T, &call(MAX_REFUSED as u32)));
    }
}
