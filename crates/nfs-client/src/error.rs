//! What can go wrong with an NFS call.

use rpcrdma_nfs::v3::Status;
use rpcrdma_oncrpc::CallError;

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server executed the call and says no.
    #[error("{procedure}: {status}")]
    Status {
        /// The procedure, as the protocol names it.
        procedure: &'static str,
        /// What the server says.
        status: Status,
    },
    /// The call has no results.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The results do not fit the call.
    #[error("{procedure}: the server {what}")]
    Nonsense {
        /// The procedure.
        procedure: &'static str,
        /// What the server did.
        what: &'static str,
    },
    /// A path leads through too many symbolic links.
    #[error("the path leads through more than {max} symbolic links")]
    TooManyLinks {
        /// The limit.
        max: u32,
    },
    /// The server has restarted so often that data could not be made durable.
    #[error("the server lost unwritten data {times} times in a row")]
    NotDurable {
        /// How often it was sent.
        times: u32,
    },
}

impl Error {
    /// The server's status, if it executed the call.
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}
