//! What a client sees of a file: the values of its attributes, its file system's and the server's (RFC 8881 sections
//! 5.8, 5.10; RFC 7862 section 12.2).

use super::{
    acl,
    attributes::LONGEST_ACL_BYTES,
    compound::Compound,
    open_arguments::open_arguments,
    settable::{exclusive, supported},
    tell::status,
};
use crate::{
    Usage,
    opened::Opened,
    transfer::{session_limits, transfer_limits},
};
use rpcrdma_nfs::{
    attr::{Attributes, FileType},
    v4::{Acl, Attribute, Bitmap, ChangeAttributeType, FileAttributes, Setting, Status, Value, ace, value_of},
};

/// Handles never expire (`FH4_PERSISTENT`).
const PERSISTENT: u32 = 0;

/// Attributes that come from the file system's usage.
pub(super) const OF_USAGE: Bitmap = Bitmap::of(&[
    Attribute::FilesAvailable,
    Attribute::FilesFree,
    Attribute::FilesTotal,
    Attribute::SpaceAvailable,
    Attribute::SpaceFree,
    Attribute::SpaceTotal,
]);

/// The attributes that an operation wants of each of its files.
pub(super) struct Asked {
    /// The requested attributes that are supported.
    pub(super) set: Bitmap,
    /// How much of the file system is used, if the client asked for that.
    usage: Option<Usage>,
}

fn usage_value(attribute: Attribute, usage: &Usage) -> Option<Value> {
    Some(match attribute {
        // Every caller may make files as long as there is room.
        Attribute::FilesAvailable => Value::FilesAvailable(usage.free_files),
        Attribute::FilesFree => Value::FilesFree(usage.free_files),
        Attribute::FilesTotal => Value::FilesTotal(usage.total_files),
        Attribute::SpaceAvailable => Value::SpaceAvailable(usage.available_bytes),
        Attribute::SpaceFree => Value::SpaceFree(usage.free_bytes),
        Attribute::SpaceTotal => Value::SpaceTotal(usage.total_bytes),
        _ => return None,
    })
}

impl Compound {
    /// The attributes that a client wants to read, of files in one file system.
    ///
    /// # Errors
    /// INVAL if an attribute can only be written.
    pub(super) async fn asked(&self, beside: &Opened, asked: Bitmap) -> Result<Asked, Status> {
        let set = asked.and(&supported(self.minor));
        let only_written = |number| Attribute::from_number(number).is_none_or(|one| one.setting() == Setting::Write);
        if set.iter().any(only_written) {
            return Err(Status::INVAL);
        }
        let usage = if set.and(&OF_USAGE).is_empty() {
            None
        } else {
            Some(beside.file_system.usage(beside.caller.clone()).await.map_err(status)?)
        };
        Ok(Asked { set, usage })
    }

    /// The values of these attributes for a file.
    ///
    /// # Errors
    /// SERVERFAULT if the server cannot make its handle; or why it cannot read the access control list.
    pub(super) async fn told(
        &self,
        asked: &Asked,
        file: &Opened,
        attributes: &Attributes,
    ) -> Result<FileAttributes, Status> {
        let handle = if asked.set.contains(Attribute::Handle) { Some(self.handle(file)?) } else { None };
        let mut acl = match asked.set.contains(Attribute::Acl) {
            true => Some(Box::pin(self.acl(file, attributes)).await?),
            false => None,
        };
        let mut named = self.named(&asked.set, attributes).await;
        Ok(FileAttributes::tell(asked.set, |attribute| match attribute {
            Attribute::Owner if named.owner.is_some() => named.owner.take().map(Value::Owner),
            Attribute::Group if named.group.is_some() => named.group.take().map(Value::Group),
            Attribute::Acl => acl.take().map(Value::Acl),
            Attribute::Handle => handle.clone().map(Value::Handle),
            Attribute::SupportedAttributes => Some(Value::SupportedAttributes(self.supported_of(file, attributes))),
            Attribute::MountedOnFileId => {
                // NFS4-PSEUDO-a
                Some(Value::MountedOnFileId(self.server.covered(file).unwrap_or(attributes.file_id)))
            }
            attribute => value_of(attribute, attributes)
                .or_else(|| usage_value(attribute, asked.usage.as_ref()?))
                .or_else(|| self.constant(attribute, file)),
        }))
    }

