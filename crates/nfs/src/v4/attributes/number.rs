//! The attributes by number, with the types of their values.

use super::{
    Acl, Acl41, ChangeAttributeType, ChangePolicy, Device, FileSystemId, FileSystemStatus, FileType, LayoutHint,
    Locations, LocationsInfo, MAX_LOCATIONS, MAX_PRINCIPAL_BYTES, ModeMasked, ModeUmask, OpenArguments, Principal,
    Retention, RetentionSet, SecurityLabel, SetTime, ThresholdItem,
};
use crate::v4::{BITMAP_BYTES, Bitmap, Handle, List, MAX_HANDLE_BYTES, Opaque, Status, Time};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// What a client may do with an attribute (RFC 8881 sections 5.6 and 5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Read it.
    Read,
    /// Set it.
    Write,
    /// Both.
    ReadWrite,
}

/// The most octets of a MIME type.
const MAX_MIME_BYTES: usize = 256;

/// An attribute whose size has no known limit.
const NO_LIMIT: usize = usize::MAX;

macro_rules! attributes {
    ($($number:literal $variant:ident: $type:ty, $name:literal, $since:literal, $setting:ident, $largest:expr;)*) => {
        /// An attribute of a file, by number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Attribute {
            $(#[doc = concat!("`", $name, "`, since minor version ", $since, ".")] $variant = $number,)*
        }

        impl Attribute {
            /// All of them, by number.
            pub const ALL: &'static [Attribute] = &[$(Attribute::$variant),*];

            /// The attribute of a number, if one is defined.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The name that the protocol gives it, as `time_modify`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The minor version that brought it.
            pub fn since(self) -> u32 {
                match self {
                    $(Self::$variant => $since,)*
                }
            }

            /// What a client may do with it.
            pub fn setting(self) -> Setting {
                match self {
                    $(Self::$variant => Setting::$setting,)*
                }
            }

            /// The largest encoding of a value in octets, or `None` if it has no known limit (ULB-5.2-a).
            pub fn largest_bytes(self) -> Option<usize> {
                let largest = match self {
                    $(Self::$variant => $largest,)*
                };
                (largest != NO_LIMIT).then_some(largest)
            }
        }

        /// The value of an attribute.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Value {
            $(#[doc = concat!("`", $name, "`.")] $variant($type),)*
        }

        impl Value {
            /// The attribute that has the value.
            pub fn attribute(&self) -> Attribute {
                match self {
                    $(Self::$variant(_) => Attribute::$variant,)*
                }
            }

            /// Reads a value of `attribute`.
            ///
            /// # Errors
            /// If the octets there are no such value.
            pub fn decode(attribute: Attribute, decoder: &mut Decoder) -> Result<Self, DecodeError> {
                match attribute {
                    $(Attribute::$variant => Decode::decode(decoder).map(Self::$variant),)*
                }
            }
        }

        /// The value alone: the number of its attribute stands elsewhere.
        impl Encode for Value {
            fn encode(&self, encoder: &mut Encoder) {
                match self {
                    $(Self::$variant(value) => value.encode(encoder),)*
                }
            }
        }

        #[cfg(test)]
        impl Value {
            pub(crate) fn sample_of(attribute: Attribute, draw: &mut crate::sample::Draw) -> Self {
                match attribute {
                    $(Attribute::$variant => Self::$variant(crate::sample::Sample::sample(draw)),)*
                }
            }
        }
    };
}

impl From<Attribute> for u32 {
    fn from(attribute: Attribute) -> u32 {
        attribute as u32
    }
}

impl Attribute {
    /// All that a minor version knows. An attribute of a later one is as unknown there as a number without an attribute
    /// (RFC 8178 section 8).
    pub fn all_in(minor: u32) -> Bitmap {
        Bitmap::of_numbers(Self::ALL.iter().filter(|attribute| attribute.since() <= minor).map(|one| *one as u32))
    }
}

const PRINCIPAL: usize = 4 + MAX_PRINCIPAL_BYTES;

