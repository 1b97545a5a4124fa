//! File handles: up to 64 octets that only the server understands.

use bytes::Bytes;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::{
    fmt,
    hash::{Hash, Hasher},
};

/// The most octets in a handle (`NFS3_FHSIZE`).
pub const MAX_HANDLE_BYTES: usize = 64;

/// A file handle (`nfs_fh3`): a length word and up to 64 octets. It needs no memory of its own.
#[derive(Clone)]
pub struct Handle {
    len: u8,
    octets: [u8; MAX_HANDLE_BYTES],
}

/// A handle of more than 64 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleTooLong {
    /// How many octets there were.
    pub octets: usize,
}

impl fmt::Display for HandleTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a file handle of {} bytes, at most {MAX_HANDLE_BYTES} are allowed", self.octets)
    }
}

impl std::error::Error for HandleTooLong {}

impl Handle {
    /// A handle of these octets.
    ///
    /// # Errors
    /// If there are more than 64.
    pub fn new(octets: &[u8]) -> Result<Self, HandleTooLong> {
        let mut handle = Self { len: octets.len() as u8, octets: [0; MAX_HANDLE_BYTES] };
        match handle.octets.get_mut(..octets.len()) {
            Some(room) => room.copy_from_slice(octets),
            None => return Err(HandleTooLong { octets: octets.len() }),
        }
        Ok(handle)
    }

    /// The octets.
    pub fn as_slice(&self) -> &[u8] {
        self.octets.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// A copy of the octets.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_slice())
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Handle {}

impl Hash for Handle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl TryFrom<Bytes> for Handle {
    type Error = HandleTooLong;

    /// A handle of these octets.
    fn try_from(octets: Bytes) -> Result<Self, HandleTooLong> {
        Self::new(&octets)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(")?;
        self.as_slice().iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        f.write_str(")")
    }
}

impl Encode for Handle {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(self.as_slice());
    }
}

impl Decode for Handle {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let handle = decoder.opaque_with(MAX_HANDLE_BYTES, Self::new)?;
        handle.map_err(|long| decoder.bad_value(long.octets as u32, "length of a file handle"))
    }
}
