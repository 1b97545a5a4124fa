//! The types of each version of NFS in XDR, and the upper-layer bindings to RPC-over-RDMA.
//!
//! A binding (RFC 8166 section 6, RFC 8267) says which items of a program may be placed directly and how large a reply
//! can become. The encoder and decoder of a type define which items are eligible
//! ([`Encoder::item`](rpcrdma_xdr::Encoder::item)); [`Call::reply_shape`] defines the size of replies. [`binding`]
//! returns both as a table.
//!
//! The types do not depend on the transport: TCP ignores the marks.
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
mod words;

pub use call::Call;
