//! The protocols of iWARP without any input or output.
//!
//! [`mpa`] sets a connection up and frames it ([`fpdu`]), [`ddp`] says where octets go, [`rdmap`] and [`terminate`] say
//! what messages mean. [`Endpoint`] is one end of a connection: it lends slices to read into and to write from, and
//! turns what the driver has read into completions. It reads no clock and touches no socket.

pub mod crc;
pub mod ddp;
mod endpoint;
mod fault;
pub mod fpdu;
mod framed;
mod inbound;
mod lifecycle;
pub mod mpa;
pub mod negotiation;
pub mod rdmap;
mod reads;
mod receive_queue;
mod rx;
mod stags;
pub mod terminate;
mod tx;
mod writes;

pub use endpoint::{Endpoint, Role, Setup};
pub use fault::{ErrorCode, Fault};
pub use framed::WriteSlices;
pub use lifecycle::{Event, Phase};
pub use receive_queue::ReceiveQueue;
pub use rx::ReadSlices;
pub use tx::terminate_fpdu;
pub use writes::Refused;
