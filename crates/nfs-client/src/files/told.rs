//! What calls are given and what they return, in no version's words.

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

/// Entries of a directory that came in one reply.
pub(crate) struct Page {
    pub(crate) entries: Vec<Entry>,
    pub(crate) verifier: Verifier,
    /// There are no more.
    pub(crate) end: bool,
}

/// How a file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// A file that exists is used as it is. Of these attributes it gets a size of 0; whether it gets others, servers
    /// decide.
    Unchecked(NewAttributes),
    /// It is an error if it exists.
    Guarded(NewAttributes),
    /// It is an error if it exists, unless a call with this verifier made it.
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

/// What was made: a directory, a link or a special file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its handle.
    pub file: Handle,
    /// Its attributes, if the server has sent them.
    pub attributes: Option<Attributes>,
}

/// A regular file that was made, or was there.
#[derive(Clone, Debug)]
pub struct CreatedFile {
    /// The open file.
    pub file: File,
    /// Its attributes, if the server has sent them.
    pub attributes: Option<Attributes>,
}

/// A value that a server returns with writes: if it changes, the server has restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verifier(pub [u8; 8]);

/// What a READ has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOk<D = Bytes> {
    /// The bytes, no more than were asked for.
    pub data: D,
    /// The file ends after them.
    pub end: bool,
}

/// What a WRITE has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOk {
    /// How many bytes the server took: one at least, if there were any.
    pub count: u32,
    /// How durable they are.
    pub committed: Stability,
    /// If a COMMIT returns a verifier that differs, the data are lost.
    pub verifier: Verifier,
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_octets: u64,
    /// Bytes free.
    pub free_octets: u64,
    /// Bytes that the caller may use.
    pub available_octets: u64,
    /// Files in all.
    pub total_files: u64,
    /// Files that can still be made.
    pub free_files: u64,
    /// Files that the caller can still make.
    pub available_files: u64,
}
