//! Data: READ, WRITE, COMMIT (RFC 8881 sections 18.3, 18.22, 18.32), and what a stateid permits.

use super::{
    compound::Compound,
    service::Shared,
    state::{
        checked::Wanted,
        stateids::{Special, special},
    },
    tell::{failure, status},
};
use crate::{
    Failure, Fault, ReadData, Rights, Told, Via,
    claims::{Access, Kind},
    opened::Opened,
};
use rpcrdma_nfs::{
    attr::{self, FileType},
    v4::{
        MAX_TRANSFER_BYTES, StateId, Status, Verifier,
        ops::{self, Answer},
    },
};

/// Bytes of READ's results before the data: the operation, its status, the end-of-file flag, and the length.
pub(super) const READ_RESULTS_BYTES: usize = 16;

/// A READ of at most this many bytes gets memory for all of them, however small the file is: to ask for the size costs
/// as much.
pub(super) const UNASKED_READ_BYTES: usize = 64 << 10;

impl Compound {
    /// The open or caller by which an operation with this stateid reads or writes a file (`access` is one of the two).
    /// A change of the size is a write.
    ///
    /// # Errors
    /// As for every stateid; OPENMODE if the file is not open for that. Without an open: LOCKED if an open denies it,
    /// and GRACE.
    pub(super) async fn via(&self, file: &Opened, state: StateId, access: Access) -> Result<Via, Status> {
        let key = Self::key(file);
        let state = self.state_of(state, false)?;
        let by_rights = Via::caller(file.caller.clone(), file.file);
        let holder = match special(state)? {
            // NFS4-8881-8.2.3-b
            Some(Special::Bypass) if access == Access::READ => {
                return Ok(by_rights.lasting(self.using(file, Kind::Read).await?));
            }
            // NFS4-8881-8.4.2.1-b
            Some(_) if self.shared.state.recovery.is_grace() => return Err(Status::GRACE),
            Some(_) => None,
            None => {
                let client = self.client_of(state)?;
                if let Some(pin) = client.held.pin(state, key, access.bits() as u8)? {
                    // NFS4-7530-STOLEN-a
                    if self.minor == 0 && !pin.is_of(&file.caller) {
                        Box::pin(self.check_rights(file, access)).await?;
                    }
                    return Ok(Via::open(file.caller.clone(), pin.open.clone()));
                }
                // NFS4-8881-9.1.2-d
                if access != Access::READ {
                    return Err(Status::OPENMODE);
                }
                let checked = client.held.check(state, key, Wanted::Any)?;
                // A client that writes part of a page reads the rest of the page. So an open for writing permits
                // reading (RFC 8881 section 9.1.2), if the caller could have opened the file for reading.
                checked.owner.filter(|_| checked.kind == Wanted::Open).map(|owner| Shared::holder(client.id(), &owner))
            }
        };
        self.shared
            .may(self.origin(), key, access, holder.as_ref())
            .await
            .map_err(|in_the_way| in_the_way.status(Status::LOCKED))?;
        // NFS4-8881-10.4-a: a use without an open conflicts with delegations as an open does. Opens are in the table.
        let kind = if access == Access::READ { Kind::Read } else { Kind::Write };
        Ok(by_rights.lasting(self.using(file, kind).await?))
    }

    /// Checks the file's mode for a caller that uses another user's open: without sessions a stateid is no secret, and
    /// can be guessed.
    async fn check_rights(&self, file: &Opened, access: Access) -> Result<(), Status> {
        let needed = if access == Access::READ { Rights::READ } else { Rights::MODIFY };
        let told = file.file_system.access(file.caller.clone(), file.file, needed).await;
        let (granted, _) = told.map_err(failure)?;
        if granted & needed == needed { Ok(()) } else { Err(Status::ACCESS) }
    }

    /// The status of a failed read or write: it says what kind of file this is if it has no data.
    pub(super) async fn no_data<F>(&self, file: &Opened, failed: Failure<F>) -> Status {
        if failed.fault != Fault::Invalid {
            return status(failed.fault);
        }
        match self.file_type(file).await {
            Ok(FileType::Symlink) => Status::SYMLINK,
            Ok(FileType::Directory) => Status::ISDIR,
            Ok(FileType::Regular) | Err(_) => Status::INVAL,
            Ok(_) => Status::WRONG_TYPE,
        }
    }

    // NFS4-8881-18.22-a
    pub(super) async fn read(&mut self, args: ops::Read, room: usize) -> Answer<ops::ReadOk> {
        let file = self.file()?;
        if let Some(read) = self.ahead.pop_front() {
            return self.was_read(&file, read).await;
        }
        let via = self.via(&file, args.state, Access::READ).await?;
        // Without room for a word of data, the READ is executed and its results are then too large.
        let room = (room.saturating_sub(READ_RESULTS_BYTES) & !3).max(4);
        let mut count = usize::try_from(args.count).unwrap_or(usize::MAX).min(MAX_TRANSFER_BYTES).min(room);
        if count > UNASKED_READ_BYTES
            && let Some(size) = file.size_at_once()
        {
            let left = size.saturating_sub(args.offset);
            count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        let buffer = self.buffer(count).await?;
        let read = file.read(via, args.offset, count, buffer).await;
        self.was_read(&file, read).await
    }

    async fn was_read(&self, file: &Opened, read: Told<ReadData>) -> Answer<ops::ReadOk> {
        match read {
            Ok(read) => Ok(ops::ReadOk { end: read.end, data: read.buffer.freeze() }),
            Err(failed) => Err(Box::pin(self.no_data(file, failed)).await),
        }
    }

    // NFS4-8881-18.32-a
    pub(super) async fn write(&mut self, args: ops::Write) -> Answer<ops::WriteOk> {
        let file = self.file_to_change()?;
        let via = self.via(&file, args.state, Access::WRITE).await?;
        // Before the write: a loss after this moment changes the verifier.
        let verifier = Verifier(self.server.write_verifier(&*file.file_system).0);
        let stability = match args.stability {
            ops::Stability::Unstable => attr::Stability::Unstable,
            ops::Stability::DataSync => attr::Stability::DataSync,
            ops::Stability::FileSync => attr::Stability::FileSync,
        };
        let written = match file.file_system.write(via, args.offset, args.data, stability).await {
            Ok(written) => written,
            Err(failed) => return Err(Box::pin(self.no_data(&file, failed)).await),
        };
        let committed = match written.committed {
            attr::Stability::Unstable => ops::Stability::Unstable,
            attr::Stability::DataSync => ops::Stability::DataSync,
            attr::Stability::FileSync => ops::Stability::FileSync,
        };
        Ok(ops::WriteOk { count: u32::try_from(written.count).unwrap_or(u32::MAX), committed, verifier })
    }

    // NFS4-8881-18.32-a
    pub(super) async fn commit(&mut self, args: ops::Commit) -> Answer<ops::CommitOk> {
        let file = self.file()?;
        let via = Via::caller(file.caller.clone(), file.file);
        if let Err(failed) = file.file_system.commit(via, args.offset, args.count).await {
            return Err(self.no_data(&file, failed).await);
        }
        // After the wait for the disk: a loss before that moment has changed the verifier.
        Ok(ops::CommitOk { verifier: Verifier(self.server.write_verifier(&*file.file_system).0) })
    }
}
