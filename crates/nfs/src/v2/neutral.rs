//! Conversions from and to the attributes that do not depend on a version of NFS ([`crate::attr`]).
//!
//! A value that does not fit here becomes the nearest one: a size that is too large becomes the largest, and the number
//! of a file or a file system is its halves combined.

use super::{Attributes, NewAttributes, SetTime, Time, file_type};
use crate::attr::{self, FileType};

/// Octets of the blocks in which a file's storage is counted, whatever size the blocks of its file system have.
pub const BLOCK_BYTES: u64 = 512;
/// Bytes of a block, the size in which clients should read.
const PREFERRED_BYTES: u32 = 4096;
/// The device number of a file that is no device. A character device with it is a named pipe.
const NO_DEVICE: u32 = u32::MAX;
/// The bits of a mode that say the type of a file, and the others.
const TYPE_BITS: u32 = 0o170_000;
const MODE_BITS: u32 = 0o7777;
const NANOSECONDS: u32 = 1000;

/// For each type its bits in the mode, and its word.
const TYPES: [(FileType, u32, u32); 7] = [
    (FileType::Fifo, 0o010_000, file_type::CHARACTER),
    (FileType::Character, 0o020_000, file_type::CHARACTER),
    (FileType::Directory, 0o040_000, file_type::DIRECTORY),
    (FileType::Block, 0o060_000, file_type::BLOCK),
    (FileType::Regular, 0o100_000, file_type::REGULAR),
    (FileType::Symlink, 0o120_000, file_type::SYMLINK),
    (FileType::Socket, 0o140_000, file_type::NONE),
];

// NFS2-FATTR-a
fn bits(what: FileType) -> (u32, u32) {
    TYPES.iter().find(|(here, ..)| *here == what).map_or((0, file_type::NONE), |(_, bits, word)| (*bits, *word))
}

/// A number of 64 bits in 32: itself where it fits.
fn joined(number: u64) -> u32 {
    (number ^ (number >> 32)) as u32
}

/// The number of a device in one word: 12 bits of major number between two parts of the minor number.
// NFS2-FATTR-b
pub fn device_word(attr::Device { major, minor }: attr::Device) -> u32 {
    (minor & 0xFF) | ((major & 0xFFF) << 8) | ((minor & 0xF_FF00) << 12)
}

/// The device of such a word.
pub fn word_device(word: u32) -> attr::Device {
    attr::Device { major: (word >> 8) & 0xFFF, minor: (word & 0xFF) | ((word >> 12) & 0xF_FF00) }
}

impl NewAttributes {
    /// The type in the mode: `None` if the mode names no type, or an unknown one.
    // NFS2-CREATE-a
    pub fn file_type(&self) -> Option<FileType> {
        let named = self.mode? & TYPE_BITS;
        // A client asks for a pipe as a character device without a number.
        if named == bits(FileType::Character).0 && self.size.is_none() {
            return Some(FileType::Fifo);
        }
        TYPES.iter().find(|(_, bits, _)| *bits == named).map(|(what, ..)| *what)
    }

    /// Whether the mode has bits for the type.
    pub fn names_type(&self) -> bool {
        self.mode.is_some_and(|mode| mode & TYPE_BITS != 0)
    }

    /// The same with bits for a type, as [`Create`](super::Create) makes special files. A device has its number.
    #[must_use]
    pub fn with_type(self, what: FileType, device: attr::Device) -> Self {
        let (asked, size) = match what {
            FileType::Fifo => (FileType::Character, None),
            FileType::Character | FileType::Block => (what, Some(device_word(device))),
            _ => (what, self.size),
        };
        Self { mode: Some(self.mode.unwrap_or(0) & MODE_BITS | bits(asked).0), size, ..self }
    }
}

impl Attributes {
    /// The type of the file: by the mode, or else by the type word. `None` if neither names a type. A character device
    /// without a number is a named pipe.
    pub fn kind(&self) -> Option<FileType> {
        let by_mode = TYPES.iter().find(|(_, bits, _)| *bits == self.mode & TYPE_BITS);
        let by_word = || TYPES.iter().rev().find(|(_, _, word)| *word == self.file_type && *word != file_type::NONE);
        let kind = by_mode.or_else(by_word).map(|(what, ..)| *what);
        let is_character = self.file_type == file_type::CHARACTER || kind == Some(FileType::Character);
        if is_character && self.device == NO_DEVICE { Some(FileType::Fifo) } else { kind }
    }

