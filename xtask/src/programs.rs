//! Builds the programs of this repository, as their users do, and starts them.

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// If it is set, programs that are built as tests are built come from one build of the whole workspace, as `cargo test
/// --workspace --all-features` makes it. Cargo builds a library anew for each set of its features: a package alone
/// needs fewer features than the workspace, so CI would compile most crates four times.
const WHOLE_BUILD: &str = "RPCRDMA_WHOLE_BUILD";

/// A program of a package.
#[derive(Clone, Copy)]
pub(crate) enum Program<'a> {
    /// Its only program.
    Only,
    /// A test program.
    Test(&'a str),
    /// An example.
    Example(&'a str),
}

/// Builds a package's program with optimisation, and returns its path.
pub(crate) fn release(root: &Path, package: &str) -> anyhow::Result<PathBuf> {
    let built =
        run_cargo(root, &["build", "--package", package, "--release"], &[]).with_context(|| package.to_owned())?;
    find(&built, package, Program::Only)
}

/// Builds a package's program with optimisation and one more flag of the compiler, in a target folder of its own. What
/// runs during the build, such as build scripts, is built without the flag.
pub(crate) fn release_with_flag(root: &Path, package: &str, flag: &str, target: &Path) -> anyhow::Result<PathBuf> {
    let (host, target) = (host()?, target.display().to_string());
    let arguments = ["build", "--package", package, "--release", "--target", &host, "--target-dir", &target];
    // In this form a flag may contain spaces, as a path may.
    let usual = std::env::var("RUSTFLAGS").unwrap_or_default();
    let flags: Vec<&str> = usual.split_whitespace().chain([flag]).collect();
    let environment = [("CARGO_ENCODED_RUSTFLAGS", &*flags.join("\x1f"))];
    let built = run_cargo(root, &arguments, &environment).with_context(|| package.to_owned())?;
    find(&built, package, Program::Only)
}

/// Fetches what builds of the workspace for this machine need, so that they need no network.
pub(crate) fn fetch(root: &Path) -> anyhow::Result<()> {
    let arguments = ["fetch", "--locked", "--target", &host()?];
    let status = cargo().args(arguments).current_dir(root).status().context("cargo fetch")?;
    ensure!(status.success(), "cargo fetch: {status}");
    Ok(())
}

/// The target for which rustc builds if none is named.
pub(crate) fn host() -> anyhow::Result<String> {
    let text = rustc(&["-vV"])?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say for which target it builds")
}

/// What rustc prints.
pub(crate) fn rustc(arguments: &[&str]) -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(arguments).stderr(Stdio::inherit()).output().context("rustc")?;
    ensure!(output.status.success(), "rustc {}: {}", arguments.join(" "), output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The same for an example.
pub(crate) fn release_example(root: &Path, package: &str, name: &str) -> anyhow::Result<PathBuf> {
    let arguments = ["build", "--package", package, "--release", "--example", name];
    let built = run_cargo(root, &arguments, &[]).with_context(|| name.to_owned())?;
    find(&built, package, Program::Example(name))
}

/// Builds a program as tests are built, and returns its path.
pub(crate) fn debug(root: &Path, package: &str, program: Program<'_>) -> anyhow::Result<PathBuf> {
    let mut arguments = match program {
        Program::Test(_) => vec!["test", "--no-run"],
        Program::Only | Program::Example(_) => vec!["build"],
    };
    if std::env::var_os(WHOLE_BUILD).is_some() {
        arguments.extend(["--workspace", "--all-features", "--all-targets"]);
    } else {
        arguments.extend(["--package", package]);
        match program {
            Program::Only => arguments.push("--bins"),
            Program::Test(name) => arguments.extend(["--test", name]),
            Program::Example(name) => arguments.extend(["--example", name]),
        }
    }
    let built = run_cargo(root, &arguments, &[]).with_context(|| package.to_owned())?;
    find(&built, package, program)
}

/// The cargo that runs this program, or else the usual one.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs cargo, and returns its message about each artifact that it has built.
fn run_cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<Vec<Value>> {
    let output = cargo()
        .args(arguments)
        .envs(environment.iter().copied())
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    if !output.status.success() {
        bail!("it does not build");
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    Ok(lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// The path of a program, from cargo's messages about what it has built.
fn find(built: &[Value], package: &str, program: Program<'_>) -> anyhow::Result<PathBuf> {
    let (kind, name) = match program {
        Program::Only => ("bin", None),
        Program::Test(name) => ("test", Some(name)),
        Program::Example(name) => ("example", Some(name)),
    };
    let is_wanted = |artifact: &&Value| {
        let id = artifact["package_id"].as_str().unwrap_or_default();
        let target = &artifact["target"];
        // The identity ends in "#NAME@VERSION", or in "/NAME#VERSION" where the folder has the package's name.
        (id.contains(&format!("#{package}@")) || id.contains(&format!("/{package}#")))
            && target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|found| found == kind))
            && name.is_none_or(|name| target["name"] == name)
            // The unit tests of a program are another program with the same name.
            && artifact["profile"]["test"] == (kind == "test")
    };
    let mut found = built.iter().filter(is_wanted).filter_map(|artifact| artifact["executable"].as_str());
    found.next().map(PathBuf::from).with_context(|| format!("cargo did not say where it put the program of {package}"))
}

/// Makes a directory for a server that may run as root: clients may not act as root, so everybody may write there.
pub(crate) fn exported(directory: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777))?;
    Ok(directory.to_owned())
}

/// A directory below `target`, so on the file system of the repository. Dropping the value removes it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(root: &Path, name: &str) -> anyhow::Result<Self> {
        Self::in_folder(&root.join("target"), name)
    }

    /// The same in another folder.
    pub(crate) fn in_folder(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let path = folder.join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}
