//! Declaring structures that are the same in all versions but for the width of offsets.

/// Structures with a parameter for the width of offsets. Each can be drawn at random in tests, and widened.
macro_rules! located {
    ($($(#[$meta:meta])* pub struct $name:ident<$width:ident> {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name<$width> { $($(#[$field_meta])* pub $field: $type,)* }

        impl<$width: $crate::nlm::Width> ::rpcrdma_xdr::Encode for $name<$width> {
            fn encode(&self, encoder: &mut ::rpcrdma_xdr::Encoder) {
                $(::rpcrdma_xdr::Encode::encode(&self.$field, encoder);)*
            }
        }

        impl<$width: $crate::nlm::Width> ::rpcrdma_xdr::Decode for $name<$width> {
            fn decode(decoder: &mut ::rpcrdma_xdr::Decoder) -> Result<Self, ::rpcrdma_xdr::DecodeError> {
                Ok(Self { $($field: ::rpcrdma_xdr::Decode::decode(decoder)?,)* })
            }
        }

        impl<$width: $crate::nlm::Width> $crate::nlm::Widen for $name<$width> {
            type Wide = $name<u64>;

            fn widen(self) -> $name<u64> {
                $name { $($field: $crate::nlm::Widen::widen(self.$field),)* }
            }
        }

        #[cfg(test)]
        impl<$width: $crate::sample::Sample> $crate::sample::Sample for $name<$width> {
            fn sample(draw: &mut $crate::sample::Draw) -> Self {
                Self { $($field: $crate::sample::Sample::sample(draw),)* }
            }
        }
    )*};
}
