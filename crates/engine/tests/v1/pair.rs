//! Two engines of version 1 joined by a fabric in memory, under random workloads from a seed.

use crate::world::{
    World,
    one::Watched,
    rows::{exposed, in_both_directions, row, sums},
};
use proptest::prelude::*;

fn run(seed: u64, steps: usize, give_up: bool) -> World {
    let mut world = World::random_of_version_1(seed);
    world.work(steps, give_up);
    world.finish();
    assert!(give_up || !world.broken, "nobody reaches for memory too late who answers what is waited for");
    world.check_end();
    for end in &world.ends {
        assert!(end.failed.is_empty(), "{:?}", end.failed);
    }
    world
}

/// The random work must contain each kind of case, so that it does not become too easy unnoticed.
#[test]
fn random_work_uses_what_there_is() {
    let (mut reduced, mut long_calls, mut long_replies, mut reverse, mut shared, mut broken) = (0, 0, 0, 0, 0, 0);
    for (seed, world) in (0..).zip(runs(0)) {
        for watched in world.one.iter().flatten() {
            reduced += watched.reduced;
            long_calls += watched.long_calls;
            long_replies += watched.long_replies;
        }
        reverse += world.ends[1].ended;
        shared += world.shared;
        broken += usize::from(run(seed, 600, true).broken);
    }
    assert!(reduced > 50 && long_calls > 50 && long_replies > 50, "{reduced} {long_calls} {long_replies}");
    assert!(reverse > 50 && shared > 5 && (1..60).contains(&broken), "{reverse} {shared} {broken}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// proves: V1-2.2.2-a, V1-4.2.1-a, V1-4.2.1-b, V1-4.2.2-a, V1-3.4.1-a, IE-3.3.3-a, V1-4.6.1-a, V1-4.6.2-a
    /// proves: IE-7.1.2.1-a
    #[test]
    fn every_call_is_answered_once_and_every_octet_arrives(seed in any::<u64>()) {
        run(seed, 400, false);
    }

    /// proves: V1-4.4.1-b, V1-8.1.3-c, V1-8.1.4-c
    #[test]
    fn calls_that_are_given_up_cost_no_memory_and_no_order(seed in any::<u64>()) {
        run(seed, 600, true);
    }
}

fn runs(first: u64) -> impl Iterator<Item = World> {
    row(first, |seed| run(seed, 400, false))
}

/// The sums of `counts` over all that either end has sent in a series of runs.
fn seen<const N: usize>(first: u64, counts: [fn(&Watched) -> u64; N]) -> [u64; N] {
    sums(runs(first).flat_map(|world| world.one.into_iter().flatten()), counts)
}

/// proves: V1-3.3.1-a, V1-3.3.1-b, V1-3.3.1-c, V1-3.3.1-d, V1-3.3.1-e, V1-3.3.1-f, V1-3.3.1-h, V1-3.3.3-a
/// proves: V1-3.3.3-c, V1-3.3.3-d, V1-4.2.3-a, V1-8.1.4-b
#[test]
fn no_more_calls_are_unanswered_than_were_granted() {
    let calls: u64 = runs(100).flat_map(|world| world.ends).map(|end| end.ended).sum();
    assert!(calls > 1000, "{calls}");
}

/// proves: V1-3.3.1-i, IE-4.5-a
#[test]
fn every_message_finds_a_receive() {
    let calls: u64 = runs(200).flat_map(|world| world.ends).map(|end| end.ended).sum();
    assert!(calls > 1000, "{calls}");
}

/// proves: V1-3.3.2-b, V1-4.2.4-f, V1-4-b, V1-3.5.2-b, V1-3.4.4.4-a, V1-3.4.3-b
#[test]
fn reduced_messages_keep_to_the_threshold() {
    let [reduced] = seen(300, [|watched| watched.reduced]);
    assert!(reduced > 50, "{reduced}");
}

/// proves: V1-3.5.3-b, V1-4.2.4-g, IE-3.6.1-b, V1-4.3.1-b, IE-7.1.2-a
#[test]
fn a_long_message_is_moved_whole_and_a_reply_reads_nothing() {
    let [calls, replies] = seen(400, [|watched| watched.long_calls, |watched| watched.long_replies]);
    assert!(calls > 50 && replies > 50, "{calls} {replies}");
}

/// proves: BIDI-8167-4.1-a, BIDI-8167-2.4.1-a
#[test]
fn the_directions_share_xids_and_no_credits() {
    let (shared, reverse) = in_both_directions(runs(500));
    assert!(shared > 5 && reverse > 50, "{shared} {reverse}");
}

/// proves: V1-2.3.2-d, V1-3.4.5.1-b, V1-4.4.1-a, V1-4.4.3-a, V1-8.1.3-a, V1-8.1.3-b
#[test]
fn memory_is_exposed_for_a_call_and_no_longer() {
    let exposed = exposed(runs(600));
    assert!(exposed > 500, "{exposed}");
}
