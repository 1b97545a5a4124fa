//! Capture files of RPC-over-RDMA: writing them, reading them, and showing what they contain.
//!
//! * [`capture`] gives a [`Tap`](rpcrdma_iwarp::Tap) for `iwarp` and a [`CaptureWriter`], which turns the byte streams
//!   into packets of a pcapng file. The tap never waits: if the writer is too slow, it leaves data out, and the file
//!   says so.
//! * [`read_capture`] takes a pcap or pcapng file apart, from TCP to NFS, and reports [`Event`]s: one for each message.
//! * [`show`] makes text, JSON or a ladder of them.
//!
//! A capture file may be hostile: whatever it contains, reading it needs no more memory than the limits of [`mod@read`]
//! and [`mod@write`] allow.
//!
//! ```no_run
//! use rpcrdma_capture::{read_capture, show::Text};
//! let file = std::fs::File::open("session.pcapng")?;
//! let mut text = Text::new(std::io::stdout());
//! read_capture(file, &mut text)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod content;
pub mod event;
mod header;
pub mod names;
pub mod read;
pub mod show;
pub mod write;

pub use event::{Event, EventKind};
pub use header::{TransportHeader, Unreadable};
pub use read::{ReadError, Sink, Summary, read_capture};
pub use write::{Capture, CaptureWriter, Options, WriteError, Written, capture};
