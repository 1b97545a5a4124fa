//! `cargo xtask figures`: how fast the built command is on this machine, as tables and pictures in docs/.
//!
//! `rpcrdma bench` measures everything, as a user would, against `rpcrdma serve` or a process of its own, in several
//! rounds, each with its baseline. docs/figures/figures.json keeps all numbers; `--redraw` makes tables and pictures
//! from it again.

mod crowd;
mod data;
mod instructions;
mod limit;
mod line;
pub(crate) mod machine;
pub(crate) mod measure;
mod others;
mod plan;
mod plot;
mod polling;
mod profile;
pub(crate) mod section;
mod steps;
pub(crate) mod table;
mod versions;

use crate::programs::Scratch;
use anyhow::{Context as _, ensure};
use data::Figures;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The document with the tables, the parts of it that this program writes, and the folder of the pictures, relative to
/// the document.
const DOCUMENT: &str = "docs/performance.md";
const PART: &str = "figures";
const VERSIONS_PART: &str = "versions";
const LIMITS_PART: &str = "limits";
const OTHERS_PART: &str = "others";
const STEPS_PART: &str = "steps";
const CROWD_PART: &str = "crowd";
const POLLING_PART: &str = "polling";
const PROFILE_PART: &str = "profile";
const INSTRUCTIONS_PART: &str = "instructions";
const PICTURES: &str = "figures";
/// All numbers, beside the pictures.
const NUMBERS: &str = "figures.json";

/// Rounds, and seconds for each measurement.
const ROUNDS: usize = 3;
const SECONDS: f64 = 1.0;
const QUICK: (usize, f64) = (1, 0.1);
/// Rounds of the comparison with what the machine can do; each of its cells takes `SECONDS` too.
const LIMITS_ROUNDS: usize = 5;
/// Seconds for each line of the comparison of versions, all rounds together.
const VERSIONS_SECONDS: f64 = 0.5;
const VERSIONS_QUICK: f64 = 0.02;

/// Measure how fast the command is, and write tables and pictures
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Make a short run that changes no document, to see whether everything works; the results are in target/figures
    #[arg(long)]
    quick: bool,
    /// Measure nothing, and make the tables and pictures again from docs/figures/figures.json
    #[arg(long, conflicts_with = "quick")]
    redraw: bool,
    /// Measure only this part, and keep the numbers of the other parts in docs/figures/figures.json
    #[arg(long, value_name = "PART", conflicts_with = "redraw")]
    only: Option<Only>,
    /// Measure in a network namespace whose TCP uses this congestion control, such as cubic; this needs root
    #[arg(long, value_name = "NAME", conflicts_with = "redraw")]
    congestion: Option<String>,
}

