//! From a URL to a mounted export: finding the ports, connecting, asking for the root.

use crate::{
    transports::{self, Options},
    url::{NfsUrl, Transport},
};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use rpcrdma_env::{Env, tokio_env};
use rpcrdma_fabric::pool::Pool;
use rpcrdma_nfs::{
    mount,
    v3::{self, Handle},
};
use rpcrdma_nfs_client::{Found, Mount, Nfs3, Transfer, split_export};
use rpcrdma_oncrpc::{
    Client, ClientFlavour, ClientTransport, Netid, SysAuth, SysCredential,
    rpcbind::{RPCBIND_PORT, Rpcbind},
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// Where MOUNT answers if nobody says otherwise.
const DEFAULT_MOUNT_PORT: u16 = 20048;

/// A mounted export of one server.
pub(crate) struct Session {
    pub(crate) nfs: Nfs3,
    pub(crate) root: Handle,
    pub(crate) transfer: Transfer,
    /// Where buffers for data come from.
    pub(crate) pool: Pool,
    export: Vec<u8>,
    url: NfsUrl,
}

/// What is common to the sessions of one command.
pub(crate) struct Sessions {
    env: Env,
    options: Options,
    open: Vec<Arc<Session>>,
}

impl Sessions {
    pub(crate) fn new(mut options: Options) -> Result<Self> {
        let env = tokio_env().context("cannot read random numbers from the system")?;
        options.open_capture()?;
        Ok(Self { env, options, open: Vec::new() })
    }

    /// The session for a URL, shared by URLs that lie in the same export of the same server, and the path in it.
    pub(crate) async fn open(&mut self, url: &NfsUrl) -> Result<(Arc<Session>, Vec<u8>)> {
        for session in &self.open {
            if session.url.same_server(url)
                && let Some(path) = below(&session.export, &url.path)
            {
                return Ok((session.clone(), path.to_vec()));
            }
        }
        let (session, path) = self.connect(url).await?;
        let session = Arc::new(session);
        self.open.push(session.clone());
        Ok((session, path))
    }

    async fn connect(&self, url: &NfsUrl) -> Result<(Session, Vec<u8>)> {
        let address = resolve(url).await?;
        let identity = identity(url);
        let (export, root, path) = self.mount(url, address, identity.clone()).await?;
        let server = SocketAddr::new(address, url.nfs_port());
        let (transport, pool) = self.transport(url, server).await?;
        let nfs = Nfs3::new(Client::new(transport, identity, v3::PROGRAM, v3::VERSION), self.env.clock.clone());
        let transfer = nfs.transfer(&root).await.with_context(|| format!("asking {server} what it can do"))?;
        Ok((Session { nfs, root, transfer, pool, export, url: url.clone() }, path))
    }

    async fn transport(&self, url: &NfsUrl, server: SocketAddr) -> Result<(Arc<dyn ClientTransport>, Pool)> {
        Ok(match url.transport {
            Transport::Rdma => transports::rdma(server, &self.env, &self.options, url).await?,
            Transport::Tcp => (transports::tcp(server, &self.env).await?, Pool::new()),
        })
    }

    /// A connection to the URL's server without a mount.
    pub(crate) async fn transport_for(&self, url: &NfsUrl) -> Result<Arc<dyn ClientTransport>> {
        let server = SocketAddr::new(resolve(url).await?, url.nfs_port());
        Ok(self.transport(url, server).await?.0)
    }

    async fn mount(
        &self,
        url: &NfsUrl,
        address: IpAddr,
        identity: Arc<dyn ClientFlavour>,
    ) -> Result<(Vec<u8>, Handle, Vec<u8>)> {
        let port = match url.mount_port {
            Some(port) => port,
            None => self.mount_port(address).await,
        };
        let server = SocketAddr::new(address, port);
        let transport = transports::tcp(server, &self.env).await.context("MOUNT")?;
        let mount = Mount::new(Client::new(transport, identity, mount::PROGRAM, mount::VERSION_3));
        let exports = mount.exports().await.with_context(|| format!("asking {server} for its exports"))?;
        let (export, path) = match split_export(&exports, &url.path) {
            Some((export, path)) => (export.to_vec(), path.to_vec()),
            None => {
                let list: Vec<_> = exports.iter().map(|export| crate::names::escaped(&export.path.0)).collect();
                bail!(
                    "{} exports {}, not {}",
                    url.host,
                    if list.is_empty() { "nothing".into() } else { list.join(", ") },
                    crate::names::escaped(&url.path)
                );
            }
        };
        let root = mount.mount(Bytes::from(export.clone())).await.with_context(|| server.to_string())?;
        Ok((export, root, path))
    }

    /// What rpcbind says, or the usual port.
    async fn mount_port(&self, address: IpAddr) -> u16 {
        let rpcbind = SocketAddr::new(address, RPCBIND_PORT);
        let Ok(transport) = transports::tcp_once(rpcbind, &self.env).await else { return DEFAULT_MOUNT_PORT };
        let netid = Netid::tcp(&rpcbind);
        match Rpcbind::new(transport).address(mount::PROGRAM, mount::VERSION_3, netid).await {
            Ok(Some(found)) => found.port(),
            _ => DEFAULT_MOUNT_PORT,
        }
    }
}

impl Session {
    /// The file at a path in the export.
    pub(crate) async fn find(&self, path: &[u8], follow_last: bool) -> Result<Found> {
        let found = self.nfs.walk(&self.root, path, follow_last).await;
        found.with_context(|| crate::names::escaped(if path.is_empty() { b"/" } else { path }))
    }
}

impl NfsUrl {
    fn same_server(&self, other: &NfsUrl) -> bool {
        let place = |url: &NfsUrl| (url.host.clone(), url.port, url.mount_port);
        let carried = |url: &NfsUrl| (url.transport, url.fabric, url.device.clone(), url.rpcrdma);
        place(self) == place(other) && carried(self) == carried(other) && (self.uid, self.gid) == (other.uid, other.gid)
    }
}

/// The part of `path` below `export`, if it lies there.
fn below<'a>(export: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let stem = export.strip_suffix(b"/").unwrap_or(export);
    match path.strip_prefix(stem)? {
        below @ ([] | [b'/', ..]) => Some(below),
        _ => None,
    }
}

async fn resolve(url: &NfsUrl) -> Result<IpAddr> {
    if let Ok(address) = url.host.parse() {
        return Ok(address);
    }
    let mut found =
        tokio::net::lookup_host((url.host.as_str(), 0)).await.with_context(|| format!("cannot find {}", url.host))?;
    found.next().map(|address| address.ip()).with_context(|| format!("{} has no address", url.host))
}

/// Who calls: the user who runs the command, or whom the URL names.
fn identity(url: &NfsUrl) -> Arc<dyn ClientFlavour> {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let machine = rustix::system::uname().nodename().to_bytes().to_vec();
    Arc::new(SysAuth::new(SysCredential {
        stamp: std::process::id(),
        machine: machine.into(),
        uid: url.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
        gid: url.gid.unwrap_or_else(|| rustix::process::getegid().as_raw()),
        groups: match (url.uid, url.gid) {
            (None, None) => groups.into_iter().map(|group| group.as_raw()).collect(),
            _ => Vec::new(),
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_in_its_export_or_not() {
        assert_eq!(below(b"/", b"/a/b"), Some(&b"/a/b"[..]));
        assert_eq!(below(b"/srv", b"/srv"), Some(&b""[..]));
        assert_eq!(below(b"/srv", b"/srv/a"), Some(&b"/a"[..]));
        assert_eq!(below(b"/srv", b"/srva"), None);
    }
}
