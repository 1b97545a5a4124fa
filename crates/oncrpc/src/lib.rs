//! ONC RPC version 2 (RFC 5531) over any transport.
//!
//! * [`Client`] calls the procedures of a program over a [`ClientTransport`]; credentials are made by a
//!   [`ClientFlavour`].
//! * [`Router`] is the [`Handler`] to which a server's transports pass whole messages; it finds the [`Service`], and
//!   keeps the replies of calls that must not be executed twice.
//! * A service sees where a call came from in its [`CallContext`].
//! * [`tcp`] carries messages over record-marked TCP; the crate `rpcrdma-transport` carries them over RDMA. [`Spread`]
//!   makes one transport of several.
//! * [`udp`] answers and makes calls in datagrams, for the small programs that NFS needs.
//! * [`outage`] decides when a client's transport connects again, and when it gives up; for authors of transports.
//! * [`overlap`] decides after how many received messages a driver lets other tasks work, so that both ends work at the
//!   same time.
//! * [`gss`] is the flavour by which callers prove who they are, on both sides.
//! * [`rpcbind`] registers and finds services; [`portmap`] is a portmapper within the program.
//!
//! Data items keep their marks from the encoder to the transport; the crate does not copy them.

mod arrival;
mod call_error;
mod client;
mod client_network;
mod connection_ids;
mod context;
mod credential;
mod duplicate;
mod flavour;
mod giving_up;
pub mod gss;
mod message;
mod netid;
pub mod outage;
pub mod overlap;
mod peek;
pub mod portmap;
mod results;
mod router;
pub mod rpcbind;
mod service;
mod silence;
mod spread;
pub mod tcp;
mod transport;
pub mod udp;
mod under_way;
mod verdict;

pub use arrival::{Arrival, Arrivals};
pub use call_error::CallError;
pub use client::{Call, Client, Results};
pub use client_network::ClientNetwork;
pub use connection_ids::ConnectionIds;
pub use context::{Begun, CallContext, Connection, FirstWord, Gone, GoneSignal, Handler, Outcome};
pub use credential::{
    AUTH_NONE, AUTH_SHORT, AUTH_SYS, Credential, MAX_AUTH_BODY_BYTES, MAX_GROUPS, MAX_MACHINE_NAME_BYTES, SysCredential,
};
pub use duplicate::{DUPLICATE_CACHE_BYTES, DUPLICATE_ENTRY_BYTES, DUPLICATE_LIFETIME};
pub use flavour::{
    AcceptNone, AcceptSys, ClientFlavour, NoAuth, Protected, ServerFlavour, Signed, SignedLater, SysAuth, Wrapped,
};
pub use giving_up::GivingUp;
pub use message::{
    AuthStat, BadCall, CALL_HEADER_BYTES, CallHeader, CallId, MISMATCH_BYTES, OpaqueAuth, REPLY_HEADER_BYTES,
    RPC_VERSION, Rejection, ReplyHeader,
};
pub use netid::{Netid, parse_universal_address, universal_address};
pub use peek::{ArgumentWords, Replied, peek_call, peek_flavour, peek_reply};
pub use results::ResultsEncoder;
pub use router::Router;
pub use service::{Answer, Repetition, Service, WholeReply};
pub use silence::{Listener, Silence, Waiting};
pub use spread::Spread;
pub use transport::{
    Anew, CallInFlight, Cancelled, ClientTransport, ContextError, ItemRoom, Limits, Misuse, NoAnswer, PendingCall,
    RemoteError, Reply, ReplyShape, Request, TransportError, TransportKind, XidSource,
};
pub use verdict::{Accepted, Answered, ReplyFlavour, Unanswered, Verdict};
