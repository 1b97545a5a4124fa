//! Which connections the server accepts, and how many at a time. All IPv6 addresses of one /64 count as one: see
//! [`ClientNetwork`].

use rpcrdma_nfsd::Cidr;
use rpcrdma_oncrpc::ClientNetwork;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// Connections of one address (or /64 of IPv6) that have not finished their set-up. One client needs one at a time;
/// behind one address there may be many.
pub(super) const SETUPS_PER_ADDRESS: usize = 64;

/// The most connections at a time from addresses that are not allowed. Each holds one of these places while the server
/// tells the client so. If no place is free, the server closes the connection without an answer.
const STRANGERS: usize = 32;

/// The part of all places that one address cannot take: a quarter, if there are at least four.
const OTHERS_PART: usize = 4;

/// Counts connections over all listeners and threads.
pub struct Gate {
    max_connections: usize,
    max_per_address: usize,
    allow: Vec<Cidr>,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: usize,
    strangers: usize,
    of: HashMap<ClientNetwork, OfAddress>,
}

/// Connections of one address.
#[derive(Clone, Copy, Default)]
struct OfAddress {
    connections: usize,
    setups: usize,
}

impl Counts {
    /// Changes the counts of an address, and forgets it when it has nothing left.
    fn change(&mut self, peer: ClientNetwork, change: impl FnOnce(&mut OfAddress)) {
        let of = self.of.entry(peer).or_default();
        change(of);
        if of.connections == 0 {
            self.of.remove(&peer);
        }
    }
}

/// Why a connection is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The address is not allowed, and all places for telling clients so are taken.
    Strangers,
    /// The server has as many connections as it allows.
    All,
    /// The address has as many connections as the server allows for one.
    Address,
    /// Too many from its address are not set up yet.
    Setups,
}

impl Refusal {
    pub(super) const ALL: [Self; 4] = [Self::Strangers, Self::All, Self::Address, Self::Setups];

    /// The reason in a word, for a counter.
    pub(super) fn word(self) -> &'static str {
        match self {
            Refusal::Strangers => "not_allowed",
            Refusal::All => "max_connections",
            Refusal::Address => "share_of_address",
            Refusal::Setups => "unfinished_of_address",
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::Strangers => "its address is not in --allow",
            Refusal::All => "there are as many connections as --max-connections allows",
            Refusal::Address => "its address has as many connections as one address may have",
            Refusal::Setups => "too many unfinished connections from its address",
        })
    }
}

impl Gate {
    /// Accepts at most `max_connections` connections at a time, from these networks; from all if the list is empty.
    pub fn new(max_connections: u32, allow: Vec<Cidr>) -> Self {
        let max_connections = usize::try_from(max_connections).unwrap_or(usize::MAX);
        let max_per_address = max_connections - max_connections / OTHERS_PART;
        Self { max_connections, max_per_address, allow, counts: Mutex::default() }
    }

    /// Whether an address is allowed, for datagrams, which have no connection.
    pub fn allows(&self, peer: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|range| range.contains(peer))
    }

    /// Accepts a connection, either to set it up or to tell the client that its address is not allowed.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Result<Entry, Refusal> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.allows(peer) {
            if counts.strangers >= STRANGERS {
                return Err(Refusal::Strangers);
            }
            counts.strangers += 1;
            return Ok(Entry::Stranger(Stranger { gate: self.clone() }));
        }
        let peer = ClientNetwork::of(peer);
        if counts.connections >= self.max_connections {
            return Err(Refusal::All);
        }
        let of = counts.of.get(&peer).copied().unwrap_or_default();
        if of.connections >= self.max_per_address {
            return Err(Refusal::Address);
        }
        if of.setups >= SETUPS_PER_ADDRESS {
            return Err(Refusal::Setups);
        }
        counts.connections += 1;
        counts.change(peer, |of| {
            of.connections += 1;
            of.setups += 1;
        });
        // The set-up ends before the place is given back: fields are dropped in their order.
        Ok(Entry::Guest(Setup {
            unfinished: Unfinished { gate: self.clone(), peer },
            admitted: Admitted { gate: self.clone(), peer },
        }))
    }
}

/// A connection that has come in.
pub enum Entry {
    /// To be served.
    Guest(Setup),
    /// The client's address is not allowed, and the server has still to tell it so.
    Stranger(Stranger),
}

/// The place of a connection that is not served. Dropping it gives it back.
pub struct Stranger {
    gate: Arc<Gate>,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner).strangers -= 1;
    }
}

/// A connection that is being set up.
pub struct Setup {
    unfinished: Unfinished,
    admitted: Admitted,
}

impl Setup {
    /// The connection is established.
    pub fn finish(self) -> Admitted {
        drop(self.unfinished);
        self.admitted
    }
}

