//! The server's process: the real one, with a disk that outlives it: a file system in memory, and a state directory.

use super::{LEASE, SERVER, Scene};
use crate::{lock, scratch::scratch};
use rpcrdma_fabric::Fabric as _;
use rpcrdma_nfs::v4::{Op, Status};
use rpcrdma_nfsd::{
    Export, Identities, MemoryFs, Nfsd, Observer, Queue, SECRET_BYTES, Squash, StateDirectory, Version4,
};
use rpcrdma_sim::Task;
use rpcrdma_transport::{Quiet, Server as Transport, ServerMemory, ServerOptions};
use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;

/// Where it listens.
pub(super) const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20_049);
/// Calls that the server may have under way on a connection.
const CALLBACK_CREDITS: u32 = 16;
/// Bytes of its file system, and of memory for calls.
const STORAGE_OCTETS: u64 = 128 << 20;
const MEMORY_BYTES: usize = 8 << 20;

/// Counts executed operations, for the checks.
struct Executions(Scene);

impl Observer for Executions {
    fn operation(&self, op: Option<Op>, status: Status, _: Option<Duration>) {
        if let Some(op) = op {
            self.0.checks.note(format!("the server: {op}: {status}"));
            self.0.checks.executed(op, status);
        }
    }
}

pub(super) struct Server {
    scene: Scene,
    storage: Arc<MemoryFs>,
    scratch: TempDir,
    tasks: Arc<Mutex<Vec<Task<()>>>>,
}

impl Server {
    pub(super) fn new(scene: &Scene) -> Self {
        let storage = Arc::new(MemoryFs::new(STORAGE_OCTETS, &scene.world.env()));
        let server = Self { scene: scene.clone(), storage, scratch: scratch(), tasks: Arc::default() };
        server.start();
        server
    }

    fn start(&self) {
        let Scene { world, config, .. } = &self.scene;
        let env = world.env();
        let state = StateDirectory::open(self.scratch.path(), &*env.random).expect("a state directory");
        let version_4 = Version4::new(&state, Queue::in_place()).with_lease(LEASE).with_grace(LEASE);
        let version_4 = version_4.with_observer(Arc::new(Executions(self.scene.clone())));
        let everybody = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", self.storage.clone()).with_identities(everybody);
        let nfsd = Nfsd::new(vec![export], [7; SECRET_BYTES], &env).expect("one export");
        let nfsd = Arc::new(nfsd.with_version_4(version_4, false, &env).expect("a journal"));
        let upkeep = world.spawn(nfsd.upkeep());
        let (tasks, world, config) = (self.tasks.clone(), world.clone(), config.clone());
        let listening = self.scene.world.spawn(async move {
            let fabric = world.fabric_with(SERVER, config);
            let memory = ServerMemory::budget(MEMORY_BYTES);
            let mut options = ServerOptions::default();
            options.reverse_credits = CALLBACK_CREDITS;
            let server = Transport::new(&fabric, nfsd.nfs(), memory, env, options, Arc::new(Quiet));
            let mut listener = fabric.listen(ADDRESS).await.expect("a port");
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let (server, nfsd) = (server.clone(), nfsd.clone());
                let connection = world.spawn(async move {
                    if let Ok((connection, driver)) = server.accept(pending).await {
                        let _ = driver.await;
                        nfsd.connection_ended(connection.id());
                    }
                });
                lock(&tasks).push(connection);
            }
        });
        lock(&self.tasks).extend([upkeep, listening]);
    }

    /// Ends the server's tasks, and with them everything that is not on its disk.
    pub(super) fn stop(&mut self) {
        lock(&self.tasks).drain(..).for_each(|task| task.abort());
    }

    pub(super) async fn restart(&mut self, away: Duration) {
        self.stop();
        let world = self.scene.world.clone();
        world.crash(SERVER);
        world.sleep(away).await;
        world.restart(SERVER);
        self.start();
    }
}
