//! MOUNT versions 1 to 3 (RFC 1094 appendix A, RFC 1813 appendix I): finding the root of an export.
//!
//! It has no binding to RPC-over-RDMA and travels over TCP (RFC 8267 section 4).

use crate::v3::Handle;
use bytes::Bytes;
use rpcrdma_oncrpc::ReplyShape;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::fmt;

/// The program number of MOUNT.
pub const PROGRAM: u32 = 100_005;
/// The version that goes with NFS version 3.
pub const VERSION_3: u32 = 3;
/// The version that goes with NFS version 2; lists of exports and mounts are the same.
pub const VERSION_1: u32 = 1;
/// As version 1, with a procedure for limits of names that no RFC describes and that is not served.
pub const VERSION_2: u32 = 2;
/// The longest path, in octets (`MNTPATHLEN`).
pub const MAX_PATH_BYTES: usize = 1024;
/// The longest host or group name, in octets (`MNTNAMLEN`).
pub const MAX_NAME_BYTES: usize = 255;
/// The most authentication flavours that are read from a reply.
const MAX_FLAVORS: usize = 32;
/// The fixed number of octets of a file handle of version 1.
pub const VERSION_1_HANDLE_BYTES: usize = 32;
/// The largest list of exports or mounts that a client takes, in octets.
const MAX_LIST_BYTES: usize = 1 << 20;

/// Procedures by number.
pub mod procedure {
    /// Does nothing.
    pub const NULL: u32 = 0;
    /// Asks for the handle of a path and enters the caller in the list of mounts.
    pub const MOUNT: u32 = 1;
    /// Asks for the list of mounts.
    pub const DUMP: u32 = 2;
    /// Takes the caller's mount of a path from the list.
    pub const UNMOUNT: u32 = 3;
    /// Takes all of the caller's mounts from the list.
    pub const UNMOUNT_ALL: u32 = 4;
    /// Asks for the list of exports.
    pub const EXPORT: u32 = 5;
    /// The same by another name, in versions 1 and 2 alone.
    pub const EXPORT_ALL: u32 = 6;

    /// The names that the protocol gives them, by number.
    pub const NAMES: [&str; 7] = ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT", "EXPORTALL"];

    /// Whether executing a procedure twice does no harm. Mounting twice is one entry of the list; a second UMNT could
    /// remove what another program of the host has mounted since.
    pub(super) const fn is_repeatable(procedure: u32) -> bool {
        matches!(procedure, NULL | MOUNT | DUMP | EXPORT | EXPORT_ALL)
    }
}

/// An outcome of MNT (`mountstat3`). Values that are not defined are kept as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// Success.
    pub const OK: Status = Status(0);
    /// Not the owner.
    pub const PERM: Status = Status(1);
    /// No such path.
    pub const NOENT: Status = Status(2);
    /// Input or output error.
    pub const IO: Status = Status(5);
    /// Permission denied: not exported, or not to this client.
    pub const ACCES: Status = Status(13);
    /// Not a directory.
    pub const NOTDIR: Status = Status(20);
    /// Invalid argument.
    pub const INVAL: Status = Status(22);
    /// The path is too long.
    pub const NAMETOOLONG: Status = Status(63);
    /// Not supported.
    pub const NOTSUPP: Status = Status(10004);
    /// The server failed.
    pub const SERVERFAULT: Status = Status(10006);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Status::OK => "done",
            Status::PERM => "not permitted",
            Status::NOENT => "no such directory on the server",
            Status::IO => "input or output error on the server",
            Status::ACCES => "the server does not export this directory to this client",
            Status::NOTDIR => "not a directory on the server",
            Status::INVAL => "invalid argument",
            Status::NAMETOOLONG => "the path is too long",
            Status::NOTSUPP => "not supported",
            Status::SERVERFAULT => "the server failed",
            Status(other) => return write!(f, "unknown status {other}"),
        };
        f.write_str(text)
    }
}

impl std::error::Error for Status {}

/// A path of the server (`dirpath`): any octets, at most 1,024.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryPath(pub Bytes);

impl Encode for DirectoryPath {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(&self.0);
    }
}

impl Decode for DirectoryPath {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque(MAX_PATH_BYTES).map(Self)
    }
}

/// MNT of version 3: asks for the handle of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The path to mount.
    pub path: DirectoryPath,
}

/// What MNT of version 3 returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountReply {
    /// The handle, and the authentication flavours that may be used with it.
    Ok {
        /// The handle.
        root: Handle,
        /// Flavour numbers, the preferred first.
        flavors: Vec<u32>,
    },
    /// No handle.
    Failed(Status),
}

/// MNT of version 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount1 {
    /// The path to mount.
    pub path: DirectoryPath,
}

