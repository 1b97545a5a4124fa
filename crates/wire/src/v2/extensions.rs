//! What an embedder adds to version 2 (draft appendix B).
//!
//! Header types and properties that are not in the draft pass through the decoder as octets. A receiver that knows some
//! of them says so here; neither the decoder nor the judgement changes. Owns nothing.

use super::OtherProperty;
use std::fmt;

/// Which header types and properties beyond the draft's a receiver knows.
// V2-5-a, V2-B.1-a
pub trait Extensions {
    /// Whether messages of this header type are taken. It is never asked about the draft's own types.
    fn header_type(&self, code: u32) -> bool;

    /// What the property's data is. It is never asked about the draft's own properties, nor about empty data, which
    /// stand for the default.
    fn property(&self, property: &OtherProperty) -> Fit;
}

/// What a receiver makes of a property's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It does not know the property, and skips it.
    Unknown,
    /// It is a value of the property's type.
    Fits,
    /// It is not: the message is answered with `RDMA2_ERR_BAD_PROPVAL`.
    Unfit,
}

/// The draft, and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoExtensions;

impl Extensions for NoExtensions {
    fn header_type(&self, _code: u32) -> bool {
        false
    }

    fn property(&self, _property: &OtherProperty) -> Fit {
        Fit::Unknown
    }
}

impl fmt::Debug for dyn Extensions + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Extensions")
    }
}
