//! Random work between two endpoints of version 2. The checkers of `world` stand between the two and end a run that
//! breaks a rule. Each test here is about some of these rules, and makes sure that the runs tested them.

use crate::world::{
    World,
    rows::{exposed, in_both_directions, row, sums},
    two::Seen,
};
use proptest::prelude::*;
use rpcrdma_engine::{CallError, CallRefused};

fn run(seed: u64, steps: usize, give_up: bool) -> World {
    let mut world = World::random(seed);
    world.work(steps, give_up);
    world.finish();
    world.check_end();
    for (_, error) in world.ends.iter().flat_map(|end| &end.failed) {
        let refused = matches!(
            error,
            CallError::Refused(
                CallRefused::TooLargeInline { .. } | CallRefused::NotEnabled | CallRefused::ChunkTooLarge { .. }
            )
        );
        assert!(refused, "{error}");
    }
    world
}

/// A series of runs, none of which is broken off.
fn runs(first: u64) -> impl Iterator<Item = World> {
    row(first, |seed| {
        let world = run(seed, 400, false);
        assert!(!world.broken, "nobody reaches for memory too late who answers what is waited for");
        world
    })
}

/// The sums of `counts` over all that either end has sent in a series of runs.
fn seen<const N: usize>(first: u64, counts: [fn(&Seen) -> u64; N]) -> [u64; N] {
    sums(runs(first).flat_map(|world| world.watched).map(|watched| watched.seen), counts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// proves: V2-3.1.2-b, V2-3.1.3.3-a, V2-3.1.3.4-a, V2-3.1.3.4-b, V2-4.3.1-b, V2-A.1-b, V2-4.1-g, V2-4.2.1.1-g
    #[test]
    fn every_call_is_answered_once_and_every_octet_arrives(seed in any::<u64>()) {
        let world = run(seed, 400, false);
        prop_assert!(!world.broken);
    }

    /// proves: V2-3.1.2-c, V2-11.1.3-d, V2-11.1.4-d
    #[test]
    fn calls_that_are_given_up_cost_no_memory_and_no_order(seed in any::<u64>()) {
        run(seed, 600, true);
    }
}

/// proves: V2-3.1.3.4-c, V2-4.5.1-a, V2-4.5.2-a
#[test]
fn both_directions_use_the_same_xids_at_the_same_time() {
    let (shared, reverse) = in_both_directions(runs(0));
    assert!(shared > 5 && reverse > 100, "{shared} {reverse}");
}

/// proves: V2-4.1-a, V2-4.1-b, V2-6.2.2.1-a, V2-6.2.2.1-e, V2-6.3.2-b, V2-4.4.1.1-b, V2-4.4.1.1-c, V2-4.4.1.1-d
#[test]
fn every_message_is_a_header_and_the_payload_that_it_names() {
    let [simple] = seen(100, [|seen| seen.simple]);
    assert!(simple > 1000, "{simple}");
}

/// proves: V2-4.1-d, V2-4.1-e, V2-4.1-f, V2-4.1-i, V2-4.2.1.1-a, V2-4.4.2.1-c, V2-6.2.2.2-f, V2-6.2.2.2-i
/// proves: V2-6.2.2.2-j, V2-6.2.2.2-k
#[test]
fn parts_follow_each_other_as_credits_come() {
    let [parts] = seen(200, [|seen| seen.parts]);
    assert!(parts > 1000, "{parts}");
}

/// proves: V2-3.2.2.3-a, V2-4.2-a, V2-4.2.1.1-d, V2-4.2.1.1-e, V2-4.2.1.1-h, V2-4.2.1.2-a, V2-4.2.1.2-b, V2-6.3.2-c
/// proves: V2-6.3.2-d, V2-11.1.4-c
#[test]
fn nothing_is_sent_without_a_credit_and_every_message_finds_a_receive() {
    let [grants] = seen(300, [|seen| seen.grants]);
    assert!(grants > 100, "{grants}");
}

/// proves: V2-4.2.2-a, V2-4.2.2-b, V2-4.2.2-c, V2-4.2.2-f, V2-5.2.2-c, V2-6.2.2.3-e, V2-6.3.4-b
#[test]
fn properties_come_first_and_bound_what_follows() {
    for world in runs(400) {
        assert!(world.watched.iter().all(|watched| watched.over), "both have said all");
        assert!(world.ends.iter().all(|end| end.negotiated.is_some()));
    }
}

/// proves: V2-4.3.2-a, V2-4.3.1-a, V2-4.3.4.4-a, V2-4.3.4.4-b, V2-4.3.4.4-c, V2-4.3.5-a, V2-4.3.5-b, V2-4.3.5-c
/// proves: V2-4.3.5-d, V2-4.3.5-e, V2-4.3.5-g, V2-4.3.5-h
#[test]
fn read_chunks_have_the_position_of_their_item() {
    let [chunks] = seen(500, [|seen| seen.read_chunks]);
    assert!(chunks > 500, "{chunks}");
}

/// proves: V2-4-a, V2-4.3.3-b, V2-3.2.2.5-a, V2-4.3.5-f, V2-4.3.5.1-a, V2-4.3.5.1-b, V2-4.3.5.1-c, V2-6.4-c, V2-6.4-d
#[test]
fn what_is_read_is_lent_until_the_reply() {
    let [chunks] = seen(600, [|seen| seen.read_chunks + seen.special_calls]);
    assert!(chunks > 500, "{chunks}");
}

/// proves: V2-3.2.2.4-b, V2-4.3.6-c, V2-4.3.6-d, V2-4.3.6-e, V2-4.3.6-f, V2-4.3.6-h, V2-4.3.6.1-a, V2-4.3.6.2-b
/// proves: V2-4.3.6.2-c, V2-11.1.4-b
#[test]
fn write_chunks_come_back_with_what_was_written() {
    let [chunks] = seen(700, [|seen| seen.write_chunks + seen.reply_chunks]);
    assert!(chunks > 500, "{chunks}");
}

/// proves: V2-4.4.3-a, V2-4.4.3-b, V2-4.4.3-g, V2-4.4.3-h, V2-6.3.2-a
#[test]
fn a_special_message_is_moved_whole() {
    let [calls, replies] = seen(800, [|seen| seen.special_calls, |seen| seen.special_replies]);
    assert!(calls > 50 && replies > 20, "{calls} {replies}");
}

/// proves: V2-4.5.1-b, V2-4.5.1-c, V2-4.5.1-e, V2-4.5.1-f, V2-4.5.2-b, V2-4.5.2-c, V2-4.5.2-e, V2-4.5.2-f
/// proves: V2-4.5.4-a, V2-4.5.4-c, V2-5.2.5-b, V2-5.2.5-e
#[test]
fn the_reverse_direction_keeps_to_what_the_client_supports() {
    let [reverse] = seen(900, [|seen| seen.reverse]);
    assert!(reverse > 200, "{reverse}");
}

/// proves: V2-4.5.1-d, V2-4.5.2-d
#[test]
fn one_account_of_credits_serves_both_directions() {
    let [reverse, grants] = seen(1000, [|seen| seen.reverse, |seen| seen.grants]);
    assert!(reverse > 200 && grants > 100, "{reverse} {grants}");
}

/// proves: V2-6.2.4-c, V2-6.2.4-d, V2-6.2.4-e, V2-6.2.4-f, V2-C.7-a, V2-C.7-c, V2-C.7-d
#[test]
fn one_region_of_a_call_is_invalidated_by_its_reply() {
    let worlds: Vec<World> = runs(1100).collect();
    let invalidated: usize = worlds.iter().map(|world| world.invalidated).sum();
    let exposed: u64 = worlds.iter().flat_map(|world| &world.ends).map(|end| end.memory.exposed_ever).sum();
    assert!(invalidated > 50 && exposed > 10 * invalidated as u64 / 9, "{invalidated} of {exposed}");
}

/// proves: V2-6.4-a, V2-11.1.3-a, V2-11.1.3-b, V2-11.1.3-c
#[test]
fn memory_is_exposed_for_a_call_and_no_longer() {
    let exposed = exposed(runs(1200));
    assert!(exposed > 500, "{exposed}");
}

/// The work above must contain each kind of case, so that it does not become too easy unnoticed.
#[test]
fn random_work_uses_what_there_is() {
    let (mut parts, mut grants, mut failed, mut reverse) = (0, 0, 0, 0);
    for world in runs(0) {
        for (watched, end) in world.watched.iter().zip(&world.ends) {
            parts += watched.seen.parts;
            grants += watched.seen.grants;
            failed += end.failed.len();
        }
        reverse += world.ends[1].ended;
    }
    assert!(parts > 1000 && grants > 100 && reverse > 100 && failed > 0, "{parts} {grants} {reverse} {failed}");
}
