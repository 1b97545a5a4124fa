//! From a URL to a mounted export: finding the ports, connecting, asking for the root.

use crate::{
    failure,
    names::{escaped, join},
    resolve::{at_port, first_that_answers, resolve},
    transports::{self, Options},
    url::{NfsUrl, NfsVersion, Transport},
    waiting::Watch,
};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use rpcrdma_env::{Env, Random, tokio_env};
use rpcrdma_fabric::pool::Pool;
use rpcrdma_nfs::{mount, v3};
use rpcrdma_nfs_client::{Files, Found, Handle, Mount, Nfs3, Transfer, split_export};
use rpcrdma_oncrpc::{
    Client, ClientFlavour, ClientTransport, Netid, SysAuth, SysCredential,
    rpcbind::{RPCBIND_PORT, Rpcbind},
};
use std::{net::SocketAddr, sync::Arc};

/// Where MOUNT answers if nobody says otherwise.
const DEFAULT_MOUNT_PORT: u16 = 20048;

/// A mounted export of one server.
pub(crate) struct Session {
    pub(crate) files: Files,
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

    /// Tells the user when a server does not answer.
    pub(crate) fn watch(&self) -> &Watch {
        &self.options.watch
    }

    /// Where random numbers come from.
    pub(crate) fn random(&self) -> Arc<dyn Random> {
        self.env.random.clone()
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
        let addresses = resolve(url).await?;
        first_that_answers(&addresses, async |address| self.connect_to(url, address).await).await
    }

    async fn connect_to(&self, url: &NfsUrl, address: SocketAddr) -> Result<(Session, Vec<u8>)> {
        let Spoken::V3 = spoken(url)?;
        let identity = identity(url);
        let (export, root, path) = self.mount(url, address, identity.clone()).await?;
        let server = at_port(address, url.nfs_port());
        let (transport, pool) = self.transport(url, server).await?;
        let nfs = Nfs3::new(Client::new(transport, identity, v3::PROGRAM, v3::VERSION), self.env.clock.clone());
        let files = Files::from(nfs);
        let transfer = files.transfer(&root).await.with_context(|| format!("asking {server} what it can do"))?;
        Ok((Session { files, root, transfer, pool, export, url: url.clone() }, path))
    }

    async fn transport(&self, url: &NfsUrl, server: SocketAddr) -> Result<(Arc<dyn ClientTransport>, Pool)> {
        Ok(match url.transport {
            Transport::Rdma => transports::rdma(server, &self.env, &self.options, url).await?,
            Transport::Tcp => {
                self.tell_unused(url);
                (transports::tcp(server, &self.env, &self.options.watch, transports::NFS).await?, Pool::new())
            }
        })
    }

    /// Tells of options that are of RDMA alone.
    fn tell_unused(&self, url: &NfsUrl) {
        let host = escaped(url.host.as_bytes());
        for option in self.options.of_rdma() {
            failure::warning(&format!("{option} has no effect with transport=tcp, which carries the calls to {host}"));
        }
    }

    /// A connection to the URL's server without a mount.
    pub(crate) async fn transport_for(&self, url: &NfsUrl) -> Result<Arc<dyn ClientTransport>> {
        let Spoken::V3 = spoken(url)?;
        let addresses = resolve(url).await?;
        let attempt = async |address| Ok(self.transport(url, at_port(address, url.nfs_port())).await?.0);
        first_that_answers(&addresses, attempt).await
    }

    async fn mount(
        &self,
        url: &NfsUrl,
        address: SocketAddr,
        identity: Arc<dyn ClientFlavour>,
    ) -> Result<(Vec<u8>, Handle, Vec<u8>)> {
        let port = match url.mount_port {
            Some(port) => port,
            None => self.mount_port(address).await,
        };
        let server = at_port(address, port);
        let transport =
            transports::tcp(server, &self.env, &self.options.watch, transports::MOUNT).await.context("MOUNT")?;
        let mount = Mount::new(Client::new(transport, identity, mount::PROGRAM, mount::VERSION_3));
        let exports = mount.exports().await.with_context(|| format!("asking {server} for its exports"))?;
        let (export, path) = match split_export(&exports, &url.path) {
            Some((export, path)) => (export.to_vec(), path.to_vec()),
            None => {
                let list: Vec<_> = exports.iter().map(|export| escaped(&export.path.0)).collect();
                bail!(
                    "{} exports {}, not {}",
                    url.host,
                    if list.is_empty() { "nothing".into() } else { list.join(", ") },
                    escaped(&url.path)
                );
            }
        };
        let root = mount.mount(Bytes::from(export.clone())).await.with_context(|| server.to_string())?;
        Ok((export, root.into(), path))
    }

