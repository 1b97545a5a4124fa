//! From a packet to its TCP segment: link layers, IPv4 and IPv6. Borrows everything.

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::DataLink;
use std::net::{IpAddr, SocketAddr};

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) sequence: u32,
    /// What the sender has received, if it says so.
    pub(super) acknowledgment: Option<u32>,
    pub(super) syn: bool,
    pub(super) fin: bool,
    pub(super) reset: bool,
    pub(super) payload: &'a [u8],
}

/// The header of Linux "cooked" captures: the protocol stands at the end.
const COOKED_OCTETS: usize = 16;
/// The header of their second version: the protocol stands at the beginning.
const COOKED_2_OCTETS: usize = 20;
/// The header of BSD loopback: an address family.
const LOOPBACK_OCTETS: usize = 4;

/// The segment in a packet, if there is one. Fragments of IP packets are not joined: TCP avoids them.
pub(super) fn segment(link: DataLink, octets: &[u8]) -> Option<Segment<'_>> {
    let ether_type = |at: usize| octets.get(at..)?.first_chunk().map(|&raw| EtherType(u16::from_be_bytes(raw)));
    let packet = match link {
        DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(octets).ok()?,
        DataLink::LINUX_SLL => {
            LaxSlicedPacket::from_ether_type(ether_type(COOKED_OCTETS - 2)?, octets.get(COOKED_OCTETS..)?)
        }
        DataLink::LINUX_SLL2 => LaxSlicedPacket::from_ether_type(ether_type(0)?, octets.get(COOKED_2_OCTETS..)?),
        DataLink::NULL | DataLink::LOOP => LaxSlicedPacket::from_ip(octets.get(LOOPBACK_OCTETS..)?).ok()?,
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 | DataLink::Unknown(12 | 14) => {
            LaxSlicedPacket::from_ip(octets).ok()?
        }
        _ => return None,
    };
    let (from, to, fragmented) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            (IpAddr::V4(header.source_addr()), IpAddr::V4(header.destination_addr()), ip.payload().fragmented)
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            (IpAddr::V6(header.source_addr()), IpAddr::V6(header.destination_addr()), ip.payload().fragmented)
        }
        _ => return None,
    };
    let TransportSlice::Tcp(tcp) = packet.transport? else { return None };
    if fragmented {
        return None;
    }
    Some(Segment {
        from: SocketAddr::new(from, tcp.source_port()),
        to: SocketAddr::new(to, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        acknowledgment: tcp.ack().then(|| tcp.acknowledgment_number()),
        syn: tcp.syn(),
        fin: tcp.fin(),
        reset: tcp.rst(),
        payload: tcp.payload(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    #[test]
    fn every_link_type_gives_the_same_segment() {
        let mut ip = Vec::new();
        let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(7, 9, 1, 2).ack(3).psh();
        builder.write(&mut ip, b"payload").unwrap();
        let with = |front: &[u8]| [front, &ip].concat();
        let mut cooked = vec![0; 16];
        cooked[14] = 8;
        let mut cooked_2 = vec![0; 20];
        cooked_2[0] = 8;
        let mut ethernet = vec![2; 14];
        (ethernet[12], ethernet[13]) = (8, 0);
        let vlan = [&[2; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat();
        for (link, octets) in [
            (DataLink::ETHERNET, with(&ethernet)),
            (DataLink::ETHERNET, with(&vlan)),
            (DataLink::LINUX_SLL, with(&cooked)),
            (DataLink::LINUX_SLL2, with(&cooked_2)),
            (DataLink::RAW, ip.clone()),
            (DataLink::IPV4, ip.clone()),
            (DataLink::NULL, with(&[2, 0, 0, 0])),
            (DataLink::LOOP, with(&[0, 0, 0, 2])),
        ] {
            let found = segment(link, &octets).unwrap_or_else(|| panic!("{link:?}"));
            assert_eq!((found.from, found.to), ("10.0.0.1:7".parse().unwrap(), "10.0.0.2:9".parse().unwrap()));
            assert_eq!((found.sequence, found.acknowledgment, found.payload), (1, Some(3), &b"payload"[..]));
            for end in 0..octets.len() {
                // Nothing that is cut off is read.
                segment(link, &octets[..end]);
            }
        }
    }

    #[test]
    fn ipv6_is_read_and_padding_is_not() {
        let mut octets = Vec::new();
        let (from, to) = ([1; 16], [2; 16]);
        PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6(from, to, 64).tcp(7, 9, 1, 2).write(&mut octets, b"six").unwrap();
        octets.extend([0; 9]);
        let found = segment(DataLink::ETHERNET, &octets).unwrap();
        assert_eq!((found.from.ip(), found.payload), (IpAddr::from(from), &b"six"[..]));
    }
}
