//! Exports, and the server that is made of them.
//!
//! ```no_run
//! # use rpcrdma_nfsd::{DirectoryFs, Export, Nfsd, Queue, StateDirectory};
//! # use std::{path::Path, sync::Arc};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let env: rpcrdma_env::Env = todo_env();
//! let state = StateDirectory::open("/var/lib/rpcrdma", &*env.random)?;
//! let directory = DirectoryFs::open(Path::new("/srv"), &state, Queue::in_place(), &env)?;
//! let export = Export::new("/", Arc::new(directory)).with_allow(vec!["192.0.2.0/24".parse()?]);
//! let server = Nfsd::new(vec![export], state.secret(), &env)?;
//! let (nfs, mount, upkeep) = (server.nfs(), server.mount(), server.upkeep());
//! # Ok(()) }
//! # fn todo_env() -> rpcrdma_env::Env { unreachable!() }
//! ```

use crate::{
    Cidr, FileSystem, Identities, Origin, SECRET_OCTETS,
    borders::Borders,
    claims::Claims,
    handle::Seal,
    mount::{Mount, MountTable},
    nfs3::Nfs3,
    nfs4::{Counts, Nfs4, PseudoFs, Shared, Version4, Version4Error},
    nfsacl::NfsAcl,
    opened::PSEUDO,
    stranger::Stranger,
    trouble::Troubles,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Clock, Env};