    /// What rpcbind says, or the usual port.
    async fn mount_port(&self, address: SocketAddr) -> u16 {
        let rpcbind = at_port(address, RPCBIND_PORT);
        let Ok(transport) = transports::tcp_once(rpcbind, &self.env, &self.options.watch).await else {
            return DEFAULT_MOUNT_PORT;
        };
        let netid = Netid::tcp(&rpcbind);
        match Rpcbind::new(transport).address(mount::PROGRAM, mount::VERSION_3, netid).await {
            Ok(Some(found)) => found.port(),
            _ => DEFAULT_MOUNT_PORT,
        }
    }
}

impl Session {
    /// A path in the export, as users write it in URLs.
    pub(crate) fn shown(&self, path: &[u8]) -> Vec<u8> {
        let names = path.split(|&octet| octet == b'/').filter(|name| !name.is_empty());
        names.fold(self.export.clone(), |path, name| join(&path, name))
    }

    /// The file at a path in the export. Its errors do not name the path: callers know it as the user wrote it.
    pub(crate) async fn find(&self, path: &[u8], follow_last: bool) -> Result<Found> {
        Ok(self.files.walk(&self.root, path, follow_last).await?)
    }
}

/// The version of NFS that a session speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoken {
    V3,
}

/// Which version a URL asks for.
///
/// # Errors
/// If this client does not speak it.
fn spoken(url: &NfsUrl) -> Result<Spoken> {
    match url.version {
        NfsVersion::Auto | NfsVersion::V3 => Ok(Spoken::V3),
        version => bail!("version={version}: this client does not speak version 4 of NFS yet"),
    }
}

impl NfsUrl {
    fn same_server(&self, other: &NfsUrl) -> bool {
        let place = |url: &NfsUrl| (url.host.clone(), url.zone.clone(), url.port, url.mount_port);
        let carried = |url: &NfsUrl| (url.transport, url.fabric, url.device.clone(), url.rpcrdma);
        let callers = |url: &NfsUrl| (url.uid, url.gid, spoken(url).ok());
        place(self) == place(other) && carried(self) == carried(other) && callers(self) == callers(other)
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

    fn url(text: &str) -> NfsUrl {
        text.parse().unwrap()
    }

    #[test]
    fn sessions_are_shared_by_urls_that_speak_the_same() {
        let plain = url("nfs://host/a");
        assert!(plain.same_server(&url("nfs://host/b?version=3")), "auto means version 3");
        for other in ["?version=4.2", "?uid=7", "?gid=7", "?transport=tcp", "?rpcrdma=1", "?mountport=5"] {
            assert!(!plain.same_server(&url(&format!("nfs://host/a{other}"))), "{other}");
        }
    }

    #[test]
    fn a_version_that_is_not_spoken_is_refused_in_words() {
        for version in ["4.0", "4.1", "4.2"] {
            let refused = spoken(&url(&format!("nfs://host/?version={version}"))).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("version={version}: this client does not speak")), "{refused}");
        }
        assert_eq!(spoken(&url("nfs://host/?version=auto")).unwrap(), Spoken::V3);
    }

    #[test]
    fn a_path_lies_in_its_export_or_not() {
        assert_eq!(below(b"/", b"/a/b"), Some(&b"/a/b"[..]));
        assert_eq!(below(b"/srv", b"/srv"), Some(&b""[..]));
        assert_eq!(below(b"/srv", b"/srv/a"), Some(&b"/a"[..]));
        assert_eq!(below(b"/srv", b"/srva"), None);
    }
}
