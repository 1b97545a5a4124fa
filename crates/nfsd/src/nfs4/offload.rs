//! Copies that go on after the reply to COPY: OFFLOAD_STATUS, OFFLOAD_CANCEL, CB_OFFLOAD (RFC 7862 sections 4.8, 15.8,
//! 15.9, 16.1).
//!
//! Each piece of a copy takes its client's turn in the queue, and is copied only if the stateids still permit it: a
//! copy ends with its opens, and with its client. If a copy uses a delegation and the client returns it, the copy goes
//! on by an open of the client. When the server reports the end of a whole copy, the copy is durable, unless something
//! was lost meanwhile: then the verifier shows that. A client that the server cannot call can ask.

use super::{
    callback::NoAnswer,
    compound::Compound,
    copy::rest,
    service::{Pin, Shared},
    state::{
        clients::Client,
        copies::{Copying, Ended, Running},
        stateids::{Special, special},
    },
    tell::status,
};
use crate::{
    Fault, Origin, Span, Via,
    claims::{Access, FileKey},
    opened::Opened,
    server::Server,
    trouble::Subject,
};
use rpcrdma_nfs::{
    v3,
    v4::{
        Handle, StateId, Status, Verifier,
        callback::{Args, CbOffload, OffloadOutcome, ReferringCalls},
        ops::{self, Answer, Stability, WriteResponse},
    },
};
use std::{sync::Arc, time::Duration};

/// How often the server tries to report the end of a copy, and how long it waits in between: a client that has lost its
/// connection is back within some seconds, or asks.
pub(super) const TELLS: u32 = 5;
pub(super) const TELL_AGAIN: Duration = Duration::from_secs(3);

/// A file of a copy, and the stateid by which it is used.
pub(super) struct End {
    pub(super) key: FileKey,
    pub(super) file: Opened,
    pub(super) state: StateId,
    pub(super) access: Access,
    /// The stateid is a delegation's. The client returns the delegation when another user wants the file, and then goes
    /// on by its opens.
    pub(super) by_delegation: bool,
}

/// A copy that goes on after COPY's reply.
pub(super) struct Offload {
    pub(super) shared: Arc<Shared>,
    pub(super) server: Arc<Server>,
    pub(super) client: Arc<Client<Pin>>,
    /// The origin in whose turn the work is done.
    pub(super) origin: Origin,
    /// Source and destination.
    pub(super) ends: [End; 2],
    /// The destination's handle.
    pub(super) handle: Handle,
    /// The write verifier from before the first piece.
    pub(super) verifier: Verifier,
    /// The call of COPY.
    pub(super) call: Option<ReferringCalls>,
}

impl Offload {
    /// Copies, and then reports the end to the client.
    pub(super) async fn run(mut self, running: Running, (from, to): (Via, Via), span: Span) {
        let (copying, under_way) = (running.copying.clone(), self.shared.copies.begin());
        let ended = self.copy(&copying, from, to, span).await;
        if let Err(status) = ended {
            self.warn(status);
        }
        copying.end(self.shared.now(), ended);
        // From here on this copy writes nothing.
        drop((running, under_way));
        if copying.is_cancelled() || self.client.held.is_ended() {
            return self.client.forget_copy(copying.id.other);
        }
        self.tell(&copying, ended).await;
        if copying.done() {
            self.client.forget_copy(copying.id.other);
        }
    }

    /// Warns the operator of a full or failing disk. The statuses have the same numbers as in version 3.
    fn warn(&self, status: Status) {
        let [_, End { file, .. }] = &self.ends;
        let handle = Some(self.server.handle(file, file.file));
        let client = self.origin.connection;
        let subject = Subject { procedure: "COPY", errors: "NFS4ERR_", client, file: handle, name: None };
        self.server.answered(v3::Status(status.0), || subject);
    }

    async fn copy(&mut self, copying: &Copying, from: Via, to: Via, span: Span) -> Ended {
        let file_system = self.ends[1].file.file_system.clone();
        while copying.copied() < span.length {
            self.may_go_on(copying).await?;
            let piece = rest(span, copying.copied());
            let copied = match file_system.copy(from.clone(), to.clone(), piece).await {
                // The source was truncated meanwhile.
                Ok(copied) if copied.count == 0 => break,
                Ok(copied) => copied.count,
                Err(failed) => return Err(status(failed.fault)),
            };
            copying.add(copied);
            self.shared.copies.add(copied);
        }
        let synced = file_system.commit(to, span.to, 0).await;
        let is_lost = Verifier(self.server.write_verifier(&*file_system).0) != self.verifier;
        let committed = match synced {
            // NFS4-COPY-LOSS-a
            Ok(_) if !is_lost => Stability::FileSync,
            // The client compares the verifier with that of a COMMIT, and copies again if they differ.
            Ok(_) => Stability::Unstable,
            Err(failed) if is_lost || failed.fault == Fault::Later => Stability::Unstable,
            Err(failed) => return Err(status(failed.fault)),
        };
        Ok(WriteResponse { callback: None, count: copying.copied(), committed, verifier: self.verifier })
    }

