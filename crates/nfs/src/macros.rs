//! Declaring XDR types: structures, enumerations, unions, strings of octets, statuses.
//!
//! In tests, values of every declared type can be drawn at random ([`crate::sample`]), so that tests cover all types.

/// A copy of these octets. The tag of most calls is empty, and takes the short way.
pub(crate) fn copied(octets: &[u8]) -> bytes::Bytes {
    if octets.is_empty() { bytes::Bytes::new() } else { bytes::Bytes::copy_from_slice(octets) }
}

macro_rules! xdr_struct {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        xdr_fields! { $(#[$meta])* pub struct $name { $($(#[$field_meta])* pub $field: $type,)* } }

        impl ::rpcrdma_xdr::Encode for $name {
            #[allow(unused_variables, reason = "a structure may have no field")]
            fn encode(&self, encoder: &mut ::rpcrdma_xdr::Encoder) {
                $(::rpcrdma_xdr::Encode::encode(&self.$field, encoder);)*
            }
        }

        impl ::rpcrdma_xdr::Decode for $name {
            #[allow(unused_variables, reason = "a structure may have no field")]
            fn decode(decoder: &mut ::rpcrdma_xdr::Decoder) -> Result<Self, ::rpcrdma_xdr::DecodeError> {
                Ok(Self { $($field: ::rpcrdma_xdr::Decode::decode(decoder)?,)* })
            }
        }
    )*};
}

/// A structure of a fixed number of words ([`crate::words`]).
macro_rules! xdr_words {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        xdr_fields! { $(#[$meta])* pub struct $name { $($(#[$field_meta])* pub $field: $type,)* } }

        impl $crate::words::InWords for $name {
            const WORDS: usize = 0 $(+ <$type as $crate::words::InWords>::WORDS)*;

            #[inline]
            fn from_words(words: &mut impl Iterator<Item = u32>) -> Option<Self> {
                Some(Self { $($field: $crate::words::InWords::from_words(words)?,)* })
            }

            #[inline]
            fn to_words(&self, put: &mut impl FnMut(u32)) {
                $($crate::words::InWords::to_words(&self.$field, put);)*
            }
        }

        impl ::rpcrdma_xdr::Encode for $name {
            fn encode(&self, encoder: &mut ::rpcrdma_xdr::Encoder) {
                let mut words = [0; <$name as $crate::words::InWords>::WORDS];
                let mut places = words.iter_mut();
                $crate::words::InWords::to_words(self, &mut |word| {
                    if let Some(place) = places.next() {
                        *place = word;
                    }
                });
                debug_assert!(places.next().is_none(), "as many words as it has");
                encoder.words(words);
            }
        }

        impl ::rpcrdma_xdr::Decode for $name {
            fn decode(decoder: &mut ::rpcrdma_xdr::Decoder) -> Result<Self, ::rpcrdma_xdr::DecodeError> {
                let mut made = None;
                decoder.words::<{ <$name as $crate::words::InWords>::WORDS }>(|words| {
                    made = $crate::words::InWords::from_words(&mut words.iter().copied());
                    made.is_some()
                });
                match made {
                    Some(made) => Ok(made),
                    None => Ok(Self { $($field: ::rpcrdma_xdr::Decode::decode(decoder)?,)* }),
                }
            }
        }
    )*};
}

/// What all structures have.
macro_rules! xdr_fields {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        #[cfg(test)]
        impl $crate::sample::Sample for $name {
            #[allow(unused_variables, reason = "a structure may have no field")]
            fn sample(draw: &mut $crate::sample::Draw) -> Self {
                Self { $($field: $crate::sample::Sample::sample(draw),)* }
            }
        }
    };
}

