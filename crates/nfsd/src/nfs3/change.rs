//! Procedures that change something.

use super::{Execution, check_name, is_dot};
use crate::{Made, New, failed, server::Opened};
use rpcrdma_nfs::v3::{self, Answer, Created, Failure, LinkInfo, Name, NodeKind, RenameInfo, Status, WeakCache};

fn answer<T, F>(result: Result<T, Failure<F>>) -> Answer<T, F> {
    match result {
        Ok(ok) => Answer::Ok(ok),
        Err(failure) => Answer::Failed(failure),
    }
}

impl Execution {
    pub(super) async fn set_attributes(self, args: v3::SetAttributes) -> Answer<WeakCache, WeakCache> {
        let opened = match self.open_to_change(&args.file) {
            Ok(opened) => opened,
            Err(status) => return Answer::Failed(failed(status)),
        };
        let Opened { file_system, file, caller, .. } = opened;
        answer(file_system.set_attributes(caller, file, args.attributes, args.guard).await)
    }

    pub(super) async fn write(self, args: v3::Write) -> Answer<v3::WriteOk, WeakCache> {
        let Opened { file_system, file, caller, .. } = match self.open_to_change(&args.file) {
            Ok(opened) => opened,
            Err(status) => return Answer::Failed(failed(status)),
        };
        // Before the write: whatever is lost after this moment changes the verifier.
        let verifier = self.server.write_verifier(&*file_system);
        answer(file_system.write(caller, file, args.offset, args.data, args.stability).await.map(|written| {
            v3::WriteOk {
                file: written.file,
                count: u32::try_from(written.count).unwrap_or(u32::MAX),
                committed: written.committed,
                verifier,
            }
        }))
    }

    pub(super) async fn commit(self, args: v3::Commit) -> Answer<v3::CommitOk, WeakCache> {
        let Opened { file_system, file, caller, .. } = match self.open(&args.file) {
            Ok(opened) => opened,
            Err(status) => return Answer::Failed(failed(status)),
        };
        let committed = file_system.commit(caller, file, args.offset, args.count).await;
        // After the disk was waited for: whatever was lost before that moment has changed the verifier.
        let verifier = self.server.write_verifier(&*file_system);
        answer(committed.map(|file| v3::CommitOk { file, verifier }))
    }

    pub(super) async fn create(self, args: v3::Create) -> Answer<Created, WeakCache> {
        answer(self.make(&args.directory, args.name, New::File(args.how)).await)
    }

    pub(super) async fn make_directory(self, args: v3::MakeDirectory) -> Answer<Created, WeakCache> {
        answer(self.make(&args.directory, args.name, New::Directory(args.attributes)).await)
    }

    pub(super) async fn symbolic_link(self, args: v3::SymbolicLink) -> Answer<Created, WeakCache> {
        let path = args.path.0;
        if path.is_empty() || path.contains(&0) {
            return Answer::Failed(failed(Status::INVAL));
        }
        answer(self.make(&args.directory, args.name, New::Symlink(args.attributes, path)).await)
    }

    pub(super) async fn make_node(self, args: v3::MakeNode) -> Answer<Created, WeakCache> {
        if let NodeKind::Other(_) = args.kind {
            return Answer::Failed(failed(Status::BADTYPE));
        }
        answer(self.make(&args.directory, args.name, New::Node(args.kind)).await)
    }

    async fn make(&self, directory: &v3::Handle, name: Name, new: New) -> Result<Created, Failure<WeakCache>> {
        let opened = self.open_to_change(directory).map_err(failed)?;
        check_name(&opened, &name).map_err(failed)?;
        if is_dot(name.as_slice()) {
            return Err(failed(Status::EXIST));
        }
        let Made { file, attributes, directory } =
            opened.file_system.make(opened.caller.clone(), opened.file, name.0, new).await?;
        Ok(Created { file: Some(self.server.handle(&opened, file)), attributes, directory })
    }

    pub(super) async fn remove(self, args: v3::Remove) -> Answer<WeakCache, WeakCache> {
        answer(self.unlink(&args.directory, args.name, false).await)
    }

    pub(super) async fn remove_directory(self, args: v3::RemoveDirectory) -> Answer<WeakCache, WeakCache> {
        answer(self.unlink(&args.directory, args.name, true).await)
    }

    async fn unlink(
        &self,
        directory: &v3::Handle,
        name: Name,
        is_directory: bool,
    ) -> Result<WeakCache, Failure<WeakCache>> {
        let opened = self.open_to_change(directory).map_err(failed)?;
        check_name(&opened, &name).map_err(failed)?;
        match name.as_slice() {
            b".." if is_directory => return Err(failed(Status::EXIST)),
            b"." | b".." => return Err(failed(Status::INVAL)),
            _ => {}
        }
        let Opened { file_system, file, caller, .. } = opened;
        file_system.remove(caller, file, name.0, is_directory).await
    }

    pub(super) async fn rename(self, args: v3::Rename) -> Answer<RenameInfo, RenameInfo> {
        answer(self.try_rename(args).await)
    }

    async fn try_rename(&self, args: v3::Rename) -> Result<RenameInfo, Failure<RenameInfo>> {
        let from = self.open_to_change(&args.from_directory).map_err(failed)?;
        let to = self.open_to_change(&args.to_directory).map_err(failed)?;
        if from.export != to.export {
            return Err(failed(Status::XDEV));
        }
        for name in [&args.from, &args.to] {
            check_name(&from, name).map_err(failed)?;
            if is_dot(name.as_slice()) {
                return Err(failed(Status::INVAL));
            }
        }
        let Opened { file_system, file, caller, .. } = from;
        file_system.rename(caller, (file, args.from.0), (to.file, args.to.0)).await
    }

    pub(super) async fn link(self, args: v3::Link) -> Answer<LinkInfo, LinkInfo> {
        answer(self.try_link(args).await)
    }

    async fn try_link(&self, args: v3::Link) -> Result<LinkInfo, Failure<LinkInfo>> {
        let file = self.open_to_change(&args.file).map_err(failed)?;
        let directory = self.open_to_change(&args.directory).map_err(failed)?;
        if file.export != directory.export {
            return Err(failed(Status::XDEV));
        }
        check_name(&directory, &args.name).map_err(failed)?;
        if is_dot(args.name.as_slice()) {
            return Err(failed(Status::EXIST));
        }
        let Opened { file_system, caller, .. } = directory;
        file_system.link(caller, file.file, directory.file, args.name.0).await
    }
}
