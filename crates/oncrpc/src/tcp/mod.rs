//! Record-marked TCP (RFC 5531 section 11).
//!
//! Both ends may call over one connection: the type of a message shows whether it is a call or a reply, so a server's
//! calls and their replies pass between the client's.
//!
//! Nothing here starts a task or a runtime: [`connect`] and [`serve`] return a handle and a driver future, which the
//! program polls where it likes. Messages are written from the bytes they share, with vectored writes, and read into
//! buffers of the connection's allocator, from which decoders hand out slices.

mod calls;
mod client;
mod connector;
mod io;
mod looking;
mod record;
mod reverse;
mod server;

pub use client::{ClientOptions, Reverse, TcpTransport, connect};
pub use connector::{Connector, TcpConnector, UnixConnector};
pub use io::Io;
pub use record::RecordError;
pub use server::{ConnectionError, ConnectionHandle, Endpoint, ServerOptions, serve};

/// The largest record that is accepted by default, in bytes: a data item of 1 MiB and room for the rest of the message.
pub const MAX_RECORD_BYTES: usize = (1 << 20) + (64 << 10);
/// The most fragments of one record. Senders use one; the bound keeps empty fragments from going on for ever.
pub const MAX_FRAGMENTS: usize = 1024;

#[cfg(test)]
mod reverse_tests;
#[cfg(test)]
mod tests;
