//! What an end has announced about itself, with defaults for what it has not announced (draft section 5.2, table 1).
//!
//! Owns at most six values. Nothing that a peer announces is an error here: code that uses a size that is too small to
//! be useful raises it to a floor.

use super::{Property, PropertyId, PropertySet};
use bytes::Bytes;

/// Octets that every Send and Receive can hold, whatever a peer announces: what version 1 guarantees.
// V2-5.2.2-d
pub const MIN_SIZE_OCTETS: u32 = 1024;

/// Support for the reverse direction.
// V2-5.2.5-b, V2-5.2.5-d
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReverseSupport {
    /// `RDMA2_RVRSDIR_NONE` (0).
    #[default]
    None,
    /// `RDMA2_RVRSDIR_SIMPLE` (1): one Send for each message, no chunks.
    Simple,
    /// `RDMA2_RVRSDIR_CONT` (2): continued messages too, no chunks.
    Continued,
    /// `RDMA2_RVRSDIR_GENL` (3): as in the forward direction.
    General,
}

impl ReverseSupport {
    /// The level on the wire.
    pub fn level(self) -> u32 {
        match self {
            ReverseSupport::None => 0,
            ReverseSupport::Simple => 1,
            ReverseSupport::Continued => 2,
            ReverseSupport::General => 3,
        }
    }

    /// The support that a level means. An unknown level promises nothing.
    // V2-5.2.5-f
    pub fn from_level(level: u32) -> Self {
        match level {
            1 => ReverseSupport::Simple,
            2 => ReverseSupport::Continued,
            3 => ReverseSupport::General,
            _ => ReverseSupport::None,
        }
    }
}

/// The properties of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Octets of the largest Send.
    pub send_size: u32,
    /// Octets of the smallest Receive buffer.
    pub receive_size: u32,
    /// Octets of the largest segment that the end handles.
    pub segment_size: u32,
    /// The most segments in one header that the end handles.
    pub segment_count: u32,
    /// What the end can do in the reverse direction.
    pub reverse: ReverseSupport,
    /// Host authentication material: the latest, if the end has sent any.
    pub host_auth: Option<Bytes>,
}

// V2-5.2-b
impl Default for Properties {
    /// Table 1's defaults.
    fn default() -> Self {
        Self {
            send_size: 4096,
            receive_size: 4096,
            segment_size: 1 << 20,
            segment_count: 16,
            reverse: ReverseSupport::None,
            host_auth: None,
        }
    }
}

impl Properties {
    /// Takes over the values of a set; if it repeats a property, the last value. The caller handles properties that the
    /// draft does not define.
    // V2-5.1-h, V2-5.1-l
    pub fn apply(&mut self, set: &PropertySet) {
        for property in &set.0 {
            match property {
                // V2-5.1-b
                Property::Default(id) => self.reset(*id),
                Property::SendSize(octets) => self.send_size = *octets,
                Property::ReceiveSize(octets) => self.receive_size = *octets,
                Property::SegmentSize(octets) => self.segment_size = *octets,
                Property::SegmentCount(count) => self.segment_count = *count,
                Property::Reverse(level) => self.reverse = ReverseSupport::from_level(*level),
                Property::HostAuth(material) => self.host_auth = Some(material.clone()),
                // V2-5.1-g, V2-6.3.4-e
                Property::Other(_) => {}
            }
        }
    }

    fn reset(&mut self, id: PropertyId) {
        let default = Self::default();
        match id {
            PropertyId::SendSize => self.send_size = default.send_size,
            PropertyId::ReceiveSize => self.receive_size = default.receive_size,
            PropertyId::SegmentSize => self.segment_size = default.segment_size,
            PropertyId::SegmentCount => self.segment_count = default.segment_count,
            PropertyId::Reverse => self.reverse = default.reverse,
            PropertyId::HostAuth => self.host_auth = default.host_auth,
        }
    }

    /// The set that announces these properties: each once, without those that the end does not have.
    // V2-5.1-l
    pub fn to_set(&self) -> PropertySet {
        let numbers = [
            Property::SendSize(self.send_size),
            Property::ReceiveSize(self.receive_size),
            Property::SegmentSize(self.segment_size),
            Property::SegmentCount(self.segment_count),
            Property::Reverse(self.reverse.level()),
        ];
        PropertySet(numbers.into_iter().chain(self.host_auth.clone().map(Property::HostAuth)).collect())
    }

