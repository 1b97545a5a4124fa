//! The results of a COMPOUND, compared with the call.

use super::Error;
use rpcrdma_nfs::v4::{Args, Op, Outcome, Results, Status};
use rpcrdma_xdr::ItemData;

/// Results of operations, in order; all of them fit the call.
#[derive(Debug)]
pub(super) struct Reply {
    outcomes: std::vec::IntoIter<Outcome<ItemData>>,
    /// The failed operation and its position, if one failed.
    pub(super) failed: Option<Failed>,
    /// The purpose of the call.
    pub(super) purpose: Op,
    /// The caller's user and group.
    pub(super) caller: Option<(u32, u32)>,
    /// Whether an earlier attempt may already have done what this call did or tried to do.
    pub(super) is_repeated: bool,
}

/// An operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) op: Op,
    pub(super) at: usize,
    pub(super) status: Status,
}

/// Compares results with the operations of the call.
///
/// # Errors
/// What the server did, if they do not fit.
pub(super) fn check<D>(called: &[Args], results: &Results<D>) -> Result<Option<Failed>, &'static str> {
    let outcomes = &results.results;
    if outcomes.len() > called.len() {
        return Err("returned more results than there were operations");
    }
    let mut last = Status::OK;
    for (args, outcome) in called.iter().zip(outcomes) {
        if last != Status::OK {
            return Err("went on after an operation that failed");
        }
        // In the reply to an illegal operation, the result has another operation number.
        if outcome.op().is_some_and(|answered| answered != args.op()) {
            return Err("returned the results of another operation");
        }
        last = outcome.status();
    }
    match (outcomes.len(), results.status) {
        // The server refused the whole call, for example because of its minor version.
        (0, status) if status != Status::OK => {
            let op = called.first().map(Args::op).ok_or("refused a call without operations")?;
            Ok(Some(Failed { op, at: 0, status }))
        }
        (_, status) if status != last => Err("returned another status than that of the last operation"),
        (len, Status::OK) if len < called.len() => Err("returned fewer results than there were operations"),
        (_, Status::OK) => Ok(None),
        (len, status) => {
            let at = len - 1;
            let op = called.get(at).map(Args::op).ok_or("returned more results than there were operations")?;
            Ok(Some(Failed { op, at, status }))
        }
    }
}

impl Reply {
    pub(super) fn new(
        outcomes: Vec<Outcome<ItemData>>,
        failed: Option<Failed>,
        purpose: Op,
        caller: Option<(u32, u32)>,
    ) -> Self {
        Self { outcomes: outcomes.into_iter(), failed, purpose, caller, is_repeated: false }
    }

    /// The results begin with SEQUENCE, which has been looked at.
    pub(super) fn skip_sequence(&mut self) {
        drop(self.outcomes.next());
    }

    /// Skips results up to the one of `op`, and returns that.
    pub(super) fn next_of(&mut self, op: Op) -> Result<Outcome<ItemData>, Error> {
        let outcomes = self.outcomes.as_slice();
        // Results are large: those in between are dropped where they lie.
        let at = outcomes.iter().position(|outcome| outcome.op() == Some(op)).unwrap_or(outcomes.len());
        self.outcomes.nth(at).ok_or_else(|| self.error())
    }

    /// Why the result that the caller asks for is missing.
    pub(super) fn error(&self) -> Error {
        match self.failed {
            Some(failed) => Error::refused(failed.op, failed.status, self.caller),
            None => Error::nonsense(self.purpose, "returned no results"),
        }
    }

    /// The same reply, if no operation has failed.
    pub(super) fn ok(self) -> Result<Self, Error> {
        if self.failed.is_some() { Err(self.error()) } else { Ok(self) }
    }

    /// Whether all operations up to the first `op` were done, whatever happened after it.
    pub(super) fn has_done(&self, op: Op) -> bool {
        self.outcomes.as_slice().iter().any(|outcome| outcome.op() == Some(op) && outcome.status() == Status::OK)
    }
}

/// The results of one operation of a reply, or the error that it or one before it failed with: `done!(reply, GetFh)`.
macro_rules! done {
    ($reply:expr, $op:ident) => {
        match $reply.next_of(rpcrdma_nfs::v4::Op::$op) {
            Ok(rpcrdma_nfs::v4::Outcome::$op(Ok(ok))) => Ok(ok),
            Ok(_) => Err($reply.error()),
            Err(error) => Err(error),
        }
    };
}
pub(super) use done;

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::v4::{Handle, Tag, ops};

    fn results(status: Status, results: Vec<Outcome>) -> Result<Option<Failed>, &'static str> {
        let put = ops::PutFh { file: Handle::new(b"f").unwrap() };
        check(&[Args::PutFh(put), Args::GetFh, Args::LookupP], &Results { status, tag: Tag::default(), results })
    }

    fn handle() -> Outcome {
        Outcome::GetFh(Ok(ops::GetFhOk { file: Handle::new(b"f").unwrap() }))
    }

    #[test]
    fn results_fit_the_call_or_are_refused() {
        let (put, up) = (Outcome::PutFh(Ok(())), Outcome::LookupP(Ok(())));
        assert_eq!(results(Status::OK, vec![put.clone(), handle(), up.clone()]), Ok(None));
        let denied = Outcome::GetFh(Err(Status::ACCESS));
        let failed = Failed { op: Op::GetFh, at: 1, status: Status::ACCESS };
        assert_eq!(results(Status::ACCESS, vec![put.clone(), denied.clone()]), Ok(Some(failed)));
        let refused = Failed { op: Op::PutFh, at: 0, status: Status::MINOR_VERS_MISMATCH };
        assert_eq!(results(Status::MINOR_VERS_MISMATCH, vec![]), Ok(Some(refused)));
        let illegal = Failed { op: Op::PutFh, at: 0, status: Status::OP_ILLEGAL };
        assert_eq!(results(Status::OP_ILLEGAL, vec![Outcome::Illegal(Status::OP_ILLEGAL)]), Ok(Some(illegal)));
        for (status, wrong) in [
            (Status::OK, vec![]),
            (Status::OK, vec![put.clone(), handle()]),
            (Status::OK, vec![handle(), put.clone(), up.clone()]),
            (Status::OK, vec![put.clone(), handle(), up.clone(), up.clone()]),
            (Status::OK, vec![put.clone(), denied.clone()]),
            (Status::IO, vec![put.clone(), denied.clone()]),
            (Status::IO, vec![put.clone(), handle(), up.clone()]),
            (Status::OK, vec![put, denied, up]),
        ] {
            assert!(results(status, wrong.clone()).is_err(), "{status:?} {wrong:?}");
        }
    }
}