use rpcrdma_oncrpc::{Handler, Router};
use siphasher::sip::SipHasher24;
use std::{
    hash::Hasher,
    net::IpAddr,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

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

/// An NFS server with its MOUNT service.
pub struct Nfsd {
    nfs: Arc<dyn Handler>,
    mount: Arc<dyn Handler>,
    file_systems: Vec<Arc<dyn FileSystem>>,
    server: Arc<Server>,
    clock: Arc<dyn Clock>,
}

/// How often version 4 looks for what is due: leases that are over, the end of the grace period.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

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
            if export.id == PSEUDO {
                return Err(ConfigError::Ambiguous { first: export.path.clone(), second: Bytes::from_static(b"/") });
            }
            if let Some(other) = exports[..at].iter().find(|other| other.id == export.id) {
                return Err(ConfigError::Ambiguous { first: other.path.clone(), second: export.path.clone() });
            }
        }
        let file_systems = exports.iter().map(|export| export.file_system.clone()).collect();
        let pseudo = Arc::new(PseudoFs::new(&exports));
        let server = Arc::new(Server {
            borders: Borders::new(&exports),
            exports,
            claims: Claims::new(env.clock.clone()),
            version_4: OnceLock::new(),
            pseudo,
            seal: Seal::new(secret),
            boot: env.random.next_u64(),
            mounts: MountTable::default(),
            troubles: Troubles::new(env.clock.clone()),
        });
        let nfs = server.version_3(Router::new(env));
        let mount = Router::new(env)
            .with_service(Arc::new(Mount::version_3(server.clone())))
            .with_service(Arc::new(Mount::version_1(server.clone())));
        Ok(Self { nfs: Arc::new(nfs), mount: Arc::new(mount), file_systems, server, clock: env.clock.clone() })
    }

    /// Serves version 4, too; version 3 only if `version_3`. Opens the journal of clients, and waits for the disk.
    ///
    /// # Errors
    /// If the journal cannot be used.
    pub fn with_version_4(mut self, version_4: Version4, version_3: bool, env: &Env) -> Result<Self, Version4Error> {
        let shared = version_4.start(env, self.server.claims.clone())?;
        let mut nfs = Router::new(env);
        if version_3 {
            nfs = self.server.version_3(nfs);
        }
        nfs = nfs.with_service(Arc::new(Nfs4 { server: self.server.clone(), shared: shared.clone() }));
        self.nfs = Arc::new(nfs);
        let _ = self.server.version_4.set(shared);
        Ok(self)
    }

    /// What clients hold on files, which all versions ask: for protocols of the program's own.
    pub fn claims(&self) -> &Claims {
        &self.server.claims
    }

    /// A connection is gone: sessions of version 4 do not belong to it any more. Its number is that of its
    /// [`Connection`](rpcrdma_oncrpc::Connection), which has to be its own among all of the process.
    pub fn connection_ended(&self, connection: u64) {
        if let Some(shared) = self.server.version_4.get() {
            shared.connection_ended(connection);
        }
    }

    #[cfg(test)]
    pub(crate) fn shared_of_version_4(&self) -> &Arc<Shared> {
        self.server.version_4.get().unwrap()
    }

    /// How much version 4 keeps for clients, if it is served.
    pub fn version_4_counts(&self) -> Option<Counts> {
        self.server.version_4.get().map(|shared| {
            let (recalls, revocations) = shared.delegations.totals();
            let (copies, copied) = shared.copies.now();
            let [expired_opens, expired_locks, expired_delegations] = shared.losses.totals();
            Counts {
                recalls,
                revocations,
                expired_opens,
                expired_locks,
                expired_delegations,
                copies,
                copied,
                ..shared.state.counts()
            }
        })
    }

    /// What executes calls to NFS, for every transport.
    pub fn nfs(&self) -> Arc<dyn Handler> {
        self.nfs.clone()
    }

    /// What has to be done from time to time, in all exports. The program drives it as long as it serves.
    pub fn upkeep(&self) -> BoxFuture<'static, ()> {
        let mut parts: Vec<_> = self.file_systems.iter().map(|file_system| file_system.upkeep()).collect();
        if let Some(shared) = self.server.version_4.get() {
            if let Some(tasks) = shared.tasks.driver() {
                parts.push(Box::pin(tasks));
            }
            let (shared, clock) = (Arc::downgrade(shared), self.clock.clone());
            parts.push(Box::pin(async move {
                loop {
                    clock.sleep_until(clock.now() + SWEEP_INTERVAL).await;
                    let Some(shared) = shared.upgrade() else { return };
                    let of_sweep = shared.clone();
                    let swept = shared.on_worker(Origin::LOCAL, move |_| {
                        of_sweep.sweep();
                        Ok(())
                    });
                    let _ = swept.await;
                }
            }));
        }
        Box::pin(std::future::poll_fn(move |cx| {
            parts.retain_mut(|part| part.as_mut().poll(cx).is_pending());
            if parts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    /// Writes what [`upkeep`](Self::upkeep) would have written a little later. A program that stops waits for it, when it has answered all
    /// calls: a client that has left is not waited for after the next start, and nobody else has to wait until the time for it is over.
    pub fn settle(&self) -> BoxFuture<'static, ()> {
        let Some(shared) = self.server.version_4.get().cloned() else { return Box::pin(std::future::ready(())) };
        Box::pin(async move {
            let settled = shared.on_worker(Origin::LOCAL, |shared| {
                shared.state.settle(shared.now());
                Ok(())
            });
            let _ = settled.await;
        })
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

impl Server {
    /// Adds version 3, and NFSACL: on the same connections (ULB-4.2-a), so that nobody asks rpcbind for it.
    fn version_3(self: &Arc<Self>, nfs: Router) -> Router {
        nfs.with_service(Arc::new(Nfs3 { server: self.clone() }))
            .with_service(Arc::new(NfsAcl { server: self.clone() }))
    }
}

/// What the services share.
pub(crate) struct Server {
    pub(crate) exports: Vec<Export>,
    /// Where exports lie in others.
    pub(crate) borders: Borders,
    pub(crate) seal: Seal,
    /// Tells this start of the server from others.
    pub(crate) boot: u64,
    pub(crate) mounts: MountTable,
    pub(crate) troubles: Troubles,
    /// What clients hold on files, of whichever version.
    pub(crate) claims: Claims,
    /// Version 4, if it is served.
    pub(crate) version_4: OnceLock<Arc<Shared>>,
    /// The tree above the exports, for version 4.
    pub(crate) pseudo: Arc<PseudoFs>,
}
