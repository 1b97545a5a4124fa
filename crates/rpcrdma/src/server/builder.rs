//! Builds a server, step by step.

use super::{Export, Options, Result, Running, Server};
use rpcrdma_nfsd::{Cidr, FileSystem};
use rpcrdma_oncrpc::Service;
use std::{net::SocketAddr, path::PathBuf, sync::Arc};

/// Builds a server. Begin with [`Server::builder`]. What you do not set has the default of `rpcrdma serve`.
///
/// ```no_run
/// use rpcrdma::Server;
///
/// # async fn served() -> Result<(), rpcrdma::Error> {
/// Server::builder().directory("/", "/srv/data").listen(([0, 0, 0, 0], 20049)).serve().await
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Builder {
    options: Options,
    services: Vec<Arc<dyn Service>>,
}

impl From<Options> for Builder {
    fn from(options: Options) -> Self {
        Self { options, services: Vec::new() }
    }
}

impl Builder {
    /// Serves a file system of the program's own, which clients see at `path`.
    pub fn export(self, path: impl Into<Vec<u8>>, files: impl FileSystem + 'static) -> Self {
        self.export_as(Export::files(path, files))
    }

    /// Serves a directory of this machine, which clients see at `path`.
    ///
    /// To a server that root runs, a client's root is nobody unless
    /// [`Options::no_root_squash`](super::Options::no_root_squash) says otherwise: for such clients to write, the
    /// directory must be writable for everybody. What must survive a restart is kept in the directory that
    /// [`state`](Self::state) names.
    ///
    /// Two limits of a process are the program's to look after. If it has a limit of file sizes (`ulimit -f`), it must
    /// catch or ignore SIGXFSZ: otherwise a WRITE beyond the limit ends the program. And each connection takes one of
    /// the files that the process may open (`ulimit -n`), which the program shares with the server.
    pub fn directory(self, path: impl Into<Vec<u8>>, directory: impl Into<PathBuf>) -> Self {
        self.export_as(Export::directory(path, directory))
    }

    /// Serves an export with limits of its own.
    pub fn export_as(mut self, export: Export) -> Self {
        self.options.exports.push(export);
        self
    }

    /// Serves an RPC program of your own, at the ports of [`listen`](Self::listen) and [`tcp`](Self::tcp).
    /// [`Program`](crate::service::Program) makes a program of closures. Anybody who reaches the ports can call it: by
    /// AUTH_NONE, or by AUTH_SYS, in which the client names the user.
    pub fn service(mut self, service: impl Service + 'static) -> Self {
        self.services.push(Arc::new(service));
        self
    }

    /// Listens for RPC over RDMA on this address. May be called for several addresses; without a call the server
    /// listens on 127.0.0.1:20049. With port 0 the system chooses the port, and [`Running::addresses`] returns it.
    ///
    /// While version 2 or 3 of NFS is served, MOUNT also listens, on 127.0.0.1:20048 by default, and NLM and NSM on
    /// free ports of 127.0.0.1 ([`Options::mountd`](super::Options::mountd)).
    pub fn listen(mut self, address: impl Into<SocketAddr>) -> Self {
        self.options.listen.push(address.into());
        self
    }

    /// Listens over plain TCP as well.
    pub fn tcp(mut self, address: impl Into<SocketAddr>) -> Self {
        self.options.tcp.push(address.into());
        self
    }

    /// Serves only clients of this network, and of the networks that other calls of this method name.
    pub fn allow(mut self, network: Cidr) -> Self {
        self.options.allow.push(network);
        self
    }

    /// Keeps in this directory what must survive a restart, such as the secret with which handles are signed, and which
    /// clients hold something. The default is that of [`Options::state`](super::Options::state).
    pub fn state(mut self, directory: impl Into<PathBuf>) -> Self {
        self.options.state = Some(directory.into());
        self
    }

    /// Counts in the recorder of the crate `metrics` that the program has installed.
    pub fn metrics(mut self) -> Self {
        self.options.metrics = true;
        self
    }

    /// Changes any of the options.
    pub fn configure(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Opens every port. Clients that connect wait until the server is [started](Server::start).
    ///
    /// # Errors
    /// If there is nothing to serve, if options or services contradict each other ([`Options::check`]), if an export
    /// cannot be served, or if a port is not free.
    pub async fn bind(self) -> Result<Server> {
        Server::bind(self.options, self.services).await
    }

    /// Starts the server, which runs on threads of its own. It stops when what this returns is dropped, or by
    /// [`Running::shutdown`].
    ///
    /// # Errors
    /// As [`bind`](Self::bind), or if threads cannot be started.
    pub async fn start(self) -> Result<Running> {
        self.bind().await?.start().await
    }

    /// Serves until something fails.
    ///
    /// # Errors
    /// As [`start`](Self::start), or if a serving thread dies.
    pub async fn serve(self) -> Result<()> {
        self.serve_until(std::future::pending()).await
    }

    /// Serves until a future completes, such as one that waits for a signal. Calls under way then have [some
    /// time](Options::drain) to finish.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub async fn serve_until(self, stop: impl Future<Output = ()>) -> Result<()> {
        let running = self.start().await?;
        tokio::select! {
            biased;
            error = running.failed() => return Err(error),
            () = stop => {}
        }
        running.shutdown().await;
        Ok(())
    }
}
