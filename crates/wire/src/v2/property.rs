//! One transport property (draft sections 5.1 and 5.2).
//!
//! A code, an octet count, and that many octets with padding to a multiple of four. The draft's own properties become
//! values of their types; of other properties the octets stay as they are, and share the message's buffer. Data that is
//! not a value of its property's type is an error; so is a count that goes beyond the message.

use crate::cursor::Cursor;
use bytes::{BufMut, Bytes};
use rpcrdma_xdr::{DecodeError, UNIT};

/// The properties that the draft defines.
// V2-5.2-a, V2-5.2.1-a, V2-5.2.2-a, V2-5.2.3-a, V2-5.2.4-a, V2-5.2.5-a, V2-5.2.6-a, V2-B.4-b
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PropertyId {
    /// `RDMA2_PROPID_SBSIZ` (1): octets of the largest Send.
    SendSize,
    /// `RDMA2_PROPID_RBSIZ` (2): octets of the smallest Receive buffer.
    ReceiveSize,
    /// `RDMA2_PROPID_RSSIZ` (3): octets of the largest segment.
    SegmentSize,
    /// `RDMA2_PROPID_RCSIZ` (4): segments in one header.
    SegmentCount,
    /// `RDMA2_PROPID_BRS` (5): support for the reverse direction.
    Reverse,
    /// `RDMA2_PROPID_HOSTAUTH` (6): host authentication material.
    HostAuth,
}

impl PropertyId {
    /// All of them, in the order of their codes.
    pub const ALL: [PropertyId; 6] = [
        PropertyId::SendSize,
        PropertyId::ReceiveSize,
        PropertyId::SegmentSize,
        PropertyId::SegmentCount,
        PropertyId::Reverse,
        PropertyId::HostAuth,
    ];

    /// The code on the wire.
    pub fn code(self) -> u32 {
        match self {
            PropertyId::SendSize => 1,
            PropertyId::ReceiveSize => 2,
            PropertyId::SegmentSize => 3,
            PropertyId::SegmentCount => 4,
            PropertyId::Reverse => 5,
            PropertyId::HostAuth => 6,
        }
    }

    /// The property with this code, if the draft defines it.
    // V2-5.1-g, V2-B.4-a
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|id| id.code() == code)
    }

    /// The name in the draft, without the common prefix.
    pub fn name(self) -> &'static str {
        match self {
            PropertyId::SendSize => "SBSIZ",
            PropertyId::ReceiveSize => "RBSIZ",
            PropertyId::SegmentSize => "RSSIZ",
            PropertyId::SegmentCount => "RCSIZ",
            PropertyId::Reverse => "BRS",
            PropertyId::HostAuth => "HOSTAUTH",
        }
    }
}

/// A property's code and octets as they stand in the message.
// V2-5.1-a, V2-3.1.4.2-a
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawProperty {
    /// Its code.
    pub code: u32,
    /// Its octets, without padding.
    pub data: Bytes,
}

impl RawProperty {
    /// Octets of the code and the count.
    pub(crate) const HEAD_OCTETS: usize = 8;

    /// Decodes at `cursor`, which reads `message`.
    pub(crate) fn decode(cursor: &mut Cursor<'_>, message: &Bytes) -> Result<Self, PropertyError> {
        let code = cursor.u32()?;
        let len = usize::try_from(cursor.u32()?).unwrap_or(usize::MAX);
        let left = cursor.remaining();
        let padded = len.checked_next_multiple_of(UNIT).filter(|&padded| padded <= left);
        let Some(range) = padded.and_then(|padded| cursor.skip(padded)) else {
            // V2-5.1-d, V2-5.1-k
            return Err(PropertyError::Overrun { code, len, left });
        };
        Ok(Self { code, data: message.slice(range.start..range.start + len) })
    }
}

/// A property that the draft does not define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherProperty {
    code: u32,
    data: Bytes,
}

impl OtherProperty {
    /// A property of an extension. `None` if the draft defines the code, or if the data is longer than a word can
    /// count.
    pub fn new(code: u32, data: Bytes) -> Option<Self> {
        (PropertyId::from_code(code).is_none() && u32::try_from(data.len()).is_ok()).then_some(Self { code, data })
    }

    /// Its code.
    pub fn code(&self) -> u32 {
        self.code
    }

