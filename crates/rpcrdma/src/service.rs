//! Programs of one's own: what a server answers beside NFS, or instead of it, and how it is called.
//!
//! A [`Program`] is made of closures, whose argument and result are types with an XDR encoding: [`u32`], [`String`],
//! [`Bytes`](crate::fs::Bytes), pairs, [`Option`]s, and types of your own that implement [`Encode`] and [`Decode`] (for
//! a list they call [`Encoder::array`] and [`Decoder::array`], which takes a limit). [`connect`] makes a [`Client`]
//! that calls it.
//!
//! ```
//! use rpcrdma::{Server, server::Spoken, service::{self, Program}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), rpcrdma::Error> {
//! const ADDER: (u32, u32) = (0x2000_0001, 1);
//!
//! let adder = Program::new(ADDER).procedure(1, async |(a, b): (u32, u32)| a + b);
//! let running = Server::builder().service(adder).listen(([127, 0, 0, 1], 0)).start().await?;
//!
//! let client = service::connect(running.addresses(Spoken::Rdma)[0], ADDER).await?;
//! let sum: u32 = client.call_inline(1, &(2u32, 3u32), 4).await?;
//! assert_eq!(sum, 5);
//! # running.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! Implement [`Service`] instead if you need to know who calls ([`CallContext::credential`]), to let RDMA place data
//! directly, or to return errors of RPC.
//!
//! ```
//! use rpcrdma::{
//!     env::BoxFuture,
//!     service::{Answer, CallContext, Credential, Decoder, Encode, Encoder, Service},
//! };
//!
//! /// Returns the user who calls, as AUTH_SYS says.
//! struct WhoAmI;
//!
//! impl Service for WhoAmI {
//!     fn program(&self) -> u32 {
//!         0x2000_0003
//!     }
//!     fn version(&self) -> u32 {
//!         1
//!     }
//!     fn is_idempotent(&self, _: u32) -> bool {
//!         true
//!     }
//!     fn call(&self, context: CallContext, _: u32, _: Decoder) -> BoxFuture<'static, Answer> {
//!         let user = if let Credential::Sys(caller) = &context.credential { Some(caller.uid) } else { None };
//!         let mut results = Encoder::new();
//!         user.encode(&mut results);
//!         Box::pin(std::future::ready(Answer::Results(results.finish())))
//!     }
//! }
//!
//! let builder = rpcrdma::Server::builder().service(WhoAmI);
//! ```

use crate::{Error, error::Context};
use rpcrdma_env::{BoxFuture, tokio_env};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_oncrpc::NoAuth;
pub use rpcrdma_oncrpc::{
    Answer, ArgumentWords, CallContext, CallError, Client, Credential, ResultsEncoder, Service, WholeReply,
};
use rpcrdma_transport::{ClientOptions, Tracing, Versions};
pub use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, Payload};
use std::{collections::BTreeMap, future::ready, net::SocketAddr, sync::Arc};

/// Executes a procedure.
type Procedure = Box<dyn Fn(Decoder) -> BoxFuture<'static, Answer> + Send + Sync>;

/// A version of a program of one's own, made of closures.
///
/// A client sends a call again if its connection is lost. The server executes it once, and keeps the reply for two
/// minutes, as long as there is room: 16 MiB for all replies, and 1 MiB for one. [`repeatable`](Self::repeatable) is
/// for procedures that the server may execute again instead.
///
/// A procedure runs on a thread that serves connections, and all of them wait while it blocks: let it await what takes
/// time, or hand that to [`tokio::task::spawn_blocking`].
pub struct Program {
    number: u32,
    version: u32,
    procedures: BTreeMap<u32, (Procedure, bool)>,
}

impl Program {
    /// A program by its number and version. Numbers from 0x2000_0000 to 0x3fff_ffff are for programs of one's own (RFC
    /// 5531 section 13). Procedure 0 exists already, and does nothing.
    pub fn new(program: (u32, u32)) -> Self {
        let (number, version) = program;
        Self { number, version, procedures: BTreeMap::new() }
    }

    /// Adds a procedure: a function of its arguments. Calls run at the same time, so what they share is in an [`Arc`],
    /// of which each call gets its own:
    ///
    /// ```
    /// use rpcrdma::service::Program;
    /// use std::sync::{
    ///     Arc,
    ///     atomic::{AtomicU32, Ordering},
    /// };
    ///
    /// let sum = Arc::new(AtomicU32::new(0));
    /// let counter = Program::new((0x2000_0002, 1)).procedure(1, move |by: u32| {
    ///     let sum = sum.clone();
    ///     async move { sum.fetch_add(by, Ordering::Relaxed) + by }
    /// });
    /// ```
    pub fn procedure<A, R, F>(self, number: u32, run: impl Fn(A) -> F + Send + Sync + 'static) -> Self
    where
        A: Decode,
        R: Encode,
        F: Future<Output = R> + Send + 'static,
    {
        self.with(number, run, false)
    }

    /// Adds a procedure that does no harm if it is executed twice.
    pub fn repeatable<A, R, F>(self, number: u32, run: impl Fn(A) -> F + Send + Sync + 'static) -> Self
    where
        A: Decode,
        R: Encode,
        F: Future<Output = R> + Send + 'static,
    {
        self.with(number, run, true)
    }

    fn with<A, R, F>(mut self, number: u32, run: impl Fn(A) -> F + Send + Sync + 'static, is_idempotent: bool) -> Self
    where
        A: Decode,
        R: Encode,
        F: Future<Output = R> + Send + 'static,
    {
        let procedure = move |mut arguments: Decoder| -> BoxFuture<'static, Answer> {
            let decoded = A::decode(&mut arguments).and_then(|decoded| arguments.finish().map(|()| decoded));
            let running = match decoded {
                Ok(decoded) => run(decoded),
                Err(error) => return Box::pin(ready(Answer::from(error))),
            };
            Box::pin(async move {
                let mut results = Encoder::new();
                running.await.encode(&mut results);
                Answer::Results(results.finish())
            })
        };
        self.procedures.insert(number, (Box::new(procedure), is_idempotent));
        self
    }
}

impl Service for Program {
    fn program(&self) -> u32 {
        self.number
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn is_idempotent(&self, procedure: u32) -> bool {
        self.procedures.get(&procedure).is_none_or(|(_, is_idempotent)| *is_idempotent)
    }

    fn call(&self, _: CallContext, procedure: u32, arguments: Decoder) -> BoxFuture<'static, Answer> {
        match self.procedures.get(&procedure) {
            Some((run, _)) => run(arguments),
            None => Box::pin(ready(Answer::ProcUnavail)),
        }
    }
}

/// Connects to a server of a program, over RDMA by software iWARP, and returns its client: see [`Client::call_inline`].
/// Over other providers [`transport::connect`](crate::transport::connect) makes the transport, and over TCP
/// [`oncrpc::tcp`](crate::oncrpc::tcp).
///
/// # Errors
/// If the server cannot be reached.
pub async fn connect(server: SocketAddr, program: (u32, u32)) -> Result<Client, Error> {
    let (number, version) = program;
    let env = tokio_env().context("the system gives no clock or no random numbers")?;
    let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
    let mut options = ClientOptions::default();
    options.versions = Versions::Auto;
    let (transport, driver) = rpcrdma_transport::connect(fabric, server, &env, options, Arc::new(Tracing)).await?;
    tokio::spawn(driver);
    Ok(Client::new(transport, Arc::new(NoAuth), number, version))
}
