//! `cargo xtask pgo`: builds the command with a profile of its own calls (profile-guided optimisation, PGO).
//!
//! First it builds a command that counts which way its code takes. A server and clients of that command then make the
//! calls that occur most, over software iWARP and TCP. The compiler builds the command again with these counts, and
//! lays out the usual way in one piece. docs/decisions/0016-a-profile-is-a-second-step.md says why the usual build
//! does without.

use crate::{
    figures::measure::{Place, Server, run as bench},
    programs,
};
use anyhow::{Context as _, bail, ensure};
use indicatif::ProgressBar;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The package of the command.
const PACKAGE: &str = "rpcrdma-cli";
/// Everything that this command makes lies here, below `target`.
const FOLDER: &str = "pgo";
/// The target folders of the build that counts and of the build with the counts, and the counts themselves.
const COUNTING: &str = "counting";
const PROFILED: &str = "profiled";
const COUNTS: &str = "counts";

/// The versions of NFS, and the transports: whether it is TCP, and how the URL asks for it.
const VERSIONS: [&str; 2] = ["3", "4.2"];
const TRANSPORTS: [(bool, &str); 3] = [(false, "rpcrdma=1"), (false, "rpcrdma=2"), (true, "transport=tcp")];
/// The calls of `rpcrdma bench`: operation, block, depth.
const CALLS: [(&str, Option<&str>, &str); 7] = [
    ("write", Some("1M"), "8"),
    ("read", Some("1M"), "8"),
    ("write", Some("4K"), "8"),
    ("read", Some("4K"), "32"),
    ("getattr", None, "32"),
    ("null", None, "32"),
    ("null", None, "1"),
];
/// The files that are copied to the server and back, and their bytes.
const FILES: usize = 200;
const FILE_BYTES: usize = 3000;

/// Build the command with a profile of its own calls
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds for each kind of call while the profile is taken
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,
    /// The llvm-profdata of rustc's LLVM (default: that of the rustup component llvm-tools)
    #[arg(long, value_name = "FILE")]
    llvm_profdata: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    let profdata = match &arguments.llvm_profdata {
        Some(file) => file.clone(),
        None => of_rustup(&programs::rustc(&["--print", "target-libdir"])?)?,
    };
    let folder = root.join("target").join(FOLDER);
    let (counts, profiled) = (folder.join(COUNTS), folder.join(PROFILED));
    // Cargo does not see that the counts have changed, and counts of other code must not stay.
    for old in [&counts, &profiled] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| old.display().to_string())?;
        }
    }
    println!("1 of 4: building a command that counts which way its code takes");
    let flag = format!("-Cprofile-generate={}", counts.display());
    let counting = programs::release_with_flag(root, PACKAGE, &flag, &folder.join(COUNTING))?;
    println!("2 of 4: server and client make calls");
    let scratch = programs::Scratch::new(root, "pgo-calls")?;
    make_calls(&counting, &scratch.0, arguments.seconds)?;
    println!("3 of 4: joining the counts");
    let joined = counts.join("joined.profdata");
    join(&profdata, &counts, &joined)?;
    println!("4 of 4: building the command with the counts");
    let flag = format!("-Cprofile-use={}", joined.display());
    let built = programs::release_with_flag(root, PACKAGE, &flag, &profiled)?;
    println!("built: {}", built.display());
    Ok(())
}

/// The command as it was built with a profile; `None` if it was not.
pub(crate) fn built(root: &Path) -> anyhow::Result<Option<PathBuf>> {
    let release = root.join("target").join(FOLDER).join(PROFILED).join(programs::host()?).join("release");
    Ok(Some(release.join("rpcrdma")).filter(|built| built.exists()))
}

