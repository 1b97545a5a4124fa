//! The ordinary tests also run the seeds of the fuzzers, and the inputs that fuzzing has found.

use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_tests::fuzz::{MAX_KEPT_BYTES, TARGETS, inputs, seeds};
use std::{fs, panic, path::Path};

/// The most bytes that all corpora in the repository may have together.
const MAX_CORPORA_OCTETS: usize = 1 << 20;

/// Runs the inputs, and says which one failed.
fn replay(name: &str, all: &[Vec<u8>], run: fn(&[u8])) {
    for input in all {
        if let Err(failure) = panic::catch_unwind(|| run(input)) {
            let hex: String = input.iter().map(|octet| format!("{octet:02x}")).collect();
            eprintln!("{name} fails with {hex}");
            panic::resume_unwind(failure);
        }
    }
}

#[test]
fn seeds_are_survived() {
    for target in TARGETS {
        let seeds = seeds(target.name);
        assert!(!seeds.is_empty(), "{} has none", target.name);
        replay(target.name, &seeds, target.run);
    }
}

#[test]
fn kept_inputs_are_survived() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpora");
    let mut octets = 0;
    for target in TARGETS {
        let text = fs::read_to_string(corpora.join(format!("{}.hex", target.name))).unwrap();
        octets += text.len();
        let all = inputs(&text);
        assert!(all.iter().all(|input| input.len() <= MAX_KEPT_BYTES), "{} has a larger input", target.name);
        replay(target.name, &all, target.run);
    }
    assert!(octets <= MAX_CORPORA_OCTETS, "{octets} bytes of corpora");
    assert_eq!(fs::read_dir(corpora).unwrap().count(), TARGETS.len(), "a corpus without a target");
}

/// Random changes of the seeds, as a small fuzzer that needs no tools. `RPCRDMA_FUZZ_RUNS` says how many inputs for
/// each target, and `RPCRDMA_FUZZ_SEED` which.
#[test]
fn neighbours_of_seeds_are_survived() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"));
    let (runs, seed) = (number("RPCRDMA_FUZZ_RUNS", 300), number("RPCRDMA_FUZZ_SEED", 8166));
    for target in TARGETS {
        let (seeds, random) = (seeds(target.name), SeededRandom::new(seed));
        let below = |end: usize| random.below(end as u64) as usize;
        for _ in 0..runs {
            let mut input = seeds[below(seeds.len())].clone();
            for _ in 0..=below(12) {
                let at = below(input.len() + 1);
                match below(8) {
                    0 => input.truncate(at),
                    1 => input.extend(&seeds[below(seeds.len())]),
                    2 => input.insert(at, random.below(256) as u8),
                    3 => {
                        let end = input.len().min(at + below(64));
                        let piece = input[at..end].to_vec();
                        input.splice(at..at, piece);
                    }
                    _ if at == input.len() => {}
                    4 => input[at] = [0, 1, 0x7F, 0x80, 0xFF][below(5)],
                    _ => input[at] = random.below(256) as u8,
                }
            }
            input.truncate(MAX_KEPT_BYTES);
            replay(target.name, &[input], target.run);
        }
    }
}

/// Each target has a program in `fuzz/`, and there are no other programs.
#[test]
fn each_target_can_be_fuzzed() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{} is not in fuzz/Cargo.toml", target.name);
        let program = fs::read_to_string(fuzz.join(format!("fuzz_targets/{}.rs", target.name))).unwrap();
        assert!(program.contains(&format!("fuzz::run(\"{}\"", target.name)), "{}", target.name);
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
}