/// A part of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    /// How fast files are read and written, beside plain TCP
    Throughput,
    /// Versions 1 and 2 of RPC-over-RDMA side by side
    Versions,
    /// Reads, writes and small calls beside what the machine can do
    Limits,
    /// One and two connections beside iperf3, and our server beside Ganesha and `nfs3_server`
    Others,
    /// Where the microseconds of one call go
    Steps,
    /// From 1 to 256 connections, with 1, 2 and 4 threads of the server
    Crowd,
    /// Ends that look for the next message before they sleep, and ends that do not
    Polling,
    /// The build of `cargo xtask pgo` beside the usual one; only measured if it is named
    Profile,
    /// Instructions of small calls, counted by valgrind; only if it is named
    Instructions,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    let kept = root.join("docs").join(PICTURES);
    if arguments.redraw {
        return publish(root, &kept, &read(&kept)?);
    }
    if let Some(congestion) = &arguments.congestion
        && *congestion != machine::congestion()?
    {
        return in_namespace(root, congestion);
    }
    let target = root.join("target");
    let scratch = Scratch::new(root, "figures")?;
    let quick = arguments.quick;
    let instructions = || {
        let small_calls = crate::programs::release_example(root, "rpcrdma-tests", "small_calls")?;
        instructions::measure(&small_calls, &scratch.0, quick)
    };
    let program = match arguments.only {
        // It measures an example, and the command need not be built.
        Some(Only::Instructions) => PathBuf::new(),
        _ => crate::programs::release(root, "rpcrdma-cli")?,
    };
    let throughput = || {
        let (rounds, seconds) = if quick { QUICK } else { (ROUNDS, SECONDS) };
        measure::measure(&program, &scratch.0, rounds, seconds)
    };
    let versions = || versions::measure(&program, &scratch.0, if quick { VERSIONS_QUICK } else { VERSIONS_SECONDS });
    let limits = || {
        let (rounds, seconds) = if quick { QUICK } else { (LIMITS_ROUNDS, SECONDS) };
        limit::measure(&program, &scratch.0, rounds, seconds)
    };
    let others = || {
        let (rounds, seconds) = if quick { QUICK } else { (LIMITS_ROUNDS, SECONDS) };
        let nfs3_server = crate::programs::release_example(root, "rpcrdma-xtask", "nfs3_server")?;
        others::measure(&program, &nfs3_server, &scratch.0, rounds, seconds)
    };
    let steps = || {
        let (rounds, seconds) = if quick { QUICK } else { (LIMITS_ROUNDS, SECONDS) };
        steps::measure(&program, &scratch.0, rounds, seconds)
    };
    let crowd = || {
        let (rounds, seconds) = if quick { QUICK } else { (ROUNDS, SECONDS) };
        crowd::measure(&program, &scratch.0, rounds, seconds)
    };
    let polling = || {
        let (rounds, seconds) = if quick { QUICK } else { (LIMITS_ROUNDS, SECONDS) };
        polling::measure(&program, &scratch.0, rounds, seconds)
    };
    let profile = || {
        let profiled =
            crate::pgo::built(root)?.context("nothing is built with a profile: first run `cargo xtask pgo`")?;
        let (rounds, seconds) = if quick { QUICK } else { (LIMITS_ROUNDS, SECONDS) };
        profile::measure([&program, &profiled], &scratch.0, rounds, seconds)
    };
    let figures = match arguments.only {
        None => {
            let (limits, others) = (limits()?, others()?);
            let (steps, crowd, polling) = (steps()?, crowd()?, polling()?);
            let Figures { profile, instructions, .. } = read(&kept)?;
            let versions = versions()?;
            let measured = throughput()?;
            Figures { versions, limits, others, steps, crowd, polling, profile, instructions, ..measured }
        }
        Some(Only::Steps) => Figures { steps: steps()?, ..read(&kept)? },
        Some(Only::Instructions) => Figures { instructions: instructions()?, ..read(&kept)? },
        Some(Only::Polling) => Figures { polling: polling()?, ..read(&kept)? },
        Some(Only::Profile) => Figures { profile: profile()?, ..read(&kept)? },
        Some(Only::Crowd) => Figures { crowd: crowd()?, ..read(&kept)? },
        Some(Only::Versions) => Figures { versions: versions()?, ..read(&kept)? },
        Some(Only::Limits) => Figures { limits: limits()?, ..read(&kept)? },
        Some(Only::Others) => Figures { others: others()?, ..read(&kept)? },
        Some(Only::Throughput) => {
            let Figures { machine, seconds, measurements, .. } = throughput()?;
            Figures { machine, seconds, measurements, ..read(&kept)? }
        }
    };
    if quick {
        write(&target.join(PICTURES), &figures)?;
        for (_, body) in parts(&figures) {
            println!("{body}");
        }
        return Ok(());
    }
    publish(root, &kept, &figures)
}

