//! Reading directories: READDIR (RFC 8881 section 18.23).

use crate::v4::{Bitmap, FileAttributes, Name, Verifier};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, padded};

/// The most entries in one answer that are read: more than a megabyte of the smallest, of 36 octets, can hold.
pub const MAX_ENTRIES: usize = 32 << 10;

xdr_struct! {
    /// READDIR: asks for names in the current directory.
    #[derive(Copy)]
    pub struct ReadDir {
        /// Where to go on: 0, or the cookie of the last entry seen.
        pub cookie: u64,
        /// The verifier that came with that cookie.
        pub verifier: Verifier,
        /// The most octets of names and cookies, as a hint.
        pub directory_count: u32,
        /// The most octets of [`ReadDirOk`].
        pub max_count: u32,
        /// The attributes that are asked for of each file.
        pub asked: Bitmap,
    }

    /// A name in a directory (`entry4`).
    pub struct Entry {
        /// Where to go on after this entry. Never 0, 1 or 2.
        pub cookie: u64,
        /// The name.
        pub name: Name,
        /// The file's attributes.
        pub attributes: FileAttributes,
    }
}

impl Entry {
    /// The octets of this entry in [`ReadDirOk`], with the word before it.
    pub fn octets(&self) -> usize {
        let mut encoder = Encoder::new();
        self.attributes.set.encode(&mut encoder);
        let set = encoder.position();
        4 + 8 + 4 + padded(self.name.0.len()) + set + 4 + padded(self.attributes.octets.len())
    }
}

/// What READDIR returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDirOk {
    /// The verifier of the cookies.
    pub verifier: Verifier,
    /// The entries, at most [`MAX_ENTRIES`].
    pub entries: Vec<Entry>,
    /// Whether the last of them is the directory's last.
    pub end: bool,
}

impl ReadDirOk {
    /// The octets of an answer without entries.
    pub const EMPTY_BYTES: usize = 8 + 4 + 4;
}

impl Encode for ReadDirOk {
    fn encode(&self, encoder: &mut Encoder) {
        self.verifier.encode(encoder);
        for entry in &self.entries {
            encoder.bool(true);
            entry.encode(encoder);
        }
        encoder.bool(false);
        encoder.bool(self.end);
    }
}

impl Decode for ReadDirOk {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let verifier = Decode::decode(decoder)?;
        let mut entries = Vec::new();
        while decoder.bool()? {
            if entries.len() == MAX_ENTRIES {
                let position = decoder.position();
                return Err(DecodeError::TooLong { position, len: entries.len() + 1, max: MAX_ENTRIES });
            }
            entries.push(Entry::decode(decoder)?);
        }
        Ok(Self { verifier, entries, end: decoder.bool()? })
    }
}

#[cfg(test)]
impl crate::sample::Sample for ReadDirOk {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        let entries = (0..draw.count(3)).map(|_| Entry::sample(draw)).collect();
        Self { verifier: Verifier::sample(draw), entries, end: bool::sample(draw) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Draw, Sample};

    #[test]
    fn entries_are_as_long_as_they_say() {
        for seed in 0..100 {
            let answer = ReadDirOk::sample(&mut Draw::new(seed));
            let mut encoder = Encoder::new();
            answer.encode(&mut encoder);
            let said = answer.entries.iter().map(Entry::octets).sum::<usize>() + ReadDirOk::EMPTY_BYTES;
            assert_eq!(encoder.position(), said);
        }
    }

    #[test]
    fn entries_end_at_their_limit() {
        let of = |count: usize| {
            let entry = Entry { cookie: 3, name: Name::default(), attributes: FileAttributes::default() };
            let mut encoder = Encoder::new();
            ReadDirOk { verifier: Verifier::default(), entries: vec![entry; count], end: true }.encode(&mut encoder);
            ReadDirOk::decode(&mut Decoder::new(encoder.finish().to_bytes().into()))
        };
        assert_eq!(of(MAX_ENTRIES).unwrap().entries.len(), MAX_ENTRIES);
        assert!(matches!(of(MAX_ENTRIES + 1), Err(DecodeError::TooLong { .. })));
    }
}
