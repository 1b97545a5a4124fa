//! SEQUENCE: the server executes each call at most once, and gives its repetitions the same reply.

use super::*;
use proptest::prelude::*;
use rpcrdma_xdr::Payload;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, Ordering},
};

fn reply(text: &str) -> Payload {
    Bytes::copy_from_slice(text.as_bytes()).into()
}

fn new(begin: Result<Begin<u32>, Status>) -> super::super::session::SlotGuard<u32> {
    match begin {
        Ok(Begin::New(guard)) => guard,
        other => panic!("not new: {other:?}"),
    }
}

fn replayed(begin: Result<Begin<u32>, Status>) -> Bytes {
    match begin {
        Ok(Begin::Replay(reply)) => reply.to_bytes(),
        other => panic!("not a replay: {other:?}"),
    }
}

/// Sets `guest`'s slot 0 as if it had executed calls up to this number.
fn advance(guest: &Guest<'_>, to: u32) {
    guest.world.state.session(guest.session()).unwrap().set_sequence(0, to);
}

/// proves: NFS4-8881-18.46-a, NFS4-8881-18.36-g
#[test]
fn a_slot_takes_the_last_number_and_the_next_one() {
    let world = World::new();
    let guest = world.client("a");
    for sequence in [0, 2, u32::MAX] {
        assert_eq!(guest.begin(&request(0, sequence)).err(), Some(Status::SEQ_MISORDERED), "first {sequence}");
    }
    new(guest.begin(&request(0, 1))).finish(&reply("one"), world.now());
    for sequence in [0, 3, 4, u32::MAX, 1 << 31] {
        assert_eq!(guest.begin(&request(0, sequence)).err(), Some(Status::SEQ_MISORDERED), "{sequence} after 1");
    }
    assert_eq!(replayed(guest.begin(&request(0, 1))), "one");
    advance(&guest, u32::MAX - 1);
    new(guest.begin(&request(0, u32::MAX))).finish(&reply("last"), world.now());
    assert_eq!(guest.begin(&request(0, 1)).err(), Some(Status::SEQ_MISORDERED));
    new(guest.begin(&request(0, 0))).finish(&reply("around"), world.now());
    assert_eq!(replayed(guest.begin(&request(0, 0))), "around");
    assert_eq!(guest.begin(&request(0, u32::MAX)).err(), Some(Status::SEQ_MISORDERED));
}

/// proves: NFS4-8881-2.10.6.1.3-a, NFS4-8881-2.10.6.1.3-b
#[test]
fn what_was_to_be_cached_comes_again_and_the_rest_is_known_to_have_been() {
    let world = World::new();
    let guest = world.client("a");
    let with = |sequence, cache, alone| Request { cache, alone, ..request(0, sequence) };
    let cases = [(true, false, true), (false, true, true), (true, true, true), (false, false, false)];
    for (sequence, (cache, alone, is_kept)) in (1..).zip(cases) {
        let call = with(sequence, cache, alone);
        let data = Bytes::from(vec![7; 1_000]);
        let mut reply = reply("some");
        reply.push_item(data.clone());
        assert_eq!(new(guest.begin(&call)).finish(&reply, world.now()), is_kept);
        drop(reply);
        assert!(data.is_unique(), "the slot has a copy of its own");
        for _ in 0..2 {
            match guest.begin(&call) {
                Ok(Begin::Replay(again)) if is_kept => {
                    assert_eq!(again.to_bytes().len(), 1_004);
                    assert_eq!(again.items().collect::<Vec<_>>(), [(4, &data)], "marks included");
                }
                Ok(Begin::Uncached(told)) if !is_kept => assert_eq!(told.highest, 3),
                other => panic!("{other:?}"),
            }
        }
    }
    // The largest reply that the slot keeps, and one byte more.
    for (sequence, len, is_kept) in [(5, 1_024, true), (6, 1_025, false)] {
        let reply = Payload::from(Bytes::from(vec![1; len]));
        assert_eq!(new(guest.begin(&with(sequence, true, false))).finish(&reply, world.now()), is_kept);
    }
    assert!(matches!(guest.begin(&with(6, true, false)), Ok(Begin::Uncached(_))));
}

