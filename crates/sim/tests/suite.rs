//! The provider suite over the simulation, with several seeds and sets of capabilities.

use rpcrdma_fabric::suite::{Setup, Verdict, cases};
use rpcrdma_sim::{Link, SimConfig, World};
use std::{sync::Arc, time::Duration};

/// Runs every case with every seed, and returns the names of the skipped cases.
fn run(config: &SimConfig, seeds: std::ops::Range<u64>) -> Vec<&'static str> {
    let mut skipped = Vec::new();
    for seed in seeds {
        skipped.clear();
        for case in cases() {
            let world = World::new(seed);
            world.record(false);
            let setup = Setup {
                a: Arc::new(world.fabric_with([10, 0, 0, 1].into(), config.clone())),
                b: Arc::new(world.fabric_with([10, 0, 0, 2].into(), config.clone())),
                listen: "10.0.0.2:0".parse().unwrap(),
                env: world.env(),
            };
            println!("{} with seed {seed}", case.name());
            if let Verdict::Skipped(_) = world.block_on(case.run(setup)) {
                skipped.push(case.name());
            }
            world.run_for(Duration::from_secs(60));
            assert_eq!(world.open_ends(), 0, "{}: ends are left open", case.name());
        }
    }
    skipped
}

#[test]
fn a_provider_that_can_do_everything() {
    let limits = ["the_length_of_an_exposure_is_limited", "the_length_of_a_message_is_limited"];
    let skipped = run(&SimConfig::default(), 0..8);
    assert_eq!(skipped, [limits[0], limits[1], "an_invalidation_that_cannot_be_sent_is_refused"]);
}

#[test]
fn a_device_without_invalidation() {
    let skipped = run(&SimConfig::without_invalidation(), 100..104);
    assert!(skipped.contains(&"the_peer_ends_an_exposure_with_its_send"));
    assert!(!skipped.contains(&"an_invalidation_that_cannot_be_sent_is_refused"));
}

#[test]
fn a_small_device() {
    let config = SimConfig::default().with_capabilities(|c| {
        c.shared_receives = false;
        c.max_exposure_bytes = 1 << 20;
        c.max_exposures = 32;
        c.max_message_bytes = 1 << 20;
        c.max_gather = 3;
        c.max_receives = 64;
        c.max_posted = 64;
        c.max_ird = 1;
        c.max_ord = 1;
        c.max_private_data = 56;
    });
    let skipped = run(&config, 200..204);
    assert!(!skipped.contains(&"the_length_of_an_exposure_is_limited"));
    assert!(skipped.contains(&"connections_share_receives"));
}

#[test]
fn a_slow_and_uneven_link() {
    let link = Link::new(Duration::from_micros(1), Duration::from_millis(30));
    run(&SimConfig::default().with_link(link), 300..304);
}

#[test]
fn a_host_can_connect_to_itself() {
    for seed in 0..2 {
        for case in cases() {
            let world = World::new(seed);
            let fabric = Arc::new(world.fabric([10, 0, 0, 1].into()));
            let listen = "10.0.0.1:0".parse().unwrap();
            world.block_on(case.run(Setup { a: fabric.clone(), b: fabric, listen, env: world.env() }));
        }
    }
}
