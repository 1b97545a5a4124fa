//! A hostile host: connects to a server, or serves every client that connects, again and again.

use super::enemy::{Enemy, params};
use crate::{hosts::Common, tally::Tally};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_fabric::Fabric as _;
use rpcrdma_sim::{SimConfig, SimFabric, World};
use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The longest pause between connections, in milliseconds.
const MAX_PAUSE_MILLIS: u64 = 200;
/// The most connections of a hostile client.
const MAX_CONNECTIONS: u64 = 8;
/// How often a hostile server checks whether it has to stop.
const ROUND: Duration = Duration::from_millis(100);

pub(super) struct Hostile {
    world: Arc<World>,
    random: Arc<SeededRandom>,
    tally: Arc<Tally>,
    fabric: SimFabric,
    on: Arc<AtomicBool>,
}

impl Hostile {
    pub(super) fn new(common: &Common, ip: IpAddr, on: &Arc<AtomicBool>) -> Self {
        let world = common.world.clone();
        let random = Arc::new(SeededRandom::new(world.env().random.next_u64()));
        let config = if random.below(3) == 0 { SimConfig::without_invalidation() } else { SimConfig::default() };
        let fabric = world.fabric_with(ip, config);
        Self { world, random, tally: common.judges.tally.clone(), fabric, on: on.clone() }
    }

    fn parts(&self) -> (Arc<World>, Arc<SeededRandom>, Arc<Tally>) {
        (self.world.clone(), self.random.clone(), self.tally.clone())
    }

    /// Connects to a server again and again.
    pub(super) fn call(self, server: SocketAddr) {
        let world = self.world.clone();
        world.spawn(async move {
            for _ in 0..MAX_CONNECTIONS {
                let (params, shared) = params(&*self.random);
                if let Ok(qp) = self.fabric.connect(server, params).await {
                    Enemy::new(self.parts(), qp, shared, true).act(&self.on).await;
                }
                self.world.sleep(Duration::from_millis(self.random.below(MAX_PAUSE_MILLIS))).await;
                if !self.on.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
    }

    /// Serves every client that connects.
    pub(super) fn serve(self, address: SocketAddr) {
        let world = self.world.clone();
        let (on, this) = (self.on.clone(), Arc::new(self));
        let serving = world.spawn(async move {
            let Ok(mut listener) = this.fabric.listen(address).await else { return };
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let this = this.clone();
                this.world.clone().spawn(async move {
                    let Ok(incoming) = pending.request().await else { return };
                    if this.random.below(12) == 0 {
                        let _ = incoming.reject(bytes::Bytes::from_static(b"no")).await;
                        return;
                    }
                    let (params, shared) = params(&*this.random);
                    if let Ok(qp) = incoming.accept(params).await {
                        Enemy::new(this.parts(), qp, shared, false).act(&this.on).await;
                    }
                });
            }
        });
        let rounds = world.clone();
        world.spawn(async move {
            while on.load(Ordering::Relaxed) {
                rounds.sleep(ROUND).await;
            }
            serving.abort();
        });
    }
}
