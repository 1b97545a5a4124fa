//! A deterministic RDMA provider: all hosts run in one process, time is only a number, and a seed decides everything
//! random.
//!
//! A [`World`] owns the virtual clock, the randomness, a single-threaded executor and the network. A [`SimFabric`] is
//! one host's provider. The same seed gives the same run: the same order of tasks, the same latencies, the same
//! handles, the same [log](World::log). Time moves only when no task can run, so a time-out of a minute costs nothing.
//!
//! The network behaves as badly as the contract of `rpcrdma-fabric` allows: Sends and Writes arrive in order, Reads are
//! served later and finish after Sends that were posted later, fences take time, completions of Sends come early or
//! late, a Send without a receive ends the connection. Hosts crash, links are [cut](World::cut) and
//! [partitioned](World::partition). All memory that a queue pair was given comes back exactly once before it closes;
//! otherwise the simulation panics, with the seed.
//!
//! ```
//! use rpcrdma_fabric::{ConnectionParams, Fabric, Receives};
//! use rpcrdma_sim::World;
//! use std::future::poll_fn;
//!
//! fn nothing() -> ConnectionParams {
//!     ConnectionParams { private_data: Default::default(), ird: 1, ord: 1, receives: Receives::Own(Vec::new()) }
//! }
//!
//! let world = World::new(7);
//! let client = world.fabric([10, 0, 0, 1].into());
//! let server = world.fabric([10, 0, 0, 2].into());
//! world.block_on(async {
//!     let mut listener = server.listen("10.0.0.2:20049".parse().unwrap()).await.unwrap();
//!     let address = listener.local_addr();
//!     let connecting = world.spawn(async move { client.connect(address, nothing()).await });
//!     let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
//!     let accepted = pending.request().await.unwrap().accept(nothing()).await.unwrap();
//!     let connected = connecting.await.unwrap();
//!     assert_eq!(connected.info().local, accepted.info().peer);
//! });
//! ```

mod clock;
mod config;
mod connect;
mod deliver;
mod ending;
mod endpoint;
mod executor;
mod fabric;
mod faults;
mod log;
mod queue_pair;
mod send;
mod state;
mod travel;
mod world;

pub use config::{Link, SimConfig};
pub use executor::Task;
pub use fabric::SimFabric;
pub use log::{Event, Happening, Logged, Side};
pub use world::{Deadlock, World};
