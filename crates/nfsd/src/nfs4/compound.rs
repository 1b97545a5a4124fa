//! The operations of a COMPOUND, one after the other (RFC 8881 sections 2.10, 15.1.1.1, 16.2).
//!
//! Each operation's results are encoded by themselves and appended, so that their size is known before the next begins: an
//! operation that changes something is refused before it is executed where its largest results might not fit
//! (REP_TOO_BIG), one that only looks is executed and its results thrown away. The first failure ends the call.

use super::{
    current::Current,
    kinds::is_missing,
    service::{Pin, Shared, principal},
    state::{
        clients::{Client, Principal},
        session::Session,
    },
};
use crate::{
    Origin,
    claims::FileKey,
    server::{Opened, Server},
    transfer::Counted,
};
use rpcrdma_env::Buffer;
use rpcrdma_nfs::v4::{Args, Arguments, Op, Outcome, Status, Tag, ops};
use rpcrdma_oncrpc::CallContext;
use rpcrdma_xdr::{Encode, Encoder, Payload};
use std::{sync::Arc, time::Duration};

/// Octets of an RPC reply before COMPOUND's results, with an empty verifier: what `ca_maxresponsesize` counts besides.
const RPC_REPLY_OCTETS: usize = 24;

/// A COMPOUND that is executed.
pub(super) struct Compound {
    pub(super) server: Arc<Server>,
    pub(super) shared: Arc<Shared>,
    pub(super) context: CallContext,
    pub(super) minor: u32,
    pub(super) current: Option<Current>,
    pub(super) saved: Option<Current>,
    session: Option<InSession>,
    /// Whether a result holds memory of the connection's: a second may not be waited for, since others may wait for the first.
    holds_memory: bool,
    /// Memory that the results of the operation count as which is executed.
    pub(super) counted: Option<Buffer>,
}

/// What SEQUENCE has said.
struct InSession {
    session: Arc<Session<Pin>>,
    ok: ops::SequenceOk,
    /// Whether the reply is kept, and has to fit.
    is_kept: bool,
}

/// What a COMPOUND returns.
pub(super) struct Reply {
    status: Status,
    tag: Tag,
    count: u32,
    results: Encoder,
}

impl Reply {
    /// Octets so far, as the session counts them.
    fn octets(&self) -> usize {
        RPC_REPLY_OCTETS + 12 + rpcrdma_xdr::padded(self.tag.0.len()) + self.results.position()
    }

    fn push(&mut self, status: Status, outcome: Payload) {
        self.status = status;
        self.count += 1;
        self.results.payload(outcome);
    }

    /// The results as they go on the wire.
    pub(super) fn payload(self) -> Payload {
        let mut encoder = Encoder::new();
        self.status.encode(&mut encoder);
        self.tag.encode(&mut encoder);
        encoder.u32(self.count);
        encoder.payload(self.results.finish());
        encoder.finish()
    }
}

/// Operations that are executed without SEQUENCE before them, and then alone (RFC 8881 section 2.10.2.2).
fn may_stand_alone(op: Op) -> bool {
    matches!(op, Op::ExchangeId | Op::CreateSession | Op::DestroySession | Op::BindConnToSession | Op::DestroyClientId)
}

/// Operations that change nothing: their results may be found not to fit after they were executed.
fn only_looks(op: Op) -> bool {
    matches!(
        op,
        Op::Access
            | Op::GetAttr
            | Op::GetFh
            | Op::LockT
            | Op::Lookup
            | Op::LookupP
            | Op::NVerify
            | Op::PutFh
            | Op::PutPubFh
            | Op::PutRootFh
            | Op::Read
            | Op::ReadDir
            | Op::ReadLink
            | Op::RestoreFh
            | Op::SaveFh
            | Op::SecInfo
            | Op::SecInfoNoName
            | Op::Sequence
            | Op::TestStateId
            | Op::Verify
    )
}

impl Compound {
    pub(super) fn new(server: Arc<Server>, shared: Arc<Shared>, context: CallContext, minor: u32) -> Self {
        Self {
            server,
            shared,
            context,
            minor,
            current: None,
            saved: None,
            session: None,
            holds_memory: false,
            counted: None,
        }
    }

    /// SEQUENCE has found its slot.
    pub(super) fn enter(&mut self, session: Arc<Session<Pin>>, ok: ops::SequenceOk, is_kept: bool) {
        self.session = Some(InSession { session, ok, is_kept });
    }

    /// The session.
    ///
    /// # Errors
    /// OP_NOT_IN_SESSION without one.
    pub(super) fn session(&self) -> Result<&Arc<Session<Pin>>, Status> {
        self.session.as_ref().map(|inside| &inside.session).ok_or(Status::OP_NOT_IN_SESSION)
    }

