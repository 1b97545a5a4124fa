//! Restarts of the server, lost sessions, leases that are over, and state that the server took away.

use crate::{
    every::{contents, mode, name},
    house::{Fate, House, LEASE, at_home, count, ops},
};
use bytes::Bytes;
use rpcrdma_nfs::v4::{
    Ace, Args, Arguments, Op, Outcome, StateId, StateIdOther, Status,
    ops::{Delegation, LockKind, ReadDelegation, Stability, sequence_status, share},
};
use rpcrdma_nfs_client::v4::{Access, Error, How, Lost};
use std::{
    task::{Context, Waker},
    time::Duration,
};

/// Opens and locks survive a restart; another client that comes meanwhile gets none of them.
#[tokio::test(start_paused = true)]
async fn opens_and_locks_outlast_a_restart() {
    for minor in 0..=2 {
        println!("minor version {minor}");
        let house = House::new();
        let (nfs, wire) = house.client(minor).await;
        let (other, other_wire) = house.client(minor).await;
        let root = nfs.root().await.unwrap().file;
        let how = How::Guarded(mode(0o644));
        let (opened, _) = nfs.open(&root, &name("file"), Access::Both, how).await.unwrap();
        let (unlocked, _) = nfs.open(&root, &name("other"), Access::Both, how).await.unwrap();
        nfs.lock(&opened, LockKind::Write, 0, 100).await.unwrap();
        nfs.lock(&opened, LockKind::Read, 1_000, u64::MAX).await.unwrap();
        let (theirs, _) = other.open(&root, &name("file"), Access::Both, How::Existing).await.unwrap();
        for round in 0..2u64 {
            house.restart(&[&wire, &other_wire]).await;
            wire.calls();
            let data = contents(1_000);
            nfs.write(&opened, round, Stability::FileSync, data.clone()).await.unwrap();
            nfs.write(&unlocked, 0, Stability::FileSync, data.clone()).await.unwrap();
            assert!(nfs.read(&opened, round, 1_000).await.unwrap().data == data);
            let calls = wire.calls();
            assert_eq!(count(&calls, Op::Open), 2, "both opens are reclaimed, once: {:?}", ops(&calls));
            assert!(count(&calls, Op::Lock) >= 2, "and both locks: {:?}", ops(&calls));
            assert_eq!(count(&calls, Op::ReclaimComplete), usize::from(minor > 0));
            let locked = other.lock(&theirs, LockKind::Write, 50, 1).await.unwrap_err();
            assert!(matches!(locked, Error::Locked { .. }), "{locked:?}");
        }
        // After the grace period everything works as before.
        nfs.unlock(&opened, 0, u64::MAX).await.unwrap();
        other.lock(&theirs, LockKind::Write, 50, 1).await.unwrap();
        nfs.close(opened).await.unwrap();
        nfs.close(unlocked).await.unwrap();
        let (again, _) = nfs.open(&root, &name("other"), Access::Both, How::Existing).await.unwrap();
        nfs.close(again).await.unwrap();
        other.close(theirs).await.unwrap();
    }
}

