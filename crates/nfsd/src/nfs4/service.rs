//! A call of NFS version 4: from its bytes through session and slot to a COMPOUND, and the reply back.

use super::{
    callback::{Dialler, Health, Paths},
    compound::{self, Compound, Progress},
    conflicts::InTheWay,
    delegations::Delegations,
    losses::Losses,
    observer::Observer,
    reservations::Reservations,
    state::{
        State, Taken,
        clients::Principal,
        counts::CopyCounts,
        limits::Limits,
        release::{Release, Released},
        session::{Begin, SlotGuard},
        slots::Request,
    },
    tasks::Tasks,
};
use crate::{
    Origin, Queue,
    claims::{Claims, Client, FileKey, Holder},
    server::Server,
};
use foldhash::quality::FixedState;
use rpcrdma_env::{BoxFuture, Clock, Timestamp};
use rpcrdma_nfs::{
    Call as _,
    v4::{self, Args, Arguments, ClientId, Handle, Op, Outcome, OwnerName, Results, StateId, Status},
};
use rpcrdma_oncrpc::{
    Answer, ArgumentWords, Begun, CallContext, Credential, Repetition, ResultsEncoder, Service, gss::RPCSEC_GSS,
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Payload};
use siphasher::sip::SipHasher24;
use std::{
    hash::{BuildHasher as _, Hasher as _},
    ops::RangeInclusive,
    sync::Arc,
};

/// COMPOUND's number.
const COMPOUND: u32 = 1;

/// How many bytes of a call are compared with those of a call that claims to be its repetition.
const DIGEST_BYTES: usize = 1024;

/// What an open keeps alive: the file system's open file, and the reservation in the table of claims.
pub(crate) type Pin = Arc<super::open::Pinned>;

/// What the calls of a server share.
pub(crate) struct Shared {
    pub(crate) state: State<Pin>,
    pub(crate) claims: Claims,
    /// The guards of opens in the table of claims.
    pub(super) reservations: Reservations,
    /// Whether locks of clients exclude programs of the host.
    pub(super) host_locks: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) queue: Arc<Queue>,
    /// Which minor versions are served.
    pub(crate) minors: RangeInclusive<u32>,
    /// The observer of operations, if the program has one.
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// Makes connections to clients of minor version 0.
    pub(crate) dialler: Dialler,
    /// Work that goes on after the reply to its call.
    pub(crate) tasks: Tasks,
    /// The connections over which the server calls clients.
    pub(super) paths: Paths,
    /// Whether the server delegates files.
    pub(super) delegates: bool,
    /// The delegations.
    pub(crate) delegations: Delegations,
    /// Which silent holders of delegations the server has called.
    pub(crate) health: Health,
    /// What clients that are away have lost.
    pub(crate) losses: Losses,
    /// Counters of copies.
    pub(crate) copies: Arc<CopyCounts>,
}

impl Shared {
    /// The present time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The present time, or some milliseconds later: for leases.
    pub(crate) fn tick(&self) -> Timestamp {
        self.clock.tick()
    }

    /// The present time, if an observer is told how long operations take.
    pub(super) fn timed(&self) -> Option<Timestamp> {
        self.observer.as_ref().map(|_| self.now())
    }

    /// Tells the observer something.
    pub(super) fn observe(&self, tell: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.observer {
            tell(&**observer);
        }
    }

    /// The limits.
    pub(crate) fn limits(&self) -> &Limits {
        self.state.limits()
    }

