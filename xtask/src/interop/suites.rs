//! Suites by other people that run in the guest: installed below the cache when a job first asks.

use super::image::Image;
use anyhow::{Context as _, bail};
use std::{
    fs::File,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The version of pjdfstest whose results stand in docs/suites.md.
const PJDFSTEST: &str = "0.2.2";

/// The program, built from crates.io. What it loads is in the guest: the same Debian's libraries.
pub(super) fn pjdfstest(image: &Image) -> anyhow::Result<PathBuf> {
    let cache = image.folder.parent().context("the guest's folder stands alone")?;
    let folder = cache.join(format!("pjdfstest-{PJDFSTEST}"));
    let program = folder.join("bin/pjdfstest");
    let lock = File::create(cache.join(".pjdfstest.lock"))?;
    lock.lock()?;
    if program.exists() {
        return Ok(program);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["install", "--quiet", "--locked", "--version", PJDFSTEST, "--root"])
        .arg(&folder)
        .arg("--target-dir")
        .arg(folder.join("build"))
        .args(["pjdfstest"])
        .stdout(Stdio::null())
        .status()
        .context("cargo")?;
    if !status.success() {
        bail!("pjdfstest could not be installed ({status}): what cargo said stands above");
    }
    let _ = std::fs::remove_dir_all(folder.join("build"));
    Ok(program)
}
