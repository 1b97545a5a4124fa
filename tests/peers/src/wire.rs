//! The bytes on TCP: MPA frames, FPDUs, DDP and RDMAP headers, written from RFC 5044, 5041, 5040 and 6581.
//!
//! Nothing here shares code with the crates that it judges.

/// RDMAP's operations.
pub const WRITE: u8 = 0;
pub const READ_REQUEST: u8 = 1;
pub const READ_RESPONSE: u8 = 2;
pub const SEND: u8 = 3;
pub const SEND_INVALIDATE: u8 = 4;
pub const TERMINATE: u8 = 7;

/// MPA's flags.
pub const MARKERS: u8 = 0x80;
pub const CRC: u8 = 0x40;
pub const REJECT: u8 = 0x20;
pub const ENHANCED: u8 = 0x10;

/// RFC 8797's private data: no remote invalidation, 4,096 bytes each way.
pub const PRIVATE_DATA: [u8; 8] = [0xF6, 0xAB, 0x0E, 0x18, 1, 0, 3, 3];

/// CRC32c, bit by bit.
pub fn crc32c(octets: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &octet in octets {
        crc ^= u32::from(octet);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    !crc
}

/// A set-up request; the caller chooses all fields.
pub fn request(flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let mut out = b"MPA ID Req Frame".to_vec();
    out.extend([flags, revision]);
    out.extend((private.len() as u16).to_be_bytes());
    out.extend(private);
    out
}

/// Private data of the enhanced set-up.
pub fn enhanced(ird: u16, ord: u16, private: &[u8]) -> Vec<u8> {
    let mut out = ird.to_be_bytes().to_vec();
    out.extend(ord.to_be_bytes());
    out.extend(private);
    out
}

/// A ULPDU in its frame, with the right pad and CRC.
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut out = (ulpdu.len() as u16).to_be_bytes().to_vec();
    out.extend(ulpdu);
    out.resize(out.len().next_multiple_of(4), 0);
    let crc = crc32c(&out);
    out.extend(crc.to_le_bytes());
    out
}

/// Makes a frame's CRC right again after it was changed.
pub fn seal(fpdu: &mut [u8]) {
    if let Some(at) = fpdu.len().checked_sub(4) {
        let crc = crc32c(&fpdu[..at]);
        fpdu[at..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// DDP's header of an untagged segment with RDMAP's control byte.
#[derive(Clone, Copy)]
pub struct Untagged {
    pub opcode: u8,
    pub last: bool,
    pub ddp_version: u8,
    pub rdmap_version: u8,
    pub invalidate: u32,
    pub queue: u32,
    pub msn: u32,
    pub offset: u32,
}

impl Untagged {
    /// A correct header.
    pub fn new(opcode: u8, msn: u32) -> Self {
        let queue = match opcode {
            READ_REQUEST => 1,
            TERMINATE => 2,
            _ => 0,
        };
        Self { opcode, last: true, ddp_version: 1, rdmap_version: 1, invalidate: 0, queue, msn, offset: 0 }
    }

    pub fn ulpdu(&self, payload: &[u8]) -> Vec<u8> {
        let last = if self.last { 0x40 } else { 0 };
        let mut out = vec![last | self.ddp_version, self.rdmap_version << 6 | self.opcode];
        for word in [self.invalidate, self.queue, self.msn, self.offset] {
            out.extend(word.to_be_bytes());
        }
        out.extend(payload);
        out
    }

    pub fn fpdu(&self, payload: &[u8]) -> Vec<u8> {
        fpdu(&self.ulpdu(payload))
    }
}

/// DDP's header of a tagged segment with RDMAP's control byte.
#[derive(Clone, Copy)]
pub struct Tagged {
    pub opcode: u8,
    pub last: bool,
    pub ddp_version: u8,
    pub rdmap_version: u8,
    pub stag: u32,
    pub offset: u64,
}

impl Tagged {
    /// A correct header.
    pub fn new(opcode: u8, stag: u32, offset: u64) -> Self {
        Self { opcode, last: true, ddp_version: 1, rdmap_version: 1, stag, offset }
    }

    pub fn ulpdu(&self, payload: &[u8]) -> Vec<u8> {
        let last = if self.last { 0x40 } else { 0 };
        let mut out = vec![0x80 | last | self.ddp_version, self.rdmap_version << 6 | self.opcode];
        out.extend(self.stag.to_be_bytes());
        out.extend(self.offset.to_be_bytes());
        out.extend(payload);
        out
    }

    pub fn fpdu(&self, payload: &[u8]) -> Vec<u8> {
        fpdu(&self.ulpdu(payload))
    }
}

/// The payload of an RDMA Read Request.
pub fn read_request(sink: u32, sink_offset: u64, size: u32, source: u32, source_offset: u64) -> Vec<u8> {
    let mut out = sink.to_be_bytes().to_vec();
    out.extend(sink_offset.to_be_bytes());
    out.extend(size.to_be_bytes());
    out.extend(source.to_be_bytes());
    out.extend(source_offset.to_be_bytes());
    out
}
