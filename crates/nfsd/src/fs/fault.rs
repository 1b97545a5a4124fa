//! Why a file system could not do what it was asked: each protocol has a status for each cause.

use rpcrdma_nfs::attr::{Attributes, Change};
use std::fmt;

macro_rules! faults {
    ($($(#[$meta:meta])* $name:ident, $text:literal;)*) => {
        /// A cause of failure. Each protocol has one table from these causes to its statuses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[$meta])* $name,)*
        }

        impl Fault {
            /// All of them.
            #[cfg(test)]
            pub(crate) const ALL: [Fault; [$($text),*].len()] = [$(Fault::$name),*];
        }

        impl fmt::Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }
    };
}

faults! {
    /// Only the owner, or the superuser, may do this (EPERM).
    NotOwner, "not the owner";
    /// There is no such file or directory (ENOENT).
    NotFound, "no such file or directory";
    /// The storage has failed (EIO).
    Io, "input or output error";
    /// There is no such device (ENXIO).
    NoDevice, "no such device";
    /// The kernel has no driver for the device (ENODEV).
    NoDriver, "no driver for the device";
    /// The caller may not do this (EACCES).
    Denied, "permission denied";
    /// The name exists already (EEXIST).
    Exists, "it exists already";
    /// The two names are on different file systems (EXDEV).
    OtherFileSystem, "on another file system";
    /// It is not a directory (ENOTDIR).
    NotDirectory, "not a directory";
    /// It is a directory (EISDIR).
    IsDirectory, "is a directory";
    /// It is a symbolic link, where a file was wanted.
    IsSymlink, "is a symbolic link";
    /// It is neither a file nor a directory nor a symbolic link, where a file was wanted.
    IsSpecial, "is a special file";
    /// What was asked makes no sense (EINVAL).
    Invalid, "invalid argument";
    /// The file would be too large (EFBIG).
    TooLarge, "the file would be too large";
    /// No space is left (ENOSPC).
    NoSpace, "no space left";
    /// Nothing can be changed here (EROFS).
    ReadOnly, "the file system is read-only";
    /// The file already has the most links that it can have (EMLINK).
    TooManyLinks, "too many links";
    /// The name is too long (ENAMETOOLONG).
    NameTooLong, "the name is too long";
    /// The directory is not empty (ENOTEMPTY).
    NotEmpty, "the directory is not empty";
    /// The quota is used up (EDQUOT).
    Quota, "the quota is used up";
    /// The file no longer exists (ESTALE).
    Stale, "the file is gone";
    /// The id does not belong to this file system.
    BadId, "not a file of this file system";
    /// The file has changed since the time that was given as a guard.
    Changed, "the file has changed since";
    /// The position in the directory is no longer valid.
    BadCookie, "the directory position is no longer valid";
    /// The file system cannot do this (EOPNOTSUPP).
    Unsupported, "not supported";
    /// Files of this type cannot be made.
    BadType, "not a type of file here";
    /// The file has no extended attribute of this name (ENODATA).
    NoXattr, "no such extended attribute";
    /// The extended attribute is too large (E2BIG).
    XattrTooLarge, "the extended attribute is too large";
    /// Not now; the same call may succeed later.
    Later, "not available yet, try again later";
    /// The server itself has failed.
    Internal, "the server failed";
}

impl std::error::Error for Fault {}

/// Why an operation failed, and what it still returns: mostly attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<F> {
    /// The cause.
    pub fault: Fault,
    /// What it still returns.
    pub info: F,
}

impl<F> Failure<F> {
    /// The same failure, with other returned information.
    pub fn map<G>(self, info: impl FnOnce(F) -> G) -> Failure<G> {
        Failure { fault: self.fault, info: info(self.info) }
    }
}

/// A failure that returns nothing more.
pub fn failed<F: Default>(fault: Fault) -> Failure<F> {
    Failure { fault, info: F::default() }
}

/// The result of an operation that returns the attributes of one object on failure.
pub type Told<T> = Result<T, Failure<Option<Attributes>>>;
/// The result of an operation that changes one object.
pub type Changed<T> = Result<T, Failure<Change>>;
