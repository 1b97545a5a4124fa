//! Using files of a server: over RDMA or TCP, in any version of NFS, as an `nfs://` URL says.
//!
//! [`Client`] is what most programs need. [`Sessions`] shares a session among many URLs, as the command does.

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

pub use agree::{Spoken, is_no_such_version};
pub use ending::Ending;
pub use identity::Identity;
pub use opened::Client;
pub use options::Options;
pub use rpcrdma_nfs::attr::Stability;
pub use rpcrdma_nfs_client::{Access, Entry, File, Files, Found};
pub use session::{Bare, Session, Sessions, version_2, version_3, version_4};
pub use url::{BadUrl, NfsUrl, NfsVersion, RDMA_PORT, TCP_PORT, Transport, parse_versions};
use watch::Unwatched;
pub use watch::{Attempt, Watch};

type Result<T, E = crate::Error> = std::result::Result<T, E>;
