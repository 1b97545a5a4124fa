//! Over TCP, with the server's calls in the reverse direction.

use crate::{
    every::{every_operation, mode, more_of_minor_2, name},
    house::SECRET,
};
use rpcrdma_env::{Heap, tokio_env};
use rpcrdma_nfs::v4::{PROGRAM, VERSION, ops::LockKind};
use rpcrdma_nfs_client::v4::{Access, CALLBACK_SLOTS, Callbacks, How, Nfs4, Options};
use rpcrdma_nfsd::{Export, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory, Version4};
use rpcrdma_oncrpc::{
    Client, Router, SysAuth, SysCredential,
    tcp::{self, Endpoint, ServerOptions, TcpConnector},
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpListener;

async fn serve() -> (SocketAddr, tempfile::TempDir) {
    let env = tokio_env().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(scratch.path().join("state"), &*env.random).unwrap();
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", Arc::new(MemoryFs::new(64 << 20, &env))).with_identities(identities);
    let nfsd = Nfsd::new(vec![export], SECRET, &env).unwrap();
    let nfsd = nfsd.with_version_4(Version4::new(&state, Queue::in_place()), true, &env).unwrap();
    tokio::spawn(nfsd.upkeep());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let handler = nfsd.nfs();
        for id in 1.. {
            let (io, peer) = listener.accept().await.unwrap();
            let endpoint = Endpoint { peer, local: address, id, allocator: Arc::new(Heap) };
            let mut options = ServerOptions::default();
            options.reverse_calls = 16;
            let (_, driver) = tcp::serve(io, endpoint, handler.clone(), env.clock.clone(), options);
            tokio::spawn(driver);
        }
    });
    (address, scratch)
}

async fn client(address: SocketAddr, minor: u32) -> Nfs4 {
    let env = tokio_env().unwrap();
    let callbacks = Callbacks::new();
    let mut options = tcp::ClientOptions::default();
    let handler = Arc::new(Router::new(&env).with_service(callbacks.service()));
    options.reverse = Some(tcp::Reverse { handler, calls: CALLBACK_SLOTS as usize });
    let connector = Arc::new(TcpConnector::new(address));
    let (transport, driver) = tcp::connect(connector, Arc::new(Heap), &env, options).await.unwrap();
    tokio::spawn(driver);
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    let rpc = Client::new(transport, identity, PROGRAM, VERSION);
    let options = Options::new("test").with_minors(minor..=minor).with_callbacks(callbacks);
    let nfs = Nfs4::connect(rpc, &env, options).await.unwrap();
    tokio::spawn(nfs.driver());
    nfs
}

#[tokio::test]
async fn every_operation_over_tcp() {
    for minor in 0..=2 {
        let (address, _scratch) = serve().await;
        let nfs = client(address, minor).await;
        let root = nfs.root().await.unwrap().file;
        every_operation(&nfs, &root).await;
        if minor == 2 {
            more_of_minor_2(&nfs, &root).await;
        }
    }
}

/// proves: ULB-6.2-a
#[tokio::test]
async fn a_waiting_lock_is_had_when_the_server_calls() {
    let (address, _scratch) = serve().await;
    let (has, waits) = (client(address, 2).await, client(address, 2).await);
    let root = has.root().await.unwrap().file;
    let (ours, _) = has.open(&root, &name("file"), Access::Both, How::Unchecked(mode(0o666))).await.unwrap();
    let (theirs, _) = waits.open(&root, &name("file"), Access::Both, How::Existing).await.unwrap();
    has.lock(&ours, LockKind::Write, 0, u64::MAX).await.unwrap();
    let waiting = waits.lock_when_free(&theirs, LockKind::Write, 0, u64::MAX);
    let unlock = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        has.unlock(&ours, 0, u64::MAX).await.unwrap();
    };
    let (locked, ()) = tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(waiting, unlock) })
        .await
        .expect("the lock can be had");
    locked.unwrap();
}
