//! Copies within the server: CLONE and COPY (RFC 7862 sections 4, 15.2, 15.13).
//!
//! The source is the saved file, the destination the current file; each has its own stateid. The server makes a short
//! copy before it replies to COPY, in pieces as large as a WRITE, between which other work is done. A long copy goes on
//! after the reply ([`offload`]) if the server can call the client about its end. If it cannot, the reply reports what
//! was copied in a few pieces, and the client asks for the rest. Copied data is uncommitted, as after a WRITE.
//!
//! [`offload`]: super::offload

use super::{
    compound::Compound,
    current::Current,
    offload::{End, Offload},
    space::end,
    tell::status,
};
use crate::{Fault, Span, Via, claims::Access, opened::Opened};
use rpcrdma_nfs::{
    attr::Stability,
    v4::{
        StateId, Status, Verifier,
        ops::{self, Answer, CopyFailure, CopyRequirements, WriteResponse},
    },
};

/// The most bytes that COPY copies before its reply; longer copies go on after it. This is four of the largest WRITEs,
/// which is also what Linux's server copies at a time.
pub(super) const SYNCHRONOUS_BYTES: u64 = 4 << 20;
/// The most pieces before the reply: if many holes make pieces small, COPY copies less.
const SYNCHRONOUS_PIECES: usize = 16;

/// The files of a copy, and the opens or callers by which they are read and written.
struct Ends {
    source: End,
    target: End,
    from: Via,
    to: Via,
}

/// The arguments that COPY and CLONE have in common.
struct Asked {
    source_state: StateId,
    state: StateId,
    from: u64,
    to: u64,
    count: u64,
}

impl Asked {
    /// The range, which has to lie within the source.
    // NFS4-7862-15.2.3-d
    fn span(&self, size: u64) -> Result<Span, Status> {
        let length = match self.count {
            0 => size.checked_sub(self.from).ok_or(Status::INVAL)?,
            count => count,
        };
        end(self.to, length)?;
        // NFS4-7862-15.2.3-c, NFS4-7862-15.13.3-b
        if end(self.from, length)? > size {
            return Err(Status::INVAL);
        }
        Ok(Span { from: self.from, to: self.to, length })
    }
}

/// The status of a copy that has failed.
fn copy_status(fault: Fault) -> Status {
    match fault {
        // The file was a regular one a moment ago.
        Fault::IsDirectory | Fault::IsSymlink => Status::WRONG_TYPE,
        fault => status(fault),
    }
}

impl Compound {
    /// Both ends of a copy, after all checks that need neither sizes nor offsets.
    // NFS4-7862-15.2.3-a
    async fn ends(&self, asked: &Asked) -> Result<Ends, Status> {
        let (source, target) = (self.saved_file()?, self.file_to_change()?);
        Self::check_is_regular(&source).await?;
        Self::check_is_regular(&target).await?;
        let source_state = self.source_state(asked.source_state)?;
        let state = self.state_of(asked.state, false)?;
        let from = self.via(&source, source_state, Access::READ).await?;
        let to = self.via(&target, state, Access::WRITE).await?;
        // Without an open, the source is only a number, which means nothing in another file system.
        if source.file_system.id() != target.file_system.id() && from.opened().is_none() {
            return Err(Status::XDEV);
        }
        let held = &self.client()?.held;
        let end = |file: Opened, state, access| {
            let by_delegation = held.is_delegation(state);
            End { key: Self::key(&file), file, state, access, by_delegation }
        };
        Ok(Ends {
            source: end(source, source_state, Access::READ),
            target: end(target, state, Access::WRITE),
            from,
            to,
        })
    }

    /// The stateid of the source: the current stateid here means the saved file's.
    fn source_state(&self, state: StateId) -> Result<StateId, Status> {
        if state != StateId::CURRENT {
            return Ok(state);
        }
        let saved = self.saved.as_ref().and_then(|Current { state, .. }| *state).ok_or(Status::BAD_STATEID)?;
        Ok(if saved.is_special() { saved } else { StateId { sequence: 0, ..saved } })
    }

