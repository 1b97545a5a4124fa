//! What can go wrong with an operation of NFS version 4.

use crate::Denied;
use rpcrdma_nfs::v4::{Op, OwnerName, Status, ops::LockKind};
use rpcrdma_oncrpc::{CallError, Rejection, TransportError};
use std::fmt;

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has executed the operation, and returns an error.
    #[error("{operation}: {status}{}", denied.map(|denied| denied.to_string()).unwrap_or_default())]
    Status {
        /// The operation.
        operation: Op,
        /// The server's status.
        status: Status,
        /// The refused caller, if the status says that the caller may not do this.
        denied: Option<Denied>,
    },
    /// The call has no results.
    #[error("{operation}")]
    Call {
        /// The purpose of the call.
        operation: Op,
        /// Why the call has no reply.
        source: CallError,
    },
    /// The results do not fit the call.
    #[error("{operation}: the server {what}")]
    Nonsense {
        /// The operation.
        operation: Op,
        /// What the server did.
        what: &'static str,
    },
    /// The server has the program, but not this version, or it does not even have the program: version 3 may work.
    #[error("the server does not serve version 4 of NFS")]
    NoVersion4 {
        /// The server's answer.
        source: Rejection,
    },
    /// The server has none of the minor versions that the caller allows.
    #[error(
        "the server does not serve minor version {lowest} of NFS version 4, nor a higher one that the client accepts"
    )]
    NoMinor {
        /// The lowest that the caller allows.
        lowest: u32,
    },
    /// The agreed minor version does not have the operation.
    #[error("{operation} does not exist in minor version {minor}, which is what the server serves")]
    NotInMinor {
        /// The operation.
        operation: Op,
        /// The minor version.
        minor: u32,
    },
    /// The session does not allow a call or a reply of this size. Nothing was sent.
    #[error("{operation}: the {what} can need {wanted} {unit}, but the session allows {allowed}")]
    TooLarge {
        /// The operation.
        operation: Op,
        /// `call` or `reply`.
        what: &'static str,
        /// `bytes` or `operations`.
        unit: &'static str,
        /// How much the call or the reply can need.
        wanted: usize,
        /// How much the session allows.
        allowed: usize,
    },
    /// The server took away the open or the locks of a file.
    #[error("{operation}: the server no longer keeps {what}: {status}")]
    Lost {
        /// The operation that failed.
        operation: Op,
        /// What is lost.
        what: Lost,
        /// The server's status.
        status: Status,
    },
    /// Another owner holds a lock.
    #[error("{operation}: {denied}")]
    Locked {
        /// The operation.
        operation: Op,
        /// The conflicting lock.
        denied: Conflict,
    },
    /// The file system is on another server.
    #[error("{operation}: the file system has moved to another server, and this client does not follow it")]
    Moved {
        /// The operation.
        operation: Op,
    },
    /// The server has made the file, and the next operation on it has failed. Or an earlier attempt of a call that
    /// makes a file and writes to it seems to have made it: the server no longer knows that attempt, and says that the
    /// file exists.
    #[error(transparent)]
    AfterCreation(Box<Error>),
    /// The server takes the session or the client id away again and again.
    #[error("{operation}: the server ended the session of the call {times} times in a row")]
    Unsettled {
        /// The operation.
        operation: Op,
        /// How often.
        times: u32,
    },
}

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The open of a file, and with it its locks.
    Open,
    /// The locks of an open file: others may have locked and changed it meanwhile.
    Locks,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "the open of the file and its locks",
            Self::Locks => "the locks of the file",
        })
    }
}

/// The most bytes of a lock's owner that a message shows.
const MAX_OWNER_TOLD: usize = 128;

