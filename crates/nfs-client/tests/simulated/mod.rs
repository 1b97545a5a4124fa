//! A server on the simulated fabric, whose process can be killed, and transports to it. Time is the simulation's.

use rpcrdma_fabric::Fabric;
use rpcrdma_nfsd::Nfsd;
use rpcrdma_oncrpc::ClientTransport;
use rpcrdma_sim::{SimConfig, Task, World};
use rpcrdma_transport::{ClientOptions, Quiet, Server, ServerMemory, ServerOptions, connect};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

pub(crate) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);

/// The server's process: its tasks end with it.
pub(crate) struct Process {
    tasks: Tasks,
    accepted: Arc<AtomicU64>,
}

type Tasks = Arc<Mutex<Vec<Task<()>>>>;

impl Process {
    pub(crate) fn start(world: &World, nfsd: Arc<Nfsd>, config: SimConfig, options: ServerOptions) -> Self {
        let tasks = Arc::new(Mutex::new(vec![world.spawn(nfsd.upkeep())]));
        let accepted = Arc::<AtomicU64>::default();
        let counts = (tasks.clone(), accepted.clone());
        let listening = world.spawn(listen(world.clone(), nfsd, config, options, counts));
        tasks.lock().unwrap().push(listening);
        Self { tasks, accepted }
    }

    /// How many connections it has accepted.
    #[allow(dead_code, reason = "not all tests that share this count them")]
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub(crate) fn kill(self) {
        self.tasks.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}

async fn listen(
    world: World,
    nfsd: Arc<Nfsd>,
    config: SimConfig,
    options: ServerOptions,
    (tasks, accepted): (Tasks, Arc<AtomicU64>),
) {
    let fabric = world.fabric_with(SERVER, config);
    let memory = ServerMemory::budget(16 << 20);
    let server = Server::new(&fabric, nfsd.nfs(), memory, world.env(), options, Arc::new(Quiet));
    let mut listener = fabric.listen(ADDRESS).await.unwrap();
    loop {
        let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
        accepted.fetch_add(1, Ordering::Relaxed);
        let (server, nfsd) = (server.clone(), nfsd.clone());
        let connection = world.spawn(async move {
            if let Ok((connection, driver)) = server.accept(pending).await {
                let _ = driver.await;
                nfsd.connection_ended(connection.id());
            }
        });
        tasks.lock().unwrap().push(connection);
    }
}

/// A transport of the client's host to the server.
pub(crate) async fn transport(world: &World, config: SimConfig, options: ClientOptions) -> Arc<dyn ClientTransport> {
    let fabric = Arc::new(world.fabric_with(CLIENT, config));
    let (transport, driver) = connect(fabric, ADDRESS, &world.env(), options, Arc::new(Quiet)).await.unwrap();
    world.spawn(async move {
        let _ = driver.await;
    });
    transport
}
