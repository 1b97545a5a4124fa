//! Declaring the operations of a COMPOUND: their numbers, names and minor versions, and the enumerations of their
//! arguments and results.

/// A table of operations. Each row makes a variant of `Op`, of `Args` (with a payload if there are arguments) and of
/// `Outcome` (with an [`Answer`](super::ops::Answer)). A row reads: variant and arguments, results and failure, number,
/// name, minor versions, the largest results in octets after the status, and what of either may be placed directly.
macro_rules! operations {
    (
        $what:literal $(<$data:ident = $default:ty>)?;
        $(
            $(#[$meta:meta])*
            $variant:ident $(($payload:ident: $args:ty))? -> ($ok:ty, $fail:ty) = $number:literal, $name:literal,
            $minors:ident, $largest:expr $(, argument $argument:literal)? $(, result $result:literal)?;
        )*
    ) => {
        #[doc = concat!("An ", $what, ", by number.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Op { $($(#[$meta])* $variant = $number,)* }

        impl Op {
            /// All of them, by number.
            pub const ALL: &'static [Op] = &[$(Op::$variant),*];

            /// The operation of a number, if any minor version has one.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The name that the protocol gives it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// In which minor versions it exists.
            pub fn minors(self) -> $crate::v4::Minors {
                match self {
                    $(Self::$variant => $crate::v4::Minors::$minors,)*
                }
            }

            /// Whether it may be used in a minor version.
            pub fn exists_in(self, minor: u32) -> bool {
                self.minors().have(minor)
            }

            /// The argument that may be placed directly.
            pub fn eligible_argument(self) -> Option<&'static str> {
                let items: &[&'static str] = match self {
                    $(Self::$variant => &[$($argument)?],)*
                };
                items.first().copied()
            }

            /// The result that may be placed directly.
            pub fn eligible_result(self) -> Option<&'static str> {
                let items: &[&'static str] = match self {
                    $(Self::$variant => &[$($result)?],)*
                };
                items.first().copied()
            }
        }

        impl ::std::fmt::Display for Op {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }

        #[doc = concat!("The arguments of an ", $what, ".")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Args { $($(#[$meta])* $variant $(($args))?,)* }

        impl Args {
            /// Which operation.
            pub fn op(&self) -> Op {
                match self {
                    $(Self::$variant $((operations!(@ignore $payload)))? => Op::$variant,)*
                }
            }

            /// Reads the arguments of `op`: its number was read already.
            ///
            /// # Errors
            /// If the octets there are no such arguments.
            pub fn decode_of(
                op: Op,
                decoder: &mut ::rpcrdma_xdr::Decoder,
            ) -> Result<Self, ::rpcrdma_xdr::DecodeError> {
                match op {
                    $(Op::$variant => Ok(Self::$variant $(({
                        let $payload: $args = ::rpcrdma_xdr::Decode::decode(decoder)?;
                        $payload
                    }))?),)*
                }
            }

            /// The same, appended to the arguments of other operations: so they are written where they stay.
            ///
            /// # Errors
            /// As [`decode_of`](Self::decode_of); nothing is appended then.
            pub fn decode_onto(
                op: Op,
                decoder: &mut ::rpcrdma_xdr::Decoder,
                ops: &mut Vec<Self>,
            ) -> Result<(), ::rpcrdma_xdr::DecodeError> {
                match op {
                    $(Op::$variant => ops.push(Self::$variant $(({
                        let $payload: $args = ::rpcrdma_xdr::Decode::decode(decoder)?;
                        $payload
                    }))?),)*
                }
                Ok(())
            }

            /// The largest results that they can have, in octets, number and status included.
            #[allow(unused_variables, reason = "few results depend on the arguments")]
            pub fn largest_results(&self) -> usize {
                let rest: usize = match self {
                    $(Self::$variant $(($payload))? => $largest,)*
                };
                rest.saturating_add(2 * $crate::v4::shape::WORD)
            }
        }

        /// The operation's number, then its arguments.
        impl ::rpcrdma_xdr::Encode for Args {
            fn encode(&self, encoder: &mut ::rpcrdma_xdr::Encoder) {
                encoder.u32(self.op() as u32);
                match self {
                    $(Self::$variant $(($payload))? => { $(::rpcrdma_xdr::Encode::encode($payload, encoder);)? })*
                }
            }
        }

        #[doc = concat!("The results of an ", $what, ".")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Outcome<$($data = $default)?> {
            $($(#[$meta])* $variant($crate::v4::ops::Answer<$ok, $fail>),)*
            /// The number in the call is not that of an operation, [`OP_ILLEGAL`](crate::v4::Status::OP_ILLEGAL), or
            /// its arguments could not be decoded, [`BADXDR`](crate::v4::Status::BADXDR).
            Illegal($crate::v4::Status),
        }

        impl<$($data)?> Outcome<$($data)?> {
            /// The failure of `op` with a status, without further fields.
            pub fn failed(op: Op, status: $crate::v4::Status) -> Self {
                match op {
                    $(Op::$variant => Self::$variant(Err(status.into())),)*
                }
            }

            /// The operation; `None` if it does not exist.
            pub fn op(&self) -> Option<Op> {
                match self {
                    $(Self::$variant(_) => Some(Op::$variant),)*
                    Self::Illegal(_) => None,
                }
            }

            /// The status.
            pub fn status(&self) -> $crate::v4::Status {
                match self {
                    $(Self::$variant(answer) => $crate::v4::ops::answer::status(answer),)*
                    Self::Illegal(status) => *status,
                }
            }
        }

        /// The operation's number, the status, and what belongs to it.
        impl ::rpcrdma_xdr::Encode for Outcome $(<operations!(@type $data $default)>)? {
            fn encode(&self, encoder: &mut ::rpcrdma_xdr::Encoder) {
                match self {
                    $(Self::$variant(answer) => {
                        encoder.u32($number);
                        $crate::v4::ops::answer::encode(answer, encoder);
                    })*
                    Self::Illegal(status) => {
                        encoder.u32($crate::v4::ILLEGAL);
                        ::rpcrdma_xdr::Encode::encode(status, encoder);
                    }
                }
            }
        }

        impl<$($data: From<::rpcrdma_xdr::ItemData>)?> ::rpcrdma_xdr::Decode for Outcome<$($data)?> {
            fn decode(decoder: &mut ::rpcrdma_xdr::Decoder) -> Result<Self, ::rpcrdma_xdr::DecodeError> {
                match decoder.u32()? {
                    $($number => $crate::v4::ops::answer::decode(decoder).map(Self::$variant),)*
                    $crate::v4::ILLEGAL => ::rpcrdma_xdr::Decode::decode(decoder).map(Self::Illegal),
                    number => Err(decoder.bad_value(number, concat!("number of an ", $what))),
                }
            }
        }

        impl<$($data: From<::rpcrdma_xdr::ItemData>)?> Outcome<$($data)?> {
            /// Reads results and appends them to those of other operations: so they are written where they stay.
            ///
            /// # Errors
            /// If the octets are no results of an operation; nothing is appended then.
            pub fn decode_onto(
                decoder: &mut ::rpcrdma_xdr::Decoder,
                outcomes: &mut Vec<Self>,
            ) -> Result<(), ::rpcrdma_xdr::DecodeError> {
                match decoder.u32()? {
                    $($number => outcomes.push(Self::$variant($crate::v4::ops::answer::decode(decoder)?)),)*
                    $crate::v4::ILLEGAL => outcomes.push(Self::Illegal(::rpcrdma_xdr::Decode::decode(decoder)?)),
                    number => return Err(decoder.bad_value(number, concat!("number of an ", $what))),
                }
                Ok(())
            }
        }

        #[cfg(test)]
        impl Args {
            pub(crate) fn sample_of(op: Op, draw: &mut $crate::sample::Draw) -> Self {
                match op {
                    $(Op::$variant => Self::$variant $(({
                        let $payload: $args = $crate::sample::Sample::sample(draw);
                        $payload
                    }))?,)*
                }
            }
        }

        #[cfg(test)]
        impl Outcome {
            pub(crate) fn sample_of(op: Op, draw: &mut $crate::sample::Draw) -> Self {
                let fails = draw.below(4) == 0;
                match op {
                    $(Op::$variant => Self::$variant(if fails {
                        let failure: $fail = $crate::sample::Sample::sample(draw);
                        let is_ok = $crate::v4::ops::Failure::status(&failure) == $crate::v4::Status::OK;
                        Err(if is_ok { $crate::v4::Status::IO.into() } else { failure })
                    } else {
                        Ok($crate::sample::Sample::sample(draw))
                    }),)*
                }
            }
        }
    };
    (@ignore $payload:ident) => { _ };
    (@type $data:ident $default:ty) => { $default };
}
