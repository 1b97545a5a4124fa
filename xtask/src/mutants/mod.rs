//! `cargo xtask mutants`: whether the tests notice the faults that they should notice.
//!
//! `mutants.toml` lists deliberate faults, each of them one that a programmer could make. The command puts them one at
//! a time into a copy of the tree (`target/mutants/tree`), and runs the tests of the changed crate and of the crates
//! above, up to the first that fails. A fault that no test notices fails the command, and so does a list that no longer
//! fits the code. See `docs/mutants.md`.

mod build;
mod copy;
mod judge;
mod list;
mod report;
mod watch;

use crate::numbers::Numbers;
use anyhow::{Context as _, ensure};
use judge::{Judge, Judged, Verdict};
use list::{Fault, List};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    hash::{BuildHasher as _, Hasher as _},
    path::Path,
    process::ExitCode,
    time::Instant,
};

/// Which faults to try.
#[derive(clap::Args)]
#[command(max_term_width = 100)]
pub(crate) struct Arguments {
    /// Try only faults whose names contain one of these words
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Try only this many of them, which the seed chooses from each crate in turn
    #[arg(long, value_name = "N")]
    some: Option<usize>,
    /// Seed of this choice (default: a random seed, which the command prints)
    #[arg(long, value_name = "SEED", requires = "some")]
    seed: Option<u64>,
    /// Only print the list of the faults
    #[arg(long)]
    list: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Tries the faults that the arguments choose. Fails if a fault is not caught, or if a test fails without a fault.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let begin = Instant::now();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    let list = List::read(root)?;
    let wanted = |fault: &&Fault| arguments.names.is_empty() || arguments.names.iter().any(|n| fault.name.contains(n));
    let mut faults: Vec<&Fault> = list.faults.iter().filter(wanted).collect();
    ensure!(!faults.is_empty(), "no fault's name contains {}", arguments.names.join(" or "));
    let seed = arguments.some.map(|_| arguments.seed.unwrap_or_else(fresh_seed));
    if let (Some(some), Some(seed)) = (arguments.some, seed) {
        faults = choose(&faults, some, seed);
        eprintln!("seed {seed}: {}", faults.iter().map(|fault| fault.name.as_str()).collect::<Vec<_>>().join(", "));
    }
    if arguments.list {
        tell(root, &faults, arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let folder = root.join("target/mutants");
    fs::create_dir_all(&folder)?;
    let lock = File::create(folder.join("lock"))?;
    ensure!(lock.try_lock().is_ok(), "another run is in {}", folder.display());
    let judged = try_all(root, &folder, &list, &faults)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report::value(&judged, seed, begin.elapsed()))?);
    } else {
        println!("{}", report::table(&judged, begin.elapsed()));
    }
    Ok(if report::all_caught(&judged) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tries faults one after the other, and prints each result.
fn try_all<'f>(root: &Path, folder: &Path, list: &List, faults: &[&'f Fault]) -> anyhow::Result<Vec<Judged<'f>>> {
    let tree = copy::Tree::sync(root, &folder.join("tree"))?;
    let builder = build::Builder::new(tree.root(), &folder.join("target"))?;
    let mut judge = Judge::new(&tree, builder);
    let layered = faults.iter().map(|fault| Ok((*fault, list.layer(fault)?))).collect::<anyhow::Result<Vec<_>>>()?;
    eprintln!("building, and running the tests without a fault");
    judge.prepare(&layered)?;
    let mut judged = Vec::with_capacity(faults.len());
    for (number, (fault, layer)) in layered.into_iter().enumerate() {
        let one = judge.judge(fault, layer)?;
        let (seconds, outcome) = (one.took.as_secs_f64(), report::outcome(&one));
        eprintln!("[{:2}/{}] {:4.0} s  {:40} {outcome}", number + 1, faults.len(), seconds, fault.name);
        if !matches!(one.verdict, Verdict::Caught(_)) {
            eprintln!("        {}", fault.breaks);
        }
        judged.push(one);
    }
    Ok(judged)
}

