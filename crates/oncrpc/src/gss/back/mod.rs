//! Calls in the other direction: a server calls its client in the context that the client has made, each end by a
//! handle of its own (RFC 8881 sections 2.10.8 and 18.36.3).
//!
//! The client names both handles when it makes a session. [`AcceptBack`] is its part: it gives contexts handles, and
//! understands calls that come by them. [`BackAuth`] is the server's part: it signs calls as the service that the
//! client has called. Each direction numbers its calls by itself. Neither end makes a context for calls in this
//! direction.

mod accept;
mod call;

pub use accept::{AcceptBack, BackHandles};
pub use call::BackAuth;
