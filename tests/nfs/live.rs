//! A server of NFS and its client in real time, over a provider that a test chooses: the tests that both must pass, in
//! all versions of RPC-over-RDMA, with a few cuts and restarts.

use super::{EVERY, Settled, Spoken, contents, every_procedure, read_file, work, write_file};
use rpcrdma_env::Env;
use rpcrdma_fabric::Fabric;
use rpcrdma_nfs_client::{Files, Name};
use rpcrdma_nfsd::MemoryFs;
use rpcrdma_transport::{Quiet, Server, ServerMemory};
use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// Where a test runs.
pub struct Place {
    pub fabric: Arc<dyn Fabric>,
    /// Where servers listen; with port 0, so that each gets its own port.
    pub address: SocketAddr,
    pub env: Env,
}

/// A server's process.
struct Process {
    address: SocketAddr,
    listening: JoinHandle<()>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Process {
    async fn start(place: &Place, at: SocketAddr, storage: &Arc<MemoryFs>, spoken: Spoken) -> Self {
        let (fabric, env) = (&place.fabric, &place.env);
        let handler = super::nfsd(storage, env).nfs();
        let memory = ServerMemory::budget(8 << 20);
        let server = Server::new(&**fabric, handler, memory, env.clone(), spoken.server(), Arc::new(Quiet));
        let mut listener = fabric.listen(at).await.unwrap();
        let address = listener.local_addr();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let kept = connections.clone();
        let listening = tokio::spawn(async move {
            let mut drivers = JoinSet::new();
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let server = server.clone();
                let connection = drivers.spawn(async move {
                    if let Ok((_, driver)) = server.accept(pending).await {
                        let _ = driver.await;
                    }
                });
                kept.lock().unwrap().push(connection);
            }
        });
        Self { address, listening, connections }
    }

    /// Ends all connections at whatever point they are. Returns how many there were.
    fn cut(&self) -> usize {
        let connections = std::mem::take(&mut *self.connections.lock().unwrap());
        connections.iter().filter(|connection| !connection.is_finished()).map(AbortHandle::abort).count()
    }

    async fn kill(self) {
        self.listening.abort();
        let _ = self.listening.await;
    }
}

/// The server and the client with which a test begins.
async fn both(place: &Place, spoken: Spoken) -> (Process, Files, Arc<Settled>, Arc<MemoryFs>) {
    let storage = super::storage(&place.env);
    let process = Process::start(place, place.address, &storage, spoken).await;
    let (client, driver, settled) = super::client(place.fabric.clone(), process.address, &place.env, spoken).await;
    tokio::spawn(driver);
    (process, client, settled, storage)
}

/// Each procedure, and random work against a model.
pub async fn files_are_what_a_model_says(place: &Place) {
    for spoken in EVERY {
        let (_process, client, settled, storage) = both(place, spoken).await;
        let root = super::root(&storage, &place.env).await;
        work(&client, &root, &place.env, 40, true).await;
        every_procedure(&client, &root).await;
        settled.check(spoken);
        assert_eq!(settled.0.lock().unwrap().len(), 1, "one connection: {spoken:?}");
    }
}

/// Connections end at arbitrary points.
pub async fn cut_connections_lose_nothing(place: &Place) {
    for spoken in EVERY {
        let (process, client, _, storage) = both(place, spoken).await;
        let root = super::root(&storage, &place.env).await;
        let working = {
            let (client, env) = (client.clone(), place.env.clone());
            async move { work(&client, &root, &env, 400, false).await }
        };
        let mut working = tokio::spawn(working);
        let mut cut = 0;
        // Each cut makes the next pause longer, in real time.
        while cut < 4 {
            let pause = Duration::from_micros(2_000 + place.env.random.below(8_000));
            if tokio::time::timeout(pause, &mut working).await.is_ok() {
                break;
            }
            cut += process.cut();
        }
        if !working.is_finished() {
            working.await.unwrap();
        }
        assert!(cut > 1, "{spoken:?}: hardly anything was cut");
    }
}

/// A server that ends and comes back while a file is written.
pub async fn restarts_of_the_server_lose_nothing(place: &Place) {
    for spoken in EVERY {
        let (mut process, client, _, storage) = both(place, spoken).await;
        let root = super::root(&storage, &place.env).await;
        let name = Name::from("file");
        for round in 0..2 {
            let data = contents(4_000_000, round);
            let writing = tokio::spawn({
                let (client, root, name, data) = (client.clone(), root.clone(), name.clone(), data.clone());
                async move { write_file(&client, &root, &name, &data).await }
            });
            tokio::time::sleep(Duration::from_micros(500 + place.env.random.below(5000))).await;
            let address = process.address;
            process.kill().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            process = Process::start(place, address, &storage, spoken).await;
            writing.await.unwrap();
            assert!(read_file(&client, &root, &name).await == data[..], "{spoken:?}, round {round}");
        }
    }
}
