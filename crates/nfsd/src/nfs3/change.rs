//! Procedures that change something.

use super::{
    Execution, check_name, is_dot,
    tell::{Tell, answer, failure, refused},
};
use crate::{
    CreateHow, New, NodeKind, Via,
    claims::{Access, Kind},
    opened::Opened,
};
use rpcrdma_nfs::{
    attr::NewAttributes,
    v3::{self, Answer, Created, Failure, LinkInfo, Name, RenameInfo, Status, WeakCache},
};

impl Execution {
    // NFS3-1813-3.3.2-a
    pub(crate) async fn set_attributes(self, args: v3::SetAttributes) -> Answer<WeakCache, WeakCache> {
        let opened = match self.open_to_change(&args.file) {
            Ok(opened) => opened,
            Err(status) => return Answer::Failed(refused(status)),
        };
        if args.attributes.size.is_some()
            && let Err(status) = self.may(&opened, Access::WRITE).await
        {
            return Answer::Failed(refused(status));
        }
        let _using = match self.using(&opened, Kind::Write).await {
            Ok(using) => using,
            Err(status) => return Answer::Failed(refused(status)),
        };
        let Opened { file_system, file, caller, .. } = opened;
        let changed = file_system
            .set_attributes(Via::caller(caller, file), args.attributes.into(), args.guard.map(Into::into))
            .await;
        answer(changed.map(WeakCache::tell).map_err(failure))
    }

    // NFS3-1813-3.3.7-a
    pub(crate) async fn write(self, args: v3::Write) -> Answer<v3::WriteOk, WeakCache> {
        let opened = match self.open_to_change(&args.file) {
            Ok(opened) => opened,
            Err(status) => return Answer::Failed(refused(status)),
        };
        if let Err(status) = self.may(&opened, Access::WRITE).await {
            return Answer::Failed(refused(status));
        }
        let _using = match self.using(&opened, Kind::Write).await {
            Ok(using) => using,
            Err(status) => return Answer::Failed(refused(status)),
        };
        let Opened { file_system, file, caller, .. } = opened;
        // Before the write: a loss after this moment changes the verifier.
        let verifier = self.server.write_verifier(&*file_system);
        let written = file_system.write(Via::caller(caller, file), args.offset, args.data, args.stability.into()).await;
        let told = written.map(|written| v3::WriteOk {
            file: written.file.into(),
            count: u32::try_from(written.count).unwrap_or(u32::MAX),
            committed: written.committed.into(),
            verifier,
        });
        answer(told.map_err(failure))
    }

    // NFS3-1813-3.3.21-a
    pub(super) async fn commit(self, args: v3::Commit) -> Answer<v3::CommitOk, WeakCache> {
        let Opened { file_system, file, caller, .. } = match self.open(&args.file) {
            Ok(opened) => opened,
            Err(status) => return Answer::Failed(refused(status)),
        };
        let committed = file_system.commit(Via::caller(caller, file), args.offset, args.count).await;
        // After the wait for the disk: a loss before that moment has changed the verifier.
        let verifier = self.server.write_verifier(&*file_system);
        answer(committed.map(|file| v3::CommitOk { file: file.into(), verifier }).map_err(failure))
    }

    // NFS3-1813-3.3.8-a
    pub(crate) async fn create(self, args: v3::Create) -> Answer<Created, WeakCache> {
        answer(self.make(&args.directory, args.name, New::File(how(args.how))).await)
    }

    pub(crate) async fn make_directory(self, args: v3::MakeDirectory) -> Answer<Created, WeakCache> {
        answer(self.make(&args.directory, args.name, New::Directory(args.attributes.into())).await)
    }

    pub(crate) async fn symbolic_link(self, args: v3::SymbolicLink) -> Answer<Created, WeakCache> {
        let path = args.path.0;
        if path.is_empty() || path.contains(&0) {
            return Answer::Failed(refused(Status::INVAL));
        }
        answer(self.make(&args.directory, args.name, New::Symlink(args.attributes.into(), path)).await)
    }

    pub(crate) async fn make_node(self, args: v3::MakeNode) -> Answer<Created, WeakCache> {
        let (kind, new) = match args.kind {
            v3::NodeKind::Block(new, device) => (NodeKind::Block(device.into()), new),
            v3::NodeKind::Character(new, device) => (NodeKind::Character(device.into()), new),
            v3::NodeKind::Socket(new) => (NodeKind::Socket, new),
            v3::NodeKind::Fifo(new) => (NodeKind::Fifo, new),
            v3::NodeKind::Other(_) => return Answer::Failed(refused(Status::BADTYPE)),
        };
        answer(self.make(&args.directory, args.name, New::Node(kind, new.into())).await)
    }

