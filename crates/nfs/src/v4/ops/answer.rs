//! Results of one operation: one value on success; on failure a status, and for a few statuses further fields.

use crate::v4::Status;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// The results of an operation. In the encoding the status comes first, [`Status::OK`] or the failure's.
pub type Answer<T = (), F = Status> = Result<T, F>;

/// The failure of an operation: a status, never [`Status::OK`], and the fields that the protocol adds to it.
pub trait Failure: From<Status> {
    /// The status.
    fn status(&self) -> Status;

    /// Appends what follows the status.
    fn encode_rest(&self, encoder: &mut Encoder);

    /// Reads what follows `status`.
    ///
    /// # Errors
    /// If the octets are not what the operation adds to this status.
    fn decode_rest(status: Status, decoder: &mut Decoder) -> Result<Self, DecodeError>;
}

impl Failure for Status {
    fn status(&self) -> Status {
        *self
    }

    fn encode_rest(&self, _: &mut Encoder) {}

    fn decode_rest(status: Status, _: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(status)
    }
}

/// A failure that has further fields if its status is `STATUS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal<T, const STATUS: u32> {
    /// The status is `STATUS`.
    Told(T),
    /// The status is another.
    Plain(Status),
}

impl<T: Default, const STATUS: u32> From<Status> for Refusal<T, STATUS> {
    fn from(status: Status) -> Self {
        if status.0 == STATUS { Self::Told(T::default()) } else { Self::Plain(status) }
    }
}

impl<T: Encode + Decode + Default, const STATUS: u32> Failure for Refusal<T, STATUS> {
    fn status(&self) -> Status {
        match self {
            Self::Told(_) => Status(STATUS),
            Self::Plain(status) => *status,
        }
    }

    fn encode_rest(&self, encoder: &mut Encoder) {
        match self {
            Self::Told(more) => more.encode(encoder),
            Self::Plain(status) if status.0 == STATUS => T::default().encode(encoder),
            Self::Plain(_) => {}
        }
    }

    fn decode_rest(status: Status, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        if status.0 == STATUS { T::decode(decoder).map(Self::Told) } else { Ok(Self::Plain(status)) }
    }
}

/// Appends the status, and what belongs to it.
pub(in crate::v4) fn encode<T: Encode, F: Failure>(answer: &Answer<T, F>, encoder: &mut Encoder) {
    match answer {
        Ok(value) => {
            Status::OK.encode(encoder);
            value.encode(encoder);
        }
        Err(failure) => {
            failure.status().encode(encoder);
            failure.encode_rest(encoder);
        }
    }
}

/// Reads a status, and what belongs to it.
pub(in crate::v4) fn decode<T: Decode, F: Failure>(decoder: &mut Decoder) -> Result<Answer<T, F>, DecodeError> {
    match Status::decode(decoder)? {
        Status::OK => T::decode(decoder).map(Ok),
        status => F::decode_rest(status, decoder).map(Err),
    }
}

/// The status of an answer.
pub(in crate::v4) fn status<T, F: Failure>(answer: &Answer<T, F>) -> Status {
    answer.as_ref().err().map_or(Status::OK, F::status)
}

#[cfg(test)]
impl<T: crate::sample::Sample, const STATUS: u32> crate::sample::Sample for Refusal<T, STATUS> {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        match draw.below(3) {
            0 => Self::Told(T::sample(draw)),
            _ => Self::Plain(draw.one_of(&[Status::IO, Status::DELAY, Status(4711)])),
        }
    }
}
