//! Turns between clients, and between the connections of each client.
//!
//! Clients with waiting entries take turns, one entry at a time; so do the connections of one client; the entries of a
//! connection keep their order. This type owns the entries. Other code limits how many may wait: a connection has as
//! many calls under way as it has been granted credits.

use crate::Origin;
use rpcrdma_oncrpc::ClientNetwork;
use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    net::SocketAddr,
};

/// What waits, by client and connection.
pub(super) struct Fair<T>(Ring<ClientNetwork, Ring<SocketAddr, VecDeque<T>>>);

/// The turns of the keys that have entries.
struct Ring<K, V> {
    waiting: HashMap<K, V>,
    turns: VecDeque<K>,
}

impl<K, V> Default for Ring<K, V> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), turns: VecDeque::new() }
    }
}

impl<K: Copy + Eq + Hash, V: Default> Ring<K, V> {
    fn entry(&mut self, key: K) -> &mut V {
        self.waiting.entry(key).or_insert_with(|| {
            self.turns.push_back(key);
            V::default()
        })
    }

    /// Takes an entry of the first key in turn for which `may` is true. This key then comes last, unless `is_empty`
    /// says that it has no more entries.
    fn take<T>(
        &mut self,
        may: impl Fn(K) -> bool,
        take: impl FnOnce(&mut V) -> Option<T>,
        is_empty: impl FnOnce(&V) -> bool,
    ) -> Option<(K, T)> {
        let at = self.turns.iter().position(|key| may(*key))?;
        let key = self.turns.remove(at)?;
        let waiting = self.waiting.get_mut(&key)?;
        let taken = take(waiting);
        if is_empty(waiting) {
            self.waiting.remove(&key);
        // NFS3-FAIR-b
        } else {
            self.turns.push_back(key);
        }
        Some((key, taken?))
    }
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Self(Ring::default())
    }
}

impl<T> Fair<T> {
    /// Puts an entry behind those of the same connection.
    pub(super) fn push(&mut self, origin: Origin, entry: T) {
        self.0.entry(origin.client).entry(origin.connection).push_back(entry);
    }

    /// Puts an entry before all entries of the same client. The client keeps its place among the clients.
    pub(super) fn push_front(&mut self, origin: Origin, entry: T) {
        let of_client = self.0.entry(origin.client);
        of_client.entry(origin.connection).push_front(entry);
        of_client.turns.retain(|connection| *connection != origin.connection);
        of_client.turns.push_front(origin.connection);
    }

    /// Takes the next entry of the first client in turn for which `may` is true.
    pub(super) fn pop(&mut self, may: impl Fn(ClientNetwork) -> bool) -> Option<(Origin, T)> {
        let (client, (connection, entry)) = self.0.take(
            may,
            |of_client| of_client.take(|_| true, VecDeque::pop_front, VecDeque::is_empty),
            |of_client| of_client.turns.is_empty(),
        )?;
        Some((Origin { client, connection }, entry))
    }

    /// Whether another client has an entry.
    pub(super) fn has_another(&self, client: ClientNetwork) -> bool {
        self.0.turns.iter().any(|waiting| *waiting != client)
    }

    /// All entries, in no order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        let clients = std::mem::take(&mut self.0).waiting.into_values();
        clients.flat_map(|client| client.waiting.into_values()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(client: u8, port: u16) -> Origin {
        Origin::at(SocketAddr::from(([192, 0, 2, client], port)))
    }

    fn order(fair: &mut Fair<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| fair.pop(|_| true)).map(|(_, entry)| entry).collect()
    }

    #[test]
    fn clients_take_turns_and_so_do_the_connections_of_each() {
        let mut fair = Fair::default();
        for (client, port, entry) in
            [(1, 1, "a1"), (1, 1, "a2"), (1, 1, "a3"), (1, 2, "b1"), (1, 2, "b2"), (2, 9, "c1"), (2, 9, "c2")]
        {
            fair.push(origin(client, port), entry);
        }
        assert!(fair.has_another(origin(1, 1).client) && fair.has_another(origin(3, 1).client));
        assert_eq!(order(&mut fair), ["a1", "c1", "b1", "c2", "a2", "b2", "a3"]);
        assert!(fair.0.waiting.is_empty() && fair.0.turns.is_empty(), "nothing is kept of who has nothing");
    }

    #[test]
    fn a_client_that_may_not_keeps_its_turn() {
        let mut fair = Fair::default();
        for (client, entry) in [(1, "a1"), (1, "a2"), (2, "b1"), (2, "b2"), (3, "c1")] {
            fair.push(origin(client, 1), entry);
        }
        let first = origin(1, 1).client;
        assert_eq!(fair.pop(|client| client != first).map(|(_, entry)| entry), Some("b1"));
        assert_eq!(order(&mut fair), ["a1", "c1", "b2", "a2"]);
        fair.push(origin(1, 1), "a3");
        assert!(!fair.has_another(first));
        assert!(fair.pop(|_| false).is_none());
        assert_eq!(order(&mut fair), ["a3"]);
    }

    #[test]
    fn what_is_put_in_front_comes_first_of_its_client() {
        let mut fair = Fair::default();
        for (client, port, entry) in [(1, 1, "a1"), (1, 2, "b1"), (2, 9, "c1"), (1, 2, "b2")] {
            fair.push(origin(client, port), entry);
        }
        fair.push_front(origin(1, 2), "front");
        fair.push_front(origin(3, 1), "other");
        assert_eq!(order(&mut fair), ["front", "c1", "other", "a1", "b1", "b2"]);
    }

    #[test]
    fn everything_can_be_taken_at_once() {
        let mut fair = Fair::default();
        for (client, port) in [(1, 1), (1, 1), (1, 2), (2, 1)] {
            fair.push(origin(client, port), ());
        }
        assert_eq!(fair.drain().count(), 4);
        assert!(fair.pop(|_| true).is_none());
    }
}
