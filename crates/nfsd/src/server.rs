//! Exports, and the server that is made of them.
//!
//! ```no_run
//! # use rpcrdma_nfsd::{DirectoryFs, Export, InPlace, Nfsd, StateDirectory};
//! # use std::{path::Path, sync::Arc};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let env: rpcrdma_env::Env = todo_env();
//! let state = StateDirectory::open("/var/lib/rpcrdma", &*env.random)?;
//! let directory = DirectoryFs::open(Path::new("/srv"), &state, Arc::new(InPlace), &env)?;
//! let export = Export::new("/", Arc::new(directory)).with_allow(vec!["192.0.2.0/24".parse()?]);
//! let server = Nfsd::new(vec![export], state.secret(), &env)?;
//! let (nfs, mount, upkeep) = (server.nfs(), server.mount(), server.upkeep());
//! # Ok(()) }
//! # fn todo_env() -> rpcrdma_env::Env { unreachable!() }
//! ```

use crate::{
    Caller, Cidr, Fault, FileId, FileSystem, Identities, Origin, SECRET_OCTETS,
    handle::{Seal, Target},
    mount::{Mount, MountTable},
    nfs3::Nfs3,
    stranger::Stranger,
    trouble::Troubles,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Env};
use rpcrdma_nfs::{
    attr::Attributes,
    v3::{Handle, Status, Verifier},
};
use rpcrdma_oncrpc::{CallContext, Handler, Router};
use siphasher::sip::SipHasher24;
use std::{hash::Hasher, net::IpAddr, sync::Arc, task::Poll};

/// A file system as clients may use it.
#[derive(Clone)]
pub struct Export {
    pub(crate) path: Bytes,
    pub(crate) file_system: Arc<dyn FileSystem>,
    pub(crate) read_only: bool,
    pub(crate) identities: Identities,
    pub(crate) allow: Vec<Cidr>,
    pub(crate) id: u32,
}

impl Export {
    /// Exports a file system by the path that clients mount. Everybody may read and write; the superuser is squashed.
    pub fn new(path: impl AsRef<[u8]>, file_system: Arc<dyn FileSystem>) -> Self {
        let path = Bytes::copy_from_slice(path.as_ref());
        // A fixed key: the number only has to be the same after a restart and to differ between exports.
        let mut hasher = SipHasher24::new_with_key(&[0; 16]);
        hasher.write(&path);
        let id = hasher.finish() as u32;
        Self { path, file_system, read_only: false, identities: Identities::default(), allow: Vec::new(), id }
    }

    /// Nothing can be changed through it.
    pub fn with_read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// As whom callers act.
    pub fn with_identities(mut self, identities: Identities) -> Self {
        self.identities = identities;
        self
    }

    /// Only clients in these ranges may use it; without any, all may.
    pub fn with_allow(mut self, allow: Vec<Cidr>) -> Self {
        self.allow = allow;
        self
    }

    pub(crate) fn allows(&self, client: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|range| range.contains(client))
    }
}

/// What is wrong with a list of exports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A path is not absolute.
    #[error("the export path \"{}\" does not begin with a slash", .path.escape_ascii())]
    NotAbsolute {
        /// The path.
        path: Bytes,
    },
    /// Two exports have the same path, or paths that are too alike.
    #[error("the export paths \"{}\" and \"{}\" cannot be told apart", .first.escape_ascii(), .second.escape_ascii())]
    Ambiguous {
        /// One path.
        first: Bytes,
        /// The other.
        second: Bytes,
    },
}

/// An NFS version 3 server with its MOUNT service.
pub struct Nfsd {
    nfs: Arc<dyn Handler>,
    mount: Arc<dyn Handler>,
    file_systems: Vec<Arc<dyn FileSystem>>,
}

