//! Attributes of files, and changing them (RFC 1813 sections 2.6, 3.3.1, 3.3.2).

use super::{Answer, Handle, procedure, sizes};
use crate::Call;
use rpcrdma_oncrpc::ReplyShape;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::time::Duration;

xdr_enum! {
    /// The type of a file (`ftype3`).
    pub enum FileType: "file type" {
        /// A regular file.
        Regular = 1,
        /// A directory.
        Directory = 2,
        /// A block device.
        Block = 3,
        /// A character device.
        Character = 4,
        /// A symbolic link.
        Symlink = 5,
        /// A socket.
        Socket = 6,
        /// A named pipe.
        Fifo = 7,
    }
}

xdr_words! {
    /// A time since 1970-01-01 00:00 UTC (`nfstime3`): two words.
    #[derive(Copy, Default, PartialOrd, Ord, Hash)]
    pub struct Time {
        /// Seconds. Unsigned in the protocol, which cannot express times before 1970.
        pub seconds: u32,
        /// Nanoseconds.
        pub nanoseconds: u32,
    }

    /// Major and minor number of a device (`specdata3`).
    #[derive(Copy, Default)]
    pub struct Specification {
        /// Major.
        pub major: u32,
        /// Minor.
        pub minor: u32,
    }

    /// The attributes of a file (`fattr3`): 84 octets.
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
        /// Size in octets.
        pub size: u64,
        /// Octets of storage in use.
        pub used: u64,
        /// The device, if the file is one.
        pub device: Specification,
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
    }

    /// The attributes that show, when compared, that another program has changed a file (`wcc_attr`): 24 octets.
    #[derive(Copy)]
    pub struct WeakAttributes {
        /// Size in octets.
        pub size: u64,
        /// Last change of the contents.
        pub modified: Time,
        /// Last change of the attributes.
        pub changed: Time,
    }
}

xdr_struct! {
    /// Attributes before and after an operation, each if known (`wcc_data`).
    #[derive(Default)]
    pub struct WeakCache {
        /// Before.
        pub before: Option<WeakAttributes>,
        /// After.
        pub after: Option<Attributes>,
    }

    /// Attributes to set; absent ones stay as they are (`sattr3`).
    #[derive(Copy, Default)]
    pub struct NewAttributes {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Size in octets: cuts the file or extends it with a hole.
        pub size: Option<u64>,
        /// Last access.
        pub accessed: SetTime,
        /// Last change of the contents.
        pub modified: SetTime,
    }

    /// GETATTR: asks for attributes.
    pub struct GetAttributes {
        /// The file whose attributes are asked for.
        pub file: Handle,
    }

    /// SETATTR: sets attributes.
    pub struct SetAttributes {
        /// The file that gets the attributes.
        pub file: Handle,
        /// The attributes to set.
        pub attributes: NewAttributes,
        /// Sets them only if the file's `changed` is this (`sattrguard3`).
        pub guard: Option<Time>,
    }
}

impl From<Duration> for Time {
    /// The last second that the protocol can express, if the time is later.
    fn from(since_1970: Duration) -> Self {
        match u32::try_from(since_1970.as_secs()) {
            Ok(seconds) => Time { seconds, nanoseconds: since_1970.subsec_nanos() },
            Err(_) => Time { seconds: u32::MAX, nanoseconds: 999_999_999 },
        }
    }
}

impl Attributes {
    /// The part of them that shows a change by another program.
    pub fn weak(&self) -> WeakAttributes {
        WeakAttributes { size: self.size, modified: self.modified, changed: self.changed }
    }
}

/// How to set a time: one word (`time_how`), and the time if it comes from the client.
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

impl Encode for SetTime {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            SetTime::Keep => encoder.u32(0),
            SetTime::Server => encoder.u32(1),
            SetTime::Client(time) => {
                encoder.u32(2);
                time.encode(encoder);
            }
        }
    }
}

impl Decode for SetTime {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        match decoder.u32()? {
            0 => Ok(SetTime::Keep),
            1 => Ok(SetTime::Server),
            2 => Time::decode(decoder).map(SetTime::Client),
            value => Err(decoder.bad_value(value, "way to set a time")),
        }
    }
}

impl Call for GetAttributes {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 1;
    type Reply = Answer<Attributes, ()>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        ReplyShape::inline(sizes::STATUS + sizes::ATTRIBUTES)
    }
}

impl Call for SetAttributes {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 2;
    type Reply = Answer<WeakCache, WeakCache>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        ReplyShape::inline(sizes::STATUS + sizes::WEAK_CACHE)
    }
}
