//! The id of a file: another file that takes the removed file's place gets another id.
//!
//! ```text
//! the first byte of an id is its kind:
//! 1  a handle of the kernel's, by which the kernel opens the file: its type (1 byte), its bytes
//! 2  inode number (8 bytes), birth time in seconds (8) and nanoseconds (4); the index says where
//! 3  a mount point: a hash (8 bytes) of its directory's id and its name
//! 4  a handle of the kernel's as proof alone, as in 1; the index says where
//! ```
//!
//! A handle of the kernel has the inode's generation beside its number: the kernel gives handles to all users, and
//! opens files by them for the superuser. Kind 2 is for file systems without handles; up to version 0.1 all ids in the
//! index were of this kind. Such ids still open their file, if it has a birth time. Without handles and birth times,
//! nothing distinguishes a file from another that has taken its inode number.

use super::sys::{self, KernelHandle};
use crate::FileId;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Statx, StatxFlags},
};

pub(super) const KERNEL: u8 = 1;
pub(super) const BORN: u8 = 2;
pub(super) const COVER: u8 = 3;
pub(super) const PROVEN: u8 = 4;

/// How files are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ids {
    /// By handles that the kernel opens for us.
    Kernel,
    /// By handles that the kernel makes.
    Proven,
    /// By inode number and birth time.
    Born,
    /// By inode number: a file that takes a removed file's place may be taken for it.
    Number,
}

impl Ids {
    /// The way that the file system of `root` offers, if the server cannot open files by handle.
    pub(super) fn without_opening(root: &OwnedFd, stat: &Statx) -> Self {
        if sys::name_to_handle(root.as_fd()).ok().and_then(|handle| handle_id(PROVEN, &handle)).is_some() {
            Self::Proven
        } else if has_birth(stat) {
            Self::Born
        } else {
            Self::Number
        }
    }

    /// The id of an open file.
    pub(super) fn of(self, fd: &OwnedFd, stat: &Statx) -> FileId {
        let kind = match self {
            Self::Kernel => KERNEL,
            Self::Proven => PROVEN,
            Self::Born | Self::Number => return born_id(stat),
        };
        let id = sys::name_to_handle(fd.as_fd()).ok().and_then(|handle| handle_id(kind, &handle));
        id.unwrap_or_else(|| born_id(stat))
    }

    /// Whether `id` names the open file whose id is `own`, perhaps in the form of an earlier version.
    pub(super) fn is(self, id: FileId, own: FileId, stat: &Statx) -> bool {
        // NFS3-FH-c
        own == id || self != Self::Number && has_birth(stat) && born_id(stat) == id
    }
}

fn has_birth(stat: &Statx) -> bool {
    StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME)
}

fn born_id(stat: &Statx) -> FileId {
    let mut octets = [BORN; 21];
    octets[1..9].copy_from_slice(&stat.stx_ino.to_be_bytes());
    octets[9..17].copy_from_slice(&stat.stx_btime.tv_sec.to_be_bytes());
    octets[17..21].copy_from_slice(&stat.stx_btime.tv_nsec.to_be_bytes());
    FileId::new(&octets).expect("21 bytes fit an id")
}

fn handle_id(kind: u8, handle: &KernelHandle) -> Option<FileId> {
    let mut octets = [kind; 2 + sys::MAX_OCTETS];
    octets[1] = u8::try_from(handle.kind).ok()?;
    octets.get_mut(2..2 + handle.len)?.copy_from_slice(&handle.octets[..handle.len]);
    FileId::new(&octets[..2 + handle.len])
}

/// The kernel's handle in an id.
pub(super) fn kernel_handle(id: FileId) -> Option<KernelHandle> {
    let [KERNEL, kind, rest @ ..] = id.as_slice() else { return None };
    let mut octets = [0; sys::MAX_OCTETS];
    octets.get_mut(..rest.len())?.copy_from_slice(rest);
    Some(KernelHandle { kind: (*kind).into(), len: rest.len(), octets })
}

/// Whether the index is needed to find the file.
pub(super) fn is_indexed(id: FileId) -> bool {
    matches!(id.as_slice().first(), Some(&(BORN | PROVEN)))
}

#[cfg(test)]
mod tests {
    use super::{super::attributes::stat, *};
    use std::fs::File;

    #[test]
    fn an_id_of_the_former_kind_counts_only_with_a_birth_time() {
        let fd: OwnedFd = File::open("/proc/self/exe").unwrap().into();
        let mut told = stat(&fd).unwrap();
        (told.stx_ino, told.stx_btime.tv_sec) = (7, 1_000_000);
        told.stx_mask |= StatxFlags::BTIME.bits();
        let former = born_id(&told);
        let own = FileId::new(&[PROVEN, 1, 9]).unwrap();
        assert!(Ids::Proven.is(own, own, &told) && Ids::Proven.is(former, own, &told));
        let mut other = told;
        other.stx_btime.tv_nsec ^= 1;
        assert!(!Ids::Proven.is(former, own, &other));
        told.stx_mask &= !StatxFlags::BTIME.bits();
        assert!(!Ids::Proven.is(former, own, &told), "the time says nothing");
        assert!(Ids::Proven.is(own, own, &told));
        assert!(Ids::Number.is(former, former, &told), "nothing better is to be had");
    }

    #[test]
    fn a_handle_of_the_kernel_survives_its_way_through_an_id() {
        let mut octets = [0; sys::MAX_OCTETS];
        octets[..3].copy_from_slice(&[7, 8, 9]);
        let handle = KernelHandle { kind: 129, len: 3, octets };
        let id = handle_id(KERNEL, &handle).unwrap();
        assert_eq!(kernel_handle(id), Some(handle));
        assert_eq!(kernel_handle(handle_id(PROVEN, &handle).unwrap()), None, "no one opens by that");
        assert!(is_indexed(handle_id(PROVEN, &handle).unwrap()) && !is_indexed(id));
        let whole = KernelHandle { len: sys::MAX_OCTETS, ..handle };
        assert_eq!(kernel_handle(handle_id(KERNEL, &whole).unwrap()), Some(whole));
        assert_eq!(handle_id(KERNEL, &KernelHandle { kind: 256, ..handle }), None);
    }
}