    /// Does work that waits for the disk on a worker, in this client's turn.
    ///
    /// # Errors
    /// SERVERFAULT if the program drops the work.
    pub(crate) async fn on_worker<T: Send + 'static>(
        self: &Arc<Self>,
        origin: Origin,
        job: impl FnOnce(&Self) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let shared = self.clone();
        self.queue.ask(origin, move || job(&shared)).await.unwrap_or(Err(Status::SERVERFAULT))
    }

    /// An owner in the table of claims.
    pub(super) fn holder(client: ClientId, owner: &OwnerName) -> Holder {
        Holder::new(Client::V4(client.0), &owner.0)
    }

    /// Removes what clients no longer hold from the table of claims, and closes open files in the turn of the client
    /// that has caused it.
    pub(crate) fn release(&self, origin: Origin, released: Vec<Release<Pin>>) {
        for Release { client, file, what, other } in released {
            match what {
                Released::Lock(owner) => {
                    // Locks of the same owner through another open do not end with this one (RFC 8881 section 9.5). The
                    // table does not distinguish these locks: all of them end with the last open.
                    let has_more = self.state.client(client).is_ok_and(|client| client.held.locks_on(file, &owner));
                    // NFS4-8881-9.5-a
                    if !has_more {
                        self.claims.unlock_all(file, &Self::holder(client, &owner));
                    }
                }
                Released::Open(_, pins) => {
                    // NFS4-8881-18.2-a
                    self.reservations.end(other);
                    self.put_away(origin, pins);
                }
                Released::Delegation(pin) => {
                    self.undelegated(client, file, StateId { sequence: 0, other });
                    self.put_away(origin, vec![pin]);
                }
            }
        }
    }

    /// Closes files. If a file has lost its last name, this may free its storage, which may take long. A file system
    /// that keeps objects may also free the storage later: `DirectoryFs` does with its next upkeep.
    pub(super) fn put_away(&self, origin: Origin, pins: Vec<Pin>) {
        if !pins.is_empty() {
            drop(self.queue.ask(origin, move || drop(pins)));
        }
    }

    /// Does the work that is due: ends of leases and of the grace period, and delegations that were not returned.
    /// Sleeps.
    pub(crate) fn sweep(self: &Arc<Self>) {
        let ended = self.state.sweep(self.now());
        self.losses.count(&ended);
        self.release(Origin::LOCAL, ended);
        self.release(Origin::LOCAL, self.state.sweep_owners(self.now()));
        self.claims.sweep();
        self.sweep_delegations();
        self.check_health();
        self.losses.tell(self.now());
    }

    /// Takes from clients whose leases are over their claims on a file that another client wants. Sleeps.
    ///
    /// # Errors
    /// If a claim stays.
    pub(crate) fn take_from(&self, origin: Origin, holders: &[Client], file: FileKey) -> Result<(), InTheWay> {
        let client = |holder: &Client| match holder {
            Client::V4(client) => Ok(ClientId(*client)),
            Client::Nlm(_) => Err(InTheWay::Holder),
        };
        let clients = holders.iter().map(client).collect::<Result<Vec<_>, _>>()?;
        match self.state.take_from(&clients, file, self.now()) {
            Ok(Taken::Gone(released)) => {
                self.losses.count(&released);
                self.losses.tell(self.now());
                self.release(origin, released);
                Ok(())
            }
            Ok(Taken::Stays) => Err(InTheWay::Holder),
            // NFS4-8881-8.4.3-e
            Err(_) => Err(InTheWay::Journal),
        }
    }
}

/// The service.
pub(crate) struct Nfs4 {
    pub(crate) server: Arc<Server>,
    pub(crate) shared: Arc<Shared>,
}

/// The caller, from the credential, before squashing.
pub(super) fn principal(credential: &Credential) -> Principal {
    match credential {
        Credential::Sys(sys) => Principal { flavor: rpcrdma_oncrpc::AUTH_SYS, user: sys.uid.into() },
        // By the name, because two principals may be one user here; and in a form that stays the same after a restart,
        // because the journal keeps it. A principal is the same whichever service protects its calls.
        Credential::Gss(caller) => {
            let user = SipHasher24::new().hash(caller.principal.as_bytes());
            Principal { flavor: RPCSEC_GSS, user }
        }
        _ => Principal { flavor: 0, user: 0 },
    }
}

impl Service for Nfs4 {
    fn program(&self) -> u32 {
        v4::PROGRAM
    }

    fn version(&self) -> u32 {
        v4::VERSION
    }

    /// The session's slot knows whether a call was executed, not the transport's cache (RFC 8881 section 2.10.6).
    fn is_idempotent(&self, _: u32) -> bool {
        true
    }

    /// Minor version 0 has no slots.
    fn repetition(&self, procedure: u32, arguments: &mut ArgumentWords<'_>) -> Repetition {
        let minor = arguments.skip_opaque(v4::MAX_TAG_BYTES as u32).and_then(|()| arguments.next());
        match (procedure, minor) {
            (COMPOUND, Some(0)) => Repetition::AnsweredToPort,
            _ => Repetition::Executed,
        }
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        match self.begin(context, procedure, args) {
            Begun::Done(answer) => Box::pin(std::future::ready(answer)),
            Begun::Waits(call) => call,
        }
    }

