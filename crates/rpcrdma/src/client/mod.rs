//! Using files of a server: over RDMA or TCP, in any version of NFS, as an `nfs://` URL says.
//!
//! [`Client`] is one export of one server; [`Options`] has what a URL does not say.

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
pub use rpcrdma_nfs_client::{Access, Entry, File, Files, Found};
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