    /// Checks that the client still wants the next piece, and that the stateids permit it.
    async fn may_go_on(&mut self, copying: &Copying) -> Result<(), Status> {
        if copying.is_cancelled() {
            return Err(Status::DELAY);
        }
        // NFS4-COPY-ENDS-a
        if self.client.held.is_ended() {
            return Err(Status::EXPIRED);
        }
        let held = &self.client.held;
        for end in self.ends.iter_mut().filter(|end| end.by_delegation && !held.is_delegation(end.state)) {
            // A revoked delegation is not replaced.
            if held.test(StateId { sequence: 0, ..end.state }) == Status::BAD_STATEID
                && let Some(open) = held.open_of(end.key, end.access.bits() as u8)
            {
                // NFS4-COPY-ENDS-a
                (end.state, end.by_delegation) = (open, false);
            }
        }
        for end in &self.ends {
            // NFS4-COPY-ENDS-a
            self.may_use(end).await?;
        }
        Ok(())
    }

    /// Whether the stateid of an end still permits its use.
    async fn may_use(&self, end: &End) -> Result<(), Status> {
        let holder = match special(end.state)? {
            Some(Special::Bypass) if end.access == Access::READ => return Ok(()),
            Some(_) => None,
            None => {
                // With any sequence number: other opens and locks may have changed it since.
                let state = StateId { sequence: 0, ..end.state };
                let pin = self.client.held.pin(state, end.key, end.access.bits() as u8)?;
                if pin.is_some() {
                    return Ok(());
                }
                if end.access != Access::READ {
                    return Err(Status::OPENMODE);
                }
                let checked = self.client.held.check(state, end.key, super::state::checked::Wanted::Any)?;
                checked.owner.map(|owner| Shared::holder(self.client.id(), &owner))
            }
        };
        let may = self.shared.may(self.origin, end.key, end.access, holder.as_ref()).await;
        may.map_err(|in_the_way| in_the_way.status(Status::LOCKED))
    }

    /// Reports the end of a copy to the client. When the client has answered, the server forgets the copy.
    async fn tell(&self, copying: &Copying, ended: Ended) {
        let outcome = outcome(ended, copying.copied());
        for last in (0..TELLS).rev() {
            let offload = CbOffload { file: self.handle.clone(), state: copying.id, outcome };
            let call = vec![Args::Offload(offload)];
            let answer = self.shared.call_back(&self.client, call, self.call.iter().cloned().collect()).await;
            let status = answer.map(|outcomes| outcomes.first().map_or(Status::SERVERFAULT, |one| one.status()));
            match status {
                // The client may not know the copy yet, because COPY's reply is still under way.
                Ok(Status::DELAY) | Err(NoAnswer::NoPath | NoAnswer::Lost | NoAnswer::Refused(Status::DELAY)) => {}
                // The client has answered, whatever the status.
                Ok(_) => return self.client.forget_copy(copying.id.other),
                Err(NoAnswer::Refused(_)) => break,
            }
            if last > 0 {
                self.shared.clock.sleep_until(self.shared.now() + TELL_AGAIN).await;
            }
            if copying.is_cancelled() || self.client.held.is_ended() {
                return self.client.forget_copy(copying.id.other);
            }
        }
        tracing::debug!(client = self.client.id().0, "a client was not told that a copy has ended, and may ask");
    }
}

/// The end of a copy, in the form of CB_OFFLOAD.
fn outcome(ended: Ended, copied: u64) -> OffloadOutcome {
    match ended {
        // NFS4-7862-16.1.3-a: it names no further copy.
        Ok(response) => OffloadOutcome::Done(WriteResponse { callback: None, ..response }),
        Err(status) => OffloadOutcome::Failed { status, copied },
    }
}

impl Compound {
    pub(super) fn offload_status(&mut self, args: ops::OffloadStatus) -> Answer<ops::OffloadStatusOk> {
        let (file, client) = (self.file()?, self.client()?);
        let state = self.state_of(args.state, true)?;
        let copy = client.copy(state, Self::key(&file), self.shared.now())?;
        // The status is read first: after the end the number of bytes does not change.
        let complete = copy.outcome().map(|ended| ended.err().unwrap_or(Status::OK));
        Ok(ops::OffloadStatusOk { count: copy.copied(), complete })
    }

    /// Answers only when the copy writes nothing any more. The copied bytes stay.
    pub(super) async fn offload_cancel(&mut self, args: ops::OffloadCancel) -> Answer<()> {
        let (file, client) = (self.file()?, self.client()?);
        let state = self.state_of(args.state, true)?;
        let copy = client.cancel_copy(state, Self::key(&file), self.principal(), self.shared.now())?;
        // NFS4-7862-4.8-b
        copy.stopped().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: NFS4-7862-16.1.3-a
    #[test]
    fn a_client_is_told_how_much_was_copied_however_it_ended() {
        let done =
            WriteResponse { callback: None, count: 9, committed: Stability::FileSync, verifier: Verifier([7; 8]) };
        let named = WriteResponse { callback: Some(StateId::ANONYMOUS), ..done };
        assert_eq!(outcome(Ok(named), 9), OffloadOutcome::Done(done));
        let failed = OffloadOutcome::Failed { status: Status::NOSPC, copied: 5 };
        assert_eq!(outcome(Err(Status::NOSPC), 5), failed);
    }
}
