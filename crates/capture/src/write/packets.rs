//! Packets of a pcapng file: Ethernet, IPv4 or IPv6, TCP. Owns the file.

use super::WriteError;
use etherparse::PacketBuilder;
use pcap_file::{
    DataLink,
    pcapng::{
        PcapNgWriter,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution},
            interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption},
            opt_common::CommonOption,
            section_header::{SectionHeaderBlock, SectionHeaderOption},
        },
    },
};
use std::{
    borrow::Cow,
    io::Write,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// Hops that a packet may still make: what Linux begins with.
const HOP_LIMIT: u8 = 64;
/// The window that every packet offers. The real one is not known.
const WINDOW_BYTES: u16 = u16::MAX;

/// What a TCP header says besides its ports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    pub(super) sequence: u32,
    pub(super) acknowledgment: Option<u32>,
    pub(super) syn: bool,
    pub(super) fin: bool,
    pub(super) push: bool,
}

pub(super) struct Packets<W: Write> {
    file: PcapNgWriter<W>,
    packet: Vec<u8>,
    pub(super) count: u64,
    pub(super) last_time: Duration,
}

fn format(error: pcap_file::pcapng::PcapNgWriteError) -> WriteError {
    match error {
        pcap_file::pcapng::PcapNgWriteError::Io(error) => WriteError::Io(error),
        error => WriteError::Format(error),
    }
}

/// A locally administered address for an end; iWARP does not know the real one.
fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

impl<W: Write> Packets<W> {
    pub(super) fn new(file: W) -> Result<Self, WriteError> {
        let application = concat!("rpcrdma ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            endianness: pcap_file::Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(application.into())],
            ..Default::default()
        };
        let mut file = PcapNgWriter::with_section_header(file, section).map_err(format)?;
        let description = "iWARP byte streams; this program made the headers of Ethernet, IP and TCP";
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName("iwarp".into()),
                InterfaceDescriptionOption::IfDescription(description.into()),
                InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
            ],
        };
        file.write_pcapng_block(interface).map_err(format)?;
        Ok(Packets { file, packet: Vec::new(), count: 0, last_time: Duration::ZERO })
    }

    /// Writes one packet. Times do not go back, whatever the clock does.
    pub(super) fn write(
        &mut self,
        time: Duration,
        (from, to): ((SocketAddr, u8), (SocketAddr, u8)),
        header: Header,
        payload: &[u8],
        comment: Option<String>,
    ) -> Result<(), WriteError> {
        self.last_time = self.last_time.max(time);
        let builder = PacketBuilder::ethernet2(mac(from.1), mac(to.1));
        let builder = match (from.0.ip().to_canonical(), to.0.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), HOP_LIMIT),
            (from, to) => builder.ipv6(v6(from), v6(to), HOP_LIMIT),
        };
        let mut builder = builder.tcp(from.0.port(), to.0.port(), header.sequence, WINDOW_BYTES);
        if let Some(acknowledgment) = header.acknowledgment {
            builder = builder.ack(acknowledgment);
        }
        if header.syn {
            builder = builder.syn();
        }
        if header.fin {
            builder = builder.fin();
        }
        if header.push {
            builder = builder.psh();
        }
        self.packet.clear();
        builder.write(&mut self.packet, payload).map_err(WriteError::Packet)?;
        let options = comment
            .map(|comment| EnhancedPacketOption::Common(CommonOption::Comment(comment.into())))
            .into_iter()
            .collect();
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: self.last_time,
            original_len: u32::try_from(self.packet.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(&self.packet),
            options,
        };
        self.file.write_pcapng_block(block).map_err(format)?;
        self.count += 1;
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        Ok(self.file.get_mut().flush()?)
    }

    /// Ends the file with a comment, if there is something to say.
    pub(super) fn finish(mut self, comment: Option<String>) -> Result<u64, WriteError> {
        if let Some(comment) = comment {
            let statistics = InterfaceStatisticsBlock {
                interface_id: 0,
                timestamp: self.last_time,
                options: vec![InterfaceStatisticsOption::Common(CommonOption::Comment(comment.into()))],
            };
            self.file.write_pcapng_block(statistics).map_err(format)?;
        }
        self.flush()?;
        Ok(self.count)
    }
}

fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
