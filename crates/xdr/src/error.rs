//! Why a stream could not be decoded.

/// What is wrong with a received stream, and where. Positions are byte offsets in the whole stream,
/// items included.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The stream ends before the value does.
    #[error("at byte {position} the message should have {needed} more bytes, but it has {left}")]
    Truncated {
        /// Where the missing value would begin.
        position: usize,
        /// Bytes that the value needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A counted value is longer than its type or the caller allows.
    #[error("a length of {len} at byte {position} is above the limit of {max}")]
    TooLong {
        /// Where the count stands.
        position: usize,
        /// The count.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A word that is not one of the values of its type.
    #[error("{value} at byte {position} is not a valid {what}")]
    BadValue {
        /// Where the word stands.
        position: usize,
        /// The word.
        value: u32,
        /// The type's name.
        what: &'static str,
    },
    /// A string is not valid text.
    #[error("the string at byte {position} is not UTF-8")]
    NotText {
        /// Where the string begins.
        position: usize,
    },
    /// Bytes are left after the last value.
    #[error("{left} bytes are left at byte {position}, after the end of the message")]
    Trailing {
        /// Where the message should have ended.
        position: usize,
        /// How many bytes follow.
        left: usize,
    },
    /// The peer moved an item into a chunk that the binding does not allow to be moved
    /// (RFC 8166 section 6.1).
    #[error("a chunk stands at byte {position}, where nothing may be placed directly")]
    NotEligible {
        /// The chunk's position.
        position: usize,
    },
    /// A chunk's length is not the length of its item.
    #[error("the item at byte {position} has {len} bytes, its chunk {chunk_len}")]
    ChunkLength {
        /// The item's position.
        position: usize,
        /// The length that stands in the stream.
        len: usize,
        /// The chunk's length.
        chunk_len: usize,
    },
    /// An item came inline though the requester had offered a Write chunk for it (RFC 8166 section 6.1).
    #[error("the item at byte {position} came inline although a chunk of {offered} bytes was offered for it")]
    InlineDespiteChunk {
        /// The item's position.
        position: usize,
        /// The size of the offered chunk.
        offered: usize,
    },
    /// The peer placed data that belongs to no item of the message (RFC 8166 section 6.1).
    #[error("{octets} bytes were placed directly that belong to no item of the message")]
    Unclaimed {
        /// How many bytes.
        octets: usize,
    },
}

impl DecodeError {
    /// Whether the peer broke the rules of direct data placement, not those of XDR.
    pub fn is_placement(&self) -> bool {
        matches!(self, Self::NotEligible { .. } | Self::InlineDespiteChunk { .. } | Self::Unclaimed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: V1-6.1-a, V1-6.1-e, V1-6.1-f
    #[test]
    fn the_rules_of_placement_are_told_from_those_of_xdr() {
        let placement = [
            DecodeError::NotEligible { position: 4 },
            DecodeError::InlineDespiteChunk { position: 4, offered: 8 },
            DecodeError::Unclaimed { octets: 8 },
        ];
        assert!(placement.iter().all(DecodeError::is_placement));
        let of_xdr = [
            DecodeError::Truncated { position: 4, needed: 4, left: 0 },
            DecodeError::TooLong { position: 4, len: 5, max: 4 },
            DecodeError::BadValue { position: 4, value: 2, what: "boolean" },
            DecodeError::Trailing { position: 4, left: 4 },
            DecodeError::ChunkLength { position: 4, len: 5, chunk_len: 4 },
        ];
        assert!(!of_xdr.iter().any(DecodeError::is_placement));
    }
}
