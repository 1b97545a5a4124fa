//! Servers in a simulated world, and servers whose first connections a test controls.

use super::{End, Log, Store, client, router, store};
use rpcrdma_env::BoxFuture;
use rpcrdma_fabric::{Fabric, Listener, Pending};
use rpcrdma_oncrpc::Client;
use rpcrdma_sim::{Task, World};
use rpcrdma_transport::{ClientOptions, Server, ServerMemory, ServerOptions, Versions, connect};
use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// Handles one connection.
pub type Script = Arc<dyn Fn(World, Box<dyn Pending>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The script of the server's end of a connection.
pub fn script<E: From<End> + Send, F: Future<Output = ()> + Send + 'static>(
    script: impl Fn(World, E) -> F + Clone + Send + Sync + 'static,
) -> Script {
    Arc::new(move |world, pending| {
        let script = script.clone();
        Box::pin(async move { script(world, E::from(End::accepted(pending).await)).await })
    })
}

/// Takes every connection, until the world ends.
async fn accept_all(world: World, mut listener: Box<dyn Listener>, server: Arc<Server>) {
    loop {
        let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
        let server = server.clone();
        world.spawn(async move {
            if let Ok((_, driver)) = server.accept(pending).await {
                let _ = driver.await;
            }
        });
    }
}

/// Listens at an address. A client can connect after a moment of the world's time.
pub fn serve_at(world: &World, fabric: Arc<dyn Fabric>, at: SocketAddr, server: Arc<Server>) -> Task<()> {
    let spawner = world.clone();
    world.spawn(async move {
        let listener = fabric.listen(at).await.unwrap();
        accept_all(spawner, listener, server).await;
    })
}

/// Gives the first `scripted` connections to the script, and all others to a real server.
pub fn serve_after(
    world: &World,
    at: SocketAddr,
    versions: Versions,
    scripted: usize,
    script: Script,
) -> (Arc<Store>, Task<()>) {
    let fabric = world.fabric(at.ip());
    let env = world.env();
    let store = store(&env);
    let mut options = ServerOptions::default();
    options.versions = versions;
    let memory = ServerMemory::budget(8 << 20);
    let server = Server::new(&fabric, router(&env, &store), memory, env, options, Arc::new(Log::default()));
    let spawner = world.clone();
    let task = world.spawn(async move {
        let mut listener = fabric.listen(at).await.unwrap();
        for _ in 0..scripted {
            let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
            spawner.spawn(script(spawner.clone(), pending));
        }
        accept_all(spawner, listener, server).await;
    });
    (store, task)
}

/// A client, and its log of events.
pub async fn connected(world: &World, from: IpAddr, at: SocketAddr, options: ClientOptions) -> (Client, Arc<Log>) {
    let log = Arc::new(Log::default());
    let fabric = Arc::new(world.fabric(from));
    let (transport, driver) = connect(fabric, at, &world.env(), options, log.clone()).await.unwrap();
    world.spawn(driver);
    (client(transport), log)
}

/// An honest client beside a hostile one.
pub async fn friend(world: &World, from: IpAddr, at: SocketAddr, options: ClientOptions) -> Client {
    connected(world, from, at, options).await.0
}
