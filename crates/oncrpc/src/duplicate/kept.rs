//! Replies that are kept, oldest first, with a share for each client.
//!
//! If there is no room, the client that holds the most gives up its oldest reply: a flood of one client's calls
//! displaces its own replies, and those of no other client below an equal share. A client is a [`ClientNetwork`], so
//! that addresses which cost nothing bring no further share. Owns the replies.

use super::{DUPLICATE_ENTRY_BYTES, DUPLICATE_LIFETIME, Key};
use crate::ClientNetwork;
use rpcrdma_env::Timestamp;
use rpcrdma_xdr::Payload;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Kept replies of one part of the cache.
#[derive(Default)]
pub(super) struct Kept {
    replies: HashMap<Key, Payload>,
    /// All replies by number: the numbers grow in the order in which the replies came.
    order: BTreeMap<u64, (Timestamp, Key)>,
    shares: HashMap<ClientNetwork, Share>,
    /// How much each client holds, the largest last.
    holders: BTreeSet<(usize, ClientNetwork)>,
    octets: usize,
    next: u64,
}

/// The replies that one client holds.
#[derive(Default)]
struct Share {
    octets: usize,
    /// Numbers of its replies, oldest first.
    numbers: VecDeque<u64>,
}

impl Kept {
    pub(super) fn get(&self, key: &Key) -> Option<&Payload> {
        self.replies.get(key)
    }

    /// Keeps a reply, so that all kept replies together have at most `limit` bytes. A reply above this limit is not
    /// kept.
    pub(super) fn insert(&mut self, now: Timestamp, key: Key, reply: Payload, limit: usize) {
        let octets = octets(&reply);
        if octets > limit {
            return;
        }
        let client = ClientNetwork::of(key.client);
        while self.octets.saturating_add(octets) > limit {
            let Some(number) = self.next_to_go(client, octets) else { break };
            self.remove(number);
        }
        let number = self.next;
        self.next += 1;
        self.order.insert(number, (now, key));
        self.replies.insert(key, reply);
        self.octets += octets;
        self.share(client, |share| {
            share.octets += octets;
            share.numbers.push_back(number);
        });
    }

    /// Forgets replies that are too old.
    pub(super) fn expire(&mut self, now: Timestamp) {
        while let Some((&number, (when, _))) = self.order.first_key_value()
            && now.since(*when) >= DUPLICATE_LIFETIME
        {
            self.remove(number);
        }
    }

    #[cfg(test)]
    pub(super) fn octets(&self) -> usize {
        self.octets
    }

    /// Which reply makes room for `octets` of `client`: the oldest of the client that would hold the most.
    fn next_to_go(&self, client: ClientNetwork, octets: usize) -> Option<u64> {
        let own = self.shares.get(&client);
        let would_hold = own.map_or(0, |share| share.octets) + octets;
        let others = self.holders.iter().rev().find(|(_, holder)| *holder != client);
        match (own, others) {
            // RPC-DRC-c
            (Some(own), Some((most, _))) if would_hold >= *most => own.numbers.front().copied(),
            (_, Some((_, holder))) => self.shares.get(holder)?.numbers.front().copied(),
            (own, None) => own?.numbers.front().copied(),
        }
    }

    /// Removes a reply. Whether for its age or for room, it is the oldest of its client.
    fn remove(&mut self, number: u64) {
        let Some((_, key)) = self.order.remove(&number) else { return };
        let octets = self.replies.remove(&key).map_or(0, |reply| octets(&reply));
        self.octets -= octets;
        self.share(ClientNetwork::of(key.client), |share| {
            share.octets -= octets;
            share.numbers.pop_front();
        });
    }

    /// Changes what a client holds.
    fn share(&mut self, client: ClientNetwork, change: impl FnOnce(&mut Share)) {
        let share = self.shares.entry(client).or_default();
        self.holders.remove(&(share.octets, client));
        change(share);
        if share.numbers.is_empty() {
            self.shares.remove(&client);
        } else {
            self.holders.insert((share.octets, client));
        }
    }
}

/// The bytes that a kept reply costs.
fn octets(reply: &Payload) -> usize {
    DUPLICATE_ENTRY_BYTES.saturating_add(reply.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::net::IpAddr;

    const NOW: Timestamp = Timestamp::from_nanos(5);
    const REPLY: usize = 44;
    const COST: usize = REPLY + DUPLICATE_ENTRY_BYTES;

    fn key(client: &str, xid: u32) -> Key {
        let client: IpAddr = client.parse().unwrap();
        Key { client, port: 0, xid, program: 1, version: 1, procedure: 1, caller: 0, len: 40, checksum: 7 }
    }

    fn keep(kept: &mut Kept, client: &str, xids: std::ops::Range<u32>, limit: usize) {
        for xid in xids {
            kept.insert(NOW, key(client, xid), Bytes::from(vec![9; REPLY]).into(), limit);
            assert!(kept.octets() <= limit);
        }
    }

    fn held(kept: &Kept, client: &str, xids: std::ops::Range<u32>) -> usize {
        xids.filter(|xid| kept.get(&key(client, *xid)).is_some()).count()
    }

    /// proves: RPC-DRC-c
    #[test]
    fn a_flood_drives_out_its_own_replies_and_nobody_elses() {
        const ROOM: usize = 40;
        let mut kept = Kept::default();
        keep(&mut kept, "192.0.2.1", 0..10, ROOM * COST);
        keep(&mut kept, "192.0.2.2", 0..5000, ROOM * COST);
        assert_eq!(held(&kept, "192.0.2.1", 0..10), 10, "the quiet client keeps all that it has");
        assert_eq!(held(&kept, "192.0.2.2", 4970..5000), 30, "the other its latest");
        // All hosts of an IPv6 network are one client, whichever addresses they use.
        for host in 0..2000 {
            keep(&mut kept, &format!("2001:db8::{host:x}"), 0..1, ROOM * COST);
        }
        assert_eq!(held(&kept, "192.0.2.1", 0..10), 10);
        assert_eq!(held(&kept, "192.0.2.2", 0..5000), 15, "the rest is shared by the two that want more");
    }

    #[test]
    fn a_client_with_less_than_others_finds_room_and_one_alone_has_all() {
        let mut kept = Kept::default();
        keep(&mut kept, "192.0.2.1", 0..4, 4 * COST);
        assert_eq!(held(&kept, "192.0.2.1", 0..4), 4, "at the limit");
        keep(&mut kept, "192.0.2.1", 4..5, 4 * COST);
        assert_eq!((held(&kept, "192.0.2.1", 0..1), held(&kept, "192.0.2.1", 1..5)), (0, 4), "one past it");
        keep(&mut kept, "192.0.2.2", 0..1, 4 * COST);
        assert_eq!((held(&kept, "192.0.2.1", 2..5), held(&kept, "192.0.2.2", 0..1)), (3, 1));
        let mut kept = Kept::default();
        keep(&mut kept, "192.0.2.3", 0..1, COST - 1);
        assert_eq!(held(&kept, "192.0.2.3", 0..1), 0, "what does not fit at all");
    }

    #[test]
    fn what_is_too_old_goes_and_leaves_nothing() {
        let mut kept = Kept::default();
        keep(&mut kept, "192.0.2.1", 0..3, 1 << 20);
        keep(&mut kept, "192.0.2.2", 0..3, 1 << 20);
        kept.expire(NOW + DUPLICATE_LIFETIME);
        assert_eq!((kept.octets(), kept.shares.len(), kept.holders.len(), kept.order.len()), (0, 0, 0, 0));
    }
}
