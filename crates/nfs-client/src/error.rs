//! What can go wrong with an NFS call.

use crate::{Cause, Denied, Status, v4};
use rpcrdma_oncrpc::{CallError, Rejection};

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has executed the call, and returns an error.
    #[error("{procedure}: {status}{}", denied.map(|denied| denied.to_string()).unwrap_or_default())]
    Status {
        /// The procedure, as the protocol names it.
        procedure: &'static str,
        /// The server's status.
        status: Status,
        /// The refused caller, if the status says that the caller may not do this.
        denied: Option<Denied>,
    },
    /// The call has no results.
    #[error("{procedure}")]
    Call {
        /// The procedure.
        procedure: &'static str,
        /// Why the call has no reply.
        source: CallError,
    },
    /// The server has made the file, but its handle is missing; or an earlier attempt of the call seems to have made it
    /// ([`v4::Error::AfterCreation`]).
    #[error(transparent)]
    AfterCreation(Box<Error>),
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
    /// A directory has more entries than the client accepts.
    #[error("the directory has more than {max} entries, or the server lists it without end")]
    TooManyEntries {
        /// The procedure that lists the directory.
        procedure: &'static str,
        /// The limit.
        max: u64,
    },
    /// The server has restarted so often that data could not be made durable.
    #[error("the server lost unwritten data {times} times in a row")]
    NotDurable {
        /// How often the client has sent it.
        times: u32,
    },
    /// The version of NFS in use cannot do this.
    #[error("{procedure}: {what}")]
    NotInVersion {
        /// The operation of version 4 that does it.
        procedure: &'static str,
        /// What is missing in which version, and which version has it.
        what: &'static str,
    },
    /// An error of version 4 alone: about its state, its sessions or its minor versions.
    #[error(transparent)]
    Version4(v4::Error),
}

/// An error that every version has gets the same form as in every version.
impl From<v4::Error> for Error {
    fn from(error: v4::Error) -> Self {
        match error {
            v4::Error::Status { operation, status, denied } => {
                Self::Status { procedure: operation.name(), status: status.into(), denied }
            }
            v4::Error::Call { operation, source } => Self::Call { procedure: operation.name(), source },
            v4::Error::Nonsense { operation, what } => Self::Nonsense { procedure: operation.name(), what },
            v4::Error::AfterCreation(error) => Self::AfterCreation(Box::new(Self::from(*error))),
            error => Self::Version4(error),
        }
    }
}

