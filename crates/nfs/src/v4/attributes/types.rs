//! The types of attributes that have more than a word or a name.

use crate::v4::{Bitmap, List, MAX_OPAQUE_BYTES, Opaque, Path, Time};

/// The most servers, replicas or locations in one attribute, and entries of the lists that layouts bring.
pub const MAX_LOCATIONS: usize = 64;

/// The most octets of what layout types define for themselves in an attribute.
const MAX_HINT_BYTES: usize = 4096;

/// The most octets of a security label: what Linux keeps of one.
const MAX_LABEL_BYTES: usize = 2048;

xdr_enum! {
    /// The type of a file (`nfs_ftype4`).
    pub enum FileType: "type of file" {
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
        /// A directory of named attributes.
        AttributeDirectory = 8,
        /// A named attribute.
        NamedAttribute = 9,
    }

    /// How the change attribute changes (`change_attr_type4`).
    pub enum ChangeAttributeType: "way in which the change attribute changes" {
        /// It only grows.
        Monotonic = 0,
        /// It counts changes.
        Counter = 1,
        /// It counts changes except those through pNFS.
        CounterWithoutPnfs = 2,
        /// It is the time of the last change.
        Time = 3,
        /// It differs after a change, and has no further meaning.
        Undefined = 4,
    }

    /// The status of a file system at its server (`fs4_status_type`).
    pub enum FileSystemStatusKind: "status of a file system" {
        /// It never changes.
        Fixed = 1,
        /// It is brought up to date from elsewhere.
        Updated = 2,
        /// As `Updated`, in versions that are consistent.
        Versioned = 3,
        /// It is written to.
        Writable = 4,
        /// It is elsewhere.
        Referral = 5,
    }
}

xdr_union! {
    /// How to set a time (`settime4`).
    pub enum SetTime: "way to set a time" {
        /// To the server's present time.
        Server = 0,
        /// To this time.
        Client(time: Time) = 1,
    }
}

xdr_struct! {
    /// Identifies a file system (`fsid4`).
    #[derive(Copy, Hash)]
    pub struct FileSystemId {
        /// First half.
        pub major: u64,
        /// Second half.
        pub minor: u64,
    }

    /// The device of a special file (`specdata4`).
    #[derive(Copy)]
    pub struct Device {
        /// Major number.
        pub major: u32,
        /// Minor number.
        pub minor: u32,
    }

    /// Where a file system is (`fs_location4`).
    pub struct Location {
        /// Servers: names or addresses.
        pub servers: List<Opaque<MAX_OPAQUE_BYTES>, MAX_LOCATIONS>,
        /// The path there.
        pub root: Path,
    }

    /// Where else a file system is (`fs_locations4`).
    pub struct Locations {
        /// Its path here.
        pub root: Path,
        /// Other places.
        pub places: List<Location, MAX_LOCATIONS>,
    }

    /// A server with a replica (`fs_locations_server4`).
    pub struct LocationsServer {
        /// How far behind it is, in seconds.
        pub currency: i32,
        /// Flags, classes and ranks, an octet each.
        pub info: Opaque<MAX_OPAQUE_BYTES>,
        /// Its name or address.
        pub server: Opaque<MAX_OPAQUE_BYTES>,
    }

    /// Replicas with the same path (`fs_locations_item4`).
    pub struct LocationsItem {
        /// The servers.
        pub servers: List<LocationsServer, MAX_LOCATIONS>,
        /// The path there.
        pub root: Path,
    }

    /// Where else a file system is, in detail (`fs_locations_info4`).
    pub struct LocationsInfo {
        /// 1: paths hold variables.
        pub flags: u32,
        /// For how many seconds this holds.
        pub valid_seconds: i32,
        /// Its path here.
        pub root: Path,
        /// The replicas.
        pub items: List<LocationsItem, MAX_LOCATIONS>,
    }

    /// The status of a file system at its server (`fs4_status`).
    pub struct FileSystemStatus {
        /// It is absent.
        pub absent: bool,
        /// How it changes.
        pub kind: FileSystemStatusKind,
        /// Where it comes from.
        pub source: Opaque<MAX_OPAQUE_BYTES>,
        /// Its present version.
        pub current: Opaque<MAX_OPAQUE_BYTES>,
        /// How old it is, in seconds.
        pub age_seconds: i32,
        /// When that version was made.
        pub version: Time,
    }

    /// The layout that a client would like (`layouthint4`).
    pub struct LayoutHint {
        /// The layout type.
        pub layout_type: u32,
        /// Octets that the layout type defines.
        pub body: Opaque<MAX_HINT_BYTES>,
    }

    /// The size from which a layout is worth its cost (`threshold_item4`).
    pub struct ThresholdItem {
        /// The layout type.
        pub layout_type: u32,
        /// Which thresholds follow.
        pub hints: Bitmap,
        /// The thresholds.
        pub values: Opaque<MAX_HINT_BYTES>,
    }

    /// How long a file is retained (`retention_get4`).
    pub struct Retention {
        /// Seconds; all ones for ever.
        pub seconds: u64,
        /// Since when.
        pub begin: Option<Time>,
    }

    /// How long to retain a file (`retention_set4`).
    pub struct RetentionSet {
        /// Whether it begins now.
        pub enable: bool,
        /// Seconds.
        pub seconds: Option<u64>,
    }

    /// Differs when a change of policy may show (`change_policy4`).
    #[derive(Copy)]
    pub struct ChangePolicy {
        /// First half.
        pub major: u64,
        /// Second half.
        pub minor: u64,
    }

    /// Some of the permission bits (`mode_masked4`).
    #[derive(Copy)]
    pub struct ModeMasked {
        /// Their values.
        pub mode: u32,
        /// The bits that are meant.
        pub mask: u32,
    }

    /// A mode for a new file and the mask of its creator (`mode_umask4`, RFC 8275): an inherited list counts in place
    /// of the mask.
    #[derive(Copy)]
    pub struct ModeUmask {
        /// The mode before the mask.
        pub mode: u32,
        /// The mask.
        pub umask: u32,
    }

    /// A security label (`sec_label4`).
    pub struct SecurityLabel {
        /// The label's format.
        pub format: u32,
        /// The policy.
        pub policy: u32,
        /// The label.
        pub label: Opaque<MAX_LABEL_BYTES>,
    }

    /// Which arguments of OPEN a server understands (`open_arguments4`, RFC 9754): sets of their numbers.
    #[derive(Copy)]
    pub struct OpenArguments {
        /// Bits of share access.
        pub share_access: Bitmap,
        /// Bits of share deny.
        pub share_deny: Bitmap,
        /// What can be wanted.
        pub share_access_want: Bitmap,
        /// Claims.
        pub open_claim: Bitmap,
        /// Ways to create.
        pub create_mode: Bitmap,
    }
}