    /// Whose session it is: stateids and owners are this client's.
    ///
    /// # Errors
    /// OP_NOT_IN_SESSION without one.
    pub(super) fn client(&self) -> Result<Arc<Client<Pin>>, Status> {
        self.session().map(|session| session.client().clone())
    }

    /// Whose turn it is that this costs.
    pub(super) fn origin(&self) -> Origin {
        Origin::of(&self.context)
    }

    /// Who calls.
    pub(super) fn principal(&self) -> Principal {
        principal(&self.context.credential)
    }

    /// A file in the tables of what is held.
    pub(super) fn key(file: &Opened) -> FileKey {
        FileKey { file_system: file.file_system.id(), file: file.file }
    }

    /// Memory that the transport can send from. The first result waits for it; a later one, which might wait for those who wait
    /// for the first, does not.
    ///
    /// # Errors
    /// DELAY: the client asks again for what is left.
    pub(super) async fn buffer(&mut self, len: usize) -> Result<Buffer, Status> {
        if len == 0 {
            return Ok(Buffer::from_vec(Vec::new()));
        }
        let allocator = &self.context.connection.allocator;
        let buffer = match allocator.try_allocate(len) {
            Some(buffer) => buffer,
            None if self.holds_memory => return Err(Status::DELAY),
            None => allocator.allocate(len).await,
        };
        self.holds_memory = true;
        Ok(buffer)
    }

    /// How many octets results may have on this connection and in this session, all together.
    pub(super) fn reply_limit(&self) -> usize {
        let connection = self.context.connection.limits.max_reply;
        match &self.session {
            Some(inside) => connection.min(inside.session.fore.response as usize),
            None => connection,
        }
    }

    /// The most octets that the whole reply may have, and the status if it has more.
    fn room(&self) -> (usize, Status) {
        match &self.session {
            Some(InSession { session, is_kept: true, .. }) if session.fore.cached < session.fore.response => {
                (session.fore.cached as usize, Status::REP_TOO_BIG_TO_CACHE)
            }
            _ => (self.reply_limit(), Status::REP_TOO_BIG),
        }
    }

    /// Whether an operation may stand where it stands.
    fn check_place(&self, args: &Args, at: usize, announced: u32) -> Result<(), Status> {
        match (args, at) {
            (Args::Sequence(_), 0) => Ok(()),
            (Args::Sequence(_), _) => Err(Status::SEQUENCE_POS),
            (args, 0) if may_stand_alone(args.op()) => {
                if announced == 1 {
                    Ok(())
                } else {
                    Err(Status::NOT_ONLY_OP)
                }
            }
            (_, 0) => Err(Status::OP_NOT_IN_SESSION),
            // What follows would be executed in a session that is no more (RFC 8881 section 18.37.3).
            (Args::DestroySession(args), at) => {
                let is_own = self.session.as_ref().is_some_and(|inside| inside.session.id() == args.session);
                if is_own && at + 1 != announced as usize { Err(Status::NOT_ONLY_OP) } else { Ok(()) }
            }
            // The connection belongs to the session of SEQUENCE already (RFC 8881 section 18.34.3).
            (Args::BindConnToSession(_), _) => Err(Status::NOT_ONLY_OP),
            _ => Ok(()),
        }
    }

    /// Executes the operations.
    pub(super) async fn run(&mut self, call: Arguments) -> Reply {
        let mut reply = Reply { status: Status::OK, tag: call.tag.clone(), count: 0, results: Encoder::new() };
        let broken = call.broken_outcome();
        let announced = call.announced;
        for (at, args) in call.ops.into_iter().enumerate() {
            let (op, begun) = (args.op(), self.shared.now());
            let (limit, too_big) = self.room();
            let largest = reply.octets().saturating_add(args.largest_results());
            let outcome = match self.check_place(&args, at, announced) {
                Err(status) => Outcome::failed(op, status),
                Ok(()) if is_missing(op) => Outcome::failed(op, Status::NOTSUPP),
                Ok(()) if !only_looks(op) && largest > limit => Outcome::failed(op, too_big),
                Ok(()) => {
                    let room = limit.saturating_sub(reply.octets());
                    self.execute(args, room).await
                }
            };
            let status = outcome.status();
            let mut encoder = Encoder::new();
            outcome.encode(&mut encoder);
            if status == Status::OK && only_looks(op) && reply.octets() + encoder.position() > limit {
                self.shared.observer.operation(Some(op), too_big, self.shared.now().since(begun));
                let mut encoder = Encoder::new();
                Outcome::failed(op, too_big).encode(&mut encoder);
                reply.push(too_big, encoder.finish());
                return reply;
            }
            self.shared.observer.operation(Some(op), status, self.shared.now().since(begun));
            let results = match self.counted.take() {
                Some(counted) if status == Status::OK => Counted::payload(encoder.finish(), counted),
                _ => encoder.finish(),
            };
            reply.push(status, results);
            if status != Status::OK {
                return reply;
            }
        }
        if let Some(outcome) = broken {
            self.shared.observer.operation(outcome.op(), outcome.status(), Duration::ZERO);
            let mut encoder = Encoder::new();
            outcome.encode(&mut encoder);
            reply.push(outcome.status(), encoder.finish());
        }
        reply
    }

