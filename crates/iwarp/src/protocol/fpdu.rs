//! FPDUs: how MPA cuts the octet stream (RFC 5044 sections 4.1, 4.4 and 4.5).
//!
//! ```text
//! length (2) | ULPDU: DDP header and payload (length) | pad (0 to 3, zero) | CRC32c (4)
//! ```
//! The length does not count itself, the pad and the CRC. Length, ULPDU and pad together are a multiple of four octets.

use super::ddp::{TAGGED_OCTETS, UNTAGGED_OCTETS};

/// Octets of the length field.
// MPA-5044-4.1-a
pub const LENGTH_OCTETS: usize = 2;
/// Octets of the CRC field, which exists even when CRCs are off.
pub const CRC_OCTETS: usize = 4;
/// The most octets in a ULPDU, because the length field has 16 bits.
pub const MAX_ULPDU_OCTETS: usize = 65_535;
/// The most octets from an FPDU's start to its payload.
pub const MAX_HEADER_OCTETS: usize = LENGTH_OCTETS + UNTAGGED_OCTETS;
/// The most octets from a payload's end to the next FPDU.
pub const MAX_TRAILER_OCTETS: usize = 3 + CRC_OCTETS;

/// From this maximum segment size on (octets), the path is loopback or similar: then FPDUs need not fit into one TCP
/// segment, and the largest cost the least.
pub const LARGE_MSS_OCTETS: usize = 16 << 10;
/// The payload of an FPDU on such a path: near the largest that the length field allows, and a multiple of a cache
/// line, so that each segment of an aligned buffer starts aligned.
const LARGE_PAYLOAD_OCTETS: usize = 65_472;
/// The smallest FPDU, even if the path asks for smaller ones: RFC 5044 section 4.5 asks for an EMSS of at least 128.
const MIN_FPDU_OCTETS: usize = 128;

/// The pad after a ULPDU of `ulpdu_octets`.
// MPA-5044-4.1-a
pub const fn pad_bytes(ulpdu_octets: usize) -> usize {
    (4 - (LENGTH_OCTETS + ulpdu_octets) % 4) % 4
}

/// How the transmitter cuts messages: the most payload octets in one FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// In a tagged segment.
    pub tagged_octets: usize,
    /// In an untagged segment.
    pub untagged_octets: usize,
}

impl Segmentation {
    /// For a path whose TCP segments carry `mss_octets`: one FPDU in each, or the largest FPDUs on loopback.
    // MPA-5044-4.5-a
    pub fn for_mss(mss_octets: usize) -> Self {
        if mss_octets >= LARGE_MSS_OCTETS {
            Segmentation { tagged_octets: LARGE_PAYLOAD_OCTETS, untagged_octets: LARGE_PAYLOAD_OCTETS }
        } else {
            Self::for_fpdu(mss_octets)
        }
    }

    /// For FPDUs of at most `fpdu_octets` in all, within the limits of the format.
    pub fn for_fpdu(fpdu_octets: usize) -> Self {
        let fpdu = fpdu_octets.clamp(MIN_FPDU_OCTETS, MAX_ULPDU_OCTETS) & !3;
        let frame = LENGTH_OCTETS + CRC_OCTETS;
        Segmentation {
            tagged_octets: (fpdu - frame - TAGGED_OCTETS) & !3,
            untagged_octets: (fpdu - frame - UNTAGGED_OCTETS) & !3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: MPA-5044-4.1-a
    #[test]
    fn padding_makes_length_and_ulpdu_a_multiple_of_four() {
        for ulpdu in 0..64 {
            let pad = pad_bytes(ulpdu);
            assert!(pad < 4);
            assert_eq!((LENGTH_OCTETS + ulpdu + pad) % 4, 0);
        }
    }

    /// proves: MPA-5044-4.5-a
    #[test]
    fn an_fpdu_fits_one_segment_unless_the_path_is_loopback() {
        for mss in [128, 129, 536, 1440, 1448, 1460, 8948, LARGE_MSS_OCTETS - 1] {
            let cut = Segmentation::for_mss(mss);
            for (header, payload) in [(TAGGED_OCTETS, cut.tagged_octets), (UNTAGGED_OCTETS, cut.untagged_octets)] {
                let ulpdu = header + payload;
                let fpdu = LENGTH_OCTETS + ulpdu + pad_bytes(ulpdu) + CRC_OCTETS;
                assert!(fpdu <= mss && fpdu + 4 > mss - 3, "{fpdu} for {mss}");
            }
        }
        let large = Segmentation::for_mss(LARGE_MSS_OCTETS);
        assert_eq!(large.tagged_octets, LARGE_PAYLOAD_OCTETS);
        const { assert!(LARGE_PAYLOAD_OCTETS + UNTAGGED_OCTETS <= MAX_ULPDU_OCTETS) };
    }

    #[test]
    fn an_override_is_cut_to_what_the_format_allows() {
        assert_eq!(Segmentation::for_fpdu(0), Segmentation::for_fpdu(MIN_FPDU_OCTETS));
        let most = Segmentation::for_fpdu(usize::MAX);
        assert!(most.tagged_octets + TAGGED_OCTETS <= MAX_ULPDU_OCTETS);
    }
}