impl Nfsd {
    /// Serves `exports`, with handles under `secret`. The write verifier is a new one each time.
    ///
    /// # Errors
    /// If the exports cannot be told apart.
    pub fn new(exports: Vec<Export>, secret: [u8; SECRET_OCTETS], env: &Env) -> Result<Self, ConfigError> {
        for (at, export) in exports.iter().enumerate() {
            if export.path.first() != Some(&b'/') {
                return Err(ConfigError::NotAbsolute { path: export.path.clone() });
            }
            if let Some(other) = exports[..at].iter().find(|other| other.id == export.id) {
                return Err(ConfigError::Ambiguous { first: other.path.clone(), second: export.path.clone() });
            }
        }
        let file_systems = exports.iter().map(|export| export.file_system.clone()).collect();
        let server = Arc::new(Server {
            exports,
            seal: Seal::new(secret),
            boot: env.random.next_u64(),
            mounts: MountTable::default(),
            troubles: Troubles::new(env.clock.clone()),
        });
        let nfs = Router::new(env).with_service(Arc::new(Nfs3 { server: server.clone() }));
        let mount = Router::new(env)
            .with_service(Arc::new(Mount::version_3(server.clone())))
            .with_service(Arc::new(Mount::version_1(server)));
        Ok(Self { nfs: Arc::new(nfs), mount: Arc::new(mount), file_systems })
    }

    /// What executes calls to NFS, for every transport.
    pub fn nfs(&self) -> Arc<dyn Handler> {
        self.nfs.clone()
    }

    /// What has to be done from time to time, in all exports. The program drives it as long as it serves.
    pub fn upkeep(&self) -> BoxFuture<'static, ()> {
        let mut parts: Vec<_> = self.file_systems.iter().map(|file_system| file_system.upkeep()).collect();
        Box::pin(std::future::poll_fn(move |cx| {
            parts.retain_mut(|part| part.as_mut().poll(cx).is_pending());
            if parts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    /// What executes calls to MOUNT.
    pub fn mount(&self) -> Arc<dyn Handler> {
        self.mount.clone()
    }

    /// What answers the calls of a client that may use no export, to NFS and to MOUNT: it executes none, and tells
    /// nothing but that. A program that knows such clients by their addresses serves them with it, and needs no memory
    /// for their calls beyond the largest that it wants to answer.
    pub fn stranger(&self) -> Arc<dyn Handler> {
        Arc::new(Stranger)
    }
}

/// What the services share.
pub(crate) struct Server {
    pub(crate) exports: Vec<Export>,
    pub(crate) seal: Seal,
    /// Tells this start of the server from others.
    boot: u64,
    pub(crate) mounts: MountTable,
    pub(crate) troubles: Troubles,
}

/// A file that a client has named, and as whom.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) file_system: Arc<dyn FileSystem>,
    pub(crate) file: FileId,
    pub(crate) caller: Caller,
    pub(crate) read_only: bool,
    pub(crate) export: u32,
}

impl Opened {
    /// The file's attributes.
    pub(crate) async fn attributes(&self) -> Result<Attributes, Fault> {
        self.file_system.attributes(self.caller.clone(), self.file).await
    }
}

impl Server {
    /// The file of a handle, for the caller of a call.
    pub(crate) fn open(&self, context: &CallContext, handle: &Handle) -> Result<Opened, Status> {
        let target = self.seal.open(handle).ok_or(Status::BADHANDLE)?;
        let export = self.exports.iter().find(|export| export.id == target.export).ok_or(Status::STALE)?;
        if !export.allows(context.connection.peer.ip()) {
            return Err(Status::ACCES);
        }
        if export.file_system.id() != target.file_system {
            return Err(Status::STALE);
        }
        Ok(Opened {
            file_system: export.file_system.clone(),
            file: target.file,
            caller: export.identities.caller(&context.credential).from_origin(Origin::of(context)),
            read_only: export.read_only,
            export: export.id,
        })
    }

    /// The handle of a file in the same export as another.
    pub(crate) fn handle(&self, beside: &Opened, file: FileId) -> Handle {
        let file_system = beside.file_system.id();
        self.seal.handle(&Target { export: beside.export, file_system, file })
    }

    /// Says whether unstable writes have been lost: it changes when the server starts, and when they were.
    pub(crate) fn write_verifier(&self, file_system: &dyn FileSystem) -> Verifier {
        Verifier(self.boot.wrapping_add(file_system.losses()).to_be_bytes())
    }
}