/// A caller that began a repair and is not polled any more, as in a set of futures whose owner waits for something
/// else, does not block others.
#[tokio::test(start_paused = true)]
async fn who_is_not_polled_keeps_nobody_waiting() {
    for minor in 0..=2 {
        let (house, nfs, wire, root) = at_home(minor).await;
        house.restart(&[&wire]).await;
        let (opened, _) = nfs.open(&root, &name("file"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
        house.restart(&[&wire]).await;
        wire.calls();
        let mut starved = Box::pin(nfs.read(&opened, 0, 10));
        let nobody = &mut Context::from_waker(Waker::noop());
        loop {
            assert!(starved.as_mut().poll(nobody).is_pending(), "minor version {minor}");
            if wire.calls().iter().any(|call| call.ops.iter().any(|args| makes_known(args.op()))) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let read = tokio::time::timeout(2 * LEASE, nfs.read(&opened, 0, 10)).await;
        read.unwrap_or_else(|_| panic!("minor version {minor}: it waits for who is not polled")).unwrap();
        starved.await.unwrap();
    }
}

fn makes_known(op: Op) -> bool {
    matches!(op, Op::ExchangeId | Op::SetClientId)
}

/// The client does not want a delegation that comes with a reclaimed open, as from Linux's nfsd, and returns it.
#[tokio::test(start_paused = true)]
async fn a_delegation_of_what_is_reclaimed_is_given_back() {
    for minor in 0..=2 {
        println!("minor version {minor}");
        let (house, nfs, wire, root) = at_home(minor).await;
        let (opened, _) = nfs.open(&root, &name("file"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
        let state = StateId { sequence: 1, other: StateIdOther([7; 12]) };
        house.restart(&[&wire]).await;
        wire.calls();
        wire.after(move |_, results| {
            for outcome in &mut results.results {
                if let Outcome::Open(Ok(opened)) = outcome {
                    let permissions = Ace { kind: 0, flags: 0, rights: 0, who: "EVERYONE@".into() };
                    opened.delegation = Delegation::Read(ReadDelegation { state, recalled: true, permissions });
                }
                // The real server does not know it.
                if let Outcome::DelegReturn(returned) = outcome {
                    (*returned, results.status) = (Ok(()), Status::OK);
                }
            }
            Fate::Arrives
        });
        nfs.write(&opened, 0, Stability::FileSync, contents(10)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let calls = wire.calls();
        let all = || calls.iter().flat_map(|call| &call.ops);
        let wanted = all().filter_map(|args| match args {
            Args::Open(open) => Some(open.access & share::WANT_MASK),
            _ => None,
        });
        let none = if minor > 0 { share::WANT_NONE } else { 0 };
        assert_eq!(wanted.collect::<Vec<_>>(), [none], "{:?}", ops(&calls));
        let returned = all().filter_map(|args| match args {
            Args::DelegReturn(returned) => Some(returned.state),
            _ => None,
        });
        assert_eq!(returned.collect::<Vec<_>>(), [state], "{:?}", ops(&calls));
        wire.honest();
        nfs.close(opened).await.unwrap();
    }
}

/// A client that wants something new waits for the end of the grace period.
#[tokio::test(start_paused = true)]
async fn the_grace_period_is_waited_out() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let (absent, absent_wire) = house.client(2).await;
    let root = nfs.root().await.unwrap().file;
    let (opened, _) = nfs.open(&root, &name("file"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    // Another client may still reclaim, and does not.
    let (held, _) = absent.open(&root, &name("held"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    absent_wire.before(|_| Fate::Hangs);
    house.restart(&[&wire, &absent_wire]).await;
    let before = tokio::time::Instant::now();
    let (new, _) = nfs.open(&root, &name("new"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    assert!(before.elapsed() > Duration::from_secs(5), "{:?}", before.elapsed());
    assert!(before.elapsed() < Duration::from_secs(120), "{:?}", before.elapsed());
    nfs.close(new).await.unwrap();
    nfs.close(opened).await.unwrap();
    drop(held);
}

/// A lost session is replaced; the client loses nothing that it holds.
#[tokio::test(start_paused = true)]
async fn a_lost_session_is_replaced() {
    let (_house, nfs, wire, root) = at_home(2).await;
    let (opened, _) = nfs.open(&root, &name("file"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    nfs.lock(&opened, LockKind::Write, 0, 10).await.unwrap();
    for status in [Status::BADSESSION, Status::DEADSESSION] {
        let mut once = true;
        wire.calls();
        wire.after(move |call, results| {
            if once && matches!(call.ops.first(), Some(Args::Sequence(_))) {
                once = false;
                (results.status, results.results) = (status, vec![Outcome::Sequence(Err(status))]);
            }
            Fate::Arrives
        });
        nfs.write(&opened, 0, Stability::FileSync, Bytes::from_static(b"octets")).await.unwrap();
        let calls = wire.calls();
        assert_eq!(count(&calls, Op::CreateSession), 1, "{:?}", ops(&calls));
        assert_eq!(count(&calls, Op::ExchangeId), 0, "the client is known as ever");
        assert_eq!(count(&calls, Op::Open) + count(&calls, Op::Lock), 0, "nothing is to be reclaimed");
    }
    nfs.close(opened).await.unwrap();
}

/// The server accepts the end of a session only over the session's own connections (RFC 8881 section 18.37.3), and the
/// end of a client only when it has no session. When the client gives a session up, perhaps none of its connections is
/// left.
#[tokio::test(start_paused = true)]
async fn a_session_without_connections_does_not_stay() {
    for minor in 1..=2 {
        let (house, nfs, wire, _root) = at_home(minor).await;
        let (spare, own, mut once) = (house.wire(), wire.clone(), true);
        wire.calls();
        wire.after(move |call, results| {
            if once && matches!(call.ops.first(), Some(Args::Sequence(_))) {
                once = false;
                own.takes_connection_of(&spare);
                (results.status, results.results) = (Status::BADSLOT, vec![Outcome::Sequence(Err(Status::BADSLOT))]);
            }
            Fate::Arrives
        });
        nfs.root().await.unwrap();
        let calls = wire.calls();
        let counted = [Op::CreateSession, Op::DestroySession, Op::BindConnToSession].map(|op| count(&calls, op));
        assert_eq!(counted, [1, 2, 1], "{:?}", ops(&calls));
        wire.honest();
        nfs.end().await.unwrap();
    }
}

/// An open made a file, and its reply was lost with the session: the client takes this file for its own, makes no
/// second one, and leaves none behind. If another client has filled the file meanwhile, it does not.
#[tokio::test(start_paused = true)]
async fn a_file_that_an_open_made_before_its_session_was_lost_is_ours() {
    for minor in [1, 2] {
        for filled in [false, true] {
            let house = House::new();
            let (nfs, wire) = house.client(minor).await;
            let (other, _) = house.client(minor).await;
            let root = nfs.root().await.unwrap().file;
            if filled {
                let (theirs, _) =
                    other.open(&root, &name("file"), Access::Write, How::Guarded(mode(0o644))).await.unwrap();
                other.write(&theirs, 0, Stability::FileSync, Bytes::from_static(b"theirs")).await.unwrap();
                other.close(theirs).await.unwrap();
            }
            let mut once = true;
            wire.after(move |call, results| {
                if once && call.ops.iter().any(|args| args.op() == Op::Open) {
                    once = false;
                    let lost = Status::BADSESSION;
                    (results.status, results.results) = (lost, vec![Outcome::Sequence(Err(lost))]);
                    return Fate::ComesTwice;
                }
                Fate::Arrives
            });
            let made = nfs.open(&root, &name("file"), Access::Both, How::Guarded(mode(0o644))).await;
            if filled {
                assert_eq!(made.unwrap_err().status(), Some(Status::EXIST));
                continue;
            }
            let (opened, _) = made.unwrap();
            nfs.write(&opened, 0, Stability::FileSync, Bytes::from_static(b"octets")).await.unwrap();
            nfs.close(opened).await.unwrap();
            // If no reply was lost, an existing file is an existing file.
            let again = nfs.open(&root, &name("file"), Access::Both, How::Guarded(mode(0o644))).await;
            assert_eq!(again.unwrap_err().status(), Some(Status::EXIST));
        }
    }
}

/// The driver keeps the lease. Without it, the client loses what another client wants meanwhile, and reports the loss.
#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_or_its_loss_is_told() {
    for minor in 0..=2 {
        println!("minor version {minor}");
        let house = House::new();
        let (nfs, wire) = house.client(minor).await;
        let (other, _) = house.client(minor).await;
        let root = nfs.root().await.unwrap().file;
        let (opened, _) = nfs.open(&root, &name("file"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
        nfs.lock(&opened, LockKind::Write, 0, 10).await.unwrap();
        tokio::time::sleep(LEASE * 5).await;
        nfs.write(&opened, 0, Stability::FileSync, Bytes::from_static(b"kept")).await.unwrap();

        // The network cuts the client off for a while.
        wire.before(|_| Fate::Fails);
        tokio::time::sleep(LEASE * 5).await;
        let (theirs, _) = other.open(&root, &name("file"), Access::Both, How::Existing).await.unwrap();
        other.lock(&theirs, LockKind::Write, 0, 10).await.unwrap();
        other.write(&theirs, 0, Stability::FileSync, Bytes::from_static(b"theirs")).await.unwrap();
        wire.honest();
        for _ in 0..2 {
            let lost = nfs.write(&opened, 0, Stability::FileSync, Bytes::from_static(b"ours")).await.unwrap_err();
            let Error::Lost { operation: Op::Write, what, .. } = lost else { panic!("{lost:?}") };
            assert!(matches!(what, Lost::Open | Lost::Locks));
            println!("{lost}");
        }
        assert_eq!(nfs.read(opened.file(), 0, 10).await.unwrap().data, "theirs");
        let lost = nfs.close(opened).await.unwrap_err();
        assert!(matches!(lost, Error::Lost { operation: Op::Close, .. }), "{lost:?}");
        // A new open works as before.
        let (opened, _) = nfs.open(&root, &name("file"), Access::Both, How::Existing).await.unwrap();
        nfs.write(&opened, 0, Stability::FileSync, Bytes::from_static(b"again")).await.unwrap();
        nfs.close(opened).await.unwrap();
        other.close(theirs).await.unwrap();
    }
}

/// If the server says that it has revoked something, the client finds out what, records the loss, and frees it.
#[tokio::test(start_paused = true)]
async fn revoked_state_is_found_and_freed() {
    let (_house, nfs, wire, root) = at_home(2).await;
    let (revoked, _) = nfs.open(&root, &name("a"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    let (kept, _) = nfs.open(&root, &name("b"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    wire.calls();
    let mut flagged = 3;
    wire.after(move |_, results| {
        for outcome in &mut results.results {
            match outcome {
                Outcome::Sequence(Ok(told)) if flagged > 0 => {
                    flagged -= 1;
                    told.status |= sequence_status::ADMIN_STATE_REVOKED;
                }
                Outcome::TestStateId(Ok(tested)) => tested.statuses.0[0] = Status::ADMIN_REVOKED,
                _ => {}
            }
        }
        Fate::Arrives
    });
    nfs.root().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let calls = wire.calls();
    assert_eq!((count(&calls, Op::TestStateId), count(&calls, Op::FreeStateId)), (1, 1), "{:?}", ops(&calls));
    let lost = nfs.read(&revoked, 0, 10).await.unwrap_err();
    assert!(matches!(lost, Error::Lost { what: Lost::Open, status: Status::ADMIN_REVOKED, .. }), "{lost:?}");
    nfs.read(&kept, 0, 10).await.unwrap();
    // A server that goes on saying so causes little work, and less and less.
    wire.after(|_, results| {
        if let Some(Outcome::Sequence(Ok(told))) = results.results.first_mut() {
            told.status |= !sequence_status::RESTART_RECLAIM_NEEDED;
        }
        Fate::Arrives
    });
    nfs.root().await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let calls = wire.calls().len();
    assert!((3..20).contains(&calls), "{calls}");
}

/// The server revokes a stateid in the middle of its use.
#[tokio::test(start_paused = true)]
async fn a_revoked_open_is_lost_for_good() {
    for status in [Status::EXPIRED, Status::ADMIN_REVOKED, Status::DELEG_REVOKED, Status::BAD_STATEID] {
        let (_house, nfs, wire, root) = at_home(2).await;
        let (opened, _) = nfs.open(&root, &name("a"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
        wire.after(move |_, results| {
            if let Some(at) = results.results.iter().position(|outcome| matches!(outcome, Outcome::Read(_))) {
                results.results[at] = Outcome::Read(Err(status));
                results.status = status;
            }
            Fate::Arrives
        });
        let lost = nfs.read(&opened, 0, 10).await.unwrap_err();
        assert!(matches!(lost, Error::Lost { what: Lost::Open, .. }) && lost.status() == Some(status), "{lost:?}");
        wire.honest();
        let lost = nfs.write(&opened, 0, Stability::FileSync, Bytes::from_static(b"x")).await.unwrap_err();
        assert!(matches!(lost, Error::Lost { operation: Op::Write, .. }), "{lost:?}");
    }
}

/// If the server asks to try later, the client does, but not for ever; if the file system has moved, the error says so.
#[tokio::test(start_paused = true)]
async fn later_is_later_and_moved_is_said() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let answer = |status: Status, mut times: u32| {
        move |_: &Arguments, results: &mut rpcrdma_nfs::v4::Results| {
            if times > 0 && results.results.len() > 1 {
                times -= 1;
                results.results.truncate(1);
                results.results.push(Outcome::PutRootFh(Err(status)));
                results.status = status;
            }
            Fate::Arrives
        }
    };
    let before = tokio::time::Instant::now();
    wire.after(answer(Status::DELAY, 3));
    nfs.root().await.unwrap();
    assert_eq!(before.elapsed().as_millis() / 100, 7, "0.1, 0.2 and 0.4 s");
    wire.after(answer(Status::DELAY, u32::MAX));
    let error = nfs.root().await.unwrap_err();
    assert_eq!(error.status(), Some(Status::DELAY));
    let waited = before.elapsed().as_secs();
    assert!((600..620).contains(&waited), "{waited} s");
    wire.after(answer(Status::MOVED, 1));
    let moved = nfs.root().await.unwrap_err();
    assert_eq!(
        moved.to_string(),
        "PUTROOTFH: the file system has moved to another server, and this client does not follow it"
    );
    wire.after(answer(Status::ACCESS, 1));
    let denied = nfs.root().await.unwrap_err();
    assert!(denied.is_denied() && denied.to_string().contains("root squash"), "{denied}");
}

/// The client judges a call that was executed in a lost session by the state on the server.
#[tokio::test(start_paused = true)]
async fn a_call_whose_session_is_gone_is_judged_by_what_is_there() {
    let (_house, nfs, wire, root) = at_home(2).await;
    let forget = || {
        let mut once = true;
        // The transport sends the call again, to a server that has restarted.
        move |call: &Arguments, results: &mut rpcrdma_nfs::v4::Results| {
            let changes = [Op::Create, Op::Remove, Op::Rename, Op::Link];
            if once && call.ops.iter().any(|args| changes.contains(&args.op())) {
                once = false;
                let status = Status::BADSESSION;
                (results.status, results.results) = (status, vec![Outcome::Sequence(Err(status))]);
                return Fate::ComesTwice;
            }
            Fate::Arrives
        }
    };
    wire.after(forget());
    nfs.mkdir(&root, &name("a"), &mode(0o755)).await.unwrap();
    wire.after(forget());
    assert_eq!(nfs.rename(&root, &name("a"), &root, &name("b")).await.unwrap(), None);
    wire.after(forget());
    assert_eq!(nfs.remove(&root, &name("b")).await.unwrap(), None);
    wire.honest();
    nfs.remove(&root, &name("b")).await.unwrap_err();
}
