//! Locks that hosts wait for, and GRANTED.

use super::*;
use crate::{OutsideCall, OutsideTransport};
use rpcrdma_nfs::nlm::{PROGRAM, TestArguments};
use rpcrdma_xdr::{Decode, Decoder};

const ALL: (u64, u64) = (0, 0);

fn granted(call: &OutsideCall) -> TestArguments<u64> {
    assert_eq!((call.program, call.version, call.transport), (PROGRAM, 4, OutsideTransport::Tcp));
    assert_eq!(call.procedure, Procedure::Granted as u32);
    TestArguments::decode(&mut Decoder::new(call.arguments.clone().into())).unwrap()
}

/// Whether the lock belongs to this owner: TEST by another host names it.
fn has(world: &World, file: &Handle, owner: &str) -> bool {
    match world.host(200, "looks").test(file, "o", ALL, WRITE) {
        Err(Ok(holder)) => holder.owner.as_slice() == owner.as_bytes(),
        _ => false,
    }
}

/// proves: NLM-GRANT-a, NLM-GRANT-b
#[test]
fn who_waits_is_called_at_his_address_and_has_the_lock() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        assert_eq!(b.wait(&file, "second", (3, 4), WRITE), Status::Blocked);
        assert_eq!((world.called(), world.counts().waiting), (vec![], 1));
        assert_eq!(a.unlock(&file, "first", ALL), Status::Granted);
        let called = world.called();
        let [call] = &called[..] else { panic!("{called:?}") };
        assert_eq!((call.to, call.from), (b.address(), b.address()), "as it has called us");
        let args = granted(call);
        assert!(args.exclusive && args.lock == b.place(&file, "second", (3, 4)), "in its own words");
        assert!(has(world, &file, "second"));
        let counts = world.counts();
        assert_eq!((counts.waiting, counts.granted, counts.refused, counts.calls), (0, 1, 0, 0));
        assert_eq!(b.unlock(&file, "second", ALL), Status::Granted);
        assert_eq!(world.counts().owners, 0);
    });
}

/// proves: NLM-GRANT-b
#[test]
fn what_nobody_wants_goes_to_the_next() {
    on_each(|world| {
        let (a, b, file) = two(world);
        let c = world.host(3, "gamma");
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        assert_eq!(b.wait(&file, "second", ALL, WRITE), Status::Blocked);
        assert_eq!(c.wait(&file, "third", ALL, WRITE), Status::Blocked);
        world.say([Ok(Status::Denied)]);
        assert_eq!(a.unlock(&file, "first", ALL), Status::Granted);
        let called: Vec<_> = world.called().iter().map(|call| call.to).collect();
        assert_eq!(called, [b.address(), c.address()]);
        assert!(has(world, &file, "third"));
        assert_eq!((world.counts().refused, world.counts().granted, world.counts().waiting), (1, 1, 0));
    });
}

/// proves: NLM-GRANT-d
#[test]
fn who_does_not_answer_is_asked_three_times_and_then_others_have_it() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        assert_eq!(b.wait(&file, "second", ALL, WRITE), Status::Blocked);
        world.say([no_answer(), Ok(Status::DeniedGracePeriod), no_answer()]);
        assert_eq!(a.unlock(&file, "first", ALL), Status::Granted);
        assert_eq!(world.called().len(), 1);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Denied, "meanwhile it is the other's");
        world.pass(1);
        assert_eq!(world.called().len(), 1);
        world.pass(1);
        assert_eq!(world.called().len(), 1);
        assert_eq!((world.counts().unanswered, world.counts().waiting, world.counts().owners), (1, 0, 0));
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        world.pass(30);
        assert_eq!(world.called(), []);
    });
}

/// A host that asks again during the server's call gets no second call, and its answer to the first does not matter.
#[test]
fn who_asks_again_while_it_is_told_keeps_the_lock() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        assert_eq!(b.wait(&file, "second", ALL, WRITE), Status::Blocked);
        assert_eq!(b.wait(&file, "second", ALL, WRITE), Status::Blocked, "as Linux does each half minute");
        assert_eq!(world.counts().waiting, 1);
        world.say([no_answer(), Ok(Status::Denied)]);
        assert_eq!(a.unlock(&file, "first", ALL), Status::Granted);
        assert_eq!(world.called().len(), 1);
        assert_eq!(b.wait(&file, "second", ALL, WRITE), Status::Granted);
        world.pass(2);
        assert_eq!(world.called(), [], "it knows");
        assert!(has(world, &file, "second"));
        assert_eq!(world.counts().waiting, 0);
    });
}

/// proves: NLM-CANCEL-a
#[test]
fn who_cancels_gets_nothing() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(b.cancel(&file, "second", ALL, WRITE), Status::Denied, "it waits for nothing");
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        assert_eq!(b.wait(&file, "second", ALL, WRITE), Status::Blocked);
        assert_eq!(b.cancel(&file, "second", (0, 1), WRITE), Status::Denied, "another range");
        assert_eq!(b.cancel(&file, "second", ALL, READ), Status::Denied, "another kind");
        assert_eq!(a.cancel(&file, "second", ALL, WRITE), Status::Denied, "another host");
        assert_eq!(b.cancel(&file, "second", ALL, WRITE), Status::Granted);
        assert_eq!(a.unlock(&file, "first", ALL), Status::Granted);
        world.pass(60);
        assert_eq!(world.called(), []);
        // During the server's call, too.
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        assert_eq!(b.wait(&file, "second", ALL, WRITE), Status::Blocked);
        *world.ears.is_silent.lock().unwrap() = true;
        assert_eq!(a.unlock(&file, "first", ALL), Status::Granted);
        assert_eq!(world.called().len(), 1);
        assert_eq!(b.cancel(&file, "second", ALL, WRITE), Status::Granted);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted, "it is free at once");
    });
}

