//! CRC32c as MPA uses it (RFC 5044 section 4.4), computed piece by piece so that nothing needs to be copied together.

use crc_fast::{CrcAlgorithm, Digest};

/// A CRC32c under way.
// MPA-5044-4.4-a
#[derive(Clone, Debug)]
pub struct Crc(Digest);

impl Crc {
    /// The CRC of no octets yet.
    pub fn new() -> Self {
        Crc(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Starts again.
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// Adds the next octets.
    pub fn update(&mut self, octets: &[u8]) {
        self.0.update(octets);
    }

    /// The value so far, in the octet order of the wire.
    pub fn octets(&self) -> [u8; 4] {
        // A 32-bit CRC: the upper half is zero.
        (self.0.finalize() as u32).to_le_bytes()
    }
}

impl Default for Crc {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values that RFC 3720 gives for this CRC, in its wire order.
    /// proves: MPA-5044-4.4-a
    #[test]
    fn check_values_of_the_polynomial() {
        let mut crc = Crc::new();
        crc.update(&[0; 32]);
        assert_eq!(crc.octets(), [0xaa, 0x36, 0x91, 0x8a]);
        crc.reset();
        crc.update(&[0xff; 32]);
        assert_eq!(crc.octets(), [0x43, 0xab, 0xa8, 0x62]);
        crc.reset();
        let rising: Vec<u8> = (0..32).collect();
        crc.update(&rising);
        assert_eq!(crc.octets(), [0x4e, 0x79, 0xdd, 0x46]);
    }

    #[test]
    fn pieces_give_the_same_value_as_the_whole() {
        let octets: Vec<u8> = (0..5000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut whole = Crc::new();
        whole.update(&octets);
        for cut in [0, 1, 15, 16, 17, 255, 256, 257, 1024, 4999, 5000] {
            let mut pieces = Crc::new();
            pieces.update(&octets[..cut]);
            pieces.update(&octets[cut..]);
            assert_eq!(pieces.octets(), whole.octets(), "cut at {cut}");
        }
    }
}
