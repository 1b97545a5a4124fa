//! Seeds that are always run, some that are new each time, and one twice. `cargo xtask sim --seed S` replays one.

use rpcrdma_env::{OsRandom, Random};
use rpcrdma_simulation::{Outcome, run};

/// The seeds that are run each time: from zero up to here.
const FIXED: u64 = 60;
/// How many new ones are run.
const FRESH: u64 = 20;

/// Seeds that have found something once, as the plans of seeds were then:
///
/// * 1: a client's driver never ended that served calls of its server.
/// * 9: a call whose memory could not be registered failed for being too large.
/// * 16: ends of which only one could send private data did not agree how long a message may be.
/// * 371: a server without memory for receives accepted connections, and the first message ended them.
/// * 652, 2526: a call that had to wait for memory waited until something else happened on its connection.
/// * 824, 1623, 1003537: the first failure after a long silence failed calls at once, as if all that time had been an outage.
/// * 2792: a call that came inline, and again with its item placed, was executed twice.
const ONCE_FOUND: &[u64] = &[1, 9, 16, 371, 652, 824, 1623, 2526, 2792, 1_003_537];

fn nothing_is_found(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let Outcome { findings, .. } = run(seed, false);
        assert!(findings.is_empty(), "seed {seed} (cargo xtask sim --seed {seed}):\n{}", findings.join("\n"));
    }
}

#[test]
fn the_fixed_seeds_find_nothing() {
    nothing_is_found(0..FIXED);
}

#[test]
fn seeds_that_have_found_something_find_nothing_any_more() {
    nothing_is_found(ONCE_FOUND.iter().copied());
}

#[test]
fn fresh_seeds_find_nothing() {
    let first = u64::from(OsRandom::open().unwrap().next_u32());
    println!("fresh seeds from {first}");
    nothing_is_found(first..first + FRESH);
}

/// A run depends on its seed and on nothing else, also not on whether its octets are kept.
#[test]
fn a_seed_twice_is_the_same_run() {
    for seed in 0..4 {
        let (first, second) = (run(seed, false), run(seed, true));
        assert_eq!(first.log.difference(&second.log), None, "seed {seed}");
        assert!(first.log.len() > 100 && first.calls > 0);
    }
    assert!(run(1, false).log.difference(&run(2, false).log).is_some());
}

/// The fixed seeds are about something: each kind of mishap, of version, of direction and of fault is in one of them.
#[test]
fn the_fixed_seeds_have_all_of_it() {
    let mut missing = vec![
        "Cut(",
        "Partition(",
        "RestartServer(",
        "RestartClient(",
        "JumpServer(",
        "JumpClient(",
        "Negotiated(Negotiated { version: 1",
        "Negotiated(Negotiated { version: 2",
        "NoVersion2(",
        "Process { host: 1, starts: 0 } with 10.0.0.1:20049: Called",
        "retransmitted: true",
        "Stalled(Credits)",
        "Stalled(Memory)",
        "Provider(Limit { what: \"injected fault\"",
        "cannot be lent",
        "NoMemory",
        "read_chunks: 1",
        "write_chunks: 1",
        "reply_chunk: true",
    ];
    for seed in 0..FIXED {
        let log = run(seed, false).log;
        missing.retain(|words| !log.notes.iter().any(|note| note.text.contains(words)));
    }
    assert_eq!(missing, [""; 0]);
}

/// What goes over the network of a run can be read by those who read captures, to the last octet.
#[test]
fn a_capture_of_a_run_can_be_read() {
    struct Nothing(u64);
    impl rpcrdma_capture::Sink for Nothing {
        fn event(&mut self, _: &rpcrdma_capture::Event) -> std::io::Result<()> {
            self.0 += 1;
            Ok(())
        }
        fn finish(&mut self, _: &rpcrdma_capture::Summary) -> std::io::Result<()> {
            Ok(())
        }
    }
    let recorder = run(3, true).recorder.unwrap();
    let mut file = Vec::new();
    assert!(recorder.write(&mut file).unwrap().packets > 0);
    let mut events = Nothing(0);
    let summary = rpcrdma_capture::read_capture(&file[..], &mut events).unwrap();
    assert!(summary.connections > 0 && summary.messages > 0 && events.0 > 0);
    assert_eq!((summary.bad_crcs, summary.missing_octets, summary.cut_short), (0, 0, false));
}
