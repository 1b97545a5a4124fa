//! Version 2 of RPC-over-RDMA on one connection (draft-ietf-nfsv4-rpcrdma-version-two-01).
//!
//! Drive [`Connection`] like its namesake of version 1. Both share the table of calls, the planning of chunks and the
//! lent memory. This version adds credits of both directions, the exchange of transport properties, messages in several
//! parts, and errors that say what to do. `docs/version2.md` says how we read the draft; `spec/requirements.toml`
//! defines the ids in the tests.

mod connection;
mod credits;
mod exchange;
mod outbox;
mod plan;
mod requester;
mod responder;
mod sequence;

pub use crate::{
    Side,
    config::MAX_PEER_CREDITS,
    extension::{Extension, ExtensionRefused, MAX_WAITING_MESSAGES, Received},
    host_auth::{AUTHENTICATION_TIMEOUT, AuthenticationStep, HostAuthentication, HostAuthenticator},
};
pub(crate) use connection::begins_parts;
pub use connection::{CREDIT_TIMEOUT, Connection, MIN_BYTES, SEQUENCE_TIMEOUT};
pub use credits::SPARE_RECEIVES;
pub use exchange::EXCHANGE_TIMEOUT;
pub use outbox::MAX_WAITING_ERRORS;
pub use responder::MAX_REQUESTS;
pub use rpcrdma_wire::v2::{
    ErrorBody, Extensions, Fit, OtherBody, OtherProperty, Properties, PropertySet, ReverseSupport,
};
pub use sequence::MAX_PARTS;
