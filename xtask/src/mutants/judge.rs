//! Asks the tests about one fault after the other.
//!
//! The order is from cheap to expensive: the test program that the list names, the crate's other test programs, then
//! those of the crates above. Before a test program runs with a fault it must pass without one: otherwise a failure
//! would say nothing. It runs without a fault once, and only if it is needed.

use super::{
    build::{Builder, NotBuilt, Program, Target},
    copy::Tree,
    list::{Fault, Layer},
    watch::{End, Ran, run},
};
use anyhow::{Context as _, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// The longest that a test program may take without a fault.
const SOUND_LIMIT: Duration = Duration::from_secs(300);
/// With a fault it may take this many times as long as without, because the machine may have other work meanwhile...
const HANG_FACTOR: u32 = 8;
/// ...and at least this long. A program that takes longer hangs, and so has noticed the fault.
const HANG_LIMIT: Duration = Duration::from_secs(30);

/// How often a test program runs if its failures do not repeat.
const TRIES: usize = 3;

/// What noticed a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Catch {
    pub(super) target: Target,
    /// How it ended; never [`End::Passed`].
    pub(super) end: End,
}

/// The result for a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Caught(Catch),
    /// Every test passed.
    Survived,
    /// The list is wrong: the place does not exist, or the code does not compile.
    Wrong(String),
}

/// The result for a fault, and how long it took.
pub(super) struct Judged<'a> {
    pub(super) fault: &'a Fault,
    pub(super) verdict: Verdict,
    pub(super) took: Duration,
}

/// Some test programs of one package that are built and run together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    package: String,
    targets: Vec<Target>,
}

pub(super) struct Judge<'a> {
    tree: &'a Tree,
    builder: Builder,
    /// How long each test program takes without a fault, as far as it has run.
    sound: BTreeMap<Target, Duration>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(tree: &'a Tree, builder: Builder) -> Self {
        Self { tree, builder, sound: BTreeMap::new() }
    }

    /// Makes sure that the first test programs for these faults pass without them.
    pub(super) fn prepare(&mut self, faults: &[(&Fault, &Layer)]) -> anyhow::Result<()> {
        let mut first: BTreeMap<String, BTreeSet<Target>> = BTreeMap::new();
        for (fault, layer) in faults {
            if let Some(step) = self.steps(fault, layer)?.into_iter().next() {
                first.entry(step.package).or_default().extend(step.targets);
            }
        }
        for (package, targets) in first {
            self.see_sound(&Step { package, targets: targets.into_iter().collect() })?;
        }
        Ok(())
    }

    /// Puts a fault in and runs tests until one notices it.
    ///
    /// # Errors
    /// If a test fails without a fault, or something unrelated to this fault goes wrong.
    pub(super) fn judge<'f>(&mut self, fault: &'f Fault, layer: &Layer) -> anyhow::Result<Judged<'f>> {
        let begin = Instant::now();
        let mut verdict = Verdict::Survived;
        for step in self.steps(fault, layer)? {
            self.see_sound(&step)?;
            let standing = match self.tree.put(fault) {
                Ok(standing) => standing,
                Err(error) => {
                    verdict = Verdict::Wrong(format!("{error:#}"));
                    break;
                }
            };
            let asked = self.ask(&step)?;
            drop(standing);
            if asked != Verdict::Survived {
                verdict = asked;
                break;
            }
        }
        Ok(Judged { fault, verdict, took: begin.elapsed() })
    }

    /// The test programs to run for a fault, in order.
    fn steps(&self, fault: &Fault, layer: &Layer) -> anyhow::Result<Vec<Step>> {
        let mut steps = Vec::new();
        for package in std::iter::once(&layer.package).chain(&layer.above) {
            steps.push((package, self.builder.targets(package)?.to_vec()));
        }
        if let Some(name) = &fault.first {
            let is_first = |target: &Target| target.test.as_ref() == Some(name);
            let Some((package, targets)) = steps.iter_mut().find(|(_, targets)| targets.iter().any(is_first)) else {
                bail!("{} asks {name} first, which is no test program of {} or above", fault.name, layer.package);
            };
            let (package, first) = (*package, targets.extract_if(.., |target| is_first(target)).collect());
            steps.insert(0, (package, first));
        }
        steps.retain(|(_, targets)| !targets.is_empty());
        Ok(steps.into_iter().map(|(package, targets)| Step { package: package.clone(), targets }).collect())
    }

    /// Makes sure that the tests of a step pass without a fault, unless they have passed before. No fault may stand in
    /// the copy.
    fn see_sound(&mut self, step: &Step) -> anyhow::Result<()> {
        let unknown: Vec<Target> =
            step.targets.iter().filter(|target| !self.sound.contains_key(target)).cloned().collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let built = self.builder.build(&step.package, &unknown)?;
        let programs = built.map_err(|NotBuilt(said)| anyhow::anyhow!("{said}")).with_context(|| {
            format!("the tests of {} do not compile without a fault: nothing can be said about any", step.package)
        })?;
        for program in programs {
            let Ran { end, said, took } = run(&program, None, SOUND_LIMIT)?;
            if end != End::Passed {
                bail!(
                    "{} fails without a fault ({end:?}): nothing can be said about any\n{}",
                    program.target,
                    said.join("\n")
                );
            }
            self.sound.insert(program.target, took);
        }
        Ok(())
    }

    /// Runs the tests of a step on the copy.
    fn ask(&self, step: &Step) -> anyhow::Result<Verdict> {
        let programs = match self.builder.build(&step.package, &step.targets)? {
            Ok(programs) => programs,
            Err(NotBuilt(said)) => return Ok(Verdict::Wrong(format!("it does not compile:\n{said}"))),
        };
        for program in programs {
            if let Some(end) = self.noticed(&program)? {
                return Ok(Verdict::Caught(Catch { target: program.target, end }));
            }
        }
        Ok(Verdict::Survived)
    }

    /// How a test program notices the fault in the copy, if it does. A test that fails must fail a second time, alone:
    /// a test that fails now and then on a busy machine has noticed nothing.
    fn noticed(&self, program: &Program) -> anyhow::Result<Option<End>> {
        let limit = self.limit(program);
        for _ in 0..TRIES {
            let end = run(program, None, limit)?.end;
            match &end {
                End::Passed => return Ok(None),
                End::Failed { test } if run(program, Some(test), limit)?.end == End::Passed => {
                    eprintln!("        {} {test} failed, and not again: not counted", program.target);
                }
                _ => return Ok(Some(end)),
            }
        }
        Ok(None)
    }

    /// How long a test program may take with a fault.
    fn limit(&self, program: &Program) -> Duration {
        let sound = self.sound.get(&program.target).copied().unwrap_or_default();
        HANG_LIMIT.max(sound * HANG_FACTOR)
    }
}
