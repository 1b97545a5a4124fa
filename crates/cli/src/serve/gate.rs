//! Who gets in, and how many at a time.

use rpcrdma_nfsd::Cidr;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// Connections of one address that have not finished their set-up. One client needs one at a time; behind one address
/// there may be many.
pub(super) const SETUPS_PER_ADDRESS: usize = 64;

/// Counts connections over all listeners and threads.
pub(super) struct Gate {
    max_connections: usize,
    allow: Vec<Cidr>,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: usize,
    setups: HashMap<IpAddr, usize>,
}

/// Why somebody does not get in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotAllowed,
    TooMany,
    TooManySetups,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::NotAllowed => "its address is not in --allow",
            Refusal::TooMany => "there are as many connections as --max-connections allows",
            Refusal::TooManySetups => "too many unfinished connections from its address",
        })
    }
}

impl Gate {
    pub(super) fn new(max_connections: u32, allow: Vec<Cidr>) -> Self {
        let max_connections = usize::try_from(max_connections).unwrap_or(usize::MAX);
        Self { max_connections, allow, counts: Mutex::default() }
    }

    /// Lets a connection in, to be set up.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Result<Setup, Refusal> {
        let peer = peer.to_canonical();
        if !self.allow.is_empty() && !self.allow.iter().any(|range| range.contains(peer)) {
            return Err(Refusal::NotAllowed);
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.connections >= self.max_connections {
            return Err(Refusal::TooMany);
        }
        let setups = counts.setups.entry(peer).or_default();
        if *setups >= SETUPS_PER_ADDRESS {
            return Err(Refusal::TooManySetups);
        }
        *setups += 1;
        counts.connections += 1;
        Ok(Setup { admitted: Admitted { gate: self.clone() }, unfinished: Unfinished { gate: self.clone(), peer } })
    }
}

/// A connection that is being set up.
pub(super) struct Setup {
    admitted: Admitted,
    unfinished: Unfinished,
}

impl Setup {
    /// The connection stands.
    pub(super) fn finish(self) -> Admitted {
        drop(self.unfinished);
        self.admitted
    }
}

/// A connection's place. Dropping it gives it back.
pub(super) struct Admitted {
    gate: Arc<Gate>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner).connections -= 1;
    }
}

struct Unfinished {
    gate: Arc<Gate>,
    peer: IpAddr,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut counts = self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(setups) = counts.setups.get_mut(&self.peer) {
            *setups -= 1;
            if *setups == 0 {
                counts.setups.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_are_counted_to_the_limit_and_no_further() {
        let gate = Arc::new(Gate::new(2, Vec::new()));
        let first = gate.enter(address("192.0.2.1")).ok().unwrap().finish();
        let second = gate.enter(address("192.0.2.1")).ok().unwrap();
        assert_eq!(gate.enter(address("192.0.2.2")).err(), Some(Refusal::TooMany));
        drop(first);
        assert!(gate.enter(address("192.0.2.2")).is_ok());
        drop(second);
        let counts = gate.counts.lock().unwrap();
        assert_eq!((counts.connections, counts.setups.len()), (0, 0));
    }

    #[test]
    fn unfinished_connections_are_limited_for_each_address() {
        let gate = Arc::new(Gate::new(1000, Vec::new()));
        let mut setups: Vec<_> =
            (0..SETUPS_PER_ADDRESS).map(|_| gate.enter(address("192.0.2.1")).ok().unwrap()).collect();
        assert_eq!(gate.enter(address("192.0.2.1")).err(), Some(Refusal::TooManySetups));
        assert!(gate.enter(address("192.0.2.2")).is_ok());
        let admitted = setups.pop().map(Setup::finish);
        assert!(gate.enter(address("192.0.2.1")).is_ok());
        drop(admitted);
    }

    #[test]
    fn only_who_is_allowed_gets_in() {
        let gate = Arc::new(Gate::new(10, vec!["192.0.2.0/24".parse().unwrap()]));
        assert!(gate.enter(address("192.0.2.9")).is_ok());
        assert!(gate.enter(address("::ffff:192.0.2.9")).is_ok(), "the same address as an IPv6 socket tells it");
        assert_eq!(gate.enter(address("198.51.100.1")).err(), Some(Refusal::NotAllowed));
    }
}