/// Prints the list of the faults.
fn tell(root: &Path, faults: &[&Fault], as_json: bool) -> anyhow::Result<()> {
    let mut values = Vec::with_capacity(faults.len());
    for fault in faults {
        let line = fault.line(root)?;
        let (name, file) = (&fault.name, fault.path());
        if as_json {
            values.push(json!({
                "name": name, "crate": fault.folder, "file": file, "line": line, "breaks": fault.breaks, "rules": fault.rules,
            }));
        } else {
            println!("{name}  {file}:{line}\n    {} {}", fault.breaks, fault.rules.join(", "));
        }
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&values)?);
    }
    Ok(())
}

/// Chooses some faults by a seed: one of each crate in turn, so that even a few belong to different crates.
fn choose<'f>(faults: &[&'f Fault], some: usize, seed: u64) -> Vec<&'f Fault> {
    let mut numbers = Numbers(seed);
    let mut crates: BTreeMap<&str, Vec<&Fault>> = BTreeMap::new();
    for fault in faults {
        crates.entry(&fault.folder).or_default().push(fault);
    }
    let mut chosen = Vec::new();
    while chosen.len() < some && crates.values().any(|left| !left.is_empty()) {
        for left in crates.values_mut().filter(|left| !left.is_empty()) {
            let at = usize::try_from(numbers.below(left.len() as u64)).unwrap_or(0);
            chosen.push(left.remove(at));
        }
    }
    chosen.truncate(some);
    chosen
}

/// A random seed; short, because people may type it.
fn fresh_seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The fewest faults that the list has.
    const FEWEST: usize = 24;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    /// This test shows at once if a change of the code has made the list wrong.
    #[test]
    fn every_fault_has_its_place_in_the_source() {
        let list = List::read(root()).unwrap();
        let lost: Vec<String> =
            list.faults.iter().filter_map(|fault| Some(fault.line(root()).err()?.to_string())).collect();
        assert!(lost.is_empty(), "mutants.toml has to be kept with the code:\n{}", lost.join("\n"));
    }

    #[test]
    fn the_list_is_about_what_it_says() {
        let list = List::read(root()).unwrap();
        assert!(list.faults.len() >= FEWEST, "{} faults", list.faults.len());
        let crates: BTreeSet<&str> = list.faults.iter().map(|fault| fault.folder.as_str()).collect();
        let all = [
            "capture",
            "cli",
            "engine",
            "env",
            "fabric",
            "gss",
            "iwarp",
            "nfs",
            "nfs-client",
            "nfsd",
            "oncrpc",
            "rpcrdma",
            "transport",
            "verbs",
            "xdr",
        ];
        assert_eq!(crates, BTreeSet::from(all));
        assert!(list.faults.iter().any(|fault| fault.path().contains("/v2/")), "none in version 2");
        let rules = crate::requirements::ids(root()).unwrap();
        for fault in &list.faults {
            for rule in &fault.rules {
                assert!(rules.contains(rule), "{} breaks {rule}, which is in no catalogue", fault.name);
            }
            if let Some(first) = &fault.first {
                let above =
                    list.layer(fault).unwrap().above.iter().map(|package| package.trim_start_matches("rpcrdma-"));
                let is_there = |folder: &str| {
                    let program = root().join("crates").join(folder).join("tests").join(first);
                    program.with_extension("rs").exists() || program.join("main.rs").exists()
                };
                assert!(
                    std::iter::once(&*fault.folder).chain(above).any(is_there),
                    "{} asks {first} first, which is not there",
                    fault.name
                );
            }
        }
    }

    #[test]
    fn a_seed_chooses_the_same_faults_of_different_crates() {
        let list = List::read(root()).unwrap();
        let faults: Vec<&Fault> = list.faults.iter().collect();
        let names = |some, seed| choose(&faults, some, seed).iter().map(|fault| fault.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(3, 7), names(3, 7));
        let crates: BTreeSet<String> = choose(&faults, 3, 7).iter().map(|fault| fault.folder.clone()).collect();
        assert_eq!(crates.len(), 3);
        assert!((0..20).map(|seed| names(3, seed)).collect::<BTreeSet<_>>().len() > 10, "each seed another choice");
        assert_eq!(names(faults.len() + 1, 1).len(), faults.len());
    }
}
