//! The NFS version 3 service (RFC 1813): from arguments to the file system and back.
//!
//! Every procedure opens the handle (check, export, client's address, caller), calls the file system, and converts the
//! result. Data of a READ goes into a buffer of the connection's allocator and travels from there; data of a WRITE is
//! shared with the received message. Errors are statuses.

mod about;
mod change;
mod look;
mod tell;

use crate::{
    claims,
    nfs4::InTheWay,
    opened::Opened,
    server::Server,
    transfer::{Counted, MAX_LISTING_BYTES, MESSAGE_OVERHEAD_BYTES, transfer_limits},
    trouble::Subject,
};
pub(crate) use about::About;
use about::HasStatus;
use futures_util::FutureExt as _;
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::v3::{self, Procedure, Status};
use rpcrdma_oncrpc::{Answer, AuthStat, Begun, CallContext, Service};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder};
use std::sync::Arc;
pub(crate) use tell::{answer, failure, refused, status};

/// The service. Cloning shares the server.
pub(crate) struct Nfs3 {
    pub(crate) server: Arc<Server>,
}

/// One call. NFSACL executes its calls in the same way (`nfsacl/`).
pub(crate) struct Execution {
    pub(crate) server: Arc<Server>,
    pub(crate) context: CallContext,
}

impl Execution {
    pub(crate) fn open(&self, handle: &v3::Handle) -> Result<Opened, Status> {
        self.server.open(&self.context, handle)
    }

    /// Opens the file for a procedure that changes something.
    pub(crate) fn open_to_change(&self, handle: &v3::Handle) -> Result<Opened, Status> {
        let opened = self.open(handle)?;
        // NFS3-ACL-a
        if opened.read_only { Err(Status::ROFS) } else { Ok(opened) }
    }

    /// Fails if a client of version 4 denies reading or writing the file. The status is not JUKEBOX (the caller would
    /// ask again for as long as that client has the file open), unless that client's lease is over.
    async fn may(&self, file: &Opened, access: claims::Access) -> Result<(), Status> {
        self.server.may(file, access).await.map_err(|in_the_way| match in_the_way {
            InTheWay::Holder => Status::ACCES,
            InTheWay::Journal | InTheWay::Delegation => Status::JUKEBOX,
        })
    }

    /// Fails if a client of version 4 has a delegation that excludes this use of the file; no such delegation is
    /// granted until the use is over. The server recalls the delegation: the status is JUKEBOX, and the caller asks
    /// again.
    pub(crate) async fn using(&self, file: &Opened, kind: claims::Kind) -> Result<claims::Using, Status> {
        self.server.using(file, None, kind).await.map_err(|_| Status::JUKEBOX)
    }

    /// The same for the file that is about to lose this name.
    async fn using_name(&self, directory: &Opened, name: &v3::Name) -> Result<Option<claims::Using>, Status> {
        self.server.using_name(directory, &name.0, None).await.map_err(|_| Status::JUKEBOX)
    }

    /// Whether the export of the file takes the call's flavour.
    // NFS3-2623-2.3-b
    fn takes(&self, procedure: &'static str, args: &impl About) -> bool {
        if !self.server.is_choosy {
            return true;
        }
        let asks_of_root =
            [Procedure::GetAttributes, Procedure::FileSystemInfo].map(Procedure::name).contains(&procedure);
        args.file().is_none_or(|handle| self.server.takes(&self.context, handle, asks_of_root))
    }

    /// What a call is about, for warnings.
    fn subject(&self, procedure: &'static str, args: &impl About) -> Subject {
        let client = self.context.connection.peer;
        let name = args.name().map(|name| name.0.clone());
        Subject { procedure, errors: "NFS3ERR_", client, file: args.file().cloned(), name }
    }

    /// The largest READ and the largest WRITE over the call's transport.
    fn transfer_limits(&self) -> (usize, usize) {
        transfer_limits(self.context.connection.limits)
    }

    fn listing_limit(&self) -> usize {
        self.context.connection.limits.max_reply.saturating_sub(MESSAGE_OVERHEAD_BYTES).min(MAX_LISTING_BYTES)
    }
}

/// The export does not take the call's flavour (RFC 2623 section 2.3).
// NFS3-2623-2.3-a
const TOO_WEAK: Answer = Answer::AuthError(AuthStat::TOO_WEAK);

