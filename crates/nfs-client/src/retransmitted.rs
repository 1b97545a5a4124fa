//! Calls that must not be executed twice, but may have been.
//!
//! After a reconnection the client sends a call again. If the server has forgotten that it executed the call (it was
//! restarted, or its duplicate request cache is full), it then answers that the name already exists, or no longer
//! exists. If the state on the server is the one that the call should bring about, the call has succeeded. The client
//! checks this only for calls that were sent more than once.

use crate::{Error, Nfs3};
use rpcrdma_nfs::{
    Call,
    v3::{
        Answer, Create, Created, FileType, Handle, Link, LinkInfo, LookupOk, MakeDirectory, MakeNode, Name, NodeKind,
        Rename, RenameInfo, Status, SymbolicLink, WeakCache,
    },
};

/// A call that creates a file, and can decide whether a file is the one that it would create.
pub(crate) trait Creates: Call<Reply = Answer<Created, WeakCache>> {
    fn place(&self) -> (&Handle, &Name);
    async fn made(&self, nfs: &Nfs3, found: &LookupOk) -> Result<bool, Error>;
}

fn has_type(found: &LookupOk, file_type: FileType) -> bool {
    found.attributes.as_ref().is_some_and(|attributes| attributes.file_type == file_type)
}

impl Creates for Create {
    fn place(&self) -> (&Handle, &Name) {
        (&self.directory, &self.name)
    }

    /// A new file is empty and has one name. So if another client has created the file and filled it, the client does
    /// not take it for its own.
    async fn made(&self, _: &Nfs3, found: &LookupOk) -> Result<bool, Error> {
        Ok(has_type(found, FileType::Regular) && found.attributes.as_ref().is_some_and(|a| a.size == 0 && a.links == 1))
    }
}

impl Creates for MakeDirectory {
    fn place(&self) -> (&Handle, &Name) {
        (&self.directory, &self.name)
    }

    async fn made(&self, _: &Nfs3, found: &LookupOk) -> Result<bool, Error> {
        Ok(has_type(found, FileType::Directory))
    }
}

impl Creates for SymbolicLink {
    fn place(&self) -> (&Handle, &Name) {
        (&self.directory, &self.name)
    }

    async fn made(&self, nfs: &Nfs3, found: &LookupOk) -> Result<bool, Error> {
        Ok(has_type(found, FileType::Symlink) && nfs.readlink(&found.file).await? == self.path)
    }
}

impl Creates for MakeNode {
    fn place(&self) -> (&Handle, &Name) {
        (&self.directory, &self.name)
    }

    async fn made(&self, _: &Nfs3, found: &LookupOk) -> Result<bool, Error> {
        Ok(match &self.kind {
            NodeKind::Block(_, device) => {
                has_type(found, FileType::Block) && found.attributes.as_ref().is_some_and(|a| a.device == *device)
            }
            NodeKind::Character(_, device) => {
                has_type(found, FileType::Character) && found.attributes.as_ref().is_some_and(|a| a.device == *device)
            }
            NodeKind::Socket(_) => has_type(found, FileType::Socket),
            NodeKind::Fifo(_) => has_type(found, FileType::Fifo),
            NodeKind::Other(_) => false,
        })
    }
}

/// Makes a file.
pub(crate) async fn created<C: Creates>(nfs: &Nfs3, call: &C) -> Result<Created, Error> {
    let outcome = nfs.call(call).await?;
    let failure = match outcome.answer.into_result() {
        Ok(created) => return Ok(created),
        Err(failure) => failure,
    };
    if outcome.retransmitted && failure.status == Status::EXIST {
        let (directory, name) = call.place();
        let found = nfs.lookup(directory, name).await?;
        if call.made(nfs, &found).await? {
            tracing::debug!(name = %name.as_slice().escape_ascii(), "a retransmitted call had succeeded before");
            return Ok(Created { file: Some(found.file), attributes: found.attributes, directory: failure.info });
        }
    }
    Err(nfs.refused::<C, _>(&failure))
}

/// The file of a name, if the name exists.
async fn exists(nfs: &Nfs3, directory: &Handle, name: &Name) -> Result<Option<LookupOk>, Error> {
    match nfs.lookup(directory, name).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a name.
pub(crate) async fn removed<C>(nfs: &Nfs3, call: &C, directory: &Handle, name: &Name) -> Result<WeakCache, Error>
where
    C: Call<Reply = Answer<WeakCache, WeakCache>>,
{
    let outcome = nfs.call(call).await?;
    match outcome.answer.into_result() {
        Ok(directory) => Ok(directory),
        Err(failure)
            if outcome.retransmitted
                && failure.status == Status::NOENT
                && exists(nfs, directory, name).await?.is_none() =>
        {
            tracing::debug!(name = %name.as_slice().escape_ascii(), "a retransmitted call had succeeded before");
            Ok(failure.info)
        }
        Err(failure) => Err(nfs.refused::<C, _>(&failure)),
    }
}

/// Gives a file another name.
pub(crate) async fn renamed(nfs: &Nfs3, call: &Rename) -> Result<RenameInfo, Error> {
    let outcome = nfs.call(call).await?;
    match outcome.answer.into_result() {
        Ok(info) => Ok(info),
        Err(failure)
            if outcome.retransmitted
                && failure.status == Status::NOENT
                && exists(nfs, &call.from_directory, &call.from).await?.is_none()
                && exists(nfs, &call.to_directory, &call.to).await?.is_some() =>
        {
            tracing::debug!(from = %call.from.as_slice().escape_ascii(), to = %call.to.as_slice().escape_ascii(), "a retransmitted call had succeeded before");
            Ok(failure.info)
        }
        Err(failure) => Err(nfs.refused::<Rename, _>(&failure)),
    }
}

/// Gives a file a further name.
pub(crate) async fn linked(nfs: &Nfs3, call: &Link) -> Result<LinkInfo, Error> {
    let outcome = nfs.call(call).await?;
    let failure = match outcome.answer.into_result() {
        Ok(info) => return Ok(info),
        Err(failure) => failure,
    };
    if outcome.retransmitted && failure.status == Status::EXIST {
        let ours = nfs.getattr(&call.file).await?;
        let theirs = exists(nfs, &call.directory, &call.name).await?.and_then(|found| found.attributes);
        if theirs.is_some_and(|theirs| (theirs.file_system, theirs.file_id) == (ours.file_system, ours.file_id)) {
            tracing::debug!(name = %call.name.as_slice().escape_ascii(), "a retransmitted call had succeeded before");
            return Ok(failure.info);
        }
    }
    Err(nfs.refused::<Link, _>(&failure))
}
