//! Changing attributes (RFC 1094 sections 2.2.3 and 2.3.6): every field is present, and all bits set mean "not this
//! one".
//!
//! Microseconds of one million, which no time has, ask for the server's present time: a convention of SunOS that Linux
//! follows as well. In the second time, that of the last change, they mean both times.

use super::{Answer, Attributes, Handle, Time, procedure, sizes};
use rpcrdma_oncrpc::ReplyShape;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// Means that a field is not set.
const ABSENT: u32 = u32::MAX;
/// The same for a mode, from clients that widen a word of 16 bits.
const ABSENT_MODE: u32 = 0xFFFF;
/// Microseconds that mean the server's present time, and the first number that no time has.
const PRESENT: u32 = 1_000_000;

/// Attributes to set; absent ones stay as they are (`sattr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// Permission bits; for a new file together with the bits of the type.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in octets: cuts the file or extends it with a hole. For a new device its number.
    pub size: Option<u32>,
    /// Last access.
    pub accessed: SetTime,
    /// Last change of the contents. The server's present time applies to the last access as well, if that is set.
    pub modified: SetTime,
}

/// How to set a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Unchanged.
    #[default]
    Keep,
    /// To the server's present time.
    Server,
    /// To this time.
    Client(Time),
}

impl Encode for SetTime {
    fn encode(&self, encoder: &mut Encoder) {
        let time = match self {
            SetTime::Keep => Time { seconds: ABSENT, microseconds: ABSENT },
            SetTime::Server => Time { seconds: 0, microseconds: PRESENT },
            SetTime::Client(time) => *time,
        };
        time.encode(encoder);
    }
}

impl Decode for SetTime {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        match Time::decode(decoder)? {
            Time { seconds: ABSENT, .. } | Time { microseconds: ABSENT, .. } => Ok(SetTime::Keep),
            // NFS2-SATTR-b
            Time { microseconds: PRESENT, .. } => Ok(SetTime::Server),
            time if time.microseconds < PRESENT => Ok(SetTime::Client(time)),
            time => Err(decoder.bad_value(time.microseconds, "number of microseconds")),
        }
    }
}

impl Encode for NewAttributes {
    fn encode(&self, encoder: &mut Encoder) {
        for word in [self.mode, self.uid, self.gid, self.size] {
            encoder.u32(word.unwrap_or(ABSENT));
        }
        self.accessed.encode(encoder);
        self.modified.encode(encoder);
    }
}

impl Decode for NewAttributes {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let mut words = [None; 4];
        // NFS2-SATTR-a
        for word in &mut words {
            *word = Some(decoder.u32()?).filter(|word| *word != ABSENT);
        }
        let [mode, uid, gid, size] = words;
        let (accessed, modified) = (SetTime::decode(decoder)?, SetTime::decode(decoder)?);
        let accessed = match (accessed, modified) {
            (SetTime::Client(_), SetTime::Server) => SetTime::Server,
            (accessed, _) => accessed,
        };
        Ok(Self { mode: mode.filter(|mode| *mode != ABSENT_MODE), uid, gid, size, accessed, modified })
    }
}

xdr_struct! {
    /// SETATTR: sets attributes.
    pub struct SetAttributes {
        /// The file that gets the attributes.
        pub file: Handle,
        /// The attributes to set.
        pub attributes: NewAttributes,
    }
}

calls! {
    super::PROGRAM, super::VERSION, procedure::is_repeatable;
    SetAttributes, 2, Answer<Attributes>, ReplyShape::inline(sizes::STATUS + sizes::ATTRIBUTES);
}

#[cfg(test)]
impl crate::sample::Sample for NewAttributes {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        let mut time = || match draw.below(3) {
            0 => SetTime::Keep,
            1 => SetTime::Server,
            _ => SetTime::Client(Time { seconds: draw.below(1 << 31) as u32, microseconds: draw.below(1000) as u32 }),
        };
        let (accessed, modified) = (time(), time());
        let accessed = if modified == SetTime::Server && accessed != SetTime::Keep { modified } else { accessed };
        let mut word = || (draw.below(2) == 1).then(|| draw.below(1 << 15) as u32);
        Self { mode: word(), uid: word(), gid: word(), size: word(), accessed, modified }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_xdr::Stream;

    fn decode(words: [u32; 8]) -> Result<NewAttributes, DecodeError> {
        let octets: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        NewAttributes::decode(&mut Decoder::new(Stream::from(bytes::Bytes::from(octets))))
    }

    /// proves: NFS2-SATTR-a
    #[test]
    fn all_bits_mean_that_a_field_is_not_set() {
        assert_eq!(decode([ABSENT; 8]), Ok(NewAttributes::default()));
        let some = decode([0o640, ABSENT, 7, 0, ABSENT, 5, 9, 999_999]).unwrap();
        let modified = SetTime::Client(Time { seconds: 9, microseconds: 999_999 });
        let expected = NewAttributes { mode: Some(0o640), gid: Some(7), size: Some(0), modified, ..Default::default() };
        assert_eq!(some, expected);
        assert_eq!(decode([0xFFFF, 1, 1, 1, 1, 1, 1, 1]).unwrap().mode, None, "a word of 16 bits, widened");
    }

    /// proves: NFS2-SATTR-b
    #[test]
    fn a_million_microseconds_are_the_servers_present() {
        let times = |words: [u32; 4]| {
            let [a, b, c, d] = words;
            let new = decode([ABSENT, ABSENT, ABSENT, ABSENT, a, b, c, d]).unwrap();
            (new.accessed, new.modified)
        };
        let (at, client) = (5, SetTime::Client(Time { seconds: 5, microseconds: 6 }));
        assert_eq!(times([at, 6, at, PRESENT]), (SetTime::Server, SetTime::Server), "both");
        assert_eq!(times([ABSENT, ABSENT, at, PRESENT]), (SetTime::Keep, SetTime::Server));
        assert_eq!(times([at, PRESENT, at, 6]), (SetTime::Server, client));
        assert!(decode([ABSENT, ABSENT, ABSENT, ABSENT, at, PRESENT + 1, at, 6]).is_err());
    }
}
