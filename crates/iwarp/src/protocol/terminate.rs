//! The Terminate message (RFC 5040 section 4.8).
//!
//! ```text
//! layer (4 bits) type (4 bits) | code (8 bits) | M D R and 13 reserved bits
//! M: length of the offending segment (2 octets), D: its DDP header (14 or 18), R: the Read Request in it (28)
//! ```
//! In Linux's soft-iWARP, layer and type have changed places, and M, D, R stand in bits 0 to 2 of the third octet. We
//! send the RFC's form, and read both.

use super::{
    ddp::{Header, Placement, UNTAGGED_OCTETS},
    fault::{
        DDP_TAGGED, DDP_UNTAGGED, ErrorCode, Fault, LAYER_DDP, LAYER_MPA, LAYER_RDMAP, RDMAP_OPERATION,
        RDMAP_PROTECTION,
    },
    rdmap::{Opcode, READ_REQUEST_OCTETS},
    writes::Refused,
};
use std::fmt;

/// Octets of every Terminate.
const FIXED_OCTETS: usize = 4;
/// The most octets in a Terminate's payload.
pub const MAX_OCTETS: usize = FIXED_OCTETS + 2 + UNTAGGED_OCTETS + READ_REQUEST_OCTETS;
const M: u8 = 0x80;
const D: u8 = 0x40;
const R: u8 = 0x20;
const RFC_BITS: u8 = M | D | R;
/// The bits of M, D and R in Linux's form.
const LINUX_BITS: u8 = 0x07;
/// Linux's R.
const LINUX_R: u8 = 0x04;
/// Linux's M and D.
const LINUX_MD: u8 = 0x03;

/// The segment that caused a Terminate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offender<'a> {
    /// Its ULPDU's length.
    pub ulpdu_octets: u16,
    /// Its DDP header.
    pub header: &'a [u8],
    /// Its payload, if it is a Read Request.
    pub read_request: Option<&'a [u8]>,
}

/// The payload of the Terminate for `fault`, caused by `offender`. `None` for faults of the set-up.
// RDMAP-5040-4.8-b
pub fn encode(fault: &Fault, offender: Offender<'_>) -> Option<Vec<u8>> {
    let ErrorCode { layer, etype, code } = fault.error_code()?;
    let mut out = vec![layer << 4 | etype, code, 0, 0];
    // RFC 5040 figure 10: a Terminate quotes nothing for MPA's errors and for local catastrophes.
    if layer == LAYER_MPA || etype == 0 || offender.header.is_empty() {
        return Some(out);
    }
    out.extend(offender.ulpdu_octets.to_be_bytes());
    out.extend(offender.header);
    out[2] = M | D;
    if let Some(request) = offender.read_request.filter(|_| layer == LAYER_RDMAP) {
        out[2] |= R;
        out.extend(request);
    }
    Some(out)
}

/// A Terminate of the peer, as far as we know its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The error, in the layout that the Terminate shows.
    pub code: ErrorCode,
    /// The error in Linux's layout, if the Terminate does not show which layout it has.
    pub or: Option<ErrorCode>,
}

/// Reads a Terminate's payload. `None` if it has fewer than three octets.
// RDMAP-5040-4.8-c
pub fn decode(payload: &[u8]) -> Option<Reading> {
    let &[first, code, bits] = payload.first_chunk()?;
    let rfc = ErrorCode { layer: first >> 4, etype: first & 0x0F, code };
    let linux = ErrorCode { layer: first & 0x0F, etype: first >> 4, code };
    Some(if bits & RFC_BITS != 0 || rfc == linux {
        Reading { code: rfc, or: None }
    } else if bits & LINUX_BITS != 0 {
        Reading { code: linux, or: None }
    } else {
        Reading { code: rfc, or: Some(linux) }
    })
}

/// The sink's steering tag in the Read Request that a Terminate quotes, if it quotes one.
pub fn quoted_sink(payload: &[u8]) -> Option<u32> {
    let &bits = payload.get(2)?;
    let quoted = if bits & RFC_BITS != 0 { bits & R != 0 } else { bits & LINUX_R != 0 };
    let request = payload.get(FIXED_OCTETS + 2 + UNTAGGED_OCTETS..).filter(|_| quoted)?;
    request.first_chunk().copied().map(u32::from_be_bytes)
}

