//! The MOUNT service, versions 1 to 3 (RFC 1094 appendix A, RFC 1813 appendix I): it turns a path into the handle of a
//! directory.
//!
//! The longest export that a path begins with is the path's export. The server looks up the rest of the path name by
//! name, as the caller, and follows no symbolic links. Versions 1 and 2 give out handles of NFS version 2: if the
//! server does not serve that version, MNT of version 1 refuses, and version 2 does not exist. Their lists and their
//! UMNT are the same as in version 3. The list of mounts holds what clients have announced; it is bounded, and nothing
//! depends on it. A client sees only the exports that it may use and its own mounts: it learns neither who else uses
//! the server nor who else may.

use crate::{Caller, Export, FileId, Origin, nfs3, opened::Opened, server::Server, trouble::Subject};
use bytes::Bytes;
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::{
    attr::FileType,
    mount::{self, DirectoryPath, MountReply, MountReply1, Status, procedure},
    v3,
};
use rpcrdma_oncrpc::{Answer, CallContext, Credential, Service};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder};
use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// The most mounts that the table keeps; the oldest go first.
pub(crate) const MAX_MOUNTS: usize = 256;

/// Which clients have announced which mounts.
#[derive(Default)]
pub(crate) struct MountTable(Mutex<Vec<(IpAddr, Bytes)>>);

impl MountTable {
    fn change(&self, change: impl FnOnce(&mut Vec<(IpAddr, Bytes)>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn add(&self, client: IpAddr, path: Bytes) {
        let entry = (client, path);
        self.change(|mounts| {
            mounts.retain(|mount| *mount != entry);
            if mounts.len() == MAX_MOUNTS {
                mounts.remove(0);
            }
            mounts.push(entry);
        });
    }

    /// What one client has announced.
    fn of(&self, client: IpAddr) -> mount::Mounts {
        let mut all = Vec::new();
        // NFS3-ACL-c
        self.change(|mounts| all.extend(mounts.iter().filter(|(host, _)| *host == client).cloned()));
        let entry = |(client, path): (IpAddr, Bytes)| mount::MountEntry {
            host: client.to_string().into(),
            path: DirectoryPath(path),
        };
        mount::Mounts(all.into_iter().map(entry).collect())
    }
}

/// The service of one version.
pub(crate) struct Mount {
    server: Arc<Server>,
    version: u32,
}

impl Mount {
    pub(crate) fn version_3(server: Arc<Server>) -> Self {
        Self { server, version: mount::VERSION_3 }
    }

    pub(crate) fn version_2(server: Arc<Server>) -> Self {
        Self { server, version: mount::VERSION_2 }
    }

    pub(crate) fn version_1(server: Arc<Server>) -> Self {
        Self { server, version: mount::VERSION_1 }
    }
}

/// Path components, without empty ones.
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|octet| *octet == b'/').filter(|name| !name.is_empty())
}

/// The names of a path that follow the export's path; `None` if the path is not in the export.
fn rest_behind<'a>(export: &Export, path: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let mut names = components(path);
    for expected in components(&export.path) {
        if names.next()? != expected {
            return None;
        }
    }
    Some(names.collect())
}

impl Server {
    /// The export that a path is in, and the names that follow the export's path.
    pub(crate) fn export_of<'a>(&self, path: &'a [u8]) -> Option<(Vec<&'a [u8]>, &Export)> {
        if path.first() != Some(&b'/') {
            return None;
        }
        let behind = |export| rest_behind(export, path).map(|rest| (rest, export));
        self.exports.iter().filter_map(behind).min_by_key(|(rest, _)| rest.len())
    }
}

/// Fails with a status of NFS: MOUNT has fewer statuses, and the log has to show which error it was.
async fn find(server: &Server, asking: &Asking, path: &[u8]) -> Result<(v3::Handle, Vec<u32>), v3::Status> {
    let (rest, export) = server.export_of(path).ok_or(v3::Status::NOENT)?;
    if !export.allows(asking.client) {
        return Err(v3::Status::ACCES);
    }
    // Clients mostly call MOUNT with AUTH_SYS, whichever flavour they use for NFS. If the export does not take
    // AUTH_SYS, the look-up runs as the anonymous user.
    let credential = &asking.context.credential;
    let said = if export.securities.take(credential) { credential } else { &Credential::None };
    // NFS3-MNT-a
    let caller = export.identities.caller(said).from_origin(asking.origin);
    let mut file = export.file_system.root();
    for name in rest {
        file = step(export, caller.clone(), file, name).await?;
    }
    let attributes = export.file_system.attributes(caller.clone(), file).await.map_err(nfs3::status)?;
    if attributes.file_type != FileType::Directory {
        return Err(v3::Status::NOTDIR);
    }
    let opened = Opened {
        file_system: export.file_system.clone(),
        file,
        caller,
        read_only: export.read_only,
        export: export.id,
        is_taken: true,
        arrival: None,
        is_followed: false,
    };
    Ok((server.handle(&opened, file), export.securities.numbers()))
}

/// One step of the path, as the caller. If the caller may not search a directory, MNT shows no more of its contents
/// than LOOKUP does, and returns no handle from below it.
async fn step(export: &Export, caller: Caller, directory: FileId, name: &[u8]) -> Result<FileId, v3::Status> {
    if matches!(name, b"." | b"..") || name.contains(&0) {
        return Err(v3::Status::INVAL);
    }
    let found = export.file_system.lookup(caller, directory, Bytes::copy_from_slice(name)).await;
    found.map(|found| found.file).map_err(|failure| nfs3::status(failure.fault))
}

