//! The procedures of NFS version 3, one method each.

use crate::{Denied, Error, Owner, Transfer, denied::About, nfsacl::Missing, patience::Patience, retransmitted};
use bytes::Bytes;
use rpcrdma_env::{Buffer, Clock};
use rpcrdma_nfs::{
    Call, nfsacl,
    v3::{
        self, Answer, Attributes, Created, Failure, Handle, LinkInfo, Name, NewAttributes, Path, ReadOk, RenameInfo,
        Stability, Status, Time, Verifier, WeakCache, WriteOk,
    },
};
use rpcrdma_oncrpc::{CallError, Client, ItemRoom};
use rpcrdma_xdr::ItemData;
use std::{fmt, sync::Arc};

/// A client of NFS version 3. Cloning shares the connection.
#[derive(Clone)]
pub struct Nfs3 {
    client: Client,
    /// The same for NFSACL.
    acls: Client,
    acls_missing: Missing,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Nfs3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

/// The result of a call.
pub(crate) struct Outcome<T> {
    pub(crate) answer: T,
    pub(crate) retransmitted: bool,
}

fn procedure<C: Call>() -> &'static str {
    if C::PROGRAM == nfsacl::PROGRAM {
        return nfsacl::procedure::NAMES.get(C::PROCEDURE as usize).copied().unwrap_or("?");
    }
    v3::Procedure::from_number(C::PROCEDURE).map_or("?", v3::Procedure::name)
}

/// A call of a procedure has no results.
fn no_results<C: Call>(source: CallError) -> Error {
    Error::Call { procedure: procedure::<C>(), source }
}