    /// The attributes that do not depend on a version; `None` if the type of the file is missing. This version has no
    /// creation time, and no change number: the time of the last change of the attributes stands for the latter.
    pub fn neutral(&self) -> Option<attr::Attributes> {
        let kind = self.kind()?;
        let is_device = matches!(kind, FileType::Block | FileType::Character);
        let changed = attr::Time::from(self.changed);
        Some(attr::Attributes {
            file_type: kind,
            mode: self.mode & MODE_BITS,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size: self.size.into(),
            used: u64::from(self.blocks) * BLOCK_BYTES,
            device: if is_device { word_device(self.device) } else { attr::Device::default() },
            file_system: self.file_system.into(),
            file_id: self.file_id.into(),
            accessed: self.accessed.into(),
            modified: self.modified.into(),
            changed,
            created: None,
            change: changed.as_change(),
            named: None,
        })
    }
}

impl From<attr::Attributes> for Attributes {
    fn from(told: attr::Attributes) -> Self {
        let (mode, file_type) = bits(told.file_type);
        let is_device = matches!(told.file_type, FileType::Block | FileType::Character);
        Self {
            file_type,
            mode: told.mode & MODE_BITS | mode,
            links: told.links,
            uid: told.uid,
            gid: told.gid,
            // NFS2-SIZE-a
            size: u32::try_from(told.size).unwrap_or(u32::MAX),
            block_bytes: PREFERRED_BYTES,
            device: if is_device { device_word(told.device) } else { NO_DEVICE },
            blocks: u32::try_from(told.used.div_ceil(BLOCK_BYTES)).unwrap_or(u32::MAX),
            file_system: joined(told.file_system),
            file_id: joined(told.file_id),
            accessed: told.accessed.into(),
            modified: told.modified.into(),
            changed: told.changed.into(),
        }
    }
}

/// The number of a file, as in [`Attributes`] and entries of a directory.
impl super::Entry {
    /// An entry of a file whose number may have 64 bits.
    pub fn new(file_id: u64, name: super::Name, cookie: u32) -> Self {
        Self { file_id: joined(file_id), name, cookie }
    }
}

impl From<attr::Time> for Time {
    /// The nearest time of this version: not before 1970, not after 2106.
    fn from(time: attr::Time) -> Self {
        match u32::try_from(time.seconds) {
            Ok(seconds) => Time { seconds, microseconds: time.nanoseconds / NANOSECONDS },
            Err(_) if time.seconds < 0 => Time::default(),
            Err(_) => Time { seconds: u32::MAX, microseconds: 999_999 },
        }
    }
}

impl From<Time> for attr::Time {
    /// A number of microseconds that is a second or more becomes the last microsecond of the second.
    fn from(time: Time) -> Self {
        let nanoseconds = time.microseconds.min(999_999) * NANOSECONDS;
        attr::Time { seconds: time.seconds.into(), nanoseconds }
    }
}

impl From<SetTime> for attr::SetTime {
    fn from(how: SetTime) -> Self {
        match how {
            SetTime::Keep => attr::SetTime::Keep,
            SetTime::Server => attr::SetTime::Server,
            SetTime::Client(time) => attr::SetTime::Client(time.into()),
        }
    }
}

impl From<attr::SetTime> for SetTime {
    /// The last second, whose number means "not set", becomes the second before it.
    fn from(how: attr::SetTime) -> Self {
        match how {
            attr::SetTime::Keep => SetTime::Keep,
            attr::SetTime::Server => SetTime::Server,
            attr::SetTime::Client(time) => {
                let time = Time::from(time);
                SetTime::Client(Time { seconds: time.seconds.min(u32::MAX - 1), ..time })
            }
        }
    }
}

impl From<NewAttributes> for attr::NewAttributes {
    /// Without the bits for the type.
    fn from(new: NewAttributes) -> Self {
        let NewAttributes { mode, uid, gid, size, accessed, modified } = new;
        let (accessed, modified) = (accessed.into(), modified.into());
        let (mode, size) = (mode.map(|mode| mode & MODE_BITS), size.map(Into::into));
        attr::NewAttributes { mode, umask: 0, uid, gid, size, accessed, modified }
    }
}

/// Why this version cannot set attributes: a size that does not fit into 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeTooLarge;

impl TryFrom<attr::NewAttributes> for NewAttributes {
    type Error = SizeTooLarge;

