//! From a URL to a file system: finding the ports, connecting, and getting the root.
//!
//! In versions 2 and 3 the root is that of an export, and MOUNT returns its handle. Version 4 needs no other port: its
//! root is the server's, and the URL's path leads from there to the export. Both name the same file by the same path.

use super::{
    NfsUrl, NfsVersion, Options, Result, Transport,
    agree::{self, SessionVersion},
    ending::Ending,
    flavours,
    identity::{self, Identities, Identity},
    resolve::{at_port, first_that_answers, resolve},
    transports,
};
use crate::{
    Error,
    error::{Context, bail},
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Env, Random, tokio_env};
use rpcrdma_fabric::pool::Pool;
use rpcrdma_nfs::{
    mount,
    names::{escaped, join},
    v2, v3, v4,
};
use rpcrdma_nfs_client::{
    Error as NfsError, Files, Found, Handle, Mount, Nfs2, Nfs3, Transfer, split_export,
    v4::{self as v4_client, Callbacks, Nfs4},
};
use rpcrdma_oncrpc::{
    Client, ClientFlavour, ClientTransport, Netid, NoAuth,
    rpcbind::{RPCBIND_PORT, Rpcbind},
};
use std::{net::SocketAddr, sync::Arc};

/// Where MOUNT answers by default.
const DEFAULT_MOUNT_PORT: u16 = 20048;

/// A mounted export of one server, or all of a server of version 4.
pub struct Session {
    /// Its files.
    pub files: Files,
    /// The root of the mounted export.
    pub root: Handle,
    /// How much the server moves at a time.
    pub transfer: Transfer,
    /// The source of buffers for data.
    pub pool: Pool,
    export: Vec<u8>,
    url: NfsUrl,
    spoken: SessionVersion,
}

/// What carries the calls of a session.
struct Carried {
    transport: Arc<dyn ClientTransport>,
    pool: Pool,
}

/// The answer of MOUNT.
struct Mounted {
    export: Vec<u8>,
    root: Handle,
    /// The part of the URL's path below the export.
    path: Vec<u8>,
}

/// Sessions that are shared by URLs of the same server and the same user.
pub struct Sessions {
    env: Env,
    options: Options,
    ending: Ending,
    identities: Identities,
    open: Vec<Arc<Session>>,
}

