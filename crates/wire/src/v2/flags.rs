//! The flags of the header prefix, `rdma_flags` (draft section 6.2.2).
//!
//! Owns nothing. Receivers ignore reserved bits, and senders set them to zero, so this type does not have them.

/// The flags that the draft defines.
// V2-6.2.2-b, V2-6.2.2-e
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `RDMA2_F_RESPONSE` (1): the receiver of this message chose `rdma_xid`.
    pub response: bool,
    /// `RDMA2_F_MORE` (2): the payload continues in the next message.
    pub more: bool,
    /// `RDMA2_F_TPMORE` (4): more transport properties follow in another message.
    pub tpmore: bool,
}

impl Flags {
    const RESPONSE: u32 = 1;
    const MORE: u32 = 2;
    // V2-6.2.2.3-f
    const TPMORE: u32 = 4;

    /// From the word on the wire.
    // V2-6.2.2-d
    pub fn from_word(word: u32) -> Self {
        Self { response: word & Self::RESPONSE != 0, more: word & Self::MORE != 0, tpmore: word & Self::TPMORE != 0 }
    }

    /// The word on the wire.
    // V2-6.2.2-c
    pub fn word(self) -> u32 {
        [(self.response, Self::RESPONSE), (self.more, Self::MORE), (self.tpmore, Self::TPMORE)]
            .into_iter()
            .fold(0, |word, (set, bit)| if set { word | bit } else { word })
    }

    /// The names of the flags that are set, without the common prefix.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [(self.response, "RESPONSE"), (self.more, "MORE"), (self.tpmore, "TPMORE")]
            .into_iter()
            .filter_map(|(set, name)| set.then_some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: V2-6.2.2-b, V2-6.2.2-c, V2-6.2.2-d, V2-6.2.2-e
    #[test]
    fn three_bits_are_defined_and_the_others_do_not_survive() {
        for word in 0..8 {
            assert_eq!(Flags::from_word(word).word(), word);
            assert_eq!(Flags::from_word(word | 0xffff_fff8).word(), word);
        }
        assert_eq!(Flags::from_word(6), Flags { response: false, more: true, tpmore: true });
        assert_eq!(Flags::from_word(7).names().collect::<Vec<_>>(), ["RESPONSE", "MORE", "TPMORE"]);
    }
}