    /// Octets of the largest message that an end with these properties may send to `receiver`.
    // V2-4.2.2-a, V2-4.2.2-d, V2-4.2.2-e, V2-4.2.2-f
    // V2-11.3-a
    pub fn inline_threshold_to(&self, receiver: &Properties) -> u32 {
        self.send_size.max(MIN_SIZE_OCTETS).min(receiver.receive_size.max(MIN_SIZE_OCTETS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v2::OtherProperty;

    /// proves: V2-5.2-b, V2-4.2.2-c, V2-5.2.1-a, V2-5.2.2-a, V2-5.2.3-a, V2-5.2.4-a, V2-5.2.5-a, V2-4.2.3.1-b
    #[test]
    fn what_is_not_announced_has_the_defaults() {
        let properties = Properties::default();
        let Properties { send_size, receive_size, segment_size, segment_count, reverse, host_auth } = &properties;
        assert_eq!([*send_size, *receive_size, *segment_size, *segment_count], [4096, 4096, 1_048_576, 16]);
        assert_eq!((*reverse, host_auth), (ReverseSupport::None, &None));
        assert_eq!(properties.inline_threshold_to(&properties), 4096);
    }

    /// proves: V2-5.1-b, V2-5.1-l, V2-5.1-g
    #[test]
    fn the_last_of_repeated_properties_counts_and_unknown_ones_do_not() {
        let mut properties = Properties::default();
        let other = Property::Other(OtherProperty::new(99, Bytes::from_static(b"x")).unwrap());
        let auth = Property::HostAuth(Bytes::from_static(b"a"));
        properties.apply(&PropertySet(vec![Property::SendSize(1), other, auth, Property::SendSize(9000)]));
        let expected = Properties { send_size: 9000, host_auth: Some(Bytes::from_static(b"a")), ..Default::default() };
        assert_eq!(properties, expected);
        properties.apply(&PropertySet(PropertyId::ALL.map(Property::Default).to_vec()));
        assert_eq!(properties, Properties::default());
    }

    /// proves: V2-4.2.2-a, V2-4.2.2-b, V2-4.2.2-d, V2-4.2.2-e, V2-4.2.2-f, V2-5.2.2-d
    #[test]
    fn a_threshold_is_the_smaller_of_both_ends_and_at_least_the_floor() {
        let end = |send_size, receive_size| Properties { send_size, receive_size, ..Properties::default() };
        let (client, server) = (end(8192, 65_536), end(16_384, 4096));
        assert_eq!(client.inline_threshold_to(&server), 4096);
        assert_eq!(server.inline_threshold_to(&client), 16_384);
        for small in [0, 1, MIN_SIZE_OCTETS - 1, MIN_SIZE_OCTETS] {
            assert_eq!(end(8192, 0).inline_threshold_to(&end(0, small)), MIN_SIZE_OCTETS);
            assert_eq!(end(small, 0).inline_threshold_to(&end(0, 8192)), MIN_SIZE_OCTETS);
        }
        assert_eq!(end(u32::MAX, 0).inline_threshold_to(&end(0, MIN_SIZE_OCTETS + 1)), MIN_SIZE_OCTETS + 1);
    }

    /// proves: V2-5.2.5-b, V2-5.2.5-d, V2-5.2.5-f
    #[test]
    fn four_levels_are_told_apart_and_others_are_none() {
        for level in 0..4 {
            assert_eq!(ReverseSupport::from_level(level).level(), level);
        }
        assert_eq!(ReverseSupport::from_level(2), ReverseSupport::Continued);
        assert_eq!(ReverseSupport::from_level(4), ReverseSupport::None);
        assert_eq!(ReverseSupport::from_level(u32::MAX), ReverseSupport::None);
    }

    /// proves: V2-5.1-l
    #[test]
    fn an_announcement_is_read_as_it_was_meant() {
        let mut properties = Properties {
            send_size: 1,
            receive_size: 2,
            segment_size: 3,
            segment_count: 4,
            reverse: ReverseSupport::General,
            host_auth: None,
        };
        let mut read = Properties::default();
        read.apply(&properties.to_set());
        assert_eq!(read, properties);
        assert_eq!(properties.to_set().0.len(), 5, "no authentication where there is none");
        properties.host_auth = Some(Bytes::from_static(b"secret"));
        read.apply(&properties.to_set());
        assert_eq!(read, properties);
    }
}
