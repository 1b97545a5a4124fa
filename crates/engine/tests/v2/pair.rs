//! Random work between two endpoints of version 2.

use crate::world::World;
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// proves: V2-3.1.2-b, V2-3.1.3.3-a, V2-3.1.3.4-a, V2-3.1.3.4-b, V2-3.1.3.4-c, V2-3.2.2.3-a, V2-3.2.2.4-b
    /// proves: V2-3.2.2.5-a, V2-4-a
    /// proves: V2-4.1-a, V2-4.1-b, V2-4.1-g, V2-4.1-d, V2-4.1-e, V2-4.1-f, V2-4.1-i, V2-4.2-a, V2-4.2.1.1-a
    /// proves: V2-4.2.1.1-d, V2-4.2.1.1-e, V2-4.2.1.1-g, V2-4.2.1.1-h, V2-4.2.1.2-a, V2-4.2.1.2-b
    /// proves: V2-4.2.2-a, V2-4.2.2-b, V2-4.2.2-c, V2-4.2.2-f, V2-4.3.1-a, V2-4.3.1-b, V2-4.3.2-a, V2-4.3.3-b
    /// proves: V2-4.3.4.4-a, V2-4.3.4.4-b, V2-4.3.4.4-c, V2-4.3.5-a, V2-4.3.5-b, V2-4.3.5-c, V2-4.3.5-d, V2-4.3.5-e
    /// proves: V2-4.3.5-f, V2-4.3.5-g, V2-4.3.5-h
    /// proves: V2-4.3.5.1-a, V2-4.3.5.1-b, V2-4.3.5.1-c, V2-4.3.6-c, V2-4.3.6-d, V2-4.3.6-e, V2-4.3.6-f, V2-4.3.6-h
    /// proves: V2-4.3.6.1-a, V2-4.3.6.2-b, V2-4.3.6.2-c
    /// proves: V2-4.4.1.1-b, V2-4.4.1.1-c, V2-4.4.1.1-d, V2-4.4.2.1-c, V2-4.4.3-a, V2-4.4.3-b, V2-4.4.3-g, V2-4.4.3-h
    /// proves: V2-6.4-c, V2-6.4-d, V2-5.2.2-c
    /// proves: V2-4.5.1-a, V2-4.5.1-b, V2-4.5.1-c, V2-4.5.1-d, V2-4.5.1-e, V2-4.5.1-f, V2-4.5.2-a, V2-4.5.2-b
    /// proves: V2-4.5.2-c, V2-4.5.2-d, V2-4.5.2-e, V2-4.5.2-f, V2-4.5.4-a, V2-4.5.4-c, V2-5.2.5-b, V2-5.2.5-e
    /// proves: V2-6.2.2.1-a, V2-6.2.2.1-e, V2-6.2.2.2-f, V2-6.2.2.2-i, V2-6.2.2.2-j, V2-6.2.2.2-k, V2-6.2.2.3-e
    /// proves: V2-6.2.4-c, V2-6.2.4-d, V2-6.2.4-e, V2-6.2.4-f, V2-6.3.2-a, V2-6.3.2-b, V2-6.3.2-c, V2-6.3.2-d
    /// proves: V2-6.3.4-b
    /// proves: V2-11.1.3-a, V2-11.1.3-b, V2-11.1.3-c, V2-11.1.4-b, V2-11.1.4-c, V2-A.1-b, V2-C.7-a, V2-C.7-c, V2-C.7-d
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

/// What the work above consists of, so that it does not get easy unnoticed.
#[test]
fn random_work_uses_what_there_is() {
    let (mut parts, mut grants, mut failed, mut reverse) = (0, 0, 0, 0);
    for seed in 0..60 {
        let world = run(seed, 400, false);
        for (watched, end) in world.watched.iter().zip(&world.ends) {
            parts += watched.parts;
            grants += watched.grants;
            failed += end.failed.len();
        }
        reverse += world.ends[1].ended;
    }
    assert!(parts > 1000 && grants > 100 && reverse > 100 && failed > 0, "{parts} {grants} {reverse} {failed}");
}