/// The destination of the RDMA Write segment whose header a Terminate quotes, if it quotes one. The peer may quote
/// anything: only the sender of the Writes knows whether there was such a Write. The length before the header is
/// ignored, because Linux counts the payload alone.
// RDMAP-5040-4.8-d
pub fn quoted_write(payload: &[u8]) -> Option<Refused> {
    let &bits = payload.get(2)?;
    let quoted = if bits & RFC_BITS != 0 { bits & (M | D) == M | D } else { bits & LINUX_MD == LINUX_MD };
    let header = payload.get(FIXED_OCTETS + 2..).filter(|_| quoted)?;
    match Header::decode(header).ok()? {
        Header { opcode: Opcode::Write, placement: Placement::Tagged { stag, offset }, .. } => {
            Some(Refused { stag, offset })
        }
        _ => None,
    }
}

impl Reading {
    /// Whether it says (or may say) that we accessed memory without permission.
    pub fn is_access_error(&self) -> bool {
        std::iter::once(self.code).chain(self.or).any(|code| {
            (code.layer, code.etype) == (LAYER_RDMAP, RDMAP_PROTECTION)
                || (code.layer, code.etype) == (LAYER_DDP, DDP_TAGGED)
        })
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        match self.or {
            Some(code) => write!(f, "; in Linux's layout: {code}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match (self.layer, self.etype, self.code) {
            (LAYER_RDMAP, 0, _) => "RDMAP: local catastrophic error",
            (LAYER_RDMAP, RDMAP_PROTECTION, 0) => "RDMAP: invalid STag",
            (LAYER_RDMAP, RDMAP_PROTECTION, 1) => "RDMAP: base or bounds violation",
            (LAYER_RDMAP, RDMAP_PROTECTION, 2) => "RDMAP: access rights violation",
            (LAYER_RDMAP, RDMAP_PROTECTION, 3) => "RDMAP: STag of another stream",
            (LAYER_RDMAP, RDMAP_PROTECTION, 4) => "RDMAP: tagged offset wraps",
            (LAYER_RDMAP, RDMAP_PROTECTION | RDMAP_OPERATION, 9) => "RDMAP: STag cannot be invalidated",
            (LAYER_RDMAP, RDMAP_OPERATION, 5) => "RDMAP: invalid version",
            (LAYER_RDMAP, RDMAP_OPERATION, 6) => "RDMAP: unexpected operation",
            (LAYER_RDMAP, RDMAP_OPERATION, 7) => "RDMAP: catastrophic error of the stream",
            (LAYER_RDMAP, RDMAP_OPERATION, 8) => "RDMAP: catastrophic error",
            (LAYER_DDP, 0, _) => "DDP: local catastrophic error",
            (LAYER_DDP, DDP_TAGGED, 0) => "DDP: invalid STag",
            (LAYER_DDP, DDP_TAGGED, 1) => "DDP: base or bounds violation",
            (LAYER_DDP, DDP_TAGGED, 2) => "DDP: STag of another stream",
            (LAYER_DDP, DDP_TAGGED, 3) => "DDP: tagged offset wraps",
            (LAYER_DDP, DDP_TAGGED, 4) | (LAYER_DDP, DDP_UNTAGGED, 6) => "DDP: invalid version",
            (LAYER_DDP, DDP_UNTAGGED, 1) => "DDP: invalid queue",
            (LAYER_DDP, DDP_UNTAGGED, 2) => "DDP: no receive for the message",
            (LAYER_DDP, DDP_UNTAGGED, 3) => "DDP: message number out of range",
            (LAYER_DDP, DDP_UNTAGGED, 4) => "DDP: invalid message offset",
            (LAYER_DDP, DDP_UNTAGGED, 5) => "DDP: message too long for its receive",
            (LAYER_MPA, 0, 2) => "MPA: CRC error",
            (LAYER_MPA, 0, 3) => "MPA: marker and length disagree",
            (LAYER_MPA, 0, 5) => "MPA: local catastrophic error",
            (LAYER_MPA, 0, 6) => "MPA: insufficient IRD",
            (LAYER_MPA, 0, 7) => "MPA: no matching ready-to-receive option",
            _ => "unspecified error",
        };
        write!(f, "{text} (layer {}, type {}, code {:#04x})", self.layer, self.etype, self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFENDER: Offender<'_> = Offender { ulpdu_octets: 0x0102, header: &[0xAA; 14], read_request: None };

    /// proves: RDMAP-5040-4.8-a, RDMAP-5040-4.8-b
    #[test]
    fn golden_terminates() {
        let bounds = Fault::Bounds { stag: 1, offset: 2, octets: 3 };
        let mut expected = vec![0x11, 0x01, 0xC0, 0, 1, 2];
        expected.extend([0xAA; 14]);
        assert_eq!(encode(&bounds, OFFENDER), Some(expected));

        let request = [0xBB; READ_REQUEST_OCTETS];
        let read = Fault::ReadStag { stag: 1 };
        let offender = Offender { header: &[0xCC; 18], read_request: Some(&request), ..OFFENDER };
        let mut expected = vec![0x01, 0x00, 0xE0, 0, 1, 2];
        expected.extend([0xCC; 18]);
        expected.extend(request);
        assert_eq!(encode(&read, offender), Some(expected.clone()));
        assert_eq!(expected.len(), MAX_OCTETS, "there is room for the longest, and for no more");
        assert_eq!(quoted_sink(&expected), Some(0xBBBB_BBBB));
        expected[2] = 0xC0;
        assert_eq!(quoted_sink(&expected), None);
        expected[2] = 0x07;
        assert_eq!(quoted_sink(&expected), Some(0xBBBB_BBBB));

        let crc = Fault::Crc { carried: [0; 4], computed: [1; 4] };
        assert_eq!(encode(&crc, OFFENDER), Some(vec![0x20, 0x02, 0, 0]), "nothing is quoted for MPA");
        assert_eq!(encode(&Fault::Markers, OFFENDER), None);
        let no_header = Offender::default();
        assert_eq!(encode(&Fault::Opcode { opcode: 9 }, no_header), Some(vec![0x02, 0x06, 0, 0]));
    }

    /// proves: RDMAP-5040-4.8-c
    #[test]
    fn both_layouts_are_read() {
        let ddp = ErrorCode { layer: 1, etype: 2, code: 5 };
        assert_eq!(decode(&[0x12, 5, 0xC0, 0]), Some(Reading { code: ddp, or: None }));
        assert_eq!(decode(&[0x21, 5, 0x03, 0]), Some(Reading { code: ddp, or: None }), "Linux's nibbles");
        for bit in [M, D, R] {
            assert_eq!(decode(&[0x12, 5, bit, 0]), Some(Reading { code: ddp, or: None }), "{bit:#x} alone tells it");
            assert_eq!(decode(&[0x21, 5, bit >> 5, 0]), Some(Reading { code: ddp, or: None }), "{bit:#x}, Linux's");
        }
        let other = ErrorCode { layer: 2, etype: 1, code: 5 };
        assert_eq!(decode(&[0x12, 5, 0, 0]), Some(Reading { code: ddp, or: Some(other) }));
        assert_eq!(decode(&[0x11, 0, 0]).map(|r| r.or), Some(None), "both readings agree");
        assert_eq!(decode(&[0x11, 0]), None);
    }

    /// proves: RDMAP-5040-4.8-d
    #[test]
    fn a_quoted_write_is_found_in_either_layout() {
        let header = [0xC1, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0xFF, 0, 0, 9];
        let refused = Some(Refused { stag: 0x0102_0304, offset: 0xFF00_0009 });
        let quoting = |bits: u8, header: &[u8]| [&[0x11, 0, bits, 0, 0, 99], header].concat();
        for bits in [0xC0, 0xE0, 0x03, 0x07] {
            assert_eq!(quoted_write(&quoting(bits, &header)), refused, "{bits:#x}");
            assert_eq!(quoted_write(&quoting(bits, &[&header[..], &[0; 4]].concat())), refused, "more behind it");
            assert_eq!(quoted_write(&quoting(bits, &header[..13])), None, "not whole");
            assert_eq!(quoted_write(&quoting(bits, &[])), None);
        }
        for bits in [0, 0x80, 0x40, 0x20, 0xA0, 0x60, 1, 2, 4, 5, 6] {
            assert_eq!(quoted_write(&quoting(bits, &header)), None, "{bits:#x} says that there is none");
        }
        for (at, octet) in [(0, 0x41), (0, 0xC2), (1, 0x42), (1, 0x43), (1, 0x4F), (1, 0x80)] {
            let mut other = header;
            other[at] = octet;
            assert_eq!(quoted_write(&quoting(0xC0, &other)), None, "{other:x?} is no header of a Write");
        }
        let whole = quoting(0xC0, &header);
        for len in 0..whole.len() {
            assert_eq!(quoted_write(&whole[..len]), None);
        }
    }

    #[test]
    fn access_errors_are_recognised_in_either_reading() {
        assert!(decode(&[0x11, 0, 0xC0]).unwrap().is_access_error());
        assert!(decode(&[0x01, 1, 0xE0]).unwrap().is_access_error());
        assert!(decode(&[0x10, 1, 0x00]).unwrap().is_access_error(), "Linux's remote protection error");
        assert!(!decode(&[0x20, 2, 0x80]).unwrap().is_access_error());
    }
}