/// A connection's place. Dropping it gives it back.
pub struct Admitted {
    gate: Arc<Gate>,
    peer: ClientNetwork,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.connections -= 1;
        counts.change(self.peer, |of| of.connections -= 1);
    }
}

struct Unfinished {
    gate: Arc<Gate>,
    peer: ClientNetwork,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut counts = self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.change(self.peer, |of| of.setups -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Enters from an address that is allowed.
    fn enter(gate: &Arc<Gate>, text: &str) -> Result<Setup, Refusal> {
        gate.enter(address(text)).map(|entry| match entry {
            Entry::Guest(setup) => setup,
            Entry::Stranger(_) => panic!("{text} is allowed"),
        })
    }

    #[test]
    fn connections_are_counted_to_the_limit_and_no_further() {
        let gate = Arc::new(Gate::new(2, Vec::new()));
        let first = enter(&gate, "192.0.2.1").ok().unwrap().finish();
        let second = enter(&gate, "192.0.2.1").ok().unwrap();
        assert_eq!(enter(&gate, "192.0.2.2").err(), Some(Refusal::All));
        drop(first);
        assert!(enter(&gate, "192.0.2.2").is_ok());
        drop(second);
        let counts = gate.counts.lock().unwrap();
        assert_eq!((counts.connections, counts.of.len()), (0, 0));
    }

    #[test]
    fn one_address_leaves_a_quarter_of_the_places_to_others() {
        let gate = Arc::new(Gate::new(8, Vec::new()));
        let mut held: Vec<_> = (0..6).map(|_| enter(&gate, "192.0.2.1").ok().unwrap().finish()).collect();
        assert_eq!(enter(&gate, "192.0.2.1").err(), Some(Refusal::Address));
        held.extend((0..2).map(|_| enter(&gate, "192.0.2.2").ok().unwrap().finish()));
        assert_eq!(enter(&gate, "192.0.2.3").err(), Some(Refusal::All));
        held.remove(0);
        assert!(enter(&gate, "192.0.2.1").is_ok());
        held.clear();
        assert_eq!(gate.counts.lock().unwrap().of.len(), 0);
        // So few places have no quarter that could be kept free.
        let gate = Arc::new(Gate::new(3, Vec::new()));
        let _held: Vec<_> = (0..3).map(|_| enter(&gate, "192.0.2.1").ok().unwrap()).collect();
    }

    /// A single host has a whole /64 of IPv6.
    #[test]
    fn all_addresses_of_a_64_of_ipv6_share_their_places() {
        let gate = Arc::new(Gate::new(8, Vec::new()));
        let address = |n: usize| format!("2001:db8:0:1::{n:x}");
        let held: Vec<_> = (0..6).map(|n| enter(&gate, &address(n)).ok().unwrap().finish()).collect();
        assert_eq!(enter(&gate, &address(6)).err(), Some(Refusal::Address));
        assert!(enter(&gate, "2001:db8:0:2::6").is_ok(), "of another /64");
        drop(held);
        let gate = Arc::new(Gate::new(1000, Vec::new()));
        let _held: Vec<_> = (0..SETUPS_PER_ADDRESS).map(|n| enter(&gate, &address(n)).ok().unwrap()).collect();
        assert_eq!(enter(&gate, &address(SETUPS_PER_ADDRESS)).err(), Some(Refusal::Setups));
    }

    #[test]
    fn unfinished_connections_are_limited_for_each_address() {
        let gate = Arc::new(Gate::new(1000, Vec::new()));
        let mut setups: Vec<_> = (0..SETUPS_PER_ADDRESS).map(|_| enter(&gate, "192.0.2.1").ok().unwrap()).collect();
        assert_eq!(enter(&gate, "192.0.2.1").err(), Some(Refusal::Setups));
        assert!(enter(&gate, "192.0.2.2").is_ok());
        let admitted = setups.pop().map(Setup::finish);
        assert!(enter(&gate, "192.0.2.1").is_ok());
        drop(admitted);
    }

    #[test]
    fn who_is_not_allowed_is_told_so_a_few_at_a_time() {
        let gate = Arc::new(Gate::new(10, vec!["192.0.2.0/24".parse().unwrap()]));
        assert!(enter(&gate, "192.0.2.9").is_ok());
        assert!(enter(&gate, "::ffff:192.0.2.9").is_ok(), "the same address as an IPv6 socket tells it");
        let stranger = || gate.enter(address("198.51.100.1"));
        let mut held: Vec<_> = (0..STRANGERS).map(|_| stranger()).collect();
        assert!(held.iter().all(|entry| matches!(entry, Ok(Entry::Stranger(_)))));
        assert_eq!(stranger().err(), Some(Refusal::Strangers));
        assert!(enter(&gate, "192.0.2.9").is_ok(), "guests do not notice");
        held.pop();
        assert!(stranger().is_ok());
        held.clear();
        assert_eq!(gate.counts.lock().unwrap().strangers, 0);
    }
}
