//! From a URL to a file system: finding the ports, connecting, asking for the root.
//!
//! In version 3 that is an export's, which MOUNT tells. Version 4 needs no other port: its root is the server's, and
//! the URL's path leads from there to what is exported.

use crate::{
    ending, failure,
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
use rpcrdma_nfs::{mount, v3, v4};
use rpcrdma_nfs_client::{
    Error, Files, Found, Handle, Mount, Nfs3, Transfer, split_export,
    v4::{self as client4, Callbacks, Nfs4},
};
use rpcrdma_oncrpc::{
    Client, ClientFlavour, ClientTransport, Netid, SysAuth, SysCredential,
    rpcbind::{RPCBIND_PORT, Rpcbind},
};
use std::{net::SocketAddr, sync::Arc};

/// Where MOUNT answers if nobody says otherwise.
const DEFAULT_MOUNT_PORT: u16 = 20048;

/// A mounted export of one server, or all of a server of version 4.
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
        match spoken(url) {
            Spoken::V3 => self.connect_3(url, address).await,
            Spoken::V4(minor) => Ok((self.connect_4(url, address, minor).await?, url.path.clone())),
        }
    }

    /// A session of version 4: nothing but NFS's own port.
    async fn connect_4(&self, url: &NfsUrl, address: SocketAddr, minor: u32) -> Result<Session> {
        let server = at_port(address, url.nfs_port());
        // Servers of minor version 0 call at a port of the client's own, and it has none.
        let callbacks = (minor > 0).then(Callbacks::new);
        let (transport, pool) = self.transport(url, server, callbacks.as_ref()).await?;
        let host = String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned();
        let mut options = client4::Options::new(host).with_minors(minor..=minor);
        options.callbacks = callbacks;
        let client = Client::new(transport, identity(url), v4::PROGRAM, v4::VERSION);
        let connected = Nfs4::connect(client, &self.env, options).await;
        let nfs =
            connected.map_err(Error::from).with_context(|| format!("asking {server} for version={}", url.version))?;
        ending::later(&nfs);
        // Ends with the runtime.
        tokio::spawn(nfs.driver());
        let root = nfs.root().await.map_err(Error::from).with_context(|| format!("asking {server} for its root"))?;
        let (root, files) = (Handle::from(&root.file), Files::from(nfs));
        let transfer = files.transfer(&root).await?;
        Ok(Session { files, root, transfer, pool, export: b"/".to_vec(), url: url.clone() })
    }

    async fn connect_3(&self, url: &NfsUrl, address: SocketAddr) -> Result<(Session, Vec<u8>)> {
        let identity = identity(url);
        let (export, root, path) = self.mount(url, address, identity.clone()).await?;
        let server = at_port(address, url.nfs_port());
        let (transport, pool) = self.transport(url, server, None).await?;
        let nfs = Nfs3::new(Client::new(transport, identity, v3::PROGRAM, v3::VERSION), self.env.clock.clone());
        let files = Files::from(nfs);
        let transfer = files.transfer(&root).await.with_context(|| format!("asking {server} what it can do"))?;
        Ok((Session { files, root, transfer, pool, export, url: url.clone() }, path))
    }

    async fn transport(
        &self,
        url: &NfsUrl,
        server: SocketAddr,
        callbacks: Option<&Callbacks>,
    ) -> Result<(Arc<dyn ClientTransport>, Pool)> {
        Ok(match url.transport {
            Transport::Rdma => transports::rdma(server, &self.env, &self.options, url, callbacks).await?,
            Transport::Tcp => {
                self.tell_unused(url);
                let watch = &self.options.watch;
                (transports::tcp(server, &self.env, watch, transports::NFS, callbacks).await?, Pool::new())
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

    /// A connection to the URL's server without a mount or a session.
    pub(crate) async fn transport_for(&self, url: &NfsUrl) -> Result<Arc<dyn ClientTransport>> {
        let addresses = resolve(url).await?;
        let attempt = async |address| Ok(self.transport(url, at_port(address, url.nfs_port()), None).await?.0);
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
            transports::tcp(server, &self.env, &self.options.watch, transports::MOUNT, None).await.context("MOUNT")?;
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
    /// With this minor version.
    V4(u32),
}

/// Which version a URL asks for. Who says nothing gets version 3.
fn spoken(url: &NfsUrl) -> Spoken {
    match url.version {
        NfsVersion::Auto | NfsVersion::V3 => Spoken::V3,
        NfsVersion::V4_0 => Spoken::V4(0),
        NfsVersion::V4_1 => Spoken::V4(1),
        NfsVersion::V4_2 => Spoken::V4(2),
    }
}

impl NfsUrl {
    /// The version of the program that is called.
    pub(crate) fn program_version(&self) -> u32 {
        match spoken(self) {
            Spoken::V3 => v3::VERSION,
            Spoken::V4(_) => v4::VERSION,
        }
    }

    fn same_server(&self, other: &NfsUrl) -> bool {
        let place = |url: &NfsUrl| (url.host.clone(), url.zone.clone(), url.port, url.mount_port);
        let carried = |url: &NfsUrl| (url.transport, url.fabric, url.device.clone(), url.rpcrdma);
        let callers = |url: &NfsUrl| (url.uid, url.gid, spoken(url));
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
    fn the_url_says_which_version_is_spoken() {
        for (version, expected) in [
            ("auto", Spoken::V3),
            ("3", Spoken::V3),
            ("4.0", Spoken::V4(0)),
            ("4.1", Spoken::V4(1)),
            ("4.2", Spoken::V4(2)),
        ] {
            let url = url(&format!("nfs://host/?version={version}"));
            assert_eq!(spoken(&url), expected);
            assert_eq!(url.program_version(), if expected == Spoken::V3 { 3 } else { 4 });
        }
    }

    #[test]
    fn a_path_lies_in_its_export_or_not() {
        assert_eq!(below(b"/", b"/a/b"), Some(&b"/a/b"[..]));
        assert_eq!(below(b"/srv", b"/srv"), Some(&b""[..]));
        assert_eq!(below(b"/srv", b"/srv/a"), Some(&b"/a"[..]));
        assert_eq!(below(b"/srv", b"/srva"), None);
    }
}
