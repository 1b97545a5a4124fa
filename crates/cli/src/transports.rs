//! Client transports: what a connection is made of. Where its driver runs, and how many there are, is in `several.rs`.

use crate::{
    capture::CaptureArgs,
    several::{self, Connected},
    url::NfsUrl,
    versions as known,
    waiting::Watch,
};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use rpcrdma_env::Env;
use rpcrdma_fabric::{Fabric, pool::Pool};
use rpcrdma_iwarp::{Config, Iwarp, Tap};
use rpcrdma_nfs_client::v4::{CALLBACK_SLOTS, Callbacks};
use rpcrdma_oncrpc::{
    ClientTransport, Handler,
    tcp::{self, ClientOptions, Connector, TcpConnector},
};
use rpcrdma_transport::{Observer, Reverse, Versions};
use rpcrdma_verbs::{Device, Verbs};
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// How long rpcbind may take before the usual port is tried: a firewall that drops silently must not hold up a command.
const RPCBIND_WAIT: Duration = Duration::from_secs(3);

/// How long setting up a connection over RDMA takes at most, over iWARP; devices say how long they try themselves.
const RDMA_SETUP: Duration = rpcrdma_iwarp::DEFAULT_SETUP_TIMEOUT;

/// What errors say that a server should speak.
pub(crate) const NFS: &str = "NFS";
/// The same of the port of MOUNT.
pub(crate) const MOUNT: &str = "NFS's MOUNT";

/// What carries RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Carrier {
    /// Software over TCP
    #[default]
    Iwarp,
    /// A device of this machine
    Verbs,
}

/// What the user has asked of the transport.
#[derive(Clone, Default)]
pub(crate) struct Options {
    /// Do not ask for iWARP's CRC.
    pub(crate) no_crc: bool,
    /// How long a thread looks for the next message before it sleeps.
    pub(crate) busy_poll: Duration,
    /// Where to capture what passes over RDMA.
    pub(crate) capture: CaptureArgs,
    /// Sees what passes over RDMA.
    pub(crate) tap: Option<Arc<dyn Tap>>,
    /// Shows the user when a server does not answer.
    pub(crate) watch: Watch,
    /// Wants to know what a connection over RDMA does.
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl Options {
    /// The options given that are of RDMA alone.
    pub(crate) fn of_rdma(&self) -> impl Iterator<Item = &'static str> {
        let given =
            [(self.no_crc, "--no-crc"), (self.tap.is_some(), "--capture"), (!self.busy_poll.is_zero(), "--busy-poll")];
        given.into_iter().filter_map(|(is_given, option)| is_given.then_some(option))
    }

    /// Starts the capture, if one is asked for; clones share it.
    pub(crate) fn open_capture(&mut self) -> Result<()> {
        if let Some(capturing) = std::mem::take(&mut self.capture).start()? {
            self.tap = Some(capturing.tap());
        }
        Ok(())
    }
}

fn connector(server: SocketAddr) -> Arc<dyn Connector> {
    // Servers take a reserved port for a sign that root is calling.
    if rustix::process::geteuid().is_root() {
        Arc::new(TcpConnector::from_reserved_port(server))
    } else {
        Arc::new(TcpConnector::new(server))
    }
}

/// What answers the calls of the server, if it may make any.
fn answers(callbacks: Option<&Callbacks>, env: &Env) -> Option<Arc<dyn Handler>> {
    callbacks.map(|callbacks| Arc::new(callbacks.router(env)) as Arc<dyn Handler>)
}

/// RPC over record-marked TCP, over so many connections. `service` is what errors say that the server should speak.
pub(crate) async fn tcp(
    server: SocketAddr,
    env: &Env,
    watch: &Watch,
    connections: u8,
    service: &'static str,
    callbacks: Option<&Callbacks>,
) -> Result<Arc<dyn ClientTransport>> {
    let mut options = ClientOptions::default();
    options.service = service;
    options.reverse = answers(callbacks, env).map(|handler| tcp::Reverse { handler, calls: CALLBACK_SLOTS as usize });
    let connect = {
        let (env, watch) = (env.clone(), watch.clone());
        move |xids| {
            let (env, watch, mut options) = (env.clone(), watch.clone(), options.clone());
            options.xids = xids;
            Box::pin(async move { tcp_with(connector(server), &env, &watch, options).await }) as _
        }
    };
    several::connect(connections, env, connect).await
}

