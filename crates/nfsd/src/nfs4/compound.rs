//! Executes the operations of a COMPOUND, one after the other (RFC 8881 sections 2.10, 15.1.1.1, 16.2).
//!
//! Results are encoded one behind the other, so that their size is known before the next operation begins. If the
//! largest results of an operation that changes something might not fit, the server refuses it before it executes it
//! (REP_TOO_BIG). An operation that only looks is executed, and its results are encoded on their own and thrown away if
//! they do not fit. The first failure ends the call.

use super::{
    about::About,
    ahead::Ahead,
    current::Current,
    missing::is_missing,
    observer::is_timed,
    service::{Pin, Shared, principal},
    state::{
        clients::{Client, Principal},
        owners40::is_in_sequence,
        session::Session,
    },
};
use crate::{
    Origin,
    claims::{FileKey, Kind, Using},
    opened::Opened,
    server::Server,
    transfer::Counted,
};
use rpcrdma_env::{Buffer, Timestamp};
use rpcrdma_nfs::v4::{
    Args, Arguments, List, Name, Op, Outcome, Status, Tag,
    callback::{ReferringCall, ReferringCalls},
    ops,
};
use rpcrdma_oncrpc::{Answer, Arrival, CallContext, ResultsEncoder};
use rpcrdma_xdr::{Encode, Encoder, Payload};
use std::{ops::ControlFlow, sync::Arc, vec};

/// Bytes of an RPC reply before COMPOUND's results, with an empty verifier: `ca_maxresponsesize` counts them, too.
const RPC_REPLY_BYTES: usize = 24;
/// The initial memory of a reply: for SEQUENCE, PUTFH, and the results of a READ, WRITE or GETATTR without data.
pub(super) const FIRST_BYTES: usize = 320;

/// A COMPOUND that is being executed.
pub(super) struct Compound {
    pub(super) server: Arc<Server>,
    pub(super) shared: Arc<Shared>,
    pub(super) context: CallContext,
    pub(super) minor: u32,
    pub(super) current: Option<Current>,
    pub(super) saved: Option<Current>,
    session: Option<InSession>,
    /// The client of the operation, in minor version 0.
    pub(super) client_of_zero: Option<Arc<Client<Pin>>>,
    /// Whether the reply to an OPEN may have a delegation: in minor version 0 not if the open has to be confirmed (RFC
    /// 7530 section 9.1.11).
    pub(super) may_delegate: bool,
    /// Whether a result already holds memory of the connection: then no other result may wait for memory, since others
    /// may be waiting for the first one's.
    pub(super) holds_memory: bool,
    /// Which calls came with this one, until an operation has looked at a file.
    pub(super) arrival: Option<Arrival>,
    /// The same for the present operation, if it may share attributes with these calls.
    pub(super) shares: Option<Arrival>,
    /// The memory as which the results of the present operation count.
    pub(super) counted: Option<Buffer>,
    /// The results of the next READs, which were read ahead.
    pub(super) ahead: Ahead,
}

/// The result of SEQUENCE.
struct InSession {
    session: Arc<Session<Pin>>,
    ok: ops::SequenceOk,
    /// Whether the slot keeps the reply, which then has to fit.
    is_kept: bool,
}

/// The reply to a COMPOUND.
pub(super) struct Reply {
    status: Status,
    tag: Tag,
    count: u32,
    /// How many results there are if all operations succeed.
    promised: u32,
    /// The bytes before the results, as if all operations succeeded, and the results.
    results: ResultsEncoder,
}

impl Reply {
    fn new(tag: Tag, promised: u32, mut results: ResultsEncoder) -> Self {
        Self::encode_head(Status::OK, &tag, promised, results.encoder());
        Self { status: Status::OK, tag, count: 0, promised, results }
    }

    fn encode_head(status: Status, tag: &Tag, count: u32, encoder: &mut Encoder) {
        status.encode(encoder);
        tag.encode(encoder);
        encoder.u32(count);
    }

    /// The bytes so far, as the session counts them.
    fn octets(&self) -> usize {
        RPC_REPLY_BYTES + self.results.octets()
    }