    fn begin(&self, context: CallContext, procedure: u32, mut args: Decoder) -> Begun<Answer> {
        if procedure != COMPOUND {
            return Begun::Done(Answer::ProcUnavail);
        }
        // A client that made two of its calls look the same would fool only itself.
        let mut digest = FixedState::default().build_hasher();
        args.measure(DIGEST_BYTES, &mut digest);
        // The RPC header with its credential stands before the arguments, which include bytes that came in chunks.
        // NFS4-8881-2.10.6.4-a
        let octets = args.position().saturating_add(args.remaining());
        let decoded = Arguments::decode(&mut args).and_then(|decoded| args.finish().map(|()| decoded));
        let call = match decoded {
            Ok(call) => call,
            Err(error) => return Begun::Done(Answer::from(error)),
        };
        // NFS4-8881-16.2-b, NFS4-7530-MINORS-a
        if !self.shared.minors.contains(&call.minor) {
            return Begun::Done(whole(&Results::refused(call.tag, Status::MINOR_VERS_MISMATCH)));
        }
        let directory = changed_directory(&call.ops)
            .and_then(|handle| self.server.open_handle(&context, handle.as_slice()).ok())
            .map(|directory| Compound::key(&directory));
        let mut compound = Compound::new(self.server.clone(), self.shared.clone(), context, call.minor);
        let call = Call { call, octets, digest: digest.finish() };
        let is_repeatable = call.call.is_repeatable();
        let answered = move |answer| match answer {
            Answer::Results(results) if is_repeatable => Answer::Repeatable(results),
            answer => answer,
        };
        let changes = call.call.ops.iter().filter(|args| goes_to_a_worker(args.op())).count();
        if changes < SEVERAL {
            let begun = compound.shared.timed();
            let slot = match enter(&mut compound, &call) {
                Entered::Over(results) => return Begun::Done(answered(Answer::Results(results))),
                Entered::Goes(slot) => slot,
            };
            let mut progress = Progress::new(call.call, begun, compound.results());
            if compound.run_at_once(&mut progress) {
                return Begun::Done(answered(leave(&compound.shared, progress, slot)));
            }
            progress.set_apart();
            return Begun::Waits(Box::pin(async move {
                compound.run(&mut progress).await;
                answered(leave(&compound.shared, progress, slot))
            }));
        }
        let (queue, origin) = (self.shared.queue.clone(), compound.origin());
        Begun::Waits(Box::pin(async move {
            let results = queue.carry(origin, directory, Box::pin(execute(compound, call))).await;
            results.map_or(Answer::SystemErr, answered)
        }))
    }
}

/// If a call has this many changes, one thread makes them all.
const SEVERAL: usize = 2;

/// Whether an operation changes files: then a worker does it.
fn goes_to_a_worker(op: Op) -> bool {
    matches!(
        op,
        Op::Open
            | Op::Create
            | Op::Remove
            | Op::Rename
            | Op::Link
            | Op::SetAttr
            | Op::Write
            | Op::Commit
            | Op::SetXattr
            | Op::RemoveXattr
    )
}

/// The directory in which a call first makes, renames or removes a name, if the call names it.
fn changed_directory(ops: &[Args]) -> Option<&Handle> {
    let mut current = None;
    for op in ops {
        match op {
            Args::PutFh(put) => current = Some(&put.file),
            Args::Open(_) | Args::Create(_) | Args::Remove(_) | Args::Rename(_) | Args::Link(_) => return current,
            Args::Sequence(_) | Args::SaveFh | Args::GetAttr(_) | Args::Access(_) | Args::Verify(_) => {}
            // Another directory, or an operation that may take long.
            _ => return None,
        }
    }
    None
}

/// A decoded call.
struct Call {
    call: Arguments,
    /// Bytes of the whole call, as the session counts them.
    octets: usize,
    digest: u64,
}

fn encoded(results: &Results) -> Payload {
    let mut encoder = Encoder::new();
    results.encode(&mut encoder);
    encoder.finish()
}

fn whole(results: &Results) -> Answer {
    Answer::Results(encoded(results))
}

