//! Calls under way, and which of them repeat another.

use crate::event::{CallTag, ProcedureName};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// Calls under way over all connections; the oldest is counted as unanswered when there are more.
pub(super) const MAX_OPEN_CALLS: usize = 1 << 16;

/// A call of which nothing more is to be counted.
pub(super) struct Ended {
    pub(super) name: Option<ProcedureName>,
    pub(super) is_repeated: bool,
    /// Bytes from the requester, and from the responder.
    pub(super) octets: [u64; 2],
    pub(super) answer: Option<(String, Duration)>,
}

struct Open {
    identity: Identity,
    name: Option<ProcedureName>,
    is_repeated: bool,
    octets: [u64; 2],
    status: Option<String>,
}

/// What a call and its retransmission have in common, on another connection too: the client, the server, the XID.
type Identity = (IpAddr, SocketAddr, u32);
/// The connection's number and the call's.
type Key = (u64, u64);

#[derive(Default)]
pub(super) struct Calls {
    open: BTreeMap<Key, Open>,
    unanswered: BTreeSet<(Identity, Key)>,
}

impl Calls {
    /// Counts a message of a call. `ends`: the requester's address and the responder's. Gives the call that makes room.
    pub(super) fn add(
        &mut self,
        (connection, tag): (u64, CallTag),
        ends: [SocketAddr; 2],
        octets: u64,
        by_requester: bool,
    ) -> Option<Ended> {
        let key = (connection, tag.number);
        let mut dropped = None;
        if !self.open.contains_key(&key) {
            if self.open.len() >= MAX_OPEN_CALLS {
                let oldest = self.open.first_key_value().map(|(key, _)| *key);
                dropped = oldest.and_then(|oldest| self.end(oldest, None));
            }
            let identity = (ends[0].ip(), ends[1], tag.xid);
            let mut same = self.unanswered.range((identity, (0, 0))..=(identity, (u64::MAX, u64::MAX)));
            let is_repeated = same.next().is_some();
            self.unanswered.insert((identity, key));
            let open = Open { identity, name: None, is_repeated, octets: [0; 2], status: None };
            self.open.insert(key, open);
        }
        if let Some(open) = self.open.get_mut(&key) {
            open.name = tag.name.or(open.name);
            let [from_requester, from_responder] = &mut open.octets;
            let sum = if by_requester { from_requester } else { from_responder };
            *sum = sum.saturating_add(octets);
        }
        dropped
    }

    /// The status of a call was seen, before its answer is whole.
    pub(super) fn status(&mut self, key: Key, status: String) {
        if let Some(open) = self.open.get_mut(&key) {
            open.status = Some(status);
        }
    }

    /// A call was answered.
    pub(super) fn answered(&mut self, key: Key, status: Option<String>, took: Duration) -> Option<Ended> {
        let seen = self.open.get_mut(&key)?.status.take();
        let status = status.or(seen).unwrap_or_else(|| "status not seen".into());
        self.end(key, Some((status, took)))
    }

    fn end(&mut self, key: Key, answer: Option<(String, Duration)>) -> Option<Ended> {
        let open = self.open.remove(&key)?;
        self.unanswered.remove(&(open.identity, key));
        Some(Ended { name: open.name, is_repeated: open.is_repeated, octets: open.octets, answer })
    }

    /// Ends all calls that have no answer.
    pub(super) fn rest(&mut self) -> Vec<Ended> {
        let keys: Vec<Key> = self.open.keys().copied().collect();
        keys.into_iter().filter_map(|key| self.end(key, None)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::End;

    fn add(calls: &mut Calls, number: u64) -> Option<Ended> {
        let ends = ["192.0.2.1:40000".parse().unwrap(), "192.0.2.2:20049".parse().unwrap()];
        let tag = CallTag { number, xid: number as u32, requester: End::Initiator, name: None };
        calls.add((1, tag), ends, number, true)
    }

    #[test]
    fn calls_under_way_end_at_their_limit() {
        let mut calls = Calls::default();
        let most = MAX_OPEN_CALLS as u64;
        for number in 0..most {
            assert!(add(&mut calls, number).is_none());
        }
        assert!(add(&mut calls, 7).is_none(), "another message of one of them");
        let dropped = add(&mut calls, most).unwrap();
        assert_eq!((dropped.octets, dropped.answer), ([0, 0], None), "the oldest");
        assert!(calls.answered((1, 0), None, Duration::ZERO).is_none());
        assert_eq!(calls.open.len(), MAX_OPEN_CALLS);
        assert_eq!(calls.unanswered.len(), MAX_OPEN_CALLS);
        assert_eq!(calls.rest().len(), MAX_OPEN_CALLS);
        assert!(calls.unanswered.is_empty());
    }
}