/// The llvm-profdata of rustup, beside the folder of the target's libraries.
fn of_rustup(libraries: &str) -> anyhow::Result<PathBuf> {
    let tool = Path::new(libraries).with_file_name("bin").join("llvm-profdata");
    if !tool.exists() {
        bail!(
            "{} is missing. Install it by `rustup component add llvm-tools`, or name the llvm-profdata of rustc's LLVM \
             (`rustc -vV` prints its version) by --llvm-profdata",
            tool.display()
        );
    }
    Ok(tool)
}

/// Lets a server and clients make all kinds of calls. Each process writes its counts when it ends.
fn make_calls(program: &Path, scratch: &Path, seconds: f64) -> anyhow::Result<()> {
    let export = programs::exported(&scratch.join("export"))?;
    let tree = scratch.join("tree");
    fs::create_dir(&tree)?;
    for number in 0..FILES {
        fs::write(tree.join(format!("file-{number}")), vec![1; FILE_BYTES])?;
    }
    let server = Server::start_with(program, Place::Free, &export, &scratch.join("state"), &["-q".into()])?;
    let progress = ProgressBar::new((VERSIONS.len() * TRANSPORTS.len() * (CALLS.len() + 1)) as u64);
    for version in VERSIONS {
        for (tcp, transport) in TRANSPORTS {
            let query = format!("version={version}&{transport}");
            let url = server.url_of("bench", tcp, &query);
            for (op, block, depth) in CALLS {
                let mut options = vec![url.clone(), "--op".into(), op.into(), "--depth".into(), depth.into()];
                options.extend(["--seconds".into(), seconds.to_string()]);
                options.extend(block.into_iter().flat_map(|block| ["--block".into(), block.to_owned()]));
                if op == "write" {
                    options.push("--overwrite".into());
                }
                bench(program, &options)?;
                progress.inc(1);
            }
            let url = server.url_of(&format!("tree-{version}-{}", transport.replace('=', "-")), tcp, &query);
            let back = scratch.join("back");
            let (tree, back) = (tree.display().to_string(), back.display().to_string());
            for command in [&["put", "-r", &tree, &url][..], &["ls", "-l", &url], &["get", "-r", &url, &back]] {
                client(program, command)?;
            }
            fs::remove_dir_all(&back)?;
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    server.end()
}

/// Runs a command of the client, and keeps what it prints to itself unless it fails.
fn client(program: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    let error = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(output.status.success(), "rpcrdma {}: {}", arguments.join(" "), error());
    Ok(())
}

/// Joins the counts of all processes.
fn join(profdata: &Path, counts: &Path, joined: &Path) -> anyhow::Result<()> {
    let raw = fs::read_dir(counts).with_context(|| counts.display().to_string())?;
    let raw = raw.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let raw: Vec<_> = raw.into_iter().filter(|path| path.extension().is_some_and(|end| end == "profraw")).collect();
    ensure!(!raw.is_empty(), "{}: no process has written its counts", counts.display());
    let status = Command::new(profdata).arg("merge").arg("-o").arg(joined).args(raw).status();
    let status = status.with_context(|| profdata.display().to_string())?;
    ensure!(
        status.success(),
        "{} merge: {status}; is it of the version of LLVM that `rustc -vV` prints?",
        profdata.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_profdata_learns_how_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let libraries = folder.path().join("lib").display().to_string();
        let error = of_rustup(&libraries).unwrap_err().to_string();
        assert!(error.contains("rustup component add llvm-tools") && error.contains("--llvm-profdata"), "{error}");
        let tool = folder.path().join("bin/llvm-profdata");
        fs::create_dir(tool.parent().unwrap()).unwrap();
        fs::write(&tool, []).unwrap();
        assert_eq!(of_rustup(&libraries).unwrap(), tool);
    }

    #[test]
    fn counts_that_nobody_wrote_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("another.file"), []).unwrap();
        let error = join(Path::new("llvm-profdata"), folder.path(), &folder.path().join("joined")).unwrap_err();
        assert!(error.to_string().ends_with("no process has written its counts"), "{error}");
    }

    #[test]
    fn rustc_names_the_host() {
        assert!(programs::host().unwrap().contains('-'));
    }
}
