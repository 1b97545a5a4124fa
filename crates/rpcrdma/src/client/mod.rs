//! Using files of a server: over RDMA or TCP, in any version of NFS, as an `nfs://` URL says.
//!
//! [`Client`] is one export of one server; [`Options`] has what a URL does not say.
//!
//! If its connection is lost, a client connects again and sends its calls again. A call fails when the client could not
//! connect for two minutes. A server that answers a NULL call is slow, not gone: a call waits for it without a limit. A
//! program that has a limit of its own sets it with [`tokio::time::timeout`]. A program with both ends closes the
//! client before it stops the server ([`Running::shutdown`](crate::server::Running::shutdown)); if all exports are in
//! memory, it need not.
//!
//! Tasks share a client in an [`Arc`](std::sync::Arc). [`Error::is_absent`](crate::Error::is_absent) says whether a
//! file is missing, and `{:#}` prints an error with its causes.
//!
//! Examples of the types here may use the crate that defines them: `rpcrdma_nfs_client` is
//! [`rpcrdma::nfs_client`](crate::nfs_client).

mod agree;
mod ending;
mod flavours;
mod identity;
mod opened;
mod options;
mod resolve;
mod session;
mod several;
mod transports;
mod url;
mod versions;
mod watch;

pub use opened::Client;
pub use options::Options;
pub use rpcrdma_nfs::attr::Stability;
pub use rpcrdma_nfs_client::{Access, Entry, File, Files, Found, Handle, Name, ReadOk};
use session::{Session, Sessions};
pub use url::{BadUrl, NfsUrl, NfsVersion, RDMA_PORT, TCP_PORT, Transport};
use watch::Unwatched;
pub use watch::{Attempt, Watch};

/// What the command needs beside [`Client`]: sessions that many URLs share and that it ends itself, clients that make
/// NULL calls only, and the values of an option that the server has, too. It changes with the command.
#[doc(hidden)]
pub mod command {
    pub use super::{
        agree::{SessionVersion, is_no_such_version},
        ending::Ending,
        identity::Identity,
        session::{Bare, Session, Sessions, version_2, version_3, version_4},
        url::parse_versions,
    };
}

type Result<T, E = crate::Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::{Client, Options};

    /// A program connects in a task, or in the handler of a web server.
    #[test]
    fn a_client_connects_in_any_thread() {
        fn is_send<T: Send>(_: T) {}
        is_send(Client::connect("nfs://server/"));
        is_send(Client::connect_with("nfs://server/", Options::default()));
    }
}