/// What MNT of versions 1 and 2 returns: a status, and a handle of 32 octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountReply1 {
    /// The handle.
    Ok([u8; VERSION_1_HANDLE_BYTES]),
    /// A Unix error number.
    Failed(u32),
}

/// UMNT: takes a mount from the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmount {
    /// The path of the mount.
    pub path: DirectoryPath,
}

/// EXPORT: asks for the list of exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListExports;

/// DUMP: asks for the list of mounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListMounts;

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its path.
    pub path: DirectoryPath,
    /// The hosts or groups that may mount it; empty means all.
    pub groups: Vec<Bytes>,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The client's host.
    pub host: Bytes,
    /// The path that it has mounted.
    pub path: DirectoryPath,
}

/// The list of exports, encoded as a linked list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exports(pub Vec<Export>);

/// The list of mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(pub Vec<MountEntry>);

impl Encode for Mount {
    fn encode(&self, encoder: &mut Encoder) {
        self.path.encode(encoder);
    }
}

impl Decode for Mount {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self { path: Decode::decode(decoder)? })
    }
}

impl Encode for Mount1 {
    fn encode(&self, encoder: &mut Encoder) {
        self.path.encode(encoder);
    }
}

impl Decode for Mount1 {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self { path: Decode::decode(decoder)? })
    }
}

impl Encode for MountReply {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            MountReply::Ok { root, flavors } => {
                encoder.u32(Status::OK.0);
                root.encode(encoder);
                encoder.array(flavors);
            }
            MountReply::Failed(status) => encoder.u32(status.0),
        }
    }
}

impl Decode for MountReply {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        match Status(decoder.u32()?) {
            Status::OK => Ok(MountReply::Ok { root: Decode::decode(decoder)?, flavors: decoder.array(MAX_FLAVORS)? }),
            status => Ok(MountReply::Failed(status)),
        }
    }
}

impl Encode for MountReply1 {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            MountReply1::Ok(root) => {
                encoder.u32(0);
                encoder.opaque_fixed(root);
            }
            MountReply1::Failed(errno) => encoder.u32(*errno),
        }
    }
}

impl Decode for MountReply1 {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        match decoder.u32()? {
            0 => decoder.opaque_array().map(MountReply1::Ok),
            errno => Ok(MountReply1::Failed(errno)),
        }
    }
}

impl Encode for Unmount {
    fn encode(&self, encoder: &mut Encoder) {
        self.path.encode(encoder);
    }
}

impl Decode for Unmount {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self { path: Decode::decode(decoder)? })
    }
}

impl Encode for ListExports {
    fn encode(&self, _: &mut Encoder) {}
}

impl Decode for ListExports {
    fn decode(_: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

impl Encode for ListMounts {
    fn encode(&self, _: &mut Encoder) {}
}

impl Decode for ListMounts {
    fn decode(_: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

impl Encode for Exports {
    fn encode(&self, encoder: &mut Encoder) {
        for export in &self.0 {
            encoder.bool(true);
            export.path.encode(encoder);
            for group in &export.groups {
                encoder.bool(true);
                encoder.opaque(group);
            }
            encoder.bool(false);
        }
        encoder.bool(false);
    }
}

impl Decode for Exports {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let mut exports = Vec::new();
        while decoder.bool()? {
            let path = Decode::decode(decoder)?;
            let mut groups = Vec::new();
            while decoder.bool()? {
                groups.push(decoder.opaque(MAX_NAME_BYTES)?);
            }
            exports.push(Export { path, groups });
        }
        Ok(Self(exports))
    }
}

impl Encode for Mounts {
    fn encode(&self, encoder: &mut Encoder) {
        for mount in &self.0 {
            encoder.bool(true);
            encoder.opaque(&mount.host);
            mount.path.encode(encoder);
        }
        encoder.bool(false);
    }
}

impl Decode for Mounts {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let mut mounts = Vec::new();
        while decoder.bool()? {
            mounts.push(MountEntry { host: decoder.opaque(MAX_NAME_BYTES)?, path: Decode::decode(decoder)? });
        }
        Ok(Self(mounts))
    }
}

calls! {
    PROGRAM, VERSION_3, procedure::is_repeatable;
    Mount, procedure::MOUNT, MountReply, ReplyShape::inline(4 + 4 + 64 + 4 + 4 * MAX_FLAVORS);
    Unmount, procedure::UNMOUNT, (), ReplyShape::inline(0);
    ListExports, procedure::EXPORT, Exports, ReplyShape::inline(MAX_LIST_BYTES);
    ListMounts, procedure::DUMP, Mounts, ReplyShape::inline(MAX_LIST_BYTES);
}

calls! {
    PROGRAM, VERSION_1, procedure::is_repeatable;
    Mount1, procedure::MOUNT, MountReply1, ReplyShape::inline(4 + VERSION_1_HANDLE_BYTES);
}