    /// Its octets, without padding. Empty data mean the default.
    pub fn data(&self) -> &Bytes {
        &self.data
    }
}

/// A property.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Property {
    /// No data: one of the draft's properties has its default.
    Default(PropertyId),
    /// Octets of the largest Send.
    SendSize(u32),
    /// Octets of the smallest Receive buffer.
    ReceiveSize(u32),
    /// Octets of the largest segment.
    SegmentSize(u32),
    /// Segments in one header.
    SegmentCount(u32),
    /// The level of support for the reverse direction; levels above 3 have no meaning yet.
    Reverse(u32),
    /// Host authentication material: the octets in the property's own counted array.
    HostAuth(Bytes),
    /// A property that the draft does not define.
    Other(OtherProperty),
}

impl Property {
    /// The property's code.
    pub fn code(&self) -> u32 {
        match self {
            Property::Other(other) => other.code,
            Property::Default(id) => id.code(),
            Property::SendSize(_) => PropertyId::SendSize.code(),
            Property::ReceiveSize(_) => PropertyId::ReceiveSize.code(),
            Property::SegmentSize(_) => PropertyId::SegmentSize.code(),
            Property::SegmentCount(_) => PropertyId::SegmentCount.code(),
            Property::Reverse(_) => PropertyId::Reverse.code(),
            Property::HostAuth(_) => PropertyId::HostAuth.code(),
        }
    }

    /// Octets of the encoded property.
    pub fn encoded_len(&self) -> usize {
        RawProperty::HEAD_OCTETS + self.data_len().next_multiple_of(UNIT)
    }

    /// Octets of its data, without padding.
    fn data_len(&self) -> usize {
        match self {
            Property::Default(_) => 0,
            Property::HostAuth(material) => 4 + material.len().next_multiple_of(UNIT),
            Property::Other(other) => other.data.len(),
            _ => 4,
        }
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u32(self.code());
        // Data that are longer than a word can count do not fit in a message either.
        out.put_u32(u32::try_from(self.data_len()).unwrap_or(u32::MAX));
        match self {
            Property::Default(_) => {}
            Property::SendSize(value)
            | Property::ReceiveSize(value)
            | Property::SegmentSize(value)
            | Property::SegmentCount(value)
            | Property::Reverse(value) => out.put_u32(*value),
            Property::HostAuth(material) => {
                out.put_u32(u32::try_from(material.len()).unwrap_or(u32::MAX));
                put_padded(material, out);
            }
            Property::Other(other) => put_padded(&other.data, out),
        }
    }
}

fn put_padded(octets: &[u8], out: &mut impl BufMut) {
    out.put_slice(octets);
    out.put_bytes(0, octets.len().next_multiple_of(UNIT) - octets.len());
}

impl TryFrom<RawProperty> for Property {
    type Error = PropertyError;

    fn try_from(raw: RawProperty) -> Result<Self, PropertyError> {
        let RawProperty { code, data } = raw;
        let Some(id) = PropertyId::from_code(code) else {
            return Ok(Property::Other(OtherProperty { code, data }));
        };
        if data.is_empty() {
            // V2-5.1-b
            return Ok(Property::Default(id));
        }
        // V2-5.1-c, V2-5.1-e, V2-5.1-f, V2-5.1-l
        let unfit = PropertyError::Unfit { code, len: data.len() };
        let number = || <[u8; 4]>::try_from(&data[..]).map(u32::from_be_bytes).map_err(|_| unfit.clone());
        Ok(match id {
            PropertyId::SendSize => Property::SendSize(number()?),
            PropertyId::ReceiveSize => Property::ReceiveSize(number()?),
            PropertyId::SegmentSize => Property::SegmentSize(number()?),
            PropertyId::SegmentCount => Property::SegmentCount(number()?),
            PropertyId::Reverse => Property::Reverse(number()?),
            PropertyId::HostAuth => Property::HostAuth(material(&data).ok_or(unfit)?),
        })
    }
}

/// The octets of the counted array that is the value of `RDMA2_PROPID_HOSTAUTH`.
// V2-5.2.6-c
fn material(data: &Bytes) -> Option<Bytes> {
    let (count, rest) = data.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_be_bytes(*count)).ok()?;
    (len.checked_next_multiple_of(UNIT) == Some(rest.len())).then(|| data.slice(4..4 + len))
}

