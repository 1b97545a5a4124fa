//! The private data of RFC 8797: what each end says about itself while the ends connect.
//!
//! Eight octets: magic (4), format version (1), flags (1), send size (1), receive size (1). The code of a size is its
//! number of KiB less one. The module owns nothing. Octets without such a block are no error: the peer has then said
//! nothing about itself, and the defaults of RFC 8166 section 3.3.3 hold.

/// The first four octets of the block.
pub const MAGIC: u32 = 0xF6AB_0E18;

/// Octets of the block.
pub const LEN_OCTETS: usize = 8;

/// The only format version that exists.
const FORMAT_VERSION: u8 = 1;

/// The flag bit with which the sender says that it accepts Send with Invalidate.
const FLAG_REMOTE_INVALIDATION: u8 = 0x01;

/// The unit of the sizes, in octets.
const SIZE_UNIT_OCTETS: u32 = 1024;

/// The smallest size that an end can state, and the size in force if an end states none, in octets.
// CM-8797-4-d
pub const MIN_SIZE_OCTETS: u32 = SIZE_UNIT_OCTETS;

/// The largest size that an end can state, in octets.
pub const MAX_SIZE_OCTETS: u32 = SIZE_UNIT_OCTETS * 256;

/// What one end says about itself.
// CM-8797-4-a
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// Whether this end accepts Send with Invalidate.
    pub remote_invalidation: bool,
    /// The largest message that it sends, in octets: a multiple of 1,024 up to [`MAX_SIZE_OCTETS`].
    pub send_size: u32,
    /// The largest message that it receives, in octets: as `send_size`.
    pub receive_size: u32,
}

impl PrivateData {
    /// The block's octets. Sizes are rounded down to a multiple of 1,024 and brought into the range that an end can
    /// state.
    pub fn to_octets(self) -> [u8; LEN_OCTETS] {
        let magic = MAGIC.to_be_bytes();
        let flags = if self.remote_invalidation { FLAG_REMOTE_INVALIDATION } else { 0 };
        let [a, b, c, d] = magic;
        [a, b, c, d, FORMAT_VERSION, flags, size_code(self.send_size), size_code(self.receive_size)]
    }

    /// The first block of a known format in `octets`, at any offset: some providers put words of their own before it,
    /// or zeroes after it. It ignores flags that have no meaning yet.
    // CM-8797-4-c
    pub fn find(octets: &[u8]) -> Option<Self> {
        octets.windows(LEN_OCTETS).find_map(Self::parse)
    }

    fn parse(window: &[u8]) -> Option<Self> {
        let (&magic, rest) = window.split_first_chunk::<4>()?;
        let &[version, flags, send, receive] = rest else { return None };
        (u32::from_be_bytes(magic) == MAGIC && version == FORMAT_VERSION).then(|| Self {
            remote_invalidation: flags & FLAG_REMOTE_INVALIDATION != 0,
            send_size: size_of_code(send),
            receive_size: size_of_code(receive),
        })
    }
}

// CM-8797-4-b
fn size_code(octets: u32) -> u8 {
    let units = octets.clamp(MIN_SIZE_OCTETS, MAX_SIZE_OCTETS) / SIZE_UNIT_OCTETS;
    u8::try_from(units - 1).unwrap_or(u8::MAX)
}

fn size_of_code(code: u8) -> u32 {
    (u32::from(code) + 1) * SIZE_UNIT_OCTETS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: PrivateData = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 8192 };

    /// proves: CM-8797-4-a
    #[test]
    fn the_block_has_the_octets_of_the_format() {
        assert_eq!(OURS.to_octets(), [0xF6, 0xAB, 0x0E, 0x18, 1, 1, 3, 7]);
        assert_eq!(PrivateData { remote_invalidation: false, ..OURS }.to_octets()[5], 0);
    }

    /// proves: CM-8797-4-a
    #[test]
    fn the_lowest_flag_alone_promises_remote_invalidation() {
        for flags in 0..=u8::MAX {
            let block = [0xF6, 0xAB, 0x0E, 0x18, 1, flags, 3, 7];
            let expected = PrivateData { remote_invalidation: flags & 1 != 0, ..OURS };
            assert_eq!(PrivateData::find(&block), Some(expected), "{flags:#04x}");
        }
    }

    /// proves: CM-8797-4-b
    #[test]
    fn sizes_are_cut_to_what_can_be_stated() {
        for (octets, stated) in [(0, 1024), (1023, 1024), (1024, 1024), (2047, 1024), (2048, 2048)] {
            let data = PrivateData { send_size: octets, ..OURS };
            assert_eq!(PrivateData::find(&data.to_octets()).unwrap().send_size, stated, "{octets}");
        }
        for octets in [MAX_SIZE_OCTETS, MAX_SIZE_OCTETS + 1, u32::MAX] {
            let data = PrivateData { receive_size: octets, ..OURS };
            assert_eq!(PrivateData::find(&data.to_octets()).unwrap().receive_size, MAX_SIZE_OCTETS);
        }
    }

    /// proves: CM-8797-4-c
    #[test]
    fn the_block_is_found_at_any_offset_and_only_in_a_known_format() {
        for before in 0..9 {
            let mut octets = vec![0xF6; before];
            octets.extend_from_slice(&OURS.to_octets());
            octets.extend_from_slice(&[0; 5]);
            assert_eq!(PrivateData::find(&octets), Some(OURS));
            assert_eq!(PrivateData::find(&octets[..before + LEN_OCTETS - 1]), None);
        }
        // The magic number, and the version of the format.
        for at in 0..5 {
            for bit in 0..8 {
                let mut other = OURS.to_octets();
                other[at] ^= 1 << bit;
                assert_eq!(PrivateData::find(&other), None, "byte {at}, bit {bit}");
            }
        }
        assert_eq!(PrivateData::find(&[]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = PrivateData::find(&octets);
        }
    }
}