impl Sessions {
    /// No session yet.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(options: Options) -> Result<Self> {
        let env = tokio_env().context("the system gives no clock or no random numbers")?;
        let ending = Ending::default();
        let identities = Identities::new(env.clone(), ending.clone());
        Ok(Self { identities, env, options, ending, open: Vec::new() })
    }

    /// Ends the sessions and contexts at servers when they are no longer needed.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// The source of random numbers.
    pub fn random(&self) -> Arc<dyn Random> {
        self.env.random.clone()
    }

    /// The session for a URL, shared by URLs that lie in the same export of the same server, and the path in it.
    ///
    /// # Errors
    /// If the server does not answer, or does not export what the URL names to this user.
    pub async fn open(&mut self, url: &NfsUrl) -> Result<(Arc<Session>, Vec<u8>)> {
        for session in &self.open {
            if session.serves(url)
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
        // If something is missing on this machine, no server need be looked for.
        self.identities.of(url)?;
        let addresses = resolve(url).await?;
        first_that_answers(&addresses, |address| Box::pin(self.connect_to(url, address))).await
    }

    async fn connect_to(&self, url: &NfsUrl, address: SocketAddr) -> Result<(Session, Vec<u8>)> {
        let server = at_port(address, url.nfs_port());
        let legacy = match url.version {
            NfsVersion::V2 => Some(SessionVersion::V2),
            NfsVersion::V3 => Some(SessionVersion::V3),
            _ => None,
        };
        if let Some(spoken) = legacy {
            let mounted = self.mount(url, address, spoken).await?;
            let carried = self.transport(url, server, None).await?;
            return self.legacy(url, mounted, carried, spoken).await;
        }
        let identity = self.identities.of(url)?;
        let callbacks = url.version.has_callbacks().then(|| identity.callbacks(&self.env));
        let carried = self.transport(url, server, callbacks.as_ref()).await?;
        let flavour = identity.flavour();
        let client = Client::new(carried.transport.clone(), flavour, v4::PROGRAM, v4::VERSION);
        match agree::version_4(&client, &self.env, url.version, callbacks.as_ref()).await {
            Ok(nfs) => self.session_4(url, server, nfs, carried.pool).await,
            // Anybody on the path can forge this refusal, with Kerberos too: only the call's number is signed. The
            // client would then call MOUNT with AUTH_SYS. OPS-SEC-m
            Err(why) if url.version == NfsVersion::Auto && why.is_no_version_4() && url.security.is_kerberos() => {
                let own = url.security;
                Err(Error::from(why)).with_context(|| {
                    format!(
                        "{server} was asked for version 4; with sec={own} the client does not try version 3 on such an \
                         answer, because anybody on the path can forge it: write version=3 in the URL if you want that"
                    )
                })
            }
            Err(why) if url.version == NfsVersion::Auto && why.is_no_version_4() => {
                let why = Error::from(why);
                let session = async {
                    let mounted = self.mount(url, address, SessionVersion::V3).await?;
                    self.legacy(url, mounted, carried, SessionVersion::V3).await
                };
                session.await.with_context(|| format!("{server} was asked for version 4 ({why:#}), then for version 3"))
            }
            Err(error) => Err(explained(url, error.into(), None, b"/").await).with_context(|| match url.version {
                NfsVersion::Auto => format!("asking {server} for version 4"),
                version => format!("asking {server} for version={version}"),
            }),
        }
    }

    /// A session of version 4, which needs only NFS's own port.
    async fn session_4(&self, url: &NfsUrl, server: SocketAddr, nfs: Nfs4, pool: Pool) -> Result<(Session, Vec<u8>)> {
        self.ending.of_session(&nfs);
        // The task ends with the runtime.
        tokio::spawn(nfs.driver());
        let (root, export) = match top(&nfs, &url.path).await {
            Ok(top) => top,
            Err(error) => {
                let error = explained(url, error.into(), Some(&nfs), &url.path).await;
                return Err(error.context(format!("asking {server} for its root")));
            }
        };
        let spoken = SessionVersion::V4(nfs.minor());
        let (root, files) = (Handle::from(&root.file), Files::from(nfs));
        let transfer = files.transfer(&root).await?;
        let path = below(&export, &url.path).unwrap_or(&url.path).to_vec();
        Ok((Session { files, root, transfer, pool, export, url: url.clone(), spoken }, path))
    }

    /// A session of version 2 or 3.
    async fn legacy(
        &self,
        url: &NfsUrl,
        mounted: Mounted,
        carried: Carried,
        spoken: SessionVersion,
    ) -> Result<(Session, Vec<u8>)> {
        let (Carried { transport, pool }, Mounted { export, root, path }) = (carried, mounted);
        let server = transport.server();
        let flavour = self.identities.of(url)?.flavour();
        let client = |version| Client::new(transport, flavour, v3::PROGRAM, version);
        let files = match spoken {
            SessionVersion::V2 => Files::from(Nfs2::new(client(v2::VERSION))),
            _ => Files::from(Nfs3::new(client(v3::VERSION), self.env.clock.clone())),
        };
        let transfer = match files.transfer(&root).await {
            Ok(transfer) => transfer,
            Err(error) => {
                let error = explained(url, error, None, b"/").await;
                return Err(error.context(format!("asking {server} what it can do")));
            }
        };
        let url = url.clone();
        Ok((Session { files, root, transfer, pool, export, url, spoken }, path))
    }

    async fn transport(&self, url: &NfsUrl, server: SocketAddr, callbacks: Option<&Callbacks>) -> Result<Carried> {
        self.tell_unused(url);
        let (transport, pool) = match url.transport {
            Transport::Rdma => transports::rdma(server, &self.env, &self.options, url, callbacks).await?,
            Transport::Tcp => {
                let (service, count) = (transports::NFS, url.connections);
                (transports::tcp(server, &self.env, &self.options, count, service, callbacks).await?, Pool::new())
            }
        };
        Ok(Carried { transport, pool })
    }

    /// Warns of options that have no effect with this URL: those of RDMA if TCP carries the calls, those of version 3
    /// if the URL asks for version 4.
    fn tell_unused(&self, url: &NfsUrl) {
        let host = escaped(url.host.as_bytes());
        if url.transport == Transport::Tcp {
            for option in self.options.of_rdma() {
                let told = format!("{option} has no effect with transport=tcp, which carries the calls to {host}");
                self.options.watch.warning(&told);
            }
        }
        if url.mount_port.is_some() && !url.version.has_mount() {
            let version = url.version;
            self.options
                .watch
                .warning(&format!("mountport= has no effect with version={version}, which needs no MOUNT"));
        }
    }

    /// A client of the URL's server without a mount or a session, for NULL calls. It calls version 4 if the URL allows
    /// it: the server may not serve that, which [`version_3`] is for.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn bare(&self, url: &NfsUrl) -> Result<Bare> {
        let identity = self.identities.of(url)?;
        let addresses = resolve(url).await?;
        let callbacks = url.version.has_callbacks().then(|| identity.callbacks(&self.env));
        let attempt = |address| -> BoxFuture<'_, _> {
            Box::pin(self.transport(url, at_port(address, url.nfs_port()), callbacks.as_ref()))
        };
        let Carried { transport, .. } = first_that_answers(&addresses, attempt).await?;
        let version = match url.version {
            NfsVersion::V2 => v2::VERSION,
            NfsVersion::V3 => v3::VERSION,
            _ => v4::VERSION,
        };
        // Kerberos shows with the first call whether it works; for NULL the caller does not matter otherwise.
        let flavour: Arc<dyn ClientFlavour> = match &identity {
            Identity::Sys(_) => Arc::new(NoAuth),
            Identity::Kerberos(_) => identity.flavour(),
        };
        Ok(Bare { client: Client::new(transport, flavour, v3::PROGRAM, version), identity, callbacks })
    }

    /// A client of version 4 with a session, over the connection of `client`, which calls as the URL's user.
    ///
    /// # Errors
    /// If the server does not speak a version that the URL allows.
    pub async fn over(&self, url: &NfsUrl, client: &Client, callbacks: Option<&Callbacks>) -> Result<Nfs4> {
        let nfs = agree::version_4(client, &self.env, url.version, callbacks).await.map_err(NfsError::from)?;
        self.ending.of_session(&nfs);
        Ok(nfs)
    }

    async fn mount(&self, url: &NfsUrl, address: SocketAddr, spoken: SessionVersion) -> Result<Mounted> {
        let version = if spoken == SessionVersion::V2 { mount::VERSION_1 } else { mount::VERSION_3 };
        let port = match url.mount_port {
            Some(port) => port,
            None => self.mount_port(address, version).await,
        };
        let server = at_port(address, port);
        let transport =
            transports::tcp(server, &self.env, &self.options, 1, transports::MOUNT, None).await.context("MOUNT")?;
        let flavour = Arc::new(identity::sys(url));
        let mount = Mount::new(Client::new(transport, flavour, mount::PROGRAM, version));
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
        let asked = Bytes::from(export.clone());
        let root = match spoken {
            // Version 1 of MOUNT does not return flavours.
            SessionVersion::V2 => mount.mount_1(asked).await.map(Handle::from).with_context(|| server.to_string())?,
            _ => {
                let mounted = mount.mount(asked).await.with_context(|| server.to_string())?;
                flavours::check_mounted(url, &mounted.flavours)?;
                mounted.root.into()
            }
        };
        Ok(Mounted { export, root, path })
    }

    /// The port of MOUNT that rpcbind returns, or the usual port.
    async fn mount_port(&self, address: SocketAddr, version: u32) -> u16 {
        let rpcbind = at_port(address, RPCBIND_PORT);
        let Ok(transport) = transports::tcp_once(rpcbind, &self.env, &self.options.watch).await else {
            return DEFAULT_MOUNT_PORT;
        };
        let netid = Netid::tcp(&rpcbind);
        match Rpcbind::new(transport).address(mount::PROGRAM, version, netid).await {
            Ok(Some(found)) => found.port(),
            _ => DEFAULT_MOUNT_PORT,
        }
    }
}

