//! The NFS version 2 service (RFC 1094), off unless a program asks for it: version 3 carries out each procedure.
//!
//! Handles of 32 bytes mean the same files as those of version 3 (`handles.rs`), and are opened by the same code;
//! exports, callers, claims and warnings are the same as in version 3. This module adds what version 2 lacks: larger
//! sizes and cookies, and a status for "later". If a file is delegated to a client of another version, the call waits
//! until that client has returned it, for a limited time.
//!
//! A file of 4 GiB or more appears with 2^32 - 1 bytes; clients can remove, rename and write it. They cannot read it
//! (`NFSERR_FBIG`): a client that reads up to that size would take a part for the whole file.

mod about;
mod change;
mod cookies;
mod directory;
mod handles;
mod look;
mod table;
mod tell;
#[cfg(test)]
mod tests;

use crate::{Origin, Queue, SECRET_BYTES, StateDirectory, handle::Target, nfs3, server::Server, trouble::Subject};
use about::About;
use cookies::Cookies;
use handles::Seal2;
use rpcrdma_env::{BoxFuture, Clock};
use rpcrdma_nfs::{
    v2::{self, Procedure},
    v3::{self, Status},
};
use rpcrdma_oncrpc::{Answer, AuthStat, CallContext, Service};
use rpcrdma_xdr::{Decode, Decoder, Encode};
use std::{io, path::PathBuf, sync::Arc, time::Duration};
use table::Table;

/// The first wait for a file that is delegated to another client; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The limit of all waits of one call together. It is longer than the lease, after which the server takes a delegation
/// away from a client that does not return it.
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// Room for the results of most procedures, in bytes.
const SHORT_RESULT_BYTES: usize = 128;

/// The state of version 2, beside the state that all versions share.
pub(crate) struct Version2 {
    seal: Seal2,
    table: Arc<Table>,
    cookies: Cookies,
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
}

/// Why version 2 cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("the table of handles of NFS version 2, {}, cannot be used", path.display())]
pub struct Version2Error {
    path: PathBuf,
    source: io::Error,
}

impl Version2 {
    /// Opens the table of handles, and waits for the disk. `server` is the number of this server among those that share
    /// the state directory.
    pub(crate) fn open(
        state: &StateDirectory,
        server: u64,
        (secret, queue, clock): ([u8; SECRET_BYTES], Arc<Queue>, Arc<dyn Clock>),
    ) -> Result<Self, Version2Error> {
        let path = state.path().join(format!("v2-handles-{server:016x}"));
        let seal = Seal2::new(secret);
        let table = Table::open(&path, &seal).map_err(|source| Version2Error { path, source })?;
        Ok(Self { seal, table: Arc::new(table), cookies: Cookies::new(secret), queue, clock })
    }

    /// The target of a handle that this server has made. `file_system_of` returns the file system of an export.
    pub(crate) fn target(&self, handle: &[u8], file_system_of: impl Fn(u32) -> Option<u64>) -> Option<Target> {
        handles::open(&self.seal, &self.table, handle, file_system_of)
    }

    /// The handle of a target. When this returns, the handle survives a restart.
    ///
    /// # Errors
    /// SERVERFAULT if the table cannot be written.
    pub(crate) async fn handle(&self, origin: Origin, target: Target) -> Result<v2::Handle, Status> {
        if let Some(handle) = self.seal.in_itself(&target) {
            return Ok(handle);
        }
        let digest = self.seal.digest(&target);
        if self.table.find(&digest).is_none() {
            let table = self.table.clone();
            let added = self.queue.ask(origin, move || table.add(digest, target)).await;
            match added {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(%error, "the table of handles of version 2 cannot be written");
                    return Err(Status::SERVERFAULT);
                }
                Err(_) => return Err(Status::SERVERFAULT),
            }
        }
        Ok(handles::by_table(&digest))
    }
}

impl Server {
    /// The handle of version 2 for the file of a version 3 handle.
    pub(crate) async fn handle_2(&self, context: &CallContext, handle: &v3::Handle) -> Result<v2::Handle, Status> {
        let version_2 = self.version_2.get().ok_or(Status::NOTSUPP)?;
        let target = self.seal.open(handle).ok_or(Status::SERVERFAULT)?;
        version_2.handle(Origin::of(context), target).await
    }
}

/// The handle's bytes in the type of version 3, whose code takes handles of all versions.
fn three(handle: &v2::Handle) -> v3::Handle {
    v3::Handle::new(&handle.0).expect("32 bytes are fewer than 64")
}

/// The service.
pub(crate) struct Nfs2 {
    pub(crate) server: Arc<Server>,
    pub(crate) version_2: Arc<Version2>,
}

/// One call.
struct Execution {
    server: Arc<Server>,
    version_2: Arc<Version2>,
    context: CallContext,
}

impl Execution {
    /// The same call, as version 3 would execute it.
    fn three(&self) -> nfs3::Execution {
        nfs3::Execution { server: self.server.clone(), context: self.context.clone() }
    }

