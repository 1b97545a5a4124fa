//! ONC RPC version 2 (RFC 5531) over any transport.

mod context;
mod credential;
mod transport;

pub use context::{CallContext, Connection, Gone, GoneSignal, Handler, Outcome};
pub use credential::{
    AUTH_NONE, AUTH_SHORT, AUTH_SYS, Credential, MAX_AUTH_BODY_OCTETS, MAX_GROUPS, MAX_MACHINE_NAME_OCTETS,
    SysCredential,
};
pub use transport::{
    CallInFlight, Cancelled, ClientTransport, ItemRoom, Limits, Misuse, PendingCall, RemoteError, Reply, ReplyShape,
    Request, TransportError, TransportKind, XidSource,
};