impl Session {
    /// The version of NFS.
    pub fn version(&self) -> SessionVersion {
        self.spoken
    }

    /// A path in the export, as users write it in URLs.
    pub fn shown(&self, path: &[u8]) -> Vec<u8> {
        let names = path.split(|&octet| octet == b'/').filter(|name| !name.is_empty());
        names.fold(self.export.clone(), |path, name| join(&path, name))
    }

    /// The file at a path in the export. Errors do not name the path: the caller knows it as the user wrote it.
    ///
    /// # Errors
    /// If the file does not exist, or the user may not search a directory of the path.
    pub async fn find(&self, path: &[u8], follow_last: bool) -> Result<Found> {
        match self.files.walk(&self.root, path, follow_last).await {
            Ok(found) => Ok(found),
            Err(error) => Err(self.explained(error, path).await),
        }
    }

    /// The error of finding the file at a path, with what to do about it.
    pub async fn explained(&self, error: NfsError, path: &[u8]) -> Error {
        explained(&self.url, error, self.files.version_4(), path).await
    }
}

/// A client that makes NULL calls, and what answers the server's calls over its connection.
pub struct Bare {
    /// Makes the calls.
    pub client: Client,
    /// The identity with which other calls are made.
    pub identity: Identity,
    /// What answers the calls of the server.
    pub callbacks: Option<Callbacks>,
}

