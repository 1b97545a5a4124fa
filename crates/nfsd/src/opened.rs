//! Files that clients name by handles, or by names above the exports: each with its export and its caller.

use crate::{
    Caller, Export, Fault, FileId, FileSystem, Identities, Origin, ReadData, Securities, Squash, Told, Via,
    claims::{Access, Asker, Client, FileKey, Kind, Using},
    handle::Target,
    nfs3,
    nfs4::InTheWay,
    nlm::Lockd,
    server::Server,
};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::{
    attr::Attributes,
    v3::{Handle, Status, Verifier},
};
use rpcrdma_oncrpc::{Arrival, CallContext, Credential};
use std::sync::Arc;

/// Marks the handle of a directory in the tree above the exports.
pub(crate) const PSEUDO: u32 = u32::MAX;

/// A file that a client has named, and the caller.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) file_system: Arc<dyn FileSystem>,
    pub(crate) file: FileId,
    pub(crate) caller: Caller,
    pub(crate) read_only: bool,
    pub(crate) export: u32,
    /// Whether the export takes the flavour of the call.
    pub(crate) is_taken: bool,
    /// Which calls came with the present one, if it has looked at nothing before that its answer has to agree with.
    pub(crate) arrival: Option<Arrival>,
    /// Whether the connection has something else to do while the call is executed.
    pub(crate) is_followed: bool,
}

impl Opened {
    /// The file's attributes, if they are known without waiting.
    pub(crate) fn attributes_at_once(&self) -> Option<Result<Attributes, Fault>> {
        self.file_system.attributes_at_once(self.file, self.arrival)
    }

    /// The file's attributes.
    pub(crate) async fn attributes(&self) -> Result<Attributes, Fault> {
        match self.attributes_at_once() {
            Some(attributes) => attributes,
            None => self.file_system.attributes(self.caller.clone(), self.file).await,
        }
    }

    /// The file's size, if it is known without waiting.
    pub(crate) fn size_at_once(&self) -> Option<u64> {
        self.attributes_at_once()?.ok().map(|attributes| attributes.size)
    }

    /// Reads at most `count` bytes from `offset` into `buffer`, which has room for `count`.
    pub(crate) async fn read(&self, via: Via, offset: u64, count: usize, buffer: Buffer) -> Told<ReadData> {
        let via = via.arrived(self.arrival).followed(self.is_followed);
        self.file_system.read(via, offset, count, buffer).await
    }
}

impl Server {
    /// The file of a handle of version 3, for the caller of a call.
    pub(crate) fn open(&self, context: &CallContext, handle: &Handle) -> Result<Opened, Status> {
        match self.open_handle(context, handle.as_slice()) {
            // Version 3 enters exports by MOUNT and knows no tree above them.
            Ok(opened) if opened.export == PSEUDO => Err(Status::STALE),
            other => other.map_err(nfs3::status),
        }
    }

    /// What a handle of any version names, if this server has made it.
    pub(crate) fn target(&self, handle: &[u8]) -> Option<Target> {
        let of_2 = || {
            let file_system_of = |id| {
                let export = self.exports.iter().find(|export| export.id == id)?;
                Some(export.file_system.id())
            };
            self.version_2.get()?.target(handle, file_system_of)
        };
        self.seal.open_bytes(handle).or_else(of_2)
    }

    /// The file of a handle, whichever version has handed it out.
    pub(crate) fn open_handle(&self, context: &CallContext, handle: &[u8]) -> Result<Opened, Fault> {
        let target = self.target(handle).ok_or(Fault::BadId)?;
        if target.export == PSEUDO {
            let opened = self.in_pseudo(context, target.file);
            return if opened.file_system.id() == target.file_system { Ok(opened) } else { Err(Fault::Stale) };
        }
        let export = self.exports.iter().find(|export| export.id == target.export).ok_or(Fault::Stale)?;
        if export.file_system.id() != target.file_system {
            return Err(if export.allows(context.connection.peer.ip()) { Fault::Stale } else { Fault::Denied });
        }
        self.open_in(context, export, target.file)
    }

