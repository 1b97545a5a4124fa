//! Names: REMOVE, RENAME, LINK.
//!
//! A session executes each call once. But if the session was lost with its memory, or there is none (minor version 0),
//! an earlier attempt may have been executed. Then the client compares "does not exist" and "exists" with the
//! directory: if the directory is as the call would leave it, the call has succeeded.

use super::{
    Error, Found, Nfs4,
    compound::{Plan, put},
    reply::{Reply, done},
};
use rpcrdma_nfs::v4::{Args, ChangeInfo, Handle, Name, Op, Status, ops};

impl Nfs4 {
    /// REMOVE: removes a name, of a directory only if it is empty. `None` if an earlier attempt had done it.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn remove(&self, directory: &Handle, name: &Name) -> Result<Option<ChangeInfo>, Error> {
        let ops = [put(directory), Args::Remove(ops::Remove { name: name.clone() })];
        let mut reply = self.inner.perform(Plan::changes(Op::Remove), None, &mut |_| Ok(ops.to_vec())).await?;
        match done!(reply, Remove) {
            Ok(ok) => Ok(Some(ok.directory)),
            Err(error) => {
                let was_done =
                    is_doubtful(&reply, Op::Remove, Status::NOENT) && self.exists(directory, name).await?.is_none();
                done_before(was_done, error)
            }
        }
    }

    /// RENAME: gives a file another name; an existing file of that name is replaced. `None` if an earlier attempt had
    /// done it.
    pub async fn rename(
        &self,
        from_directory: &Handle,
        from: &Name,
        to_directory: &Handle,
        to: &Name,
    ) -> Result<Option<ops::RenameOk>, Error> {
        let rename = Args::Rename(ops::Rename { from: from.clone(), to: to.clone() });
        let ops = [put(from_directory), Args::SaveFh, put(to_directory), rename];
        let mut reply = self.inner.perform(Plan::changes(Op::Rename), None, &mut |_| Ok(ops.to_vec())).await?;
        match done!(reply, Rename) {
            Ok(ok) => Ok(Some(ok)),
            Err(error) => {
                let was_done = is_doubtful(&reply, Op::Rename, Status::NOENT)
                    && self.exists(from_directory, from).await?.is_none()
                    && self.exists(to_directory, to).await?.is_some();
                done_before(was_done, error)
            }
        }
    }

    /// LINK: gives a file a further name. `None` if an earlier attempt had done it.
    pub async fn link(&self, file: &Handle, directory: &Handle, name: &Name) -> Result<Option<ChangeInfo>, Error> {
        let link = Args::Link(ops::Link { name: name.clone() });
        let ops = [put(file), Args::SaveFh, put(directory), link];
        let mut reply = self.inner.perform(Plan::changes(Op::Link), None, &mut |_| Ok(ops.to_vec())).await?;
        match done!(reply, Link) {
            Ok(ok) => Ok(Some(ok.directory)),
            Err(error) => {
                let mut was_done = false;
                if is_doubtful(&reply, Op::Link, Status::EXIST) {
                    let ours = self.getattr(file).await?;
                    let theirs = self.exists(directory, name).await?;
                    was_done = theirs.is_some_and(|Found { attributes: theirs, .. }| {
                        (theirs.file_system, theirs.file_id) == (ours.file_system, ours.file_id)
                    });
                }
                done_before(was_done, error)
            }
        }
    }

    /// The file of a name, if there is one.
    pub(super) async fn exists(&self, directory: &Handle, name: &Name) -> Result<Option<Found>, Error> {
        match self.lookup(directory, name).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.status() == Some(Status::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether an earlier execution of the same call could be the cause of this failure.
pub(super) fn is_doubtful(reply: &Reply, op: Op, status: Status) -> bool {
    reply.is_repeated && reply.failed.is_some_and(|failed| (failed.op, failed.status) == (op, status))
}

fn done_before<T>(was_done: bool, error: Error) -> Result<Option<T>, Error> {
    if !was_done {
        return Err(error);
    }
    tracing::debug!("a call had been executed before its reply was lost");
    Ok(None)
}
