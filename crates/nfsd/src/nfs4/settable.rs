//! The attributes that exist in each minor version, and those that a client sets: from the wire to the file system's
//! form (RFC 8881 sections 5.5 to 5.9, RFC 8275).

use super::{
    acl,
    compound::Compound,
    tell::{failure, status},
};
use crate::{Failure, Fault, opened::Opened, owners::Kind};
use rpcrdma_nfs::{
    attr::{self, Acls, Change, FileType},
    v4::{Acl, Attribute, Bitmap, FileAttributes, SetTime, Status},
};

/// Permission bits, with set-user-id, set-group-id and sticky; other bits of a mode mean nothing (RFC 8881 section
/// 6.2.4).
const MODE_BITS: u32 = 0o7777;

/// The bits of a mode that an access control list has, too.
const PERMISSIONS: u32 = 0o777;
/// The owner's permission bits.
const OWNER_PERMISSIONS: u32 = 0o700;

/// Attributes of every minor version.
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
    Attribute::Acl,
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

/// Attributes since minor version 1.
const SINCE_1: Bitmap = Bitmap::of(&[Attribute::SupportedExclusiveCreate]);

/// Attributes since minor version 2, with the extensions of RFC 8275, RFC 8276 and RFC 9754.
const SINCE_2: Bitmap = Bitmap::of(&[
    Attribute::ChangeAttributeType,
    Attribute::CloneBlockSize,
    Attribute::ModeUmask,
    Attribute::XattrSupport,
    Attribute::OpenArguments,
]);

/// Attributes that an exclusive creation may set. Not the times: a file system may keep the verifier in them.
const EXCLUSIVE: Bitmap =
    Bitmap::of(&[Attribute::Size, Attribute::Acl, Attribute::Mode, Attribute::Owner, Attribute::Group]);

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

/// The attributes that a client sets.
pub(super) struct Wanted {
    /// All attributes but the access control list.
    pub(super) attributes: attr::NewAttributes,
    /// The access control list.
    pub(super) acl: Option<Acl>,
    /// Which attributes the client sets.
    pub(super) set: Bitmap,
}

/// The same for a new file.
pub(super) struct WantedOfNew {
    /// The attributes with which the file is made.
    pub(super) attributes: attr::NewAttributes,
    /// The access control lists that the file then gets.
    pub(super) acls: Option<Acls>,
    /// Which attributes the client sets.
    pub(super) set: Bitmap,
}

impl Wanted {
    /// The form for a new file in a directory. With an access control list, the file is first made with the owner's
    /// rights alone, at most those of the list: so no other user can do meanwhile what the list forbids.
    ///
    /// # Errors
    /// BADOWNER, ATTRNOTSUPP, FBIG for a list that the server cannot set.
    pub(super) fn of_new(self, directory: &Opened, is_directory: bool) -> Result<WantedOfNew, Status> {
        let Self { mut attributes, acl, set } = self;
        let acls = acl.map(|acl| possible(&acl, directory, is_directory)).transpose()?;
        if let Some(acls) = &acls {
            // RFC 8881 section 6.4.1.3: first the mode, then the list, which does not affect the higher bits.
            let special = attributes.mode.unwrap_or(0) & !PERMISSIONS;
            // NFS4-8881-6.4-b
            attributes.mode = Some(special | acls.access.mode() & OWNER_PERMISSIONS);
            attributes.umask = 0;
        }
        Ok(WantedOfNew { attributes, acls, set })
    }
}

/// The lists that a client's list becomes, if this kind of file can have them.
fn possible(acl: &Acl, beside: &Opened, is_directory: bool) -> Result<Acls, Status> {
    let acls = acl::posix(acl, is_directory)?;
    let is_had = acls.is_mode() || beside.file_system.features().acls;
    // RFC 8881 section 6.2.1.2.
    if is_had { Ok(acls) } else { Err(Status::ATTRNOTSUPP) }
}

/// Sets the access control lists of a file.
///
/// # Errors
/// The status of the failure.
pub(super) async fn set_acls(file: &Opened, acls: Acls) -> Result<Change, Status> {
    let set = file.file_system.set_acl(file.caller.clone(), file.file, acls).await;
    set.map_err(|failed: Failure<_>| match failed.fault {
        Fault::Unsupported => Status::ATTRNOTSUPP,
        _ => failure(failed),
    })
}

