//! Servers of which the first connections are a test's own, and the others what they should be.

use super::{Log, Store, router, store};
use rpcrdma::{Server, ServerMemory, ServerOptions, Versions};
use rpcrdma_env::BoxFuture;
use rpcrdma_fabric::{Fabric, Pending};
use rpcrdma_sim::{Task, World};
use std::{future::poll_fn, net::SocketAddr, sync::Arc};

/// What becomes of a connection.
pub type Script = Arc<dyn Fn(World, Box<dyn Pending>) -> BoxFuture<'static, ()> + Send + Sync>;

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
        let mut number = 0;
        loop {
            let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
            number += 1;
            if number <= scripted {
                spawner.spawn(script(spawner.clone(), pending));
                continue;
            }
            let server = server.clone();
            spawner.spawn(async move {
                if let Ok((_, driver)) = server.accept(pending).await {
                    let _ = driver.await;
                }
            });
        }
    });
    (store, task)
}
