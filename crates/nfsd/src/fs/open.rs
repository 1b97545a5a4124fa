//! Files that are open: what reads and writes go through.

use crate::{Caller, FileId};
use std::{any::Any, fmt, sync::Arc};

/// For what a file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// To be read.
    Read,
    /// To be written.
    Write,
    /// Both.
    Both,
}

impl Access {
    /// Whether it may be read.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether it may be written.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// A file that is open. As long as this exists the file does, too, though its last name may be removed; and its holder
/// may do what it was opened for, whatever becomes of the file's rights.
pub trait OpenFile: Any + Send + Sync {
    /// The file.
    fn file(&self) -> FileId;

    /// For what it is open.
    fn access(&self) -> Access;
}

/// Through what a file is read or written, and for whom.
#[derive(Clone)]
pub struct Via {
    /// The caller. It decides in whose turn the work is done, and whose rights are checked if the file is not open.
    pub caller: Caller,
    file: FileId,
    open: Option<Arc<dyn OpenFile>>,
    /// What lasts until the file was used.
    _lasting: Option<Arc<dyn Any + Send + Sync>>,
}

impl Via {
    /// By the caller's own rights, which are asked each time.
    pub fn caller(caller: Caller, file: FileId) -> Self {
        Self { caller, file, open: None, _lasting: None }
    }

    /// By what is open: rights were asked when it was opened.
    pub fn open(caller: Caller, open: Arc<dyn OpenFile>) -> Self {
        Self { caller, file: open.file(), open: Some(open), _lasting: None }
    }

    /// The same, which keeps `guard` until the file was used: a delegation with which this use conflicts is not given
    /// meanwhile.
    pub(crate) fn lasting(self, guard: impl Any + Send + Sync) -> Self {
        Self { _lasting: Some(Arc::new(guard)), ..self }
    }

    /// The file.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// What is open.
    pub fn opened(&self) -> Option<&Arc<dyn OpenFile>> {
        self.open.as_ref()
    }

    /// What is open, as the file system's own type.
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

/// What a file system has open that keeps nothing for it.
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