/// Checks a name. `.` and `..` pass.
fn check_name(opened: &Opened, name: &v3::Name) -> Result<(), Status> {
    let name = name.as_slice();
    if name.is_empty() || name.iter().any(|octet| matches!(octet, b'/' | 0)) {
        return Err(Status::INVAL);
    }
    let max = usize::try_from(opened.file_system.features().max_name_bytes).unwrap_or(usize::MAX);
    if name.len() > max { Err(Status::NAMETOOLONG) } else { Ok(()) }
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Room for the results of most procedures, in bytes.
const SHORT_RESULT_BYTES: usize = 192;

/// Decodes all of the arguments, and executes.
pub(crate) fn execute<A, R, F>(
    args: Decoder,
    it: Execution,
    procedure: &'static str,
    call: impl FnOnce(Execution, A) -> F,
) -> BoxFuture<'static, Answer>
where
    A: Decode + About,
    R: Encode + HasStatus,
    F: Future<Output = R> + Send + 'static,
{
    match begin(args, it, procedure, |_, _| None, call) {
        Begun::Done(answer) => Box::pin(std::future::ready(answer)),
        Begun::Waits(call) => call,
    }
}

/// The same for a procedure that often waits for nothing: `now` executes it in that case.
fn begin<A, R, F>(
    mut args: Decoder,
    it: Execution,
    procedure: &'static str,
    now: impl FnOnce(&Execution, &A) -> Option<R>,
    call: impl FnOnce(Execution, A) -> F,
) -> Begun<Answer>
where
    A: Decode + About,
    R: Encode + HasStatus,
    F: Future<Output = R> + Send + 'static,
{
    let decoded = match A::decode(&mut args).and_then(|decoded| args.finish().map(|()| decoded)) {
        Err(error) => return Begun::Done(Answer::from(error)),
        Ok(decoded) if !it.takes(procedure, &decoded) => return Begun::Done(TOO_WEAK),
        Ok(decoded) => decoded,
    };
    if let Some(answer) = now(&it, &decoded) {
        it.server.answered(answer.status(), || it.subject(procedure, &decoded));
        return Begun::Done(results(&it.context, &answer));
    }
    let (server, context, subject) = (it.server.clone(), it.context.clone(), it.subject(procedure, &decoded));
    // An async block around the call would have room for it twice.
    Begun::Waits(Box::pin(call(it, decoded).map(move |answer| {
        server.answered(answer.status(), || subject);
        results(&context, &answer)
    })))
}

fn results(context: &CallContext, answer: &impl Encode) -> Answer {
    context.results(SHORT_RESULT_BYTES, |encoder| answer.encode(encoder))
}

/// The same for a listing. Unlike the data of a READ, it is put together on the heap, and may be as large as the client
/// asks: so it counts as that much of the connection's memory, from before it begins until the transport has taken the
/// reply.
pub(crate) fn execute_listing<A, R, F>(
    mut args: Decoder,
    it: Execution,
    procedure: &'static str,
    octets: fn(&A) -> u32,
    call: impl FnOnce(Execution, A) -> F + Send + 'static,
) -> BoxFuture<'static, Answer>
where
    A: Decode + About + Send + 'static,
    R: Encode + HasStatus,
    F: Future<Output = R> + Send + 'static,
{
    let decoded = A::decode(&mut args).and_then(|decoded| args.finish().map(|()| decoded));
    match decoded {
        Err(error) => Box::pin(std::future::ready(Answer::from(error))),
        Ok(decoded) if !it.takes(procedure, &decoded) => Box::pin(std::future::ready(TOO_WEAK)),
        Ok(decoded) => Box::pin(async move {
            let counted = it.buffer(it.listing_bytes(octets(&decoded))).await;
            let (server, subject) = (it.server.clone(), it.subject(procedure, &decoded));
            let mut encoder = Encoder::new();
            let answer = call(it, decoded).await;
            server.answered(answer.status(), || subject);
            answer.encode(&mut encoder);
            Answer::Results(Counted::payload(encoder.finish(), counted))
        }),
    }
}

impl Service for Nfs3 {
    fn program(&self) -> u32 {
        v3::PROGRAM
    }

    fn version(&self) -> u32 {
        v3::VERSION
    }

    fn is_idempotent(&self, procedure: u32) -> bool {
        Procedure::from_number(procedure).is_none_or(Procedure::is_idempotent)
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        let it = Execution { server: self.server.clone(), context };
        let Some(procedure) = Procedure::from_number(procedure) else {
            return Box::pin(std::future::ready(Answer::ProcUnavail));
        };
        let name = procedure.name();
        match procedure {
            Procedure::Null => execute(args, it, name, |_, v3::Null {}| async {}),
            Procedure::GetAttributes => execute(args, it, name, Execution::get_attributes),
            Procedure::SetAttributes => execute(args, it, name, Execution::set_attributes),
            Procedure::Lookup => execute(args, it, name, Execution::lookup),
            Procedure::Access => execute(args, it, name, Execution::access),
            Procedure::ReadLink => execute(args, it, name, Execution::read_link),
            Procedure::Read => execute(args, it, name, Execution::read),
            Procedure::Write => execute(args, it, name, Execution::write),
            Procedure::Create => execute(args, it, name, Execution::create),
            Procedure::MakeDirectory => execute(args, it, name, Execution::make_directory),
            Procedure::SymbolicLink => execute(args, it, name, Execution::symbolic_link),
            Procedure::MakeNode => execute(args, it, name, Execution::make_node),
            Procedure::Remove => execute(args, it, name, Execution::remove),
            Procedure::RemoveDirectory => execute(args, it, name, Execution::remove_directory),
            Procedure::Rename => execute(args, it, name, Execution::rename),
            Procedure::Link => execute(args, it, name, Execution::link),
            Procedure::ReadDirectory => {
                execute_listing(args, it, name, |args: &v3::ReadDirectory| args.count, Execution::read_directory)
            }
            Procedure::ReadDirectoryPlus => execute_listing(
                args,
                it,
                name,
                |args: &v3::ReadDirectoryPlus| args.max_count,
                Execution::read_directory_plus,
            ),
            Procedure::FileSystemStatus => execute(args, it, name, Execution::file_system_status),
            Procedure::FileSystemInfo => execute(args, it, name, Execution::file_system_info),
            Procedure::PathConfiguration => execute(args, it, name, Execution::path_configuration),
            Procedure::Commit => execute(args, it, name, Execution::commit),
        }
    }

    fn begin(&self, context: CallContext, procedure: u32, args: Decoder) -> Begun<Answer> {
        let it = Execution { server: self.server.clone(), context };
        match Procedure::from_number(procedure) {
            Some(asked @ Procedure::GetAttributes) => {
                begin(args, it, asked.name(), Execution::attributes_now, Execution::get_attributes)
            }
            Some(asked @ Procedure::Read) => begin(args, it, asked.name(), Execution::read_now, Execution::read),
            _ => Begun::Waits(self.call(it.context, procedure, args)),
        }
    }
}
