//! Attributes that a client sets: read once, into a type that has a place only for attributes that may be set.

use super::{
    Acl, Acl41, Attribute, FileAttributes, LayoutHint, ModeMasked, ModeUmask, Principal, RetentionSet, SecurityLabel,
    SetTime, Setting, Value,
};
use crate::v4::{Bitmap, Opaque, Status, Time};
use rpcrdma_xdr::DecodeError;
use std::fmt;

/// Nanoseconds in a second: a time has fewer.
const SECOND_NANOSECONDS: u32 = 1_000_000_000;

/// Why attributes cannot be set as they came. Only the causes of `INVAL` share a status.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetFault {
    /// The server does not support the attribute; `None` if this crate does not know it.
    NotSupported(Option<Attribute>),
    /// It can be read only.
    ReadOnly(Attribute),
    /// A time has as many nanoseconds as a second or more.
    BadTime(Attribute),
    /// A user or group without a name.
    NoOwner(Attribute),
    /// A user or group whose name is too long to be one.
    BadOwner(Attribute),
    /// The octets are not values of the attributes that the set names.
    BadXdr(DecodeError),
}

impl SetFault {
    /// The status that the protocol has for it.
    pub fn status(&self) -> Status {
        match self {
            // RFC 8881 section 5.5.
            Self::NotSupported(_) => Status::ATTRNOTSUPP,
            // RFC 8881 section 18.30.3. RFC 8881 section 5.9 says nothing about an empty name; Linux's server
            // takes it for a wrong argument in all minor versions.
            Self::ReadOnly(_) | Self::BadTime(_) | Self::NoOwner(_) => Status::INVAL,
            Self::BadOwner(_) => Status::BADOWNER,
            Self::BadXdr(_) => Status::BADXDR,
        }
    }
}

