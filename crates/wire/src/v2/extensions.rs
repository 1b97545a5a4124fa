//! What an embedder adds to version 2 (draft appendix B).
//!
//! The decoder passes on header types and properties that are not in the draft as octets. With this trait a receiver
//! says which of them it knows; neither the decoder nor the judgement changes. Owns nothing.

use super::OtherProperty;
use std::fmt;

/// Says which header types and properties a receiver knows beyond the draft's.
// V2-5-a, V2-B.1-a
pub trait Extensions {
    /// Whether the receiver accepts messages of this header type. [`judge`](super::judge) never asks about the draft's
    /// own types.
    fn header_type(&self, code: u32) -> bool;

    /// Whether the receiver knows the property, and its data fits. [`judge`](super::judge) never asks about the draft's
    /// own properties, nor about empty data, which mean the default.
    fn property(&self, property: &OtherProperty) -> Fit;
}

/// How a property's data fits its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The receiver does not know the property, and skips it.
    Unknown,
    /// The data are a value of the property's type.
    Fits,
    /// The data are not a value of its type: the receiver answers the message with `RDMA2_ERR_BAD_PROPVAL`.
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
