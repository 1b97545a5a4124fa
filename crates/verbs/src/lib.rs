//! RDMA adapters through libibverbs and librdmacm: InfiniBand, RoCE and iWARP, and the kernel's software devices.
//!
//! [`Verbs`] implements the contract of `rpcrdma-fabric` over one device. The crate loads the libraries when a program
//! first asks for a device, so a program that contains it runs on machines without them; [`OpenError`] says what is
//! missing and what to do.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma_fabric::Fabric;
//! use rpcrdma_verbs::{Config, Verbs};
//! let verbs = Verbs::open(rpcrdma_env::tokio_env()?, Config::default()).await?;
//! let listener = verbs.listen("192.0.2.1:20049".parse()?).await?;
//! println!("{} listens on {}", verbs.device(), listener.local_addr());
//! # Ok(())
//! # }
//! ```
//!
//! # What to know of it
//! - Limits are the device's ([`devices`] lists them); the crate assumes none.
//! - On a device with memory windows of type 2, an exposure is a window: its handle works on one connection, and either
//!   end can invalidate it. On other devices, an exposure is a registration in the connection's own protection domain,
//!   fenced by deregistering it, and the peer cannot end it.
//! - [`Verbs::pool`](rpcrdma_fabric::Fabric::pool) hands out memory that is registered in slabs. Other memory is
//!   copied if it is small, and otherwise registered for each use.
//! - [`Config::shared_receives`] asks for pools of receives, by the device's shared receive queues.
//! - Work that is posted together goes to the device together, such as a window's bind with the Send that announces it.
//! - The queue pair owns every byte that a device may reach. The bytes come back when the device can no longer reach
//!   them; at the connection's end that is when the queue pair has been destroyed, even if completions are missing.
//! - Linux's soft-RoCE checks the bounds of the memory behind a window, not of the window, and lets any peer invalidate
//!   any window: use it for tests.
//!
//! # Safety
//! All `unsafe` code of the crate calls the libraries or reads memory that they own, or hands memory to devices. It is
//! sound because of two rules: one value owns each object of the libraries and keeps alive what it depends on; and a
//! device gets memory only while a table of the queue pair contains the owner of that memory, which leaves the table
//! when the device is done with it.

mod abandoned;
mod answer;
mod channel;
mod completions;
mod config;
mod context;
mod device;
mod domain;
mod error;
mod events;
mod fabric;
mod limits;
mod listener;
mod memory_lock;
mod opener;
mod queue_pair;
mod resolve;
mod shared;
mod shared_receives;
mod slabs;
mod status;
mod sys;
mod window;

pub use config::{
    Config, DEFAULT_DEPTH, DEFAULT_DRAIN_TIMEOUT, DEFAULT_KEEPALIVE, DEFAULT_LINGER, DEFAULT_MAX_EXPOSURES,
    DEFAULT_MAX_POSTED, DEFAULT_MAX_RECEIVES, DEFAULT_POOL_BYTES, DEFAULT_SEND_QUEUE, DEFAULT_SETUP_TIMEOUT, Device,
    LISTEN_BACKLOG, SUSPICION,
};
pub use device::{DeviceInfo, Link, Port, devices};
pub use error::{LoadError, OpenError};
pub use fabric::Verbs;