/// The same client in version 3, for URLs that allow it.
pub fn version_3(client: &Client) -> Client {
    client.clone().with_program(v3::PROGRAM, v3::VERSION)
}

/// The same client in version 2, to ask whether that is served.
pub fn version_2(client: &Client) -> Client {
    Client::new(client.transport().clone(), Arc::new(NoAuth), v2::PROGRAM, v2::VERSION)
}

/// The same client in version 4, which calls as the URL's user.
pub fn version_4(identity: &Identity, client: &Client) -> Client {
    client.with_flavour(identity.flavour()).with_program(v4::PROGRAM, v4::VERSION)
}

/// An error, with what to write into the URL if the server does not take the flavour that it says.
async fn explained(url: &NfsUrl, error: NfsError, nfs: Option<&Nfs4>, path: &[u8]) -> Error {
    match flavours::explain(url, &error, nfs, path).await {
        Some(text) => Error::from(error).context(text),
        None => error.into(),
    }
}

impl Session {
    /// Whether the session can serve another URL too: the same server, the same user and transport, and a version that
    /// the URL allows.
    fn serves(&self, url: &NfsUrl) -> bool {
        // The port of MOUNT does not matter to version 4.
        let mount_port =
            |url: &NfsUrl| url.mount_port.filter(|_| matches!(self.spoken, SessionVersion::V2 | SessionVersion::V3));
        let place = |url: &NfsUrl| (url.host.clone(), url.zone.clone(), url.port, mount_port(url));
        let carried = |url: &NfsUrl| (url.transport, url.fabric, url.device.clone(), url.rpcrdma);
        let callers = |url: &NfsUrl| (url.uid, url.gid, url.security, url.principal.clone());
        let is_same = place(&self.url) == place(url) && carried(&self.url) == carried(url);
        is_same && callers(&self.url) == callers(url) && url.version.allows(self.spoken)
    }
}

/// The file at which a session of version 4 begins: the server's root or, if the root requires another flavour, the
/// first file on the path that accepts the session's.
async fn top(nfs: &Nfs4, path: &[u8]) -> Result<(v4_client::Found, Vec<u8>), v4_client::Error> {
    let refused = match nfs.root().await {
        Err(error) if error.status() == Some(v4::Status::WRONGSEC) => error,
        root => return Ok((root?, b"/".to_vec())),
    };
    let names: Vec<_> = path.split(|octet| *octet == b'/').filter(|name| !name.is_empty() && *name != b".").collect();
    if names.contains(&&b".."[..]) {
        return Err(refused);
    }
    for len in 1..=names.len() {
        let on_way: Vec<_> = names[..len].iter().map(|name| v4::Name::from(*name)).collect();
        match nfs.lookup_from_root(&on_way).await {
            Err(error) if error.status() == Some(v4::Status::WRONGSEC) => {}
            Err(_) => return Err(refused),
            Ok(found) => return Ok((found, [b"/", &names[..len].join(&b'/')[..]].concat())),
        }
    }
    Err(refused)
}

/// The part of `path` below `export`, if it lies there.
fn below<'a>(export: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let stem = export.strip_suffix(b"/").unwrap_or(export);
    match path.strip_prefix(stem)? {
        below @ ([] | [b'/', ..]) => Some(below),
        _ => None,
    }
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