    /// Appends the results of one operation.
    fn push(&mut self, outcome: &Outcome) {
        (self.status, self.count) = (outcome.status(), self.count + 1);
        outcome.encode(self.results.encoder());
    }

    /// The same, already encoded.
    fn push_encoded(&mut self, status: Status, outcome: Payload) {
        (self.status, self.count) = (status, self.count + 1);
        self.results.encoder().payload(outcome);
    }

    /// The results in wire form.
    fn answer(self) -> Answer {
        if (self.status, self.count) == (Status::OK, self.promised) {
            return self.results.finish();
        }
        let mut encoder = Encoder::new();
        Self::encode_head(self.status, &self.tag, self.count, &mut encoder);
        encoder.payload(self.results.into_results().behind(encoder.position()));
        Answer::Results(encoder.finish())
    }
}

/// How far a COMPOUND has come.
pub(super) struct Progress {
    reply: Reply,
    /// The operations that are left.
    pub(super) ops: vec::IntoIter<Args>,
    /// How many operations have ended.
    at: usize,
    /// How many operations the call says that it has.
    announced: u32,
    /// When the present operation began, if an observer is told how long it takes.
    begun: Option<Timestamp>,
    /// The outcome of what could not be decoded. Boxed, because it is large and seldom present.
    broken: Option<Box<Outcome>>,
}

impl Progress {
    /// A call that begins. `room` is for its results.
    pub(super) fn new(call: Arguments, begun: Option<Timestamp>, room: ResultsEncoder) -> Self {
        let broken = call.broken_outcome().map(Box::new);
        let Arguments { tag, announced, ops, .. } = call;
        Self { reply: Reply::new(tag, announced, room), ops: ops.into_iter(), at: 0, announced, begun, broken }
    }

    /// Moves the results so far to memory of their own: the call will take some time.
    pub(super) fn set_apart(&mut self) {
        let results = std::mem::replace(&mut self.reply.results, ResultsEncoder::apart(FIRST_BYTES));
        self.reply.results.encoder().payload(results.into_results());
    }

    /// The results.
    pub(super) fn end(self) -> Answer {
        self.reply.answer()
    }
}

/// What is known of an operation before it is executed.
pub(super) struct Place {
    pub(super) op: Op,
    /// How many bytes its results may have.
    pub(super) room: usize,
    /// If its results may not fit: the most bytes of all results, and the status if there are more.
    bound: Option<(usize, Status)>,
}

/// Whether an operation is executed without SEQUENCE before it, if it stands alone (RFC 8881 section 2.10.2.2).
fn may_stand_alone(op: Op) -> bool {
    matches!(op, Op::ExchangeId | Op::CreateSession | Op::DestroySession | Op::BindConnToSession | Op::DestroyClientId)
}

impl Compound {
    pub(super) fn new(server: Arc<Server>, shared: Arc<Shared>, mut context: CallContext, minor: u32) -> Self {
        let arrival = context.arrival.take();
        Self {
            server,
            shared,
            context,
            minor,
            current: None,
            saved: None,
            session: None,
            client_of_zero: None,
            may_delegate: true,
            holds_memory: false,
            arrival,
            shares: None,
            counted: None,
            ahead: Ahead::new(),
        }
    }

    /// Room for the results of a call that waits for nothing. If the slot keeps the reply, it wants the results alone.
    pub(super) fn results(&self) -> ResultsEncoder {
        match &self.session {
            Some(InSession { is_kept: true, .. }) => ResultsEncoder::apart(FIRST_BYTES),
            _ => self.context.results_encoder(FIRST_BYTES),
        }
    }

    /// SEQUENCE has found its slot.
    pub(super) fn enter(&mut self, session: Arc<Session<Pin>>, ok: ops::SequenceOk, is_kept: bool) {
        self.session = Some(InSession { session, ok, is_kept });
    }

    /// The session.
    ///
    /// # Errors
    /// OP_NOT_IN_SESSION if there is none.
    pub(super) fn session(&self) -> Result<&Arc<Session<Pin>>, Status> {
        self.session.as_ref().map(|inside| &inside.session).ok_or(Status::OP_NOT_IN_SESSION)
    }

