//! The server's calls: the client's answers, and their effects.

use crate::{
    every::{mode, name},
    house::{Fate, House},
};
use rpcrdma_env::{Env, Heap, SeededRandom, TokioClock};
use rpcrdma_nfs::v4::{
    Ace, Args, Handle, List, Op, Outcome, Owner, OwnerName, SessionId, StateId, StateIdOther, Status,
    callback::{self, CbRecall, CbSequence, ReferringCall, ReferringCalls},
    ops::{Delegation, LockKind, ReadDelegation, TRANSIENT_PROGRAM, create_session, sequence_status, share},
};
use rpcrdma_nfs_client::v4::{Access, Callbacks, How, Options};
use rpcrdma_oncrpc::{Answer, CallContext, Connection, GoneSignal, Limits, Service, TransportKind};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// The service's answer to a call.
pub(crate) async fn call(service: &Arc<dyn Service>, call: &callback::Arguments) -> callback::Results {
    let mut encoder = Encoder::new();
    call.encode(&mut encoder);
    let (_signal, gone) = GoneSignal::new();
    let limits = Limits::new(4_096, 4_096);
    let connection = Connection::new(ADDRESS, ADDRESS, 0, TransportKind::Tcp, limits, Arc::new(Heap), gone);
    let decoder = Decoder::new(Stream::from(encoder.finish().to_bytes()));
    match service.call(CallContext::new(Arc::new(connection)), 1, decoder).await {
        Answer::Results(results) => {
            let mut decoder = Decoder::new(Stream::from(results.to_bytes()));
            callback::Results::decode(&mut decoder).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn sequence(session: SessionId, sequence: u32, slot: u32) -> CbSequence {
    CbSequence { session, sequence, slot, highest_slot: 15, cache: false, referring: List(Vec::new()) }
}

pub(crate) fn of(minor: u32, ops: Vec<callback::Args>) -> callback::Arguments {
    callback::Arguments::new(minor, 0, ops)
}

/// A client that the server can call, its service, and its session.
pub(crate) async fn called()
-> (House, rpcrdma_nfs_client::v4::Nfs4, Arc<crate::house::Wire>, Arc<dyn Service>, SessionId) {
    called_with(Options::new("test")).await
}

async fn called_with(
    options: Options,
) -> (House, rpcrdma_nfs_client::v4::Nfs4, Arc<crate::house::Wire>, Arc<dyn Service>, SessionId) {
    let house = House::new();
    let callbacks = Callbacks::new();
    let service = callbacks.service();
    let wire = house.wire();
    let options = options.with_callbacks(callbacks);
    let session = Arc::new(Mutex::new(SessionId([0; 16])));
    let made = session.clone();
    wire.after(move |_, results| {
        if let Some(Outcome::CreateSession(Ok(ok))) = results.results.first() {
            *made.lock().unwrap() = ok.session;
        }
        Fate::Arrives
    });
    let nfs = house.client_over(&wire, options).await;
    wire.honest();
    let session = *session.lock().unwrap();
    (house, nfs, wire, service, session)
}

#[tokio::test(start_paused = true)]
async fn each_call_is_answered_once_and_its_repetition_alike() {
    let (_house, _nfs, _wire, service, session) = called().await;
    assert_eq!((service.program(), service.version()), (TRANSIENT_PROGRAM, 1));
    let any = callback::Args::RecallAny(callback::CbRecallAny { keep: 0, kinds: Default::default() });
    let first = of(2, vec![callback::Args::Sequence(sequence(session, 1, 0)), any.clone()]);
    let answered = call(&service, &first).await;
    assert_eq!((answered.status, answered.results.len()), (Status::OK, 2));
    assert_eq!(call(&service, &first).await, answered, "a repetition");
    let status = async |session, number, slot, highest_slot| {
        let sequence = CbSequence { highest_slot, ..sequence(session, number, slot) };
        call(&service, &of(2, vec![callback::Args::Sequence(sequence)])).await.status
    };
    assert_eq!(status(session, 3, 0, 0).await, Status::SEQ_MISORDERED);
    assert_eq!(status(session, 2, 0, 0).await, Status::OK);
    assert_eq!(status(session, 0, 1, 0).await, Status::SEQ_MISORDERED, "nothing came before the first");
    assert_eq!(status(session, 1, 16, 0).await, Status::BADSLOT);
    assert_eq!(status(session, 1, 1, 16).await, Status::BAD_HIGH_SLOT);
    assert_eq!(status(SessionId([9; 16]), 1, 1, 0).await, Status::BADSESSION);
    assert_eq!(call(&service, &of(2, vec![any.clone()])).await.status, Status::OP_NOT_IN_SESSION);
    assert_eq!(call(&service, &of(3, vec![])).await.status, Status::MINOR_VERS_MISMATCH);
    assert_eq!(call(&service, &of(0, vec![])).await.status, Status::MINOR_VERS_MISMATCH);
    let twice =
        vec![callback::Args::Sequence(sequence(session, 1, 1)), callback::Args::Sequence(sequence(session, 1, 2))];
    assert_eq!(call(&service, &of(2, twice)).await.status, Status::SEQUENCE_POS);
    let many = [vec![callback::Args::Sequence(sequence(session, 1, 3))], vec![any; 16]].concat();
    assert_eq!(call(&service, &of(2, many)).await.status, Status::TOO_MANY_OPS);
    let (_signal, gone) = GoneSignal::new();
    let limits = Limits::new(4_096, 4_096);
    let connection = Connection::new(ADDRESS, ADDRESS, 0, TransportKind::Tcp, limits, Arc::new(Heap), gone);
    let context = CallContext::new(Arc::new(connection));
    assert!(matches!(service.call(context.clone(), 2, Decoder::new(Stream::default())).await, Answer::ProcUnavail));
    assert!(matches!(service.call(context, 1, Decoder::new(Stream::default())).await, Answer::GarbageArgs));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_for_this_client_is_refused_in_its_own_words() {
    let (_house, _nfs, _wire, service, session) = called().await;
    let file = Handle::new(b"file").unwrap();
    let state = StateId { sequence: 1, other: StateIdOther([7; 12]) };
    let cases = [
        (callback::Args::Recall(CbRecall { state, truncate: false, file: file.clone() }), Status::BAD_STATEID),
        (
            callback::Args::GetAttr(callback::CbGetAttr { file: file.clone(), asked: Default::default() }),
            Status::BADHANDLE,
        ),
        (
            callback::Args::LayoutRecall(callback::CbLayoutRecall {
                layout_type: 1,
                io_mode: 1,
                changed: false,
                recalled: callback::LayoutsRecalled::All,
            }),
            Status::NOMATCHING_LAYOUT,
        ),
        (
            callback::Args::WantsCancelled(callback::CbWantsCancelled { contended: true, resourced: true }),
            Status::NOTSUPP,
        ),
        (
            callback::Args::Offload(callback::CbOffload {
                file: file.clone(),
                state,
                outcome: callback::OffloadOutcome::Failed { status: Status::IO, copied: 0 },
            }),
            Status::BAD_STATEID,
        ),
        (
            callback::Args::NotifyLock(callback::CbNotifyLock {
                file,
                owner: Owner { client: rpcrdma_nfs::v4::ClientId(1), name: OwnerName::from("nobody") },
            }),
            Status::OK,
        ),
        (callback::Args::RecallSlot(callback::CbRecallSlot { target_highest_slot: 0 }), Status::OK),
    ];
    for (number, (args, status)) in (1..).zip(cases) {
        let ops = vec![callback::Args::Sequence(sequence(session, number, 0)), args.clone()];
        assert_eq!(call(&service, &of(2, ops)).await.status, status, "{args:?}");
    }
}

/// The client returns at once a delegation that it did not ask for. If the server recalls one before the OPEN's reply,
/// the client tells it to wait.
#[tokio::test(start_paused = true)]
async fn delegations_are_given_back_over_the_connection_that_stands() {
    let (_house, nfs, wire, service, session) = called().await;
    let root = nfs.root().await.unwrap().file;
    let state = StateId { sequence: 1, other: StateIdOther([7; 12]) };
    let answer = Arc::new(Mutex::new(None));
    let (told, slot) = (answer.clone(), Arc::new(Mutex::new((0, 0))));
    let of_slot = slot.clone();
    wire.after(move |call, results| {
        if let Some(Args::Sequence(sequence)) = call.ops.first()
            && call.ops.iter().any(|args| args.op() == Op::Open)
        {
            *of_slot.lock().unwrap() = (sequence.slot, sequence.sequence);
        }
        for outcome in &mut results.results {
            if let Outcome::Open(Ok(opened)) = outcome {
                let permissions = Ace { kind: 0, flags: 0, rights: 0, who: "EVERYONE@".into() };
                opened.delegation = Delegation::Read(ReadDelegation { state, recalled: false, permissions });
            }
        }
        Fate::Arrives
    });
    wire.calls();
    let (opened, _) = nfs.open(&root, &name("a"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    let returned = wire.calls().iter().flat_map(|call| call.ops.clone()).find_map(|args| match args {
        Args::DelegReturn(returned) => Some(returned.state),
        _ => None,
    });
    assert_eq!(returned, Some(state), "given back before the open is told");
    wire.honest();

    // The server recalls a delegation that it is just about to grant.
    wire.before(|call| if call.ops.iter().any(|args| args.op() == Op::Access) { Fate::Hangs } else { Fate::Arrives });
    let asking = tokio::spawn({
        let (nfs, root) = (nfs.clone(), root.clone());
        async move { nfs.access(&root, 1).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let sent = wire.calls().into_iter().rev().find_map(|call| match call.ops.first() {
        Some(Args::Sequence(sequence)) => Some((sequence.slot, sequence.sequence)),
        _ => None,
    });
    let (in_slot, number) = sent.unwrap();
    let recall = CbRecall { state, truncate: false, file: root.clone() };
    let referring = |sequence, slot| {
        let calls = List(vec![ReferringCall { sequence, slot }]);
        List(vec![ReferringCalls { session, calls }])
    };
    for (at, (referring, status)) in (1..).zip([
        (referring(number, in_slot), Status::DELAY),
        (referring(number.wrapping_sub(1), in_slot), Status::BAD_STATEID),
        (referring(number, u32::MAX), Status::BAD_STATEID),
    ]) {
        let sequence = CbSequence { referring, ..sequence(session, at, 5) };
        let ops = vec![callback::Args::Sequence(sequence), callback::Args::Recall(recall.clone())];
        *told.lock().unwrap() = Some(call(&service, &of(2, ops)).await.status);
        assert_eq!(*answer.lock().unwrap(), Some(status));
    }
    asking.abort();
    wire.honest();
    nfs.close(opened).await.unwrap();
}

/// A client that keeps delegations returns them when the server recalls them, and at the end.
#[tokio::test(start_paused = true)]
async fn delegations_that_are_kept_go_back_when_they_are_recalled() {
    let (_house, nfs, wire, service, session) = called_with(Options::new("test").with_delegations()).await;
    let root = nfs.root().await.unwrap().file;
    let mut given = 0;
    wire.after(move |call, results| {
        for (args, outcome) in call.ops.iter().zip(&mut results.results) {
            if let (Args::Open(open), Outcome::Open(Ok(opened))) = (args, &mut *outcome) {
                assert_eq!(open.access & share::WANT_MASK, 0, "no delegation is refused before it is given");
                given += 1;
                let state = StateId { sequence: 1, other: StateIdOther([given; 12]) };
                let permissions = Ace { kind: 0, flags: 0, rights: 0, who: "EVERYONE@".into() };
                opened.delegation = Delegation::Read(ReadDelegation { state, recalled: false, permissions });
            }
            // The real server does not know these delegations.
            if let Outcome::DelegReturn(returned) = outcome {
                (*returned, results.status) = (Ok(()), Status::OK);
            }
        }
        Fate::Arrives
    });
    wire.calls();
    for file in ["a", "b"] {
        let (opened, _) = nfs.open(&root, &name(file), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
        nfs.close(opened).await.unwrap();
    }
    let returned = || {
        let calls = wire.calls();
        let all = calls.into_iter().flat_map(|call| call.ops).filter_map(|args| match args {
            Args::DelegReturn(returned) => Some(returned.state.other.0[0]),
            _ => None,
        });
        all.collect::<Vec<_>>()
    };
    assert_eq!((nfs.delegations(), returned()), (2, vec![]));
    let state = StateId { sequence: 1, other: StateIdOther([1; 12]) };
    let recall = callback::Args::Recall(CbRecall { state, truncate: false, file: root.clone() });
    let ops = vec![callback::Args::Sequence(sequence(session, 1, 0)), recall];
    assert_eq!(call(&service, &of(2, ops)).await.status, Status::OK);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((nfs.delegations(), returned()), (1, vec![1]));
    nfs.end().await.unwrap();
    assert_eq!((nfs.delegations(), returned()), (0, vec![2]));
}

/// The server recalls a delegation that came with a reclaimed open again and again while its return is under way: the
/// client returns it once, the open stays, and data written through it meanwhile arrives.
#[tokio::test(start_paused = true)]
async fn a_storm_of_recalls_is_one_return() {
    const RECALLS: u32 = 500;
    let (house, nfs, wire, service, _) = called().await;
    let root = nfs.root().await.unwrap().file;
    let (opened, _) = nfs.open(&root, &name("a"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    let state = StateId { sequence: 1, other: StateIdOther([7; 12]) };
    let session = Arc::new(Mutex::new(SessionId([0; 16])));
    let made = session.clone();
    wire.after(move |_, results| {
        for outcome in &mut results.results {
            match outcome {
                Outcome::CreateSession(Ok(ok)) => *made.lock().unwrap() = ok.session,
                Outcome::Open(Ok(opened)) => {
                    let permissions = Ace { kind: 0, flags: 0, rights: 0, who: "EVERYONE@".into() };
                    opened.delegation = Delegation::Read(ReadDelegation { state, recalled: true, permissions });
                }
                _ => {}
            }
        }
        Fate::Arrives
    });
    let is_return = |call: &rpcrdma_nfs::v4::Arguments| call.ops.iter().any(|args| args.op() == Op::DelegReturn);
    wire.before(move |call| if is_return(call) { Fate::Hangs } else { Fate::Arrives });
    house.restart(&[&wire]).await;
    let data = bytes::Bytes::from_static(b"written beside it");
    let stability = rpcrdma_nfs::v4::ops::Stability::FileSync;
    nfs.write(&opened, 0, stability, data.clone()).await.unwrap();
    let session = *session.lock().unwrap();
    for number in 1..=RECALLS {
        let recall = CbRecall { state, truncate: false, file: opened.file().clone() };
        let ops = vec![callback::Args::Sequence(sequence(session, number, 0)), callback::Args::Recall(recall)];
        assert_eq!(call(&service, &of(2, ops)).await.status, Status::OK, "recall {number}");
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let returns = wire.calls().iter().filter(|call| is_return(call)).count();
    assert_eq!(returns, 1);
    nfs.write(&opened, 100, stability, data.clone()).await.unwrap();
    assert_eq!(nfs.read(&opened, 100, 100).await.unwrap().data, data);
    wire.honest();
    nfs.close(opened).await.unwrap();
}

/// The server calls when a lock is free; the client need not try again and again.
#[tokio::test(start_paused = true)]
async fn a_lock_is_waited_for_until_the_server_calls() {
    let house = House::new();
    let (has, _) = house.client(2).await;
    let (waits, wire, called) = house.client_called(2).await;
    let root = has.root().await.unwrap().file;
    let (ours, _) = has.open(&root, &name("file"), Access::Both, How::Unchecked(mode(0o666))).await.unwrap();
    let (theirs, _) = waits.open(&root, &name("file"), Access::Both, How::Existing).await.unwrap();
    has.lock(&ours, LockKind::Write, 0, u64::MAX).await.unwrap();
    wire.calls();
    let before = called.load(Ordering::Relaxed);
    let waiting = waits.lock_when_free(&theirs, LockKind::Write, 0, 10);
    let unlock = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        has.unlock(&ours, 0, u64::MAX).await.unwrap();
    };
    let since = tokio::time::Instant::now();
    let (locked, ()) = tokio::join!(waiting, unlock);
    locked.unwrap();
    assert!(called.load(Ordering::Relaxed) > before, "the server has called");
    assert!(since.elapsed() < Duration::from_millis(900), "{:?}: told, not tried", since.elapsed());
    let tried = wire.calls().iter().filter(|call| call.ops.iter().any(|args| args.op() == Op::Lock)).count();
    assert_eq!(tried, 2);
}

/// The client binds a new connection to the session, so that the server can call again.
#[tokio::test(start_paused = true)]
async fn the_back_channel_is_bound_again() {
    let house = House::new();
    let (nfs, wire, _) = house.client_called(2).await;
    wire.after(|_, results| {
        if let Some(Outcome::Sequence(Ok(told))) = results.results.first_mut() {
            told.status |= sequence_status::CB_PATH_DOWN;
        }
        Fate::Arrives
    });
    nfs.root().await.unwrap();
    wire.honest();
    tokio::time::sleep(Duration::from_secs(2)).await;
    nfs.root().await.unwrap();
    let bound = wire.calls().iter().flat_map(|call| call.ops.clone()).find_map(|args| match args {
        Args::BindConnToSession(bind) => Some(bind.direction),
        _ => None,
    });
    assert_eq!(bound, Some(rpcrdma_nfs::v4::ops::ClientDirection::ForeOrBoth));
    // Without callbacks the session has no back channel, and says so.
    let wire = house.wire();
    let env = Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(5)) };
    let nfs = rpcrdma_nfs_client::v4::Nfs4::connect(house.rpc(&wire), &env, Options::new("test")).await.unwrap();
    let created = wire.calls().iter().flat_map(|call| call.ops.clone()).find_map(|args| match args {
        Args::CreateSession(create) => Some((create.flags, create.back.max_request)),
        _ => None,
    });
    let (flags, largest) = created.unwrap();
    assert_eq!(flags & create_session::CONN_BACK_CHAN, 0);
    assert!(largest <= 4_096, "no larger than what fits inline, as no chunks are taken in the reverse direction");
    drop(nfs);
}