/// Runs this program again in a network namespace whose TCP has this congestion control.
fn in_namespace(root: &Path, congestion: &str) -> anyhow::Result<()> {
    let allowed = machine::allowed_congestion()?;
    ensure!(
        allowed.split_whitespace().any(|allowed| allowed == congestion),
        "this machine allows no network namespace to use {congestion}; to allow it, run: \
         sysctl -w {}='{allowed} {congestion}'",
        machine::ALLOWED_CONGESTION
    );
    // The namespace has no way out, so what builds there must not need the registry.
    crate::programs::fetch(root)?;
    let script = format!("ip link set lo up && echo \"$1\" >{} && shift && exec \"$@\"", machine::CONGESTION);
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &script, "sh", congestion]);
    let status = command.arg(env::current_exe()?).args(env::args_os().skip(1)).status().context("unshare")?;
    ensure!(status.success(), "in a network namespace with {congestion}: {status}");
    Ok(())
}

/// The numbers that are kept.
fn read(folder: &Path) -> anyhow::Result<Figures> {
    let numbers = folder.join(NUMBERS);
    let text = fs::read_to_string(&numbers).with_context(|| numbers.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}

/// The parts of the document.
fn parts(figures: &Figures) -> [(&'static str, String); 9] {
    let versions = versions::section(&figures.versions, PICTURES);
    let (limits, others) = (limit::section(&figures.limits), others::section(&figures.others));
    let (steps, crowd) = (steps::section(&figures.steps), crowd::section(&figures.crowd));
    [
        (PART, table::section(figures, PICTURES)),
        (VERSIONS_PART, versions),
        (LIMITS_PART, limits),
        (OTHERS_PART, others),
        (STEPS_PART, steps),
        (CROWD_PART, crowd),
        (POLLING_PART, polling::section(&figures.polling)),
        (PROFILE_PART, profile::section(&figures.profile)),
        (INSTRUCTIONS_PART, instructions::section(&figures.instructions)),
    ]
}

/// Writes numbers and pictures, and the document's parts.
fn publish(root: &Path, folder: &Path, figures: &Figures) -> anyhow::Result<()> {
    ensure!(
        figures.steps.are_these(),
        "the numbers that are kept are about other steps of a call: run `cargo xtask figures --only steps` first"
    );
    write(folder, figures)?;
    let document = root.join(DOCUMENT);
    let text = fs::read_to_string(&document).with_context(|| DOCUMENT.to_owned())?;
    let replaced = |text: String, (name, body): (&str, String)| section::replace(&text, name, &body).context(DOCUMENT);
    let text = parts(figures).into_iter().try_fold(text, replaced)?;
    fs::write(&document, text)?;
    println!("{DOCUMENT} and docs/{PICTURES}/ are written");
    Ok(())
}

/// Writes numbers and pictures.
fn write(folder: &Path, figures: &Figures) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(NUMBERS), serde_json::to_string_pretty(figures)? + "\n")?;
    for ((file, _), svg) in plot::PICTURES.iter().zip(plot::pictures(figures)?) {
        fs::write(folder.join(file), svg)?;
    }
    for (case, svg) in versions::CASES.iter().zip(versions::pictures(&figures.versions)?) {
        fs::write(folder.join(case.file), svg)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_its_parts() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = fs::read_to_string(root.join(DOCUMENT)).unwrap();
        for (part, _) in parts(&Figures::default()) {
            assert!(section::replace(&text, part, "new").unwrap().contains("new"), "{part}");
        }
    }

    #[test]
    fn numbers_and_pictures_are_written() {
        let folder = std::env::temp_dir().join(format!("rpcrdma-figures-{}", std::process::id()));
        let figures = table::tests::figures();
        write(&folder, &figures).unwrap();
        let text = fs::read_to_string(folder.join(NUMBERS)).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
        let files = plot::PICTURES.iter().map(|(file, _)| *file).chain(versions::CASES.iter().map(|case| case.file));
        for file in files {
            assert!(fs::read_to_string(folder.join(file)).unwrap().contains("</svg>"));
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