fn to_mount_status(status: v3::Status) -> Status {
    match status {
        v3::Status::PERM => Status::PERM,
        v3::Status::NOENT | v3::Status::STALE => Status::NOENT,
        v3::Status::ACCES => Status::ACCES,
        v3::Status::NOTDIR => Status::NOTDIR,
        v3::Status::INVAL => Status::INVAL,
        v3::Status::NAMETOOLONG => Status::NAMETOOLONG,
        v3::Status::IO => Status::IO,
        _ => Status::SERVERFAULT,
    }
}

/// The exports that a client may use.
fn exports(server: &Server, client: IpAddr) -> mount::Exports {
    let entry = |export: &Export| mount::Export {
        path: DirectoryPath(export.path.clone()),
        groups: export.allow.iter().map(|range| Bytes::from(range.to_string())).collect(),
    };
    // NFS3-ACL-c
    mount::Exports(server.exports.iter().filter(|export| export.allows(client)).map(entry).collect())
}

pub(crate) fn results(value: &impl Encode) -> Answer {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    Answer::Results(encoder.finish())
}

fn decode<A: Decode>(mut args: Decoder) -> Result<A, Answer> {
    let value = A::decode(&mut args)?;
    args.finish()?;
    Ok(value)
}

impl Service for Mount {
    fn program(&self) -> u32 {
        mount::PROGRAM
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn is_idempotent(&self, _: u32) -> bool {
        true
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        let (server, version) = (self.server.clone(), self.version);
        Box::pin(async move {
            let client = context.connection.peer.ip().to_canonical();
            let asking = Asking { client, origin: Origin::of(&context), context };
            execute(&server, version, &asking, procedure, args).await.unwrap_or_else(|answer| answer)
        })
    }
}

/// The client that asks, and its call.
struct Asking {
    client: IpAddr,
    origin: Origin,
    context: CallContext,
}

/// MNT of the versions that go with NFS version 2. Their reply has no room for flavours: a client that needs another
/// flavour must know it beforehand.
async fn mount_2(server: &Server, asking: &Asking, path: Bytes) -> MountReply1 {
    let found = async {
        if server.version_2.get().is_none() {
            return Err(v3::Status::ACCES);
        }
        let (root, _) = find(server, asking, &path).await?;
        server.handle_2(&asking.context, &root).await
    };
    match found.await {
        Ok(root) => {
            server.mounts.add(asking.client, Bytes::copy_from_slice(&path));
            MountReply1::Ok(root.0)
        }
        Err(cause) => MountReply1::Failed(match refuse(server, asking, path, cause) {
            Status::SERVERFAULT => Status::IO.0,
            Status(error_number) => error_number,
        }),
    }
}

/// Reports a mount that is refused.
fn refuse(server: &Server, asking: &Asking, path: Bytes, cause: v3::Status) -> Status {
    let (client, status) = (asking.client, to_mount_status(cause));
    tracing::debug!(%client, path = %path.escape_ascii(), %status, "mount refused");
    let (client, name) = (asking.origin.connection, Some(path));
    server.answered(cause, || Subject { procedure: "MNT", errors: "NFS3ERR_", client, file: None, name });
    status
}

async fn execute(
    server: &Server,
    version: u32,
    asking: &Asking,
    procedure: u32,
    args: Decoder,
) -> Result<Answer, Answer> {
    let client = asking.client;
    Ok(match procedure {
        procedure::MOUNT => {
            let mount::Mount { path } = decode(args)?;
            if version != mount::VERSION_3 {
                return Ok(results(&mount_2(server, asking, path.0).await));
            }
            results(&match find(server, asking, &path.0).await {
                Ok((root, flavors)) => {
                    server.mounts.add(client, Bytes::copy_from_slice(&path.0));
                    MountReply::Ok { root, flavors }
                }
                Err(cause) => MountReply::Failed(refuse(server, asking, path.0, cause)),
            })
        }
        procedure::DUMP => {
            decode::<mount::ListMounts>(args)?;
            results(&server.mounts.of(client))
        }
        procedure::UNMOUNT => {
            let mount::Unmount { path } = decode(args)?;
            let entry = (client, path.0);
            server.mounts.change(|mounts| mounts.retain(|mount| *mount != entry));
            results(&())
        }
        procedure::UNMOUNT_ALL => {
            decode::<()>(args)?;
            server.mounts.change(|mounts| mounts.retain(|(host, _)| *host != client));
            results(&())
        }
        procedure::EXPORT => {
            decode::<mount::ListExports>(args)?;
            results(&exports(server, client))
        }
        procedure::EXPORT_ALL if version != mount::VERSION_3 => {
            decode::<mount::ListExports>(args)?;
            results(&exports(server, client))
        }
        _ => Answer::ProcUnavail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_mounts_is_bounded_and_names_each_once() {
        let table = MountTable::default();
        let client = IpAddr::from([127, 0, 0, 1]);
        let path = |n: usize| Bytes::from(format!("/{n}"));
        for n in 0..MAX_MOUNTS {
            table.add(client, path(n));
            table.add(client, path(n));
        }
        assert_eq!(table.of(client).0.len(), MAX_MOUNTS);
        assert_eq!(table.of(client).0[0].path.0, path(0));
        table.add(client, path(MAX_MOUNTS));
        let list = table.of(client).0;
        assert_eq!((list.len(), &list[0].path.0), (MAX_MOUNTS, &path(1)));
    }
}
