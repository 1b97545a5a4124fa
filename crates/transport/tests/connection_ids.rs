//! Numbers of connections; sessions of NFS version 4 are bound to them.

mod common;

use common::{Log, params, router, store};
use rpcrdma_fabric::Fabric;
use rpcrdma_sim::World;
use rpcrdma_transport::{Server, ServerMemory, ServerOptions};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
/// The number of connections, made in turn to each of two servers.
const CONNECTIONS: usize = 6;

/// A program with two serving threads gives both the same options.
#[test]
fn no_two_connections_of_servers_with_the_same_options_have_one_number() {
    let world = World::new(1);
    let found = Arc::new(Mutex::new(Vec::new()));
    let (inside, numbers) = (world.clone(), found.clone());
    world.block_on(async move {
        let (world, fabric, env) = (inside.clone(), inside.fabric(SERVER), inside.env());
        let mut listener = fabric.listen(SocketAddr::new(SERVER, 20049)).await.unwrap();
        let address = listener.local_addr();
        let (options, handler) = (ServerOptions::default(), router(&env, &store(&env)));
        let servers = [(); 2].map(|()| {
            let memory = ServerMemory::budget(4 << 20);
            Server::new(&fabric, handler.clone(), memory, env.clone(), options.clone(), Arc::new(Log::default()))
        });
        let (spawner, noted) = (world.clone(), numbers.clone());
        drop(world.spawn(async move {
            for server in servers.iter().cycle() {
                let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
                let (handle, driver) = server.clone().accept(pending).await.unwrap();
                noted.lock().unwrap().push(handle.id());
                drop(spawner.spawn(async move { drop(driver.await) }));
            }
        }));
        let client = world.fabric(CLIENT);
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            held.push(client.connect(address, params(16)).await.unwrap());
            world.sleep(Duration::from_millis(10)).await;
        }
    });
    let mut numbers = found.lock().unwrap().clone();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), CONNECTIONS, "{found:?}");
}