impl fmt::Display for SetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSupported(Some(attribute)) => write!(f, "{} is not supported", attribute.name()),
            Self::NotSupported(None) => f.write_str("an unknown attribute"),
            Self::ReadOnly(attribute) => write!(f, "{} is read-only", attribute.name()),
            Self::BadTime(attribute) => write!(f, "{} is not a time", attribute.name()),
            Self::NoOwner(attribute) => write!(f, "{} has no name", attribute.name()),
            Self::BadOwner(attribute) => write!(f, "{} is not a name", attribute.name()),
            Self::BadXdr(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SetFault {}

impl From<DecodeError> for SetFault {
    fn from(error: DecodeError) -> Self {
        Self::BadXdr(error)
    }
}

macro_rules! settable {
    ($($(#[$meta:meta])* $field:ident: $type:ty = $variant:ident;)*) => {
        /// Attributes to set, each absent unless the client named it. The server decides which users and groups the
        /// names mean, and which combinations are possible.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct NewAttributes {
            $($(#[$meta])* pub $field: Option<$type>,)*
        }

        impl NewAttributes {
            /// Keeps a value, or says that it cannot be set.
            fn put(&mut self, value: Value) -> Result<(), SetFault> {
                match value {
                    $(Value::$variant(value) => self.$field = Some(value),)*
                    other => return Err(SetFault::ReadOnly(other.attribute())),
                }
                Ok(())
            }

            /// As they stand on the wire, for a client.
            pub fn encoded(&self) -> FileAttributes {
                let values = [$(self.$field.clone().map(Value::$variant)),*];
                FileAttributes::of(&values.into_iter().flatten().collect::<Vec<_>>())
            }
        }
    };
}

settable! {
    /// Size in octets.
    size: u64 = Size;
    /// The access control list.
    acl: Acl = Acl;
    /// Whether the file was archived.
    archive: bool = Archive;
    /// Whether it is hidden.
    hidden: bool = Hidden;
    /// Its MIME type.
    mime_type: Opaque<256> = MimeType;
    /// Permission bits, as they came.
    mode: u32 = Mode;
    /// The owner, by the name that the client gives.
    owner: Principal = Owner;
    /// The group, as the client names it.
    group: Principal = Group;
    /// Whether it is a system's file.
    system: bool = System;
    /// Last access.
    accessed: SetTime = TimeAccessSet;
    /// When it was saved.
    backup: Time = TimeBackup;
    /// When it was made.
    created: Time = TimeCreate;
    /// Last change of the contents.
    modified: SetTime = TimeModifySet;
    /// The list of allowed and denied rights, with flags.
    dacl: Acl41 = Dacl;
    /// The list of audited accesses, with flags.
    sacl: Acl41 = Sacl;
    /// The layout that the client would like.
    layout_hint: LayoutHint = LayoutHint;
    /// How long to retain it.
    retention: RetentionSet = RetentionSet;
    /// How long to retain it after an event.
    event_retention: RetentionSet = EventRetentionSet;
    /// Holds it back from being removed.
    retention_hold: u64 = RetentionHold;
    /// Some permission bits.
    mode_masked: ModeMasked = ModeSetMasked;
    /// Its security label.
    security_label: SecurityLabel = SecurityLabel;
    /// Permission bits of a new file and the caller's mask.
    mode_umask: ModeUmask = ModeUmask;
    /// Last access, as the holder of a delegation saw it.
    delegated_access: Time = TimeDelegatedAccess;
    /// Last change, as the holder of a delegation saw it.
    delegated_modify: Time = TimeDelegatedModify;
}

impl FileAttributes {
    /// The attributes that a client wants to set, of which the server supports `supported`.
    ///
    /// # Errors
    /// The first of these causes, in this order: an attribute that is not supported, one that is read-only, an invalid
    /// value.
    pub fn to_set(&self, supported: &Bitmap) -> Result<NewAttributes, SetFault> {
        let surplus = self.set.without(supported);
        // NFS4-8881-5.5-b
        if !surplus.is_empty() {
            return Err(SetFault::NotSupported(surplus.iter().next().and_then(Attribute::from_number)));
        }
        let named = self.set.iter().filter_map(Attribute::from_number);
        if let Some(attribute) = named.into_iter().find(|attribute| attribute.setting() == Setting::Read) {
            return Err(SetFault::ReadOnly(attribute));
        }
        let mut new = NewAttributes::default();
        self.each(|attribute, decoder| {
            let is_name = matches!(attribute, Attribute::Owner | Attribute::Group);
            let value = Value::decode(attribute, decoder).map_err(|error| match error {
                DecodeError::TooLong { .. } if is_name => SetFault::BadOwner(attribute),
                error => SetFault::BadXdr(error),
            })?;
            check(&value)?;
            new.put(value)
        })?;
        Ok(new)
    }
}

/// Whether a value is valid.
fn check(value: &Value) -> Result<(), SetFault> {
    let attribute = value.attribute();
    match value {
        Value::Owner(name) | Value::Group(name) if name.as_slice().is_empty() => Err(SetFault::NoOwner(attribute)),
        Value::TimeAccessSet(SetTime::Client(time))
        | Value::TimeModifySet(SetTime::Client(time))
        | Value::TimeCreate(time)
        | Value::TimeBackup(time)
        | Value::TimeDelegatedAccess(time)
        | Value::TimeDelegatedModify(time)
            if time.nanoseconds >= SECOND_NANOSECONDS =>
        {
            Err(SetFault::BadTime(attribute))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Draw;
    use rpcrdma_xdr::{Encode, Encoder};

    fn all() -> Bitmap {
        Bitmap::of(Attribute::ALL)
    }

    /// proves: NFS4-8881-5.5-b
    #[test]
    fn each_attribute_is_set_or_refused_for_its_own_cause() {
        let draw = &mut Draw::new(1);
        for attribute in Attribute::ALL {
            let one = FileAttributes::tell(Bitmap::of(&[*attribute]), |a| match a {
                Attribute::Owner | Attribute::Group => {
                    Some(Value::Owner("7".into())).filter(|_| a == Attribute::Owner).or(Some(Value::Group("7".into())))
                }
                Attribute::TimeAccessSet => Some(Value::TimeAccessSet(SetTime::Server)),
                Attribute::TimeModifySet => Some(Value::TimeModifySet(SetTime::Server)),
                _ => Some(Value::sample_of(a, draw)),
            });
            let is_time = one.values().unwrap().iter().any(|value| check(value).is_err());
            let set = one.to_set(&all());
            match attribute.setting() {
                Setting::Read => assert_eq!(set, Err(SetFault::ReadOnly(*attribute))),
                _ if is_time => assert_eq!(set, Err(SetFault::BadTime(*attribute))),
                _ => assert_eq!(set.unwrap().encoded(), one, "{}", attribute.name()),
            }
            let mut others = all();
            others.remove(*attribute);
            assert_eq!(one.to_set(&others), Err(SetFault::NotSupported(Some(*attribute))));
        }
    }

    #[test]
    fn causes_have_their_statuses() {
        let of = |value: Value| FileAttributes::of(&[value]).to_set(&all()).unwrap_err().status();
        let late = Time { seconds: 1, nanoseconds: SECOND_NANOSECONDS };
        assert_eq!(of(Value::TimeModifySet(SetTime::Client(late))), Status::INVAL);
        let latest = Time { nanoseconds: SECOND_NANOSECONDS - 1, ..late };
        let new = FileAttributes::of(&[Value::TimeModifySet(SetTime::Client(latest))]).to_set(&all()).unwrap();
        assert_eq!(new.modified, Some(SetTime::Client(latest)));
        assert_eq!(of(Value::Owner(Principal::default())), Status::INVAL);
        assert_eq!(of(Value::Links(3)), Status::INVAL);
        let unknown = FileAttributes { set: Bitmap::of_numbers([500]), octets: bytes::Bytes::new() };
        assert_eq!(unknown.to_set(&all()), Err(SetFault::NotSupported(None)));
        assert_eq!(unknown.to_set(&all()).unwrap_err().status(), Status::ATTRNOTSUPP);
        let cut = FileAttributes { set: Bitmap::of(&[Attribute::Mode]), octets: bytes::Bytes::from_static(&[0; 2]) };
        assert_eq!(cut.to_set(&all()).unwrap_err().status(), Status::BADXDR);
        let surplus = FileAttributes { set: Bitmap::of(&[Attribute::Mode]), octets: vec![0; 8].into() };
        assert_eq!(surplus.to_set(&all()).unwrap_err().status(), Status::BADXDR);
        let mut encoder = Encoder::new();
        Opaque::<512>(vec![b'7'; 257].into()).encode(&mut encoder);
        let long = FileAttributes { set: Bitmap::of(&[Attribute::Group]), octets: encoder.finish().to_bytes() };
        assert_eq!(long.to_set(&all()), Err(SetFault::BadOwner(Attribute::Group)));
    }
}