impl Compound {
    /// The access control lists that a client wants to set on an existing file.
    ///
    /// # Errors
    /// BADOWNER, ATTRNOTSUPP, FBIG for a list that the server cannot set; or why the kind of the file is unknown.
    // NFS4-8881-6.4-a
    pub(super) async fn acls_for(&self, file: &Opened, acl: &Acl) -> Result<Acls, Status> {
        match file.attributes().await.map_err(status)?.file_type {
            // All users may do everything with a symbolic link.
            FileType::Symlink => Err(Status::ATTRNOTSUPP),
            kind => possible(acl, file, kind == FileType::Directory),
        }
    }

    /// Gives a new file its access control lists. If this fails, the attribute is removed from the set: the file exists
    /// in any case, and gives no user more rights.
    pub(super) async fn set_first_acls(&self, file: &Opened, acls: Option<Acls>, set: &mut Bitmap) {
        if let Some(acls) = acls
            && set_acls(file, acls).await.is_err()
        {
            set.remove(Attribute::Acl);
        }
    }

    /// The attributes that a client sets on a file, or on a new one in this file system.
    ///
    /// # Errors
    /// ATTRNOTSUPP, INVAL, BADOWNER, BADXDR, DELAY; FBIG for a size that no file there can have.
    pub(super) async fn new_attributes(&self, file: &Opened, wire: &FileAttributes) -> Result<Wanted, Status> {
        let new = wire.to_set(&supported(self.minor)).map_err(|fault| fault.status())?;
        // Clients can read it, but no file system here can set it.
        if new.created.is_some() {
            return Err(Status::INVAL);
        }
        let (mode, umask) = match (new.mode, new.mode_umask) {
            // RFC 8275 section 3: only one of them.
            (Some(_), Some(_)) => return Err(Status::INVAL),
            // NFS4-8275-a
            (None, Some(masked)) => (Some(masked.mode), masked.umask & PERMISSIONS),
            (mode, None) => (mode, 0),
        };
        if new.size.is_some_and(|size| size > file.file_system.features().max_file_bytes) {
            return Err(Status::FBIG);
        }
        let attributes = attr::NewAttributes {
            mode: mode.map(|mode| mode & MODE_BITS),
            umask,
            uid: self.id(Kind::User, new.owner).await?,
            gid: self.id(Kind::Group, new.group).await?,
            size: new.size,
            accessed: time(new.accessed),
            modified: time(new.modified),
        };
        let acl = match new.acl {
            Some(acl) if acl.len() > acl::MAX_SET_ACES => return Err(Status::FBIG),
            Some(acl) => Some(self.numbered_acl(acl).await?),
            None => None,
        };
        Ok(Wanted { attributes, acl, set: wire.set })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, FileSystem, MemoryFs, testing::env};
    use rpcrdma_nfs::{
        attr::NewAttributes,
        v4::{Ace, ace},
    };
    use std::sync::Arc;

    /// proves: NFS4-8881-6.4-b
    #[test]
    fn a_file_with_a_list_is_its_owners_alone_until_it_has_it() {
        let file_system = Arc::new(MemoryFs::new(1 << 20, &env()));
        let file = file_system.root();
        let beside = Opened {
            file_system,
            file,
            caller: Caller::root(),
            read_only: false,
            export: 1,
            is_taken: true,
            arrival: None,
            is_followed: false,
        };
        let of = |who: &str, mode| {
            let rights = ace::READ_DATA | ace::WRITE_DATA | ace::APPEND_DATA;
            let entry = Ace { kind: ace::ALLOWED, flags: 0, rights, who: who.into() };
            let attributes = NewAttributes { mode, umask: 0o22, ..NewAttributes::default() };
            let wanted = Wanted { attributes, acl: Some(vec![entry].into()), set: Bitmap::EMPTY };
            let new = wanted.of_new(&beside, false).unwrap();
            assert_eq!(new.attributes.umask, 0, "the list says all");
            (new.attributes.mode, new.acls.unwrap().access.mode())
        };
        assert_eq!(of("EVERYONE@", Some(0o4777)), (Some(0o4600), 0o666));
        assert_eq!(of("GROUP@", Some(0o777)), (Some(0), 0o060));
        assert_eq!(of("OWNER@", None), (Some(0o600), 0o600));
    }
}
