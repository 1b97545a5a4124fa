//! Results: a value on success, only a status on failure.

use super::Status;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// The results of a procedure: a status word, and the returned value on success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// `NFS_OK`, and what the procedure returns.
    Ok(T),
    /// Another status, never [`Status::OK`].
    Failed(Status),
}

impl<T> Answer<T> {
    /// As a `Result`.
    ///
    /// # Errors
    /// The status, if it is a failure.
    pub fn into_result(self) -> Result<T, Status> {
        match self {
            Answer::Ok(ok) => Ok(ok),
            Answer::Failed(status) => Err(status),
        }
    }

    /// The status word.
    pub fn status(&self) -> Status {
        match self {
            Answer::Ok(_) => Status::OK,
            Answer::Failed(status) => *status,
        }
    }
}

impl<T> From<Result<T, Status>> for Answer<T> {
    fn from(result: Result<T, Status>) -> Self {
        match result {
            Ok(ok) => Answer::Ok(ok),
            Err(status) => Answer::Failed(status),
        }
    }
}

impl<T: Encode> Encode for Answer<T> {
    fn encode(&self, encoder: &mut Encoder) {
        self.status().encode(encoder);
        if let Answer::Ok(ok) = self {
            ok.encode(encoder);
        }
    }
}

impl<T: Decode> Decode for Answer<T> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        match Status::decode(decoder)? {
            Status::OK => T::decode(decoder).map(Answer::Ok),
            status => Ok(Answer::Failed(status)),
        }
    }
}
