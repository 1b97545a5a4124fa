//! Ends connections that cannot recover: a completion was withheld, or a message was corrupted.
//!
//! If that happens, the host's connections end some time later. Otherwise calls whose reply is withheld would wait for
//! ever, and rightly: for their transport, the server is still busy with them.

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

/// How often the healer looks at the hosts.
const ROUND: Duration = Duration::from_millis(500);
/// The longest time before a host's connections end, in microseconds: longer than the transport waits for a peer's
/// data.
const MAX_MICROS: u64 = 60_000_000;

/// Looks at all hosts and ends what cannot recover.
pub(super) struct Healer {
    world: Arc<World>,
    /// Each host's faults, and the clients with whose links to the server it is connected.
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

    /// Starts to look at the hosts again and again, until it is stopped.
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

    /// Ends such connections for the last time.
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
