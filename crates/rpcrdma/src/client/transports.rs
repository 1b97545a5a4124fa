//! Client transports: what a connection is made of. Where its driver runs, and how many there are, is in `several.rs`.

use super::{
    NfsUrl, Options, Result, Watch,
    several::{self, Connected},
    versions as known,
};
use crate::{Carrier, carrier};
use rpcrdma_env::Env;
use rpcrdma_fabric::{Fabric, pool::Pool};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs_client::v4::{CALLBACK_SLOTS, Callbacks};
use rpcrdma_oncrpc::{
    ClientTransport, Handler,
    tcp::{self, ClientOptions, Connector, TcpConnector},
};
use rpcrdma_transport::{Reverse, Versions};
use rpcrdma_verbs::Device;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// How long rpcbind may take before the usual port is tried: a firewall that drops silently must not hold up a command.
const RPCBIND_WAIT: Duration = Duration::from_secs(3);

/// How long setting up a connection over RDMA takes at most, over iWARP; devices say how long they try themselves.
const RDMA_SETUP: Duration = rpcrdma_iwarp::DEFAULT_SETUP_TIMEOUT;

/// The protocol that a server should speak, as errors name it.
pub(super) const NFS: &str = "NFS";
/// The same for the port of MOUNT.
pub(super) const MOUNT: &str = "NFS's MOUNT";

fn connector(server: SocketAddr) -> Arc<dyn Connector> {
    // Servers take a reserved port for a sign that root is calling.
    if rustix::process::geteuid().is_root() {
        Arc::new(TcpConnector::from_reserved_port(server))
    } else {
        Arc::new(TcpConnector::new(server))
    }
}

/// The handler for calls of the server, if it may make any.
fn answers(callbacks: Option<&Callbacks>, env: &Env) -> Option<Arc<dyn Handler>> {
    callbacks.map(|callbacks| Arc::new(callbacks.router(env)) as Arc<dyn Handler>)
}

/// RPC over record-marked TCP, over this number of connections. `service` names the service that the server should
/// have, for error messages.
pub(super) async fn tcp(
    server: SocketAddr,
    env: &Env,
    given: &Options,
    connections: u8,
    service: &'static str,
    callbacks: Option<&Callbacks>,
) -> Result<Arc<dyn ClientTransport>> {
    let mut options = ClientOptions::default();
    options.service = service;
    options.busy_poll = given.busy_poll;
    options.reverse = answers(callbacks, env).map(|handler| tcp::Reverse { handler, calls: CALLBACK_SLOTS as usize });
    let connect = {
        let (env, watch) = (env.clone(), given.watch.clone());
        move |xids| {
            let (env, watch, mut options) = (env.clone(), watch.clone(), options.clone());
            options.xids = xids;
            Box::pin(async move { tcp_with(connector(server), &env, &watch, options).await }) as _
        }
    };
    several::connect(connections, env, &*given.watch, connect).await
}

async fn tcp_with(
    connector: Arc<dyn Connector>,
    env: &Env,
    watch: &Arc<dyn Watch>,
    options: ClientOptions,
) -> Result<Connected> {
    let connecting = watch.connecting(connector.server(), env, options.connect);
    // Memory for large replies is used again: the heap's would be cleared for each.
    let (transport, driver) = tcp::connect(connector, Arc::new(Pool::new()), env, options).await?;
    connecting.done();
    watch.connected(&*transport, env);
    Ok(Connected { transport, driver: Box::pin(driver) })
}

/// The same with one short attempt.
pub(super) async fn tcp_once(
    server: SocketAddr,
    env: &Env,
    watch: &Arc<dyn Watch>,
) -> Result<Arc<dyn ClientTransport>> {
    let mut options = ClientOptions::default();
    options.connect = RPCBIND_WAIT;
    options.outage = RPCBIND_WAIT;
    options.silence = RPCBIND_WAIT;
    options.probe = RPCBIND_WAIT;
    let Connected { transport, driver } = tcp_with(Arc::new(TcpConnector::new(server)), env, watch, options).await?;
    tokio::spawn(driver);
    Ok(transport)
}

/// RPC over RDMA with the provider that the URL names, and a pool for data that it moves without a registration.
pub(super) async fn rdma(
    server: SocketAddr,
    env: &Env,
    options: &Options,
    url: &NfsUrl,
    callbacks: Option<&Callbacks>,
) -> Result<(Arc<dyn ClientTransport>, Pool)> {
    let (fabric, pool): (Arc<dyn Fabric>, _) = match (&options.fabric, url.fabric) {
        (Some(own), _) => (own.clone(), Pool::over(own.pool())),
        (None, Carrier::Iwarp) => {
            let mut config = Config::default();
            config.crc = options.crc;
            config.busy_poll = options.busy_poll;
            config.tap = options.tap.clone();
            (Arc::new(Iwarp::new(env.clone(), config)), Pool::new())
        }
        (None, Carrier::Verbs) => {
            let device = match &url.device {
                Some(name) => Device::Named(name.clone()),
                None => Device::Towards(server.ip()),
            };
            let verbs = carrier::verbs(env, device, options.busy_poll, !options.crc, options.tap.is_some()).await?;
            let pool = Pool::over(verbs.pool());
            (Arc::new(verbs), pool)
        }
    };
    let mut observer = options.observer.clone().unwrap_or_else(|| Arc::new(rpcrdma_transport::Tracing));
    let mut client = rpcrdma_transport::ClientOptions::default();
    client.versions = url.rpcrdma;
    client.service = NFS;
    client.reverse = answers(callbacks, env).map(|handler| Reverse { handler, credits: CALLBACK_SLOTS });
    let file = if options.remember { known::file() } else { None };
    if let (Versions::Auto | Versions::Two, Some(file)) = (url.rpcrdma, file) {
        client.assume_version_1 = known::lacks_version_2(&file, server);
        observer = Arc::new(known::Remembering::new(file, server, observer));
    }
    let connect = {
        let (env, watch) = (env.clone(), options.watch.clone());
        move |xids| {
            let (fabric, env, watch) = (fabric.clone(), env.clone(), watch.clone());
            let (observer, mut client) = (observer.clone(), client.clone());
            client.xids = xids;
            Box::pin(async move {
                let connecting = watch.connecting(server, &env, RDMA_SETUP);
                let observer = connecting.observed(observer);
                let (transport, driver) = rpcrdma_transport::connect(fabric, server, &env, client, observer).await?;
                connecting.done();
                watch.connected(&*transport, &env);
                Ok(Connected { transport, driver: Box::pin(driver) })
            }) as _
        }
    };
    Ok((several::connect(url.connections, env, &*options.watch, connect).await?, pool))
}
