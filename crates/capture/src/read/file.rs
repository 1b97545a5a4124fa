//! The two file formats: gives packets with their times and link types. Owns one buffer of fixed size.

use super::ReadError;
use pcap_file::{
    DataLink,
    pcap::{PcapReadError, PcapReader},
    pcapng::{Block, PcapNgReadError, PcapNgReader},
};
use std::{
    io::{self, Read},
    time::Duration,
};

/// The longest packet or block, in bytes: far above any snap length in use.
pub(super) const MAX_BLOCK_BYTES: usize = 8 << 20;
/// Interfaces of one section. Each takes some hundred bytes for twenty in the file.
pub(super) const MAX_INTERFACES: usize = 4096;

/// The section header of pcapng, in either order of bytes.
const PCAPNG: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];
/// pcap with microseconds and nanoseconds, in either order.
const PCAP: [[u8; 4]; 4] =
    [[0xA1, 0xB2, 0xC3, 0xD4], [0xD4, 0xC3, 0xB2, 0xA1], [0xA1, 0xB2, 0x3C, 0x4D], [0x4D, 0x3C, 0xB2, 0xA1]];

/// Takes a packet: its time of day, its link type, its bytes.
type Take<'a> = dyn FnMut(Duration, DataLink, &[u8]) -> Result<(), ReadError> + 'a;

/// Gives all packets to `take`. Returns whether the file ends in the middle of one, as the capture of a killed program
/// does.
pub(super) fn packets(mut file: impl Read, take: &mut Take<'_>) -> Result<bool, ReadError> {
    let mut magic = [0; 4];
    match file.read_exact(&mut magic) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(ReadError::UnknownFormat),
        other => other.map_err(ReadError::Io)?,
    }
    let file = (&magic[..]).chain(file);
    if magic == PCAPNG {
        pcapng(file, take)
    } else if PCAP.contains(&magic) {
        pcap(file, take)
    } else {
        Err(ReadError::UnknownFormat)
    }
}

fn is_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

fn pcapng(file: impl Read, take: &mut Take<'_>) -> Result<bool, ReadError> {
    let damaged = |packet| move |source| ReadError::Pcapng { packet, source };
    let mut reader = PcapNgReader::with_capacity(file, MAX_BLOCK_BYTES).map_err(damaged(0))?;
    let mut packet = 0;
    loop {
        if reader.interfaces().len() > MAX_INTERFACES {
            return Err(ReadError::Interfaces { max: MAX_INTERFACES });
        }
        let (block, state) = match reader.next_block() {
            None => return Ok(false),
            Some(Ok(found)) => found,
            Some(Err(PcapNgReadError::Io(error))) if is_end(&error) => return Ok(true),
            Some(Err(source)) => return Err(damaged(packet)(source)),
        };
        let link = |interface: u32| {
            let index = usize::try_from(interface).unwrap_or(usize::MAX);
            state.interfaces().get(index).map_or(DataLink::Unknown(u32::MAX), |found| found.linktype)
        };
        match &block {
            Block::EnhancedPacket(found) => take(found.timestamp, link(found.interface_id), &found.data)?,
            // This block has no time.
            Block::SimplePacket(found) => take(Duration::ZERO, link(0), &found.data)?,
            _ => continue,
        }
        packet += 1;
    }
}

fn pcap(file: impl Read, take: &mut Take<'_>) -> Result<bool, ReadError> {
    let damaged = |packet| move |source| ReadError::Pcap { packet, source };
    let mut reader = PcapReader::with_capacity(file, MAX_BLOCK_BYTES).map_err(damaged(0))?;
    let link = reader.header().datalink;
    let mut packet = 0;
    while let Some(found) = reader.next_packet() {
        match found {
            Ok(found) => take(found.timestamp(), link, found.data())?,
            Err(PcapReadError::Io(error)) if is_end(&error) => return Ok(true),
            Err(source) => return Err(damaged(packet)(source)),
        }
        packet += 1;
    }
    Ok(false)
}
