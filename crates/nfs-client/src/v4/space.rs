//! Holes and space: SEEK, ALLOCATE, DEALLOCATE. Minor version 2.
//!
//! The client does not use READ_PLUS, because none of its data can be placed directly (ULB-5.1.1-b). SEEK and READ do
//! the same.

use super::{
    Error, Nfs4, Opened,
    compound::{Plan, put},
    data::By,
    reply::done,
    standing::Ground,
};
use rpcrdma_nfs::v4::{
    Args, Op, Status,
    ops::{self, Content},
};

impl Nfs4 {
    /// SEEK: where the next data or the next hole begins, from `offset` on; `None` if there is none before the end of
    /// the file. The end itself counts as a hole.
    ///
    /// # Errors
    /// For errors here and below see [`Error`].
    pub async fn seek<'a>(&self, by: impl Into<By<'a>>, offset: u64, what: Content) -> Result<Option<u64>, Error> {
        let by = by.into();
        let mut build = |ground: &Ground| {
            let state = self.state_of(Op::Seek, by, ground)?;
            Ok(vec![put(by.file()), Args::Seek(ops::Seek { state, offset, what })])
        };
        let mut reply = self.inner.perform(Plan::looks(Op::Seek), by.held(), &mut build).await?;
        match done!(reply, Seek) {
            Ok(found) if found.end && what == Content::Data => Ok(None),
            Ok(found) if found.offset < offset => {
                Err(Error::nonsense(Op::Seek, "found data or a hole before the offset where the search began"))
            }
            Ok(found) => Ok(Some(found.offset)),
            Err(error) if error.status() == Some(Status::NXIO) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// ALLOCATE: reserves space for a range.
    pub async fn allocate(&self, opened: &Opened, offset: u64, length: u64) -> Result<(), Error> {
        let held = &opened.held;
        let mut build = |ground: &Ground| {
            let state = self.state_of(Op::Allocate, By::Open(opened), ground)?;
            Ok(vec![put(&held.file), Args::Allocate(ops::Allocate { state, offset, length })])
        };
        let mut reply = self.inner.perform(Plan::changes(Op::Allocate), Some(held), &mut build).await?;
        done!(reply, Allocate)
    }

    /// DEALLOCATE: makes a range a hole.
    pub async fn deallocate(&self, opened: &Opened, offset: u64, length: u64) -> Result<(), Error> {
        let held = &opened.held;
        let mut build = |ground: &Ground| {
            let state = self.state_of(Op::Deallocate, By::Open(opened), ground)?;
            Ok(vec![put(&held.file), Args::Deallocate(ops::Deallocate { state, offset, length })])
        };
        let mut reply = self.inner.perform(Plan::changes(Op::Deallocate), Some(held), &mut build).await?;
        done!(reply, Deallocate)
    }
}