    /// The present call, as a later call of the server refers to it.
    pub(super) fn this_call(&self) -> Option<ReferringCalls> {
        let ops::SequenceOk { session, sequence, slot, .. } = self.session.as_ref()?.ok;
        Some(ReferringCalls { session, calls: List(vec![ReferringCall { sequence, slot }]) })
    }

    /// The client to which stateids and owners belong: the session's client; in minor version 0 the client that the
    /// operation has named.
    ///
    /// # Errors
    /// OP_NOT_IN_SESSION if there is none.
    pub(super) fn client(&self) -> Result<Arc<Client<Pin>>, Status> {
        if self.minor == 0 {
            return self.client_of_zero.clone().ok_or(Status::SERVERFAULT);
        }
        self.session().map(|session| session.client().clone())
    }

    /// The origin in whose turn the work is done.
    pub(super) fn origin(&self) -> Origin {
        Origin::of(&self.context)
    }

    /// The session, slot and sequence number of this call.
    pub(super) fn call(&self) -> Option<(&Arc<Session<Pin>>, u32, u32)> {
        self.session.as_ref().map(|inside| (&inside.session, inside.ok.slot, inside.ok.sequence))
    }

    /// This client is about to use a file without an open of its own, or to open it.
    ///
    /// # Errors
    /// DELAY while a delegation conflicts.
    pub(super) async fn using(&self, file: &Opened, kind: Kind) -> Result<Using, Status> {
        let using = self.shared.using(Self::key(file), self.user(), kind).await;
        using.map_err(|in_the_way| in_the_way.status(Status::DELAY))
    }

    /// This client is about to remove a name of a file, if the name exists.
    ///
    /// # Errors
    /// DELAY while a delegation conflicts.
    pub(super) async fn using_name(&self, directory: &Opened, name: &Name) -> Result<Option<Using>, Status> {
        let using = self.server.using_name(directory, &name.0, self.user()).await;
        using.map_err(|in_the_way| in_the_way.status(Status::DELAY))
    }

    /// The caller.
    pub(super) fn principal(&self) -> Principal {
        principal(&self.context.credential)
    }

    /// A file's key in the table of claims.
    pub(super) fn key(file: &Opened) -> FileKey {
        FileKey { file_system: file.file_system.id(), file: file.file }
    }

    /// Memory from which the transport can send. The first result waits for it. A later result does not: it might wait
    /// for another call, which waits for the memory of the first result.
    ///
    /// # Errors
    /// DELAY: the client asks again for the rest.
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

    /// Memory for a result of `len` bytes, in exchange for the memory taken for the largest possible result.
    pub(super) fn fitted(&self, most: Buffer, len: usize) -> Buffer {
        match len {
            0 => Buffer::from_vec(Vec::new()),
            // If there is no other, the present buffer is large enough.
            _ => self.context.connection.allocator.try_allocate(len).unwrap_or(most),
        }
    }

    /// How many bytes all results together may have on this connection and in this session.
    pub(super) fn reply_limit(&self) -> usize {
        let connection = self.context.connection.limits.max_reply;
        match &self.session {
            Some(inside) => connection.min(inside.session.fore.response as usize),
            None => connection,
        }
    }

    /// The most bytes that the whole reply may have, and the status if it would have more.
    // NFS4-8881-2.10.6.4-b
    fn room(&self) -> (usize, Status) {
        match &self.session {
            Some(InSession { session, is_kept: true, .. }) if session.fore.cached < session.fore.response => {
                (session.fore.cached as usize, Status::REP_TOO_BIG_TO_CACHE)
            }
            _ => (self.reply_limit(), Status::REP_TOO_BIG),
        }
    }

