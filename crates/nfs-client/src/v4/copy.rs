//! Copies that the server makes: COPY, CLONE, OFFLOAD_STATUS, OFFLOAD_CANCEL. Minor version 2.

use super::{
    By, Error, Nfs4, Opened,
    awaited::WaitsForCopy,
    compound::{Plan, put},
    reply::done,
    standing::Ground,
};
use futures_util::future::{Either, select};
use rpcrdma_nfs::v4::{
    Args, Handle, List, Op, StateId, Status, Verifier,
    callback::OffloadOutcome,
    ops::{self, OffloadStatusOk, Stability, WriteResponse},
};
use std::{pin::pin, time::Duration};

/// How often the client asks about a copy whose end the server does not announce.
const FIRST_ASK: Duration = Duration::from_secs(1);
/// The pause doubles up to this.
const LAST_ASK: Duration = Duration::from_secs(15);

/// The range of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The offset in the source.
    pub source_offset: u64,
    /// The offset in the target.
    pub offset: u64,
    /// How many bytes; 0 means up to the source's end.
    pub count: u64,
}

/// How much a server has copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// How many bytes; perhaps fewer than the client asked for.
    pub count: u64,
    /// How durable they are.
    pub committed: Stability,
    /// To compare like the verifier of a WRITE; `None` if the server has not returned one.
    pub verifier: Option<Verifier>,
}

impl Nfs4 {
    /// COPY: copies within the server, and waits for the end.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn copy(&self, source: &Opened, target: &Opened, span: Span) -> Result<Copied, Error> {
        let asking = self.inner.awaited.asks_to_copy();
        let mut build = |ground: &Ground| {
            let copy = ops::CopyRange {
                source_state: self.state_of(Op::Copy, By::Open(source), ground)?,
                state: self.state_of(Op::Copy, By::Open(target), ground)?,
                source_offset: span.source_offset,
                offset: span.offset,
                count: span.count,
                consecutive: true,
                synchronous: false,
                source_servers: List(Vec::new()),
            };
            Ok(vec![put(source.file()), Args::SaveFh, put(target.file()), Args::Copy(Box::new(copy))])
        };
        let plan = Plan::changes(Op::Copy);
        let mut reply = self.inner.perform(plan, Some(&target.held), &mut build).await?;
        let response = done!(reply, Copy)?.response;
        let Some(state) = response.callback else { return copied(response, span, true) };
        let waits = self.inner.awaited.copy(state);
        drop(asking);
        self.copied(target.file(), state, waits, span).await
    }

    /// Waits for CB_OFFLOAD, and asks from time to time in case that call was lost.
    async fn copied(
        &self,
        target: &Handle,
        state: StateId,
        waits: WaitsForCopy<'_>,
        span: Span,
    ) -> Result<Copied, Error> {
        let clock = &self.inner.env.clock;
        let mut pause = FIRST_ASK;
        loop {
            let ended = pin!(waits.copying.ended());
            match select(ended, clock.sleep_until(clock.now() + pause)).await {
                Either::Left((OffloadOutcome::Done(response), _)) => return copied(response, span, true),
                Either::Left((OffloadOutcome::Failed { status, .. }, _)) => {
                    return Err(self.inner.refused(Op::Copy, status));
                }
                Either::Right(_) => {}
            }
            pause = (pause * 2).min(LAST_ASK);
            let status = self.offload_status(target, state).await?;
            match status.complete {
                None => {}
                Some(Status::OK) => {
                    // Only CB_OFFLOAD says how durable the copy is and what its verifier is: without it the copy counts
                    // as not durable.
                    let response = WriteResponse {
                        callback: None,
                        count: status.count,
                        committed: Stability::Unstable,
                        verifier: Verifier::default(),
                    };
                    return copied(response, span, false);
                }
                Some(status) => return Err(self.inner.refused(Op::Copy, status)),
            }
        }
    }

    /// CLONE: makes a range of a file share the blocks of a range of another file.
    pub async fn clone_range(&self, source: &Opened, target: &Opened, span: Span) -> Result<(), Error> {
        let mut build = |ground: &Ground| {
            let clone = ops::CloneRange {
                source_state: self.state_of(Op::Clone, By::Open(source), ground)?,
                state: self.state_of(Op::Clone, By::Open(target), ground)?,
                source_offset: span.source_offset,
                offset: span.offset,
                count: span.count,
            };
            Ok(vec![put(source.file()), Args::SaveFh, put(target.file()), Args::Clone(clone)])
        };
        let plan = Plan::changes(Op::Clone);
        let mut reply = self.inner.perform(plan, Some(&target.held), &mut build).await?;
        done!(reply, Clone)
    }

    /// OFFLOAD_STATUS: how far a copy to a file has come.
    pub async fn offload_status(&self, target: &Handle, state: StateId) -> Result<OffloadStatusOk, Error> {
        let ops = [put(target), Args::OffloadStatus(ops::OffloadStatus { state })];
        let plan = Plan::looks(Op::OffloadStatus);
        let mut reply = self.inner.perform(plan, None, &mut |_| Ok(ops.to_vec())).await?;
        done!(reply, OffloadStatus)
    }
}

fn copied(response: WriteResponse, span: Span, tells_verifier: bool) -> Result<Copied, Error> {
    let WriteResponse { count, committed, verifier, .. } = response;
    if span.count > 0 && count > span.count {
        return Err(Error::nonsense(Op::Copy, "copied more bytes than it was asked to"));
    }
    Ok(Copied { count, committed, verifier: tells_verifier.then_some(verifier) })
}
