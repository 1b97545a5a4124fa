//! What a caller may do with a file.

use crate::Caller;
use rpcrdma_nfs::attr::{Attributes, FileType};
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// Rights to a file, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// None.
    pub const NONE: Rights = Rights(0);
    /// To read a file, to list a directory.
    pub const READ: Rights = Rights(0x01);
    /// To look up names in a directory.
    pub const LOOKUP: Rights = Rights(0x02);
    /// To change what exists.
    pub const MODIFY: Rights = Rights(0x04);
    /// To write beyond the end, to add names.
    pub const EXTEND: Rights = Rights(0x08);
    /// To remove names from a directory.
    pub const DELETE: Rights = Rights(0x10);
    /// To execute a file.
    pub const EXECUTE: Rights = Rights(0x20);
    /// All of them.
    pub const ALL: Rights = Rights(0x3F);
    /// The rights that change something.
    pub const CHANGING: Rights = Rights(0x1C);

    /// The rights whose bits are set, as versions 3 and 4 of NFS number them. Bits beyond these are left out.
    pub fn from_bits(bits: u32) -> Self {
        Rights(bits as u8) & Self::ALL
    }

    /// The bits, as versions 3 and 4 of NFS number them.
    pub fn bits(self) -> u32 {
        self.0.into()
    }

    /// Whether it contains no right.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Whether it contains all rights of the other set.
    pub fn contains(self, other: Rights) -> bool {
        self & other == other
    }

    /// The rights that a file's permission bits give to a caller: the superuser has all, any other caller those of the
    /// owner, the group or the others.
    pub fn of_mode(attributes: &Attributes, caller: &Caller) -> Self {
        let is_directory = attributes.file_type == FileType::Directory;
        let bits = match caller {
            _ if caller.uid == 0 => 7,
            _ if caller.uid == attributes.uid => attributes.mode >> 6,
            _ if caller.is_in_group(attributes.gid) => attributes.mode >> 3,
            _ => attributes.mode,
        };
        let mut rights = Self::NONE;
        if bits & 4 != 0 {
            rights |= Self::READ;
        }
        if bits & 2 != 0 {
            rights |= Self::MODIFY | Self::EXTEND;
            if is_directory {
                rights |= Self::DELETE;
            }
        }
        if bits & 1 != 0 {
            rights |= if is_directory { Self::LOOKUP } else { Self::EXECUTE };
        }
        rights
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Rights {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl BitAnd for Rights {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for Rights {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0) & Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_gives_each_class_its_bits() {
        let mut file = Attributes::new(FileType::Regular, 1, 1);
        (file.mode, file.uid, file.gid) = (0o640, 7, 8);
        let of = |file: &Attributes, uid, gid| Rights::of_mode(file, &Caller::new(uid, gid));
        assert_eq!(of(&file, 7, 1), Rights::READ | Rights::MODIFY | Rights::EXTEND);
        assert_eq!(of(&file, 1, 8), Rights::READ);
        assert_eq!(of(&file, 1, 1), Rights::NONE);
        assert!(of(&file, 0, 0).contains(Rights::READ | Rights::EXTEND));
        file.file_type = FileType::Directory;
        file.mode = 0o703;
        assert_eq!(of(&file, 1, 1), !(Rights::READ | Rights::EXECUTE));
        assert_eq!(of(&file, 1, 8), Rights::NONE, "the group has fewer rights than the others");
        assert_eq!(Rights::from_bits(u32::MAX), Rights::ALL);
        assert_eq!(Rights::CHANGING, Rights::MODIFY | Rights::EXTEND | Rights::DELETE);
    }
}
