//! Going from file to file, and asking what the caller may do: PUTFH and its like, LOOKUP, LOOKUPP, GETFH, ACCESS,
//! READLINK (RFC 8881 sections 18.1, 18.8, 18.13, 18.14, 18.19 to 18.21, 18.24).

use super::{
    compound::Compound,
    security::taken,
    tell::{failure, status},
    xattr,
};
use crate::{Fault, Rights, opened::Opened};
use bytes::Bytes;
use rpcrdma_nfs::{
    attr::FileType,
    v4::{
        Handle, LinkText, Name, Status,
        ops::{self, Answer},
    },
};

impl Compound {
    pub(super) fn put_fh(&mut self, args: &ops::PutFh) -> Answer {
        let file = self.server.open_handle(&self.context, args.file.as_slice()).map_err(status)?;
        self.go_to(file);
        Ok(())
    }

    pub(super) fn put_root(&mut self) -> Answer {
        let root = self.server.root(&self.context).map_err(status)?;
        self.go_to(root);
        Ok(())
    }

    pub(super) fn get_fh(&self) -> Answer<ops::GetFhOk> {
        let file = self.file()?;
        Ok(ops::GetFhOk { file: self.handle(&file)? })
    }

    /// The handle of a file.
    pub(super) fn handle(&self, file: &Opened) -> Result<Handle, Status> {
        let handle = self.server.handle(file, file.file);
        Handle::new(handle.as_slice()).ok_or(Status::SERVERFAULT)
    }

    pub(super) async fn lookup(&mut self, args: ops::Lookup) -> Answer {
        let directory = self.file()?;
        let found = self.find(&directory, args.name).await?;
        self.go_to(taken(found)?);
        Ok(())
    }

    /// The file of a name in a directory.
    pub(super) async fn find(&self, directory: &Opened, name: Name) -> Result<Opened, Status> {
        self.check_name(directory, &name)?;
        if let Some(found) = self.server.enter(&self.context, directory, name.as_slice()) {
            return found.map_err(status);
        }
        let name = name.0;
        let found = directory.file_system.lookup(directory.caller.clone(), directory.file, name.clone()).await;
        // Only a caller that may find the covered directory enters the export that begins there.
        if found.is_ok()
            && let Some(inner) = self.server.border_at(directory, &name).await
        {
            return self.server.cross(&self.context, inner).map_err(status);
        }
        match found {
            Ok(found) => Ok(Opened { file: found.file, ..directory.clone() }),
            Err(fault) => Err(self.no_directory(directory, fault.fault).await),
        }
    }

    /// The status of a failure in a directory: NFS4ERR_SYMLINK if it is a symbolic link.
    pub(super) async fn no_directory(&self, file: &Opened, fault: Fault) -> Status {
        match fault {
            Fault::NotDirectory if self.file_type(file).await == Ok(FileType::Symlink) => Status::SYMLINK,
            fault => status(fault),
        }
    }

    /// The type of a file.
    pub(super) async fn file_type(&self, file: &Opened) -> Result<FileType, Status> {
        file.attributes().await.map(|attributes| attributes.file_type).map_err(status)
    }

    /// Checks a name in a directory.
    pub(super) fn check_name(&self, directory: &Opened, name: &Name) -> Result<(), Status> {
        let max = directory.file_system.features().max_name_bytes;
        name.check(usize::try_from(max).unwrap_or(usize::MAX))
    }

    pub(super) async fn lookup_parent(&mut self) -> Answer {
        let above = self.find_parent().await?;
        self.go_to(taken(above)?);
        Ok(())
    }

    /// The directory above the current one.
    pub(super) async fn find_parent(&self) -> Result<Opened, Status> {
        let file = self.file()?;
        if let Some(above) = self.server.leave(&self.context, &file).await {
            return above.map_err(status);
        }
        let found = file.file_system.lookup(file.caller.clone(), file.file, Bytes::from_static(b"..")).await;
        let found = match found {
            Ok(found) => found.file,
            Err(fault) => return Err(self.no_directory(&file, fault.fault).await),
        };
        Ok(Opened { file: found, ..file })
    }

    pub(super) async fn access(&self, args: ops::Access) -> Answer<ops::AccessOk> {
        let file = self.file()?;
        let asked = Rights::from_bits(args.rights);
        // RFC 8276 section 8.5.
        let has_xattrs = self.minor >= 2 && file.file_system.features().xattrs;
        let for_xattrs = if has_xattrs { xattr::needed(args.rights) } else { Rights::NONE };
        let told = file.file_system.access(file.caller.clone(), file.file, asked | for_xattrs).await;
        let (granted, attributes) = told.map_err(failure)?;
        let kind = match attributes {
            Some(attributes) => attributes.file_type,
            None => self.file_type(&file).await?,
        };
        let is_directory = kind == FileType::Directory;
        // The reply leaves out rights that have no meaning for this file.
        let meant = if is_directory { !Rights::EXECUTE } else { !(Rights::LOOKUP | Rights::DELETE) };
        let granted = if file.read_only { granted & !Rights::CHANGING } else { granted };
        let supported = asked & meant;
        let xattrs = match kind {
            FileType::Regular | FileType::Directory if has_xattrs => {
                (xattr::granted(args.rights, Rights::ALL), xattr::granted(args.rights, granted))
            }
            _ => (0, 0),
        };
        let rights = (granted & supported).bits() | xattrs.1;
        Ok(ops::AccessOk { supported: supported.bits() | xattrs.0, rights })
    }

    pub(super) async fn read_link(&mut self) -> Answer<ops::ReadLinkOk> {
        let link = self.file()?;
        match link.file_system.read_link(link.caller.clone(), link.file).await {
            Ok((text, _)) => {
                // It counts as memory, like data: a short call can ask for many links, and its client may not take the
                // reply.
                let mut buffer = self.buffer(text.len()).await?;
                buffer.bytes_mut()[..text.len()].copy_from_slice(&text);
                buffer.set_len(text.len());
                Ok(ops::ReadLinkOk { text: LinkText(buffer.freeze()) })
            }
            Err(failed) if failed.fault == Fault::Invalid => Err(Status::WRONG_TYPE),
            Err(failed) => Err(failure(failed)),
        }
    }
}
