//! A disk that runs full beneath its file system: ext4 on a loop device whose file lies on a small tmpfs.

use rustix::process::geteuid;
use std::{
    fs::{self as host, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// The room beneath, in MiB, and what the file system above believes to have.
const LOWER: &str = "size=48m";
const UPPER: &str = "256M";

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
    /// Makes the disk by `mkfs.ext4` with `options`. `None`, with the reason on standard error, where that cannot be done.
    pub(super) fn new(options: &[&str]) -> Option<Self> {
        if !geteuid().is_root() {
            eprintln!("not run: only root can mount a disk");
            return None;
        }
        let mut disk = Self { scratch: tempfile::tempdir().unwrap(), mounted: Vec::new() };
        match disk.build(options) {
            Ok(()) => Some(disk),
            Err(reason) if reason.contains("loop") => {
                eprintln!("not run: no loop devices here: {reason}");
                None
            }
            Err(reason) => panic!("{reason}"),
        }
    }

    fn build(&mut self, options: &[&str]) -> Result<(), String> {
        let (lower, upper) = (self.path("lower"), self.path("upper"));
        host::create_dir(&lower).and_then(|()| host::create_dir(&upper)).map_err(|error| error.to_string())?;
        let text = |path: &Path| path.display().to_string();
        run("mount", &["-t", "tmpfs", "-o", LOWER, "none", &text(&lower)])?;
        self.mounted.push(lower.clone());
        let image = text(&lower.join("image"));
        let mut args = vec!["-q", "-F", "-E", "lazy_itable_init=0"];
        args.extend(options);
        args.extend([image.as_str(), UPPER]);
        run("mkfs.ext4", &args)?;
        run("mount", &["-o", "loop,errors=continue", &image, &text(&upper)])?;
        self.mounted.push(upper.clone());
        host::create_dir(upper.join("served")).map_err(|error| error.to_string())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A directory on it.
    pub(super) fn served(&self) -> PathBuf {
        self.path("upper/served")
    }

    /// The small file system beneath.
    pub(super) fn beneath(&self) -> PathBuf {
        self.path("lower")
    }

    /// A directory beside it, on a disk with room.
    pub(super) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Takes all the room that is left beneath.
    pub(super) fn fill(&self) {
        rustix::fs::sync();
        let mut filler = File::create(self.path("lower/filler")).unwrap();
        let block = vec![1; 1 << 16];
        while filler.write_all(&block).is_ok() {}
        while filler.write_all(&[1]).is_ok() {}
    }

    /// Gives it back.
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
