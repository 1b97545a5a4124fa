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
//! # What to know of it
//! - CRC32c is on unless both ends turn it off ([`Config::crc`]). Payload is placed before its CRC is known, which
//!   departs from RFC 5044 section 6: but nothing is delivered or fenced before its CRC is checked, and a mismatch ends
//!   the connection.
//! - iWARP has no "receiver not ready": a Send that finds no receive, or a shorter one, ends the connection.
//! - A responder sends nothing until the initiator's first FPDU has come. If the initiator never sends, the responder
//!   does not either.
//! - If an initiator has sent something and nothing comes back, it sends an RDMA Write without data, which wakes the
//!   responder ([`NUDGE_DELAYS`]).
//! - Steering tags are unpredictable and valid on their own connection only; offsets count from zero. An exposure that
//!   is invalidated while a Write to it arrives ends the connection, like one that arrives later.
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
