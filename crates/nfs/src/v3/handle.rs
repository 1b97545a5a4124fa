//! File handles: up to 64 octets that mean something to the server alone.

use bytes::Bytes;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::fmt;

/// The most octets in a handle (`NFS3_FHSIZE`).
pub const MAX_HANDLE_OCTETS: usize = 64;

/// A file handle (`nfs_fh3`): a length word and up to 64 octets.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Handle(Bytes);

/// A handle of more than 64 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleTooLong {
    /// How many there were.
    pub octets: usize,
}

impl fmt::Display for HandleTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a file handle of {} octets, at most {MAX_HANDLE_OCTETS} are allowed", self.octets)
    }
}

impl std::error::Error for HandleTooLong {}

impl Handle {
    /// A handle of these octets.
    ///
    /// # Errors
    /// If there are more than 64.
    pub fn new(octets: &[u8]) -> Result<Self, HandleTooLong> {
        if octets.len() > MAX_HANDLE_OCTETS {
            return Err(HandleTooLong { octets: octets.len() });
        }
        Ok(Self(Bytes::copy_from_slice(octets)))
    }

    /// The octets.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The octets, shared.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl TryFrom<Bytes> for Handle {
    type Error = HandleTooLong;

    /// A handle of these octets, shared: whoever keeps it keeps them.
    fn try_from(octets: Bytes) -> Result<Self, HandleTooLong> {
        match octets.len() {
            len if len > MAX_HANDLE_OCTETS => Err(HandleTooLong { octets: len }),
            _ => Ok(Self(octets)),
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(")?;
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        f.write_str(")")
    }
}

impl Encode for Handle {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(&self.0);
    }
}

impl Decode for Handle {
    /// Copies the octets, so that a handle that is kept does not keep the message.
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque(MAX_HANDLE_OCTETS).map(|octets| Self(Bytes::copy_from_slice(&octets)))
    }
}
