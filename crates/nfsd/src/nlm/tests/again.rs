//! Calls that come again from another port of the host because their replies were lost (ULB section 3.4.2).

use super::*;
use rpcrdma_nfs::nlm::{Cookie, ShareAccess, ShareDeny, UnlockArguments};

const ALL: (u64, u64) = (0, 0);

/// The next call repeats the one before the last `followed_by` calls, over another connection of its host.
fn again(host: &mut TestHost, followed_by: usize) {
    (0..=followed_by).for_each(|_| host.rpc.repeat());
    host.rpc.port += 1;
}

/// proves: NLM-DUP-a, ULB-3.4.2-a
#[test]
fn what_was_given_up_once_is_not_given_up_again() {
    on_each(|world| {
        let (mut a, b, file) = two(world);
        let lock = |a: &TestHost| assert_eq!(a.lock(&file, "o", ALL, WRITE), Status::Granted);
        let is_held = || assert_eq!(b.lock(&file, "o", ALL, WRITE), Status::Denied, "it was locked since");
        lock(&a);
        assert_eq!(a.unlock(&file, "o", ALL), Status::Granted);
        lock(&a);
        again(&mut a, 1);
        assert_eq!(a.unlock(&file, "o", ALL), Status::Granted, "the answer that it had");
        is_held();
        let mut a = world.host(1, "alpha");
        a.free_all();
        lock(&a);
        again(&mut a, 1);
        a.free_all();
        is_held();
        let mut a = world.host(1, "alpha");
        let message = |a: &TestHost| {
            let lock = a.place(&file, "o", ALL);
            a.call::<()>(Procedure::UnlockMessage, &UnlockArguments { cookie: Cookie::from("cookie"), lock });
        };
        message(&a);
        lock(&a);
        again(&mut a, 1);
        message(&a);
        is_held();
    });
}

/// proves: NLM-DUP-a, ULB-3.4.2-a
#[test]
fn what_was_taken_once_is_not_taken_again() {
    on_each(|world| {
        let (_, b, file) = two(world);
        let forms = [Procedure::Lock, Procedure::UnmonitoredLock, Procedure::LockMessage];
        for procedure in forms {
            let mut a = world.host(1, "alpha");
            let args = a.to_lock(a.place(&file, "o", ALL), WRITE, false);
            let call = |a: &TestHost| match procedure {
                Procedure::LockMessage => a.call::<()>(procedure, &args),
                _ => assert_eq!(a.status(procedure, &args), Status::Granted),
            };
            call(&a);
            assert_eq!(b.lock(&file, "o", ALL, WRITE), Status::Denied, "{procedure:?} was executed");
            assert_eq!(a.unlock(&file, "o", ALL), Status::Granted);
            again(&mut a, 1);
            call(&a);
            assert_eq!(b.lock(&file, "o", ALL, WRITE), Status::Granted, "{procedure:?}: nobody has it");
            assert_eq!(b.unlock(&file, "o", ALL), Status::Granted);
        }
    });
}

/// proves: NLM-DUP-a, ULB-3.4.2-a
#[test]
fn who_waits_again_is_not_cancelled_by_the_old_call() {
    on_each(|world| {
        let (a, mut b, file) = two(world);
        assert_eq!(a.lock(&file, "o", ALL, WRITE), Status::Granted);
        assert_eq!(b.wait(&file, "o", ALL, WRITE), Status::Blocked);
        assert_eq!(b.cancel(&file, "o", ALL, WRITE), Status::Granted);
        assert_eq!(b.wait(&file, "o", ALL, WRITE), Status::Blocked);
        again(&mut b, 1);
        assert_eq!(b.cancel(&file, "o", ALL, WRITE), Status::Granted, "the answer that it had");
        assert_eq!(world.counts().waiting, 1);
        assert_eq!(a.unlock(&file, "o", ALL), Status::Granted);
        assert_eq!(world.called().len(), 1, "it is told that it has the lock");
    });
}

/// proves: NLM-DUP-a, ULB-3.4.2-a
#[test]
fn reservations_come_and_go_once() {
    on_each(|world| {
        let (mut a, b, file) = two(world);
        let share = |host: &TestHost| host.share(&file, "o", ShareAccess::Read, ShareDeny::Read);
        assert_eq!([share(&a), a.unshare(&file, "o")], [Status::Granted; 2]);
        again(&mut a, 1);
        assert_eq!(share(&a), Status::Granted, "the answer that it had");
        assert_eq!([share(&b), b.unshare(&file, "o")], [Status::Granted; 2], "nothing is reserved");
        let mut a = world.host(1, "alpha");
        assert_eq!([share(&a), a.unshare(&file, "o"), share(&a)], [Status::Granted; 3]);
        again(&mut a, 1);
        assert_eq!(a.unshare(&file, "o"), Status::Granted, "the answer that it had");
        assert_eq!(share(&b), Status::Denied, "it is reserved");
    });
}
