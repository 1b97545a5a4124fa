//! Attributes on the wire (`fattr4`): their set, and their values in octets.

use super::{Attribute, Value};
use crate::v4::Bitmap;
use bytes::Bytes;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// The most octets of values that are read: a list of 64 KiB, which is the longest that Linux reads, and everything
/// else.
pub const MAX_ATTRIBUTES_BYTES: usize = 96 << 10;

/// Attributes as they stand on the wire (`fattr4`): a set, and the values of its members in ascending order.
///
/// Two of them have the same meaning exactly if they are equal, which is what VERIFY and NVERIFY compare.
///
/// ```
/// use rpcrdma_nfs::v4::{Attribute, Bitmap, FileAttributes, Value};
/// let asked = Bitmap::of(&[Attribute::Size, Attribute::Mode, Attribute::Acl]);
/// let told = FileAttributes::tell(asked, |attribute| match attribute {
///     Attribute::Size => Some(Value::Size(4096)),
///     Attribute::Mode => Some(Value::Mode(0o644)),
///     _ => None,
/// });
/// assert_eq!(told.set, Bitmap::of(&[Attribute::Size, Attribute::Mode]), "what cannot be told is left out");
/// assert_eq!(told.values()?, [Value::Size(4096), Value::Mode(0o644)]);
/// # Ok::<(), rpcrdma_xdr::DecodeError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileAttributes {
    /// The set of attributes.
    pub set: Bitmap,
    /// Their values, one after the other.
    pub octets: Bytes,
}

impl FileAttributes {
    /// The attributes that a client asks for, as a server returns them: `value` is called for each in ascending order,
    /// and returns `None` for one that the server does not support. Unknown numbers are left out (RFC 8881 section
    /// 18.7.3).
    pub fn tell(asked: Bitmap, mut value: impl FnMut(Attribute) -> Option<Value>) -> Self {
        let mut set = Bitmap::EMPTY;
        let mut encoder = Encoder::new();
        for attribute in asked.iter().filter_map(Attribute::from_number) {
            if let Some(value) = value(attribute) {
                debug_assert_eq!(value.attribute(), attribute, "a value of another attribute");
                value.encode(&mut encoder);
                set.insert(attribute);
            }
        }
        Self { set, octets: encoder.finish().to_bytes() }
    }

    /// These values. The order does not matter; if an attribute has two, the first counts.
    pub fn of(values: &[Value]) -> Self {
        let asked = Bitmap::of_numbers(values.iter().map(|value| value.attribute() as u32));
        Self::tell(asked, |attribute| values.iter().find(|value| value.attribute() == attribute).cloned())
    }

    /// The values, in ascending order of their attributes.
    ///
    /// # Errors
    /// If the octets are not values of exactly these attributes, or an attribute is unknown, whose values have no known
    /// length. Positions in the error count from the first value.
    pub fn values(&self) -> Result<Vec<Value>, DecodeError> {
        self.each(Value::decode)
    }

    /// As [`values`](Self::values), with each value read by `read`.
    pub(super) fn each<T, E: From<DecodeError>>(
        &self,
        mut read: impl FnMut(Attribute, &mut Decoder) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let mut decoder = Decoder::new(self.octets.clone().into());
        let unknown = |decoder: &Decoder, number| DecodeError::BadValue {
            position: decoder.position(),
            value: number,
            what: "number of an attribute",
        };
        if self.set.has_more() {
            return Err(unknown(&decoder, u32::MAX).into());
        }
        let mut values = Vec::with_capacity(self.set.len());
        for number in self.set.iter() {
            let attribute = Attribute::from_number(number).ok_or_else(|| unknown(&decoder, number))?;
            values.push(read(attribute, &mut decoder)?);
        }
        // NFS4-8881-5.5-a, NFS4-8881-5.5-b
        decoder.finish()?;
        Ok(values)
    }
}

impl Encode for FileAttributes {
    fn encode(&self, encoder: &mut Encoder) {
        self.set.encode(encoder);
        encoder.opaque_shared(self.octets.clone());
    }
}

impl Decode for FileAttributes {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self { set: Decode::decode(decoder)?, octets: decoder.opaque(MAX_ATTRIBUTES_BYTES)? })
    }
}

#[cfg(test)]
impl crate::sample::Sample for FileAttributes {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        let known = Attribute::ALL.len();
        let asked = Bitmap::of_numbers((0..draw.below(4)).map(|_| draw.below(known) as u32));
        Self::tell(asked, |attribute| Some(Value::sample_of(attribute, draw)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Draw, Sample};
    use crate::v4::{FileType, Principal};

    /// The octets of a GETATTR answer, written by hand.
    /// proves: NFS4-8881-5.5-a
    #[test]
    fn values_stand_in_ascending_order() {
        let values = [Value::Owner(Principal::from("1000")), Value::Mode(0o644), Value::Type(FileType::Directory)];
        let told = FileAttributes::of(&values);
        let words = [2, 1 << 1, 1 << 1 | 1 << 4, 16, 2, 0o644, 4, u32::from_be_bytes(*b"1000")];
        let mut encoder = Encoder::new();
        told.encode(&mut encoder);
        assert_eq!(encoder.finish().to_bytes(), words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>());
        assert_eq!(told.values().unwrap(), [values[2].clone(), values[1].clone(), values[0].clone()]);
    }

    #[test]
    fn values_that_are_cut_or_followed_by_more_are_none() {
        for seed in 0..200 {
            let told = FileAttributes::sample(&mut Draw::new(seed));
            assert_eq!(FileAttributes::of(&told.values().unwrap()), told);
            let more = Bytes::from([&told.octets[..], &[0; 4]].concat());
            assert!(FileAttributes { set: told.set, octets: more }.values().is_err());
            for end in 0..told.octets.len() {
                assert!(FileAttributes { set: told.set, octets: told.octets.slice(..end) }.values().is_err());
            }
        }
    }

    #[test]
    fn what_nothing_here_knows_cannot_be_read() {
        for number in [87, 95, 96] {
            let told = FileAttributes { set: Bitmap::of_numbers([number]), octets: Bytes::new() };
            assert!(matches!(told.values(), Err(DecodeError::BadValue { .. })), "{number}");
        }
    }

    #[test]
    fn values_end_at_their_limit() {
        let of = |octets: usize| {
            let mut encoder = Encoder::new();
            FileAttributes { set: Bitmap::EMPTY, octets: vec![0; octets].into() }.encode(&mut encoder);
            FileAttributes::decode(&mut Decoder::new(encoder.finish().to_bytes().into()))
        };
        assert!(of(MAX_ATTRIBUTES_BYTES).is_ok());
        assert!(matches!(of(MAX_ATTRIBUTES_BYTES + 1), Err(DecodeError::TooLong { .. })));
    }
}
