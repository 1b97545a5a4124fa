//! Numbers that look random and come from a seed, so that a failure can be repeated.

/// Numbers that look random, from a seed (splitmix64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the limit; 0 if the limit is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }

    /// Bytes that look random.
    pub(crate) fn octets(&mut self, count: usize) -> Vec<u8> {
        let mut octets = Vec::with_capacity(count + 8);
        while octets.len() < count {
            octets.extend_from_slice(&self.next().to_le_bytes());
        }
        octets.truncate(count);
        octets
    }
}
