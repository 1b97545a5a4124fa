//! A set of transport properties: the body of `RDMA2_CONNPROP` (draft sections 5.1 and 6.3.4).
//!
//! A count, then the properties in any order. Owns the decoded properties. The decoder allocates as it reads, never for
//! the count: each property takes at least eight octets of the message. The first property that is wrong makes the
//! whole set wrong.

use super::{Extensions, Fit, OtherProperty, Property, PropertyError, RawProperty};
use crate::cursor::Cursor;
use bytes::{BufMut, Bytes};

/// Properties, in the order of the message.
// V2-5.1-a, V2-5.1-h, V2-6.3.4-a
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertySet(pub Vec<Property>);

impl PropertySet {
    /// Octets of the count.
    pub const COUNT_OCTETS: usize = 4;

    /// Decodes a whole set, also one joined from the parts in several messages. Returns it with its length in octets.
    ///
    /// # Errors
    /// If the octets end before the count or the head of a property, or a property's data is wrong.
    pub fn decode(octets: &Bytes) -> Result<(Self, usize), PropertyError> {
        let mut cursor = Cursor::new(octets);
        let set = Self::decode_from(&mut cursor, octets)?;
        Ok((set, cursor.position()))
    }

    /// Decodes a whole set, and leaves the properties' data as octets.
    ///
    /// # Errors
    /// If the octets end before the count or the head of a property, or before a property's data ends.
    pub fn decode_raw(octets: &Bytes) -> Result<Vec<RawProperty>, PropertyError> {
        let mut cursor = Cursor::new(octets);
        let count = cursor.u32()?;
        (0..count).map(|_| RawProperty::decode(&mut cursor, octets)).collect()
    }

    pub(crate) fn decode_from(cursor: &mut Cursor<'_>, message: &Bytes) -> Result<Self, PropertyError> {
        let count = cursor.u32()?;
        let mut properties = Vec::new();
        for _ in 0..count {
            properties.push(RawProperty::decode(cursor, message)?.try_into()?);
        }
        Ok(Self(properties))
    }

    /// Whether all data of properties that `extensions` knows are of their types. Empty data mean the default.
    pub fn fits(&self, extensions: &dyn Extensions) -> bool {
        self.others().filter(|other| !other.data().is_empty()).all(|other| extensions.property(other) != Fit::Unfit)
    }

    /// The properties that the draft does not define.
    pub fn others(&self) -> impl Iterator<Item = &OtherProperty> {
        self.0.iter().filter_map(|property| match property {
            Property::Other(other) => Some(other),
            _ => None,
        })
    }

    /// Octets of the encoded set.
    pub fn encoded_len(&self) -> usize {
        Self::COUNT_OCTETS + self.0.iter().map(Property::encoded_len).sum::<usize>()
    }

    /// Appends the encoded set.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u32(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        for property in &self.0 {
            property.encode(out);
        }
    }

    /// Splits the set into sets of at most `max_bytes` each when encoded; at least one set. A property that is larger
    /// than that is alone in a set that is too large, which needs several messages.
    // V2-6.3.4-c
    pub fn split(self, max_bytes: usize) -> Vec<PropertySet> {
        let mut sets = Vec::new();
        let (mut set, mut octets) = (PropertySet::default(), Self::COUNT_OCTETS);
        for property in self.0 {
            let len = property.encoded_len();
            if !set.0.is_empty() && octets + len > max_bytes {
                sets.push(std::mem::take(&mut set));
                octets = Self::COUNT_OCTETS;
            }
            octets += len;
            set.0.push(property);
        }
        sets.push(set);
        sets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Bytes {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// proves: V2-5.1-a, V2-5.1-h, V2-6.3.4-a
    #[test]
    fn properties_come_in_any_order_and_number() {
        let octets = words(&[3, 4, 4, 9, 1, 0, 99, 5, 0x0102_0304, 0x0500_0000]);
        let (set, len) = PropertySet::decode(&octets).unwrap();
        assert_eq!(len, octets.len());
        let other = OtherProperty::new(99, Bytes::from_static(&[1, 2, 3, 4, 5])).unwrap();
        let first = [Property::SegmentCount(9), Property::Default(crate::v2::PropertyId::SendSize)];
        assert_eq!(set.0[..2], first);
        assert_eq!(set.0[2], Property::Other(other));
        let mut out = Vec::new();
        set.encode(&mut out);
        assert_eq!(out, octets);
        assert_eq!(PropertySet::decode(&words(&[0])).unwrap(), (PropertySet::default(), 4));
    }

    /// proves: V2-5.1-d, V2-5.1-k
    #[test]
    fn what_is_wrong_inside_a_property_is_told_from_a_set_that_ends() {
        let is_value = |octets: Bytes| PropertySet::decode(&octets).unwrap_err().is_value();
        assert!(!is_value(Bytes::new()), "no count");
        assert!(!is_value(words(&[1])), "no property");
        assert!(!is_value(words(&[1, 1])), "half a head");
        assert!(!is_value(words(&[u32::MAX, 1, 4, 7])), "a second head is missing");
        assert!(is_value(words(&[1, 1, 4])), "no data");
        assert!(is_value(words(&[1, 99, u32::MAX, 0])), "data of an unknown property beyond the message");
        assert!(is_value(words(&[u32::MAX, 99, 5, 0])), "before the next head is missed");
        assert!(is_value(words(&[1, 99, 3, 0]).slice(..15)), "the padding is missing");
    }

    /// proves: V2-6.3.4-c
    #[test]
    fn a_set_is_split_between_properties() {
        let set = PropertySet(vec![Property::SendSize(1), Property::ReceiveSize(2), Property::SegmentSize(3)]);
        assert_eq!(set.encoded_len(), 40);
        assert_eq!(set.clone().split(40).len(), 1);
        let two = set.clone().split(39);
        assert_eq!(two.iter().map(|set| set.0.len()).collect::<Vec<_>>(), [2, 1]);
        assert!(two.iter().all(|set| set.encoded_len() <= 39));
        assert_eq!(set.clone().split(0).len(), 3);
        assert_eq!(PropertySet::default().split(0), [PropertySet::default()]);
        assert_eq!(PropertySet(two.into_iter().flat_map(|set| set.0).collect()), set);
    }
}
