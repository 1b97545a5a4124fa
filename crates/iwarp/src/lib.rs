//! A software RNIC over TCP: MPA, DDP and RDMAP in user space, wire compatible with the Linux kernel's soft-iWARP
//! (siw).
//!
//! [`Iwarp`] implements the contract of `rpcrdma-fabric`. An unmodified Linux NFS client can mount a server that uses
//! it, and a client that uses it can mount Linux's server.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma_fabric::Fabric;
//! use rpcrdma_iwarp::{Config, Iwarp};
//! let iwarp = Iwarp::new(rpcrdma_env::tokio_env()?, Config::default());
//! let listener = iwarp.listen("127.0.0.1:20049".parse()?).await?;
//! println!("listening on {}", listener.local_addr());
//! # Ok(())
//! # }
//! ```
//!
//! # What to know
//! - CRC32c is on unless both ends turn it off ([`Config::crc`]). The receiver places payload before it knows its CRC,
//!   which departs from RFC 5044 section 6: but it checks the CRC before it delivers or fences anything, and a mismatch
//!   ends the connection.
//! - iWARP has no "receiver not ready": a Send that finds no receive, or a receive that is too short, ends the
//!   connection.
//! - A responder sends nothing until the initiator's first FPDU has come. If the initiator never sends, the responder
//!   does not either.
//! - If an initiator has sent something and no answer comes, it sends an RDMA Write without data, which wakes the
//!   responder ([`NUDGE_DELAYS`]).
//! - Steering tags are unpredictable and valid on their own connection only; offsets count from zero. If an exposure is
//!   invalidated while a Write to it arrives, the connection ends, as it does for a Write that arrives later.
//! - The [`protocol`] itself does no input or output, so that other programs can drive it.

mod config;
mod fabric;
mod listener;
mod net;
mod overlap;
pub mod protocol;
mod queue_pair;
mod tap;

pub use config::{
    Config, DEFAULT_DEPTH, DEFAULT_LINGER, DEFAULT_MAX_EXPOSURES, DEFAULT_MAX_POSTED, DEFAULT_MAX_RECEIVES,
    DEFAULT_SETUP_TIMEOUT, DEFAULT_STALL_TIMEOUT, LISTEN_BACKLOG, LOOPBACK_SEND_BUFFER_OCTETS, MAX_GATHER,
    MAX_MESSAGE_OCTETS, MAX_PRIVATE_DATA_OCTETS, NUDGE_DELAYS, keepalive,
};
pub use fabric::Iwarp;
pub use tap::{Direction, Tap, TapStream};
