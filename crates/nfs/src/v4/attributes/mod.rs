//! Attributes of files (RFC 8881 section 5, RFC 7530 section 5, RFC 7862 section 12, RFC 8275, RFC 8276, RFC 9754): the
//! list of them, their values, what a server returns, and what a client may set.
//!
//! On the wire attributes are a [`Bitmap`](super::Bitmap) and the values of its members one after the other, in octets
//! that only code which knows each member can read: [`FileAttributes`]. VERIFY and NVERIFY compare those octets; all
//! other code reads [`Value`]s.

mod acl;
mod container;
mod neutral;
mod number;
mod set;
mod types;

pub use acl::{Ace, Acl, Acl41, MAX_ACES, MAX_PRINCIPAL_BYTES, Principal, ace};
pub use container::{FileAttributes, MAX_ATTRIBUTES_BYTES};
pub use neutral::{attributes_of, value_of};
pub use number::{Attribute, Setting, Value};
pub use set::{NewAttributes, SetFault};
pub use types::{
    ChangeAttributeType, ChangePolicy, Device, FileSystemId, FileSystemStatus, FileSystemStatusKind, FileType,
    LayoutHint, Location, Locations, LocationsInfo, LocationsItem, LocationsServer, MAX_LOCATIONS, ModeMasked,
    ModeUmask, OpenArguments, Retention, RetentionSet, SecurityLabel, SetTime, ThresholdItem,
};
