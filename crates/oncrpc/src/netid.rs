//! Network identifiers and universal addresses (RFC 5665).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The transports that services are registered for.
// V1-9-a, V2-12-a
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Netid {
    /// TCP over IPv4.
    Tcp,
    /// TCP over IPv6.
    Tcp6,
    /// RPC-over-RDMA, IPv4 addresses.
    Rdma,
    /// RPC-over-RDMA, IPv6 addresses.
    Rdma6,
    /// UDP over IPv4.
    Udp,
    /// UDP over IPv6.
    Udp6,
}

impl Netid {
    /// All of them.
    pub const ALL: [Self; 6] = [Netid::Tcp, Netid::Tcp6, Netid::Rdma, Netid::Rdma6, Netid::Udp, Netid::Udp6];

    /// The identifier as it is in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Netid::Tcp => "tcp",
            Netid::Tcp6 => "tcp6",
            Netid::Rdma => "rdma",
            Netid::Rdma6 => "rdma6",
            Netid::Udp => "udp",
            Netid::Udp6 => "udp6",
        }
    }

    /// The one that has this identifier, if it is one of these.
    pub fn parse(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|netid| netid.as_str().as_bytes() == text)
    }

    /// Whether its addresses are of IPv6.
    pub const fn is_ipv6(self) -> bool {
        matches!(self, Netid::Tcp6 | Netid::Rdma6 | Netid::Udp6)
    }

    /// The identifier for UDP at `address`.
    pub fn udp(address: &SocketAddr) -> Self {
        if address.is_ipv6() { Netid::Udp6 } else { Netid::Udp }
    }

    /// The identifier for record-marked TCP at `address`.
    pub fn tcp(address: &SocketAddr) -> Self {
        if address.is_ipv6() { Netid::Tcp6 } else { Netid::Tcp }
    }

    /// The identifier for RPC-over-RDMA at `address`.
    pub fn rdma(address: &SocketAddr) -> Self {
        if address.is_ipv6() { Netid::Rdma6 } else { Netid::Rdma }
    }
}

/// The universal address: the host's address, then the port's high and low byte in decimal
/// (`192.0.2.1.8.1` is port 2049).
// RPC-5665-5.2.3-a
pub fn universal_address(address: &SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// The address that a universal address names, or `None` if the text is not one.
// RPC-5665-5.2.3-a
pub fn parse_universal_address(text: &str) -> Option<SocketAddr> {
    let (rest, low) = text.rsplit_once('.')?;
    let (host, high) = rest.rsplit_once('.')?;
    let octet = |digits: &str| match digits.bytes().all(|c| c.is_ascii_digit()) {
        true => digits.parse::<u8>().ok(),
        false => None,
    };
    let port = u16::from_be_bytes([octet(high)?, octet(low)?]);
    let host = match host.parse::<Ipv4Addr>() {
        Ok(v4) => IpAddr::V4(v4),
        Err(_) => IpAddr::V6(host.parse::<Ipv6Addr>().ok()?),
    };
    Some(SocketAddr::new(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// proves: RPC-5665-5.2.3-a
    #[test]
    fn addresses_are_written_with_two_octets_of_port() {
        for (address, text) in [("192.0.2.1:2049", "192.0.2.1.8.1"), ("[::1]:20049", "::1.78.81"), ("[::]:0", "::.0.0")]
        {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(universal_address(&address), text);
            assert_eq!(parse_universal_address(text), Some(address));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "1.2.3.4", "1.2.3.4.5", "1.2.3.4.256.1", "1.2.3.4.+8.1", "::1", "host.8.1", "1.2.3.4.8.1."] {
            assert_eq!(parse_universal_address(text), None, "{text}");
        }
    }

    /// proves: V1-9-a, V2-12-a
    #[test]
    fn the_family_decides_the_netid() {
        let v4 = SocketAddr::from(([127, 0, 0, 1], 1));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 1));
        assert_eq!([Netid::tcp(&v4), Netid::tcp(&v6)].map(Netid::as_str), ["tcp", "tcp6"]);
        assert_eq!([Netid::rdma(&v4), Netid::rdma(&v6)].map(Netid::as_str), ["rdma", "rdma6"]);
        assert_eq!([Netid::udp(&v4), Netid::udp(&v6)].map(Netid::as_str), ["udp", "udp6"]);
        for netid in Netid::ALL {
            assert_eq!(Netid::parse(netid.as_str().as_bytes()), Some(netid));
            assert_eq!(netid.is_ipv6(), netid.as_str().ends_with('6'));
        }
        assert_eq!([Netid::parse(b""), Netid::parse(b"tcp7")], [None; 2]);
    }

    proptest! {
        #[test]
        fn every_address_survives(ip in any::<IpAddr>(), port in any::<u16>()) {
            let address = SocketAddr::new(ip, port);
            prop_assert_eq!(parse_universal_address(&universal_address(&address)), Some(address));
        }

        #[test]
        fn arbitrary_text_is_survived(text in ".{0,60}") {
            let _ = parse_universal_address(&text);
        }
    }
}
