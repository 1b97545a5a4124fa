//! The ways to name a file: a handle, a name in a directory, or both.

use super::Found;
use bytes::Bytes;
use rpcrdma_nfs::{v2, v3, v4};
use std::fmt;

/// The most bytes in a handle of any version.
pub const MAX_HANDLE_BYTES: usize = 128;

/// A file handle: bytes that only the server understands. Clones share them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Handle(Bytes);

impl Handle {
    /// A handle of these bytes; `None` if there are more than [`MAX_HANDLE_BYTES`].
    pub fn new(octets: &[u8]) -> Option<Self> {
        (octets.len() <= MAX_HANDLE_BYTES).then(|| Self(Bytes::copy_from_slice(octets)))
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, shared.
    pub(super) fn bytes(&self) -> Bytes {
        self.0.clone()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(")?;
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        f.write_str(")")
    }
}

impl From<v2::Handle> for Handle {
    fn from(handle: v2::Handle) -> Self {
        Self(Bytes::copy_from_slice(&handle.0))
    }
}

impl From<v3::Handle> for Handle {
    fn from(handle: v3::Handle) -> Self {
        Self(handle.to_bytes())
    }
}

impl From<&v4::Handle> for Handle {
    fn from(handle: &v4::Handle) -> Self {
        Self(Bytes::copy_from_slice(handle.as_slice()))
    }
}

/// A name in a directory: any bytes, not only UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(pub Bytes);

impl Name {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Name {
    fn from(octets: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(octets))
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A name in an existing directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The directory.
    pub directory: Handle,
    /// The name in it.
    pub name: Name,
}

/// A file to open: its handle, and the name by which it was found. Version 4.0 opens files by name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its handle.
    pub file: Handle,
    /// Where it was found, if that is known.
    pub place: Option<Place>,
}

impl From<&Found> for Node {
    fn from(found: &Found) -> Self {
        Self { file: found.file.clone(), place: found.place.clone() }
    }
}

impl From<Found> for Node {
    fn from(found: Found) -> Self {
        Self { file: found.file, place: found.place }
    }
}

impl From<&Handle> for Node {
    fn from(file: &Handle) -> Self {
        Self { file: file.clone(), place: None }
    }
}
