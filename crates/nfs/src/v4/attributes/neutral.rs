//! Conversions from and to the attributes that do not depend on a version of NFS ([`crate::attr`]).
//!
//! Owners and groups are decimal numbers in both directions, so both ends need no common names (RFC 8881 section 5.9).

use super::{Attribute, Device, FileSystemId, FileType, Principal, Value};
use crate::{attr, v4::Time};

impl From<attr::FileType> for FileType {
    fn from(kind: attr::FileType) -> Self {
        match kind {
            attr::FileType::Regular => Self::Regular,
            attr::FileType::Directory => Self::Directory,
            attr::FileType::Block => Self::Block,
            attr::FileType::Character => Self::Character,
            attr::FileType::Symlink => Self::Symlink,
            attr::FileType::Socket => Self::Socket,
            attr::FileType::Fifo => Self::Fifo,
        }
    }
}

impl FileType {
    /// The type of the file for code that knows no named attributes: these are files, their directory is a directory.
    pub fn kind(self) -> attr::FileType {
        match self {
            Self::Regular | Self::NamedAttribute => attr::FileType::Regular,
            Self::Directory | Self::AttributeDirectory => attr::FileType::Directory,
            Self::Block => attr::FileType::Block,
            Self::Character => attr::FileType::Character,
            Self::Symlink => attr::FileType::Symlink,
            Self::Socket => attr::FileType::Socket,
            Self::Fifo => attr::FileType::Fifo,
        }
    }
}

impl From<attr::Time> for Time {
    fn from(time: attr::Time) -> Self {
        Self { seconds: time.seconds, nanoseconds: time.nanoseconds }
    }
}

impl From<Time> for attr::Time {
    fn from(time: Time) -> Self {
        Self { seconds: time.seconds, nanoseconds: time.nanoseconds }
    }
}

impl Principal {
    /// A user or group by number.
    pub fn of_number(id: u32) -> Self {
        Self(id.to_string().into())
    }

    /// The number, if the text is one in decimal digits, without sign or leading zeroes, so that each number has one
    /// text.
    pub fn number(&self) -> Option<u32> {
        let text = self.as_slice();
        let has_one_text = text == b"0" || (text.iter().all(u8::is_ascii_digit) && !text.starts_with(b"0"));
        std::str::from_utf8(text).ok().filter(|_| has_one_text)?.parse().ok()
    }
}

/// The value of an attribute, if a file's own attributes contain it. Other code returns the values that describe file
/// systems, exports and leases.
pub fn value_of(attribute: Attribute, file: &attr::Attributes) -> Option<Value> {
    Some(match attribute {
        Attribute::Type => Value::Type(file.file_type.into()),
        Attribute::Change => Value::Change(file.change),
        Attribute::Size => Value::Size(file.size),
        Attribute::FileSystem => Value::FileSystem(FileSystemId { major: file.file_system, minor: 0 }),
        Attribute::FileId => Value::FileId(file.file_id),
        Attribute::Mode => Value::Mode(file.mode),
        Attribute::Links => Value::Links(file.links),
        Attribute::Owner => Value::Owner(Principal::of_number(file.uid)),
        Attribute::Group => Value::Group(Principal::of_number(file.gid)),
        Attribute::RawDevice => Value::RawDevice(Device { major: file.device.major, minor: file.device.minor }),
        Attribute::SpaceUsed => Value::SpaceUsed(file.used),
        Attribute::TimeAccess => Value::TimeAccess(file.accessed.into()),
        Attribute::TimeMetadata => Value::TimeMetadata(file.changed.into()),
        Attribute::TimeModify => Value::TimeModify(file.modified.into()),
        Attribute::TimeCreate => Value::TimeCreate(file.created?.into()),
        _ => return None,
    })
}

/// The attributes of a file for which a server returns `values`; `None` without its type. A missing one stays as
/// [`attr::Attributes::new`] has it; owners and groups that are not numbers are `nobody`, with their names beside.
pub fn attributes_of(values: &[Value], nobody: u32) -> Option<attr::Attributes> {
    let kind = values.iter().find_map(|value| if let Value::Type(kind) = value { Some(kind.kind()) } else { None })?;
    let mut file = attr::Attributes::new(kind, 0, 0);
    let mut named = attr::Named::default();
    for value in values {
        match value {
            Value::Change(change) => file.change = *change,
            Value::Size(size) => file.size = *size,
            // Both halves count. If the second is 0, as servers of this project send it, the result is the first.
            Value::FileSystem(id) => file.file_system = id.major ^ id.minor.rotate_left(32),
            Value::FileId(id) => file.file_id = *id,
            Value::Mode(mode) => file.mode = *mode,
            Value::Links(links) => file.links = *links,
            Value::Owner(owner) => (file.uid, named.owner) = told(owner, nobody),
            Value::Group(group) => (file.gid, named.group) = told(group, nobody),
            Value::RawDevice(device) => file.device = attr::Device { major: device.major, minor: device.minor },
            Value::SpaceUsed(used) => file.used = *used,
            Value::TimeAccess(time) => file.accessed = (*time).into(),
            Value::TimeMetadata(time) => file.changed = (*time).into(),
            Value::TimeModify(time) => file.modified = (*time).into(),
            Value::TimeCreate(time) => file.created = Some((*time).into()),
            _ => {}
        }
    }
    file.named = (named != attr::Named::default()).then(|| named.into());
    Some(file)
}

/// A user or group by number, or else as `nobody` with its name, which is copied so that it does not keep the whole
/// reply.
fn told(who: &Principal, nobody: u32) -> (u32, Option<Box<[u8]>>) {
    match who.number() {
        Some(number) => (number, None),
        None => (nobody, Some(who.as_slice().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_file_is_what_it_has() {
        let mut file = attr::Attributes::new(attr::FileType::Character, 7, 42);
        file.mode = 0o640;
        file.links = 3;
        (file.uid, file.gid) = (1000, 100);
        (file.size, file.used) = (5, 4096);
        file.device = attr::Device { major: 4, minor: 64 };
        file.accessed = attr::Time::new(-1, 2);
        file.modified = attr::Time::new(3, 4);
        file.changed = attr::Time::new(5, 6);
        file.created = Some(attr::Time::new(7, 8));
        file.change = 9;
        let told =
            |file: &attr::Attributes| Attribute::ALL.iter().filter_map(|a| value_of(*a, file)).collect::<Vec<_>>();
        assert_eq!(told(&file).len(), 15);
        assert_eq!(attributes_of(&told(&file), 65534), Some(file.clone()));
        file.created = None;
        assert_eq!(told(&file).len(), 14);
        assert_eq!(attributes_of(&[], 65534), None);
    }

    /// proves: NFS4-8881-5.9-e
    #[test]
    fn owners_are_numbers_or_nobody_with_a_name() {
        let number = |text: &str| Principal::from(text).number();
        assert_eq!([number("0"), number("4294967295")], [Some(0), Some(u32::MAX)]);
        assert_eq!(["", "+1", "01", "4294967296", "root@localdomain", "-1", "1 "].map(number), [None; 7]);
        let values = [Value::Type(FileType::Regular), Value::Owner("root@x".into())];
        let told = attributes_of(&values, 65534).unwrap();
        assert_eq!(told.uid, 65534);
        // Two names are two users, and none of them is the user of that number.
        assert_eq!((told.owner(), told.group()), (attr::Who::Name(b"root@x"[..].into()), attr::Who::Number(0)));
    }
}
