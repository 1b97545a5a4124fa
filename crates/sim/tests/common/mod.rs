//! Two hosts and a connection between them.
#![allow(dead_code, unreachable_pub)]

use rpcrdma_fabric::{Buffer, Completion, Connected, ConnectionParams, Fabric, Receives};
use rpcrdma_sim::{SimConfig, SimFabric, World};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    task::Poll,
};

pub const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

pub fn params(receives: usize) -> ConnectionParams {
    let receives = (0..receives).map(|_| Buffer::from_vec(vec![0; 64])).collect();
    ConnectionParams { private_data: Default::default(), ird: 4, ord: 4, receives: Receives::Own(receives) }
}

pub fn address(port: u16) -> SocketAddr {
    SocketAddr::new(B, port)
}

/// A connection from A to B, both with `receives` receives.
pub async fn connect(world: &World, receives: usize) -> (Connected, Connected) {
    connect_with(world, SimConfig::default(), receives).await
}

pub async fn connect_with(world: &World, config: SimConfig, receives: usize) -> (Connected, Connected) {
    let (a, b): (SimFabric, SimFabric) = (world.fabric_with(A, config.clone()), world.fabric_with(B, config));
    let mut listener = b.listen(address(0)).await.unwrap();
    let to = listener.local_addr();
    let connecting = world.spawn(async move { a.connect(to, params(receives)).await.unwrap() });
    let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    let accepted = pending.request().await.unwrap().accept(params(receives)).await.unwrap();
    (connecting.await, accepted)
}

pub async fn next(queue_pair: &mut Connected) -> Completion {
    poll_fn(|cx| queue_pair.poll(cx)).await
}

/// All completions up to the last one.
pub async fn drain(queue_pair: &mut Connected) -> Vec<Completion> {
    let mut all = Vec::new();
    loop {
        let completion = next(queue_pair).await;
        let closed = matches!(completion, Completion::Closed { .. });
        all.push(completion);
        if closed {
            return all;
        }
    }
}

/// Starts posted work, and returns the completions so far.
pub async fn start(queue_pair: &mut Connected) -> Vec<Completion> {
    let mut so_far = Vec::new();
    poll_fn(|cx| {
        while let Poll::Ready(completion) = queue_pair.poll(cx) {
            so_far.push(completion);
        }
        Poll::Ready(())
    })
    .await;
    so_far
}
