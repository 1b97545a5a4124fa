//! Where directories lie in their file systems, whatever they are mounted as: a bind mount shows a part of a directory
//! under a path that does not begin with that directory's.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// Mounts of this process, a line each (proc_pid_mountinfo(5)).
const MOUNTS: &str = "/proc/self/mountinfo";

/// A directory's place: its file system, and its path from that file system's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    device: String,
    path: PathBuf,
}

impl Location {
    /// The mount of a path without symbolic links, as [`Path::canonicalize`] returns it. `None` if it is unknown:
    /// without `/proc`, or if the root directory is not a mount, as for a process in a `chroot`.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        Self::by(&std::fs::read(MOUNTS).ok()?, path)
    }

    /// Whether this is that place, or lies below it.
    pub(crate) fn is_in(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }

    fn by(mounts: &[u8], path: &Path) -> Option<Self> {
        let mut found: Option<(PathBuf, Self)> = None;
        for line in mounts.split(|&octet| octet == b'\n') {
            let mut fields = line.split(|&octet| octet == b' ').skip(2);
            let (Some(device), Some(root), Some(point)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let point = unescaped(point);
            let Ok(below) = path.strip_prefix(&point) else { continue };
            // Of two mounts at one point the later one covers the other.
            if found.as_ref().is_none_or(|(longest, _)| point.starts_with(longest)) {
                let path = if below.as_os_str().is_empty() { unescaped(root) } else { unescaped(root).join(below) };
                let device = String::from_utf8_lossy(device).into_owned();
                found = Some((point, Self { device, path }));
            }
        }
        found.map(|(_, location)| location)
    }
}

/// A path in which blanks, tabs, line ends and backslashes are written as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\');
        let value = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(value.unwrap_or(*first));
        rest = if value.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    const SAMPLE: &[u8] = b"22 1 254:1 / / rw - ext4 /dev/vda1 rw\n\
        30 22 0:40 / /srv rw - tmpfs none rw\n\
        31 22 0:40 /data/in\\040part /mnt/part rw - tmpfs none rw\n\
        32 22 0:41 / /srv rw - tmpfs none rw\n\
        broken\n";

    fn at(path: &str) -> Location {
        Location::by(SAMPLE, Path::new(path)).unwrap()
    }

    #[test]
    fn the_innermost_and_latest_mount_says_where_a_path_lies() {
        let location = |device: &str, path: &str| Location { device: device.into(), path: path.into() };
        assert_eq!(at("/"), location("254:1", "/"));
        assert_eq!(at("/srvx/a"), location("254:1", "/srvx/a"));
        assert_eq!(at("/srv/a"), location("0:41", "/a"));
        assert_eq!(at("/mnt/part"), location("0:40", "/data/in part"));
        assert_eq!(at("/mnt/part/a"), location("0:40", "/data/in part/a"));
        let served = location("0:40", "/data");
        assert!(at("/mnt/part/a").is_in(&served) && served.is_in(&served));
        assert!(!at("/mnt").is_in(&served) && !at("/srv/data").is_in(&served));
        assert!(!location("0:40", "/data-2").is_in(&served));
        assert!(Location::by(b"", Path::new("/")).is_none());
    }

    #[test]
    fn this_machine_s_mounts_can_be_read() {
        assert_eq!(Location::of(Path::new("/proc")).unwrap().path, Path::new("/"));
        assert_eq!(unescaped(b"a\\134b\\9\\04").as_os_str().as_bytes(), b"a\\b\\9\\04");
    }
}
