//! Open files, through which reads and writes go.

use crate::{Caller, FileId};
use rpcrdma_oncrpc::Arrival;
use std::{any::Any, fmt, sync::Arc};

/// What a file is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    Both,
}

impl Access {
    /// Whether it allows reading.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether it allows writing.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// A file that is open. As long as this exists the file does too, even if its last name is removed. Its holder may do
/// what the file was opened for, however the file's rights change.
pub trait OpenFile: Any + Send + Sync {
    /// The file.
    fn file(&self) -> FileId;

    /// What it is open for.
    fn access(&self) -> Access;
}

/// How a file is read or written, and for whom.
#[derive(Clone)]
pub struct Via {
    /// The caller. It decides in whose turn the work is done; if the file is not open, the file system checks its
    /// rights.
    pub caller: Caller,
    file: FileId,
    open: Option<Arc<dyn OpenFile>>,
    arrival: Option<Arrival>,
    is_followed: bool,
    /// A guard that lasts until the file has been used.
    _lasting: Option<Arc<dyn Any + Send + Sync>>,
}

impl Via {
    /// With the caller's own rights, which the file system checks each time.
    pub fn caller(caller: Caller, file: FileId) -> Self {
        Self { caller, file, open: None, arrival: None, is_followed: false, _lasting: None }
    }

    /// Through an open file: rights were checked when it was opened.
    pub fn open(caller: Caller, open: Arc<dyn OpenFile>) -> Self {
        let file = open.file();
        Self { caller, file, open: Some(open), arrival: None, is_followed: false, _lasting: None }
    }

    /// The same, and keeps `guard` until the file has been used: meanwhile the table grants no conflicting delegation.
    pub(crate) fn lasting(self, guard: impl Any + Send + Sync) -> Self {
        Self { _lasting: Some(Arc::new(guard)), ..self }
    }

    /// The same for a call that came with others: the result of a read may have the attributes that were found for
    /// another of them.
    #[must_use]
    pub fn arrived(self, arrival: Option<Arrival>) -> Self {
        Self { arrival, ..self }
    }

    /// The mark of the calls that came together with this one, if attributes may be shared with them.
    pub fn arrival(&self) -> Option<Arrival> {
        self.arrival
    }

    /// The same for a call whose connection may have [something else to do](rpcrdma_oncrpc::CallContext::is_followed).
    #[must_use]
    pub fn followed(self, is_followed: bool) -> Self {
        Self { is_followed, ..self }
    }

    /// Whether a long read of bytes that are in memory may pay on another thread.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// The file.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// The open file, if any.
    pub fn opened(&self) -> Option<&Arc<dyn OpenFile>> {
        self.open.as_ref()
    }

    /// The open file, as the file system's own type.
    pub fn opened_as<T: OpenFile>(&self) -> Option<&T> {
        let open: &dyn Any = &**self.open.as_ref()?;
        open.downcast_ref()
    }
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_open = self.open.is_some();
        f.debug_struct("Via")
            .field("caller", &self.caller)
            .field("file", &self.file)
            .field("is_open", &is_open)
            .finish()
    }
}

/// The open file of a file system that has no open files of its own.
pub(super) struct Plain {
    pub(super) file: FileId,
    pub(super) access: Access,
}

impl OpenFile for Plain {
    fn file(&self) -> FileId {
        self.file
    }

    fn access(&self) -> Access {
        self.access
    }
}