impl Nfs3 {
    /// A client over `client`, which calls [`v3::PROGRAM`], [`v3::VERSION`].
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        let acls = client.clone().with_program(nfsacl::PROGRAM, nfsacl::VERSION_3);
        Self { client, acls, acls_missing: Missing::default(), clock }
    }

    /// The RPC client below.
    pub fn rpc(&self) -> &Client {
        &self.client
    }

    pub(crate) fn acls_missing(&self) -> &Missing {
        &self.acls_missing
    }

    async fn exchange<C: Call>(&self, call: &C, sink: Option<Buffer>) -> Result<Outcome<C::Reply>, Error> {
        let client = if C::PROGRAM == nfsacl::PROGRAM { &self.acls } else { &self.client };
        let mut encoder = client.encoder();
        call.encode(&mut encoder);
        let mut shape = call.reply_shape();
        if let (Some(room), Some(buffer)) = (shape.items.first_mut(), sink) {
            *room = ItemRoom { max_len: room.max_len.min(buffer.capacity()), buffer: Some(buffer) };
        }
        let args = encoder.finish();
        let results = match call.is_repeatable() {
            true => client.call_repeatable(C::PROCEDURE, args, shape).await,
            false => client.call(C::PROCEDURE, args, shape).await,
        };
        let results = results.map_err(no_results::<C>)?;
        let retransmitted = results.retransmitted;
        Ok(Outcome { answer: results.decode().map_err(no_results::<C>)?, retransmitted })
    }

    /// Makes a call, and repeats it while the server says "try again later", as long as [`Patience`] allows.
    pub(crate) async fn call<C, T, F>(&self, call: &C) -> Result<Outcome<Answer<T, F>>, Error>
    where
        C: Call<Reply = Answer<T, F>>,
    {
        let (mut patience, mut retransmitted) = (Patience::new(), false);
        loop {
            let mut outcome = self.exchange(call, None).await?;
            retransmitted |= outcome.retransmitted;
            let status = outcome.answer.status();
            if status != Status::JUKEBOX || !patience.wait_after(status, &*self.clock).await {
                outcome.retransmitted = retransmitted;
                return Ok(outcome);
            }
        }
    }

    /// Makes a call that does no harm if it is executed twice.
    pub(crate) async fn simple<C, T, F: About>(&self, call: &C) -> Result<T, Error>
    where
        C: Call<Reply = Answer<T, F>>,
    {
        let outcome = self.call(call).await?;
        outcome.answer.into_result().map_err(|failure| self.refused::<C, F>(&failure))
    }

    /// The server has executed a call of `C`, and returned an error.
    pub(crate) fn refused<C: Call, F: About>(&self, failure: &Failure<F>) -> Error {
        let status = failure.status;
        let is_denial = matches!(status, Status::PERM | Status::ACCES);
        let denied = is_denial
            .then(|| Denied { caller: self.client.caller(), owner: failure.info.attributes(status).map(Owner::from) });
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
    pub async fn getattr(&self, file: &Handle) -> Result<Attributes, Error> {
        self.simple(&v3::GetAttributes { file: file.clone() }).await
    }

    /// SETATTR: sets attributes; if `guard` is given, only if the file's `changed` equals it.
    pub async fn setattr(
        &self,
        file: &Handle,
        attributes: NewAttributes,
        guard: Option<Time>,
    ) -> Result<WeakCache, Error> {
        self.simple(&v3::SetAttributes { file: file.clone(), attributes, guard }).await
    }

    /// LOOKUP: the file of a name.
    pub async fn lookup(&self, directory: &Handle, name: &Name) -> Result<v3::LookupOk, Error> {
        self.simple(&v3::Lookup { directory: directory.clone(), name: name.clone() }).await
    }

    /// ACCESS: which of `rights` the caller has.
    pub async fn access(&self, file: &Handle, rights: u32) -> Result<u32, Error> {
        Ok(self.simple(&v3::Access { file: file.clone(), rights }).await?.rights)
    }

    /// READLINK: what a symbolic link points to.
    pub async fn readlink(&self, link: &Handle) -> Result<Path, Error> {
        Ok(self.simple(&v3::ReadLink { link: link.clone() }).await?.path)
    }

    /// READ: up to `count` bytes.
    pub async fn read(&self, file: &Handle, offset: u64, count: u32) -> Result<ReadOk, Error> {
        let ok = self.simple(&v3::Read { file: file.clone(), offset, count }).await?;
        let data = ok.data.into_bytes();
        if data.len() > count as usize {
            return Err(Error::Nonsense { procedure: "READ", what: "returned more bytes than were asked for" });
        }
        Ok(ReadOk { attributes: ok.attributes, end: ok.end, data })
    }

    /// READ into the caller's buffer, as many bytes as it holds. If the transport places data directly, the bytes
    /// arrive in this very buffer, and it comes back as [`ItemData::Placed`]. If the server answers JUKEBOX ("try again
    /// later"), the caller has to try again.
    pub async fn read_into(&self, file: &Handle, offset: u64, buffer: Buffer) -> Result<ReadOk<ItemData>, Error> {
        let count = u32::try_from(buffer.capacity()).unwrap_or(u32::MAX);
        let call = v3::Read { file: file.clone(), offset, count };
        let outcome = self.exchange(&call, Some(buffer)).await?;
        outcome.answer.into_result().map_err(|failure| self.refused::<v3::Read, _>(&failure))
    }

    /// WRITE: puts bytes into a file. The server may take fewer.
    pub async fn write(&self, file: &Handle, offset: u64, stability: Stability, data: Bytes) -> Result<WriteOk, Error> {
        let len = data.len();
        let ok = self.simple(&v3::Write { file: file.clone(), offset, stability, data }).await?;
        if ok.count as usize > len {
            return Err(Error::Nonsense { procedure: "WRITE", what: "wrote more bytes than it was given" });
        }
        if ok.count == 0 && len > 0 {
            return Err(Error::Nonsense { procedure: "WRITE", what: "wrote nothing and gave no reason" });
        }
        Ok(ok)
    }

    /// CREATE: makes a regular file, or uses one that exists, as `how` says.
    pub async fn create(&self, directory: &Handle, name: &Name, how: v3::CreateHow) -> Result<Created, Error> {
        retransmitted::created(self, &v3::Create { directory: directory.clone(), name: name.clone(), how }).await
    }

    /// MKDIR: makes a directory.
    pub async fn mkdir(&self, directory: &Handle, name: &Name, attributes: NewAttributes) -> Result<Created, Error> {
        let call = v3::MakeDirectory { directory: directory.clone(), name: name.clone(), attributes };
        retransmitted::created(self, &call).await
    }

    /// SYMLINK: makes a symbolic link.
    pub async fn symlink(
        &self,
        directory: &Handle,
        name: &Name,
        attributes: NewAttributes,
        path: &Path,
    ) -> Result<Created, Error> {
        let (directory, name, path) = (directory.clone(), name.clone(), path.clone());
        retransmitted::created(self, &v3::SymbolicLink { directory, name, attributes, path }).await
    }

    /// MKNOD: makes a special file.
    pub async fn mknod(&self, directory: &Handle, name: &Name, kind: v3::NodeKind) -> Result<Created, Error> {
        retransmitted::created(self, &v3::MakeNode { directory: directory.clone(), name: name.clone(), kind }).await
    }

    /// REMOVE: removes a name of a file that is not a directory.
    pub async fn remove(&self, directory: &Handle, name: &Name) -> Result<WeakCache, Error> {
        let call = v3::Remove { directory: directory.clone(), name: name.clone() };
        retransmitted::removed(self, &call, directory, name).await
    }

    /// RMDIR: removes an empty directory.
    pub async fn rmdir(&self, directory: &Handle, name: &Name) -> Result<WeakCache, Error> {
        let call = v3::RemoveDirectory { directory: directory.clone(), name: name.clone() };
        retransmitted::removed(self, &call, directory, name).await
    }

    /// RENAME: gives a file another name; an existing file of that name is replaced.
    pub async fn rename(
        &self,
        from_directory: &Handle,
        from: &Name,
        to_directory: &Handle,
        to: &Name,
    ) -> Result<RenameInfo, Error> {
        let call = v3::Rename {
            from_directory: from_directory.clone(),
            from: from.clone(),
            to_directory: to_directory.clone(),
            to: to.clone(),
        };
        retransmitted::renamed(self, &call).await
    }

    /// LINK: gives a file a further name.
    pub async fn link(&self, file: &Handle, directory: &Handle, name: &Name) -> Result<LinkInfo, Error> {
        let call = v3::Link { file: file.clone(), directory: directory.clone(), name: name.clone() };
        retransmitted::linked(self, &call).await
    }

    /// READDIR: names in a directory, after `cookie`.
    pub async fn readdir(
        &self,
        directory: &Handle,
        cookie: u64,
        verifier: Verifier,
        count: u32,
    ) -> Result<v3::ReadDirectoryOk, Error> {
        self.simple(&v3::ReadDirectory { directory: directory.clone(), cookie, verifier, count }).await
    }

    /// READDIRPLUS: names, attributes and handles, after `cookie`.
    pub async fn readdirplus(
        &self,
        directory: &Handle,
        cookie: u64,
        verifier: Verifier,
        count: u32,
    ) -> Result<v3::ReadDirectoryPlusOk, Error> {
        let directory = directory.clone();
        self.simple(&v3::ReadDirectoryPlus { directory, cookie, verifier, directory_count: count, max_count: count })
            .await
    }

    /// FSSTAT: how much of the file system is used.
    pub async fn fsstat(&self, root: &Handle) -> Result<v3::FileSystemStatusOk, Error> {
        self.simple(&v3::FileSystemStatus { root: root.clone() }).await
    }

    /// FSINFO: what the file system can do.
    pub async fn fsinfo(&self, root: &Handle) -> Result<v3::FileSystemInfoOk, Error> {
        self.simple(&v3::FileSystemInfo { root: root.clone() }).await
    }

    /// PATHCONF: limits of names and links.
    pub async fn pathconf(&self, file: &Handle) -> Result<v3::PathConfigurationOk, Error> {
        self.simple(&v3::PathConfiguration { file: file.clone() }).await
    }

    /// COMMIT: makes unstable writes durable. If the verifier differs from the verifier of the writes, the server has
    /// lost them.
    pub async fn commit(&self, file: &Handle, offset: u64, count: u32) -> Result<v3::CommitOk, Error> {
        self.simple(&v3::Commit { file: file.clone(), offset, count }).await
    }

    /// The sizes in which to move data, from FSINFO and the transport's limits.
    pub async fn transfer(&self, root: &Handle) -> Result<Transfer, Error> {
        let info = self.fsinfo(root).await?;
        let limit = |server: u32, transport: usize| {
            let ours = v3::MAX_TRANSFER_BYTES.min(transport.saturating_sub(HEADROOM_BYTES)).max(1);
            server.max(1).min(u32::try_from(ours).unwrap_or(u32::MAX))
        };
        Ok(Transfer {
            read: limit(info.read_max, self.client.max_results()),
            write: limit(info.write_max, self.client.max_args()),
            directory: limit(info.directory_preferred.clamp(4096, 64 << 10), self.client.max_results()),
        })
    }
}

/// Bytes of arguments or results, without the data of a WRITE or READ.
const HEADROOM_BYTES: usize = 512;
