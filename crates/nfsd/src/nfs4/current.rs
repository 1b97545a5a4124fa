//! The current and the saved file of a COMPOUND, with their stateids (RFC 8881 section 16.2.3).

use super::compound::Compound;
use crate::opened::Opened;
use rpcrdma_nfs::v4::{StateId, Status};

/// A file, and the stateid that the last operation on it has returned.
#[derive(Clone)]
pub(super) struct Current {
    /// The file, and the caller that uses it.
    pub(super) file: Opened,
    /// The stateid that [`StateId::CURRENT`] stands for.
    pub(super) state: Option<StateId>,
}

impl Compound {
    /// The current file.
    ///
    /// # Errors
    /// NOFILEHANDLE if there is none.
    pub(super) fn file(&self) -> Result<Opened, Status> {
        let current = self.current.as_ref().ok_or(Status::NOFILEHANDLE)?;
        Ok(Opened { arrival: self.shares, ..current.file.clone() })
    }

    /// The current file, for an operation that changes something.
    ///
    /// # Errors
    /// NOFILEHANDLE; ROFS if clients may change nothing there.
    pub(super) fn file_to_change(&self) -> Result<Opened, Status> {
        let file = self.file()?;
        if file.read_only { Err(Status::ROFS) } else { Ok(file) }
    }

    /// The saved file.
    ///
    /// # Errors
    /// NOFILEHANDLE if there is none. XDEV if its export does not take the call's flavour: then it is not the current
    /// file's export, and only operations that set the current file may answer WRONGSEC.
    pub(super) fn saved_file(&self) -> Result<Opened, Status> {
        let saved = self.saved.as_ref().map(|saved| saved.file.clone()).ok_or(Status::NOFILEHANDLE)?;
        if saved.is_taken { Ok(saved) } else { Err(Status::XDEV) }
    }

    /// Makes a file the current one. There is no current stateid then.
    pub(super) fn go_to(&mut self, file: Opened) {
        self.current = Some(Current { file, state: None });
    }

    /// An operation has returned a stateid of the current file.
    pub(super) fn set_state(&mut self, state: StateId) {
        if let Some(current) = &mut self.current {
            current.state = Some(state);
        }
    }

    /// The stateid of an operation, where [`StateId::CURRENT`] is replaced by the current one. Its sequence number is
    /// then 0, "the latest", unless `exact` (CLOSE and OPEN_DOWNGRADE).
    ///
    /// # Errors
    /// BAD_STATEID if there is no current one.
    pub(super) fn state_of(&self, state: StateId, exact: bool) -> Result<StateId, Status> {
        if self.minor == 0 {
            return self.state_of_zero(state);
        }
        if state != StateId::CURRENT {
            return Ok(state);
        }
        let current = self.current.as_ref().and_then(|current| current.state).ok_or(Status::BAD_STATEID)?;
        Ok(if exact || current.is_special() { current } else { StateId { sequence: 0, ..current } })
    }

    /// SAVEFH.
    pub(super) fn save(&mut self) -> Result<(), Status> {
        self.saved = Some(self.current.clone().ok_or(Status::NOFILEHANDLE)?);
        Ok(())
    }

    /// RESTOREFH.
    pub(super) fn restore(&mut self) -> Result<(), Status> {
        self.current = Some(self.saved.clone().ok_or(Status::RESTOREFH)?);
        Ok(())
    }
}