/// A conflicting lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where it begins.
    pub offset: u64,
    /// Its length, all ones up to the end of the file.
    pub length: u64,
    /// The kind of the lock.
    pub kind: LockKind,
    /// The name of its holder; empty if the server does not return it.
    pub owner: OwnerName,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            LockKind::Read | LockKind::ReadWaiting => "reading",
            LockKind::Write | LockKind::WriteWaiting => "writing",
        };
        write!(f, "somebody else has locked the file for {kind} from byte {}", self.offset)?;
        match self.offset.checked_add(self.length).filter(|_| self.length < u64::MAX) {
            Some(end) => write!(f, " to byte {end}"),
            None => f.write_str(" to its end"),
        }?;
        // The owner's name comes from another client, through a server that may send anything; many clients use names
        // that are not text.
        let owner = self.owner.as_slice();
        let is_text = owner.iter().all(|octet| matches!(octet, b' '..=b'~'));
        match owner.get(..MAX_OWNER_TOLD).unwrap_or(owner) {
            told @ [_, ..] if is_text => write!(f, "; the holder calls itself \"{}\"", told.escape_ascii()),
            _ => Ok(()),
        }
    }
}

impl Error {
    /// The server's status, if it executed the operation.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } | Self::Lost { status, .. } => Some(*status),
            Self::Moved { .. } => Some(Status::MOVED),
            Self::Locked { .. } => Some(Status::DENIED),
            Self::AfterCreation(error) => error.status(),
            _ => None,
        }
    }

    /// The operation that failed, if it was one.
    pub fn operation(&self) -> Option<Op> {
        match self {
            Self::Status { operation, .. }
            | Self::Call { operation, .. }
            | Self::Nonsense { operation, .. }
            | Self::NotInMinor { operation, .. }
            | Self::TooLarge { operation, .. }
            | Self::Lost { operation, .. }
            | Self::Locked { operation, .. }
            | Self::Moved { operation }
            | Self::Unsettled { operation, .. } => Some(*operation),
            Self::AfterCreation(error) => error.operation(),
            Self::NoVersion4 { .. } | Self::NoMinor { .. } => None,
        }
    }

    /// Whether version 3 may be tried instead.
    pub fn is_no_version_4(&self) -> bool {
        matches!(self, Self::NoVersion4 { .. } | Self::NoMinor { .. })
    }

    /// Whether the server says that the caller may not do this.
    pub fn is_denied(&self) -> bool {
        self.status().is_some_and(is_denial)
    }

    /// Whether it is unknown what the server did with the call: the transport has stopped waiting for the reply.
    pub(super) fn is_unanswered(&self) -> bool {
        let Self::Call { source: CallError::Transport(error), .. } = self else { return false };
        !matches!(error, TransportError::Closed)
    }

    /// Whether OPEN itself has failed, and not a later operation.
    pub(super) fn is_of_open(&self) -> bool {
        matches!(self, Self::Call { operation: Op::Open, .. })
    }

    /// The server executed `operation` as `caller`, and returned an error.
    pub(super) fn refused(operation: Op, status: Status, caller: Option<(u32, u32)>) -> Self {
        if matches!(status, Status::MOVED | Status::LEASE_MOVED) {
            return Self::Moved { operation };
        }
        let denied = is_denial(status).then_some(Denied { caller, owner: None });
        Self::Status { operation, status, denied }
    }

    /// A call made for `operation` has no results.
    pub(super) fn call(operation: Op, source: CallError) -> Self {
        match source {
            CallError::Rejected(source @ (Rejection::ProgramUnavailable | Rejection::ProgramMismatch { .. })) => {
                Self::NoVersion4 { source }
            }
            source => Self::Call { operation, source },
        }
    }

    /// The same error, after the call has made something.
    pub(super) fn after_creation(self) -> Self {
        Self::AfterCreation(Box::new(self))
    }

    /// The server did something that does not fit.
    pub(super) fn nonsense(operation: Op, what: &'static str) -> Self {
        Self::Nonsense { operation, what }
    }
}

/// Whether a status says that the caller may not do what it asks for.
fn is_denial(status: Status) -> bool {
    matches!(status, Status::PERM | Status::ACCESS)
}
