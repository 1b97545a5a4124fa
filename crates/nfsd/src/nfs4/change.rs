//! Operations on names: CREATE, REMOVE, RENAME, LINK (RFC 8881 sections 18.4, 18.25, 18.26, 18.9).
//!
//! If the directory is a symbolic link, only LINK reports that: the other operations do not have that status (section
//! 15.2).

use super::{
    compound::Compound,
    settable::{Wanted, WantedOfNew},
    tell::{change_info, failure, status},
};
use crate::{Fault, New, NodeKind, claims::Kind, opened::Opened};
use rpcrdma_nfs::{
    attr::{self, FileType},
    v4::{
        Attribute, Bitmap, Device, Name, Status,
        ops::{self, Answer, CreateKind},
    },
};

/// Attributes that a symbolic link cannot have.
const NOT_OF_LINKS: Bitmap = Bitmap::of(&[Attribute::Acl, Attribute::Mode, Attribute::ModeUmask]);

fn device(device: Device) -> attr::Device {
    attr::Device { major: device.major, minor: device.minor }
}

impl Compound {
    // NFS4-8881-18.4-a
    pub(super) async fn create(&mut self, args: ops::Create) -> Answer<ops::CreateOk> {
        let directory = self.file_to_change()?;
        self.check_name(&directory, &args.name)?;
        if matches!(args.kind, CreateKind::Other(_)) {
            return Err(Status::BADTYPE);
        }
        let mut wanted = self.new_attributes(&directory, &args.attributes).await?;
        if matches!(args.kind, CreateKind::Symlink(_)) {
            wanted = Wanted { acl: None, set: wanted.set.without(&NOT_OF_LINKS), ..wanted };
        }
        let is_directory = matches!(args.kind, CreateKind::Directory);
        let WantedOfNew { attributes, acls, mut set } = wanted.of_new(&directory, is_directory)?;
        // Only regular files have a size that clients can set, and OPEN makes those.
        if attributes.size.is_some() {
            return Err(Status::INVAL);
        }
        let new = match args.kind {
            CreateKind::Directory => New::Directory(attributes),
            CreateKind::Block(which) => New::Node(NodeKind::Block(device(which)), attributes),
            CreateKind::Character(which) => New::Node(NodeKind::Character(device(which)), attributes),
            CreateKind::Socket => New::Node(NodeKind::Socket, attributes),
            CreateKind::Fifo => New::Node(NodeKind::Fifo, attributes),
            CreateKind::Symlink(text) => {
                text.check()?;
                New::Symlink(attributes, text.0)
            }
            CreateKind::Other(_) => return Err(Status::BADTYPE),
        };
        let made = directory.file_system.make(directory.caller.clone(), directory.file, args.name.0, new).await;
        match made {
            Ok(made) => {
                let changed = change_info(&made.directory);
                let file = Opened { file: made.file, ..directory };
                self.set_first_acls(&file, acls, &mut set).await;
                self.go_to(file);
                Ok(ops::CreateOk { directory: changed, set })
            }
            Err(failed) => Err(failure(failed)),
        }
    }

    // NFS4-8881-18.25-a
    pub(super) async fn remove(&mut self, args: ops::Remove) -> Answer<ops::RemoveOk> {
        let directory = self.file_to_change()?;
        self.check_name(&directory, &args.name)?;
        self.not_covered(&directory, &args.name).await?;
        let _using = self.using_name(&directory, &args.name).await?;
        let remove = |is_directory| {
            let name = args.name.0.clone();
            directory.file_system.remove(directory.caller.clone(), directory.file, name, is_directory)
        };
        // In version 4 one operation removes files and directories.
        let removed = match remove(false).await {
            Err(failed) if failed.fault == Fault::IsDirectory => remove(true).await,
            removed => removed,
        };
        match removed {
            Ok(changed) => Ok(ops::RemoveOk { directory: change_info(&changed) }),
            Err(failed) => Err(failure(failed)),
        }
    }

    pub(super) async fn rename(&mut self, args: ops::Rename) -> Answer<ops::RenameOk> {
        let from = self.saved_file()?;
        let to = self.file_to_change()?;
        // NFS4-8881-18.26-a
        if from.export != to.export {
            return Err(Status::XDEV);
        }
        self.check_name(&from, &args.from)?;
        self.check_name(&to, &args.to)?;
        self.not_covered(&from, &args.from).await?;
        self.not_covered(&to, &args.to).await?;
        // NFS4-8881-10.4.4-a: the renamed file, and the file that it replaces.
        let _using = (self.using_name(&from, &args.from).await?, self.using_name(&to, &args.to).await?);
        let names = ((from.file, args.from.0), (to.file, args.to.0));
        match to.file_system.rename(to.caller.clone(), names.0, names.1).await {
            Ok(renamed) => {
                let (from, to) = (change_info(&renamed.from_directory), change_info(&renamed.to_directory));
                Ok(ops::RenameOk { from, to })
            }
            Err(failed) => Err(self.not_renamed(&from, &to, failed.fault).await),
        }
    }

    /// Fails if an export begins at a name: without the name, clients would not find the export any more.
    ///
    /// # Errors
    /// FILE_OPEN, as Linux's server answers for a mount point.
    async fn not_covered(&self, directory: &Opened, name: &Name) -> Result<(), Status> {
        match self.server.border_at(directory, name.as_slice()).await {
            // NFS4-BORDER-c
            Some(_) => Err(Status::FILE_OPEN),
            None => Ok(()),
        }
    }

    /// The status of a failed RENAME: an existing file with the new name may be one that cannot be replaced (RFC 8881
    /// section 18.26.3).
    async fn not_renamed(&self, from: &Opened, to: &Opened, fault: Fault) -> Status {
        match fault {
            Fault::IsDirectory | Fault::NotEmpty => Status::EXIST,
            Fault::NotDirectory => {
                for directory in [from, to] {
                    if self.file_type(directory).await != Ok(FileType::Directory) {
                        return Status::NOTDIR;
                    }
                }
                Status::EXIST
            }
            fault => status(fault),
        }
    }

    // NFS4-8881-18.9-a
    pub(super) async fn link(&mut self, args: ops::Link) -> Answer<ops::LinkOk> {
        let file = self.saved_file()?;
        let directory = self.file_to_change()?;
        if file.export != directory.export {
            return Err(Status::XDEV);
        }
        self.check_name(&directory, &args.name)?;
        let _using = self.using(&file, Kind::Write).await?;
        let Opened { file_system, caller, .. } = &directory;
        match file_system.link(caller.clone(), file.file, directory.file, args.name.0).await {
            Ok(linked) => Ok(ops::LinkOk { directory: change_info(&linked.directory) }),
            Err(failed) => match failed.fault {
                // Directories have one name (RFC 8881 section 18.9.3).
                Fault::NotOwner if self.file_type(&file).await == Ok(FileType::Directory) => Err(Status::ISDIR),
                Fault::NotDirectory => Err(self.no_directory(&directory, failed.fault).await),
                _ => Err(failure(failed)),
            },
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