/// Executes a call, unless its slot has the reply.
async fn execute(mut compound: Compound, call: Call) -> Answer {
    let begun = compound.shared.timed();
    match enter(&mut compound, &call) {
        Entered::Over(results) => Answer::Results(results),
        Entered::Goes(slot) => {
            let mut progress = Progress::new(call.call, begun, ResultsEncoder::apart(compound::FIRST_BYTES));
            compound.run(&mut progress).await;
            leave(&compound.shared, progress, slot)
        }
    }
}

/// What becomes of a call at the door of its session.
enum Entered {
    /// These are its results: the slot has kept them, or the session refuses the call.
    Over(Payload),
    /// It is executed. Its slot, unless it has none, gets the results.
    Goes(Option<SlotGuard<Pin>>),
}

/// Finds the session and the slot of a call.
fn enter(compound: &mut Compound, Call { call, octets, digest }: &Call) -> Entered {
    let Arguments { tag, ops, broken, announced, .. } = call;
    let shared = &compound.shared;
    let refused = |outcome: Outcome| {
        shared.observe(|observer| observer.operation(outcome.op(), outcome.status(), None));
        Entered::Over(encoded(&Results::of(tag.clone(), vec![outcome])))
    };
    let Some(Args::Sequence(sequence)) = ops.first() else {
        return Entered::Goes(None);
    };
    let request = Request {
        slot: sequence.slot,
        sequence: sequence.sequence,
        highest: sequence.highest_slot,
        cache: sequence.cache,
        alone: *announced == 1 && broken.is_none(),
        digest: *digest,
        principal: principal(&compound.context.credential),
    };
    let connection = compound.context.connection.id;
    // Before the slot is looked at: a call that the session does not allow leaves the slot as it was.
    let session = match shared.state.session(sequence.session) {
        Ok(session) => session,
        Err(status) => return refused(Outcome::Sequence(Err(status))),
    };
    let fore = session.fore;
    if *announced > fore.operations {
        return refused(Outcome::Sequence(Err(Status::TOO_MANY_OPS)));
    }
    if *octets > fore.request as usize {
        return refused(Outcome::Sequence(Err(Status::REQ_TOO_BIG)));
    }
    let begun = shared.state.begin_in(session, &request, connection, shared.tick());
    let guard = match begun {
        Err(status) => return refused(Outcome::Sequence(Err(status))),
        Ok(Begin::Replay(reply)) => return Entered::Over(reply),
        Ok(Begin::Uncached(told)) => {
            let mut results = vec![Outcome::Sequence(Ok(super::session::sequence_ok(sequence, told)))];
            // RFC 8881 section 2.10.6.1.3: the operation after SEQUENCE returns it.
            match ops.get(1) {
                Some(next) => results.push(Outcome::failed(next.op(), Status::RETRY_UNCACHED_REP)),
                None => results.extend(call.broken_outcome()),
            }
            return Entered::Over(encoded(&Results::of(tag.clone(), results)));
        }
        Ok(Begin::New(guard)) => guard,
    };
    let ok = super::session::sequence_ok(sequence, guard.told());
    compound.enter(guard.session().clone(), ok, request.cache || request.alone);
    Entered::Goes(Some(guard))
}

/// The results of a call that was executed.
fn leave(shared: &Shared, progress: Progress, slot: Option<SlotGuard<Pin>>) -> Answer {
    let answer = progress.end();
    match (slot, &answer) {
        (None, _) => {}
        (Some(slot), Answer::Results(results)) => {
            slot.finish(results, shared.tick());
        }
        // `Compound::results` gives no such answer to a slot that keeps its reply.
        (Some(slot), _) => slot.finish_unkept(shared.tick()),
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_oncrpc::gss::{GssCaller, GssService, GssUser};

    /// The journal keeps a principal in this form, which must be the same in each version of the server.
    #[test]
    fn a_principal_is_its_name() {
        let gss =
            |name: &str, user, service| principal(&Credential::Gss(Arc::new(GssCaller::new(name, user, service))));
        let alice = gss("alice@REALM", None, GssService::Privacy);
        assert_eq!((alice.flavor, alice.user), (6, 0x2153_f275_b5cf_f754));
        let user = GssUser { uid: 5, ..GssUser::default() };
        assert_eq!(gss("alice@REALM", Some(user.clone()), GssService::Authentication), alice);
        assert_ne!(gss("alice@OTHER", Some(user), GssService::Privacy), alice, "though it is the same user");
    }
}
