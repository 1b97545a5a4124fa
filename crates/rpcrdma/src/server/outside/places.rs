//! How many calls to clients are under way: in all, to one address, to one network.

use rpcrdma_oncrpc::ClientNetwork;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The most calls under way, in number: sockets that the server spends on calling.
pub(super) const MAX_CALLS: usize = 128;
/// The most calls to one address at a time: those that lockd makes, and a notice.
pub(super) const MAX_CALLS_TO_ADDRESS: usize = 17;
/// The most of them to one network ([`ClientNetwork`]), in number: one host may have all addresses of an IPv6 network.
pub(super) const MAX_CALLS_TO_NETWORK: usize = 32;

#[derive(Default)]
struct Counts {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// Counts calls under way.
#[derive(Default)]
pub(super) struct Places(Mutex<Counts>);

/// The place of a call. Dropping it gives it back.
pub(super) struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a call to this address, if there is one.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut counts = self.counts();
        let network = ClientNetwork::of(address);
        let of_address = counts.of.get(&address).copied().unwrap_or(0);
        let beside = counts.of.iter().filter(|(other, _)| ClientNetwork::of(**other) == network);
        let of_network: usize = beside.map(|(_, count)| count).sum();
        if counts.all >= MAX_CALLS || of_address >= MAX_CALLS_TO_ADDRESS || of_network >= MAX_CALLS_TO_NETWORK {
            return None;
        }
        counts.all += 1;
        *counts.of.entry(address).or_default() += 1;
        Some(Place { places: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.places.counts();
        counts.all = counts.all.saturating_sub(1);
        if let Some(count) = counts.of.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.of.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock is taken for a host before the server sends GRANTED: if that call gets no place, the host loses its turn.
    #[test]
    fn lockd_has_a_place_for_each_of_its_calls_beside_the_notices() {
        const NOTICES: usize = 16;
        const NOTICES_TO_ADDRESS: usize = 1;
        const { assert!(rpcrdma_nfsd::MAX_NLM_CALLS + NOTICES <= MAX_CALLS) };
        const { assert!(rpcrdma_nfsd::MAX_NLM_CALLS_TO_CLIENT + NOTICES_TO_ADDRESS <= MAX_CALLS_TO_ADDRESS) };
    }

    #[test]
    fn an_address_a_network_and_all_have_so_many_places() {
        let places = Arc::new(Places::default());
        let enter = |text: &str| places.enter(text.parse().unwrap());
        let mut held: Vec<_> = (0..MAX_CALLS_TO_ADDRESS).map(|_| enter("192.0.2.1").unwrap()).collect();
        assert!(enter("192.0.2.1").is_none());
        held.pop();
        held.push(enter("192.0.2.1").unwrap());
        held.extend((0..MAX_CALLS_TO_NETWORK).map(|host| enter(&format!("2001:db8::{host:x}")).unwrap()));
        assert!(enter("2001:db8::ffff").is_none());
        for host in 0.. {
            let Some(place) = enter(&format!("10.0.0.{host}")) else { break };
            held.push(place);
        }
        assert_eq!(held.len(), MAX_CALLS);
        held.clear();
        let counts = places.counts();
        assert_eq!((counts.all, counts.of.len()), (0, 0));
    }
}
