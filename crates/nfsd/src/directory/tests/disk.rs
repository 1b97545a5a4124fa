//! Disks for one test, on loop devices: one that runs full beneath its file system, since its file lies on a small
//! tmpfs, and others with room and a chosen file system.
//!
//! If no disk can be made, a test says so and does nothing: without root, without loop devices, without the tool or the
//! kernel's module for a file system. Any other error fails the test.

use rustix::process::geteuid;
use std::{
    fs::{self as host, File},
    io::Write,
    path::PathBuf,
    process::Command,
};

/// The room beneath a disk that runs full, and the size that the file system above believes to have, in bytes.
const LOWER: &str = "size=48m";
const UPPER: u64 = 256 << 20;
/// The size of a disk with room: as little as all file systems take.
const ROOM: u64 = 512 << 20;
/// Errors that show that no disk can be made.
const MISSING: [&str; 3] = ["loop", "No such file or directory (os error 2)", "unknown filesystem type"];

/// The disk. Dropping it unmounts everything.
pub(super) struct Disk {
    scratch: tempfile::TempDir,
    mounted: Vec<PathBuf>,
}

fn run(command: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(command).args(args).output().map_err(|error| format!("{command}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command} {args:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

impl Disk {
    /// A disk that runs full, made by `mkfs.ext4` with `options`.
    pub(super) fn new(options: &[&str]) -> Option<Self> {
        let options = [&["-q", "-F", "-E", "lazy_itable_init=0"], options].concat();
        Self::made(|disk| {
            disk.mount(&["-t", "tmpfs", "-o", LOWER, "none"], "lower")?;
            disk.build("mkfs.ext4", &options, UPPER)
        })
    }

    /// A disk with room, made by `make` with `options`.
    pub(super) fn of(make: &str, options: &[&str]) -> Option<Self> {
        Self::made(|disk| disk.build(make, options, ROOM))
    }

    fn made(build: impl FnOnce(&mut Self) -> Result<(), String>) -> Option<Self> {
        if !geteuid().is_root() {
            eprintln!("not run: only root can mount a disk");
            return None;
        }
        let mut disk = Self { scratch: tempfile::tempdir().unwrap(), mounted: Vec::new() };
        host::create_dir(disk.path("lower")).unwrap();
        host::create_dir(disk.path("upper")).unwrap();
        match build(&mut disk) {
            Ok(()) => Some(disk),
            Err(reason) if MISSING.iter().any(|missing| reason.contains(missing)) => {
                eprintln!("not run: {reason}");
                None
            }
            Err(reason) => panic!("{reason}"),
        }
    }

    fn build(&mut self, make: &str, options: &[&str], octets: u64) -> Result<(), String> {
        let image = self.path("lower/image");
        let sized = File::create(&image).and_then(|file| file.set_len(octets));
        sized.map_err(|error| error.to_string())?;
        let image = image.display().to_string();
        run(make, &[options, &[image.as_str()]].concat())?;
        let how = if make == "mkfs.ext4" { "loop,errors=continue" } else { "loop" };
        self.mount(&["-o", how, &image], "upper")?;
        host::create_dir(self.served()).map_err(|error| error.to_string())
    }

    fn mount(&mut self, what: &[&str], at: &str) -> Result<(), String> {
        let at = self.path(at);
        run("mount", &[what, &[&at.display().to_string()]].concat())?;
        self.mounted.push(at);
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A directory on it.
    pub(super) fn served(&self) -> PathBuf {
        self.path("upper/served")
    }

    /// The small tmpfs beneath.
    pub(super) fn beneath(&self) -> PathBuf {
        self.path("lower")
    }

    /// A directory beside it, on a disk with room.
    pub(super) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Fills the tmpfs beneath.
    pub(super) fn fill(&self) {
        rustix::fs::sync();
        let mut filler = File::create(self.path("lower/filler")).unwrap();
        let block = vec![1; 1 << 16];
        while filler.write_all(&block).is_ok() {}
        while filler.write_all(&[1]).is_ok() {}
    }

    /// Frees that room again.
    pub(super) fn relieve(&self) {
        host::remove_file(self.path("lower/filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for mounted in self.mounted.iter().rev() {
            let _ = run("umount", &["-l", &mounted.display().to_string()]);
        }
    }
}