    /// Whether an operation may stand at this place in the COMPOUND.
    fn check_place(&self, args: &Args, at: usize, announced: u32) -> Result<(), Status> {
        match (args, at) {
            // Minor version 0 has no sessions.
            _ if self.minor == 0 => Ok(()),
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
            // The following operations would be executed in a session that no longer exists (RFC 8881 section 18.37.3).
            (Args::DestroySession(args), at) => {
                let is_own = self.session.as_ref().is_some_and(|inside| inside.session.id() == args.session);
                if is_own && at + 1 != announced as usize { Err(Status::NOT_ONLY_OP) } else { Ok(()) }
            }
            // The connection already belongs to the session of SEQUENCE (RFC 8881 section 18.34.3).
            (Args::BindConnToSession(_), _) => Err(Status::NOT_ONLY_OP),
            _ => Ok(()),
        }
    }

    /// Whether the next operation may take attributes that were found for a call which came with this one: only the
    /// first operation that looks at a file, because operations of one call are executed in order.
    fn share(&mut self, next: &Args) {
        self.shares = match next {
            Args::Read(_) | Args::GetAttr(_) => self.arrival.take(),
            Args::Sequence(_) | Args::PutFh(_) | Args::PutRootFh => None,
            _ => {
                self.arrival = None;
                None
            }
        };
    }

    /// Executes the operations that are left.
    pub(super) async fn run(&mut self, progress: &mut Progress) {
        while let Some(args) = progress.ops.next() {
            let (place, about) = (self.place(&args, progress), About::of(&args));
            let mut outcome = match self.admit(&args, &place, progress) {
                Err(status) => Outcome::failed(place.op, status),
                Ok(()) => {
                    if let Args::Read(read) = &args
                        && self.ahead.is_empty()
                        && !progress.ops.as_slice().is_empty()
                    {
                        Box::pin(self.read_ahead(read, progress.ops.as_slice(), place.room)).await;
                    }
                    self.execute(args, place.room).await
                }
            };
            if let ControlFlow::Break(status) = self.conclude(progress, &place, &mut outcome) {
                return self.warn(place.op, status, about);
            }
        }
        self.conclude_all(progress);
    }

    /// What is known of the next operation before it is executed.
    pub(super) fn place(&self, args: &Args, progress: &Progress) -> Place {
        let (limit, too_big) = self.room();
        let octets = progress.reply.octets();
        let may_not_fit = octets.saturating_add(args.largest_results()) > limit;
        let bound = may_not_fit.then_some((limit, too_big));
        Place { op: args.op(), room: limit.saturating_sub(octets), bound }
    }

    /// Checks that the next operation may be executed.
    ///
    /// # Errors
    /// Its status, if not.
    pub(super) fn admit(&mut self, args: &Args, place: &Place, progress: &Progress) -> Result<(), Status> {
        self.check_place(args, progress.at, progress.announced)?;
        self.check_machine(args)?;
        // NFS4-8881-17-a
        if is_missing(place.op) {
            return Err(Status::NOTSUPP);
        }
        match place.bound {
            Some((_, too_big)) if !place.op.only_looks() => return Err(too_big),
            _ => {}
        }
        self.share(args);
        Ok(())
    }

    /// An operation has ended, which is no longer among those that are left: appends its results. Breaks with its
    /// status if it is the last one because it has failed.
    pub(super) fn conclude(
        &mut self,
        progress: &mut Progress,
        place: &Place,
        outcome: &mut Outcome,
    ) -> ControlFlow<Status> {
        let op = place.op;
        if outcome.status() == Status::OK && self.is_wrong(op, progress.ops.as_slice()) {
            *outcome = Outcome::failed(op, Status::WRONGSEC);
        }
        // NFS4-7530-13.1-a
        if self.minor == 0 {
            outcome.put_into_minor(0);
        }
        let reply = &mut progress.reply;
        self.tell(reply, op, outcome, place.bound);
        debug_assert!(
            reply.status != Status::OK || reply.octets() <= self.room().0,
            "{op} has larger results than its largest"
        );
        progress.at += 1;
        let status = reply.status;
        self.shared.observe(|observer| {
            let took = progress.begun.as_mut().filter(|_| is_timed(op)).map(|begun| {
                let now = self.shared.now();
                now.since(std::mem::replace(begun, now))
            });
            observer.operation(Some(op), status, took);
        });
        match status {
            Status::OK => ControlFlow::Continue(()),
            status => ControlFlow::Break(status),
        }
    }