    pub(super) async fn clone_range(&mut self, args: ops::CloneRange) -> Answer<()> {
        let ops::CloneRange { source_state, state, source_offset: from, offset: to, count } = args;
        let asked = Asked { source_state, state, from, to, count };
        let ends = self.ends(&asked).await?;
        let file_system = &ends.target.file.file_system;
        let unit = u64::from(file_system.features().clone_bytes.ok_or(Status::NOTSUPP)?);
        let size = ends.source.file.attributes().await.map_err(status)?.size;
        let span = asked.span(size)?;
        // NFS4-7862-15.13.3-a
        let is_unit = |octets: u64| octets.is_multiple_of(unit);
        if !is_unit(from) || !is_unit(to) || !is_unit(span.length) && from + span.length != size {
            return Err(Status::INVAL);
        }
        // NFS4-7862-15.13.3-c
        if ends.is_one_file() && span.overlaps() {
            return Err(Status::INVAL);
        }
        if span.length == 0 {
            return Ok(());
        }
        // NFS4-7862-15.13.3-d
        let cloned = file_system.clone_range(ends.from, ends.to, span).await;
        cloned.map(drop).map_err(|failed| copy_status(failed.fault))
    }

    pub(super) async fn copy_range(&mut self, args: ops::CopyRange) -> Answer<ops::CopyOk, CopyFailure> {
        let ops::CopyRange { source_state, state, source_offset: from, offset: to, count, .. } = args;
        // The server copies nothing from other servers: none of them knows that this one would read there.
        if !args.source_servers.is_empty() {
            return Err(Status::NOTSUPP.into());
        }
        let asked = Asked { source_state, state, from, to, count };
        let ends = self.ends(&asked).await?;
        // NFS4-7862-15.2.3-b
        if ends.is_one_file() {
            return Err(Status::INVAL.into());
        }
        let size = ends.source.file.attributes().await.map_err(status)?.size;
        let span = asked.span(size)?;
        let verifier = self.verifier(&ends);
        let client = self.client()?;
        let is_long = !args.synchronous && span.length > SYNCHRONOUS_BYTES;
        if is_long && self.shared.can_call(&client) {
            let begun = client.begin_copy(ends.target.key, self.principal(), self.shared.now())?;
            if let Some(running) = begun {
                let callback = Some(running.copying.id);
                let handle = self.handle(&ends.target.file)?;
                let Ends { source, target, from, to } = ends;
                let offload = Offload {
                    shared: self.shared.clone(),
                    server: self.server.clone(),
                    client,
                    origin: self.origin(),
                    ends: [source, target],
                    handle,
                    verifier,
                    call: self.this_call(),
                };
                self.shared.tasks.spawn(offload.run(running, (from, to), span));
                let response = WriteResponse { callback, count: 0, committed: ops::Stability::Unstable, verifier };
                return Ok(told(response));
            }
        }
        let response = self.copy_now(ends, span, verifier).await?;
        Ok(told(response))
    }

    /// Shows whether copied data may have been lost since.
    fn verifier(&self, ends: &Ends) -> Verifier {
        Verifier(self.server.write_verifier(&*ends.target.file.file_system).0)
    }

    /// Copies the first pieces of a range.
    // NFS4-LIMITS-COPIES-b
    async fn copy_now(&self, ends: Ends, span: Span, verifier: Verifier) -> Result<WriteResponse, Status> {
        let wanted = span.length.min(SYNCHRONOUS_BYTES);
        let mut response = WriteResponse { callback: None, count: 0, committed: ops::Stability::FileSync, verifier };
        for _ in 0..SYNCHRONOUS_PIECES {
            if response.count >= wanted {
                break;
            }
            let rest = rest(span, response.count);
            match ends.target.file.file_system.copy(ends.from.clone(), ends.to.clone(), rest).await {
                Ok(copied) if copied.count == 0 => break,
                Ok(copied) => {
                    response.count += copied.count;
                    self.shared.copies.add(copied.count);
                    if copied.committed != Stability::FileSync {
                        response.committed = ops::Stability::Unstable;
                    }
                }
                // The reply has the bytes copied so far; the client asks for the rest, and then learns the error.
                Err(_) if response.count > 0 => break,
                Err(failed) => return Err(copy_status(failed.fault)),
            }
        }
        Ok(response)
    }
}

impl Ends {
    fn is_one_file(&self) -> bool {
        self.source.key == self.target.key
    }
}

/// The rest of a range.
pub(super) fn rest(span: Span, done: u64) -> Span {
    let Span { from, to, length } = span;
    Span { from: from.saturating_add(done), to: to.saturating_add(done), length: length.saturating_sub(done) }
}

/// COPY's results: the server always copies bytes in order.
fn told(response: WriteResponse) -> ops::CopyOk {
    let requirements = CopyRequirements { consecutive: true, synchronous: response.callback.is_none() };
    ops::CopyOk { response, requirements }
}
