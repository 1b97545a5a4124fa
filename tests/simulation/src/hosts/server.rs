//! The server's host.

use super::{ADDRESS, Common, Host, SERVER, watched};
use crate::{
    lock,
    plan::{Faults, ServerPlan},
};
use rpcrdma_transport::{ConnectionHandle, Server, ServerMemory, ServerOptions};
use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The server.
pub(crate) struct ServerHost {
    host: Host,
    plan: ServerPlan,
    /// All accepted connections, also those that have ended.
    connections: Arc<Mutex<Vec<ConnectionHandle>>>,
}

impl ServerHost {
    pub(crate) fn new(common: &Common, plan: &ServerPlan) -> Self {
        let server =
            Self { host: Host::new(common, SERVER, &plan.host, 0), plan: plan.clone(), connections: Arc::default() };
        server.start();
        server
    }

    fn start(&self) {
        let Self { host, plan, connections } = self;
        let connections = connections.clone();
        let mut options = ServerOptions::default();
        options.versions = plan.versions;
        options.credits = plan.credits;
        options.inline_bytes = plan.inline_bytes;
        options.reverse_credits = plan.reverse;
        let budget = ServerMemory::budget(plan.memory);
        let watched = |name, inner, allowance| watched(&host.common, &host.faults, name, inner, allowance);
        let half = Some(plan.memory / 2);
        let memory = ServerMemory {
            arguments: watched("memory for arguments", budget.arguments, half),
            results: watched("memory for results", budget.results, half),
            receives: watched("memory for receives", budget.receives, None),
        };
        let server = Server::new(&*host.fabric, host.router(), memory, host.env.clone(), options, host.observer());
        let (fabric, world, tasks) = (host.fabric.clone(), host.common.world.clone(), host.tasks.clone());
        let record = host.common.judges.record.clone();
        host.spawn(async move {
            let mut listener = match fabric.listen(ADDRESS).await {
                Ok(listener) => listener,
                Err(error) => return record.found(format!("the server cannot listen: {error}")),
            };
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let (server, connections) = (server.clone(), connections.clone());
                let serving = world.spawn(async move {
                    if let Ok((handle, driver)) = server.accept(pending).await {
                        lock(&connections).push(handle);
                        // The notes record how it ended.
                        drop(driver.await);
                    }
                });
                lock(&tasks).push(serving);
            }
        });
    }

    pub(crate) async fn restart(&mut self, after: Duration) {
        self.host.kill();
        self.host.common.world.sleep(after).await;
        self.host.restart();
        self.start();
    }

    pub(crate) fn jump(&self, by: Duration) {
        self.host.jump(by);
    }

    pub(crate) fn faults(&self) -> &Arc<Faults> {
        &self.host.faults
    }

    /// Lets calls under way end. Returns false if they did not.
    pub(crate) async fn stop(self, within: Duration) -> bool {
        // Clients that were cut off have left connections whose end the server would never notice.
        lock(&self.connections).iter().for_each(ConnectionHandle::drain);
        // The listener, which was spawned first, never ends by itself.
        self.host.wind_up(1, within).await
    }
}
