//! The interface of the programs that a server exports.
//!
//! A service gets a decoder over the received message and answers with a payload; both share bytes with their owners.
//! Its future is `'static`: a call that was dispatched runs to its end.

use crate::{ArgumentWords, AuthStat, Begun, CallContext};
use rpcrdma_env::BoxFuture;
use rpcrdma_xdr::{DecodeError, Decoder, Payload};

/// One version of a program, with all its procedures.
pub trait Service: Send + Sync {
    /// The program's number.
    fn program(&self) -> u32;

    /// The version's number.
    fn version(&self) -> u32;

    /// Whether executing the procedure twice does no harm. The duplicate request cache keeps the replies of all other
    /// procedures.
    fn is_idempotent(&self, procedure: u32) -> bool;

    /// The same for a program in which the first words of the arguments decide this, and not the procedure alone. The
    /// router calls it before it has decoded anything of the call; it costs the reading of those words.
    fn repetition(&self, procedure: u32, arguments: &mut ArgumentWords<'_>) -> Repetition {
        let _ = arguments;
        if self.is_idempotent(procedure) { Repetition::Executed } else { Repetition::Answered }
    }

    /// Executes a procedure other than 0, which the router answers itself.
    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer>;

    /// The same, but a call that waits for nothing may be over at once: then it needs no memory for a future.
    fn begin(&self, context: CallContext, procedure: u32, args: Decoder) -> Begun<Answer> {
        Begun::Waits(self.call(context, procedure, args))
    }
}

/// How a call is handled that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// It is executed again.
    Executed,
    /// It gets the reply to the first call, whichever port of its client it comes from.
    Answered,
    /// The same, but over TCP only if it comes from the same port: a client that connects again from another port may
    /// count its calls from the start, and send other calls that have the same bytes. If it comes while the first call
    /// is executed, it waits for that reply, whichever port it comes from.
    AnsweredToPort,
}

/// A service's answer to a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Answer {
    /// The procedure's results.
    Results(Payload),
    /// The same for a call that may be executed again if it comes again: the reply is not kept.
    Repeatable(Payload),
    /// The results, behind the header of the reply: what [`CallContext::results`] makes.
    Whole(WholeReply),
    /// The arguments could not be decoded.
    GarbageArgs,
    /// There is no such procedure.
    ProcUnavail,
    /// The server failed in a way that the results cannot express.
    SystemErr,
    /// The credential is not enough for this procedure.
    AuthError(AuthStat),
    /// Data was placed directly where the binding does not allow it.
    NotEligible,
    /// No reply is to be sent.
    Nothing,
}

/// A reply to one call, whose header and results lie together.
#[derive(Debug)]
pub struct WholeReply {
    pub(crate) xid: u32,
    pub(crate) message: Payload,
}

impl From<DecodeError> for Answer {
    fn from(error: DecodeError) -> Self {
        // V1-4.5.2-b, V2-7.2-b
        if error.is_placement() { Answer::NotEligible } else { Answer::GarbageArgs }
    }
}
