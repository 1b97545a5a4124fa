//! NLM versions 1, 3 and 4: locks for clients of NFS version 3 and older (RFC 1813 appendix II).
//!
//! * Versions 1 and 3 have offsets of 32 bits, version 4 of 64 ([`Width`]). All else is the same, so each type is
//!   written once: [`Lock<u32>`](Lock), [`Lock<u64>`](Lock). A server converts the narrow type into the wide one
//!   ([`Widen`]) and works only with the wide one.
//! * A [`Procedure`] with an answer of its own has two more of its kind, for callers that do not wait: one ends in
//!   `_MSG`, and its answer comes as a call in the other direction that ends in `_RES`.
//! * The program has no binding to RPC-over-RDMA and travels over TCP and UDP.
//!
//! Names, owners and cookies have limits (1,024 octets) and are copied when they are read: what a server keeps of them
//! does not keep the message.

#[macro_use]
mod macros;
mod answers;
mod arguments;
mod basic;
mod procedure;
mod shares;
mod status;
#[cfg(test)]
mod tests;

pub use answers::{Holder, Response, TestResponse, Tested};
pub use arguments::{CancelArguments, Lock, LockArguments, Notice, TestArguments, UnlockArguments};
pub use basic::{CallerName, Cookie, MAX_NAME_BYTES, MAX_OBJECT_BYTES, OwnerHandle, Widen, Width};
pub use procedure::{Form, Procedure};
pub use shares::{Share, ShareAccess, ShareArguments, ShareDeny, ShareResponse};
pub use status::Status;

/// The program number of NLM.
// ULB-4-a, ULB-4.1-b
pub const PROGRAM: u32 = 100_021;
/// The first version: locks alone, for NFS version 2.
pub const VERSION_1: u32 = 1;
/// The same with share reservations.
pub const VERSION_3: u32 = 3;
/// The version that goes with NFS version 3: offsets of 64 bits.
pub const VERSION_4: u32 = 4;
/// All versions.
pub const VERSIONS: [u32; 3] = [VERSION_1, VERSION_3, VERSION_4];
