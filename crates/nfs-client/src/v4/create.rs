//! Makes files other than regular ones: CREATE.

use super::{
    Error, Found, Nfs4, attributes,
    compound::{Plan, get_attributes, put},
    names::is_doubtful,
    reply::done,
};
use rpcrdma_nfs::{
    attr::{self, NewAttributes},
    v4::{
        Args, Device, Handle, LinkText, Name, Op, Status,
        ops::{self, CreateKind},
    },
};

impl Nfs4 {
    /// Makes a directory.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn mkdir(&self, directory: &Handle, name: &Name, new: &NewAttributes) -> Result<Found, Error> {
        self.create(directory, name, CreateKind::Directory, new).await
    }

    /// Makes a symbolic link with this text.
    pub async fn symlink(
        &self,
        directory: &Handle,
        name: &Name,
        text: &LinkText,
        new: &NewAttributes,
    ) -> Result<Found, Error> {
        self.create(directory, name, CreateKind::Symlink(text.clone()), new).await
    }

    /// Makes a device, a socket or a named pipe.
    pub async fn mknod(
        &self,
        directory: &Handle,
        name: &Name,
        kind: CreateKind,
        new: &NewAttributes,
    ) -> Result<Found, Error> {
        self.create(directory, name, kind, new).await
    }

    async fn create(
        &self,
        directory: &Handle,
        name: &Name,
        kind: CreateKind,
        new: &NewAttributes,
    ) -> Result<Found, Error> {
        let create = ops::Create { kind: kind.clone(), name: name.clone(), attributes: self.inner.fresh(new) };
        let ops = [put(directory), Args::Create(Box::new(create)), Args::GetFh, get_attributes()];
        let mut reply = self.inner.perform(Plan::changes(Op::Create), None, &mut |_| Ok(ops.to_vec())).await?;
        if let Err(error) = done!(reply, Create) {
            if is_doubtful(&reply, Op::Create, Status::EXIST)
                && let Some(found) = self.exists(directory, name).await?
                && self.is_made(&kind, &found).await?
            {
                tracing::debug!("a call had been executed before its reply was lost");
                return Ok(found);
            }
            return Err(error);
        }
        let file = done!(reply, GetFh);
        match (file, attributes::next(&mut reply)) {
            (Ok(ops::GetFhOk { file }), Ok(attributes)) => Ok(Found { file, attributes }),
            // The file exists; the client asks again for the rest.
            _ => self.lookup(directory, name).await.map_err(Error::after_creation),
        }
    }

    /// Whether an existing file is like the one that this call would make.
    async fn is_made(&self, kind: &CreateKind, found: &Found) -> Result<bool, Error> {
        let attributes = &found.attributes;
        let is = |kind, device: &Device| {
            attributes.file_type == kind
                && attributes.device == attr::Device { major: device.major, minor: device.minor }
        };
        let file_type = attributes.file_type;
        Ok(match kind {
            CreateKind::Directory => file_type == attr::FileType::Directory,
            CreateKind::Symlink(text) => {
                file_type == attr::FileType::Symlink && self.readlink(&found.file).await? == *text
            }
            CreateKind::Block(device) => is(attr::FileType::Block, device),
            CreateKind::Character(device) => is(attr::FileType::Character, device),
            CreateKind::Socket => file_type == attr::FileType::Socket,
            CreateKind::Fifo => file_type == attr::FileType::Fifo,
            CreateKind::Other(_) => false,
        })
    }
}