    /// The access control list of a file.
    ///
    /// # Errors
    /// REP_TOO_BIG, in minor version 0 RESOURCE, for a list that is too long for any client.
    async fn acl(&self, file: &Opened, attributes: &Attributes) -> Result<Acl, Status> {
        let acls = file.file_system.acl(file.caller.clone(), file.file).await.map_err(status)?;
        let too_long = if self.minor == 0 { Status::RESOURCE } else { Status::REP_TOO_BIG };
        let acl = acl::told(&acls, attributes.file_type == FileType::Directory).ok_or(too_long)?;
        Ok(self.named_acl(acl, LONGEST_ACL_BYTES).await)
    }

    /// The attributes that are supported for a file.
    // NFS4-8881-5.8-a
    fn supported_of(&self, file: &Opened, attributes: &Attributes) -> Bitmap {
        let mut set = supported(self.minor);
        // NFS4-7862-12.2.1-a
        if file.file_system.features().clone_bytes.is_none() {
            set.remove(Attribute::CloneBlockSize);
        }
        if attributes.created.is_none() {
            set.remove(Attribute::TimeCreate);
        }
        set
    }

    /// The value of an attribute that is the same for all files of a file system.
    fn constant(&self, attribute: Attribute, file: &Opened) -> Option<Value> {
        let features = || file.file_system.features();
        Some(match attribute {
            Attribute::HandleExpireType => Value::HandleExpireType(PERSISTENT),
            Attribute::LinkSupport => Value::LinkSupport(true),
            Attribute::SymlinkSupport => Value::SymlinkSupport(true),
            Attribute::NamedAttributes => Value::NamedAttributes(false),
            Attribute::UniqueHandles => Value::UniqueHandles(true),
            Attribute::LeaseTime => {
                Value::LeaseTime(u32::try_from(self.shared.limits().lease.as_secs()).unwrap_or(u32::MAX))
            }
            // No error here; in entries of a directory there can be one.
            Attribute::ReadAttributesError => Value::ReadAttributesError(Status::OK),
            Attribute::AclSupport => Value::AclSupport(ace::SUPPORT_ALLOW | ace::SUPPORT_DENY),
            Attribute::CanSetTime => Value::CanSetTime(true),
            Attribute::CaseInsensitive => Value::CaseInsensitive(false),
            Attribute::CasePreserving => Value::CasePreserving(true),
            Attribute::ChownRestricted => Value::ChownRestricted(true),
            Attribute::Homogeneous => Value::Homogeneous(true),
            Attribute::MaxFileSize => Value::MaxFileSize(features().max_file_bytes),
            Attribute::MaxLink => Value::MaxLink(features().max_links),
            Attribute::MaxName => Value::MaxName(features().max_name_bytes),
            Attribute::MaxRead => Value::MaxRead(self.transfer_limits().0 as u64),
            Attribute::MaxWrite => Value::MaxWrite(self.transfer_limits().1 as u64),
            Attribute::NoTruncation => Value::NoTruncation(true),
            Attribute::TimeDelta => Value::TimeDelta(features().time_precision.into()),
            Attribute::SupportedExclusiveCreate => Value::SupportedExclusiveCreate(exclusive(self.minor)),
            Attribute::ChangeAttributeType => Value::ChangeAttributeType(ChangeAttributeType::Undefined),
            Attribute::CloneBlockSize => Value::CloneBlockSize(features().clone_bytes?),
            Attribute::XattrSupport => Value::XattrSupport(features().xattrs),
            Attribute::OpenArguments => Value::OpenArguments(open_arguments()),
            _ => return None,
        })
    }

    /// The largest READ and the largest WRITE.
    // NFS4-TRANSFER-a
    pub(super) fn transfer_limits(&self) -> (usize, usize) {
        let transport = self.context.connection.limits;
        match self.session() {
            Ok(session) => session_limits(transport, session.fore.response as usize, session.fore.request as usize),
            Err(_) => transfer_limits(transport),
        }
    }
}