/// proves: NFS4-8881-2.10.6.1.3.1-a
#[test]
fn another_call_or_caller_under_a_used_number_is_a_false_retry() {
    let world = World::new();
    let guest = world.client("a");
    let call = request(0, 1);
    let falsehoods = [Request { digest: 2, ..call }, Request { principal: Principal::unix(1), ..call }];
    let running = new(guest.begin(&call));
    for falsehood in &falsehoods {
        assert_eq!(guest.begin(falsehood).err(), Some(Status::SEQ_FALSE_RETRY), "while it runs");
    }
    running.finish(&reply("secret"), world.now());
    for falsehood in &falsehoods {
        assert_eq!(guest.begin(falsehood).err(), Some(Status::SEQ_FALSE_RETRY));
    }
    assert_eq!(replayed(guest.begin(&call)), "secret");
    let uncached = Request { cache: false, ..request(0, 2) };
    new(guest.begin(&uncached)).finish(&reply("gone"), world.now());
    let other = Request { principal: Principal { flavor: 0, user: 0 }, ..uncached };
    assert_eq!(guest.begin(&other).err(), Some(Status::SEQ_FALSE_RETRY));
}

/// proves: NFS4-8881-2.10.6.2-a
#[test]
fn a_call_that_runs_is_not_disturbed_by_its_repetition() {
    let world = World::new();
    let guest = world.client("a");
    let running = new(guest.begin(&request(0, 1)));
    assert_eq!(guest.begin(&request(0, 1)).err(), Some(Status::DELAY));
    assert_eq!(guest.begin(&request(0, 2)).err(), Some(Status::SEQ_MISORDERED), "no second call on the slot");
    new(guest.begin(&request(1, 1))).finish(&reply("another slot"), world.now());
    running.finish(&reply("answer"), world.now());
    assert_eq!(replayed(guest.begin(&request(0, 1))), "answer");
}

/// The call's task was dropped: parts of it may have been done.
///
/// proves: NFS4-8881-2.10.6.1.3-b
#[test]
fn a_call_that_ends_without_an_answer_counts_as_executed() {
    let world = World::new();
    let guest = world.client("a");
    drop(new(guest.begin(&request(0, 1))));
    assert!(matches!(guest.begin(&request(0, 1)), Ok(Begin::Uncached(_))));
    new(guest.begin(&request(0, 2))).finish(&reply("next"), world.now());
    world.wait(LEASE + 1);
    assert!(!world.state.is_live(&guest.client, world.now()), "nor does it hold the lease for ever");
}

/// proves: NFS4-8881-18.46-b, NFS4-8881-18.46-c, NFS4-8881-18.46-d
#[test]
fn a_sequence_that_fails_renews_nothing_and_one_that_succeeds_does() {
    let world = World::new();
    let guest = world.client("a");
    new(guest.begin(&request(0, 1))).finish(&reply("one"), world.now());
    let is_live = || world.state.is_live(&guest.client, world.now());
    world.wait(LEASE + 1);
    let failing = [
        (request(0, 3), Status::SEQ_MISORDERED),
        (request(4, 1), Status::BADSLOT),
        (request(u32::MAX, 1), Status::BADSLOT),
        (Request { highest: 4, ..request(0, 2) }, Status::BAD_HIGH_SLOT),
        (Request { digest: 5, ..request(0, 1) }, Status::SEQ_FALSE_RETRY),
    ];
    for (call, status) in failing {
        assert_eq!(guest.begin(&call).err(), Some(status));
    }
    let begun = world.state.begin(SessionId([1; 16]), &request(0, 2), 1, world.now());
    assert_eq!(begun.err(), Some(Status::BADSESSION));
    assert!(!is_live());
    assert_eq!(replayed(guest.begin(&request(0, 1))), "one");
    assert!(is_live(), "a repetition renews");
    world.wait(LEASE + 1);
    let running = new(guest.begin(&request(0, 2)));
    world.wait(1_000);
    assert!(is_live());
    running.finish(&reply("two"), world.now());
    world.wait(LEASE);
    assert!(is_live(), "from the end of the call");
    assert_eq!(new(guest.begin(&request(3, 1))).told().highest, 3);
}

