//! The procedures of NFS version 2, one method each.
//!
//! If a call was sent more than once, and the reply looks as if the server had executed it before, the client checks as
//! in version 3 ([`retransmitted`](crate::retransmitted)): if the state on the server is the one that the call should
//! bring about, the call has succeeded.

use crate::{Denied, Error, Transfer};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::{
    Call,
    attr::FileType,
    v2::{
        self, Answer, Attributes, FileSystemStatusOk, Handle, LookupOk, MAX_TRANSFER_BYTES, Name, NewAttributes, Path,
        ReadDirectoryOk, ReadOk, Status,
    },
};
use rpcrdma_oncrpc::{CallError, Client, ItemRoom};
use rpcrdma_xdr::{Decode, ItemData};

/// The smallest READ and WRITE that the client accepts from a server, in bytes.
const LEAST_TRANSFER_BYTES: u32 = 512;

/// A client of NFS version 2. Cloning shares the connection.
#[derive(Clone, Debug)]
pub struct Nfs2 {
    client: Client,
}

/// The result of a call.
struct Outcome<T> {
    result: Result<T, Status>,
    retransmitted: bool,
}

fn procedure<C: Call>() -> &'static str {
    v2::Procedure::from_number(C::PROCEDURE).map_or("?", v2::Procedure::name)
}

/// A call of a procedure has no results.
fn no_results<C: Call>(source: CallError) -> Error {
    Error::Call { procedure: procedure::<C>(), source }
}

impl Nfs2 {
    /// A client over `client`, which calls [`v2::PROGRAM`], [`v2::VERSION`].
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The RPC client below.
    pub fn rpc(&self) -> &Client {
        &self.client
    }

    async fn exchange<T, C>(&self, call: &C, sink: Option<Buffer>) -> Result<Outcome<T>, Error>
    where
        T: Decode,
        C: Call<Reply = Answer<T>>,
    {
        let mut encoder = self.client.encoder();
        call.encode(&mut encoder);
        let mut shape = call.reply_shape();
        if let (Some(room), Some(buffer)) = (shape.items.first_mut(), sink) {
            *room = ItemRoom { max_len: room.max_len.min(buffer.capacity()), buffer: Some(buffer) };
        }
        let args = encoder.finish();
        let results = match call.is_repeatable() {
            true => self.client.call_repeatable(C::PROCEDURE, args, shape).await,
            false => self.client.call(C::PROCEDURE, args, shape).await,
        };
        let results = results.map_err(no_results::<C>)?;
        let retransmitted = results.retransmitted;
        let answer: C::Reply = results.decode().map_err(no_results::<C>)?;
        Ok(Outcome { result: answer.into_result(), retransmitted })
    }

    async fn simple<T: Decode, C: Call<Reply = Answer<T>>>(&self, call: &C) -> Result<T, Error> {
        self.exchange(call, None).await?.result.map_err(|status| self.refused::<C>(status))
    }

    /// The server has executed a call of `C`, and returned an error. The reply says nothing about the file.
    fn refused<C: Call>(&self, status: Status) -> Error {
        let is_denial = matches!(status, Status::PERM | Status::ACCES);
        let denied = is_denial.then(|| Denied { caller: self.client.caller(), owner: None });
        Error::Status { procedure: procedure::<C>(), status: status.into(), denied }
    }

