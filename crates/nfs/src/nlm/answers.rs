//! What procedures answer, and what the calls are made of that answer those that end in `_MSG`.

use super::{
    basic::{Cookie, OwnerHandle, Widen, Width},
    status::Status,
};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

located! {
    /// Who holds the conflicting lock (`nlm_holder`, `nlm4_holder`).
    pub struct Holder<W> {
        /// Whether it excludes even those who want to read.
        pub exclusive: bool,
        /// The process that has it.
        pub process: i32,
        /// Whose.
        pub owner: OwnerHandle,
        /// Its first octet.
        pub offset: W,
        /// How many; 0 for all to the end of the file.
        pub length: W,
    }

    /// What TEST answers, and what TEST_RES is called with (`nlm_testres`).
    pub struct TestResponse<W> {
        /// The cookie of the question.
        pub cookie: Cookie,
        /// The answer.
        pub tested: Tested<W>,
    }
}

xdr_struct! {
    /// What LOCK, CANCEL, UNLOCK, GRANTED and NM_LOCK answer, and what the `_RES` of these are called with (`nlm_res`).
    pub struct Response {
        /// The cookie of the call.
        pub cookie: Cookie,
        /// What came of it.
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
    /// What GRANTED is called with in a version of this width. The lock was asked for in it, so it fits.
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