/// proves: NFS4-8881-2.10.6.1-a
#[test]
fn slots_are_given_back_once_the_client_knows() {
    let world = World::new();
    let guest = world.client("a");
    let session = world.state.session(guest.session()).unwrap();
    let used = world.state.budget.used();
    for slot in 0..4 {
        let call = Request { highest: 3, ..request(slot, 1) };
        new(guest.begin(&call)).finish(&reply("kept"), world.now());
    }
    session.aim(1);
    session.aim(2);
    // This reply has the target; the next call shows that the client has read it.
    let told = new(guest.begin(&Request { highest: 3, ..request(0, 2) })).told();
    assert_eq!((told.highest, told.target), (3, 1));
    let told = new(guest.begin(&Request { highest: 3, ..request(0, 3) })).told();
    assert_eq!((told.highest, told.target), (3, 1), "it goes on using them");
    assert_eq!(world.state.budget.used(), used);
    let told = new(guest.begin(&Request { highest: 1, ..request(0, 4) })).told();
    assert_eq!((told.highest, told.target), (1, 1));
    assert_eq!(world.state.budget.used(), used - 2 * 1_024);
    assert_eq!(guest.begin(&request(2, 2)).err(), Some(Status::BADSLOT));
    assert_eq!(guest.begin(&Request { highest: 2, ..request(0, 5) }).err(), Some(Status::BAD_HIGH_SLOT));
    assert!(
        matches!(guest.begin(&Request { highest: 3, ..request(3, 1) }), Ok(Begin::Uncached(_))),
        "a late repetition"
    );
    assert_eq!(replayed(guest.begin(&Request { highest: 1, ..request(1, 1) })), "kept");
    drop(session);
    world.state.destroy_session(guest.session(), guest.connection).unwrap();
    assert_eq!(world.state.budget.used(), 0, "nothing is given back twice");
}