    /// All operations that were decoded have succeeded.
    pub(super) fn conclude_all(&self, progress: &mut Progress) {
        if let Some(outcome) = progress.broken.take() {
            self.shared.observe(|observer| observer.operation(outcome.op(), outcome.status(), None));
            progress.reply.push(&outcome);
        }
    }

    /// Appends the results of an operation. `bound` is a limit of bytes and a status: the status replaces the results
    /// of an operation that only looks, if they exceed the limit.
    fn tell(&mut self, reply: &mut Reply, op: Op, outcome: &Outcome, bound: Option<(usize, Status)>) {
        let counted = self.counted.take().filter(|_| outcome.status() == Status::OK);
        if counted.is_none() && bound.is_none() {
            return reply.push(outcome);
        }
        let mut encoder = Encoder::new();
        outcome.encode(&mut encoder);
        let status = outcome.status();
        match bound {
            Some((limit, too_big))
                if status == Status::OK && op.only_looks() && reply.octets() + encoder.position() > limit =>
            {
                reply.push(&Outcome::failed(op, too_big).in_minor(self.minor));
            }
            _ => {
                let results = encoder.finish();
                let results = match counted {
                    Some(counted) => Counted::payload(results, counted),
                    None => results,
                };
                reply.push_encoded(status, results);
            }
        }
    }

    /// The results of SEQUENCE, which was executed when the call came.
    pub(super) fn sequenced(&self) -> Outcome {
        match &self.session {
            Some(inside) => Outcome::Sequence(Ok(inside.ok)),
            None => Outcome::Sequence(Err(Status::SERVERFAULT)),
        }
    }