    /// NULL: whether the server answers.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn null(&self) -> Result<(), Error> {
        self.client.null().await.map_err(|source| Error::Call { procedure: "NULL", source })
    }

    /// GETATTR: a file's attributes.
    pub async fn getattr(&self, file: Handle) -> Result<Attributes, Error> {
        self.simple(&v2::GetAttributes { file }).await
    }

    /// SETATTR: sets attributes.
    pub async fn setattr(&self, file: Handle, attributes: NewAttributes) -> Result<Attributes, Error> {
        self.simple(&v2::SetAttributes { file, attributes }).await
    }

    /// LOOKUP: the file of a name.
    pub async fn lookup(&self, directory: Handle, name: &Name) -> Result<LookupOk, Error> {
        self.simple(&v2::Lookup { directory, name: name.clone() }).await
    }

    /// READLINK: what a symbolic link points to.
    pub async fn readlink(&self, link: Handle) -> Result<Path, Error> {
        Ok(self.simple(&v2::ReadLink { link }).await?.path)
    }

    /// READ: up to `count` bytes, and at most [`MAX_TRANSFER_BYTES`].
    pub async fn read(&self, file: Handle, offset: u32, count: u32) -> Result<ReadOk, Error> {
        let count = count.min(MAX_TRANSFER_BYTES as u32);
        let ReadOk { attributes, data } = self.simple(&v2::Read { file, offset, count }).await?;
        let data = data.into_bytes();
        if data.len() > count as usize {
            return Err(Error::Nonsense { procedure: "READ", what: "returned more bytes than were asked for" });
        }
        Ok(ReadOk { attributes, data })
    }

    /// READ into the caller's buffer, as many bytes as it holds and the version allows. If the transport places data
    /// directly, the bytes arrive in this very buffer, and it comes back as [`ItemData::Placed`].
    pub async fn read_into(&self, file: Handle, offset: u32, buffer: Buffer) -> Result<ReadOk<ItemData>, Error> {
        let count = u32::try_from(buffer.capacity().min(MAX_TRANSFER_BYTES)).unwrap_or(u32::MAX);
        let outcome = self.exchange(&v2::Read { file, offset, count }, Some(buffer)).await?;
        outcome.result.map_err(|status| self.refused::<v2::Read>(status))
    }

    /// WRITE: puts bytes into a file, at most [`MAX_TRANSFER_BYTES`]. They are durable when the reply comes.
    pub async fn write(&self, file: Handle, offset: u32, data: Bytes) -> Result<Attributes, Error> {
        self.simple(&v2::Write { file, offset, data }).await
    }

    /// CREATE: makes a regular file or uses an existing one, or makes a special file, as the mode says. Some servers
    /// return an error if a regular file exists.
    pub async fn create(&self, directory: Handle, name: &Name, attributes: NewAttributes) -> Result<LookupOk, Error> {
        let call = v2::Create { directory, name: name.clone(), attributes };
        let what = if attributes.names_type() { attributes.file_type() } else { Some(FileType::Regular) };
        let is_ours = |found: &Attributes| {
            let is_of_type = what.is_some() && found.neutral().map(|told| told.file_type) == what;
            is_of_type
                && match what {
                    // A new file is empty and has one name. So if another client has created the file and filled it,
                    // the client does not take it for its own.
                    Some(FileType::Regular) => found.size == attributes.size.unwrap_or(0) && found.links == 1,
                    // The field of the size holds a device's number.
                    _ => attributes.size.is_none_or(|device| device == found.device),
                }
        };
        self.made(&call, (directory, name), is_ours).await
    }

    /// MKDIR: makes a directory.
    pub async fn mkdir(&self, directory: Handle, name: &Name, attributes: NewAttributes) -> Result<LookupOk, Error> {
        let call = v2::MakeDirectory { directory, name: name.clone(), attributes };
        self.made(&call, (directory, name), |found| found.file_type == v2::file_type::DIRECTORY).await
    }

    /// Makes a file. If it already exists, `is_ours` decides whether this call may have made it.
    async fn made<C: Call<Reply = Answer<LookupOk>>>(
        &self,
        call: &C,
        (directory, name): (Handle, &Name),
        is_ours: impl FnOnce(&Attributes) -> bool,
    ) -> Result<LookupOk, Error> {
        let Outcome { result, retransmitted } = self.exchange(call, None).await?;
        // ULB-3.1-d
        if result.as_ref().err() == Some(&Status::EXIST) && retransmitted {
            let found = self.lookup(directory, name).await?;
            if is_ours(&found.attributes) {
                return Ok(found);
            }
        }
        result.map_err(|status| self.refused::<C>(status))
    }

    /// SYMLINK: makes a symbolic link.
    pub async fn symlink(
        &self,
        directory: Handle,
        name: &Name,
        attributes: NewAttributes,
        path: &Path,
    ) -> Result<(), Error> {
        let call = v2::SymbolicLink { directory, name: name.clone(), path: path.clone(), attributes };
        let Outcome { result, retransmitted } = self.exchange(&call, None).await?;
        if result == Err(Status::EXIST) && retransmitted {
            let found = self.lookup(directory, name).await?;
            if found.attributes.file_type == v2::file_type::SYMLINK && self.readlink(found.file).await? == *path {
                return Ok(());
            }
        }
        result.map_err(|status| self.refused::<v2::SymbolicLink>(status))
    }

    /// REMOVE: removes a name of a file that is not a directory.
    pub async fn remove(&self, directory: Handle, name: &Name) -> Result<(), Error> {
        self.removed(&v2::Remove { directory, name: name.clone() }, directory, name).await
    }

    /// RMDIR: removes an empty directory.
    pub async fn rmdir(&self, directory: Handle, name: &Name) -> Result<(), Error> {
        self.removed(&v2::RemoveDirectory { directory, name: name.clone() }, directory, name).await
    }

    async fn removed<C: Call<Reply = Answer<()>>>(
        &self,
        call: &C,
        directory: Handle,
        name: &Name,
    ) -> Result<(), Error> {
        let Outcome { result, retransmitted } = self.exchange(call, None).await?;
        if result == Err(Status::NOENT) && retransmitted && self.exists(directory, name).await?.is_none() {
            return Ok(());
        }
        result.map_err(|status| self.refused::<C>(status))
    }

    /// RENAME: gives a file another name; an existing file of that name is replaced.
    pub async fn rename(&self, from: (Handle, &Name), to: (Handle, &Name)) -> Result<(), Error> {
        let call = v2::Rename { from_directory: from.0, from: from.1.clone(), to_directory: to.0, to: to.1.clone() };
        let Outcome { result, retransmitted } = self.exchange(&call, None).await?;
        if result == Err(Status::NOENT)
            && retransmitted
            && self.exists(from.0, from.1).await?.is_none()
            && self.exists(to.0, to.1).await?.is_some()
        {
            return Ok(());
        }
        result.map_err(|status| self.refused::<v2::Rename>(status))
    }

    /// LINK: gives a file a further name.
    pub async fn link(&self, file: Handle, directory: Handle, name: &Name) -> Result<(), Error> {
        let Outcome { result, retransmitted } =
            self.exchange(&v2::Link { file, directory, name: name.clone() }, None).await?;
        if result == Err(Status::EXIST) && retransmitted {
            let number = |told: &Attributes| (told.file_system, told.file_id);
            let ours = number(&self.getattr(file).await?);
            if self.exists(directory, name).await?.is_some_and(|found| number(&found.attributes) == ours) {
                return Ok(());
            }
        }
        result.map_err(|status| self.refused::<v2::Link>(status))
    }

    /// The file of a name, if there is one.
    pub(crate) async fn exists(&self, directory: Handle, name: &Name) -> Result<Option<LookupOk>, Error> {
        match self.lookup(directory, name).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// READDIR: names in a directory, after `cookie`.
    pub async fn readdir(&self, directory: Handle, cookie: u32, count: u32) -> Result<ReadDirectoryOk, Error> {
        let count = count.min(MAX_TRANSFER_BYTES as u32);
        self.simple(&v2::ReadDirectory { directory, cookie, count }).await
    }

    /// STATFS: how much of the file system is used.
    pub async fn statfs(&self, root: Handle) -> Result<FileSystemStatusOk, Error> {
        self.simple(&v2::FileSystemStatus { root }).await
    }

    /// The sizes in which to move data, from STATFS.
    pub async fn transfer(&self, root: Handle) -> Result<Transfer, Error> {
        let most = MAX_TRANSFER_BYTES as u32;
        let octets = self.statfs(root).await?.transfer_bytes.clamp(LEAST_TRANSFER_BYTES, most);
        Ok(Transfer { read: octets, write: octets, directory: most })
    }
}
