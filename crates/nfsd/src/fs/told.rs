//! Results of file system operations. They carry attributes if these cost nothing extra.

use crate::{FileId, Via};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::attr::{Attributes, Change, Device, NewAttributes, Stability, Time};

/// A file that was looked up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Found {
    /// The file.
    pub file: FileId,
    /// Its attributes.
    pub attributes: Option<Attributes>,
    /// The directory's attributes.
    pub directory: Option<Attributes>,
}

impl Found {
    /// A file, with its attributes and those of its directory if they are known.
    pub fn new(file: FileId, attributes: Option<Attributes>, directory: Option<Attributes>) -> Self {
        Self { file, attributes, directory }
    }
}

/// One of several reads: the arguments of [`FileSystem::read`](crate::FileSystem::read).
#[derive(Debug)]
pub struct Reading {
    /// Which file, for whom.
    pub via: Via,
    /// From where.
    pub offset: u64,
    /// How many bytes at most.
    pub count: usize,
    /// The buffer for the bytes.
    pub buffer: Buffer,
}

/// The result of a read.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReadData {
    /// The buffer of the call; its length is the number of bytes read.
    pub buffer: Buffer,
    /// Whether the last byte is the last of the file.
    pub end: bool,
    /// The file's attributes after the read.
    pub attributes: Option<Attributes>,
}

impl ReadData {
    /// The bytes, whether they end at the file's end, and the file's attributes if known.
    pub fn new(buffer: Buffer, end: bool, attributes: Option<Attributes>) -> Self {
        Self { buffer, end, attributes }
    }

    /// Copies the wanted part of bytes that are all in memory into the buffer: for file systems that need no more.
    ///
    /// ```
    /// # use rpcrdma_env::Buffer;
    /// # use rpcrdma_nfsd::ReadData;
    /// let read = ReadData::of(b"hello", 1, 3, Buffer::from_vec(vec![0; 3]), None);
    /// assert_eq!((read.buffer.filled(), read.end), (&b"ell"[..], false));
    /// ```
    pub fn of(octets: &[u8], offset: u64, count: usize, mut buffer: Buffer, attributes: Option<Attributes>) -> Self {
        let rest = usize::try_from(offset).ok().and_then(|offset| octets.get(offset..)).unwrap_or_default();
        let len = rest.len().min(count).min(buffer.capacity());
        buffer.bytes_mut()[..len].copy_from_slice(&rest[..len]);
        buffer.set_len(len);
        Self { buffer, end: len == rest.len(), attributes }
    }
}

/// The result of a write.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Written {
    /// How many bytes.
    pub count: usize,
    /// How durable they are.
    pub committed: Stability,
    /// The file before and after.
    pub file: Change,
}

impl Written {
    /// How many bytes were written, how durably, and how the file has changed.
    pub fn new(count: usize, committed: Stability, file: Change) -> Self {
        Self { count, committed, file }
    }
}

/// An object to make.
#[derive(Clone, Debug)]
pub enum New {
    /// A regular file.
    File(CreateHow),
    /// A directory.
    Directory(NewAttributes),
    /// A symbolic link to a path of any bytes.
    Symlink(NewAttributes, Bytes),
    /// A special file.
    Node(NodeKind, NewAttributes),
}

/// How to make a file if its name may already exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Use an existing file as it is; set its size if a size is given.
    Unchecked(NewAttributes),
    /// Fail if the name exists.
    Guarded(NewAttributes),
    /// Fail if the name exists, unless a call with this verifier has made the file: then this call is a retransmission.
    /// Times are not set, since the file system may keep the verifier in them.
    Exclusive([u8; 8], NewAttributes),
}

/// A special file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A block device.
    Block(Device),
    /// A character device.
    Character(Device),
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
}

/// The result of making an object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Made {
    /// The new file.
    pub file: FileId,
    /// Its attributes.
    pub attributes: Option<Attributes>,
    /// The directory before and after.
    pub directory: Change,
    /// Whether this call has made it; false if it was there before.
    pub is_new: bool,
}

impl Made {
    /// A file that was not there before.
    pub fn new(file: FileId, attributes: Option<Attributes>, directory: Change) -> Self {
        Self { file, attributes, directory, is_new: true }
    }
}

/// How a change of names has changed two directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renamed {
    /// The first directory before and after.
    pub from_directory: Change,
    /// The second directory before and after.
    pub to_directory: Change,
}

/// The result of adding a further name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// The file's attributes.
    pub attributes: Option<Attributes>,
    /// The directory before and after.
    pub directory: Change,
}

/// How much of a file system is used, in bytes and numbers of files.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes free for ordinary users.
    pub available_bytes: u64,
    /// Files in all.
    pub total_files: u64,
    /// Files that can still be made.
    pub free_files: u64,
}

impl Usage {
    /// Total and free bytes, equal for every user; and the same for files.
    pub fn new(octets: (u64, u64), files: (u64, u64)) -> Self {
        Self {
            total_bytes: octets.0,
            free_bytes: octets.1,
            available_bytes: octets.1,
            total_files: files.0,
            free_files: files.1,
        }
    }
}

/// What a file system can do.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Features {
    /// The largest file, in bytes.
    pub max_file_bytes: u64,
    /// The precision of times.
    pub time_precision: Time,
    /// The most hard links to a file.
    pub max_links: u32,
    /// The longest name, in bytes.
    pub max_name_bytes: u32,
    /// The unit in which ranges can be cloned, in bytes; `None` if the file system cannot clone.
    pub clone_bytes: Option<u32>,
    /// Whether access control lists can say more than a mode.
    pub acls: bool,
    /// Whether files and directories have extended attributes.
    pub xattrs: bool,
}

impl Default for Features {
    /// Files of up to 2^63 - 1 bytes, nanoseconds, one link, names of 255 bytes; no clones, no lists beyond the mode,
    /// and no extended attributes.
    fn default() -> Self {
        Self {
            max_file_bytes: i64::MAX as u64,
            time_precision: Time { seconds: 0, nanoseconds: 1 },
            max_links: 1,
            max_name_bytes: 255,
            clone_bytes: None,
            acls: false,
            xattrs: false,
        }
    }
}
