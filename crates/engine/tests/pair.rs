//! Two engines of version 1 joined by a fabric in memory, under random workloads that a seed decides.
#![allow(unreachable_pub, reason = "a test has no outside")]

mod world;

use proptest::prelude::*;
use world::World;

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

/// What the work consists of, so that it does not get easy unnoticed.
#[test]
fn random_work_uses_what_there_is() {
    let (mut reduced, mut long_calls, mut long_replies, mut reverse, mut shared, mut broken) = (0, 0, 0, 0, 0, 0);
    for seed in 0..60 {
        let world = run(seed, 400, false);
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

    /// proves: V1-2.2.2-a, V1-3.3.1-b, V1-3.3.1-c, V1-3.3.1-d, V1-3.3.1-e, V1-3.3.1-f, V1-3.3.1-h, V1-3.3.1-i
    /// proves: V1-3.3.3-a, V1-3.3.3-c, V1-3.3.3-d, V1-3.4.1-a, V1-3.4.5.1-b, V1-3.5.2-b, V1-4.4.1-a, V1-4.2.1-a
    /// proves: V1-8.1.3-a, V1-8.1.3-b, V1-8.1.4-b, BIDI-8167-4.1-a, BIDI-8167-2.4.1-a, V1-3.3.1-a, V1-3.4.3-b
    /// proves: V1-3.4.4.4-a, V1-4-b, V1-4.2.3-a, V1-4.2.2-a, V1-4.4.3-a, V1-4.6.1-a, V1-4.6.2-a, V1-3.5.3-b, V1-4.3.1-b
    /// proves: IE-3.3.3-a, IE-4.5-a, IE-7.1.2-a, V1-2.3.2-d, V1-4.2.1-b, V1-3.3.2-b, V1-4.2.4-f, V1-4.2.4-g, IE-3.6.1-b
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