    /// This version has no mask: the creator of a file applies it to the mode before.
    fn try_from(new: attr::NewAttributes) -> Result<Self, SizeTooLarge> {
        let attr::NewAttributes { mode, umask: _, uid, gid, size, accessed, modified } = new;
        // All bits mean that no size is set.
        let size = match size.map(u32::try_from) {
            None => None,
            Some(Ok(size)) if size < u32::MAX => Some(size),
            Some(_) => return Err(SizeTooLarge),
        };
        Ok(NewAttributes { mode, uid, gid, size, accessed: accessed.into(), modified: modified.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [FileType; 7] = [
        FileType::Regular,
        FileType::Directory,
        FileType::Block,
        FileType::Character,
        FileType::Symlink,
        FileType::Socket,
        FileType::Fifo,
    ];

    fn told(what: FileType) -> attr::Attributes {
        let mut there = attr::Attributes::new(what, 7, 8);
        (there.mode, there.links, there.uid, there.gid, there.size, there.used) = (0o4640, 2, 3, 4, 5, 512);
        if matches!(what, FileType::Block | FileType::Character) {
            there.device = attr::Device { major: 259, minor: 0x1_2345 };
        }
        let time = |seconds| attr::Time { seconds, nanoseconds: 1000 };
        (there.accessed, there.modified, there.changed) = (time(11), time(12), time(13));
        there.change = there.changed.as_change();
        there
    }

    /// proves: NFS2-FATTR-a, NFS2-FATTR-b
    #[test]
    fn attributes_come_back_as_they_went() {
        for what in ALL {
            let here = Attributes::from(told(what));
            assert_eq!(here.neutral(), Some(told(what)), "{what:?}");
            assert_ne!(here.mode & TYPE_BITS, 0, "the mode says it, too");
        }
        let socket = Attributes::from(told(FileType::Socket));
        assert_eq!((socket.file_type, socket.mode & TYPE_BITS), (file_type::NONE, 0o140_000));
        let pipe = Attributes::from(told(FileType::Fifo));
        assert_eq!((pipe.file_type, pipe.device), (file_type::CHARACTER, u32::MAX));
        for (file_type, mode) in [(file_type::CHARACTER, 0o640), (file_type::NONE, 0o020_640)] {
            let here = Attributes { file_type, mode, ..pipe.clone() };
            assert_eq!(here.kind(), Some(FileType::Fifo), "said in one place only");
        }
        let plain = Attributes { mode: 0o644, ..Attributes::from(told(FileType::Regular)) };
        assert_eq!(plain.kind(), Some(FileType::Regular), "a server whose modes have no type");
        assert_eq!(Attributes { file_type: 0, ..plain.clone() }.neutral(), None);
        assert_eq!(Attributes { file_type: 9, ..plain }.kind(), None);
    }

    /// proves: NFS2-SIZE-a
    #[test]
    fn what_has_no_place_in_32_bits_is_told_as_near_as_it_can_be() {
        let size = |size| Attributes::from(attr::Attributes { size, used: size, ..told(FileType::Regular) });
        let most = u64::from(u32::MAX);
        assert_eq!(
            [size(most - 1), size(most), size(most + 1)].map(|here| here.size),
            [u32::MAX - 1, u32::MAX, u32::MAX]
        );
        assert_eq!(size(u64::MAX).blocks, u32::MAX);
        let number = |file_id| Attributes::from(attr::Attributes { file_id, ..told(FileType::Regular) }).file_id;
        assert_eq!((number(5), number(1 << 32 | 5), number(2 << 32 | 5)), (5, 4, 7));
        let time = |seconds| Time::from(attr::Time { seconds, nanoseconds: 5_999 });
        assert_eq!(time(-1), Time::default());
        assert_eq!(time(7), Time { seconds: 7, microseconds: 5 });
        assert_eq!(time(1 << 32), Time { seconds: u32::MAX, microseconds: 999_999 });
    }

    #[test]
    fn what_is_to_be_set_has_a_place_in_32_bits_or_is_refused() {
        let sized = |size| NewAttributes::try_from(attr::NewAttributes { size, ..Default::default() });
        let most = u64::from(u32::MAX);
        assert_eq!(sized(Some(most - 1)).unwrap().size, Some(u32::MAX - 1));
        assert_eq!(sized(Some(most)), Err(SizeTooLarge), "it would mean that none is set");
        assert_eq!(sized(None).unwrap(), NewAttributes::default());
        let last = attr::SetTime::Client(attr::Time { seconds: most as i64, nanoseconds: 0 });
        assert_eq!(SetTime::from(last), SetTime::Client(Time { seconds: u32::MAX - 1, microseconds: 0 }));
        let mode = attr::NewAttributes::from(NewAttributes { mode: Some(0o100_640), ..Default::default() }).mode;
        assert_eq!(mode, Some(0o640));
    }

    /// proves: NFS2-CREATE-a
    #[test]
    fn special_files_are_asked_for_by_their_mode() {
        let device = attr::Device { major: 1, minor: 3 };
        let asked = |what| NewAttributes { mode: Some(0o640), ..Default::default() }.with_type(what, device);
        for what in ALL {
            assert_eq!(asked(what).file_type(), Some(what), "{what:?}");
        }
        assert_eq!((asked(FileType::Fifo).mode, asked(FileType::Fifo).size), (Some(0o020_640), None));
        assert_eq!(asked(FileType::Character).size.map(word_device), Some(device));
        let plain = NewAttributes { mode: Some(0o640), ..Default::default() };
        assert!(!plain.names_type() && plain.file_type().is_none());
        let neither = NewAttributes { mode: Some(0o150_640), ..Default::default() };
        assert!(neither.names_type() && neither.file_type().is_none());
    }
}
