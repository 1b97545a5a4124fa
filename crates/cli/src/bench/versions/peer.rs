//! The other process: serves until its standard input ends.

use super::{count::Counter, programs::Programs};
use crate::{bench::affinity::stay_on, running::block_on};
use anyhow::{Context, Result};
use rpcrdma_env::{BusyPoll, tokio_env};
use rpcrdma_fabric::{Fabric, Listener, trace::TraceFabric};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_transport::{Quiet, Server, ServerMemory, ServerOptions, Versions};
use std::{
    future::poll_fn,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

/// Memory for calls and replies in progress, in bytes: there is one at a time.
const MEMORY_BYTES: usize = 16 << 20;

pub(in crate::bench) fn run(cpu: Option<usize>, busy_poll: BusyPoll) -> Result<()> {
    cpu.map(stay_on).transpose()?;
    block_on(serve(busy_poll))
}

async fn serve(busy_poll: BusyPoll) -> Result<()> {
    let env = tokio_env().context("the system gives no clock or no random numbers")?;
    let mut config = Config::default();
    config.busy_poll = busy_poll;
    let counter = Arc::new(Counter::default());
    let plain: Arc<dyn Fabric> = Arc::new(Iwarp::new(env.clone(), config));
    let traced: Arc<dyn Fabric> = Arc::new(TraceFabric::new(plain.clone(), counter.clone(), env.clone()));
    let programs = Arc::new(Programs::new(&env, counter).await?);
    let mut options = ServerOptions::default();
    options.versions = Versions::Auto;
    let mut addresses = Vec::new();
    for fabric in [plain, traced] {
        let memory = ServerMemory::budget(MEMORY_BYTES);
        let server = Server::new(&*fabric, programs.clone(), memory, env.clone(), options.clone(), Arc::new(Quiet));
        let listener = fabric.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        addresses.push(listener.local_addr().to_string());
        tokio::spawn(accept(listener, server));
    }
    writeln!(std::io::stdout(), "{}", addresses.join(" "))?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

async fn accept(mut listener: Box<dyn Listener>, server: Arc<Server>) {
    while let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await {
        let server = server.clone();
        tokio::spawn(async move {
            // The process that measures reports what has gone wrong.
            if let Ok((_, driver)) = server.accept(pending).await {
                let _ = driver.await;
            }
        });
    }
}
