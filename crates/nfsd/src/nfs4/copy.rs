//! Copies within the server: CLONE and COPY (RFC 7862 sections 4, 15.2, 15.13).
//!
//! The source is the saved file, the destination the current one; each has a stateid of its own. A short copy is made
//! before COPY is answered, in pieces as large as a WRITE, and others come in between. A long one goes on afterwards
//! ([`offload`]) if the server can tell the client its end; if not, COPY is answered with what was copied in a few
//! pieces, and the client asks for the rest. What was copied is uncommitted, as after a WRITE.
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

/// The most that COPY copies before it is answered, in bytes: longer copies go on afterwards. Four of the largest
/// WRITEs, which is what Linux's server copies at a time, too.
pub(super) const SYNCHRONOUS_OCTETS: u64 = 4 << 20;
/// The most pieces that it copies in, in number: where pieces are small, since there are many holes, it copies less.
const SYNCHRONOUS_PIECES: usize = 16;

/// The files of a copy, and by what they are read and written.
struct Ends {
    source: End,
    target: End,
    from: Via,
    to: Via,
}

/// What COPY and CLONE have in common.
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
        // What has become of a file since it was found to be a regular one.
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
        // One that is not open is known by a number that means nothing in another file system.
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

    /// The stateid of the source, which is that of the saved file where the current one is asked for.
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
        let unit = u64::from(file_system.features().clone_octets.ok_or(Status::NOTSUPP)?);
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
        // Nothing is copied from other servers: none of them knows that this one would read there.
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
        let is_long = !args.synchronous && span.length > SYNCHRONOUS_OCTETS;
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

    /// Whether what was copied may have been lost since.
    fn verifier(&self, ends: &Ends) -> Verifier {
        Verifier(self.server.write_verifier(&*ends.target.file.file_system).0)
    }

    /// Copies the first pieces of a range.
    // NFS4-LIMITS-COPIES-b
    async fn copy_now(&self, ends: Ends, span: Span, verifier: Verifier) -> Result<WriteResponse, Status> {
        let wanted = span.length.min(SYNCHRONOUS_OCTETS);
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
                // What was copied before is returned; the client asks for the rest, and learns why there is none.
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

/// What is left of a range.
pub(super) fn rest(span: Span, done: u64) -> Span {
    let Span { from, to, length } = span;
    Span { from: from.saturating_add(done), to: to.saturating_add(done), length: length.saturating_sub(done) }
}

/// COPY's results: bytes are always copied one after the other.
fn told(response: WriteResponse) -> ops::CopyOk {
    let requirements = CopyRequirements { consecutive: true, synchronous: response.callback.is_none() };
    ops::CopyOk { response, requirements }
}
