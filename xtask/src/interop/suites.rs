//! Test suites of other projects that run in the guest: installed below the cache when a job first needs them.

use super::image::Image;
use anyhow::{Context as _, bail};
use std::{
    ffi::OsString,
    fs::{self, File},
    path::PathBuf,
    process::{Command, Stdio},
};

/// The version of pjdfstest whose results stand in docs/suites.md.
const PJDFSTEST: &str = "0.2.2";

/// The version of the crate `fsx`.
const FSX: &str = "0.3.2";

/// The commit of cthon04 whose results stand in docs/suites.md, and the address of its repository.
const CTHON_COMMIT: &str = "1768ae24d6e1dd19645911df70d1f0398a1b3b93";
pub(super) const CTHON_ADDRESS: &str = "https://github.com/dkruchinin/cthon-nfs-tests";

/// Names a copy of that repository, for a machine that cannot reach the address.
pub(super) const CTHON_VARIABLE: &str = "RPCRDMA_CTHON";

/// The lock tests of cthon04, as `tests.init` builds them for Linux: their names, and the options for the compiler.
const CTHON_LOCKS: [(&str, &[&str]); 2] =
    [("tlocklfs", &["-DLF_SUMMIT"]), ("tlock64", &["-DLF_SUMMIT", "-DLARGE_LOCKS"])];

pub(super) fn pjdfstest(image: &Image) -> anyhow::Result<PathBuf> {
    from_crate(image, "pjdfstest", PJDFSTEST)
}

/// Another project's exerciser of one file; ours is `xtask fsx`.
pub(super) fn fsx(image: &Image) -> anyhow::Result<PathBuf> {
    from_crate(image, "fsx", FSX)
}

/// Builds a program with the name of its crate, from crates.io. The guest has the libraries that it loads, because both
/// are the same Debian.
fn from_crate(image: &Image, name: &str, version: &str) -> anyhow::Result<PathBuf> {
    let cache = image.folder.parent().context("the guest's folder stands alone")?;
    let folder = cache.join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    let lock = File::create(cache.join(format!(".{name}.lock")))?;
    lock.lock()?;
    if program.exists() {
        return Ok(program);
    }
    let status = crate::programs::cargo()
        .args(["install", "--quiet", "--locked", "--version", version, "--root"])
        .arg(&folder)
        .arg("--target-dir")
        .arg(folder.join("build"))
        .arg(name)
        .stdout(Stdio::null())
        .status()
        .context("cargo")?;
    if !status.success() {
        bail!("{name} could not be installed ({status}): what cargo said stands above");
    }
    let _ = fs::remove_dir_all(folder.join("build"));
    Ok(program)
}

/// Where cthon04 comes from.
fn cthon_origin() -> OsString {
    std::env::var_os(CTHON_VARIABLE).unwrap_or_else(|| CTHON_ADDRESS.into())
}

/// The folder and the paths of cthon04's lock tests, which need not exist yet.
fn cthon_programs(image: &Image) -> anyhow::Result<(PathBuf, Vec<PathBuf>)> {
    let cache = image.folder.parent().context("the guest's folder stands alone")?;
    let folder = cache.join(format!("cthon04-{}", &CTHON_COMMIT[..7]));
    let programs = CTHON_LOCKS.iter().map(|(name, _)| folder.join(name)).collect();
    Ok((folder, programs))
}

/// Whether cthon04 is in the cache, or can be fetched. We may not distribute copies, and not every machine reaches
/// GitHub.
pub(super) fn has_cthon(image: &Image) -> anyhow::Result<bool> {
    let (_, programs) = cthon_programs(image)?;
    if programs.iter().all(|program| program.exists()) {
        return Ok(true);
    }
    let mut asking = Command::new("timeout");
    asking.args(["60", "git", "ls-remote", "--quiet"]).arg(cthon_origin()).arg("HEAD");
    asking.env("GIT_TERMINAL_PROMPT", "0").stdout(Stdio::null());
    Ok(asking.status().context("git")?.success())
}

/// Builds the lock tests of cthon04 from source; they need nothing of the guest. Their licence forbids copies, so this
/// repository has none.
pub(super) fn cthon_locks(image: &Image) -> anyhow::Result<Vec<PathBuf>> {
    let (folder, programs) = cthon_programs(image)?;
    let lock = File::create(folder.with_file_name(".cthon04.lock"))?;
    lock.lock()?;
    if programs.iter().all(|program| program.exists()) {
        return Ok(programs);
    }
    fs::create_dir_all(&folder)?;
    let source = folder.join("source");
    let from = cthon_origin();
    let _ = fs::remove_dir_all(&source);
    let run = |command: &mut Command| {
        let status = command.stdout(Stdio::null()).status().with_context(|| format!("{command:?}"))?;
        if !status.success() {
            bail!("{command:?} ended with {status}: what it said stands above");
        }
        Ok(())
    };
    run(Command::new("git").args(["clone", "--quiet", "--no-checkout"]).arg(&from).arg(&source)).with_context(
        || format!("cthon04 cannot be had from {from:?}; {CTHON_VARIABLE} names a copy of {CTHON_ADDRESS}"),
    )?;
    run(Command::new("git").arg("-C").arg(&source).args(["checkout", "--quiet", CTHON_COMMIT]))?;
    for ((_, options), program) in CTHON_LOCKS.iter().zip(&programs) {
        let mut compiler = Command::new("gcc");
        compiler.args(["-w", "-O1", "-static", "-DLINUX", "-DHAVE_SOCKLEN_T", "-DGLIBC=22", "-DMMAP", "-DSTDARG"]);
        compiler.args(["-fno-strict-aliasing"]).args(*options).arg("-o").arg(program);
        run(compiler.arg(source.join("lock/tlock.c")).arg("-lm"))?;
    }
    let _ = fs::remove_dir_all(source);
    Ok(programs)
}