async fn tcp_with(
    connector: Arc<dyn Connector>,
    env: &Env,
    watch: &Watch,
    options: ClientOptions,
) -> Result<Connected> {
    let connecting = watch.connecting(connector.server(), env, options.connect);
    // Memory for large replies is used again: the heap's would be cleared for each.
    let (transport, driver) = tcp::connect(connector, Arc::new(Pool::new()), env, options).await?;
    connecting.done();
    watch.add(&*transport, env);
    Ok(Connected { transport, driver: Box::pin(driver) })
}

/// The same with one short attempt.
pub(crate) async fn tcp_once(server: SocketAddr, env: &Env, watch: &Watch) -> Result<Arc<dyn ClientTransport>> {
    let mut options = ClientOptions::default();
    options.connect = RPCBIND_WAIT;
    options.outage = RPCBIND_WAIT;
    options.silence = RPCBIND_WAIT;
    options.probe = RPCBIND_WAIT;
    let Connected { transport, driver } = tcp_with(Arc::new(TcpConnector::new(server)), env, watch, options).await?;
    tokio::spawn(driver);
    Ok(transport)
}

/// Opens a device.
///
/// # Errors
/// If it cannot be used, or what is asked for is iWARP's.
pub(crate) async fn verbs(env: &Env, device: Device, busy_poll: Duration, no_crc: bool, tapped: bool) -> Result<Verbs> {
    ensure!(!no_crc, "--no-crc is of iWARP: a device checks what it carries by itself");
    ensure!(!tapped, "--capture sees software iWARP only: what a device carries does not pass through this program");
    let mut config = rpcrdma_verbs::Config::default();
    config.device = device;
    config.busy_poll = busy_poll;
    Verbs::open(env.clone(), config).await.context("cannot use an RDMA device")
}

/// RPC over RDMA by what the URL names, and a pool for data that it moves without a registration.
pub(crate) async fn rdma(
    server: SocketAddr,
    env: &Env,
    options: &Options,
    url: &NfsUrl,
    callbacks: Option<&Callbacks>,
) -> Result<(Arc<dyn ClientTransport>, Pool)> {
    let (fabric, pool): (Arc<dyn Fabric>, _) = match url.fabric {
        Carrier::Iwarp => {
            let mut config = Config::default();
            config.crc = !options.no_crc;
            config.busy_poll = options.busy_poll;
            config.tap = options.tap.clone();
            (Arc::new(Iwarp::new(env.clone(), config)), Pool::new())
        }
        Carrier::Verbs => {
            let device = match &url.device {
                Some(name) => Device::Named(name.clone()),
                None => Device::Towards(server.ip()),
            };
            let verbs = verbs(env, device, options.busy_poll, options.no_crc, options.tap.is_some()).await?;
            let pool = Pool::over(verbs.pool());
            (Arc::new(verbs), pool)
        }
    };
    let mut observer = options.observer.clone().unwrap_or_else(|| Arc::new(rpcrdma_transport::Tracing));
    let mut client = rpcrdma_transport::ClientOptions::default();
    client.versions = url.rpcrdma;
    client.service = NFS;
    client.reverse = answers(callbacks, env).map(|handler| Reverse { handler, credits: CALLBACK_SLOTS });
    if let (Versions::Auto | Versions::Two, Some(file)) = (url.rpcrdma, known::file()) {
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
                watch.add(&*transport, &env);
                Ok(Connected { transport, driver: Box::pin(driver) })
            }) as _
        }
    };
    Ok((several::connect(url.connections, env, connect).await?, pool))
}
