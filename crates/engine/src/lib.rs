//! RPC-over-RDMA on one connection, without IO: version 1 (RFC 8166, in the reverse direction RFC 8167) in
//! [`v1::Connection`], version 2 in [`v2::Connection`], and the version that both ends have agreed on in [`Endpoint`].
//!
//! [`v1`] and [`v2`] are separate: they do not use each other, the modules that both share use neither, and only
//! [`Endpoint`] uses both. Each connection is a state machine. Its driver
//!
//! 1. makes it when the connection is established, with the receives of [`Config::initial_receives`] posted;
//! 2. reports events to it: [`received`](Endpoint::received), [`fenced`](Endpoint::fenced),
//!    [`pulled`](Endpoint::pulled), [`drained`](Endpoint::drained), and so on;
//! 3. passes the program's commands to it: [`call`](Endpoint::call), [`cancel`](Endpoint::cancel),
//!    [`forget`](Endpoint::forget), [`answer`](Endpoint::answer);
//! 4. calls [`poll`](Endpoint::poll) after each of these calls until it returns `None`, and carries out the [`Action`]s
//!    in order;
//! 5. calls [`wake`](Endpoint::wake) at the time that [`next_wake`](Endpoint::next_wake) returns;
//! 6. calls [`closed`](Endpoint::closed) when the connection has ended and everything has come back.
//!
//! It has two halves, which work the same way at both ends: a requester for calls to the peer, and a responder for
//! calls of the peer. The direction of a half decides only what it may do by default.
//!
//! It owns no memory except the shared bytes of messages. For memory that the peer may access, the engine has only an
//! [`ExposureId`]; the driver keeps the memory itself under that name. The engine returns a reply only when all memory
//! that was exposed for its call is fenced.

mod action;
mod answer;
mod call;
mod config;
mod endpoint;
mod error;
mod extension;
mod host_auth;
mod plan;
mod pull;
mod receives;
mod requests;
mod returned;
mod side;
mod silence;
mod stats;
mod table;
pub mod v1;
pub mod v2;

pub use action::{
    Action, Answer, CallId, ExposureId, Host, MessageKind, Negotiated, NoVersion2, Piece, Pieces, PlacedItem,
    ReplyBase, ReplyParts, RequestId, Sent, Sink, SinkPlace,
};
pub use call::Call;
pub use config::{
    Config, DEFAULT_CALL_PARTS, DEFAULT_CREDITS, DEFAULT_INLINE_BYTES, DEFAULT_MAX_CALL_BYTES, DEFAULT_REPLY_PARTS,
    FORGOTTEN_CALL_DEADLINE, Limits, Link, MAX_CHUNKS_PER_LIST, MAX_CREDITS, MAX_SEGMENTS_PER_MESSAGE, PROBE_TIMEOUT,
    SILENCE_LIMIT, SPENT_LIMIT, VERSION_TIMEOUT, Versions,
};
pub use endpoint::Endpoint;
pub use error::{CallError, CallRefused, CloseCause, ExposeError, PeerFault};
pub use rpcrdma_wire::{PrivateData, chunk::Segment};
pub use side::Side;
pub use stats::Stats;
