//! The guest's kernel and initramfs, made by `xtask/interop/build-guest.sh` and kept in the cache.

use anyhow::{Context as _, bail};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Where the cache is, if not in `target/interop/cache`.
const CACHE_VARIABLE: &str = "RPCRDMA_INTEROP_CACHE";

/// A guest that can be booted.
pub(super) struct Image {
    /// Such as `6.12.117+deb12`.
    pub(super) version: String,
    /// Holds `vmlinuz`, `initramfs.cpio` and what else is kept for this kernel.
    pub(super) folder: PathBuf,
}

impl Image {
    /// The capture of two Linux kernels with which jobs compare their own captures.
    pub(super) fn reference(&self) -> PathBuf {
        self.folder.join("linux-linux.pcap")
    }
}

/// Makes the guest, or finds it in the cache.
pub(super) fn provide(root: &Path, kernel: &str) -> anyhow::Result<Image> {
    let cache = std::env::var_os(CACHE_VARIABLE).map_or_else(|| root.join("target/interop/cache"), PathBuf::from);
    let script = root.join("xtask/interop/build-guest.sh");
    let output = Command::new("bash")
        .arg(&script)
        .arg(&cache)
        .arg(kernel)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| script.display().to_string())?;
    if !output.status.success() {
        bail!("the guest could not be made ({}): what it said stands above", script.display());
    }
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let version = name.strip_prefix("linux-").context("the guest's folder has an unexpected name")?.to_owned();
    Ok(Image { version, folder })
}