/// Why octets are not a set of properties.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PropertyError {
    /// The set ends before its count, or before a property's code and count: the header cannot be parsed.
    #[error(transparent)]
    Xdr(#[from] DecodeError),
    /// A property's data goes beyond the message.
    #[error("the {len} bytes of property {code} are more than the {left} that are left")]
    Overrun {
        /// The property's code.
        code: u32,
        /// Its octets.
        len: usize,
        /// Octets that are left in the message.
        left: usize,
    },
    /// A property's data is not a value of its type.
    #[error("{len} bytes that are not a value of property {code}")]
    Unfit {
        /// The property's code.
        code: u32,
        /// Its octets.
        len: usize,
    },
}

impl PropertyError {
    /// Whether the error is about a property's value, so that the answer is `RDMA2_ERR_BAD_PROPVAL`.
    pub fn is_value(&self) -> bool {
        !matches!(self, PropertyError::Xdr(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(code: u32, data: &[u8]) -> Result<Property, PropertyError> {
        RawProperty { code, data: Bytes::copy_from_slice(data) }.try_into()
    }

    /// proves: V2-5.2-a, V2-5.1-b, V2-5.1-f, V2-5.1-e, V2-5.1-l, V2-7.2.2-a
    #[test]
    fn numbers_have_four_octets_or_none() {
        for id in PropertyId::ALL.into_iter().filter(|&id| id != PropertyId::HostAuth) {
            let property = typed(id.code(), &[0, 0, 0x20, 1]).unwrap();
            assert_eq!(property.code(), id.code());
            assert_ne!(property, Property::Default(id));
            assert_eq!(typed(id.code(), &[]), Ok(Property::Default(id)));
            for data in [&[0][..], &[0; 3], &[0; 5], &[0; 8]] {
                assert_eq!(typed(id.code(), data), Err(PropertyError::Unfit { code: id.code(), len: data.len() }));
            }
        }
        let names: Vec<_> = PropertyId::ALL.iter().map(|id| (id.code(), id.name())).collect();
        let expected = [(1, "SBSIZ"), (2, "RBSIZ"), (3, "RSSIZ"), (4, "RCSIZ"), (5, "BRS"), (6, "HOSTAUTH")];
        assert_eq!(names, expected);
    }

    /// proves: V2-5.2.6-a, V2-5.2.6-c, V2-3.1.4.1-a, V2-3.1.4.2-a
    #[test]
    fn authentication_material_is_an_array_in_an_array() {
        let read = |data: &[u8]| match typed(6, data) {
            Ok(Property::HostAuth(material)) => Some(material.to_vec()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        };
        assert_eq!(read(&[0, 0, 0, 0]), Some(vec![]));
        assert_eq!(read(&[0, 0, 0, 3, 7, 8, 9, 0]), Some(vec![7, 8, 9]));
        assert_eq!(read(&[0, 0, 0, 4, 7, 8, 9, 0]), Some(vec![7, 8, 9, 0]));
        assert_eq!(typed(6, &[]), Ok(Property::Default(PropertyId::HostAuth)));
        assert_eq!(read(&[0, 0]), None, "no count");
        assert_eq!(read(&[0, 0, 0, 5, 7, 8, 9, 0]), None, "beyond the data");
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 7, 8, 9, 0]), None, "far beyond the data");
        assert_eq!(read(&[0, 0, 0, 3, 7, 8, 9]), None, "no padding");
        assert_eq!(read(&[0, 0, 0, 0, 0, 0, 0, 0]), None, "more than the array");
    }

    /// proves: V2-5.1-g, V2-B.4-a, V2-B.4-b, V2-5-a
    #[test]
    fn what_is_not_known_stays_as_it_is() {
        for code in [0, 7, 99, 0x8000_0000, u32::MAX] {
            let Ok(Property::Other(other)) = typed(code, &[1, 2, 3]) else { panic!("{code}") };
            assert_eq!((other.code(), &other.data()[..]), (code, &[1, 2, 3][..]));
            let mut out = Vec::new();
            Property::Other(other).encode(&mut out);
            assert_eq!(out[4..], [0, 0, 0, 3, 1, 2, 3, 0]);
        }
        for id in PropertyId::ALL {
            assert_eq!(OtherProperty::new(id.code(), Bytes::new()), None);
        }
    }
}
