//! A description of the machine: what decides its speed, and nothing that identifies it.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// Of this network namespace.
pub(crate) const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// What network namespaces may use.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// The same, as sysctl names it.
pub(super) const ALLOWED_CONGESTION: &str = "net.ipv4.tcp_allowed_congestion_control";

/// A machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) is_virtual: bool,
    pub(crate) memory_gib: u64,
    pub(crate) system: String,
    /// Of the files that are served.
    pub(crate) file_system: String,
}

/// TCP's congestion control, which can change rates on loopback by a factor of two.
pub(crate) fn congestion() -> anyhow::Result<String> {
    Ok(fs::read_to_string(CONGESTION).context(CONGESTION)?.trim().to_owned())
}

/// The names of what a network namespace may use.
pub(super) fn allowed_congestion() -> anyhow::Result<String> {
    Ok(fs::read_to_string(ALLOWED).context(ALLOWED)?.trim().to_owned())
}

/// Where and for how long something was measured.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Conditions {
    pub(super) machine: Machine,
    pub(super) congestion: String,
    /// How long each measurement of a round took, in seconds.
    pub(super) seconds: f64,
}

impl Conditions {
    /// Here and now, with files of this directory.
    pub(super) fn here(directory: &Path, seconds: f64) -> anyhow::Result<Self> {
        Ok(Self { machine: Machine::this(directory), congestion: congestion()?, seconds })
    }
}

impl Machine {
    /// This machine, with the file system of `directory`, from which files are served.
    pub(crate) fn this(directory: &Path) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let uname = rustix::system::uname();
        let kind = rustix::fs::statfs(directory).map(|stat| stat.f_type).unwrap_or_default();
        Self {
            processor: value(&cpuinfo, "model name").unwrap_or("an unnamed processor").to_owned(),
            processors: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            is_virtual: value(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            memory_gib: gib(value(&memory, "MemTotal").unwrap_or_default()),
            system: format!("{} {}", uname.sysname().to_string_lossy(), version(&uname.release().to_string_lossy())),
            file_system: file_system(kind.into()).to_owned(),
        }
    }
}

impl Machine {
    /// The description without the file system, for measurements that use no files.
    pub(crate) fn hardware(&self) -> String {
        let Self { processor, processors, memory_gib, system, .. } = self;
        let kind = if self.is_virtual { " of a virtual machine" } else { "" };
        let s = if *processors == 1 { "" } else { "s" };
        format!("{processors} processor{s}{kind} ({processor}), {memory_gib} GiB, {system}")
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.hardware(), self.file_system)
    }
}

/// The value of a key in a file of lines `KEY : VALUE`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim())
}

/// GiB, to the nearest, from `N kB`.
fn gib(text: &str) -> u64 {
    let kib: u64 = text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default();
    kib.saturating_add(1 << 19) >> 20
}

/// The version's numbers, without what its builder added.
fn version(release: &str) -> &str {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    &release[..end]
}

/// The name of a file system, from the number that statfs(2) gives.
fn file_system(kind: i128) -> &'static str {
    match kind {
        0xEF53 => "ext4",
        0x5846_5342 => "XFS",
        0x9123_683E => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794C_7630 => "overlayfs",
        0x2FC1_2FC1 => "ZFS",
        _ => "another file system",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_by_what_makes_it_fast() {
        let machine = Machine {
            processor: "Some CPU @ 3 GHz".into(),
            processors: 2,
            is_virtual: true,
            memory_gib: 24,
            system: "Linux 6.12.9".into(),
            file_system: "ext4".into(),
        };
        let text = "2 processors of a virtual machine (Some CPU @ 3 GHz), 24 GiB, Linux 6.12.9, ext4";
        assert_eq!(machine.to_string(), text);
    }

    #[test]
    fn a_kernels_version_goes_without_its_builders_name() {
        assert_eq!(version("6.12.9-amd64-somebody"), "6.12.9");
        assert_eq!(version("6.12"), "6.12");
        assert_eq!(gib("24683044 kB"), 24);
        assert_eq!(value("model name\t: A B\nflags : x y", "flags"), Some("x y"));
    }
}
