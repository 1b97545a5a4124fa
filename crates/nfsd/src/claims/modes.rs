//! Access and deny modes: what an open uses a file for, and what it denies others.

macro_rules! bits {
    ($(#[$meta:meta])* $name:ident, $least:literal, $($(#[$each:meta])* $one:ident = $bits:literal),*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub(super) u8);

        impl $name {
            $($(#[$each])* pub const $one: Self = Self($bits);)*

            /// From the bits of version 4 and of NLM; `None` if a request must not have these bits.
            pub fn from_bits(bits: u32) -> Option<Self> {
                u8::try_from(bits).ok().filter(|bits| ($least..=3).contains(bits)).map(Self)
            }

            /// The bits.
            pub fn bits(self) -> u32 {
                u32::from(self.0)
            }

            /// The bits of both.
            pub fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether it has all bits of `other`.
            pub fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }
    };
}

bits! {
    /// What a file is opened for. Never for nothing: if [`from_bits`](Self::from_bits) returns `None`, version 4
    /// answers NFS4ERR_INVAL (it first removes the bits that ask for delegations).
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
