//! Names and paths: any octets, not only UTF-8.

use bytes::Bytes;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::fmt;

/// The longest name that is read from a message, in octets. The protocol sets no limit; file systems have one (255 on
/// Linux), which a server answers with `NFS3ERR_NAMETOOLONG`, so somewhat longer names must be readable.
pub const MAX_NAME_BYTES: usize = 4096;

/// The longest path of a symbolic link, in octets: Linux's `PATH_MAX`.
pub const MAX_PATH_BYTES: usize = 4096;

macro_rules! octet_string {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub Bytes);

        impl $name {
            /// The octets.
            pub fn as_slice(&self) -> &[u8] {
                &self.0
            }
        }

        impl From<&[u8]> for $name {
            fn from(octets: &[u8]) -> Self {
                Self(Bytes::copy_from_slice(octets))
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::from(text.as_bytes())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"{}\"", self.0.escape_ascii())
            }
        }
    };
}

octet_string! {
    /// A name in a directory (`filename3`).
    Name
}

octet_string! {
    /// What a symbolic link points to (`nfspath3`): an item that may be placed directly.
    Path
}

impl Encode for Name {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(&self.0);
    }
}

impl Decode for Name {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque(MAX_NAME_BYTES).map(Self)
    }
}

impl Encode for Path {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.item(self.0.clone());
    }
}

impl Decode for Path {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.item(MAX_PATH_BYTES).map(|item| Self(item.into_bytes()))
    }
}
