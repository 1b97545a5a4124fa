//! Which attributes there are, and those that a client sets: from the wire to what a file system takes (RFC 8881 sections 5.5 to
//! 5.9, RFC 8275).

use super::compound::Compound;
use crate::opened::Opened;
use rpcrdma_nfs::{
    attr,
    v4::{Attribute, Bitmap, FileAttributes, Principal, SetTime, Status},
};

/// Permission bits, with set-user-id, set-group-id and sticky; what else a mode has means nothing (RFC 8881 section 6.2.4).
const MODE_BITS: u32 = 0o7777;

/// What every minor version has.
const ALWAYS: Bitmap = Bitmap::of(&[
    Attribute::SupportedAttributes,
    Attribute::Type,
    Attribute::HandleExpireType,
    Attribute::Change,
    Attribute::Size,
    Attribute::LinkSupport,
    Attribute::SymlinkSupport,
    Attribute::NamedAttributes,
    Attribute::FileSystem,
    Attribute::UniqueHandles,
    Attribute::LeaseTime,
    Attribute::ReadAttributesError,
    Attribute::AclSupport,
    Attribute::CanSetTime,
    Attribute::CaseInsensitive,
    Attribute::CasePreserving,
    Attribute::ChownRestricted,
    Attribute::Handle,
    Attribute::FileId,
    Attribute::FilesAvailable,
    Attribute::FilesFree,
    Attribute::FilesTotal,
    Attribute::Homogeneous,
    Attribute::MaxFileSize,
    Attribute::MaxLink,
    Attribute::MaxName,
    Attribute::MaxRead,
    Attribute::MaxWrite,
    Attribute::Mode,
    Attribute::NoTruncation,
    Attribute::Links,
    Attribute::Owner,
    Attribute::Group,
    Attribute::RawDevice,
    Attribute::SpaceAvailable,
    Attribute::SpaceFree,
    Attribute::SpaceTotal,
    Attribute::SpaceUsed,
    Attribute::TimeAccess,
    Attribute::TimeAccessSet,
    Attribute::TimeCreate,
    Attribute::TimeDelta,
    Attribute::TimeMetadata,
    Attribute::TimeModify,
    Attribute::TimeModifySet,
    Attribute::MountedOnFileId,
]);

/// What minor version 1 brought.
const SINCE_1: Bitmap = Bitmap::of(&[Attribute::SupportedExclusiveCreate]);

/// What minor version 2 brought, with the extensions of RFC 8275 and RFC 8276.
const SINCE_2: Bitmap = Bitmap::of(&[
    Attribute::ChangeAttributeType,
    Attribute::CloneBlockSize,
    Attribute::ModeUmask,
    Attribute::XattrSupport,
]);

/// What may be set, except the times, while a file is made exclusively: a file system may keep the verifier in those.
const EXCLUSIVE: Bitmap = Bitmap::of(&[Attribute::Size, Attribute::Mode, Attribute::Owner, Attribute::Group]);

/// The attributes that are supported in a minor version.
pub(super) fn supported(minor: u32) -> Bitmap {
    match minor {
        0 => ALWAYS,
        1 => ALWAYS.or(&SINCE_1),
        _ => ALWAYS.or(&SINCE_1).or(&SINCE_2),
    }
}

/// The attributes that EXCLUSIVE4_1 may set in a minor version.
pub(super) fn exclusive(minor: u32) -> Bitmap {
    if minor < 2 { EXCLUSIVE } else { EXCLUSIVE.with(Attribute::ModeUmask as u32) }
}

fn time(new: Option<SetTime>) -> attr::SetTime {
    match new {
        None => attr::SetTime::Keep,
        Some(SetTime::Server) => attr::SetTime::Server,
        Some(SetTime::Client(time)) => attr::SetTime::Client(time.into()),
    }
}

/// The number of an owner or group. Nobody has to agree about names (RFC 8881 section 5.9).
fn number(principal: Option<Principal>) -> Result<Option<u32>, Status> {
    principal.map(|principal| principal.number().ok_or(Status::BADOWNER)).transpose()
}

impl Compound {
    /// What a client wants to set on a file, or on a new one beside it, and which attributes those are.
    ///
    /// # Errors
    /// ATTRNOTSUPP, INVAL, BADOWNER, BADXDR; FBIG for a size that no file there can have.
    pub(super) fn new_attributes(
        &self,
        file: &Opened,
        wire: &FileAttributes,
    ) -> Result<(attr::NewAttributes, Bitmap), Status> {
        let new = wire.to_set(&supported(self.minor)).map_err(|fault| fault.status())?;
        // It can be read, and no file system here can set it.
        if new.created.is_some() {
            return Err(Status::INVAL);
        }
        let mode = match (new.mode, new.mode_umask) {
            // RFC 8275 section 3: one of them.
            (Some(_), Some(_)) => return Err(Status::INVAL),
            (None, Some(masked)) => Some(masked.mode & !masked.umask),
            (mode, None) => mode,
        };
        if new.size.is_some_and(|size| size > file.file_system.features().max_file_octets) {
            return Err(Status::FBIG);
        }
        let set = attr::NewAttributes {
            mode: mode.map(|mode| mode & MODE_BITS),
            uid: number(new.owner)?,
            gid: number(new.group)?,
            size: new.size,
            accessed: time(new.accessed),
            modified: time(new.modified),
        };
        Ok((set, wire.set))
    }
}
