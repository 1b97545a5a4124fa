//! The credit word, `rdma_credit` (draft section 4.2.1.1).
//!
//! The low-order 16 bits are credits that the message adds, the high-order 16 bits the most that can be outstanding at
//! the sender. Owns nothing; every word is valid. The engine decides what zero means to a receiver.

/// What a message says about credits. One credit is one message.
// V2-4.2.1.1-c
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credits {
    /// Credits that this message adds. Senders never put zero here.
    pub granted: u16,
    /// The most credits that can be outstanding at the sender.
    pub maximum: u16,
}

impl Credits {
    /// Both halves.
    pub fn new(granted: u16, maximum: u16) -> Self {
        Self { granted, maximum }
    }

    /// From the word on the wire.
    pub fn from_word(word: u32) -> Self {
        // The casts cut both halves to 16 bits.
        Self { granted: word as u16, maximum: (word >> 16) as u16 }
    }

    /// The word on the wire.
    pub fn word(self) -> u32 {
        u32::from(self.maximum) << 16 | u32::from(self.granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: V2-4.2.1.1-c
    #[test]
    fn the_low_half_is_granted_and_the_high_half_is_the_maximum() {
        assert_eq!(Credits::from_word(0x0020_0004), Credits::new(4, 32));
        assert_eq!(Credits::new(4, 32).word(), 0x0020_0004);
        for word in [0, 1, 0xffff, 0x1_0000, u32::MAX, 0x7fff_8000] {
            assert_eq!(Credits::from_word(word).word(), word);
        }
    }
}
