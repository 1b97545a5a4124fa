//! File attributes that do not depend on a version of NFS: those that a file system has. Each version converts them
//! from and to its own.
//!
//! Times are signed 64-bit seconds. Version 3 has unsigned 32-bit ones: a time outside 1970 to 2106 becomes the nearest
//! that it can express.

mod acl;

pub use acl::{Acls, Asker, EXECUTE, MAX_NAMED, PosixAcl, READ, WRITE};

use std::{sync::Arc, time::Duration};

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A block device.
    Block,
    /// A character device.
    Character,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
}

/// A time since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanoseconds: u32,
}

impl Time {
    /// A time.
    pub fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self { seconds, nanoseconds }
    }

    /// Nanoseconds since 1970, modulo 2^64: a change number, for file systems that have no other.
    pub fn as_change(self) -> u64 {
        (self.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(self.nanoseconds.into())
    }
}

impl From<Duration> for Time {
    /// The time that is this long after 1970.
    fn from(since_1970: Duration) -> Self {
        let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
        Self { seconds, nanoseconds: since_1970.subsec_nanos() }
    }
}

/// The device of a special file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The attributes of a file.
///
/// ```
/// use rpcrdma_nfs::attr::{Attributes, FileType};
/// let mut attributes = Attributes::new(FileType::Regular, 7, 42);
/// attributes.mode = 0o644;
/// attributes.size = 1000;
/// assert_eq!((attributes.links, attributes.file_system, attributes.file_id), (1, 7, 42));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// The type of the file.
    pub file_type: FileType,
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage in use.
    pub used: u64,
    /// The device, if the file is one.
    pub device: Device,
    /// Identifies the file system.
    pub file_system: u64,
    /// Identifies the file in it: the inode number.
    pub file_id: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of the contents.
    pub modified: Time,
    /// Last change of the attributes.
    pub changed: Time,
    /// When it was made, if the file system knows.
    pub created: Option<Time>,
    /// Differs after each change of contents or attributes.
    pub change: u64,
    /// The names that a server sent in place of numbers: `uid` or `gid` is then that of nobody.
    pub named: Option<Arc<Named>>,
}

/// The owner and the group of a file, each if a server sends it by name, such as `anna@example.com`. The server chooses
/// the name, which may be any bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The owner.
    pub owner: Option<Box<[u8]>>,
    /// The group.
    pub group: Option<Box<[u8]>>,
}

/// A user or group as a server sends it: everything that distinguishes it from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// By number.
    Number(u32),
    /// By name.
    Name(Box<[u8]>),
}

impl Attributes {
    /// The attributes of an empty file with one link and no permissions, owned by the superuser, with all times at
    /// 1970.
    pub fn new(file_type: FileType, file_system: u64, file_id: u64) -> Self {
        Self {
            file_type,
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: Device::default(),
            file_system,
            file_id,
            accessed: Time::default(),
            modified: Time::default(),
            changed: Time::default(),
            created: None,
            change: 0,
            named: None,
        }
    }

    /// The owner.
    pub fn owner(&self) -> Who {
        let name = self.named.as_ref().and_then(|named| named.owner.clone());
        name.map_or(Who::Number(self.uid), Who::Name)
    }

    /// The group.
    pub fn group(&self) -> Who {
        let name = self.named.as_ref().and_then(|named| named.group.clone());
        name.map_or(Who::Number(self.gid), Who::Name)
    }

    /// The part of them that shows a change by another program.
    pub fn before(&self) -> Before {
        Before { size: self.size, modified: self.modified, changed: self.changed, change: self.change }
    }
}

/// The attributes of a file before an operation: comparing them shows whether another program has changed the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the contents.
    pub modified: Time,
    /// Last change of the attributes.
    pub changed: Time,
    /// The change number.
    pub change: u64,
}

/// A file before and after an operation that changes it, each if known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub before: Option<Before>,
    /// After.
    pub after: Option<Attributes>,
}

/// Attributes to set; absent ones stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Permission bits that a new file does not get, though `mode` has them: the mask of its creator. A directory's
    /// default access control list counts in its place. It does not affect a file that exists.
    pub umask: u32,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: cuts the file or extends it with a hole.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: SetTime,
    /// Last change of the contents.
    pub modified: SetTime,
}

/// How to set a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Unchanged.
    #[default]
    Keep,
    /// To the server's present time.
    Server,
    /// To this time.
    Client(Time),
}

/// How durable a write is, or must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// In memory: a COMMIT makes it durable.
    Unstable,
    /// The data and what is needed to read it are durable.
    DataSync,
    /// Data and all attributes are durable.
    FileSync,
}