/// A reader waits to write what it reads: if it gives up, it still reads.
/// proves: NLM-GRANT-e
#[test]
fn what_is_given_back_is_as_it_was_before() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(a.lock(&file, "first", (5, 20), READ), Status::Granted);
        assert_eq!(b.lock(&file, "second", (0, 10), READ), Status::Granted);
        assert_eq!(b.wait(&file, "second", (5, 20), WRITE), Status::Blocked);
        world.say([Ok(Status::Denied)]);
        assert_eq!(a.unlock(&file, "first", ALL), Status::Granted);
        assert_eq!(world.called().len(), 1);
        assert_eq!(a.lock(&file, "first", (0, 10), READ), Status::Granted, "others may read");
        assert_eq!(a.lock(&file, "first", (9, 1), WRITE), Status::Denied, "it reads");
        assert_eq!(a.lock(&file, "first", (10, 15), WRITE), Status::Granted, "the rest is free");
        assert_eq!(b.unlock(&file, "second", ALL), Status::Granted);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
    });
}

/// An owner that asks in another kind waits for that kind alone.
#[test]
fn who_asks_in_another_kind_waits_anew() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(a.lock(&file, "first", (0, 5), WRITE), Status::Granted);
        assert_eq!(a.lock(&file, "first", (5, 5), READ), Status::Granted);
        assert_eq!(b.wait(&file, "second", ALL, READ), Status::Blocked);
        assert_eq!(b.wait(&file, "second", ALL, WRITE), Status::Blocked);
        assert_eq!(world.counts().waiting, 1);
        assert_eq!(a.unlock(&file, "first", (0, 5)), Status::Granted);
        assert_eq!(world.called(), [], "it would have been free for reading");
        assert_eq!(a.unlock(&file, "first", ALL), Status::Granted);
        let called = world.called();
        assert!(called.len() == 1 && granted(&called[0]).exclusive);
        // While the server calls it about reading, it asks for writing, which it cannot have: the server gives back the
        // lock for reading.
        assert_eq!(b.unlock(&file, "second", ALL), Status::Granted);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        assert_eq!(b.wait(&file, "second", ALL, READ), Status::Blocked);
        *world.ears.is_silent.lock().unwrap() = true;
        assert_eq!(a.lock(&file, "first", ALL, READ), Status::Granted);
        assert_eq!(world.called().len(), 1);
        assert_eq!(b.wait(&file, "second", ALL, WRITE), Status::Blocked);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted, "nobody reads");
    });
}

/// An unlock before the answer to GRANTED shows that the host knew of its lock.
#[test]
fn an_unlock_says_that_the_lock_was_seen() {
    on_each(|world| {
        let (a, b, file) = two(world);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
        assert_eq!(b.wait(&file, "second", ALL, WRITE), Status::Blocked);
        *world.ears.is_silent.lock().unwrap() = true;
        assert_eq!(a.unlock(&file, "first", ALL), Status::Granted);
        assert_eq!(world.called().len(), 1);
        assert_eq!(b.unlock(&file, "second", ALL), Status::Granted);
        assert_eq!(world.counts().owners, 0);
        assert_eq!(a.lock(&file, "first", ALL, WRITE), Status::Granted);
    });
}

/// The kernel does not report when a program of the host unlocks: the server asks again.
#[test]
fn who_waits_for_a_program_of_the_host_is_told_soon_after_it() {
    use crate::claims::{HostLocks, Kind, Range};
    let world = World::directory();
    let (_, b, file) = two(&world);
    let open = std::fs::File::options().read(true).write(true).open(world.server.served().join("f")).unwrap();
    let program = crate::OfdLocks::new(open.into()).unwrap();
    program.set(Range::ALL, Some(Kind::Write)).unwrap();
    assert_eq!(b.lock(&file, "o", ALL, READ), Status::Denied);
    assert_eq!(b.wait(&file, "o", (5, 5), WRITE), Status::Blocked);
    let holder = b.test(&file, "o", ALL, READ).unwrap_err().unwrap();
    assert_eq!((holder.exclusive, holder.process, holder.owner.as_slice()), (true, 0, &b""[..]));
    world.pass(10);
    assert_eq!(world.called(), []);
    program.set(Range::ALL, None).unwrap();
    world.pass(2);
    assert_eq!(world.called().len(), 1);
    assert!(program.set(Range::between(9, 9).unwrap(), Some(Kind::Read)).is_err(), "the program is excluded");
    assert!(program.set(Range::between(10, 11).unwrap(), Some(Kind::Read)).is_ok());
    assert_eq!(b.unlock(&file, "o", ALL), Status::Granted);
    assert!(program.set(Range::ALL, Some(Kind::Write)).is_ok());
}
