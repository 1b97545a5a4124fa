//! Results: one value on success, another on failure; the status before them says which.

use super::Status;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// The results of a procedure: a status word, then what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T, F> {
    /// `NFS3_OK`, and what the procedure returns.
    Ok(T),
    /// Another status, and what the procedure returns in spite of it.
    Failed(Failure<F>),
}

/// Why a procedure failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<F> {
    /// The status, never [`Status::OK`].
    pub status: Status,
    /// What the procedure returns in spite of it, mostly attributes.
    pub info: F,
}

impl<T, F> Answer<T, F> {
    /// A failure.
    pub fn failed(status: Status, info: F) -> Self {
        Answer::Failed(Failure { status, info })
    }

    /// As a `Result`.
    ///
    /// # Errors
    /// The failure, if it is one.
    pub fn into_result(self) -> Result<T, Failure<F>> {
        match self {
            Answer::Ok(ok) => Ok(ok),
            Answer::Failed(failure) => Err(failure),
        }
    }

    /// The status word.
    pub fn status(&self) -> Status {
        match self {
            Answer::Ok(_) => Status::OK,
            Answer::Failed(failure) => failure.status,
        }
    }
}

impl<T: Encode, F: Encode> Encode for Answer<T, F> {
    fn encode(&self, encoder: &mut Encoder) {
        self.status().encode(encoder);
        match self {
            Answer::Ok(ok) => ok.encode(encoder),
            Answer::Failed(failure) => failure.info.encode(encoder),
        }
    }
}

impl<T: Decode, F: Decode> Decode for Answer<T, F> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        match Status::decode(decoder)? {
            Status::OK => T::decode(decoder).map(Answer::Ok),
            status => Ok(Answer::failed(status, F::decode(decoder)?)),
        }
    }
}
