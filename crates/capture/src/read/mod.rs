//! Reading a capture: packets, TCP streams, FPDUs or records, messages, calls.
//!
//! One pass over the file keeps only what is under way. Whatever a file holds, memory stays within the limits named
//! here and in the modules; data beyond a limit is reported as a gap.

mod calls;
mod connection;
mod file;
mod framing;
mod messages;
mod packet;
mod reassembly;
mod records;
mod rpc;
mod table;

use crate::event::Event;
use std::io::{self, Read};

/// TCP connections that are followed at a time; the one that was silent longest is given up for a new one.
pub const MAX_CONNECTIONS: usize = 1024;
/// Bytes that wait for earlier ones, over all connections.
pub const MAX_WAITING_BYTES: usize = 64 << 20;
/// Bytes whose CRC is computed in search of an FPDU, in a whole file: some seconds. Without a limit, a file made for
/// it would take the square of its length.
pub const MAX_SEARCHED_BYTES: u64 = 1 << 30;

/// Takes events.
pub trait Sink {
    /// The next event, in the order in which messages were complete.
    ///
    /// # Errors
    /// If it cannot be shown; reading ends.
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// There are no more events.
    ///
    /// # Errors
    /// If messages that were held back cannot be shown.
    fn finish(&mut self, summary: &Summary) -> io::Result<()>;
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        (**self).event(event)
    }

    fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        (**self).finish(summary)
    }
}

/// What a capture held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Packets.
    pub packets: u64,
    /// Packets that are not TCP, or could not be read.
    pub other_packets: u64,
    /// Of these: packets of RoCE version 1, which are not read.
    pub roce_1_packets: u64,
    /// Packets of RoCE version 2, which are not read.
    pub roce_2_packets: u64,
    /// Packets of InfiniBand, which are not read.
    pub infiniband_packets: u64,
    /// Connections that carry iWARP.
    pub connections: u64,
    /// Connections that carry RPC in records, as MOUNT does.
    pub record_connections: u64,
    /// TCP connections that carry neither.
    pub other_connections: u64,
    /// Messages of RDMAP.
    pub messages: u64,
    /// Records.
    pub records: u64,
    /// Bytes that the capture lacks, as far as sequence numbers tell.
    pub missing_bytes: u64,
    /// FPDUs with a wrong CRC.
    pub bad_crcs: u64,
    /// The file ends in the middle of a packet.
    pub cut_short: bool,
}

impl Summary {
    /// Packets of RDMA that are known and not read: the name of the protocol and how many, where there are any.
    pub fn unread_rdma(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all =
            [("RoCEv1", self.roce_1_packets), ("RoCEv2", self.roce_2_packets), ("InfiniBand", self.infiniband_packets)];
        all.into_iter().filter(|&(_, packets)| packets > 0)
    }
}

/// Why a capture could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the capture")]
    Io(#[source] io::Error),
    /// It is neither pcap nor pcapng.
    #[error("not a pcap or pcapng file")]
    UnknownFormat,
    /// A block of a pcapng file is wrong.
    #[error("packet {packet}: the pcapng file is damaged")]
    Pcapng {
        /// Packets before it.
        packet: u64,
        /// What is wrong.
        #[source]
        source: pcap_file::pcapng::PcapNgReadError,
    },
    /// A record of a pcap file is wrong.
    #[error("packet {packet}: the pcap file is damaged")]
    Pcap {
        /// Packets before it.
        packet: u64,
        /// What is wrong.
        #[source]
        source: pcap_file::pcap::PcapReadError,
    },
    /// More interfaces than 4096.
    #[error("the file names more than {max} interfaces")]
    Interfaces {
        /// How many it may name.
        max: usize,
    },
    /// What was read cannot be shown.
    #[error("cannot write what was read")]
    Sink(#[source] io::Error),
}

/// What all connections share.
#[derive(Debug, Default)]
struct Shared {
    summary: Summary,
    waiting_bytes: usize,
    searched_bytes: u64,
}

/// Reads a pcap or pcapng file to its end.
///
/// # Errors
/// If it is not a capture, is damaged, or the sink fails. Everything before the damage has been reported by then.
pub fn read_capture(file: impl Read, sink: &mut dyn Sink) -> Result<Summary, ReadError> {
    let mut table = table::Table::new();
    let read =
        file::packets(file, &mut |time, link, octets| table.packet(time, link, octets, sink).map_err(ReadError::Sink));
    let cut_short = *read.as_ref().unwrap_or(&false);
    let summary = table.finish(cut_short, sink).map_err(ReadError::Sink)?;
    read?;
    Ok(summary)
}