attributes! {
    0 SupportedAttributes: Bitmap, "supported_attrs", 0, Read, BITMAP_BYTES;
    1 Type: FileType, "type", 0, Read, 4;
    2 HandleExpireType: u32, "fh_expire_type", 0, Read, 4;
    3 Change: u64, "change", 0, Read, 8;
    4 Size: u64, "size", 0, ReadWrite, 8;
    5 LinkSupport: bool, "link_support", 0, Read, 4;
    6 SymlinkSupport: bool, "symlink_support", 0, Read, 4;
    7 NamedAttributes: bool, "named_attr", 0, Read, 4;
    8 FileSystem: FileSystemId, "fsid", 0, Read, 16;
    9 UniqueHandles: bool, "unique_handles", 0, Read, 4;
    10 LeaseTime: u32, "lease_time", 0, Read, 4;
    11 ReadAttributesError: Status, "rdattr_error", 0, Read, 4;
    12 Acl: Acl, "acl", 0, ReadWrite, NO_LIMIT;
    13 AclSupport: u32, "aclsupport", 0, Read, 4;
    14 Archive: bool, "archive", 0, ReadWrite, 4;
    15 CanSetTime: bool, "cansettime", 0, Read, 4;
    16 CaseInsensitive: bool, "case_insensitive", 0, Read, 4;
    17 CasePreserving: bool, "case_preserving", 0, Read, 4;
    18 ChownRestricted: bool, "chown_restricted", 0, Read, 4;
    19 Handle: Handle, "filehandle", 0, Read, 4 + MAX_HANDLE_BYTES;
    20 FileId: u64, "fileid", 0, Read, 8;
    21 FilesAvailable: u64, "files_avail", 0, Read, 8;
    22 FilesFree: u64, "files_free", 0, Read, 8;
    23 FilesTotal: u64, "files_total", 0, Read, 8;
    24 Locations: Locations, "fs_locations", 0, Read, NO_LIMIT;
    25 Hidden: bool, "hidden", 0, ReadWrite, 4;
    26 Homogeneous: bool, "homogeneous", 0, Read, 4;
    27 MaxFileSize: u64, "maxfilesize", 0, Read, 8;
    28 MaxLink: u32, "maxlink", 0, Read, 4;
    29 MaxName: u32, "maxname", 0, Read, 4;
    30 MaxRead: u64, "maxread", 0, Read, 8;
    31 MaxWrite: u64, "maxwrite", 0, Read, 8;
    32 MimeType: Opaque<MAX_MIME_BYTES>, "mimetype", 0, ReadWrite, 4 + MAX_MIME_BYTES;
    33 Mode: u32, "mode", 0, ReadWrite, 4;
    34 NoTruncation: bool, "no_trunc", 0, Read, 4;
    35 Links: u32, "numlinks", 0, Read, 4;
    36 Owner: Principal, "owner", 0, ReadWrite, PRINCIPAL;
    37 Group: Principal, "owner_group", 0, ReadWrite, PRINCIPAL;
    38 QuotaHard: u64, "quota_avail_hard", 0, Read, 8;
    39 QuotaSoft: u64, "quota_avail_soft", 0, Read, 8;
    40 QuotaUsed: u64, "quota_used", 0, Read, 8;
    41 RawDevice: Device, "rawdev", 0, Read, 8;
    42 SpaceAvailable: u64, "space_avail", 0, Read, 8;
    43 SpaceFree: u64, "space_free", 0, Read, 8;
    44 SpaceTotal: u64, "space_total", 0, Read, 8;
    45 SpaceUsed: u64, "space_used", 0, Read, 8;
    46 System: bool, "system", 0, ReadWrite, 4;
    47 TimeAccess: Time, "time_access", 0, Read, 12;
    48 TimeAccessSet: SetTime, "time_access_set", 0, Write, 16;
    49 TimeBackup: Time, "time_backup", 0, ReadWrite, 12;
    50 TimeCreate: Time, "time_create", 0, ReadWrite, 12;
    51 TimeDelta: Time, "time_delta", 0, Read, 12;
    52 TimeMetadata: Time, "time_metadata", 0, Read, 12;
    53 TimeModify: Time, "time_modify", 0, Read, 12;
    54 TimeModifySet: SetTime, "time_modify_set", 0, Write, 16;
    55 MountedOnFileId: u64, "mounted_on_fileid", 0, Read, 8;
    56 DirectoryNotifyDelay: Time, "dir_notif_delay", 1, Read, 12;
    57 EntryNotifyDelay: Time, "dirent_notif_delay", 1, Read, 12;
    58 Dacl: Acl41, "dacl", 1, ReadWrite, NO_LIMIT;
    59 Sacl: Acl41, "sacl", 1, ReadWrite, NO_LIMIT;
    60 ChangePolicy: ChangePolicy, "change_policy", 1, Read, 16;
    61 FileSystemStatus: FileSystemStatus, "fs_status", 1, Read, NO_LIMIT;
    62 FileSystemLayoutTypes: List<u32, MAX_LOCATIONS>, "fs_layout_types", 1, Read, NO_LIMIT;
    63 LayoutHint: LayoutHint, "layout_hint", 1, Write, NO_LIMIT;
    64 LayoutTypes: List<u32, MAX_LOCATIONS>, "layout_types", 1, Read, NO_LIMIT;
    65 LayoutBlockSize: u32, "layout_blksize", 1, Read, 4;
    66 LayoutAlignment: u32, "layout_alignment", 1, Read, 4;
    67 LocationsInfo: LocationsInfo, "fs_locations_info", 1, Read, NO_LIMIT;
    68 MdsThreshold: List<ThresholdItem, MAX_LOCATIONS>, "mdsthreshold", 1, Read, NO_LIMIT;
    69 Retention: Retention, "retention_get", 1, Read, 24;
    70 RetentionSet: RetentionSet, "retention_set", 1, Write, 16;
    71 EventRetention: Retention, "retentevt_get", 1, Read, 24;
    72 EventRetentionSet: RetentionSet, "retentevt_set", 1, Write, 16;
    73 RetentionHold: u64, "retention_hold", 1, ReadWrite, 8;
    74 ModeSetMasked: ModeMasked, "mode_set_masked", 1, Write, 8;
    75 SupportedExclusiveCreate: Bitmap, "suppattr_exclcreat", 1, Read, BITMAP_BYTES;
    76 CharsetCapabilities: u32, "fs_charset_cap", 1, Read, 4;
    77 CloneBlockSize: u32, "clone_blksize", 2, Read, 4;
    78 SpaceFreed: u64, "space_freed", 2, Read, 8;
    79 ChangeAttributeType: ChangeAttributeType, "change_attr_type", 2, Read, 4;
    80 SecurityLabel: SecurityLabel, "sec_label", 2, ReadWrite, NO_LIMIT;
    81 ModeUmask: ModeUmask, "mode_umask", 2, Write, 8;
    82 XattrSupport: bool, "xattr_support", 2, Read, 4;
    83 Offline: bool, "offline", 2, Read, 4;
    84 TimeDelegatedAccess: Time, "time_deleg_access", 2, ReadWrite, 12;
    85 TimeDelegatedModify: Time, "time_deleg_modify", 2, ReadWrite, 12;
    86 OpenArguments: OpenArguments, "open_arguments", 2, Read, 5 * BITMAP_BYTES;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Draw;

    #[test]
    fn attributes_are_known_by_number() {
        assert_eq!(Attribute::ALL.len(), 87);
        for (number, attribute) in (0..).zip(Attribute::ALL) {
            assert_eq!((*attribute as u32, Attribute::from_number(number)), (number, Some(*attribute)));
            assert!(Bitmap::of(&[*attribute]).contains(*attribute));
        }
        assert_eq!(Attribute::from_number(87), None);
        assert_eq!(Attribute::TimeModifySet.name(), "time_modify_set");
        assert_eq!([0, 1, 2].map(|minor| Attribute::all_in(minor).len()), [56, 77, 87]);
        assert_eq!([33, 56, 77, 82].map(|n| Attribute::from_number(n).unwrap().since()), [0, 1, 2, 2]);
    }

    /// proves: ULB-5.2-a
    #[test]
    fn values_survive_the_wire_and_are_as_large_as_said() {
        let mut largest = vec![0; Attribute::ALL.len()];
        for seed in 0..400 {
            let draw = &mut Draw::new(seed);
            for attribute in Attribute::ALL {
                let value = Value::sample_of(*attribute, draw);
                let mut encoder = Encoder::new();
                value.encode(&mut encoder);
                let octets = encoder.finish().to_bytes();
                largest[*attribute as usize] = octets.len().max(largest[*attribute as usize]);
                let mut decoder = Decoder::new(octets.into());
                assert_eq!(Value::decode(*attribute, &mut decoder).as_ref(), Ok(&value));
                decoder.finish().unwrap();
                assert_eq!(value.attribute(), *attribute);
            }
        }
        let mut without = Vec::new();
        for (attribute, seen) in Attribute::ALL.iter().zip(largest) {
            match attribute.largest_bytes() {
                // Sets rarely have their last word.
                Some(said) if said == 5 * BITMAP_BYTES => assert!(seen <= said),
                Some(said) => assert_eq!(seen, said, "{}", attribute.name()),
                None => without.push(attribute.name()),
            }
        }
        let lists = ["acl", "fs_locations", "dacl", "sacl", "fs_status", "fs_layout_types", "layout_hint"];
        let more = ["layout_types", "fs_locations_info", "mdsthreshold", "sec_label"];
        assert_eq!(without, [&lists[..], &more].concat());
    }
}
