//! NFS as RPC sees it: the types of each version, and the upper-layer bindings.
//!
//! A binding (RFC 8166 section 6, RFC 8267) says which items of a program may be placed directly and how large a reply
//! can become. Eligibility is said once, by the type's encoder and decoder
//! ([`Encoder::item`](rpcrdma_xdr::Encoder::item)); the size of replies by [`Call::reply_shape`]. [`binding`] tells
//! both as a table.
//!
//! NFS never learns what carries it. TCP ignores the marks.
//!
//! ```
//! use rpcrdma_nfs::{Call, v3};
//! let read = v3::Read { file: v3::Handle::new(b"handle")?, offset: 0, count: 1 << 20 };
//! let shape = read.reply_shape();
//! assert_eq!(shape.items[0].max_len, 1 << 20, "the data can come in a Write chunk");
//! # Ok::<(), rpcrdma_nfs::v3::HandleTooLong>(())
//! ```

pub mod attr;
pub mod binding;
mod call;
#[cfg(test)]
mod sample;
#[macro_use]
mod macros;
pub mod mount;
pub mod names;
pub mod nfsacl;
pub mod nlm;
pub mod nsm;
pub mod v2;
pub mod v3;
pub mod v4;

pub use call::Call;
