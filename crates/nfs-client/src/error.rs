//! What can go wrong with an NFS call.

use crate::Denied;
use rpcrdma_nfs::v3::Status;
use rpcrdma_oncrpc::CallError;

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server executed the call and says no.
    #[error("{procedure}: {status}{}", denied.map(|denied| denied.to_string()).unwrap_or_default())]
    Status {
        /// The procedure, as the protocol names it.
        procedure: &'static str,
        /// What the server says.
        status: Status,
        /// Who was refused, if the status says that the caller may not do this.
        denied: Option<Denied>,
    },
    /// The call has no results.
    #[error("{procedure}")]
    Call {
        /// The procedure.
        procedure: &'static str,
        /// Why it has none.
        source: CallError,
    },
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
    /// A directory has more entries than are taken from a server.
    #[error("the directory has more than {max} entries, or the server lists it without end")]
    TooManyEntries {
        /// The limit.
        max: u64,
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

    /// The procedure that failed, as the protocol names it, if it was one.
    pub fn procedure(&self) -> Option<&'static str> {
        match self {
            Error::Status { procedure, .. } | Error::Call { procedure, .. } | Error::Nonsense { procedure, .. } => {
                Some(procedure)
            }
            Error::TooManyLinks { .. } => Some("READLINK"),
            Error::TooManyEntries { .. } => Some("READDIRPLUS"),
            Error::NotDurable { .. } => Some("COMMIT"),
        }
    }

    /// Whether the server says that the caller may not do this.
    pub fn is_denied(&self) -> bool {
        self.status().is_some_and(is_denial)
    }
}

/// Whether a status says that the caller may not do what it asks for.
pub(crate) fn is_denial(status: Status) -> bool {
    matches!(status, Status::PERM | Status::ACCES)
}