/// Two threads send the same calls in the same slots.
#[test]
fn of_two_at_the_same_time_one_is_executed() {
    let world = World::new();
    let guest = world.client("a");
    let (state, session) = (&world.state, guest.session());
    let executed: Vec<AtomicU32> = (0..2_001).map(|_| AtomicU32::new(0)).collect();
    let run = |connection| {
        for sequence in 1..=2_000u32 {
            loop {
                match state.begin(session, &request(0, sequence), connection, at(0)) {
                    Ok(Begin::New(guard)) => {
                        executed[sequence as usize].fetch_add(1, Ordering::Relaxed);
                        guard.finish(&reply(&sequence.to_string()), at(0));
                    }
                    // The other thread is executing it, is ahead, or has not come so far.
                    Err(Status::DELAY) => std::thread::yield_now(),
                    Err(Status::SEQ_MISORDERED) => break,
                    other => {
                        assert_eq!(replayed(other), sequence.to_string());
                        break;
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(1));
        scope.spawn(|| run(2));
    });
    assert!(executed[1..].iter().all(|count| count.load(Ordering::Relaxed) == 1));
}

#[derive(Clone, Debug)]
enum Step {
    Begin { slot: u32, offset: i8, digest: u64, user: u64, cache: bool },
    Finish { which: usize, len: usize },
    Drop { which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![8 => Just(1i8), 5 => Just(0), 1 => -3..=3i8];
    let digest = prop_oneof![8 => Just(0u64), 1 => 1..3u64];
    let user = prop_oneof![9 => Just(0u64), 1 => Just(1u64)];
    prop_oneof![
        6 => (0..5u32, offset, digest, user, any::<bool>())
            .prop_map(|(slot, offset, digest, user, cache)| Step::Begin { slot, offset, digest, user, cache }),
        4 => (any::<prop::sample::Index>(), 0..1_100usize)
            .prop_map(|(which, len)| Step::Finish { which: which.index(64), len }),
        1 => any::<prop::sample::Index>().prop_map(|which| Step::Drop { which: which.index(64) }),
    ]
}

/// What the checker knows of a call.
#[derive(Clone, Debug)]
struct Seen {
    digest: u64,
    user: u64,
    cache: bool,
    /// `None` while it runs; then the reply, if there was one and it may be kept.
    answer: Option<Option<Bytes>>,
}

proptest! {
    /// A checker outside of the slots counts executions: each (slot, number) at most once; every repetition of the same
    /// call gets the same bytes; a call of another caller gets none of them.
    #[test]
    fn each_call_is_executed_once_and_answered_alike(
        start in prop_oneof![Just(0u32), (u32::MAX - 20)..=u32::MAX],
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let world = World::new();
        let guest = world.client("a");
        if start > 0 {
            advance(&guest, start);
        }
        let mut seen: HashMap<(u32, u32), Seen> = HashMap::new();
        let mut last = HashMap::from([(0, start)]);
        let mut running = Vec::new();
        let mut number = 0u32;
        for step in steps {
            match step {
                Step::Begin { slot, offset, digest, user, cache } => {
                    let before = *last.get(&slot).unwrap_or(&0);
                    let sequence = before.wrapping_add_signed(offset.into());
                    let principal = Principal::unix(user);
                    let call = Request { slot, sequence, highest: 3, cache, alone: false, digest, principal };
                    let begin = guest.begin(&call);
                    let known = seen.get(&(slot, sequence)).filter(|_| sequence == before);
                    let is_running = seen.get(&(slot, before)).is_some_and(|seen| seen.answer.is_none());
                    match (known, begin) {
                        (_, begin) if slot > 3 => prop_assert_eq!(begin.err(), Some(Status::BADSLOT)),
                        (None, Ok(Begin::New(guard))) => {
                            prop_assert!(offset == 1 && !is_running);
                            let before = seen.insert((slot, sequence), Seen { digest, user, cache, answer: None });
                            prop_assert!(before.is_none(), "executed twice: {slot} {sequence}");
                            last.insert(slot, sequence);
                            running.push((slot, sequence, guard));
                        }
                        (None, Err(status)) => {
                            prop_assert!(offset != 1 || is_running);
                            prop_assert_eq!(status, Status::SEQ_MISORDERED);
                        }
                        (Some(known), Err(Status::SEQ_FALSE_RETRY)) => {
                            prop_assert!((known.digest, known.user) != (digest, user));
                        }
                        (Some(known), begin) => {
                            prop_assert_eq!((known.digest, known.user), (digest, user));
                            match (&known.answer, begin) {
                                (None, Err(Status::DELAY)) | (Some(None), Ok(Begin::Uncached(_))) => {}
                                (Some(Some(octets)), Ok(Begin::Replay(reply))) => {
                                    prop_assert_eq!(&reply.to_bytes(), octets);
                                }
                                (answer, begin) => prop_assert!(false, "{answer:?} {begin:?}"),
                            }
                        }
                        (known, begin) => prop_assert!(false, "{known:?} {begin:?}"),
                    }
                }
                Step::Finish { which, len } if !running.is_empty() => {
                    let (slot, sequence, guard) = running.swap_remove(which % running.len());
                    number += 1;
                    let octets: Bytes = number.to_be_bytes().into_iter().cycle().take(len).collect();
                    let kept = guard.finish(&octets.clone().into(), world.now());
                    let call = seen.get_mut(&(slot, sequence)).unwrap();
                    prop_assert_eq!(kept, call.cache && len <= 1_024);
                    call.answer = Some(kept.then_some(octets));
                }
                Step::Drop { which } if !running.is_empty() => {
                    let (slot, sequence, guard) = running.swap_remove(which % running.len());
                    drop(guard);
                    seen.get_mut(&(slot, sequence)).unwrap().answer = Some(None);
                }
                Step::Finish { .. } | Step::Drop { .. } => {}
            }
        }
    }
}
