//! The DDP header with RDMAP's control octet in it (RFC 5041 section 4, RFC 5040 section 4.1).
//!
//! ```text
//! tagged:   T=1 L rsvd DV | RV rsvd opcode | STag (4) | tagged offset (8)
//! untagged: T=0 L rsvd DV | RV rsvd opcode | STag to invalidate (4) | queue (4) | MSN (4) | message offset (4)
//! ```

use super::{fault::Fault, rdmap::Opcode};

/// Octets of a tagged header.
pub const TAGGED_OCTETS: usize = 14;
/// Octets of an untagged header.
pub const UNTAGGED_OCTETS: usize = 18;
/// The queue of Sends.
pub const QUEUE_SEND: u32 = 0;
/// The queue of RDMA Read Requests.
pub const QUEUE_READ_REQUEST: u32 = 1;
/// The queue of Terminates.
pub const QUEUE_TERMINATE: u32 = 2;
/// The MSN of the first message on each queue (RFC 5041 section 5.2).
// DDP-5041-5.2-a
pub const FIRST_MSN: u32 = 1;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const DDP_VERSION_MASK: u8 = 0x03;
const DDP_VERSION: u8 = 0x01;
const RDMAP_VERSION_MASK: u8 = 0xC0;
const RDMAP_VERSION: u8 = 0x40;
const OPCODE_MASK: u8 = 0x0F;

/// Where a segment's payload goes.
// DDP-5041-4.2-a, DDP-5041-4.3-a
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Into memory that the receiver has advertised.
    Tagged {
        /// The steering tag of that memory.
        stag: u32,
        /// The offset in that memory at which the first octet goes.
        offset: u64,
    },
    /// Into the next buffer of a queue.
    Untagged {
        /// The queue number.
        queue: u32,
        /// The message's number on that queue.
        msn: u32,
        /// The offset in the message of the first octet.
        offset: u32,
        /// In the Sends with Invalidate: the steering tag to invalidate; else zero.
        invalidate: u32,
    },
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The message's operation.
    pub opcode: Opcode,
    /// Whether this is the message's last segment.
    pub last: bool,
    /// Where the payload goes.
    pub placement: Placement,
}

/// The length of the header that begins with the octet `control`.
pub const fn header_bytes(control: u8) -> usize {
    if control & TAGGED != 0 { TAGGED_OCTETS } else { UNTAGGED_OCTETS }
}

