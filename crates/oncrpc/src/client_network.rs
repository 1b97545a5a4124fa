//! What counts as one client when clients share something: places, memory, turns, kept replies.
//!
//! A network gives a single host a whole /64 of IPv6, so that the number of its IPv6 addresses says nothing about the
//! number of hosts: all addresses of a /64 count as one client. An IPv4 address counts by itself, also in the form in
//! which an IPv6 socket shows it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The bits of an IPv6 address that identify its network.
const NETWORK_BITS: u128 = !(u64::MAX as u128);

/// The client that an address belongs to, as far as limits go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientNetwork(IpAddr);

impl ClientNetwork {
    /// This host itself, for work that it does for no client.
    pub const LOCAL: Self = Self(IpAddr::V4(Ipv4Addr::LOCALHOST));

    /// The client that has `address`.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.into()),
            // Loopback is one address, not a network of 2^64.
            IpAddr::V6(Ipv6Addr::LOCALHOST) => Self(Ipv6Addr::LOCALHOST.into()),
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() & NETWORK_BITS).into()),
        }
    }
}

impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V6(address) if address != Ipv6Addr::LOCALHOST => write!(f, "{address}/64"),
            address => write!(f, "{address}"),
        }
    }
}

impl fmt::Debug for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientNetwork({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> ClientNetwork {
        ClientNetwork::of(address.parse().unwrap())
    }

    #[test]
    fn a_64_of_ipv6_is_one_client_and_each_address_of_ipv4_is_one() {
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"), "as an IPv6 socket tells it");
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_ne!(of("::1"), of("::2"), "loopback has no neighbours");
        assert_eq!(of("2001:db8::5").to_string(), "2001:db8::/64");
        assert_eq!((of("192.0.2.1").to_string(), of("::1").to_string()), ("192.0.2.1".into(), "::1".into()));
    }
}