    /// Executes an operation. `room` is how many bytes its results may have. The memory of each call includes the
    /// largest future in this function; so the futures of rare operations are boxed.
    async fn execute(&mut self, args: Args, room: usize) -> Outcome {
        match args {
            // sequenced40.rs
            args if self.minor == 0 && is_in_sequence(args.op()) => Box::pin(self.in_sequence(args)).await,
            // client40.rs
            Args::SetClientId(args) => Outcome::SetClientId(self.set_client_id(*args)),
            Args::SetClientIdConfirm(args) => Outcome::SetClientIdConfirm(Box::pin(self.confirm_client_id(args)).await),
            Args::Renew(args) => Outcome::Renew(self.renew(args)),
            Args::ReleaseLockOwner(args) => Outcome::ReleaseLockOwner(Box::pin(self.release_lock_owner(args)).await),
            Args::Sequence(_) => self.sequenced(),
            // session.rs
            Args::ExchangeId(args) => Outcome::ExchangeId(self.exchange_id(*args).map(Box::new)),
            Args::CreateSession(args) => Outcome::CreateSession(self.create_session(*args).map(Box::new)),
            Args::DestroySession(args) => Outcome::DestroySession(self.destroy_session(args)),
            Args::BindConnToSession(args) => Outcome::BindConnToSession(self.bind_connection(args)),
            Args::BackchannelCtl(args) => Outcome::BackchannelCtl(self.control_back_channel(args)),
            Args::DestroyClientId(args) => Outcome::DestroyClientId(self.destroy_client(args)),
            Args::ReclaimComplete(args) => Outcome::ReclaimComplete(Box::pin(self.reclaim_complete(args)).await),
            Args::FreeStateId(args) => Outcome::FreeStateId(Box::pin(self.free_state(args)).await),
            Args::TestStateId(args) => Outcome::TestStateId(self.test_states(args)),
            // security.rs
            Args::SecInfo(args) => Outcome::SecInfo(Box::pin(self.sec_info(args)).await),
            Args::SecInfoNoName(args) => Outcome::SecInfoNoName(Box::pin(self.sec_info_no_name(args)).await),
            // look.rs
            Args::PutFh(args) => Outcome::PutFh(self.put_fh(&args)),
            Args::PutRootFh => Outcome::PutRootFh(self.put_root()),
            Args::PutPubFh => Outcome::PutPubFh(self.put_root()),
            Args::SaveFh => Outcome::SaveFh(self.save()),
            Args::RestoreFh => Outcome::RestoreFh(self.restore()),
            Args::GetFh => Outcome::GetFh(self.get_fh()),
            Args::Lookup(args) => Outcome::Lookup(self.lookup(args).await),
            Args::LookupP => Outcome::LookupP(Box::pin(self.lookup_parent()).await),
            Args::Access(args) => Outcome::Access(self.access(args).await),
            Args::ReadLink => Outcome::ReadLink(Box::pin(self.read_link()).await),
            // attributes.rs
            Args::GetAttr(args) => Outcome::GetAttr(self.get_attributes(args).await),
            Args::SetAttr(args) => Outcome::SetAttr(Box::pin(self.set_attributes(args)).await),
            Args::Verify(args) => Outcome::Verify(Box::pin(self.verify(args)).await),
            Args::NVerify(args) => Outcome::NVerify(Box::pin(self.not_verify(args)).await),
            // xattr.rs
            Args::GetXattr(args) => Outcome::GetXattr(Box::pin(self.get_xattr(args)).await),
            Args::SetXattr(args) => Outcome::SetXattr(Box::pin(self.set_xattr(*args)).await),
            Args::ListXattrs(args) => Outcome::ListXattrs(Box::pin(self.list_xattrs(args, room)).await),
            Args::RemoveXattr(args) => Outcome::RemoveXattr(Box::pin(self.remove_xattr(args)).await),
            // directory.rs
            Args::ReadDir(args) => Outcome::ReadDir(Box::pin(self.read_directory(args, room)).await),
            // change.rs
            Args::Create(args) => Outcome::Create(Box::pin(self.create(*args)).await),
            Args::Remove(args) => Outcome::Remove(Box::pin(self.remove(args)).await),
            Args::Rename(args) => Outcome::Rename(Box::pin(self.rename(args)).await),
            Args::Link(args) => Outcome::Link(Box::pin(self.link(args)).await),
            // open.rs
            Args::Open(args) => Outcome::Open(Box::pin(self.open(*args)).await.map(Box::new)),
            Args::OpenDowngrade(args) => Outcome::OpenDowngrade(self.open_downgrade(args)),
            Args::Close(args) => Outcome::Close(self.close(args)),
            // delegate.rs
            Args::DelegReturn(args) => Outcome::DelegReturn(self.return_delegation(args)),
            // lock.rs
            Args::Lock(args) => Outcome::Lock(Box::pin(self.lock(*args)).await),
            Args::LockT(args) => Outcome::LockT(Box::pin(self.test_lock(args)).await),
            Args::LockU(args) => Outcome::LockU(Box::pin(self.unlock(args)).await),
            // data.rs
            Args::Read(args) => Outcome::Read(self.read(args, room).await),
            Args::Write(args) => Outcome::Write(self.write(args).await),
            Args::Commit(args) => Outcome::Commit(Box::pin(self.commit(args)).await),
            // space.rs
            Args::Seek(args) => Outcome::Seek(Box::pin(self.seek(args)).await),
            Args::ReadPlus(args) => Outcome::ReadPlus(Box::pin(self.read_plus(args, room)).await),
            Args::Allocate(args) => Outcome::Allocate(Box::pin(self.allocate(args)).await),
            Args::Deallocate(args) => Outcome::Deallocate(Box::pin(self.deallocate(args)).await),
            Args::IoAdvise(args) => Outcome::IoAdvise(Box::pin(self.io_advise(args)).await),
            // copy.rs
            Args::Clone(args) => Outcome::Clone(Box::pin(self.clone_range(args)).await),
            Args::Copy(args) => Outcome::Copy(Box::pin(self.copy_range(*args)).await),
            Args::OffloadStatus(args) => Outcome::OffloadStatus(self.offload_status(args)),
            Args::OffloadCancel(args) => Outcome::OffloadCancel(Box::pin(self.offload_cancel(args)).await),
            // `is_missing` has these; operations of another minor version were not decoded.
            other => Outcome::failed(other.op(), Status::NOTSUPP),
        }
    }
}