    pub(crate) fn open_in(&self, context: &CallContext, export: &Export, file: FileId) -> Result<Opened, Fault> {
        if !export.allows(context.connection.peer.ip()) {
            return Err(Fault::Denied);
        }
        let is_taken = export.securities.take(&context.credential);
        // The export does not take this flavour: its caller may claim to be any user, so it acts as the anonymous user.
        let credential = if is_taken { &context.credential } else { &Credential::None };
        Ok(Opened {
            file_system: export.file_system.clone(),
            file,
            caller: export.identities.caller(credential).from_origin(Origin::of(context)),
            read_only: export.read_only,
            export: export.id,
            is_taken,
            arrival: context.arrival,
            is_followed: context.is_followed,
        })
    }

    /// A directory of the tree above the exports.
    fn in_pseudo(&self, context: &CallContext, file: FileId) -> Opened {
        let identities = Identities { squash: Squash::All, ..Identities::default() };
        Opened {
            file_system: self.pseudo.clone(),
            file,
            caller: identities.caller(&context.credential).from_origin(Origin::of(context)),
            read_only: true,
            export: PSEUDO,
            is_taken: !self.is_choosy || self.securities_below(context, file).take(&context.credential),
            arrival: context.arrival,
            is_followed: context.is_followed,
        }
    }

    /// The flavours that a directory of the tree above the exports takes: all flavours of the exports below it that
    /// this client may use.
    fn securities_below(&self, context: &CallContext, directory: FileId) -> Securities {
        let client = context.connection.peer.ip();
        let below = self.pseudo.exports_below(directory).into_iter().filter_map(|place| self.exports.get(place));
        let mut all: Vec<_> =
            below.filter(|export| export.allows(client)).flat_map(|export| export.securities.iter()).collect();
        // The strongest first, as no administrator has chosen an order.
        all.sort_by_key(|one| std::cmp::Reverse(*one));
        Securities::new(all)
    }

    /// The flavours that the server takes for a file.
    pub(crate) fn securities(&self, context: &CallContext, file: &Opened) -> Securities {
        match self.exports.iter().find(|export| export.id == file.export) {
            Some(export) => export.securities.clone(),
            None => self.securities_below(context, file.file),
        }
    }

    /// Whether a call of version 3 for a file has a flavour that its export takes. Before a client knows the flavour,
    /// it may ask some things of the root itself in any flavour (RFC 2623 section 2.3.2). A client that may not use the
    /// export at all gets that error instead.
    pub(crate) fn takes(&self, context: &CallContext, handle: &Handle, asks_of_root: bool) -> bool {
        let Ok(opened) = self.open_handle(context, handle.as_slice()) else { return true };
        opened.is_taken || asks_of_root && opened.file == opened.file_system.root()
    }

    /// Where version 4 begins: the root of the export `/`, or of the tree above all exports.
    pub(crate) fn root(&self, context: &CallContext) -> Result<Opened, Fault> {
        let root = self.pseudo.root();
        match self.pseudo.root_export().and_then(|place| self.exports.get(place)) {
            Some(export) => match self.arrive(context, root) {
                Err(Fault::NotFound) => self.open_in(context, export, export.file_system.root()),
                arrived => arrived,
            },
            None => Ok(self.in_pseudo(context, root)),
        }
    }

    /// What a client finds at a directory of the tree above the exports: the export that begins there, if the client
    /// may use it; else the directory, if the client may use an export below it. The client sees nothing else.
    fn arrive(&self, context: &CallContext, directory: FileId) -> Result<Opened, Fault> {
        let client = context.connection.peer.ip();
        let is_allowed = |place: usize| self.exports.get(place).is_some_and(|export| export.allows(client));
        // NFS4-BORDER-b
        match self.pseudo.export_at(directory).filter(|place| is_allowed(*place)) {
            Some(place) => self.cross(context, place),
            None if self.pseudo.exports_below(directory).into_iter().any(is_allowed) => {
                Ok(self.in_pseudo(context, directory))
            }
            None => Err(Fault::NotFound),
        }
    }

    /// What a name in the tree above the exports leads to, if the directory is there.
    pub(crate) fn enter(
        &self,
        context: &CallContext,
        directory: &Opened,
        name: &[u8],
    ) -> Option<Result<Opened, Fault>> {
        if directory.export != PSEUDO {
            return None;
        }
        Some(self.pseudo.find(directory.file, name).and_then(|found| self.arrive(context, found)))
    }

