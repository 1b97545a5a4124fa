//! The results of procedures, and the arguments of the calls that answer the procedures that end in `_MSG`.

use super::{
    basic::{Cookie, OwnerHandle, Widen, Width},
    status::Status,
};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

located! {
    /// The conflicting lock and its holder (`nlm_holder`, `nlm4_holder`).
    pub struct Holder<W> {
        /// Whether the lock excludes even readers.
        pub exclusive: bool,
        /// The process that has the lock.
        pub process: i32,
        /// The owner of the lock.
        pub owner: OwnerHandle,
        /// Its first octet.
        pub offset: W,
        /// How many octets; 0 for all to the end of the file.
        pub length: W,
    }

    /// The results of TEST, and the arguments of TEST_RES (`nlm_testres`).
    pub struct TestResponse<W> {
        /// The cookie of the call.
        pub cookie: Cookie,
        /// The answer.
        pub tested: Tested<W>,
    }
}

xdr_struct! {
    /// The results of LOCK, CANCEL, UNLOCK, GRANTED and NM_LOCK, and the arguments of their `_RES` (`nlm_res`).
    pub struct Response {
        /// The cookie of the call.
        pub cookie: Cookie,
        /// The outcome.
        pub status: Status,
    }
}

/// Whether a lock would be granted (`nlm_testrply`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tested<W> {
    /// No: this lock conflicts.
    Denied(Holder<W>),
    /// Yes, or it is unknown. Never [`Status::Denied`], which comes with a holder.
    Other(Status),
}

impl<W> Tested<W> {
    /// The status.
    pub fn status(&self) -> Status {
        match self {
            Self::Denied(_) => Status::Denied,
            Self::Other(status) => *status,
        }
    }
}

impl<W: Width> Encode for Tested<W> {
    fn encode(&self, encoder: &mut Encoder) {
        self.status().encode(encoder);
        if let Self::Denied(holder) = self {
            holder.encode(encoder);
        }
    }
}

impl<W: Width> Decode for Tested<W> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        match Status::decode(decoder)? {
            Status::Denied => Decode::decode(decoder).map(Self::Denied),
            status => Ok(Self::Other(status)),
        }
    }
}

impl<W: Width> Widen for Tested<W> {
    type Wide = Tested<u64>;

    fn widen(self) -> Tested<u64> {
        match self {
            Self::Denied(holder) => Tested::Denied(holder.widen()),
            Self::Other(status) => Tested::Other(status),
        }
    }
}

impl TestResponse<u64> {
    /// The answer in a version of this width.
    pub fn narrow<W: Width>(self) -> TestResponse<W> {
        let tested = match self.tested {
            Tested::Other(status) => Tested::Other(status),
            Tested::Denied(Holder { exclusive, process, owner, offset, length }) => {
                let (offset, length) = (W::offset(offset), W::length(length));
                Tested::Denied(Holder { exclusive, process, owner, offset, length })
            }
        };
        TestResponse { cookie: self.cookie, tested }
    }
}

impl super::TestArguments<u64> {
    /// The arguments of GRANTED in a version of this width. The lock was asked for in this version, so it fits.
    pub fn narrow<W: Width>(self) -> super::TestArguments<W> {
        let Self { cookie, exclusive, lock } = self;
        let super::Lock { caller, file, owner, process, offset, length } = lock;
        let (offset, length) = (W::offset(offset), W::length(length));
        super::TestArguments { cookie, exclusive, lock: super::Lock { caller, file, owner, process, offset, length } }
    }
}

#[cfg(test)]
impl<W: crate::sample::Sample> crate::sample::Sample for Tested<W> {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        match Status::sample(draw) {
            Status::Denied => Self::Denied(crate::sample::Sample::sample(draw)),
            status => Self::Other(status),
        }
    }
}
