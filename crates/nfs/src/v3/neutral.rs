//! Conversions from and to the attributes that do not depend on a version of NFS ([`crate::attr`]).

use super::{Attributes, FileType, NewAttributes, SetTime, Specification, Stability, Time, WeakAttributes, WeakCache};
use crate::attr;

impl From<attr::Time> for Time {
    /// The nearest time of this version: not before 1970, not after 2106.
    fn from(time: attr::Time) -> Self {
        match u32::try_from(time.seconds) {
            Ok(seconds) => Time { seconds, nanoseconds: time.nanoseconds },
            Err(_) if time.seconds < 0 => Time::default(),
            Err(_) => Time { seconds: u32::MAX, nanoseconds: 999_999_999 },
        }
    }
}

impl From<Time> for attr::Time {
    fn from(time: Time) -> Self {
        attr::Time { seconds: time.seconds.into(), nanoseconds: time.nanoseconds }
    }
}

macro_rules! same_variants {
    ($($here:ident = $neutral:ty: $($variant:ident)*;)*) => {$(
        impl From<$neutral> for $here {
            fn from(value: $neutral) -> Self {
                match value {
                    $(<$neutral>::$variant => $here::$variant,)*
                }
            }
        }

        impl From<$here> for $neutral {
            fn from(value: $here) -> Self {
                match value {
                    $($here::$variant => <$neutral>::$variant,)*
                }
            }
        }
    )*};
}

same_variants! {
    FileType = attr::FileType: Regular Directory Block Character Symlink Socket Fifo;
    Stability = attr::Stability: Unstable DataSync FileSync;
}

impl From<attr::Device> for Specification {
    fn from(attr::Device { major, minor }: attr::Device) -> Self {
        Specification { major, minor }
    }
}

impl From<Specification> for attr::Device {
    fn from(Specification { major, minor }: Specification) -> Self {
        attr::Device { major, minor }
    }
}

/// The attributes that both have, each in the form of the other.
macro_rules! same_attributes {
    ($told:ident => $($there:ident)::+ { $($also:tt)* }) => {
        $($there)::+ {
            file_type: $told.file_type.into(),
            mode: $told.mode,
            links: $told.links,
            uid: $told.uid,
            gid: $told.gid,
            size: $told.size,
            used: $told.used,
            device: $told.device.into(),
            file_system: $told.file_system,
            file_id: $told.file_id,
            accessed: $told.accessed.into(),
            modified: $told.modified.into(),
            changed: $told.changed.into(),
            $($also)*
        }
    };
}

impl From<attr::Attributes> for Attributes {
    fn from(told: attr::Attributes) -> Self {
        same_attributes!(told => Attributes {})
    }
}

impl From<Attributes> for attr::Attributes {
    /// This version has no creation time, and no change number: the time of the last change of the attributes stands
    /// for the latter.
    fn from(told: Attributes) -> Self {
        let change = attr::Time::from(told.changed).as_change();
        same_attributes!(told => attr::Attributes { created: None, change, named: None })
    }
}

impl From<attr::Before> for WeakAttributes {
    fn from(before: attr::Before) -> Self {
        WeakAttributes { size: before.size, modified: before.modified.into(), changed: before.changed.into() }
    }
}

impl From<attr::Change> for WeakCache {
    fn from(change: attr::Change) -> Self {
        WeakCache { before: change.before.map(Into::into), after: change.after.map(Into::into) }
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
    fn from(how: attr::SetTime) -> Self {
        match how {
            attr::SetTime::Keep => SetTime::Keep,
            attr::SetTime::Server => SetTime::Server,
            attr::SetTime::Client(time) => SetTime::Client(time.into()),
        }
    }
}

impl From<attr::NewAttributes> for NewAttributes {
    /// This version has no mask: the creator of a file applies it to the mode before.
    fn from(new: attr::NewAttributes) -> Self {
        let attr::NewAttributes { mode, umask: _, uid, gid, size, accessed, modified } = new;
        NewAttributes { mode, uid, gid, size, accessed: accessed.into(), modified: modified.into() }
    }
}

impl From<NewAttributes> for attr::NewAttributes {
    fn from(new: NewAttributes) -> Self {
        let NewAttributes { mode, uid, gid, size, accessed, modified } = new;
        let (accessed, modified) = (accessed.into(), modified.into());
        attr::NewAttributes { mode, umask: 0, uid, gid, size, accessed, modified }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_this_version_cannot_tell_are_the_nearest_that_it_can() {
        let told = |seconds, nanoseconds| Time::from(attr::Time { seconds, nanoseconds });
        assert_eq!(told(-1, 5), Time::default());
        assert_eq!(told(7, 5), Time { seconds: 7, nanoseconds: 5 });
        assert_eq!(told(1 << 32, 5), Time { seconds: u32::MAX, nanoseconds: 999_999_999 });
        assert_eq!(attr::Time::from(told(u32::MAX.into(), 5)), attr::Time { seconds: u32::MAX.into(), nanoseconds: 5 });
    }

    #[test]
    fn attributes_come_back_as_they_went() {
        let mut there = attr::Attributes::new(attr::FileType::Character, 7, 8);
        (there.mode, there.links, there.uid, there.gid, there.size, there.used) = (0o640, 2, 3, 4, 5, 6);
        there.device = attr::Device { major: 9, minor: 10 };
        let time = |seconds| attr::Time { seconds, nanoseconds: 1 };
        (there.accessed, there.modified, there.changed) = (time(11), time(12), time(13));
        there.change = 13_000_000_001;
        assert_eq!(attr::Attributes::from(Attributes::from(there.clone())), there);
        let new = attr::NewAttributes {
            mode: Some(0o640),
            umask: 0,
            uid: Some(3),
            gid: Some(4),
            size: Some(5),
            accessed: attr::SetTime::Server,
            modified: attr::SetTime::Client(time(12)),
        };
        assert_eq!(attr::NewAttributes::from(NewAttributes::from(new)), new);
    }
}