    /// The directory above the root of an export or of the tree above the exports; `None` for every other directory.
    pub(crate) async fn leave(&self, context: &CallContext, directory: &Opened) -> Option<Result<Opened, Fault>> {
        if directory.file != directory.file_system.root() {
            return None;
        }
        let place = self.exports.iter().position(|export| export.id == directory.export);
        let place = place.filter(|place| self.pseudo.root_export() != Some(*place));
        // Nothing is above the root (RFC 8881 section 18.14.3).
        let Some(place) = place else { return Some(Err(Fault::NotFound)) };
        if let Some(above) = self.cross_back(context, place).await {
            return Some(Ok(above));
        }
        let above = self.pseudo.above(place).map(|file| self.in_pseudo(context, file));
        Some(above.ok_or(Fault::NotFound))
    }

    /// The number of the directory above the exports that a file covers, if it is the root of an export below.
    pub(crate) fn covered(&self, file: &Opened) -> Option<u64> {
        if file.export == PSEUDO || file.file != file.file_system.root() {
            return None;
        }
        let place = self.exports.iter().position(|export| export.id == file.export)?;
        self.pseudo.covered(place).filter(|_| self.pseudo.root_export() != Some(place))
    }

    /// The handle of a file in the same export as another.
    pub(crate) fn handle(&self, beside: &Opened, file: FileId) -> Handle {
        let file_system = beside.file_system.id();
        self.seal.handle(&Target { export: beside.export, file_system, file })
    }

    /// Whether a caller without an open may read or write a file. If opens of version 4 clients whose leases are over
    /// are in the way, the server takes these clients' claims on the file first.
    ///
    /// # Errors
    /// If the caller may not.
    pub(crate) async fn may(&self, file: &Opened, access: Access) -> Result<(), InTheWay> {
        let key = FileKey { file_system: file.file_system.id(), file: file.file };
        let may = match self.version_4.get() {
            Some(shared) => shared.may(file.caller.origin, key, access, None).await,
            None => self.claims.may(key, access, Asker::Anonymous).map_err(|_| InTheWay::Holder),
        };
        // A call of version 3 does not say which program of the host makes it: a share of one program there does not
        // exclude the others.
        let is_own = |lockd: Arc<Lockd>| lockd.are_own_shares(file.caller.origin, key, access);
        match may {
            // NLM-SHARE-b
            Err(InTheWay::Holder) if self.lockd().is_some_and(is_own) => Ok(()),
            may => may,
        }
    }

    /// [`may`](Self::may) and [`using`](Self::using) for a caller who reads a file without an open, if nothing is in
    /// the way.
    pub(crate) fn may_read_at_once(&self, file: &Opened) -> Option<Using> {
        let key = FileKey { file_system: file.file_system.id(), file: file.file };
        self.claims.may(key, Access::READ, Asker::Anonymous).ok()?;
        self.claims.recall(key, None, Kind::Read).ok()
    }

    /// A caller is about to use a file: a client of version 4, or an unknown user. The server recalls the delegations
    /// that are in the way.
    ///
    /// # Errors
    /// If a delegation in the way has not come back at once.
    pub(crate) async fn using(&self, file: &Opened, user: Option<Client>, kind: Kind) -> Result<Using, InTheWay> {
        let key = FileKey { file_system: file.file_system.id(), file: file.file };
        match self.version_4.get() {
            Some(shared) => shared.using(key, user, kind).await,
            None => self.claims.recall(key, user, kind).map_err(|_| InTheWay::Delegation),
        }
    }

    /// The same for the file, if there is one, whose name a caller is about to remove or replace.
    ///
    /// # Errors
    /// As [`using`](Self::using).
    pub(crate) async fn using_name(
        &self,
        directory: &Opened,
        name: &Bytes,
        user: Option<Client>,
    ) -> Result<Option<Using>, InTheWay> {
        if !self.claims.delegates() {
            return Ok(None);
        }
        // To look a name up costs as much as to change it.
        if let Some(using) = self.claims.undelegated() {
            return Ok(Some(using));
        }
        let found = directory.file_system.lookup(directory.caller.clone(), directory.file, name.clone()).await;
        match found {
            Ok(found) => {
                let file = Opened { file: found.file, ..directory.clone() };
                self.using(&file, user, Kind::Write).await.map(Some)
            }
            // The caller's own operation returns the error.
            Err(_) => Ok(None),
        }
    }

    /// Tells clients whether unstable writes have been lost: it changes when the server starts, and when writes were
    /// lost.
    pub(crate) fn write_verifier(&self, file_system: &dyn FileSystem) -> Verifier {
        Verifier(self.boot.wrapping_add(file_system.losses()).to_be_bytes())
    }
}
