//! How much memory calls and replies may take, in total and for one client. All IPv6 addresses of one /64 count as one
//! client: see [`ClientNetwork`].

use rpcrdma_fabric::pool::{Budget, Pool};
use rpcrdma_oncrpc::ClientNetwork;
use rpcrdma_transport::ServerMemory;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// The RAM, in bytes, that the server assumes if the system does not say how much there is.
const UNKNOWN_RAM: usize = 1 << 30;
/// The least that is useful, in bytes: a few calls of the largest size at a time.
const LEAST: usize = 16 << 20;

/// The part of all memory that one address leaves to others: a quarter, as of the places for connections.
const OTHERS_PART: usize = 4;

/// Memory for calls and replies in progress, over all threads: a part for each transport, so that neither starves the
/// other, and over RDMA a part for each direction, so that calls that hold the one and wait for the other end.
#[derive(Clone)]
pub(super) struct Memory {
    pool: Pool,
    parts: Parts,
    shares: Arc<Mutex<HashMap<ClientNetwork, Weak<Parts>>>>,
}

#[derive(Clone)]
struct Parts {
    arguments: Budget,
    results: Budget,
    tcp: Budget,
}

/// The part of the memory that the connections of one address may use.
pub(super) struct Share {
    pool: Pool,
    parts: Arc<Parts>,
}

impl Memory {
    /// Three quarters of `octets` of a pool for RDMA, which moves the data; a quarter for TCP.
    pub(super) fn new(pool: Pool, octets: usize) -> Self {
        let eighths = |count| pool.budget(octets / 8 * count);
        let parts = Parts { arguments: eighths(3), results: eighths(3), tcp: eighths(2) };
        Self { parts, pool, shares: Arc::default() }
    }

    /// The parts and their names.
    pub(super) fn parts(&self) -> Vec<(&'static str, Budget)> {
        let Parts { arguments, results, tcp } = self.parts.clone();
        vec![("arguments", arguments), ("results", results), ("tcp", tcp)]
    }

    /// All of it, for RDMA.
    pub(super) fn rdma(&self) -> ServerMemory {
        self.parts.rdma(&self.pool)
    }

    /// The share of an address, the same for all its connections.
    pub(super) fn of(&self, peer: IpAddr) -> Share {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = ClientNetwork::of(peer);
        let found = shares.get(&peer).and_then(Weak::upgrade);
        let parts = found.unwrap_or_else(|| {
            shares.retain(|_, share| share.strong_count() > 0);
            let share = |part: &Budget| part.share(part.limit() - part.limit() / OTHERS_PART);
            let Parts { arguments, results, tcp } = &self.parts;
            let parts = Arc::new(Parts { arguments: share(arguments), results: share(results), tcp: share(tcp) });
            shares.insert(peer, Arc::downgrade(&parts));
            parts
        });
        Share { pool: self.pool.clone(), parts }
    }
}

impl Parts {
    fn rdma(&self, pool: &Pool) -> ServerMemory {
        ServerMemory {
            arguments: Arc::new(self.arguments.clone()),
            results: Arc::new(self.results.clone()),
            receives: Arc::new(pool.clone()),
        }
    }
}

impl Share {
    pub(super) fn rdma(&self) -> ServerMemory {
        self.parts.rdma(&self.pool)
    }

    pub(super) fn tcp(&self) -> Budget {
        self.parts.tcp.clone()
    }
}

/// The budget in bytes: what the option says, or a quarter of the RAM.
pub(super) fn budget(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| ram().unwrap_or(UNKNOWN_RAM) / 4).max(LEAST)
}

fn ram() -> Option<usize> {
    parse(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::Allocator;

    /// Receives of RDMA are apart: credits bound them.
    #[test]
    fn one_address_leaves_a_quarter_of_each_part_to_others() {
        let memory = Memory::new(Pool::new(), 64 << 20);
        let [first, again, other] =
            ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"].map(|a| memory.of(a.parse().unwrap()));
        for (name, part) in memory.parts() {
            let of = |share: &Share| match name {
                "arguments" => share.parts.arguments.clone(),
                "results" => share.parts.results.clone(),
                _ => share.parts.tcp.clone(),
            };
            assert_eq!(of(&first).limit(), part.limit() / 4 * 3, "{name}");
            let half = of(&first).try_allocate(part.limit() / 2).unwrap();
            assert!(
                of(&again).try_allocate(part.limit() / 2).is_none(),
                "{name}: another connection of the same address"
            );
            assert!(of(&other).try_allocate(part.limit() / 4).is_some(), "{name}");
            drop(half);
        }
    }

    /// A single host has a whole /64 of IPv6.
    #[test]
    fn all_addresses_of_a_64_of_ipv6_have_one_share() {
        let memory = Memory::new(Pool::new(), 64 << 20);
        let shares = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::2"].map(|a| memory.of(a.parse().unwrap()));
        let [first, neighbour, other] = [0, 1, 2].map(|number: usize| shares[number].tcp());
        let half = memory.parts.tcp.limit() / 2;
        let _held = first.try_allocate(half).unwrap();
        assert!(neighbour.try_allocate(half).is_none(), "of the same /64");
        assert!(other.try_allocate(half / 2).is_some(), "of another /64");
    }

    #[test]
    fn addresses_are_forgotten_with_their_connections() {
        let memory = Memory::new(Pool::new(), 64 << 20);
        let of = |last: u8| memory.of(IpAddr::from([192, 0, 2, last]));
        let held = of(1);
        (2..20).for_each(|last| drop(of(last)));
        assert_eq!(memory.shares.lock().unwrap().len(), 2, "the one that is there, and the last");
        drop(held);
        drop(of(1));
        drop(of(21));
        assert_eq!(memory.shares.lock().unwrap().len(), 1);
    }

    #[test]
    fn the_budget_is_a_quarter_of_what_there_is() {
        assert_eq!(parse("MemTotal:       1024 kB\nMemFree: 1 kB\n"), Some(1 << 20));
        assert_eq!(parse("nonsense"), None);
        assert_eq!(budget(Some(1)), LEAST);
        assert_eq!(budget(Some(1 << 30)), 1 << 30);
    }
}
