//! Hand-made captures of RPC over plain TCP: a client and its connections to servers.

use super::words;
use etherparse::PacketBuilder;

pub(crate) const CLIENT: End4 = ([10, 0, 0, 1], 863);
pub(crate) const MOUNTD: End4 = ([10, 0, 0, 2], 20_048);
pub(crate) const NFSD: End4 = ([10, 0, 0, 2], 2049);

/// An address and a port.
pub(crate) type End4 = ([u8; 4], u16);

/// A pcap file that is being made.
pub(crate) struct File {
    pub(crate) octets: Vec<u8>,
    time: u32,
}

impl File {
    pub(crate) fn new() -> Self {
        // pcap's header with microseconds, version 2.4, packets that begin with IP.
        let mut octets = 0xA1B2_C3D4_u32.to_be_bytes().to_vec();
        octets.extend([0, 2, 0, 4]);
        octets.extend(words(&[0, 0, 65_535, 101]));
        File { octets, time: 0 }
    }

    /// A packet, a millisecond after the one before. It is a SYN if it acknowledges nothing.
    pub(crate) fn packet(&mut self, from: End4, to: End4, [sequence, acknowledged]: [u32; 2], payload: &[u8]) {
        let mut builder = PacketBuilder::ipv4(from.0, to.0, 64).tcp(from.1, to.1, sequence, 1000);
        builder = if acknowledged == 0 { builder.syn() } else { builder.ack(acknowledged) };
        let mut packet = Vec::new();
        builder.write(&mut packet, payload).unwrap();
        let len = packet.len() as u32;
        self.octets.extend(words(&[1, self.time, len, len]));
        self.octets.extend(packet);
        self.time += 1000;
    }
}

/// A TCP connection of a client to a server.
pub(crate) struct Stream {
    server: End4,
    next: [u32; 2],
}

impl Stream {
    pub(crate) fn unseen(server: End4) -> Self {
        Stream { server, next: [100, 5000] }
    }

    pub(crate) fn begun(server: End4, file: &mut File) -> Self {
        let mut stream = Self::unseen(server);
        file.packet(CLIENT, server, [100, 0], &[]);
        stream.next[0] += 1;
        stream
    }

    pub(crate) fn asks(&mut self, file: &mut File, octets: &[u8]) {
        file.packet(CLIENT, self.server, self.next, octets);
        self.next[0] += octets.len() as u32;
    }

    pub(crate) fn answers(&mut self, file: &mut File, octets: &[u8]) {
        file.packet(self.server, CLIENT, [self.next[1], self.next[0]], octets);
        self.next[1] += octets.len() as u32;
    }

    /// Bytes from the client that the capture lacks.
    pub(crate) fn lost(&mut self, octets: u32) {
        self.next[0] += octets;
    }
}

pub(crate) fn record(body: &[u8]) -> Vec<u8> {
    [&(0x8000_0000 | body.len() as u32).to_be_bytes()[..], body].concat()
}