    /// Lets version 3 do it, again and again while it answers "later".
    // NFS2-LATER-a
    async fn patiently<T, I, F>(&self, mut call: impl FnMut(nfs3::Execution) -> F) -> Result<T, Status>
    where
        F: Future<Output = v3::Answer<T, I>>,
    {
        let clock = &self.version_2.clock;
        let (until, mut wait) = (clock.now() + WAIT_LIMIT, FIRST_WAIT);
        loop {
            let answer = call(self.three()).await;
            // NFS2-LATER-a
            if answer.status() != Status::JUKEBOX || clock.now() >= until {
                return answer.into_result().map_err(|failure| failure.status);
            }
            clock.sleep_until(clock.now() + wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Whether the export of the file takes the call's flavour. Before a client knows the flavour, it may ask some
    /// things of a root in any flavour (RFC 2623 section 2.3.2).
    fn takes(&self, procedure: Procedure, args: &impl About) -> bool {
        let asks_of_root = matches!(procedure, Procedure::GetAttributes | Procedure::FileSystemStatus);
        !self.server.is_choosy
            || args.file().is_none_or(|file| self.server.takes(&self.context, &three(file), asks_of_root))
    }

    /// What a call is about, for warnings.
    fn subject(&self, procedure: Procedure, args: &impl About) -> Subject {
        Subject {
            procedure: procedure.name(),
            errors: "NFSERR_",
            client: self.context.connection.peer,
            file: args.file().map(three),
            name: args.name().map(|name| name.0.clone()),
        }
    }
}

fn ready(answer: Answer) -> BoxFuture<'static, Answer> {
    Box::pin(std::future::ready(answer))
}

/// Decodes all of the arguments, and executes.
fn execute<A, R, F>(
    mut args: Decoder,
    it: Execution,
    procedure: Procedure,
    call: impl FnOnce(Execution, A) -> F,
) -> BoxFuture<'static, Answer>
where
    A: Decode + About,
    R: Encode,
    F: Future<Output = Result<R, Status>> + Send + 'static,
{
    let decoded = A::decode(&mut args).and_then(|decoded| args.finish().map(|()| decoded));
    match decoded {
        Err(error) => ready(Answer::from(error)),
        Ok(decoded) if !it.takes(procedure, &decoded) => ready(Answer::AuthError(AuthStat::TOO_WEAK)),
        Ok(decoded) => {
            let (server, subject) = (it.server.clone(), it.subject(procedure, &decoded));
            let scratch = it.context.connection.scratch.clone();
            let call = call(it, decoded);
            Box::pin(async move {
                let mut encoder = scratch.encoder(SHORT_RESULT_BYTES);
                match call.await {
                    Ok(results) if procedure.has_status() => v2::Answer::Ok(results).encode(&mut encoder),
                    Ok(results) => results.encode(&mut encoder),
                    Err(status) => {
                        server.answered(status, || subject);
                        tell::status(status).encode(&mut encoder);
                    }
                }
                Answer::Results(encoder.finish())
            })
        }
    }
}

impl Service for Nfs2 {
    fn program(&self) -> u32 {
        v2::PROGRAM
    }

    fn version(&self) -> u32 {
        v2::VERSION
    }

    // NFS2-DUP-a
    fn is_idempotent(&self, procedure: u32) -> bool {
        // ULB-3.4.2-a
        Procedure::from_number(procedure).is_none_or(Procedure::is_idempotent)
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        let it = Execution { server: self.server.clone(), version_2: self.version_2.clone(), context };
        let Some(procedure) = Procedure::from_number(procedure) else { return ready(Answer::ProcUnavail) };
        match procedure {
            // The obsolete procedures take and return nothing, like NULL: Linux's server answers them in this way.
            Procedure::Null => execute(args, it, procedure, |_, v2::Null {}| async { Ok(()) }),
            Procedure::Root => execute(args, it, procedure, |_, v2::Root {}| async { Ok(()) }),
            Procedure::WriteCache => execute(args, it, procedure, |_, v2::WriteCache {}| async { Ok(()) }),
            Procedure::GetAttributes => execute(args, it, procedure, Execution::get_attributes),
            Procedure::SetAttributes => execute(args, it, procedure, Execution::set_attributes),
            Procedure::Lookup => execute(args, it, procedure, Execution::lookup),
            Procedure::ReadLink => execute(args, it, procedure, Execution::read_link),
            Procedure::Read => execute(args, it, procedure, Execution::read),
            Procedure::Write => execute(args, it, procedure, Execution::write),
            Procedure::Create => execute(args, it, procedure, Execution::create),
            Procedure::Remove => execute(args, it, procedure, Execution::remove),
            Procedure::Rename => execute(args, it, procedure, Execution::rename),
            Procedure::Link => execute(args, it, procedure, Execution::link),
            Procedure::SymbolicLink => execute(args, it, procedure, Execution::symbolic_link),
            Procedure::MakeDirectory => execute(args, it, procedure, Execution::make_directory),
            Procedure::RemoveDirectory => execute(args, it, procedure, Execution::remove_directory),
            Procedure::ReadDirectory => execute(args, it, procedure, Execution::read_directory),
            Procedure::FileSystemStatus => execute(args, it, procedure, Execution::file_system_status),
        }
    }
}
