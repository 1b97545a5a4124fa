//! The basic types: names, owners, cookies, and offsets of either width.

use crate::v3::Handle;
use rpcrdma_xdr::{Decode, Encode};

/// The longest name of a host, in octets (`LM_MAXSTRLEN`).
// NLM-6.1.4-c
pub const MAX_NAME_BYTES: usize = 1024;

/// The longest owner or cookie, in octets (`MAX_NETOBJ_SZ`).
// NLM-6.1.4-c
pub const MAX_OBJECT_BYTES: usize = 1024;

xdr_bytes! {
    /// The name that a host gives itself (`caller_name`): any octets. Nothing says that it is true.
    pub struct CallerName: MAX_NAME_BYTES, copied;

    /// The owner of a lock or a share on a host (`oh`): octets that only the host understands.
    pub struct OwnerHandle: MAX_OBJECT_BYTES, copied;

    /// A value that a caller puts into a call to recognise the answer.
    pub struct Cookie: MAX_OBJECT_BYTES, copied;
}

/// The type of offsets and lengths: `u32` in versions 1 and 3, `u64` in version 4.
pub trait Width: Encode + Decode + Copy + Into<u64> + narrowed::Narrow + Send + 'static {}

impl Width for u32 {}
impl Width for u64 {}

/// Converts from 64 bits, for the code that answers. No other type has a width.
pub(super) mod narrowed {
    /// How this width expresses a place in a file.
    pub trait Narrow {
        /// This offset, or the last one that fits.
        fn offset(offset: u64) -> Self;
        /// This length. One that does not fit reaches to the end of the file, which is 0.
        fn length(length: u64) -> Self;
    }

    impl Narrow for u32 {
        fn offset(offset: u64) -> Self {
            Self::try_from(offset).unwrap_or(Self::MAX)
        }

        fn length(length: u64) -> Self {
            // NLM-6.1.4-f
            Self::try_from(length).unwrap_or(0)
        }
    }

    impl Narrow for u64 {
        fn offset(offset: u64) -> Self {
            offset
        }

        fn length(length: u64) -> Self {
            length
        }
    }
}

/// A type that has the same meaning in version 4, with offsets of 64 bits.
pub trait Widen {
    /// The type of version 4.
    type Wide;

    /// The value in version 4.
    fn widen(self) -> Self::Wide;
}

impl<W: Width> Widen for W {
    type Wide = u64;

    fn widen(self) -> u64 {
        self.into()
    }
}

macro_rules! as_wide_as_they_are {
    ($($type:ty),*) => {$(
        impl Widen for $type {
            type Wide = Self;

            fn widen(self) -> Self {
                self
            }
        }
    )*};
}

as_wide_as_they_are!(bool, i32, CallerName, OwnerHandle, Cookie, Handle);