/// An enumeration: one word with named values, and nothing else.
macro_rules! xdr_enum {
    ($($(#[$meta:meta])* pub enum $name:ident: $what:literal { $($(#[$value_meta:meta])* $variant:ident = $value:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$value_meta])* $variant = $value,)* }

        impl ::rpcrdma_xdr::Encode for $name {
            fn encode(&self, encoder: &mut ::rpcrdma_xdr::Encoder) {
                encoder.u32(*self as u32);
            }
        }

        impl $crate::words::InWords for $name {
            const WORDS: usize = 1;

            #[inline]
            fn from_words(words: &mut impl Iterator<Item = u32>) -> Option<Self> {
                match words.next()? {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }

            #[inline]
            fn to_words(&self, put: &mut impl FnMut(u32)) {
                put(*self as u32);
            }
        }

        impl ::rpcrdma_xdr::Decode for $name {
            fn decode(decoder: &mut ::rpcrdma_xdr::Decoder) -> Result<Self, ::rpcrdma_xdr::DecodeError> {
                match decoder.u32()? {
                    $($value => Ok(Self::$variant),)*
                    value => Err(decoder.bad_value(value, $what)),
                }
            }
        }

        #[cfg(test)]
        impl $crate::sample::Sample for $name {
            fn sample(draw: &mut $crate::sample::Draw) -> Self {
                draw.one_of(&[$(Self::$variant),*])
            }
        }
    )*};
}

/// The procedures of a version of a program: an enumeration of all numbers from zero on, with the protocol's names. The
/// list marks which of them may be executed twice.
macro_rules! procedures {
    ($(#[$meta:meta])* pub enum $name:ident: $what:literal {
        $($(#[$value_meta:meta])* $variant:ident = $value:literal, $called:literal;)*
    }) => {
        xdr_enum! {
            $(#[$meta])*
            pub enum $name: $what { $($(#[$value_meta])* $variant = $value,)* }
        }

        impl $name {
            /// All of them, by number.
            pub const ALL: [Self; [$($value),*].len()] = [$(Self::$variant),*];

            /// The procedure of a number, if there is one.
            pub fn from_number(number: u32) -> Option<Self> {
                usize::try_from(number).ok().and_then(|index| Self::ALL.get(index)).copied()
            }

            /// The name that the protocol gives it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $called,)*
                }
            }
        }

        /// Whether a call of the procedure with this number may be executed twice.
        pub(super) const fn is_repeatable(number: u32) -> bool {
            let index = number as usize;
            index < $name::ALL.len() && $name::ALL[index].is_idempotent()
        }
    };
}

/// A discriminated union: one word says which variant follows. A word that no variant has is an error, unless the union
/// ends in `else { Name }`: then that variant keeps the word, and nothing follows it.
macro_rules! xdr_union {
    ($(
        $(#[$meta:meta])* pub enum $name:ident: $what:literal {
            $($(#[$variant_meta:meta])* $variant:ident $(($payload:ident: $type:ty))? = $value:literal,)*
        } $(else { $(#[$other_meta:meta])* $other:ident })?
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_meta])* $variant $(($type))?,)*
            $($(#[$other_meta])* $other(u32),)?
        }

        impl ::rpcrdma_xdr::Encode for $name {
            fn encode(&self, encoder: &mut ::rpcrdma_xdr::Encoder) {
                match self {
                    $(Self::$variant $(($payload))? => {
                        encoder.u32($value);
                        $(::rpcrdma_xdr::Encode::encode($payload, encoder);)?
                    })*
                    $(Self::$other(word) => encoder.u32(*word),)?
                }
            }
        }

        impl ::rpcrdma_xdr::Decode for $name {
            fn decode(decoder: &mut ::rpcrdma_xdr::Decoder) -> Result<Self, ::rpcrdma_xdr::DecodeError> {
                match decoder.u32()? {
                    $($value => Ok(Self::$variant $(({
                        let $payload: $type = ::rpcrdma_xdr::Decode::decode(decoder)?;
                        $payload
                    }))?),)*
                    $(word if stringify!($other) != "" => Ok(Self::$other(word)),)?
                    #[allow(unreachable_patterns, reason = "a union may take every word")]
                    value => Err(decoder.bad_value(value, $what)),
                }
            }
        }

        #[cfg(test)]
        impl $crate::sample::Sample for $name {
            fn sample(draw: &mut $crate::sample::Draw) -> Self {
                match draw.one_of(&[$($value),*]) {
                    $($value => Self::$variant $(({
                        let $payload: $type = $crate::sample::Sample::sample(draw);
                        $payload
                    }))?,)*
                    _ => unreachable!("a value of the list"),
                }
            }
        }
    )*};
}

/// Octets of variable length, at most this many, that may not be placed directly. Shown as text. They share the memory
/// of the message, unless they are declared `copied`: those are kept for long, and would keep the message.
macro_rules! xdr_bytes {
    ($($(#[$meta:meta])* pub struct $name:ident: $max:expr $(, $copied:ident)?;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub ::bytes::Bytes);

        impl $name {
            /// The octets.
            pub fn as_slice(&self) -> &[u8] {
                &self.0
            }
        }

        impl From<&[u8]> for $name {
            fn from(octets: &[u8]) -> Self {
                Self(::bytes::Bytes::copy_from_slice(octets))
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::from(text.as_bytes())
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "\"{}\"", self.0.escape_ascii())
            }
        }

        impl ::rpcrdma_xdr::Encode for $name {
            fn encode(&self, encoder: &mut ::rpcrdma_xdr::Encoder) {
                encoder.opaque_shared(self.0.clone());
            }
        }

        impl ::rpcrdma_xdr::Decode for $name {
            fn decode(decoder: &mut ::rpcrdma_xdr::Decoder) -> Result<Self, ::rpcrdma_xdr::DecodeError> {
                xdr_bytes!(@decode decoder, $max $(, $copied)?).map(Self)
            }
        }

        #[cfg(test)]
        impl $crate::sample::Sample for $name {
            fn sample(draw: &mut $crate::sample::Draw) -> Self {
                Self(draw.octets($max))
            }
        }
    )*};
    (@decode $decoder:ident, $max:expr) => { $decoder.opaque($max) };
    // NFS4-KEPT-a
    (@decode $decoder:ident, $max:expr, copied) => { $decoder.opaque_with($max, $crate::macros::copied) };
}

/// Octets of a fixed length that both sides know.
macro_rules! xdr_fixed {
    ($($(#[$meta:meta])* pub struct $name:ident: $len:expr;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; $len]);

        impl ::rpcrdma_xdr::Encode for $name {
            fn encode(&self, encoder: &mut ::rpcrdma_xdr::Encoder) {
                encoder.opaque_fixed(&self.0);
            }
        }

        impl ::rpcrdma_xdr::Decode for $name {
            fn decode(decoder: &mut ::rpcrdma_xdr::Decoder) -> Result<Self, ::rpcrdma_xdr::DecodeError> {
                decoder.opaque_array().map($name)
            }
        }

        impl $crate::words::InWords for $name {
            const WORDS: usize = {
                assert!($len % ::rpcrdma_xdr::UNIT == 0, "padding is no value");
                $len / ::rpcrdma_xdr::UNIT
            };

            #[inline]
            fn from_words(words: &mut impl Iterator<Item = u32>) -> Option<Self> {
                let mut octets = [0; $len];
                for word in octets.chunks_exact_mut(::rpcrdma_xdr::UNIT) {
                    word.copy_from_slice(&words.next()?.to_be_bytes());
                }
                Some(Self(octets))
            }

            #[inline]
            fn to_words(&self, put: &mut impl FnMut(u32)) {
                for word in self.0.as_chunks().0 {
                    put(u32::from_be_bytes(*word));
                }
            }
        }

        #[cfg(test)]
        impl $crate::sample::Sample for $name {
            fn sample(draw: &mut $crate::sample::Draw) -> Self {
                Self(::std::array::from_fn(|_| draw.u64() as u8))
            }
        }
    )*};
}

/// Implements [`Call`](crate::Call) for arguments whose largest results do not depend on them. The function returns
/// whether a procedure may be repeated.
macro_rules! calls {
    ($program:expr, $version:expr, $repeatable:path; $($type:ident, $number:expr, $reply:ty, $shape:expr;)*) => {$(
        impl $crate::Call for $type {
            const PROGRAM: u32 = $program;
            const VERSION: u32 = $version;
            const PROCEDURE: u32 = $number;
            type Reply = $reply;

            fn is_repeatable(&self) -> bool {
                $repeatable($number)
            }

            fn reply_shape(&self) -> ::rpcrdma_oncrpc::ReplyShape {
                $shape
            }
        }
    )*};
}

/// The statuses of a version of NFS: a word, with constants for the values that it defines, by number.
macro_rules! statuses {
    ($(#[$meta:meta])* $prefix:literal; $($name:ident = $value:literal, $text:literal;)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct Status(pub u32);

        impl Status {
            $(#[doc = concat!("`", $prefix, "ERR_", stringify!($name), "`: ", $text, ".")]
            pub const $name: Status = Status($value);)*

            /// Success.
            pub const OK: Status = Status(0);

            /// All that this version defines, by number.
            pub const ALL: &'static [Status] = &[Status::OK, $(Status::$name),*];

            fn name_and_text(self) -> Option<(&'static str, &'static str)> {
                match self.0 {
                    0 => Some((concat!($prefix, "_OK"), "done")),
                    $($value => Some((concat!($prefix, "ERR_", stringify!($name)), $text)),)*
                    _ => None,
                }
            }

            /// The name that the protocol gives it.
            pub fn name(self) -> &'static str {
                self.name_and_text().map_or(concat!($prefix, "ERR_?"), |(name, _)| name)
            }

            /// The name without the version's prefix: `OK`, `NOENT`. `None` for a value that this version does not
            /// define.
            pub fn word(self) -> Option<&'static str> {
                self.name_and_text().map(|(name, _)| name.strip_prefix(concat!($prefix, "ERR_")).unwrap_or("OK"))
            }
        }

        impl ::std::fmt::Display for Status {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self.name_and_text() {
                    Some((name, text)) => write!(f, "{text} ({name})"),
                    None => write!(f, "unknown status {}", self.0),
                }
            }
        }

        impl ::std::fmt::Debug for Status {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{}({})", self.name(), self.0)
            }
        }

        impl ::std::error::Error for Status {}

        impl ::rpcrdma_xdr::Encode for Status {
            fn encode(&self, encoder: &mut ::rpcrdma_xdr::Encoder) {
                encoder.u32(self.0);
            }
        }

        impl ::rpcrdma_xdr::Decode for Status {
            fn decode(decoder: &mut ::rpcrdma_xdr::Decoder) -> Result<Self, ::rpcrdma_xdr::DecodeError> {
                decoder.u32().map(Status)
            }
        }

        #[cfg(test)]
        impl $crate::sample::Sample for Status {
            fn sample(draw: &mut $crate::sample::Draw) -> Self {
                draw.one_of(Self::ALL)
            }
        }
    };
}
