//! From a packet to its TCP segment: link layers, IPv4 and IPv6. Borrows everything.

use etherparse::{EtherType, LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, LinkSlice, TransportSlice};
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
const COOKED_BYTES: usize = 16;
/// The header of their second version: the protocol stands at the beginning.
const COOKED_2_BYTES: usize = 20;
/// The header of BSD loopback: an address family.
const LOOPBACK_BYTES: usize = 4;

/// The Ethertype of RoCE version 1.
const ROCE_ETHER_TYPE: EtherType = EtherType(0x8915);
/// The UDP port of RoCE version 2.
const ROCE_PORT: u16 = 4791;
/// The types of ERF records that hold InfiniBand's packets: TYPE_INFINIBAND and TYPE_INFINIBAND_LINK.
const ERF_INFINIBAND: [u8; 2] = [21, 25];
/// Where an ERF record has its type; the highest bit says that more of the header follows.
const ERF_TYPE_AT: usize = 8;

/// RDMA whose packets are known, and not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    Roce1,
    Roce2,
    InfiniBand,
}

/// What a packet is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packet<'a> {
    Tcp(Segment<'a>),
    Rdma(Foreign),
    Other,
}

/// Says what a packet is.
pub(super) fn packet(link: DataLink, octets: &[u8]) -> Packet<'_> {
    match link {
        DataLink::INFINIBAND => return Packet::Rdma(Foreign::InfiniBand),
        DataLink::ERF => {
            let is_infiniband = octets.get(ERF_TYPE_AT).is_some_and(|of| ERF_INFINIBAND.contains(&(of & 0x7F)));
            return if is_infiniband { Packet::Rdma(Foreign::InfiniBand) } else { Packet::Other };
        }
        _ => {}
    }
    let Some(sliced) = sliced(link, octets) else { return Packet::Other };
    let ether_type = match (sliced.link_exts.last(), &sliced.link) {
        (Some(LaxLinkExtSlice::Vlan(vlan)), _) => Some(vlan.ether_type()),
        (None, Some(LinkSlice::Ethernet2(ethernet))) => Some(ethernet.ether_type()),
        (None, Some(LinkSlice::EtherPayload(payload))) => Some(payload.ether_type),
        _ => None,
    };
    if ether_type == Some(ROCE_ETHER_TYPE) {
        return Packet::Rdma(Foreign::Roce1);
    }
    match &sliced.transport {
        Some(TransportSlice::Udp(udp)) if udp.destination_port() == ROCE_PORT => Packet::Rdma(Foreign::Roce2),
        _ => segment(sliced).map_or(Packet::Other, Packet::Tcp),
    }
}

/// The layers of a packet.
fn sliced(link: DataLink, octets: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    let ether_type = |at: usize| octets.get(at..)?.first_chunk().map(|&raw| EtherType(u16::from_be_bytes(raw)));
    Some(match link {
        DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(octets).ok()?,
        DataLink::LINUX_SLL => {
            LaxSlicedPacket::from_ether_type(ether_type(COOKED_BYTES - 2)?, octets.get(COOKED_BYTES..)?)
        }
        DataLink::LINUX_SLL2 => LaxSlicedPacket::from_ether_type(ether_type(0)?, octets.get(COOKED_2_BYTES..)?),
        DataLink::NULL | DataLink::LOOP => LaxSlicedPacket::from_ip(octets.get(LOOPBACK_BYTES..)?).ok()?,
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 | DataLink::Unknown(12 | 14) => {
            LaxSlicedPacket::from_ip(octets).ok()?
        }
        _ => return None,
    })
}

/// The segment in a packet, if there is one. Fragments of IP packets are not joined: TCP avoids them.
fn segment(packet: LaxSlicedPacket<'_>) -> Option<Segment<'_>> {
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

    fn segment(link: DataLink, octets: &[u8]) -> Option<Segment<'_>> {
        match packet(link, octets) {
            Packet::Tcp(segment) => Some(segment),
            _ => None,
        }
    }

    fn foreign(link: DataLink, octets: &[u8]) -> Option<Foreign> {
        match packet(link, octets) {
            Packet::Rdma(foreign) => Some(foreign),
            _ => None,
        }
    }

    #[test]
    fn other_rdma_is_known_by_its_numbers() {
        let ethernet = |ether_type: u16| [&[2; 12][..], &ether_type.to_be_bytes(), &[7; 60]].concat();
        assert_eq!(foreign(DataLink::ETHERNET, &ethernet(0x8915)), Some(Foreign::Roce1));
        assert_eq!(foreign(DataLink::ETHERNET, &ethernet(0x8916)), None);
        let vlan = [&[2; 12][..], &[0x81, 0, 0, 5, 0x89, 0x15], &[7; 60]].concat();
        assert_eq!(foreign(DataLink::ETHERNET, &vlan), Some(Foreign::Roce1));
        let cooked = [&[0; 14][..], &[0x89, 0x15], &[7; 60]].concat();
        assert_eq!(foreign(DataLink::LINUX_SLL, &cooked), Some(Foreign::Roce1));
        for (port, expected) in [(4790, None), (4791, Some(Foreign::Roce2)), (4792, None)] {
            let mut ip = Vec::new();
            PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(4791, port).write(&mut ip, &[7; 40]).unwrap();
            assert_eq!(foreign(DataLink::RAW, &ip), expected, "{port}");
            let mut ip = Vec::new();
            PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(9, port).write(&mut ip, &[7; 40]).unwrap();
            assert_eq!(foreign(DataLink::RAW, &ip), expected, "{port} with IPv6");
        }
        assert_eq!(foreign(DataLink::INFINIBAND, &[]), Some(Foreign::InfiniBand));
        for (of, expected) in [(21, true), (21 | 0x80, true), (25, true), (2, false), (22, false)] {
            let record = [&[0; 8][..], &[of], &[0; 20]].concat();
            assert_eq!(foreign(DataLink::ERF, &record).is_some(), expected, "{of}");
            assert_eq!(foreign(DataLink::ERF, &record[..8]), None);
        }
    }

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
                // A packet that is cut off is not read beyond its end.
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
