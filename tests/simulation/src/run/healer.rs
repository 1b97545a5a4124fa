//! Ends connections that nothing else helps: those on which a completion is withheld, or a message was corrupted.
//!
//! Where that happens, the host's connections break some time later. Without that, calls whose answer is withheld would
//! wait for ever, and rightly: to their transport, the server is busy with them.

use crate::{
    hosts::{ClientHost, ServerHost, client_ip, server_ip},
    lock,
    plan::Faults,
};
use rpcrdma_sim::World;
use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

/// How often hosts are looked after.
const ROUND: Duration = Duration::from_millis(500);
/// How long a host ails at most, in microseconds: longer than the transport waits for what is owed.
const MAX_MICROS: u64 = 60_000_000;

/// Looks after all hosts.
pub(super) struct Healer {
    world: Arc<World>,
    /// Each host's faults, and the clients whose links to the server are its own.
    hosts: Vec<(Arc<Faults>, Vec<IpAddr>)>,
    stopped: Arc<Mutex<bool>>,
}

impl Healer {
    pub(super) fn new(world: &Arc<World>, server: &ServerHost, clients: &[ClientHost]) -> Self {
        let all = (0..clients.len()).map(client_ip).collect();
        let mut hosts = vec![(server.faults().clone(), all)];
        let each = clients.iter().enumerate();
        hosts.extend(each.map(|(index, client)| (client.faults().clone(), vec![client_ip(index)])));
        Self { world: world.clone(), hosts, stopped: Arc::default() }
    }

    /// Goes round until it is stopped.
    pub(super) fn start(&self) {
        let Self { world, hosts, stopped } = self;
        for (faults, clients) in hosts.clone() {
            let (world, stopped) = (world.clone(), stopped.clone());
            let random = world.env().random;
            world.clone().spawn(async move {
                while !*lock(&stopped) {
                    if faults.ails() {
                        world.sleep(Duration::from_micros(random.below(MAX_MICROS))).await;
                        heal(&world, &faults, &clients);
                    }
                    world.sleep(ROUND).await;
                }
            });
        }
    }

    /// Ends what ails, for the last time.
    pub(super) fn stop(&self) {
        *lock(&self.stopped) = true;
        self.hosts.iter().for_each(|(faults, clients)| heal(&self.world, faults, clients));
    }
}

fn heal(world: &World, faults: &Faults, clients: &[IpAddr]) {
    if faults.ails() {
        faults.healed();
        clients.iter().for_each(|client| world.cut(*client, server_ip()));
    }
}
