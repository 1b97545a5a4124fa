//! The forms of calls without results in the reply: `_MSG` and `_RES`.

use super::*;
use crate::OutsideCall;
use rpcrdma_nfs::nlm::{CancelArguments, Cookie, Response, TestArguments, TestResponse, Tested, UnlockArguments};
use rpcrdma_xdr::{Decode, Decoder};
use tokio::sync::oneshot;

const ALL: (u64, u64) = (0, 0);

fn decoded<T: Decode>(call: &OutsideCall) -> T {
    let mut decoder = Decoder::new(call.arguments.clone().into());
    let value = T::decode(&mut decoder).unwrap();
    decoder.finish().unwrap();
    value
}

fn only(world: &World, procedure: Procedure, to: &TestHost) -> OutsideCall {
    let mut called = world.called();
    assert_eq!(called.len(), 1, "{called:?}");
    let call = called.pop().unwrap();
    assert_eq!((call.procedure, call.to), (procedure as u32, to.address()));
    call
}

/// proves: NLM-6.2-b
#[test]
fn a_message_is_answered_by_a_call_to_its_sender() {
    on_each(|world| {
        let (a, b, file) = two(world);
        let status = |call: &OutsideCall| {
            let Response { cookie, status } = decoded(call);
            assert_eq!(cookie, Cookie::from("cookie"));
            status
        };
        a.call::<()>(Procedure::LockMessage, &a.to_lock(a.place(&file, "o", (0, 5)), WRITE, false));
        assert_eq!(status(&only(world, Procedure::LockResponse, &a)), Status::Granted);
        b.call::<()>(Procedure::LockMessage, &b.to_lock(b.place(&file, "o", (0, 5)), WRITE, false));
        assert_eq!(status(&only(world, Procedure::LockResponse, &b)), Status::Denied);
        b.call::<()>(Procedure::TestMessage, &b.to_test(&file, "o", (0, 5), WRITE));
        let tested = decoded::<TestResponse<u64>>(&only(world, Procedure::TestResponse, &b)).tested;
        assert!(matches!(tested, Tested::Denied(holder) if holder.length == 5));
        let (cookie, lock) = (Cookie::from("cookie"), b.place(&file, "o", (0, 5)));
        let cancel = CancelArguments { cookie: cookie.clone(), block: true, exclusive: true, lock };
        b.call::<()>(Procedure::CancelMessage, &cancel);
        assert_eq!(status(&only(world, Procedure::CancelResponse, &b)), Status::Denied);
        let unlock = UnlockArguments { cookie, lock: a.place(&file, "o", ALL) };
        a.call::<()>(Procedure::UnlockMessage, &unlock);
        assert_eq!(status(&only(world, Procedure::UnlockResponse, &a)), Status::Granted);
        assert_eq!(b.lock(&file, "o", ALL, WRITE), Status::Granted);
    });
}

/// Waits by LOCK_MSG for a lock of `a`, and gets a call by GRANTED_MSG when `a` has unlocked.
fn waits_by_message(world: &World, a: &TestHost, b: &TestHost, file: &Handle) -> TestArguments<u64> {
    assert_eq!(a.lock(file, "first", ALL, WRITE), Status::Granted);
    b.call::<()>(Procedure::LockMessage, &b.to_lock(b.place(file, "second", ALL), WRITE, true));
    assert_eq!(decoded::<Response>(&only(world, Procedure::LockResponse, b)).status, Status::Blocked);
    assert_eq!(a.unlock(file, "first", ALL), Status::Granted);
    decoded(&only(world, Procedure::GrantedMessage, b))
}

/// proves: NLM-GRANT-c
#[test]
fn an_answer_counts_from_the_host_that_was_called_alone() {
    on_each(|world| {
        let (a, b, file) = two(world);
        let args = waits_by_message(world, &a, &b, &file);
        let stranger = world.host(9, "beta");
        let answer = |cookie: &Cookie, status| Response { cookie: cookie.clone(), status };
        stranger.call::<()>(Procedure::GrantedResponse, &answer(&args.cookie, Status::Denied));
        for cookie in [Cookie::default(), Cookie::from("cookie"), Cookie::from(&[0; 1024][..])] {
            b.call::<()>(Procedure::GrantedResponse, &answer(&cookie, Status::Denied));
        }
        world.drive();
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Denied, "it is still being told");
        assert_eq!(world.counts().waiting, 1);
        b.call::<()>(Procedure::GrantedResponse, &answer(&args.cookie, Status::Granted));
        world.drive();
        assert_eq!((world.counts().granted, world.counts().waiting), (1, 0));
        b.call::<()>(Procedure::GrantedResponse, &answer(&args.cookie, Status::Denied));
        world.pass(10);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Denied, "an answer counts once");
    });
}

/// An answer counts even if the GRANTED_MSG itself has had no reply: the host has the lock.
#[test]
fn an_answer_without_a_reply_counts() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        b.call::<()>(Procedure::LockMessage, &b.to_lock(b.place(&file, "second", ALL), WRITE, true));
        only(world, Procedure::LockResponse, &b);
        let (no_reply, replies) = oneshot::channel();
        *world.ears.late.lock().unwrap() = Some(replies);
        assert_eq!(a.unlock(&file, "first", ALL), Status::Granted);
        let args: TestArguments<u64> = decoded(&only(world, Procedure::GrantedMessage, &b));
        b.call::<()>(Procedure::GrantedResponse, &Response { cookie: args.cookie, status: Status::Granted });
        no_reply.send(no_answer()).unwrap();
        assert_eq!(world.called(), [], "it is not told again");
        let counts = world.counts();
        assert_eq!((counts.granted, counts.waiting, counts.locks), (1, 0, 1));
    });
}

#[test]
fn who_does_not_answer_a_message_is_sent_three() {
    on_each(|world| {
        let (a, b, file) = two(world);
        let first = waits_by_message(world, &a, &b, &file);
        let mut calls = 0;
        for _ in 0..30 {
            world.pass(1);
            for call in world.called() {
                assert_eq!(decoded::<TestArguments<u64>>(&call).cookie, first.cookie);
                calls += 1;
            }
        }
        assert_eq!(calls, 2);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        let late = Response { cookie: first.cookie, status: Status::Granted };
        b.call::<()>(Procedure::GrantedResponse, &late);
        assert_eq!(b.lock(&file, "second", ALL, WRITE), Status::Denied);
    });
}