    async fn make(&self, directory: &v3::Handle, name: Name, new: New) -> Result<Created, Failure<WeakCache>> {
        let opened = self.open_to_change(directory).map_err(refused)?;
        check_name(&opened, &name).map_err(refused)?;
        if is_dot(name.as_slice()) {
            return Err(refused(Status::EXIST));
        }
        let mut _using = None;
        if let New::File(CreateHow::Unchecked(NewAttributes { size: Some(_), .. })) = new {
            self.may_cut(&opened, &name).await.map_err(refused)?;
            _using = self.using_name(&opened, &name).await.map_err(refused)?;
        }
        let made = opened.file_system.make(opened.caller.clone(), opened.file, name.0, new).await.map_err(failure)?;
        Ok(Created {
            file: Some(self.server.handle(&opened, made.file)),
            attributes: made.attributes.map(Into::into),
            directory: made.directory.into(),
        })
    }

    /// CREATE of an existing name may truncate its file.
    async fn may_cut(&self, directory: &Opened, name: &Name) -> Result<(), Status> {
        let found = directory.file_system.lookup(directory.caller.clone(), directory.file, name.0.clone()).await;
        match found {
            Ok(found) => self.may(&Opened { file: found.file, ..directory.clone() }, Access::WRITE).await,
            // CREATE itself returns the error.
            Err(_) => Ok(()),
        }
    }

    pub(crate) async fn remove(self, args: v3::Remove) -> Answer<WeakCache, WeakCache> {
        answer(self.unlink(&args.directory, args.name, false).await)
    }

    pub(crate) async fn remove_directory(self, args: v3::RemoveDirectory) -> Answer<WeakCache, WeakCache> {
        answer(self.unlink(&args.directory, args.name, true).await)
    }

    async fn unlink(
        &self,
        directory: &v3::Handle,
        name: Name,
        is_directory: bool,
    ) -> Result<WeakCache, Failure<WeakCache>> {
        let opened = self.open_to_change(directory).map_err(refused)?;
        check_name(&opened, &name).map_err(refused)?;
        match name.as_slice() {
            b".." if is_directory => return Err(refused(Status::EXIST)),
            b"." | b".." => return Err(refused(Status::INVAL)),
            _ => {}
        }
        self.not_covered(&opened, &name).await.map_err(refused)?;
        let _using = self.using_name(&opened, &name).await.map_err(refused)?;
        let Opened { file_system, file, caller, .. } = opened;
        file_system.remove(caller, file, name.0, is_directory).await.map(WeakCache::tell).map_err(failure)
    }

    /// Fails if an export begins at a name: clients of version 4 would not find that export any more.
    async fn not_covered(&self, directory: &Opened, name: &Name) -> Result<(), Status> {
        match self.server.border_at(directory, name.as_slice()).await {
            Some(_) => Err(Status::ACCES),
            None => Ok(()),
        }
    }

    // NFS3-1813-3.3.14-a
    pub(crate) async fn rename(self, args: v3::Rename) -> Answer<RenameInfo, RenameInfo> {
        answer(self.try_rename(args).await)
    }

    async fn try_rename(&self, args: v3::Rename) -> Result<RenameInfo, Failure<RenameInfo>> {
        let from = self.open_to_change(&args.from_directory).map_err(refused)?;
        let to = self.open_to_change(&args.to_directory).map_err(refused)?;
        if from.export != to.export {
            return Err(refused(Status::XDEV));
        }
        for name in [&args.from, &args.to] {
            check_name(&from, name).map_err(refused)?;
            if is_dot(name.as_slice()) {
                return Err(refused(Status::INVAL));
            }
        }
        for (directory, name) in [(&from, &args.from), (&to, &args.to)] {
            self.not_covered(directory, name).await.map_err(refused)?;
        }
        let _using = (
            self.using_name(&from, &args.from).await.map_err(refused)?,
            self.using_name(&to, &args.to).await.map_err(refused)?,
        );
        let Opened { file_system, file, caller, .. } = from;
        let renamed = file_system.rename(caller, (file, args.from.0), (to.file, args.to.0)).await;
        renamed.map(RenameInfo::tell).map_err(failure)
    }

    pub(crate) async fn link(self, args: v3::Link) -> Answer<LinkInfo, LinkInfo> {
        answer(self.try_link(args).await)
    }

    async fn try_link(&self, args: v3::Link) -> Result<LinkInfo, Failure<LinkInfo>> {
        let file = self.open_to_change(&args.file).map_err(refused)?;
        let directory = self.open_to_change(&args.directory).map_err(refused)?;
        if file.export != directory.export {
            return Err(refused(Status::XDEV));
        }
        check_name(&directory, &args.name).map_err(refused)?;
        if is_dot(args.name.as_slice()) {
            return Err(refused(Status::EXIST));
        }
        let _using = self.using(&file, Kind::Write).await.map_err(refused)?;
        let Opened { file_system, caller, .. } = directory;
        let linked = file_system.link(caller, file.file, directory.file, args.name.0).await;
        linked.map(LinkInfo::tell).map_err(failure)
    }
}

fn how(how: v3::CreateHow) -> CreateHow {
    match how {
        v3::CreateHow::Unchecked(new) => CreateHow::Unchecked(new.into()),
        v3::CreateHow::Guarded(new) => CreateHow::Guarded(new.into()),
        v3::CreateHow::Exclusive(verifier) => CreateHow::Exclusive(verifier.0, NewAttributes::default()),
    }
}
