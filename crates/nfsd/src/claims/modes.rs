//! What a file is opened for, and what an open denies others.

macro_rules! bits {
    ($(#[$meta:meta])* $name:ident, $least:literal, $($(#[$each:meta])* $one:ident = $bits:literal),*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub(super) u8);

        impl $name {
            $($(#[$each])* pub const $one: Self = Self($bits);)*

            /// From the bits of version 4 and of NLM, if they are any that may be asked for.
            pub fn from_bits(bits: u32) -> Option<Self> {
                u8::try_from(bits).ok().filter(|bits| ($least..=3).contains(bits)).map(Self)
            }

            /// The bits.
            pub fn bits(self) -> u32 {
                u32::from(self.0)
            }

            /// The bits of either.
            pub fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether all of `other` is in it.
            pub fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }
    };
}

bits! {
    /// What a file is opened for. Not for nothing: version 4 answers NFS4ERR_INVAL where [`from_bits`](Self::from_bits)
    /// makes nothing of the bits (after taking off those that ask for delegations).
    Access, 1,
    /// Reading.
    READ = 1,
    /// Writing.
    WRITE = 2,
    /// Both.
    BOTH = 3
}

bits! {
    /// What an open denies others.
    Deny, 0,
    /// Nothing.
    NONE = 0,
    /// Reading.
    READ = 1,
    /// Writing.
    WRITE = 2,
    /// Both.
    BOTH = 3
}
