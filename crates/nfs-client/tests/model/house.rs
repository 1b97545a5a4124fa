//! Our server for all versions, with a disk that outlives its process, and a client of one version.

use rpcrdma_env::{Env, Heap};
use rpcrdma_nfs::{mount, v3, v4};
use rpcrdma_nfs_client::{
    Files, Handle, Nfs3,
    v4::{Nfs4, Options},
};
use rpcrdma_nfsd::{Export, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory, Version4};
use rpcrdma_oncrpc::{
    CallContext, Client, ClientTransport, Connection, GoneSignal, Limits, Outcome, SysAuth, SysCredential,
    TransportKind,
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

const SECRET: [u8; rpcrdma_nfsd::SECRET_BYTES] = [7; rpcrdma_nfsd::SECRET_BYTES];
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// Versions of NFS: 3, and the minor versions of 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Three,
    Four(u32),
}

pub(crate) const EVERY: [Version; 4] = [Version::Three, Version::Four(0), Version::Four(1), Version::Four(2)];

/// The server's process. `lease` is the length of its lease and of its grace period.
pub(crate) fn nfsd(storage: &Arc<MemoryFs>, scratch: &Path, env: &Env, lease: Duration) -> Nfsd {
    let state = StateDirectory::open(scratch.join("state"), &*env.random).unwrap();
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", storage.clone()).with_identities(identities);
    let version_4 = Version4::new(&state, Queue::in_place()).with_lease(lease).with_grace(lease);
    Nfsd::new(vec![export], SECRET, env).unwrap().with_version_4(version_4, true, env).unwrap()
}

/// A client over a transport, a future that must be polled beside it, and the root.
pub(crate) async fn client(
    version: Version,
    transport: Arc<dyn ClientTransport>,
    env: &Env,
    nfsd: &Nfsd,
) -> (Files, Option<Nfs4>, Handle) {
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    match version {
        Version::Three => {
            let nfs = Nfs3::new(Client::new(transport, identity, v3::PROGRAM, v3::VERSION), env.clock.clone());
            (nfs.into(), None, mounted(nfsd).await)
        }
        Version::Four(minor) => {
            let rpc = Client::new(transport, identity, v4::PROGRAM, v4::VERSION);
            let options = Options::new("model").with_minors(minor..=minor);
            let nfs = Nfs4::connect(rpc, env, options).await.unwrap();
            let root = nfs.root().await.unwrap().file;
            (nfs.clone().into(), Some(nfs), Handle::from(&root))
        }
    }
}

/// The handle of the root, from MOUNT.
async fn mounted(nfsd: &Nfsd) -> Handle {
    let (_signal, gone) = GoneSignal::new();
    let limits = Limits::new(1 << 20, 1 << 20);
    let connection = Connection::new(ANYWHERE, ANYWHERE, 0, TransportKind::Tcp, limits, Arc::new(Heap), gone);
    let mut call = Encoder::new();
    for word in [1, 0, 2, mount::PROGRAM, mount::VERSION_3, mount::procedure::MOUNT, 0, 0, 0, 0] {
        call.u32(word);
    }
    mount::Mount { path: mount::DirectoryPath(bytes::Bytes::from_static(b"/")) }.encode(&mut call);
    let stream = Stream::from(call.finish().to_bytes());
    let Outcome::Reply(reply) = nfsd.mount().handle(CallContext::new(Arc::new(connection)), stream).await else {
        panic!("MOUNT is answered")
    };
    let mut reply = Decoder::new(Stream::from(reply.to_bytes()));
    reply.opaque_fixed(24).unwrap();
    match mount::MountReply::decode(&mut reply).unwrap() {
        mount::MountReply::Ok { root, .. } => root.into(),
        failed => panic!("{failed:?}"),
    }
}
