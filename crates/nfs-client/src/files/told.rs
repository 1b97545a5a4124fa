//! Arguments and results of calls, in a form that does not depend on the version.

use super::{File, Handle, Name, Place};
use bytes::Bytes;
use rpcrdma_nfs::attr::{Attributes, Device, NewAttributes, Stability};

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its handle.
    pub file: Handle,
    /// Its attributes.
    pub attributes: Attributes,
    /// The name by which it was found, if it was one.
    pub place: Option<Place>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the file system.
    pub file_id: u64,
    /// Its name. It shares the memory of the reply: copy it to keep it for long.
    pub name: Name,
    /// Its attributes, if the server has sent them.
    pub attributes: Option<Attributes>,
    /// Its handle, if the server has sent it.
    pub file: Option<Handle>,
    /// Where a listing goes on after it.
    pub(crate) cookie: u64,
}

/// The entries of a directory in one reply.
pub(crate) struct Page {
    pub(crate) entries: Vec<Entry>,
    pub(crate) verifier: Verifier,
    /// Whether there are no more.
    pub(crate) end: bool,
}

/// How to make a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Use an existing file as it is. If the attributes have a size of 0, it gets that; whether it gets others, each
    /// server decides.
    Unchecked(NewAttributes),
    /// Fail if the file exists.
    Guarded(NewAttributes),
    /// Fail if the file exists, unless a call with this verifier has made it.
    Exclusive(Verifier),
}

/// A file without contents.
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

/// A new directory, link or special file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its handle.
    pub file: Handle,
    /// Its attributes, if the server has sent them.
    pub attributes: Option<Attributes>,
}

/// A regular file that the call has made, or that existed.
#[derive(Clone, Debug)]
pub struct CreatedFile {
    /// The open file.
    pub file: File,
    /// Its attributes, if the server has sent them.
    pub attributes: Option<Attributes>,
}

/// A value that a server returns with writes: it changes when the server restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verifier(pub [u8; 8]);

/// The results of a READ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOk<D = Bytes> {
    /// The bytes, at most as many as the caller asked for.
    pub data: D,
    /// Whether the file ends after them.
    pub end: bool,
}

/// The results of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOk {
    /// How many bytes the server accepted: at least one, if there were any.
    pub count: u32,
    /// How durable these bytes are.
    pub committed: Stability,
    /// If a COMMIT returns another verifier, the data is lost.
    pub verifier: Verifier,
}

/// How much of a file system is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes that the caller may use.
    pub available_bytes: u64,
    /// Files in all.
    pub total_files: u64,
    /// Files that can still be made.
    pub free_files: u64,
    /// Files that the caller can still make.
    pub available_files: u64,
}
