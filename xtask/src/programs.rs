//! The programs of this repository: built as their users do, and started.

use anyhow::{Context as _, bail};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Builds a package's program with optimisation, and says where it is.
pub(crate) fn release(root: &Path, package: &str) -> anyhow::Result<PathBuf> {
    build(root, package, &["--release"])
}

/// The same as tests are built.
pub(crate) fn debug(root: &Path, package: &str) -> anyhow::Result<PathBuf> {
    build(root, package, &[])
}

fn build(root: &Path, package: &str, more: &[&str]) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--package", package, "--message-format", "json-render-diagnostics"])
        .args(more)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    if !output.status.success() {
        bail!("{package} does not build");
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let values = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = values.filter_map(|value| value["executable"].as_str().map(PathBuf::from));
    programs.next_back().with_context(|| format!("cargo did not say where it put the program of {package}"))
}

/// A directory below `target` that goes when it is dropped: on the file system of the repository.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(root: &Path, name: &str) -> anyhow::Result<Self> {
        Self::in_folder(&root.join("target"), name)
    }

    /// The same elsewhere.
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
