//! The server's process: the real one, with NFS in versions 2 and 3 and MOUNT on the same fabric, and a disk that
//! outlives it.

use super::{SERVER, Scene, disk::Disk};
use crate::{lock, scratch::scratch};
use rpcrdma_fabric::Fabric;
use rpcrdma_nfsd::{Export, Identities, Nfsd, Queue, SECRET_BYTES, Squash, StateDirectory};
use rpcrdma_oncrpc::Handler;
use rpcrdma_sim::Task;
use rpcrdma_transport::{Quiet, Server as Transport, ServerMemory, ServerOptions};
use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;

/// Where NFS and MOUNT listen.
pub(super) const NFS: SocketAddr = SocketAddr::new(SERVER, 20_049);
pub(super) const MOUNT: SocketAddr = SocketAddr::new(SERVER, 20_048);
/// Bytes for calls.
const MEMORY_BYTES: usize = 4 << 20;

pub(super) struct Server {
    scene: Scene,
    fabric: Arc<dyn Fabric>,
    disk: Arc<Disk>,
    scratch: TempDir,
    tasks: Arc<Mutex<Vec<Task<()>>>>,
}

impl Server {
    pub(super) fn new(scene: &Scene, fabric: Arc<dyn Fabric>, disk: Arc<Disk>) -> Self {
        let server = Self { scene: scene.clone(), fabric, disk, scratch: scratch(), tasks: Arc::default() };
        server.start();
        server
    }

    fn start(&self) {
        let env = self.scene.world.env();
        let state = StateDirectory::open(self.scratch.path(), &*env.random).expect("a state directory");
        let everybody = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", self.disk.clone()).with_identities(everybody);
        let nfsd = Nfsd::new(vec![export], [7; SECRET_BYTES], &env).expect("one export");
        let nfsd = nfsd.with_version_2((&state, 1, Queue::in_place()), true, &env).expect("a table of handles");
        self.listen(NFS, nfsd.nfs());
        self.listen(MOUNT, nfsd.mount());
    }

    fn listen(&self, address: SocketAddr, handler: Arc<dyn Handler>) {
        let (world, fabric, tasks) = (self.scene.world.clone(), self.fabric.clone(), self.tasks.clone());
        let listening = self.scene.world.spawn(async move {
            let memory = ServerMemory::budget(MEMORY_BYTES);
            let options = ServerOptions::default();
            let server = Transport::new(&*fabric, handler, memory, world.env(), options, Arc::new(Quiet));
            let mut listener = fabric.listen(address).await.expect("a port");
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let server = server.clone();
                let connection = world.spawn(async move {
                    if let Ok((_, driver)) = server.accept(pending).await {
                        let _ = driver.await;
                    }
                });
                lock(&tasks).push(connection);
            }
        });
        lock(&self.tasks).push(listening);
    }

    /// Ends the server's tasks, and with them everything that is not on the disk.
    pub(super) fn stop(&self) {
        lock(&self.tasks).drain(..).for_each(|task| task.abort());
    }

    pub(super) async fn restart(&self, away: Duration) {
        let world = &self.scene.world;
        self.stop();
        world.crash(SERVER);
        self.scene.checks.restarts();
        self.disk.loses_power().await;
        world.sleep(away).await;
        world.restart(SERVER);
        self.start();
    }
}
