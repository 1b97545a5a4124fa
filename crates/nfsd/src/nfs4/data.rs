//! Not yet.

use super::compound::Compound;
use rpcrdma_nfs::v4::{
    Status,
    ops::{self, Answer},
};

impl Compound {
    pub(super) async fn read(&mut self, _: ops::Read, _: usize) -> Answer<ops::ReadOk> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) async fn write(&mut self, _: ops::Write) -> Answer<ops::WriteOk> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) async fn commit(&mut self, _: ops::Commit) -> Answer<ops::CommitOk> {
        Err(Status::NOTSUPP.into())
    }
}
