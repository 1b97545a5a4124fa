//! This machine: where the repository is, which packages it lacks, and the program under judgement.
//!
//! Root installs missing packages; for other users an error names the command. No service starts: the packages are
//! tools only. What the guest needs is unpacked below the cache and not installed.

use crate::programs::{self, Program};
use anyhow::{Context as _, bail};
use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::Command,
};

/// Debian's packages that the harness needs here, and what for.
const PACKAGES: &[(&str, &str)] = &[
    ("qemu-system-x86", "runs the guest"),
    ("tshark", "reads the captures"),
    ("gcc", "builds siw"),
    ("make", "builds siw"),
    ("libc6-dev", "builds siw"),
    ("libelf1", "a tool of the kernel's build needs it"),
    ("binutils", "finds the libraries of the guest's programs"),
    ("kmod", "finds the kernel's modules"),
    ("xz-utils", "unpacks modules and siw's source"),
    ("cpio", "packs the guest"),
    ("util-linux", "flock"),
    ("xfsprogs", "makes a file system in which files share blocks"),
    ("krb5-kdc", "Kerberos: the KDC of a job's own realm"),
    ("krb5-admin-server", "Kerberos: makes the realm's principals"),
    ("krb5-user", "Kerberos: gets tickets for our client"),
    ("iproute2", "network namespaces, for hosts that vanish and guests with addresses of their own"),
];

/// The repository's root.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Whether this runs as root.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes sure that all packages are installed, or fails and says how to install them.
pub(super) fn provide_packages() -> anyhow::Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("the guest is made from this machine's packages and compiler: an x86-64 machine is needed");
    }
    let output = Command::new("dpkg-query").args(["-W", "-f=${Package} ${db:Status-Status}\n"]).output();
    let output = output.with_context(|| {
        format!(
            "this machine has no dpkg: the harness needs a Debian-like one, with {}",
            names(PACKAGES.iter()).join(" ")
        )
    })?;
    let missing = missing(&String::from_utf8_lossy(&output.stdout));
    if missing.is_empty() {
        return Ok(());
    }
    let line = format!("apt-get install --no-install-recommends {}", missing.join(" "));
    if !is_root() {
        bail!("missing packages; as root: {line}");
    }
    eprintln!("installing {}", missing.join(" "));
    // An old list of packages may name files that no longer exist.
    let _ = apt(&["update"]);
    let mut install = vec!["install", "--no-install-recommends"];
    install.extend(missing);
    apt(&install).with_context(|| format!("could not install what is missing: {line}"))
}

fn apt(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("apt-get")
        .args(["-y", "-q", "-o", "DPkg::Lock::Timeout=600"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Which of [`PACKAGES`] are not installed, according to dpkg's `NAME STATE` lines.
fn missing(installed: &str) -> Vec<&'static str> {
    let has = |name: &str| {
        installed
            .lines()
            .any(|line| line.split_once(' ').is_some_and(|(found, state)| found == name && state == "installed"))
    };
    names(PACKAGES.iter().filter(|(name, _)| !has(name)))
}

fn names<'a>(packages: impl Iterator<Item = &'a (&'static str, &'static str)>) -> Vec<&'static str> {
    packages.map(|(name, _)| *name).collect()
}

/// Builds the `rpcrdma` command as `cargo build` does, and returns its path.
pub(super) fn build_program(root: &Path) -> anyhow::Result<PathBuf> {
    programs::debug(root, "rpcrdma-cli", Program::Only).context("the rpcrdma command")
}

/// Builds the tests that must pass over every RDMA device (the provider suite, and NFS against a model), and returns
/// their paths.
pub(super) fn build_device_tests(root: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let test = |package, name| {
        programs::debug(root, package, Program::Test(name)).with_context(|| format!("the test program {name}"))
    };
    Ok([test("rpcrdma-verbs", "suite")?, test("rpcrdma-tests", "nfs_over_verbs")?])
}

/// Builds the program that keeps delegations until they are recalled, and returns its path.
pub(super) fn build_delegated(root: &Path) -> anyhow::Result<PathBuf> {
    programs::debug(root, "rpcrdma-tests", Program::Example("delegated")).context("the example delegated")
}

/// A random seed, for a run without `--seed`.
pub(super) fn new_seed() -> u64 {
    let mut octets = [0; 4];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut octets));
    if read.is_err() {
        octets = std::process::id().to_le_bytes();
    }
    u64::from(u32::from_le_bytes(octets))
}

#[cfg(test)]
mod tests {
    use super::{PACKAGES, missing};

    #[test]
    fn a_fresh_machine_lacks_everything() {
        assert_eq!(missing("").len(), PACKAGES.len());
    }

    #[test]
    fn installed_counts_and_removed_does_not() {
        let found = missing("gcc installed\nmake config-files\nmake-doc installed\n");
        assert!(!found.contains(&"gcc"));
        assert!(found.contains(&"make"));
    }
}