    /// Executes one. `room` is how many octets its results may have.
    async fn execute(&mut self, args: Args, room: usize) -> Outcome {
        match args {
            Args::Sequence(_) => match &self.session {
                Some(inside) => Outcome::Sequence(Ok(inside.ok)),
                None => Outcome::Sequence(Err(Status::SERVERFAULT)),
            },
            // session.rs
            Args::ExchangeId(args) => Outcome::ExchangeId(self.exchange_id(args)),
            Args::CreateSession(args) => Outcome::CreateSession(self.create_session(args)),
            Args::DestroySession(args) => Outcome::DestroySession(self.destroy_session(args)),
            Args::BindConnToSession(args) => Outcome::BindConnToSession(self.bind_connection(args)),
            Args::DestroyClientId(args) => Outcome::DestroyClientId(self.destroy_client(args)),
            Args::ReclaimComplete(args) => Outcome::ReclaimComplete(self.reclaim_complete(args).await),
            Args::FreeStateId(args) => Outcome::FreeStateId(self.free_state(args)),
            Args::TestStateId(args) => Outcome::TestStateId(self.test_states(args)),
            // security.rs
            Args::SecInfo(args) => Outcome::SecInfo(self.sec_info(args).await),
            Args::SecInfoNoName(args) => Outcome::SecInfoNoName(self.sec_info_no_name(args).await),
            // look.rs
            Args::PutFh(args) => Outcome::PutFh(self.put_fh(args).await),
            Args::PutRootFh => Outcome::PutRootFh(self.put_root()),
            Args::PutPubFh => Outcome::PutPubFh(self.put_root()),
            Args::SaveFh => Outcome::SaveFh(self.save()),
            Args::RestoreFh => Outcome::RestoreFh(self.restore()),
            Args::GetFh => Outcome::GetFh(self.get_fh()),
            Args::Lookup(args) => Outcome::Lookup(self.lookup(args).await),
            Args::LookupP => Outcome::LookupP(self.lookup_parent().await),
            Args::Access(args) => Outcome::Access(self.access(args).await),
            Args::ReadLink => Outcome::ReadLink(self.read_link().await),
            // attributes.rs
            Args::GetAttr(args) => Outcome::GetAttr(self.get_attributes(args).await),
            Args::SetAttr(args) => Outcome::SetAttr(self.set_attributes(args).await),
            Args::Verify(args) => Outcome::Verify(self.verify(args).await),
            Args::NVerify(args) => Outcome::NVerify(self.not_verify(args).await),
            // directory.rs
            Args::ReadDir(args) => Outcome::ReadDir(self.read_directory(args, room).await),
            // change.rs
            Args::Create(args) => Outcome::Create(self.create(args).await),
            Args::Remove(args) => Outcome::Remove(self.remove(args).await),
            Args::Rename(args) => Outcome::Rename(self.rename(args).await),
            Args::Link(args) => Outcome::Link(self.link(args).await),
            // open.rs
            Args::Open(args) => Outcome::Open(self.open(args).await),
            Args::OpenDowngrade(args) => Outcome::OpenDowngrade(self.open_downgrade(args)),
            Args::Close(args) => Outcome::Close(self.close(args)),
            // lock.rs
            Args::Lock(args) => Outcome::Lock(self.lock(args).await),
            Args::LockT(args) => Outcome::LockT(self.test_lock(args).await),
            Args::LockU(args) => Outcome::LockU(self.unlock(args).await),
            // data.rs
            Args::Read(args) => Outcome::Read(self.read(args, room).await),
            Args::Write(args) => Outcome::Write(self.write(args).await),
            Args::Commit(args) => Outcome::Commit(self.commit(args).await),
            // `is_missing` has the others, and what minor version 0 alone has was not decoded.
            other => Outcome::failed(other.op(), Status::NOTSUPP),
        }
    }
}
