//! NFS and RPC over RDMA, with or without RDMA hardware: a server for files, a client, and services of one's own.
//!
//! * [`Server`] serves directories, [file systems of one's own](fs) and [services of one's own](service), over RDMA and
//!   TCP. It bounds what its clients can use, and lets calls finish before it stops. `rpcrdma serve` is built on it.
//! * [`Client`] reads and writes files of any NFS server, in versions 2 to 4.2, as an `nfs://` URL says.
//!
//! Where there is no RDMA device, software iWARP carries RDMA over TCP. The server runs on threads of its own, and
//! everything else in the program's tokio runtime. Each example here is a program in `examples/`, which the tests run.
//!
//! A program depends on this crate and on tokio, and needs no other crate of the project, except for tests over a
//! simulated fabric (`rpcrdma-sim`). In its `Cargo.toml`, with the path of a clone of the repository:
//!
//! ```toml
//! [dependencies]
//! rpcrdma = { path = "../rpcrdma/crates/rpcrdma" }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread", "signal"] } # signal: to stop by Ctrl-C
//! ```
//!
//! Warnings and errors of the server go to the crate `tracing`, which forgets them unless the program has a subscriber,
//! such as that of the crate `tracing-subscriber`.
//!
//! # Serving a directory
//!
//! ```no_run
//! use rpcrdma::Server;
//!
//! # async fn main_() -> Result<(), rpcrdma::Error> {
//! Server::builder().directory("/", "/srv/data").listen(([0, 0, 0, 0], 20049)).serve().await
//! # }
//! ```
//!
//! `rpcrdma ls nfs://SERVER/` lists it, and so does [`Client`]. If root runs the server, a client's root is nobody: it
//! can write only where everybody can.
//!
//! `serve` never stops. [`serve_until`](server::Builder::serve_until) stops when a future completes, such as
//! `async { drop(tokio::signal::ctrl_c().await) }` at Ctrl-C; [`start`](server::Builder::start) returns a handle, whose
//! [`shutdown`](server::Running::shutdown) stops it. [`allow`](server::Builder::allow) names the networks that are
//! served, [`tcp`](server::Builder::tcp) an address for plain TCP, and [`Options`](server::Options) has all the rest:
//! Kerberos, memory, threads, limits, metrics. The program is `serve_directory.rs`.
//!
//! # Serving files of one's own
//!
//! A [`FileSystem`](fs::FileSystem) that is only read has six methods: what the root is, what identifies the file
//! system, and the attributes, names, bytes and entries of files.
//!
//! ```
//! use rpcrdma::fs::*;
//! use std::{collections::BTreeMap, future::ready};
//!
//! /// Names and texts. The root is file 0; the texts are files from 1 on, in the order of their names.
//! struct Map(BTreeMap<&'static str, &'static str>);
//!
//! impl Map {
//!     /// A file's attributes and its text. The root has none.
//!     fn node(&self, file: FileId) -> Result<(Attributes, Option<&'static str>), Fault> {
//!         let number = file.number().ok_or(Fault::BadId)?;
//!         let text = |place| self.0.values().nth(place as usize).copied().ok_or(Fault::Stale);
//!         let text = number.checked_sub(1).map(text).transpose()?;
//!         let kind = if text.is_some() { FileType::Regular } else { FileType::Directory };
//!         let mut attributes = Attributes::new(kind, self.id(), number);
//!         (attributes.mode, attributes.size) = (0o555, text.map_or(0, |text| text.len() as u64));
//!         Ok((attributes, text))
//!     }
//!
//!     /// The entries of the root, the only directory.
//!     fn entries(&self, at: FileId) -> Told<impl Iterator<Item = (u64, &'static str)>> {
//!         let is_root = if at == self.root() { Ok(()) } else { Err(failed(Fault::NotDirectory)) };
//!         is_root.map(|()| [(0, "."), (0, "..")].into_iter().chain((1..).zip(self.0.keys().copied())))
//!     }
//! }
//!
//! impl FileSystem for Map {
//!     fn root(&self) -> FileId {
//!         FileId::from(0)
//!     }
//!     fn id(&self) -> u64 {
//!         1
//!     }
//!     fn attributes(&self, _: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>> {
//!         Box::pin(ready(self.node(file).map(|(attributes, _)| attributes)))
//!     }
//!     fn lookup(&self, _: Caller, at: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>> {
//!         let find = |(_, own): &(u64, &str)| own.as_bytes() == name;
//!         let found = self.entries(at).and_then(|mut all| all.find(find).ok_or(failed(Fault::NotFound)));
//!         Box::pin(ready(found.map(|(number, _)| Found::new(FileId::from(number), None, None))))
//!     }
//!     fn read(&self, via: Via, offset: u64, count: usize, buffer: Buffer) -> BoxFuture<'_, Told<ReadData>> {
//!         let text = self.node(via.file()).and_then(|(_, text)| text.ok_or(Fault::IsDirectory)).map_err(failed);
//!         Box::pin(ready(text.map(|text| ReadData::of(text.as_bytes(), offset, count, buffer, None))))
//!     }
//!     fn list(&self, _: Caller, at: FileId, to: u64, _: [u8; 8], n: ListingBudget) -> BoxFuture<'_, Told<Listing>> {
//!         let entry = |(number, name): (u64, &'static str)| ListingEntry::new(number, name.into(), 0);
//!         Box::pin(ready(self.entries(at).map(|all| Listing::of(all.map(entry), to, n))))
//!     }
//! }
//!
//! let map = Map(BTreeMap::from([("greeting", "hello\n"), ("question", "who is there?\n")]));
//! let builder = rpcrdma::Server::builder().export("/", map);
//! ```
//!
//! Everybody may read everything here. A file system with rights checks them in [`read`](fs::FileSystem::read) and the
//! other methods. The program is `serve_map.rs`. [`fs::memory`] is a file system in memory that can be written.
//!
//! # Reading and writing files
//!
//! ```no_run
//! use rpcrdma::{
//!     Client,
//!     client::{Access, Stability},
//! };
//!
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("nfs://server/export?version=4.2").await?;
//!
//! // A whole file at once.
//! client.write("/hello.txt", "hello, world\n".into()).await?;
//! let bytes = client.read("/hello.txt").await?;
//!
//! // A part of an open file.
//! let file = client.open_for("/hello.txt", Access::Both).await?;
//! file.write(7, Stability::FileSync, "there".into()).await?;
//! let read = file.read(0, 12).await?;
//! file.close().await?;
//!
//! client.close().await;
//! # Ok(()) }
//! ```
//!
//! The program is `read_write.rs`. [`Client::files`] has the rest: directories, links, locks, attributes, copies. Print
//! an error with `{:#}` to see its causes; [`Error::is_absent`] says whether the file is missing.
//!
//! # A service of one's own
//!
//! ```
//! use rpcrdma::{
//!     Server,
//!     server::Spoken,
//!     service::{self, Program},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The program's number and version.
//! const GREETER: (u32, u32) = (0x2000_0007, 1);
//! const GREET: u32 = 1;
//!
//! let greeter = Program::new(GREETER).procedure(GREET, async |name: String| format!("hello, {name}"));
//! let server = Server::builder().service(greeter).listen(([127, 0, 0, 1], 0)).start().await?;
//!
//! let client = service::connect(server.addresses(Spoken::Rdma)[0], GREETER).await?;
//! // The last argument is the room for the results: the most bytes that they take.
//! let greeting: String = client.call_inline(GREET, "world", 100).await?;
//! assert_eq!(greeting, "hello, world");
//! server.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! The program is `own_service.rs`.
//!
//! # The transport over other providers
//!
//! [`Options::fabric`](server::Options::fabric) and [`client::Options::fabric`] take any [`Fabric`](fabric::Fabric) of
//! the real world in place of iWARP. The simulated one, whose time passes only while it runs, needs [`transport`], the
//! layer below: one connection, its server and its client, without threads and sockets of its own.
//!
//! ```
//! use rpcrdma::{
//!     env::Env,
//!     fabric::Fabric,
//!     oncrpc::{Client, NoAuth, Router},
//!     service::Program,
//!     transport::{ClientOptions, Quiet, Server, ServerMemory, ServerOptions, connect},
//! };
//! use std::{error::Error, future::poll_fn, sync::Arc};
//!
//! /// The program's number and version.
//! const DOUBLER: (u32, u32) = (0x2000_0008, 1);
//!
//! /// Serves a program on one host of a fabric, and calls it from another.
//! async fn double(server: &dyn Fabric, client: Arc<dyn Fabric>, at: &str, env: &Env) -> Result<u32, Box<dyn Error>> {
//!     let program = Program::new(DOUBLER).procedure(1, async |number: u32| number * 2);
//!     let router = Arc::new(Router::new(env).with_service(Arc::new(program)));
//!     let memory = ServerMemory::budget(64 << 20);
//!     let rdma = Server::new(server, router, memory, env.clone(), ServerOptions::default(), Arc::new(Quiet));
//!     let mut listener = server.listen(at.parse()?).await?;
//!     let address = listener.local_addr();
//!
//!     // Each end has a driver, a future that does its work while it is polled.
//!     let serving = async {
//!         let pending = poll_fn(|cx| listener.poll_accept(cx)).await?;
//!         let (_, driver) = rdma.accept(pending).await?;
//!         Ok::<_, Box<dyn Error>>(driver.await?)
//!     };
//!     let calling = async {
//!         let (transport, driver) = connect(client, address, env, ClientOptions::default(), Arc::new(Quiet)).await?;
//!         let client = Client::new(transport, Arc::new(NoAuth), DOUBLER.0, DOUBLER.1);
//!         tokio::select! {
//!             doubled = client.call_inline(1, &21u32, 4) => Ok(doubled?),
//!             () = driver => Err("the connection has ended".into()),
//!         }
//!     };
//!     tokio::select! {
//!         doubled = calling => doubled,
//!         ended = serving => Err(ended.err().unwrap_or_else(|| "the client has gone".into())),
//!     }
//! }
//! ```
//!
//! The program is `two_providers.rs`, which runs these calls over iWARP and over a simulated fabric. For iWARP,
//! `env` is `rpcrdma::env::tokio_env()?`, and the fabric of both ends is `rpcrdma::iwarp::Iwarp::new(env, config)`. For
//! the simulated one, `rpcrdma_sim::World` (`rpcrdma-sim = { path = "../rpcrdma/crates/sim" }`) has the environment,
//! and a fabric for each host; call its `block_on` outside a tokio runtime. A server of many connections accepts in a
//! loop, and spawns `accept` and the driver for each.
//!
//! # Next to a web server
//!
//! ```no_run
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Router, extract::Path, http::StatusCode, routing::get};
//! use rpcrdma::{Client, Server, fs, server::Spoken};
//! use std::sync::Arc;
//!
//! // The file server runs on threads of its own, beside the tasks of this runtime.
//! let files = Server::builder().export("/", fs::memory(64 << 20)?).listen(([127, 0, 0, 1], 0)).start().await?;
//! let client = Arc::new(Client::connect(&format!("nfs://{}/", files.addresses(Spoken::Rdma)[0])).await?);
//!
//! let page = async move |Path(name): Path<String>| {
//!     client.read(&name).await.map_err(|error| {
//!         let status = if error.is_absent() { StatusCode::NOT_FOUND } else { StatusCode::BAD_GATEWAY };
//!         (status, format!("{error:#}\n"))
//!     })
//! };
//! let web = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let stop = async { drop(tokio::signal::ctrl_c().await) };
//! axum::serve(web, Router::new().route("/{name}", get(page))).with_graceful_shutdown(stop).await?;
//!
//! files.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! The program is `beside_axum.rs`, whose pages are the files.
//!
//! # The crates below
//!
//! The parts are crates of their own, which are here as modules: [`nfsd`], [`nfs_client`], [`nfs`], [`transport`],
//! [`oncrpc`], [`xdr`], [`fabric`], [`iwarp`], [`verbs`] and [`env`](mod@env). Take one of them when you need less than
//! all of this.

mod carrier;
pub mod client;
mod error;
pub mod fs;
pub mod server;
pub mod service;

pub use carrier::Carrier;
pub use client::Client;
pub use error::Error;
pub use rpcrdma_env as env;
pub use rpcrdma_fabric as fabric;
pub use rpcrdma_iwarp as iwarp;
pub use rpcrdma_nfs as nfs;
pub use rpcrdma_nfs_client as nfs_client;
pub use rpcrdma_nfsd as nfsd;
pub use rpcrdma_oncrpc as oncrpc;
pub use rpcrdma_transport as transport;
pub use rpcrdma_verbs as verbs;
pub use rpcrdma_xdr as xdr;
pub use server::Server;
