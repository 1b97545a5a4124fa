//! Attributes, and the names in directories: GETATTR, SETATTR, VERIFY, NVERIFY, CREATE, LINK, REMOVE, RENAME, OPENATTR
//! (RFC 8881 sections 18.4, 18.7, 18.9, 18.15, 18.17, 18.25, 18.26, 18.30, 18.31).

use super::Failure;
use crate::v4::{Bitmap, ChangeInfo, Device, FileAttributes, LinkText, Name, StateId, Status};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

xdr_struct! {
    /// GETATTR: asks for attributes of the current file.
    #[derive(Copy)]
    pub struct GetAttr {
        /// The attributes that are asked for.
        pub asked: Bitmap,
    }

    /// What GETATTR returns.
    pub struct GetAttrOk {
        /// The attributes that the client asked for and the server supports.
        pub attributes: FileAttributes,
    }

    /// SETATTR: sets attributes of the current file.
    pub struct SetAttr {
        /// For the size: an open for writing, or a special stateid.
        pub state: StateId,
        /// The attributes to set.
        pub attributes: FileAttributes,
    }

    /// What SETATTR returns.
    #[derive(Copy)]
    pub struct SetAttrOk {
        /// The attributes that were set.
        pub set: Bitmap,
    }

    /// VERIFY and NVERIFY: go on if the current file's attributes are (are not) these.
    pub struct Verify {
        /// The attributes, compared octet for octet.
        pub attributes: FileAttributes,
    }

    /// CREATE: makes a file that is not a regular one.
    pub struct Create {
        /// The kind of file.
        pub kind: CreateKind,
        /// Its name in the current directory.
        pub name: Name,
        /// Its attributes.
        pub attributes: FileAttributes,
    }

    /// What CREATE returns.
    #[derive(Copy)]
    pub struct CreateOk {
        /// The directory before and after.
        pub directory: ChangeInfo,
        /// The attributes that were set.
        pub set: Bitmap,
    }

    /// LINK: gives the saved file a further name.
    pub struct Link {
        /// Its name in the current directory.
        pub name: Name,
    }

    /// What LINK returns.
    #[derive(Copy)]
    pub struct LinkOk {
        /// The directory before and after.
        pub directory: ChangeInfo,
    }

    /// REMOVE: takes a name away.
    pub struct Remove {
        /// The name in the current directory.
        pub name: Name,
    }

    /// What REMOVE returns.
    #[derive(Copy)]
    pub struct RemoveOk {
        /// The directory before and after.
        pub directory: ChangeInfo,
    }

    /// RENAME: moves a name from the saved directory to the current one.
    pub struct Rename {
        /// The old name.
        pub from: Name,
        /// The new name.
        pub to: Name,
    }

    /// What RENAME returns.
    #[derive(Copy)]
    pub struct RenameOk {
        /// The saved directory before and after.
        pub from: ChangeInfo,
        /// The current directory before and after.
        pub to: ChangeInfo,
    }

    /// OPENATTR: goes to the directory of the current file's named attributes.
    #[derive(Copy)]
    pub struct OpenAttr {
        /// Whether to make the directory if it does not exist.
        pub create: bool,
    }
}

xdr_union! {
    /// What CREATE makes (`createtype4`).
    pub enum CreateKind: "type of file" {
        /// A directory.
        Directory = 2,
        /// A block device.
        Block(device: Device) = 3,
        /// A character device.
        Character(device: Device) = 4,
        /// A symbolic link with this text: an item that may be placed directly.
        Symlink(text: LinkText) = 5,
        /// A socket.
        Socket = 6,
        /// A named pipe.
        Fifo = 7,
    } else {
        /// A type that CREATE does not make, also a regular file: `NFS4ERR_BADTYPE`.
        Other
    }
}

/// SETATTR has failed, perhaps after some attributes were set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAttrFailure {
    /// The reason.
    pub status: Status,
    /// The attributes that were set all the same.
    pub set: Bitmap,
}

impl From<Status> for SetAttrFailure {
    fn from(status: Status) -> Self {
        Self { status, set: Bitmap::EMPTY }
    }
}

impl Failure for SetAttrFailure {
    fn status(&self) -> Status {
        self.status
    }

    fn encode_rest(&self, encoder: &mut Encoder) {
        self.set.encode(encoder);
    }

    fn decode_rest(status: Status, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self { status, set: Decode::decode(decoder)? })
    }
}

#[cfg(test)]
impl crate::sample::Sample for SetAttrFailure {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        Self { status: Status::INVAL, set: Bitmap::sample(draw) }
    }
}
