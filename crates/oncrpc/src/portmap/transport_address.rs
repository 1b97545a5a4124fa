//! Addresses in the form that sockets of this machine have, for UADDR2TADDR and TADDR2UADDR.
//!
//! Only a program of this machine can use it: the family in the host's byte order, then port and address as on the
//! wire.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Linux's numbers of the address families IPv4 and IPv6.
const FAMILY_IPV4: u16 = 2;
const FAMILY_IPV6: u16 = 10;
/// Bytes of an address of IPv4: family, port, address, and eight that mean nothing.
const IPV4_BYTES: usize = 16;
/// Bytes of an address of IPv6: family, port, flow, address, scope.
const IPV6_BYTES: usize = 28;

/// An address as a socket has it.
pub(super) fn encode(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 };
    let mut octets = [family.to_ne_bytes(), address.port().to_be_bytes()].concat();
    match address {
        SocketAddr::V4(address) => octets.extend([&address.ip().octets()[..], &[0; 8]].concat()),
        SocketAddr::V6(address) => {
            let scope = address.scope_id().to_ne_bytes();
            octets.extend([&[0; 4], &address.ip().octets()[..], &scope].concat());
        }
    }
    octets
}

/// Reads an address; `None` if the bytes are none.
pub(super) fn decode(octets: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = octets.split_first_chunk()?;
    let (port, rest) = rest.split_first_chunk()?;
    let port = u16::from_be_bytes(*port);
    match (u16::from_ne_bytes(*family), octets.len()) {
        (FAMILY_IPV4, IPV4_BYTES) => {
            let ip: &[u8; 4] = rest.first_chunk()?;
            Some((Ipv4Addr::from(*ip), port).into())
        }
        (FAMILY_IPV6, IPV6_BYTES) => {
            let ip: [u8; 16] = rest.get(4..20)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(rest.get(20..24)?.try_into().ok()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_of_a_socket_has_the_layout_of_this_machine() {
        let octets = encode("192.0.2.1:2049".parse().unwrap());
        let family = FAMILY_IPV4.to_ne_bytes();
        assert_eq!(octets, [&family[..], &[8, 1, 192, 0, 2, 1], &[0; 8]].concat());
        assert_eq!(encode("[::1]:111".parse().unwrap()).len(), IPV6_BYTES);
        for (cut, octets) in [(1, octets.clone()), (0, [&octets[..], &[0]].concat()), (16, octets.clone())] {
            assert_eq!(decode(&octets[cut..]), None);
        }
        assert_eq!(decode(&[&[0xff; 2], &octets[2..]].concat()), None, "another family");
    }

    proptest! {
        #[test]
        fn every_address_survives(ip in any::<std::net::IpAddr>(), port in any::<u16>()) {
            let address = SocketAddr::new(ip, port);
            prop_assert_eq!(decode(&encode(address)), Some(address));
        }

        #[test]
        fn arbitrary_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&octets);
        }
    }
}
