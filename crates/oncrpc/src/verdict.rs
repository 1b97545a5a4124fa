//! The decision of a server's flavour about a call.

use crate::{AuthStat, Credential, OpaqueAuth, Rejection};
use rpcrdma_env::BoxFuture;
use rpcrdma_xdr::{Decoder, Payload};

/// What a flavour decides about a call by its credential and verifier.
#[non_exhaustive]
pub enum Verdict {
    /// The call is executed.
    Accepted(Accepted),
    /// The flavour answers the call itself, or refuses it.
    Answered(Answered),
    /// The same, after work that waits for something: a file, another host. The flavour decides where the work is done,
    /// and the call waits for it; the work is dropped when the call's connection ends.
    Later(BoxFuture<'static, Answered>),
    /// There is no reply: the call came before, or is too late.
    Dropped,
    /// The client has placed data directly where the flavour does not allow it.
    NotEligible,
}

impl From<Result<Accepted, AuthStat>> for Verdict {
    fn from(result: Result<Accepted, AuthStat>) -> Self {
        match result {
            Ok(accepted) => Self::Accepted(accepted),
            Err(stat) => Self::Answered(Answered::denied(stat)),
        }
    }
}

/// A call whose credential was understood.
pub struct Accepted {
    /// The caller's identity.
    pub credential: Credential,
    /// The arguments.
    pub args: Decoder,
    /// Protects the reply; without one the verifier is AUTH_NONE and the results go as they are.
    pub reply: Option<Box<dyn ReplyFlavour>>,
    /// The caller's number for the duplicate request cache, if the flavour [signs each
    /// transmission](crate::ServerFlavour::signs_each_transmission). Two callers share a number only by chance, and
    /// neither can choose it.
    pub caller: Option<u64>,
}

impl Accepted {
    /// A call whose reply goes out without protection.
    pub fn plain(credential: Credential, args: Decoder) -> Self {
        Self { credential, args, reply: None, caller: None }
    }
}

/// An answer that a flavour itself gives.
#[derive(Debug)]
pub struct Answered {
    /// The reply's verifier. A denied call has none.
    pub verifier: OpaqueAuth,
    /// The results, or why there are none.
    pub result: Result<Payload, Rejection>,
}

impl Answered {
    /// The credential or the verifier is not accepted.
    pub fn denied(stat: AuthStat) -> Self {
        Self::rejected(Rejection::Auth(stat))
    }

    /// The call is not executed.
    pub fn rejected(rejection: Rejection) -> Self {
        Self { verifier: OpaqueAuth::none(), result: Err(rejection) }
    }
}

/// What a flavour keeps of a call until its reply.
pub trait ReplyFlavour: Send {
    /// Makes the reply's verifier and protects its results. A rejection has no results: it gets the verifier alone.
    ///
    /// # Errors
    /// The answer that the client gets instead.
    fn wrap(&self, results: Option<Payload>) -> Result<(OpaqueAuth, Payload), Unanswered>;
}

/// A reply could not be protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The client gets the reason. It does not learn whether the call was executed.
    Denied(AuthStat),
    /// The client gets no answer.
    Silent,
}