fn be32(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

impl Header {
    /// Writes the header to the front of `out` and returns its length.
    pub fn encode(&self, out: &mut [u8; UNTAGGED_OCTETS]) -> usize {
        let last = if self.last { LAST } else { 0 };
        out[1] = RDMAP_VERSION | self.opcode as u8;
        match self.placement {
            Placement::Tagged { stag, offset } => {
                // DDP-5041-4.2-a
                out[0] = TAGGED | last | DDP_VERSION;
                out[2..6].copy_from_slice(&stag.to_be_bytes());
                out[6..14].copy_from_slice(&offset.to_be_bytes());
                TAGGED_OCTETS
            }
            Placement::Untagged { queue, msn, offset, invalidate } => {
                // DDP-5041-4.3-a
                out[0] = last | DDP_VERSION;
                out[2..6].copy_from_slice(&invalidate.to_be_bytes());
                out[6..10].copy_from_slice(&queue.to_be_bytes());
                out[10..14].copy_from_slice(&msn.to_be_bytes());
                out[14..18].copy_from_slice(&offset.to_be_bytes());
                UNTAGGED_OCTETS
            }
        }
    }

    /// Reads a header, and ignores reserved bits.
    ///
    /// # Errors
    /// Too few octets, a version other than 1, an opcode that RDMAP does not define or does not allow with this kind of
    /// buffer.
    pub fn decode(octets: &[u8]) -> Result<Header, Fault> {
        let short = Fault::ShortUlpdu { octets: octets.len() };
        let (Some(&ddp), Some(&rdmap)) = (octets.first(), octets.get(1)) else { return Err(short) };
        let tagged = ddp & TAGGED != 0;
        if ddp & DDP_VERSION_MASK != DDP_VERSION {
            // DDP-5041-7.1-a
            return Err(Fault::DdpVersion { version: ddp & DDP_VERSION_MASK, tagged });
        }
        if rdmap & RDMAP_VERSION_MASK != RDMAP_VERSION {
            // RDMAP-5040-7.2-a
            return Err(Fault::RdmapVersion { version: rdmap >> 6 });
        }
        // RDMAP-5040-4.1-a, RDMAP-5040-7.2-a
        let raw = rdmap & OPCODE_MASK;
        let opcode = Opcode::from_raw(raw).filter(|o| o.tagged() == tagged).ok_or(Fault::Opcode { opcode: raw })?;
        let placement = if tagged {
            let high = be32(octets, 6).ok_or(short.clone())?;
            let low = be32(octets, 10).ok_or(short.clone())?;
            Placement::Tagged { stag: be32(octets, 2).ok_or(short)?, offset: (u64::from(high) << 32) | u64::from(low) }
        } else {
            Placement::Untagged {
                invalidate: be32(octets, 2).ok_or(short.clone())?,
                queue: be32(octets, 6).ok_or(short.clone())?,
                msn: be32(octets, 10).ok_or(short.clone())?,
                offset: be32(octets, 14).ok_or(short)?,
            }
        };
        Ok(Header { opcode, last: ddp & LAST != 0, placement })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(header: Header) -> Vec<u8> {
        let mut out = [0; UNTAGGED_OCTETS];
        let len = header.encode(&mut out);
        out[..len].to_vec()
    }

    /// proves: DDP-5041-4.2-a, DDP-5041-4.3-a, RDMAP-5040-4.1-a
    #[test]
    fn golden_headers() {
        let write = Header {
            opcode: Opcode::Write,
            last: true,
            placement: Placement::Tagged { stag: 0x0102_0304, offset: 0x1112_1314_1516_1718 },
        };
        assert_eq!(encoded(write), [0xC1, 0x40, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        let send = Header {
            opcode: Opcode::SendInvalidate,
            last: false,
            placement: Placement::Untagged { queue: 0, msn: 7, offset: 0x400, invalidate: 0xA1A2_A3A4 },
        };
        assert_eq!(encoded(send), [0x01, 0x44, 0xA1, 0xA2, 0xA3, 0xA4, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 4, 0]);
        for (opcode, second) in [(Opcode::ReadResponse, 0x42), (Opcode::Write, 0x40)] {
            let header = Header { opcode, last: false, placement: Placement::Tagged { stag: 0, offset: 0 } };
            assert_eq!(encoded(header)[..2], [0x81, second]);
            assert_eq!(Header::decode(&encoded(header)), Ok(header));
        }
        for (opcode, second) in [
            (Opcode::ReadRequest, 0x41),
            (Opcode::Send, 0x43),
            (Opcode::SendInvalidate, 0x44),
            (Opcode::SendSolicited, 0x45),
            (Opcode::SendSolicitedInvalidate, 0x46),
            (Opcode::Terminate, 0x47),
        ] {
            let placement = Placement::Untagged { queue: 2, msn: 1, offset: 0, invalidate: 9 };
            let header = Header { opcode, last: true, placement };
            assert_eq!(encoded(header)[..2], [0x41, second]);
            assert_eq!(Header::decode(&encoded(header)), Ok(header));
        }
    }

    /// proves: DDP-5041-7.1-a, RDMAP-5040-7.2-a
    #[test]
    fn wrong_versions_and_opcodes_are_named() {
        assert_eq!(Header::decode(&[0x82, 0x40]), Err(Fault::DdpVersion { version: 2, tagged: true }));
        assert_eq!(Header::decode(&[0x40, 0x43]), Err(Fault::DdpVersion { version: 0, tagged: false }));
        assert_eq!(Header::decode(&[0x81, 0x80]), Err(Fault::RdmapVersion { version: 2 }));
        assert_eq!(Header::decode(&[0x81, 0x48]), Err(Fault::Opcode { opcode: 8 }));
        assert_eq!(Header::decode(&[0x81, 0x43]), Err(Fault::Opcode { opcode: 3 }), "a tagged Send");
        assert_eq!(Header::decode(&[0x01, 0x40]), Err(Fault::Opcode { opcode: 0 }), "an untagged Write");
    }

    #[test]
    fn reserved_bits_are_ignored_and_short_headers_are_not() {
        let mut octets = [0; UNTAGGED_OCTETS];
        octets[0] = 0x41 | 0x3C;
        octets[1] = 0x43 | 0x30;
        assert!(Header::decode(&octets).is_ok());
        for len in 0..UNTAGGED_OCTETS {
            assert_eq!(Header::decode(&octets[..len]), Err(Fault::ShortUlpdu { octets: len }));
        }
    }
}