/// Questions about an error, with the same answers in all versions of NFS.
impl Error {
    /// The server's status, if it executed the call.
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Status { status, .. } => Some(*status),
            Error::AfterCreation(error) => error.status(),
            Error::Version4(error) => error.status().map(Status::from),
            _ => None,
        }
    }

    /// The meaning of the server's status, if it executed the call.
    pub fn cause(&self) -> Option<Cause> {
        self.status().map(Status::cause)
    }

    /// The procedure that failed, as the protocol names it, if it was one.
    pub fn procedure(&self) -> Option<&'static str> {
        match self {
            Error::Status { procedure, .. }
            | Error::Call { procedure, .. }
            | Error::Nonsense { procedure, .. }
            | Error::TooManyEntries { procedure, .. }
            | Error::NotInVersion { procedure, .. } => Some(procedure),
            Error::AfterCreation(error) => error.procedure(),
            Error::TooManyLinks { .. } => Some("READLINK"),
            Error::NotDurable { .. } => Some("COMMIT"),
            Error::Version4(error) => error.operation().map(|operation| operation.name()),
        }
    }

    /// Whether the server says that the caller may not do this.
    pub fn is_denied(&self) -> bool {
        matches!(self.cause(), Some(Cause::NotOwner | Cause::Denied))
    }

    /// Whether the server says that a name does not exist.
    pub fn is_absent(&self) -> bool {
        self.cause() == Some(Cause::Absent)
    }

    /// Whether the server says that a name is taken.
    pub fn exists(&self) -> bool {
        self.cause() == Some(Cause::Exists)
    }

    /// Whether the server says that the file of a handle no longer exists.
    pub fn is_stale(&self) -> bool {
        self.cause() == Some(Cause::Stale)
    }

    /// Whether the server says that it cannot do this, or the version of NFS in use cannot.
    pub fn is_not_supported(&self) -> bool {
        match self {
            Error::NotInVersion { .. } | Error::Version4(v4::Error::NotInMinor { .. }) => true,
            // The server does not have the program: NFSACL, which goes with version 3.
            Error::Call { source: CallError::Rejected(Rejection::ProgramUnavailable), .. } => true,
            _ => self.cause() == Some(Cause::NotSupported),
        }
    }

    /// The conflicting lock, if a lock is the problem.
    pub fn conflict(&self) -> Option<&v4::Conflict> {
        match self {
            Error::Version4(v4::Error::Locked { denied, .. }) => Some(denied),
            _ => None,
        }
    }

    /// Whether the server has taken away the open or the locks of the file.
    pub fn is_lost(&self) -> bool {
        matches!(self, Error::Version4(v4::Error::Lost { .. }))
    }

    /// Whether the server says that an argument makes no sense.
    pub fn is_invalid(&self) -> bool {
        self.cause() == Some(Cause::Invalid)
    }

    /// Whether the server says that a name is too long.
    pub fn is_name_too_long(&self) -> bool {
        self.cause() == Some(Cause::NameTooLong)
    }

    /// Whether the server says that a directory is not empty.
    pub fn is_not_empty(&self) -> bool {
        self.cause() == Some(Cause::NotEmpty)
    }

    /// Whether the server no longer knows the place in a directory where a listing has to go on.
    pub fn is_bad_cookie(&self) -> bool {
        self.cause() == Some(Cause::BadCookie)
    }

    /// Whether the server asks the client to try again later.
    pub fn is_later(&self) -> bool {
        self.cause() == Some(Cause::Later)
    }

    /// Whether the server cannot be reached: further calls would fail, too.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Error::Call { source, .. } => matches!(source, CallError::Transport(_)),
            Error::AfterCreation(error) => error.is_unreachable(),
            _ => false,
        }
    }

    /// Whether the server lacks version 4 or the requested minor versions: version 3 may be tried instead.
    pub fn is_no_version_4(&self) -> bool {
        matches!(self, Error::Version4(error) if error.is_no_version_4())
    }

    /// Whether the server has made the file, though the call has failed. After [`Files::place`](crate::Files::place) it
    /// may be gone, too.
    pub fn is_after_creation(&self) -> bool {
        matches!(self, Error::AfterCreation(_))
    }

    /// Whether a call that makes something has certainly made nothing: the server has executed it, and returned an
    /// error.
    pub fn has_made_nothing(&self) -> bool {
        matches!(self, Error::Status { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::{v3, v4};

    fn said(status: impl Into<Status>) -> Error {
        Error::Status { procedure: "LOOKUP", status: status.into(), denied: None }
    }

    #[test]
    fn questions_have_the_same_answers_in_all_versions() {
        for (three, four, question) in [
            (v3::Status::NOENT, v4::Status::NOENT, Error::is_absent as fn(&Error) -> bool),
            (v3::Status::ACCES, v4::Status::ACCESS, Error::is_denied),
            (v3::Status::PERM, v4::Status::PERM, Error::is_denied),
            (v3::Status::EXIST, v4::Status::EXIST, Error::exists),
            (v3::Status::STALE, v4::Status::FHEXPIRED, Error::is_stale),
            (v3::Status::NOTSUPP, v4::Status::ATTRNOTSUPP, Error::is_not_supported),
            (v3::Status::INVAL, v4::Status::INVAL, Error::is_invalid),
            (v3::Status::NAMETOOLONG, v4::Status::NAMETOOLONG, Error::is_name_too_long),
            (v3::Status::NOTEMPTY, v4::Status::NOTEMPTY, Error::is_not_empty),
            (v3::Status::BAD_COOKIE, v4::Status::BAD_COOKIE, Error::is_bad_cookie),
            (v3::Status::JUKEBOX, v4::Status::DELAY, Error::is_later),
        ] {
            assert!(question(&said(three)) && question(&said(four)), "{three:?} {four:?}");
            assert!(!question(&said(v3::Status::IO)) && !question(&said(v4::Status::IO)), "{three:?}");
        }
    }

    #[test]
    fn errors_of_version_4_answer_the_same_questions() {
        use crate::v4 as client;
        use rpcrdma_nfs::v4::{Op, Status};
        use rpcrdma_oncrpc::{CallError, Rejection, TransportError};
        let refused = client::Error::Status { operation: Op::Open, status: Status::ACCESS, denied: None };
        let refused = Error::from(refused);
        assert!(refused.is_denied() && refused.has_made_nothing());
        assert_eq!(refused.procedure(), Some("OPEN"));
        assert_eq!(refused.status().map(crate::Status::name), Some("NFS4ERR_ACCESS"));
        let moved = Error::from(client::Error::Moved { operation: Op::PutFh });
        assert_eq!(
            (moved.procedure(), moved.status().map(crate::Status::name)),
            (Some("PUTFH"), Some("NFS4ERR_MOVED"))
        );
        let lost = client::Error::Call { operation: Op::Read, source: CallError::Transport(TransportError::Closed) };
        assert!(Error::from(lost.clone()).is_unreachable());
        let made = Error::from(client::Error::AfterCreation(Box::new(lost)));
        assert!(made.is_after_creation() && made.is_unreachable() && made.procedure() == Some("READ"));
        for none in
            [client::Error::NoMinor { lowest: 2 }, client::Error::NoVersion4 { source: Rejection::ProgramUnavailable }]
        {
            let none = Error::from(none);
            assert!(none.is_no_version_4() && none.procedure().is_none() && !none.is_unreachable());
        }
        assert!(!refused.is_no_version_4() && !moved.is_no_version_4());
    }

    #[test]
    fn what_was_made_is_told_apart_from_what_was_not() {
        let refused = said(v3::Status::NOENT);
        let made = Error::AfterCreation(Box::new(refused.clone()));
        assert!(refused.has_made_nothing() && !refused.is_after_creation());
        assert!(!made.has_made_nothing() && made.is_after_creation());
        assert_eq!((made.to_string(), made.procedure()), (refused.to_string(), Some("LOOKUP")));
        assert_eq!(made.cause(), Some(Cause::Absent));
    }
}
